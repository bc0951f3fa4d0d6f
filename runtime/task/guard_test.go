package task

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
)

// A gauge of the user's that panics, or ends its goroutine, takes nobody with it: it is told of once and dropped, the others go on.
func TestGaugeThatFailsIsDropped(t *testing.T) {
	var log bytes.Buffer
	tk := New(t.Context(), Environment{Logger: zerolog.New(&log)}, Deployment{Vertex: &graph.Vertex{Name: "v"}})
	m := tk.metrics.operator(graph.OperatorID{}, "op")
	m.Gauge("first", func() float64 { return 1 })
	m.Gauge("bad", func() float64 { panic("ouch") })
	m.Gauge("worse", func() float64 { runtime.Goexit(); return 0 })
	m.Gauge("last", func() float64 { return 4 })
	names := func() (out []string) {
		for _, x := range tk.Metrics().GetMetrics() {
			out = append(out, x.GetName())
		}
		return out
	}
	for range 5 {
		names()
	}
	if got := strings.Join(names(), " "); got != "first last" {
		t.Errorf("gauges left: %s", got)
	}
	for _, want := range []string{`"gauge":"bad"`, `"gauge":"worse"`, "panic: ouch"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("the log has %s %d times:\n%s", want, n, log.String())
		}
	}
	if !strings.Contains(log.String(), "TestGaugeThatFailsIsDropped") {
		t.Errorf("the log has no stack of the panic:\n%s", log.String())
	}
}

// Whatever ends the background part of a snapshot, it is over for those that wait for it, and the checkpoint is declined.
func TestSnapshotThatFailsEnds(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(context.Context) error
		want func(error) bool
	}{
		"panic":  {func(context.Context) error { panic("ouch") }, func(err error) bool { return guard.Stack(err) != "" }},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, func(err error) bool { return errors.Is(err, guard.ErrExit) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshots{running: map[int64]context.CancelFunc{}}
			var failed error
			after := false
			s.start(t.Context(), 1, c.run, func(err error) { failed = err }, func() { after = true })
			s.wait()
			if !c.want(failed) || !after || !s.idle() {
				t.Fatalf("failed with %v, told %v, idle %v", failed, after, s.idle())
			}
		})
	}
}
