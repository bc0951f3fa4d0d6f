package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// socket is a TCP socket of a process.
type socket struct {
	port    int // its own
	listens bool
}

// sockets lists the TCP sockets of a process.
//
// Source: proc_pid_net(5), /proc/PID/net/tcp: local address HEX:PORT, state 0A for LISTEN, inode in the tenth column.
func sockets(pid int) (all []socket, err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	own := map[string]bool{}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, "net", table))
		if err != nil {
			continue // a machine without IPv6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || !own[f[9]] {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				return nil, fmt.Errorf("faults: %s/net/%s: %q: %w", proc, table, line, err)
			}
			all = append(all, socket{port: int(port), listens: f[3] == "0A"})
		}
	}
	return all, nil
}

// listening lists the ports at which a process listens.
func listening(pid int) (ports []int, err error) {
	all, err := sockets(pid)
	for _, s := range all {
		if s.listens && !slices.Contains(ports, s.port) {
			ports = append(ports, s.port)
		}
	}
	return ports, err
}

// connections lists the ports of all sockets of a process.
func connections(pid int) (ports []int, err error) {
	all, err := sockets(pid)
	for _, s := range all {
		if !slices.Contains(ports, s.port) {
			ports = append(ports, s.port)
		}
	}
	return ports, err
}

// accepted counts the connections that others have opened to a process.
func accepted(pid int) (n int, err error) {
	all, err := sockets(pid)
	for _, s := range all {
		if !s.listens && slices.Contains(all, socket{s.port, true}) {
			n++
		}
	}
	return n, err
}
