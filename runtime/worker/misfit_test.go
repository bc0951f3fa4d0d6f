package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// keeper keeps two values of a key.
type keeper[V any] struct {
	a, b  operator.ValueState[V]
	value V
	open  func() // runs first in Open; nil for nothing
}

func (k *keeper[V]) Open(rt *operator.RuntimeContext[int64]) (err error) {
	if k.open != nil {
		k.open()
	}
	if k.a, err = rt.ValueState[V]("a"); err != nil {
		return err
	}
	k.b, err = rt.ValueState[V]("b")
	return err
}

func (k *keeper[V]) ProcessElement(_ *operator.KeyedContext[int64], v count, out *operator.Collector[count]) error {
	if err := k.a.Update(k.value); err != nil {
		return err
	}
	if err := k.b.Update(k.value); err != nil {
		return err
	}
	out.Collect(v)
	return nil
}

func (k *keeper[V]) OnTimer(*operator.KeyedContext[int64], operator.Timer, *operator.Collector[count]) error {
	return nil
}
func (k *keeper[V]) Close() error { return nil }

// keepers is a source, two keepers in tasks of their own, and a sink.
func keepers[V any](t *testing.T, w *world, value V) *graph.Program {
	t.Helper()
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	sel := operator.KeySelector[int64, count]{Fn: func(c count) int64 { return c.Key }, Codec: serde.Must[int64]()}
	src := &graph.Node{Kind: "source", Name: "ticks", UID: "ticks", Source: true, Stateful: true, Parallelism: 1, OutImpl: typ, Impl: operator.Source(ticks{w}, operator.Watermarks[count]{})}
	nodes := []*graph.Node{src}
	for _, name := range []string{"first", "second"} {
		nodes = append(nodes, &graph.Node{Kind: "process", Name: name, UID: name, Keyed: true, Stateful: true, OutImpl: typ,
			In:   []graph.Edge{{From: nodes[len(nodes)-1], Partitioner: graph.Hash, Keyer: sel}},
			Impl: operator.KeyedProcess(sel, func() operator.KeyedProcessFunction[int64, count, count] { return &keeper[V]{value: value} })})
	}
	nodes = append(nodes, &graph.Node{Kind: "sink", Name: "out", UID: "out", In: []graph.Edge{{From: nodes[2]}}, Impl: operator.Sink[count](collect{w})})
	g, err := graph.Translate(&graph.StreamGraph{Name: "keepers", Nodes: nodes},
		graph.Options{Parallelism: 2, MaxParallelism: -1, Chaining: true, Protocol: version.Protocol, SDK: version.Version, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// State whose type has changed is refused with all that does not fit, of all operators and tasks at once, before a record is processed.
func TestAllStateThatDoesNotFitIsTold(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			conf := config.Configuration{config.StateBackend.Key: backend}
			w := newWorld(50)
			c := startCluster(t, t.TempDir(), keepers(t, w, "text"), 2, 1, conf)
			c.running()
			c.count(w, 1)
			path := c.checkpoint()
			c.cancel()
			again := conf.Clone()
			again[config.SavepointPath.Key] = path
			w = newWorld(50)
			w.rounds.Store(5) // there is input
			x := startCluster(t, t.TempDir(), keepers(t, w, int64(7)), 2, 1, again)
			x.ended("the job to be refused", func() bool { return x.details().State == scheduler.JobFailed })
			d := x.details()
			for _, part := range []string{"in 4 points", "(uid first)", "(uid second)", `state "a"`, `state "b"`, "stored string, now int64"} {
				if !strings.Contains(d.Root.Message, part) {
					t.Errorf("%q does not say %q", d.Root.Message, part)
				}
			}
			if d.Restarts > 0 || strings.Contains(d.Root.Message, "\n") {
				t.Errorf("%d restarts: %q", d.Restarts, d.Root.Message)
			}
			w.mu.Lock()
			if len(w.seen) > 0 {
				t.Errorf("records were processed: %v", w.seen)
			}
			w.mu.Unlock()
			if fine := startCluster(t, t.TempDir(), keepers(t, newWorld(50), "text"), 2, 1, again); fine != nil { // nothing was lost
				fine.running()
				fine.cancel()
			}
		})
	}
}

