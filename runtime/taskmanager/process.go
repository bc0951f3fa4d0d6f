package taskmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/rpc"
)

// tailLines is how much of a process's standard error its Exit carries.
const tailLines = 20

// ProcessLauncher forks the job's artifact in role worker: in a process group of its own, killed when this process dies, its standard
// output in <LogDir>/taskmanager.out and its standard error in <LogDir>/worker-<job>.log.
type ProcessLauncher struct {
	Dir    string // private folder for configuration files
	LogDir string // "" discards output (the tail of standard error is kept for the exit's reason)
	Env    []string
	Logger zerolog.Logger
}

// Launch implements Launcher.
func (l *ProcessLauncher) Launch(ctx context.Context, spec LaunchSpec) (Process, error) {
	path, err := spec.Artifact(ctx)
	if err != nil {
		return nil, err
	}
	return l.Start(path, rpc.RoleWorker, spec.Config)
}

// Start forks the program at path in a role and serves its control socket. It is also how the coordinator process is started, through
// StartWith.
func (l *ProcessLauncher) Start(path, role string, cfg rpc.ProcessConfig) (Process, error) {
	p := &workerProcess{links: make(chan rpc.WorkerLink, 1), ended: make(chan struct{})}
	sockDir, sock, err := SocketPath()
	if err != nil {
		return nil, err
	}
	p.sockDir = sockDir
	p.server, err = rpc.ServeSocket(sock, func(link rpc.WorkerLink) {
		select {
		case p.links <- link:
		default:
			link.Close(errors.New("taskmanager: a worker connects once"))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("taskmanager: %w", errors.Join(err, os.RemoveAll(sockDir)))
	}
	p.proc, err = Fork(ForkSpec{Path: path, Args: cfg.Args, Role: role, Control: sock, Config: cfg, Dir: l.Dir, LogDir: l.LogDir, Env: l.Env})
	if err != nil {
		p.close()
		return nil, err
	}
	go func() { // ends with the process
		defer close(p.ended)
		p.exit = p.proc.Wait()
	}()
	return p, nil
}

type workerProcess struct {
	proc    *Forked
	server  *rpc.SocketServer
	sockDir string
	links   chan rpc.WorkerLink
	ended   chan struct{}
	exit    Exit
}

func (p *workerProcess) close() {
	p.server.Close()
	_ = os.RemoveAll(p.sockDir) // a leftover of a few bytes in the temporary folder
}

func (p *workerProcess) Link(ctx context.Context) (rpc.WorkerLink, error) {
	select {
	case l := <-p.links:
		return l, nil
	default:
	}
	select {
	case l := <-p.links:
		return l, nil
	case <-p.ended:
		return nil, errors.New("taskmanager: the process ended before it connected")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *workerProcess) PID() int                 { return p.proc.PID() }
func (p *workerProcess) Stop(grace time.Duration) { p.proc.Stop(grace) }

func (p *workerProcess) Wait() Exit {
	<-p.ended
	select {
	case l := <-p.links: // connected, and nobody took it
		l.Close(nil)
	default:
	}
	p.close()
	return p.exit
}

// ForkSpec describes a job process.
type ForkSpec struct {
	Path    string
	Args    []string
	Role    string
	Control string // path of the Unix socket that it dials
	Config  rpc.ProcessConfig
	Dir     string // for the configuration file
	LogDir  string
	Env     []string // added to this process's own
}

// Forked is a running job process.
type Forked struct {
	pid     int
	started chan error
	done    chan struct{}
	exit    Exit

	mu      sync.Mutex
	ended   bool
	stopped bool // by us
	timer   *time.Timer
}

// Fork starts a job process. It is killed when this process dies.
func Fork(s ForkSpec) (*Forked, error) {
	conf, err := os.CreateTemp(s.Dir, "process-*.json")
	if err != nil {
		return nil, fmt.Errorf("taskmanager: write the configuration of a process: %w", err)
	}
	err = errors.Join(json.NewEncoder(conf).Encode(s.Config), conf.Close())
	if err != nil {
		return nil, fmt.Errorf("taskmanager: write %s: %w", conf.Name(), errors.Join(err, os.Remove(conf.Name())))
	}
	var out, errOut io.WriteCloser
	if s.LogDir != "" {
		if out, err = appendTo(filepath.Join(s.LogDir, "taskmanager.out")); err != nil {
			return nil, err
		}
		if errOut, err = appendTo(filepath.Join(s.LogDir, s.Role+"-"+shortID(s.Config.JobID)+".log")); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	tail := &tail{to: errOut}
	command := func() *exec.Cmd {
		cmd := exec.Command(s.Path, s.Args...) //nolint:noctx // its end is supervised below
		cmd.Env = append(os.Environ(), s.Env...)
		cmd.Env = append(cmd.Env, rpc.EnvRole+"="+s.Role, rpc.EnvControl+"="+s.Control, rpc.EnvConfig+"="+conf.Name(), rpc.EnvJobID+"="+s.Config.JobID)
		cmd.Stderr = tail
		if out != nil {
			cmd.Stdout = out
		}
		cmd.WaitDelay = time.Second // a grandchild may hold the pipe
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	f := &Forked{started: make(chan error, 1), done: make(chan struct{})}
	go f.run(command, tail, s.Control, func() {
		_ = os.Remove(conf.Name()) // its folder is removed later
		if out != nil {
			_, _ = out.Close(), errOut.Close()
		}
	})
	if err := <-f.started; err != nil {
		<-f.done
		return nil, fmt.Errorf("taskmanager: start %s: %w", s.Path, err)
	}
	return f, nil
}

func appendTo(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("taskmanager: open log: %w", err)
	}
	return f, nil
}

// run owns the process. The parent-death signal belongs to the thread that forked, so the thread stays until the process has ended.
func (f *Forked) run(command func() *exec.Cmd, tail *tail, control string, cleanup func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(f.done)
	defer cleanup()
	cmd, err := startCommand(command)
	if err != nil {
		f.started <- err
		return
	}
	f.pid = cmd.Process.Pid
	f.started <- nil
	err = cmd.Wait()
	f.mu.Lock()
	f.ended = true
	stopped := f.stopped
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	_ = syscall.Kill(-f.pid, syscall.SIGKILL) // its children, if any
	killMarked(rpc.EnvControl, control)       // those that left its group
	f.exit = describe(cmd.ProcessState, err, stopped, tail.String(cmd.ProcessState.ExitCode() == crashed))
}

// startCommand starts a command. A fork of another goroutine may for a moment hold the descriptor through which the artifact was
// written; the kernel then answers "text file busy" (golang.org/issue/22315).
func startCommand(command func() *exec.Cmd) (*exec.Cmd, error) {
	for n := 0; ; n++ {
		cmd := command()
		err := cmd.Start()
		if err == nil || n == busyTries || !errors.Is(err, syscall.ETXTBSY) {
			return cmd, err
		}
		t := time.NewTimer(busyPause)
		<-t.C
	}
}

const (
	busyTries = 50
	busyPause = 5 * time.Millisecond
)

// PID is the process id.
func (f *Forked) PID() int { return f.pid }

// Done is closed when the process has ended.
func (f *Forked) Done() <-chan struct{} { return f.done }

// Wait waits for the end.
func (f *Forked) Wait() Exit {
	<-f.done
	return f.exit
}

// Stop asks the process to end (SIGTERM) and kills its group after grace, at once with 0.
func (f *Forked) Stop(grace time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if grace <= 0 {
		f.stopped = true
		_ = syscall.Kill(-f.pid, syscall.SIGKILL) // gone already is fine
		return
	}
	if f.timer != nil {
		return
	}
	_ = syscall.Kill(-f.pid, syscall.SIGTERM)
	f.timer = time.AfterFunc(grace, func() { f.Stop(0) })
}

// describe puts an end into words.
func describe(st *os.ProcessState, err error, stopped bool, tail string) Exit {
	e := Exit{Code: 1}
	if st == nil {
		e.Reason = fmt.Sprintf("the process could not be waited for: %v", err)
		return e
	}
	ws, _ := st.Sys().(syscall.WaitStatus)
	switch {
	case ws.Signaled():
		e.Code = -int(ws.Signal())
		e.Reason = fmt.Sprintf("killed by signal %d (%s)", ws.Signal(), ws.Signal())
		switch {
		case ws.Signal() == syscall.SIGKILL && stopped:
			e.Reason += " by its TaskManager, since it did not end in time"
		case ws.Signal() == syscall.SIGKILL:
			e.Reason += ": by the kernel for lack of memory, or by hand"
		}
	default:
		e.Code = st.ExitCode()
		e.Reason = "exit code " + strconv.Itoa(e.Code)
	}
	if tail != "" {
		e.Reason += "; last lines of its standard error:\n" + tail
	}
	return e
}

// tail passes writes on and keeps the last lines, and of a crash the line that names it: the stacks that follow are often longer.
type tail struct {
	to    io.Writer
	mu    sync.Mutex
	lines []string
	part  []byte
	crash string
}

const (
	maxTailLine = 2048
	crashed     = 2 // the exit code of Go's runtime after a panic or a fatal error; also that of a build that fails or panics
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if room := maxTailLine - len(t.part); room > 0 {
			t.part = append(t.part, line[:min(room, len(line))]...)
		}
		rest = after
		if !ended {
			break
		}
		full := string(t.part)
		t.part = t.part[:0]
		if rpc.Crash(full) {
			t.crash = full
		}
		t.lines = append(t.lines, full)
		if len(t.lines) > tailLines {
			t.lines = t.lines[1:]
		}
	}
	t.mu.Unlock()
	if t.to != nil {
		if _, err := t.to.Write(p); err != nil {
			t.to = nil // a full disk must not end the worker with a broken pipe
		}
	}
	return len(p), nil
}

// String is what is kept; crash asks for the line that names a crash even when it is not among the last.
func (t *tail) String(crash bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.lines)
	if len(t.part) > 0 {
		lines = append(lines, string(t.part))
	}
	if crash && t.crash != "" && !slices.Contains(lines, t.crash) {
		lines = append([]string{t.crash, "..."}, lines...)
	}
	return strings.Join(lines, "\n")
}
