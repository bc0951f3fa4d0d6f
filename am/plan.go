package am

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
)

const (
	// planTimeout bounds the role plan, in which the program builds its graph twice: building does no I/O.
	planTimeout = 2 * time.Minute
	// maxGraph bounds the graph that a program may hand over, in bytes.
	maxGraph = 64 << 20
	// planFailed is the exit code of a program whose build returned an error or differs between two runs.
	planFailed = 2
	// maxMessage bounds what is shown of the program's words, and maxErrors what is kept of them. In bytes.
	maxMessage = 8 << 10
	maxErrors  = 1 << 20
)

// PlanError says that the program's main could not build its graph.
type PlanError struct {
	Program string
	Text    string // the program's words
	Help    string // what it showed, when it was asked for its help and did no more
}

func (e *PlanError) Error() string {
	if e.Help != "" {
		return fmt.Sprintf("the program %s showed its help, for which its arguments ask, and built no job graph", e.Program)
	}
	return fmt.Sprintf("the program %s did not build its job graph: %s", e.Program, e.Text)
}

// PlanRequest is a program to be asked for its graph.
type PlanRequest struct {
	Path string // of the program
	Name string // for messages
	Dir  string // private folder
	// WorkDir is where the program runs, so that files that were sent along are where its workers find them; "" is Dir.
	WorkDir string
	Config  rpc.ProcessConfig
	Env     []string      // added to the environment
	Stderr  io.Writer     // gets what the program wrote to its standard error
	Limit   time.Duration // 0 is two minutes
}

// Plan runs the user's binary in role plan and returns the graph that it writes to file descriptor 3.
//
// Errors: *PlanError for what the user has to mend, *container.ProtocolError.
func Plan(ctx context.Context, r PlanRequest) (*graph.JobGraph, error) {
	limit := cmp.Or(r.Limit, planTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	file, err := os.CreateTemp(r.Dir, "plan-*.json")
	if err != nil {
		return nil, fmt.Errorf("am: plan: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the container's folder goes anyway
	err = json.NewEncoder(file).Encode(r.Config)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("am: plan: %w", err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("am: plan: %w", err)
	}
	defer out.Close() //nolint:errcheck // only read
	var errout bytes.Buffer
	cmd := exec.CommandContext(ctx, r.Path, r.Config.Args...) //nolint:gosec // the user's program
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = cmp.Or(r.WorkDir, r.Dir), r.Stderr, &limited{buf: &errout, n: maxErrors}, []*os.File{w}
	cmd.Env = append(append(os.Environ(), r.Env...), rpc.EnvRole+"="+rpc.RolePlan, rpc.EnvConfig+"="+file.Name(), rpc.EnvJobID+"="+r.Config.JobID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Start()
	_ = w.Close() // the program has its own
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &PlanError{Program: r.Name, Text: err.Error()}
	}
	text, rerr := io.ReadAll(io.LimitReader(out, maxGraph+1))
	err = cmd.Wait()
	if help := strings.TrimSpace(errout.String()); err == nil && len(text) == 0 && help != "" && asksForHelp(r.Config.Args) {
		return nil, &PlanError{Program: r.Name, Help: help}
	}
	if r.Stderr != nil && err == nil { // what it says about a failure is the error
		_, _ = r.Stderr.Write(errout.Bytes()) // only shows
	}
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, &PlanError{Program: r.Name, Text: fmt.Sprintf("it did not end within %s. The function given to stream.Main is called twice, to compare the two graphs, and must not do I/O or wait", limit)}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &PlanError{Program: r.Name, Text: planText(err, errout.String())}
	case rerr != nil:
		return nil, fmt.Errorf("am: plan: %w", rerr)
	case len(text) > maxGraph:
		return nil, &PlanError{Program: r.Name, Text: fmt.Sprintf("its graph is larger than %d bytes", maxGraph)}
	}
	var g graph.JobGraph
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, &PlanError{Program: r.Name, Text: fmt.Sprintf("what it wrote is no graph (%v): its main must call stream.Main before it reads or writes anything", err)}
	}
	if g.Protocol != version.Protocol {
		return nil, &container.ProtocolError{What: "the program " + r.Name, Version: g.SDK, Protocol: g.Protocol}
	}
	return &g, nil
}

// asksForHelp reports whether Go's flag package takes one of the arguments for a wish for help.
func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--h" || a == "-help" || a == "--help" })
}

// planText is the program's message, with the exit code where it was not the one of a build that failed in order. What the program itself
// wrote is shortened; the list of the graph's mistakes is not.
func planText(err error, errout string) string {
	words, list := errout, ""
	if at := strings.LastIndex(errout, rpc.GraphMistakes); at >= 0 {
		at = strings.LastIndexByte(errout[:at], '\n') + 1
		words, list = errout[:at], strings.TrimSpace(errout[at:])
	}
	text := strings.TrimSpace(compact(limit(words, maxMessage)) + "\n" + list)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == planFailed && text != "" {
		return text
	}
	if text == "" {
		if exit == nil || exit.ExitCode() < 0 { // a signal
			return err.Error()
		}
		text = "it ended by itself, without a word, before stream.Main had its graph (os.Exit, runtime.Goexit?)"
	}
	return err.Error() + ": " + text
}

// compact keeps the first lines and the last one of a long text: a usage message between two errors, or a stack below one. Go's flag package
// says an error, and the usage, before the program says the same error: that comes first then, and once.
func compact(s string) string {
	const first = 8
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if last := len(lines) - 1; last > 0 && strings.HasSuffix(lines[last], lines[0]) {
		lines[0], lines = lines[last], lines[:last]
	}
	if len(lines) > first+1 {
		lines = append(append(lines[:first:first], "..."), lines[len(lines)-1])
	}
	return strings.Join(lines, "\n")
}

// limited keeps the first n bytes.
type limited struct {
	buf *bytes.Buffer
	n   int
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.n - l.buf.Len(); room > 0 {
		l.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
