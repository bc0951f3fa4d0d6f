package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	markDir    = "-Dthalweg.rig.dir="
	markDaemon = "-Dthalweg.rig.daemon="

	termWait = 15 * time.Second // SIGTERM to SIGKILL
	killWait = 10 * time.Second // SIGKILL to gone
)

// spawn starts argv detached from this process: its own session, output appended to outFile, no standard input. The shell in between
// leaves the process to init, so a test that dies or never waits leaves no zombie behind. It returns the process id.
func spawn(ctx context.Context, dir, outFile string, env, argv []string) (int, error) {
	sh := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `out=$1; shift; setsid "$@" >>"$out" 2>&1 </dev/null & echo $!`, "sh", outFile}, argv...)...)
	sh.Dir = dir
	sh.Env = env
	out, err := sh.Output()
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", argv[0], err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("start %s: no process id in %q", argv[0], out)
	}
	return pid, nil
}

// running returns the process id of the daemon, or 0. A recorded id counts only when that process carries our marks.
func (l layout) running(daemon string) int {
	if b, err := os.ReadFile(l.pid(daemon)); err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && (l.isDaemon(pid, daemon) || execs(pid)) {
			return pid
		}
	}
	for _, p := range processes() { // the record is missing or stale: the marks tell
		if l.isDaemon(p, daemon) {
			return p
		}
	}
	return 0
}

// execs reports whether a process lives and has no command line: while it becomes another program, which takes a while on a busy machine.
func execs(pid int) bool { return !zombie(pid) && cmdline(pid) == nil }

func (l layout) isDaemon(pid int, daemon string) bool {
	args := cmdline(pid)
	if daemon == KDC {
		return l.isKDC(args) && !zombie(pid)
	}
	return contains(args, markDir+l.dir) && contains(args, markDaemon+daemon) && !zombie(pid)
}

// isKDC tells the KDC, which takes no marks, by its file.
func (l layout) isKDC(args []string) bool {
	return contains(args, filepath.Join(l.kdc(), "krb5kdc.pid"))
}

// strays returns processes that belong to this cluster: any JVM with our mark (only), and the containers that NodeManagers started.
func (l layout) strays() []int {
	var out []int
	self := os.Getpid()
	for _, p := range processes() {
		if p == self || zombie(p) {
			continue
		}
		args := cmdline(p)
		if contains(args, markDir+l.dir) || l.isKDC(args) || l.isContainer(p) {
			out = append(out, p)
		}
	}
	return out
}

// isContainer says whether the process is (part of) a YARN container of this cluster: YARN gives each the names of its folders.
func (l layout) isContainer(pid int) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	id := false
	ours := false
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		switch k, v, _ := bytes.Cut(kv, []byte("=")); string(k) {
		case "CONTAINER_ID":
			id = true
		case "LOCAL_DIRS":
			ours = bytes.HasPrefix(v, []byte(l.dir+"/"))
		}
	}
	if id && ours {
		return true
	}
	// A child with an environment of its own still works in its container's folder. A terminal makes it somebody's shell.
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	return err == nil && strings.HasPrefix(cwd, filepath.Join(l.dir, "data", "nodemanager")) && !hasTerminal(pid)
}

// hasTerminal reads field 7 (tty_nr) of /proc/PID/stat.
func hasTerminal(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	return len(f) > 4 && string(f[4]) != "0"
}

func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func cmdline(pid int) []string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

func zombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(b, ')')
	return i < 0 || i+2 >= len(b) || b[i+2] == 'Z' || b[i+2] == 'X'
}

// allStopped returns nil when every thread of the process is stopped by a signal.
func allStopped(pid int) error {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return err
	}
	for _, t := range threads {
		b, err := os.ReadFile(t)
		if err != nil {
			continue // it ended
		}
		if i := bytes.LastIndexByte(b, ')'); i < 0 || i+2 >= len(b) || b[i+2] != 'T' && b[i+2] != 't' {
			return fmt.Errorf("process %d has not stopped", pid)
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// end stops the processes: SIGTERM, and SIGKILL for those that still run after termWait (or at once with hard). It returns when all
// are gone.
func end(ctx context.Context, pids []int, hard bool, still func(int) bool) error {
	signal := syscall.SIGTERM
	wait := termWait
	if hard {
		signal, wait = syscall.SIGKILL, killWait
	}
	for _, p := range pids {
		if still(p) {
			if err := syscall.Kill(p, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("signal process %d: %w", p, err)
			}
			_ = syscall.Kill(p, syscall.SIGCONT) // a paused process would never see SIGTERM
		}
	}
	err := poll(ctx, wait, 20*time.Millisecond, func() error {
		for _, p := range pids {
			if still(p) {
				return fmt.Errorf("process %d still runs", p)
			}
		}
		return nil
	})
	if err == nil || hard || ctx.Err() != nil {
		return err
	}
	return end(ctx, pids, true, still)
}

// poll calls f until it returns nil, the context ends or limit is over; it returns the last error of f.
func poll(ctx context.Context, limit, every time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		var stop *stopPoll
		if errors.As(err, &stop) {
			return stop.err
		}
		select {
		case <-ctx.Done():
			return err
		case <-t.C:
		}
	}
}

// stopPoll ends a poll early: waiting longer cannot help.
type stopPoll struct{ err error }

func (s *stopPoll) Error() string { return s.err.Error() }

// lastError finds the line of a daemon's log that best says why it died, else its last line.
func lastError(paths ...string) string {
	last, bad := "", ""
	for _, p := range paths {
		b, err := tail(p, 64<<10)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "at ") || strings.HasPrefix(line, "/****") || strings.HasPrefix(line, "*****") || strings.HasPrefix(line, "SHUTDOWN_MSG") {
				continue
			}
			last = line
			if strings.Contains(line, " ERROR ") || strings.Contains(line, " FATAL ") || strings.Contains(line, "Exception: ") || strings.HasPrefix(line, "Error") {
				bad = line
			}
		}
	}
	if bad != "" {
		return bad
	}
	if last == "" {
		return "no output"
	}
	return last
}

func tail(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, 2)
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(n, size))
	_, err = f.ReadAt(b, max(0, size-n))
	return b, err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("rig: remove %s: %w", path, err)
	}
	return nil
}