// apart is a source with a sink, and two keepers with a sink each, all in slots of their own.
func apart[V any](t *testing.T, w *world, value V, open func()) *graph.Program {
	t.Helper()
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	sel := operator.KeySelector[int64, count]{Fn: func(c count) int64 { return c.Key }, Codec: serde.Must[int64]()}
	src := &graph.Node{Kind: "source", Name: "ticks", UID: "ticks", Source: true, Stateful: true, OutImpl: typ, Impl: operator.Source(ticks{w}, operator.Watermarks[count]{})}
	nodes := []*graph.Node{src, {Kind: "sink", Name: "out", UID: "out", In: []graph.Edge{{From: src}}, Impl: operator.Sink[count](collect{w})}}
	for _, name := range []string{"first", "second"} {
		keep := &graph.Node{Kind: "process", Name: name, UID: name, Keyed: true, Stateful: true, OutImpl: typ, SlotSharingGroup: name,
			In:   []graph.Edge{{From: src, Partitioner: graph.Hash, Keyer: sel}},
			Impl: operator.KeyedProcess(sel, func() operator.KeyedProcessFunction[int64, count, count] { return &keeper[V]{value: value, open: open} })}
		nodes = append(nodes, keep, &graph.Node{Kind: "sink", Name: name + " out", UID: name + " out", SlotSharingGroup: name, In: []graph.Edge{{From: keep}}, Impl: operator.Sink[count](collect{newWorld(0)})})
	}
	g, err := graph.Translate(&graph.StreamGraph{Name: "apart", Nodes: nodes},
		graph.Options{Parallelism: 1, MaxParallelism: -1, Chaining: true, Protocol: version.Protocol, SDK: version.Version, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// When what one worker's tasks restore does not fit, the tasks of other workers, whose state does, process nothing either; and what does not fit at several
// workers is told together.
func TestNoWorkerProcessesWhatAnotherRefuses(t *testing.T) {
	conf := config.Configuration{}
	w := newWorld(50)
	c := startCluster(t, t.TempDir(), apart(t, w, "text", nil), 1, 1, conf)
	c.running()
	workers := map[string]bool{}
	for _, v := range c.details().Vertices {
		workers[v.Tasks[0].TaskManager] = true
	}
	if len(workers) != 3 {
		t.Fatalf("the job runs on %d workers", len(workers))
	}
	c.count(w, 1)
	conf[config.SavepointPath.Key] = c.checkpoint()
	c.cancel()
	w = newWorld(50)
	w.rounds.Store(5) // there is input
	seen := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.seen)
	}
	patience, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	slow := func() { // the others have time to process it
		for patience.Err() == nil && seen() == 0 {
			jobtest.Pause()
		}
	}
	x := startCluster(t, t.TempDir(), apart(t, w, int64(7), slow), 1, 1, conf)
	x.ended("the job to be refused", func() bool { return x.details().State == scheduler.JobFailed })
	d := x.details()
	for _, part := range []string{"in 4 points", "(uid first)", "(uid second)", `state "a"`, `state "b"`, "stored string, now int64"} {
		if !strings.Contains(d.Root.Message, part) {
			t.Errorf("%q does not say %q", d.Root.Message, part)
		}
	}
	if n := seen(); n > 0 || d.Restarts > 0 {
		t.Errorf("%d keys were processed, %d restarts", n, d.Restarts)
	}
	w = newWorld(50)
	w.rounds.Store(1)
	fine := startCluster(t, t.TempDir(), apart(t, w, "text", nil), 1, 1, conf)
	fine.running()
	fine.count(w, 1) // they do not wait for ever
	fine.cancel()
}
