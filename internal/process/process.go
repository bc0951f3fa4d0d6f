// Package process names a process so that another one can find out later whether it has ended (process.go), makes folders that go with a process
// (folder.go), and says when a process is to end (ending.go). It is layer L0.
//
// A name holds the machine as it is since it was started (boot id), the process's number space, its number, and when it was started, so that
// it never means another process. Only Linux has all of these; elsewhere there are no names and nothing is known.
package process

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Self is the name of this process: letters, digits and "-"; "" where processes have none.
func Self() string { return self() }

var self = sync.OnceValue(func() string {
	m := machine()
	start, _, ok := stat(os.Getpid())
	if m == "" || !ok {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", m, os.Getpid(), start)
})

var machine = sync.OnceValue(func() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	h := sha256.Sum256([]byte(strings.TrimSpace(string(boot)) + " " + space))
	return hex.EncodeToString(h[:6])
})

// Ended reports whether a named process is known to have ended. It is false for one of another machine, of which nothing is known.
func Ended(name string) bool {
	m, rest, _ := strings.Cut(name, "-")
	number, start, ok := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil || pid <= 0 || m == "" || m != machine() {
		return false
	}
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	now, state, ok := stat(pid)
	return ok && (now != start || state == "Z" || state == "X")
}

// stat is when a process was started, in the kernel's ticks, and its state.
//
// Source: proc_pid_stat(5), fields 3 and 22.
func stat(pid int) (start, state string, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", "", false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name before may hold anything
	if len(f) < 20 {
		return "", "", false
	}
	return f[19], f[0], true
}
