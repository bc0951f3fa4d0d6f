//go:build !linux

package network

import (
	"net"
	"time"
)

func boundSilence(*net.TCPConn, time.Duration) error { return nil }
