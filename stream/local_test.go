package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/runtime/rpc"
)

func endless(env *Environment) error {
	env.FromSource(datagen.Source(func(n int64) int64 { return n }), NoWatermarks[int64](), "numbers").UID("numbers").Print().UID("out")
	return nil
}

// startProgram starts the program endless as a user does, with the REST port given.
func startProgram(t *testing.T, port int) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	tmp = t.TempDir()
	conf := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(conf, fmt.Appendf(nil, `{"rest.port":"%d"}`, port), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "THALWEG_TEST_PROGRAM=1", "TMPDIR="+tmp, rpc.EnvConfig+"="+conf)
	return cmd, tmp
}

func nothingLeft(t *testing.T, tmp string) {
	t.Helper()
	if files, _ := filepath.Glob(filepath.Join(tmp, "*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// A program whose output nobody reads any more (program | head -3) ends, and leaves no folders.
func TestProgramEndsWithItsReader(t *testing.T) {
	cmd, tmp := startProgram(t, 0)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 3 {
		if !lines.Scan() {
			t.Fatalf("no output: %s", errs.String())
		}
	}
	_ = out.Close()
	if err := cmd.Wait(); err != nil || cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("%v: %s", err, errs.String())
	}
	nothingLeft(t, tmp)
}

// brokenPipe is a standard output that nobody reads.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

// The write that meets the closed pipe does not fail the job before the signal that it caused has ended it.
func TestPrintLeavesTheEndToTheSignal(t *testing.T) {
	signalled := errors.New("signalled")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&printer{ctx: ctx, out: brokenPipe{}}).print(1) }()
	cancel(signalled)
	if err := <-done; !errors.Is(err, signalled) || errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}

// A port that is taken is named with the key that changes it and what needs it.
func TestTakenRESTPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	port := l.Addr().(*net.TCPAddr).Port
	cmd, tmp := startProgram(t, port)
	b, _ := cmd.CombinedOutput()
	text := string(b)
	if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(text, fmt.Sprintf("port %d, for the status page", port)) || !strings.Contains(text, "-Drest.port=0") || strings.Count(text, "\n") != 1 {
		t.Errorf("%v: %s", cmd.ProcessState, text)
	}
	nothingLeft(t, tmp)
}

// lateTimers registers a timer of each kind, far ahead.
type lateTimers struct{}

func (lateTimers) Open(*RuntimeContext[int64]) error { return nil }

func (lateTimers) ProcessElement(ctx *KeyedContext[int64], _ int64, _ *Collector[string]) error {
	far := time.Now().Add(time.Hour)
	if err := ctx.RegisterProcessingTimeTimer(far); err != nil {
		return err
	}
	return ctx.RegisterEventTimeTimer(far)
}

func (lateTimers) Close() error { return nil }

func (lateTimers) OnTimer(_ *KeyedContext[int64], timer Timer, out *Collector[string]) error {
	out.Collect(fmt.Sprint(timer.EventTime))
	return nil
}

// At the end of the input all event-time timers are called; the others are dropped when they are not due.
func TestTimersAtTheEndOfTheInput(t *testing.T) {
	out := &collect[string]{}
	err := runJob(t, nil, func(env *Environment) error {
		env.FromCollection[int64](1, 2).UID("in").KeyBy(func(n int64) int64 { return n }).
			Process(func() KeyedProcessFunction[int64, int64, string] { return lateTimers{} }).UID("timers").SinkTo(out).UID("out")
		return nil
	})
	if got := sorted(out); err != nil || len(got) != 2 || got[0] != got[1] || got[0] != "true" {
		t.Errorf("%v %v", got, err)
	}
}

// Several jobs run on a machine without a thought of their ports; a port that is set is meant.
func TestRESTPorts(t *testing.T) {
	for want, c := range map[string]config.Configuration{"8081-8100": {}, "8081": {"rest.port": "8081"}, "9000": {"rest.port": "9000"}, "0": {"rest.port": "0"}} {
		if got := restPorts(c); got != want {
			t.Errorf("%v: %s, want %s", c, got, want)
		}
	}
}

// A path without scheme is on this machine's disk for a job that runs here, and in Hadoop's default file system in a container of YARN.
func TestPathsWithoutScheme(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "core-site.xml"), []byte(`<configuration><property><name>fs.defaultFS</name><value>hdfs://nn.example:8020/</value></property></configuration>`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	for container, want := range map[string]string{"": "file", "container_1_0001_01_000002": "hdfs://nn.example:8020"} {
		t.Setenv("CONTAINER_ID", container)
		reg, err := containerFileSystems()
		if err != nil {
			t.Fatal(err)
		}
		f, p, err := reg.Resolve(t.Context(), "/in/a")
		if err != nil || p != "/in/a" || !strings.HasPrefix(f.URI(), want) {
			t.Errorf("in %q: %v %s %v, want %s", container, f, p, err, want)
			continue
		}
		_ = f.Close() // nothing is open
	}
}

// failsBeside fails at its first record, once endsContext is ready.
type failsBeside struct {
	Plain
	ready chan struct{}
}

func (f *failsBeside) ProcessElement(*ProcessContext, int64, *Collector[int64]) error {
	<-f.ready
	return errors.New("no more of this")
}

// endsContext says that it is open, and ends its program's context when it is closed.
type endsContext struct {
	ready chan struct{}
	end   func()
}

func (w *endsContext) Open(*TaskContext) error { close(w.ready); return nil }

func (w *endsContext) ProcessElement(*ProcessContext, int64, *Collector[int64]) error { return nil }

func (w *endsContext) Close() error { w.end(); return nil }

// A job that failed has failed, also when the context of its program ends before all of it is down: its error is returned.
func TestFailureOutlivesTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{})
	err := RunLocal(ctx, "fails", func(env *Environment) error {
		numbers := func() DataStream[int64] { // not connected: the one is closed since the job fails, and for no other reason
			return env.FromSource(datagen.Source(func(n int64) int64 { return n }), NoWatermarks[int64](), "numbers").DataStream
		}
		numbers().Process(func() ProcessFunction[int64, int64] { return &failsBeside{ready: ready} }).SinkTo(&collect[int64]{})
		numbers().Process(func() ProcessFunction[int64, int64] { return &endsContext{ready, cancel} }).SinkTo(&collect[int64]{})
		return nil
	}, LocalOptions{Config: map[string]string{"restart-strategy.type": "none"}})
	if ctx.Err() == nil || err == nil || !strings.Contains(err.Error(), "no more of this") {
		t.Errorf("context %v: %v", ctx.Err(), err)
	}
}

// One that was cancelled since the context ended has done what it was told.
func TestCancelledInOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := RunLocal(ctx, "cancelled", endless, LocalOptions{Started: func(string) { cancel() }})
	if err != nil {
		t.Error(err)
	}
}
