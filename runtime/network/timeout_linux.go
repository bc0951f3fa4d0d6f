package network

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is a socket option. Source: tcp(7), TCP_USER_TIMEOUT; linux/tcp.h.
const tcpUserTimeout = 18

// boundSilence ends a connection whose peer acknowledges nothing, or takes nothing, for d. Without it the kernel repeats what is not
// acknowledged for a quarter of an hour, with pauses that grow to two minutes, in which keep-alive does not look.
func boundSilence(c *net.TCPConn, d time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return serr
}
