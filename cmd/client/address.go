package main

import (
	"net"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/config"
)

// restAddress is the value of -m. A host alone is at the port that REST has by default.
type restAddress string

func (a *restAddress) String() string { return string(*a) }
func (a *restAddress) Type() string   { return "string" }

func (a *restAddress) Set(s string) error {
	if s != "" && !strings.ContainsAny(s, ":/") {
		s = net.JoinHostPort(s, strconv.Itoa(defaultRESTPort()))
	}
	*a = restAddress(s)
	return nil
}

func defaultRESTPort() int { return config.RestPort.Value(nil) }
