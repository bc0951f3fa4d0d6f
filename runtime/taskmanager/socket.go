package taskmanager

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	socketPrefix = "thalweg-sock-"
	// socketsKeptFor is how old a folder must be before it is taken for one that a killed process left: its socket is used at the
	// start of a job process only.
	socketsKeptFor = time.Hour
)

// SocketPath makes a private folder (mode 0700) for a job process's control socket and names the socket in it. The folder is in the
// system's temporary folder, since paths of sockets are short (108 bytes) and containers' folders are long. The caller removes it; what a killed
// process of this user left is removed by a later call.
func SocketPath() (dir, sock string, err error) {
	base := os.TempDir()
	if len(base) > 60 {
		base = "/tmp"
	}
	sweepSockets(base, time.Now())
	dir, err = os.MkdirTemp(base, socketPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", "", fmt.Errorf("taskmanager: make folder for a socket: %w", err)
	}
	return dir, filepath.Join(dir, "control.sock"), nil
}

// sweepSockets removes old folders of processes that are gone. Those of other users cannot be removed, and stay.
func sweepSockets(base string, now time.Time) {
	found, err := filepath.Glob(filepath.Join(base, socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, d := range found {
		pid, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(d), socketPrefix), "-")
		if _, err := strconv.Atoi(pid); !ok || err != nil {
			continue
		}
		st, err := os.Lstat(d)
		if err != nil || !st.IsDir() || now.Sub(st.ModTime()) < socketsKeptFor {
			continue
		}
		if _, err := os.Stat("/proc/" + pid); os.IsNotExist(err) {
			_ = os.RemoveAll(d) // a leftover of a few bytes
		}
	}
}
