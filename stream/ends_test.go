package stream

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/logging"
)

// closing is a sink whose writers end as close says.
type closing struct {
	collect[int64]
	close func(ctx context.Context) error
}

func (c *closing) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[int64], error) {
	return closingWriter{collectWriter[int64]{&c.collect}, c, ctx.Context}, nil
}

type closingWriter struct {
	collectWriter[int64]
	c   *closing
	ctx context.Context
}

func (w closingWriter) Close() error { return w.c.close(w.ctx) }

// TestHowFunctionsEnd: a job does not succeed when a sink could not close, its last write can still use the task's context, and user code
// that ends the task's goroutine fails the task rather than leaving it behind.
func TestHowFunctionsEnd(t *testing.T) {
	run := func(t *testing.T, mapped func(int64) int64, end func(context.Context) error) error {
		return runJob(t, nil, func(env *Environment) error {
			env.FromCollection[int64](1, 2, 3).Map(mapped).SinkTo(&closing{close: end})
			return nil
		})
	}
	same := func(v int64) int64 { return v }
	for _, c := range []struct {
		name, want string
		mapped     func(int64) int64
		end        func(context.Context) error
	}{
		{"closes well, and may use its context", "", same, func(ctx context.Context) error { return ctx.Err() }},
		{"does not close", "the last file could not be renamed", same, func(context.Context) error { return errors.New("the last file could not be renamed") }},
		{"panics while closing", "panic in operator Sink: Unnamed", same, func(context.Context) error { panic("no") }},
		{"ends the goroutine", "runtime.Goexit", func(int64) int64 { runtime.Goexit(); return 0 }, func(context.Context) error { return nil }},
		{"ends the goroutine while closing", "runtime.Goexit", same, func(context.Context) error { runtime.Goexit(); return nil }},
		{"panics with bytes that are no text", "subtask 1/1: bad ", func(int64) int64 { panic("bad \xff\xfe") }, func(context.Context) error { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := run(t, c.mapped, c.end)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A job that panics again and again says so each time, in one line with the place in the program, and shows the stack once.
func TestOneStackForOnePanic(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := RunLocal(ctx, "test", func(env *Environment) error {
		env.FromCollection[int64](1).Map(func(v int64) int64 {
			var m map[string]int64
			m["a"] = v //nolint:staticcheck // the panic that is looked at
			return v
		}).SinkTo(&collect[int64]{})
		return nil
	}, LocalOptions{Logger: logging.Console(zerolog.SyncWriter(&log), zerolog.WarnLevel),
		Config: map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2", "restart-strategy.fixed-delay.delay": "1ms"}})
	const told = "assignment to entry in nil map, at ends_test.go:"
	if err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("got %v", err)
	}
	text := log.String()
	if n := strings.Count(text, "\n    goroutine "); n != 1 {
		t.Errorf("%d stacks in\n%s", n, text)
	}
	if n := strings.Count(text, told); n != 3 {
		t.Errorf("told %d times in\n%s", n, text)
	}
	if _, stack, _ := strings.Cut(text, "\n    goroutine "); !strings.HasPrefix(stack[strings.Index(stack, "\n"):], "\n    github.com/thalweg/thalweg/stream.TestOneStackForOnePanic") {
		t.Errorf("the stack does not begin with the program's line:\n%s", text)
	}
}
