package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder is what has a TCP port of this machine.
type holder struct {
	known bool
	pid   int  // 0 when it is another user's, or none
	waits bool // it is a closed connection: the system gives the port back by itself
	open  bool // it is an open connection that got the port by chance
}

// States of /proc/net/tcp. **Source:** Linux, include/net/tcp_states.h.
const (
	tcpEstablished = "01"
	tcpTimeWait    = "06"
	tcpListen      = "0A"
)

// holderOf looks for who has the port: who listens there, else an open connection, else a closed one.
func holderOf(port int) holder {
	inodes := map[string]string{} // state to inode
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			state := f[3]
			if state != tcpListen && state != tcpTimeWait { // FIN_WAIT and the like end as the process closes
				state = tcpEstablished
			}
			inodes[state] = f[9]
		}
	}
	if in, ok := inodes[tcpListen]; ok {
		return holder{known: true, pid: ownerOf(in)}
	}
	if in, ok := inodes[tcpEstablished]; ok {
		return holder{known: true, open: true, pid: ownerOf(in)}
	}
	_, ok := inodes[tcpTimeWait]
	return holder{known: ok, waits: ok}
}

// ownerOf is the process that has the socket, 0 when none is found.
func ownerOf(inode string) int {
	for _, pid := range processes() {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // another user's, or ended
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == "socket:["+inode+"]" {
				return pid
			}
		}
	}
	return 0
}

// text says what has the port, and what to do.
func (h holder) text(port int) string {
	const other = "set THALWEG_PORT_BASE to another block"
	who := "another process"
	if h.pid != 0 {
		who = fmt.Sprintf("process %d (%s)", h.pid, shortCommand(h.pid))
	}
	switch {
	case h.waits:
		return fmt.Sprintf("port %d is still held by a connection that was closed (TIME_WAIT): it is free again within a minute; try again then, or %s", port, other)
	case h.open:
		return fmt.Sprintf("port %d is taken by a connection of %s: wait for its end, or %s", port, who, other)
	case h.known:
		return fmt.Sprintf("port %d is taken by %s: end it, or %s", port, who, other)
	}
	return fmt.Sprintf("port %d is taken: end what listens there, or %s", port, other)
}

// shortCommand is the name of a process's program, with its last argument, which is the main class of a JVM.
func shortCommand(pid int) string {
	args := cmdline(pid)
	switch len(args) {
	case 0:
		return "?"
	case 1:
		return filepath.Base(args[0])
	}
	last := args[len(args)-1]
	if len(last) > 60 {
		last = last[:60] + "..."
	}
	return filepath.Base(args[0]) + " ... " + last
}

// portsTaken says which ports of a daemon that has died are taken by others; "" when none is.
func (c *Cluster) portsTaken(name string) string {
	d, err := c.daemon(name)
	if err != nil {
		return ""
	}
	for _, o := range d.ports {
		if h := holderOf(c.state.PortBase + o); h.known && !h.open {
			return "; " + h.text(c.state.PortBase+o)
		}
	}
	return ""
}
