package yarnfake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Launch is a container that starts.
type Launch struct {
	Container   yarn.ContainerID
	Node        yarn.NodeID
	Master      bool // it is an ApplicationMaster
	User        string
	Size        yarn.Resource
	Context     *yarnpb.ContainerLaunchContextProto
	Credentials *token.Credentials // those of the context, and the AMRM token for a master

	base        string // node's folder
	submitted   int64
	maxAttempts int32
	webAddr     string
}

// Runner runs a container and returns its exit status and diagnostics. It ends soon after ctx does, which is how
// containers are stopped; what it returns then does not count.
type Runner func(ctx context.Context, l Launch) (exit int32, diagnostics string)

// Idle runs nothing until the container is stopped.
func Idle(ctx context.Context, _ Launch) (int32, string) {
	<-ctx.Done()
	return 143, ""
}

// Localizer fetches a local resource into the file dst. It is called for URLs that are not of this machine's files.
type Localizer func(ctx context.Context, r *yarnpb.LocalResourceProto, dst string) error

// Processes is a Runner that does what a NodeManager does: it makes the container's folders, localises its files, writes
// the credentials file, and runs the command by bash with the environment of a container, in a process group of its own.
// Stopping is SIGTERM to the group and, 250 ms later, SIGKILL. fetch may be nil when all resources are file: URLs;
// archives are not unpacked. extra is added to every environment.
//
// The processes are killed with this process.
func Processes(fetch Localizer, extra map[string]string) Runner {
	return func(ctx context.Context, l Launch) (int32, string) {
		exit, err := l.run(ctx, fetch, extra)
		if err != nil {
			return exit, err.Error()
		}
		return exit, ""
	}
}

// WorkDir is the container's working directory under Processes.
func (l Launch) WorkDir() string {
	return filepath.Join(l.base, "local", l.Container.Attempt.App.String(), l.Container.String())
}

// LogDir is the container's log folder under Processes.
func (l Launch) LogDir() string {
	return filepath.Join(l.base, "logs", l.Container.Attempt.App.String(), l.Container.String())
}

// Environment is the environment that YARN gives the container: the launch context's, expanded, and YARN's own variables.
func (l Launch) Environment(extra map[string]string) map[string]string {
	app := l.Container.Attempt.App
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": "/home/", "SHELL": "/bin/bash", "PWD": l.WorkDir(), "USER": l.User, "LOGNAME": l.User,
		"CONTAINER_ID": l.Container.String(), "NM_HOST": l.Node.Host, "NM_PORT": strconv.Itoa(int(l.Node.Port)), "NM_HTTP_PORT": "8042",
		"LOCAL_DIRS": filepath.Join(l.base, "local", app.String()), "LOCAL_USER_DIRS": filepath.Join(l.base, "local"),
		"LOG_DIRS": l.LogDir(), token.EnvFile: filepath.Join(l.WorkDir(), "container_tokens"),
	}
	if l.Master {
		env["APP_SUBMIT_TIME_ENV"] = strconv.FormatInt(l.submitted, 10)
		env["MAX_APP_ATTEMPTS"] = strconv.Itoa(int(l.maxAttempts))
		env["APPLICATION_WEB_PROXY_BASE"] = "/proxy/" + app.String()
	}
	for k, v := range extra {
		env[k] = v
	}
	for _, kv := range l.Context.GetEnvironment() {
		env[kv.GetKey()] = os.Expand(l.expand(kv.GetValue()), func(k string) string { return env[k] })
	}
	return env
}

// expand replaces what YARN replaces in commands and environments.
func (l Launch) expand(s string) string {
	s = strings.ReplaceAll(s, "<LOG_DIR>", l.LogDir())
	s = strings.ReplaceAll(s, "<CPS>", ":")
	s = strings.ReplaceAll(s, "{{", "$")
	return strings.ReplaceAll(s, "}}", "")
}

// Exit statuses of a container that cannot be started. Source: ContainerExecutor.ExitCode and LaunchFailure.
const exitLaunchFailed = -1

func (l Launch) run(ctx context.Context, fetch Localizer, extra map[string]string) (int32, error) {
	dir := l.WorkDir()
	for _, d := range []string{dir, l.LogDir(), filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return exitLaunchFailed, err
		}
	}
	for _, r := range l.Context.GetLocalResources() {
		if err := localize(ctx, r.GetValue(), filepath.Join(dir, r.GetKey()), fetch); err != nil {
			return exitLaunchFailed, fmt.Errorf("localizing %s: %w", r.GetKey(), err)
		}
	}
	if err := token.WriteFile(filepath.Join(dir, "container_tokens"), l.Credentials, token.Writable); err != nil {
		return exitLaunchFailed, err
	}
	script := l.expand(strings.Join(l.Context.GetCommand(), " "))
	cmd := exec.Command("/bin/bash", "-c", script) //nolint:gosec,noctx // the container's own command; stopped below
	cmd.Dir = dir
	for k, v := range l.Environment(extra) {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr := &tail{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return exitLaunchFailed, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		timer := time.NewTimer(250 * time.Millisecond)
		defer timer.Stop()
		select {
		case err = <-done:
		case <-timer.C:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			err = <-done
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the command left behind
	return l.exit(err, stderr.String())
}

func (l Launch) exit(err error, stderr string) (int32, error) {
	var ee *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &ee):
		code := int32(ee.ExitCode()) //nolint:gosec // a byte
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = 128 + int32(ws.Signal()) //nolint:gosec // small
		}
		return code, fmt.Errorf("Exception from container-launch.\nContainer id: %s\nExit code: %d\n%s", l.Container, code, stderr)
	default:
		return exitLaunchFailed, err
	}
}

// localize puts one resource at dst and checks size and time as YARN does.
func localize(ctx context.Context, r *yarnpb.LocalResourceProto, dst string, fetch Localizer) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return err
	}
	u := r.GetResource()
	if u.GetScheme() != "file" {
		if fetch == nil {
			return fmt.Errorf("no localizer for scheme %q", u.GetScheme())
		}
		return fetch(ctx, r, dst)
	}
	st, err := os.Stat(u.GetFile())
	if err != nil {
		return err
	}
	if st.IsDir() {
		return os.Symlink(u.GetFile(), dst)
	}
	if st.ModTime().UnixMilli() != r.GetTimestamp() {
		return fmt.Errorf("resource %s changed on src filesystem - expected: %d, was: %d", u.GetFile(), r.GetTimestamp(), st.ModTime().UnixMilli())
	}
	in, err := os.Open(u.GetFile())
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	// No process that another container's start forks meanwhile may hold the file open for writing: the kernel would refuse to execute it
	// ("text file busy", golang.org/issue/22315).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500) // localised files are executable for their owner
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

// tail keeps the last bytes of a process's standard error for diagnostics.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.b.Write(p)
	if n := t.b.Len() - keep; n > 0 {
		t.b.Next(n)
	}
	return len(p), nil
}

func (t *tail) String() string { return t.b.String() }
