//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Enabled reports whether this build has failpoints.
const Enabled = true

var folder = sync.OnceValue(func() string { return os.Getenv(Folder) })

// seen are the points that this process came to.
var seen sync.Map

// At is a point where a process can be killed, stopped or delayed.
func At(point string) { _ = Error(point) }

// Error is a point that can also return an error in place of what follows it.
func Error(point string) error {
	dir := folder()
	if dir == "" {
		return nil
	}
	return hit(dir, point)
}

func hit(dir, point string) error {
	name := FileName(point)
	if _, known := seen.LoadOrStore(point, true); !known {
		_ = os.WriteFile(filepath.Join(dir, "reached", name), nil, 0o644)
	}
	armed := filepath.Join(dir, "armed", name)
	if _, err := os.Stat(armed); err != nil { // the usual case
		return nil
	}
	a, ok := take(dir, name)
	if !ok {
		return nil
	}
	switch a.Kind {
	case Kill:
		strike(os.Getpid(), syscall.SIGKILL)
	case KillParent:
		strike(os.Getppid(), syscall.SIGKILL)
	case Stop:
		strike(os.Getpid(), syscall.SIGSTOP)
	case Sleep:
		time.Sleep(a.For)
	case Fail:
		return fmt.Errorf("failpoint %s: an injected error", point)
	case NoSpace:
		return fmt.Errorf("failpoint %s: %w", point, syscall.ENOSPC)
	case IOError:
		return fmt.Errorf("failpoint %s: %w", point, syscall.EIO)
	}
	return nil
}

// strike sends a signal, and waits for it when it is for this process: nothing may happen between the point and the signal.
func strike(pid int, sig syscall.Signal) {
	_ = syscall.Kill(pid, sig)
	if sig == syscall.SIGKILL && pid == os.Getpid() {
		select {}
	}
}

// take counts a hit and reports whether it is the one. The lock makes hits of several processes one after another.
func take(dir, name string) (Action, bool) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Action{}, false
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return Action{}, false
	}
	armed := filepath.Join(dir, "armed", name)
	text, err := os.ReadFile(armed)
	if err != nil { // another process took it
		return Action{}, false
	}
	a, err := Parse(string(text))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return Action{}, false
	}
	if a.Hit > 1 {
		a.Hit--
		_ = os.WriteFile(armed, []byte(a.String()), 0o644)
		return Action{}, false
	}
	fired := filepath.Join(dir, "fired", name)
	_ = os.WriteFile(armed, fmt.Appendf(nil, "%s\npid %d at %s\n", a, os.Getpid(), time.Now().UTC().Format(time.RFC3339Nano)), 0o644)
	return a, os.Rename(armed, fired) == nil
}
