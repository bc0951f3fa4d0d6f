package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// river is what the tasks of jobs under backpressure share with the test. Each of its springs emits the keys in turn.
type river struct {
	keys, each int64 // each key is emitted so often by each spring
	restored   bool
	emitted    atomic.Int64
	sunk       atomic.Int64
	disorder   atomic.Pointer[string]
	fail       atomic.Bool
	slow       time.Duration // of a record at the sink, until open is closed
	open       chan struct{}

	mu   sync.Mutex
	seen map[int64]int64 // key -> highest count at the sink
}

const springs = 6

// drop is a record: the N-th of its key that the first count has seen, the M-th that the second has.
type drop struct {
	Key, N, M int64
	Text      string
}

func newRiver(keys, each int64, slow time.Duration) *river {
	return &river{keys: keys, each: each, slow: slow, open: make(chan struct{}), seen: map[int64]int64{}}
}

func (r *river) done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.keys {
		if r.seen[k] < springs*r.each {
			return false
		}
	}
	return true
}

func (r *river) Boundedness() connector.Boundedness { return connector.Unbounded }
func (r *river) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, nil
}

func (r *river) Reader(ctx connector.ReaderContext) (connector.Reader[drop], error) {
	x := &riverReader{r: r}
	for s := ctx.Subtask; !r.restored && s < springs; s += ctx.Parallelism {
		x.springs = append(x.springs, spring{id: fmt.Sprint(s)})
	}
	return x, nil
}

type spring struct {
	id string
	at int64
}

type riverReader struct {
	r       *river
	springs []spring
}

func (x *riverReader) Start(context.Context) error { return nil }
func (x *riverReader) AddSplits(splits []connector.Split) error {
	x.springs = x.springs[:0]
	for _, s := range splits {
		var at int64
		if _, err := fmt.Sscan(string(s.State), &at); err != nil {
			return err
		}
		x.springs = append(x.springs, spring{s.ID, at})
	}
	return nil
}
func (x *riverReader) NoMoreSplits()                                   {}
func (x *riverReader) Available() <-chan struct{}                      { return make(chan struct{}) }
func (x *riverReader) CheckpointComplete(context.Context, int64) error { return nil }
func (x *riverReader) CheckpointAborted(int64)                         {}
func (x *riverReader) Close() error                                    { return nil }
func (x *riverReader) Snapshot(int64) (out []connector.Split, _ error) {
	for _, s := range x.springs {
		out = append(out, connector.Split{ID: s.id, State: fmt.Append(nil, s.at)})
	}
	return out, nil
}

func (x *riverReader) Poll(out connector.Output[drop], max int) (connector.Status, error) {
	n := 0
	for i := range x.springs {
		for s := &x.springs[i]; n < max && s.at < x.r.keys*x.r.each; n++ {
			k := s.at % x.r.keys
			s.at++
			if err := out.Collect(drop{Key: k, N: 1, M: 1, Text: "0123456789"[:k%10]}, s.at); err != nil {
				return connector.MoreAvailable, err
			}
		}
	}
	x.r.emitted.Add(int64(n))
	if n == 0 {
		return connector.NothingAvailable, nil
	}
	return connector.MoreAvailable, nil
}

func (r *river) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[drop], error) {
	return riverWriter{r}, nil
}

type riverWriter struct{ r *river }

func (w riverWriter) Write(v drop, _ int64) error {
	r := w.r
	if r.slow > 0 {
		t := time.NewTimer(r.slow)
		select {
		case <-r.open:
		case <-t.C:
		}
		t.Stop()
	}
	if r.fail.CompareAndSwap(true, false) {
		return errors.New("told to fail")
	}
	r.sunk.Add(1)
	r.mu.Lock()
	r.seen[v.Key] = max(r.seen[v.Key], v.M)
	r.mu.Unlock()
	return nil
}
func (w riverWriter) Flush(context.Context, bool) error { return nil }
func (w riverWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (w riverWriter) Close() error                      { return nil }

// riverProgram is source -> map -> count by key -> count by key -> sink, each in a task of its own of that parallelism. The second count
// finds each record of a key once and in order, or the first lost or doubled one.
func riverProgram(t testing.TB, r *river, p [5]int) *graph.Program {
	t.Helper()
	typ, err := operator.TypeOf[drop]()
	if err != nil {
		t.Fatal(err)
	}
	key, err := serde.For[int64]()
	if err != nil {
		t.Fatal(err)
	}
	sel := operator.KeySelector[int64, drop]{Fn: func(d drop) int64 { return d.Key }, Codec: key}
	src := &graph.Node{Kind: "source", Name: "river", UID: "river", Source: true, Stateful: true, Parallelism: p[0], OutImpl: typ,
		Impl: operator.Source(r, operator.Watermarks[drop]{})}
	pass := &graph.Node{Kind: "map", Name: "pass", UID: "pass", Parallelism: p[1], In: []graph.Edge{{From: src, Partitioner: graph.Rebalance}}, OutImpl: typ,
		Impl: operator.Map(func(d drop) drop { return d })}
	first := &graph.Node{Kind: "reduce", Name: "first", UID: "first", Keyed: true, Stateful: true, Parallelism: p[2], OutImpl: typ,
		In:   []graph.Edge{{From: pass, Partitioner: graph.Hash, Keyer: sel}},
		Impl: operator.Reduce(sel, func(acc, v drop) drop { return drop{v.Key, acc.N + v.N, 1, v.Text} })}
	second := &graph.Node{Kind: "reduce", Name: "second", UID: "second", Keyed: true, Stateful: true, Parallelism: p[3], OutImpl: typ,
		In: []graph.Edge{{From: first, Partitioner: graph.Hash, Keyer: sel}},
		Impl: operator.Reduce(sel, func(acc, v drop) drop {
			if v.N != acc.M+1 || v.Text != "0123456789"[:v.Key%10] {
				bad := fmt.Sprintf("record %+v came after %d of its key", v, acc.M)
				r.disorder.CompareAndSwap(nil, &bad)
			}
			return drop{v.Key, v.N, acc.M + 1, v.Text}
		})}
	out := &graph.Node{Kind: "sink", Name: "out", UID: "out", Parallelism: p[4], In: []graph.Edge{{From: second, Partitioner: graph.Rebalance}}, Impl: operator.Sink[drop](r)}
	g, err := graph.Translate(&graph.StreamGraph{Name: "river", Nodes: []*graph.Node{src, pass, first, second, out}},
		graph.Options{Parallelism: 1, MaxParallelism: 32, Chaining: true, Protocol: version.Protocol, SDK: version.Version, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flood waits until records are held up between the tasks.
func (c *cluster) flood(r *river, n int64) {
	c.t.Helper()
	from := r.sunk.Load()
	c.until("backpressure", func() bool {
		return r.emitted.Load()-r.sunk.Load() >= n && r.sunk.Load() > from || r.emitted.Load() == springs*r.keys*r.each
	})
}

// finish lets the river run to its end, and checks that each record was counted once.
func (r *river) finish(t *testing.T, c *cluster) {
	t.Helper()
	close(r.open)
	c.until("the last record", r.done)
	r.check(t)
	for k, n := range r.seen {
		if n != springs*r.each {
			t.Errorf("key %d was counted %d times, want %d", k, n, springs*r.each)
		}
	}
}

func (r *river) check(t *testing.T) {
	t.Helper()
	if bad := r.disorder.Load(); bad != nil {
		t.Fatal(*bad)
	}
}

// Records that are held up between tasks are part of an unaligned checkpoint: each has its effect once and in the order of its key, at
// whatever parallelism the job goes on, from checkpoint to checkpoint, and after failures.
func TestUnalignedCheckpointsKeepWhatIsUnderWay(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, timeout := range []string{"0 ms", "30 ms"} {
			t.Run(backend+" "+timeout, func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rnd := rand.New(rand.NewPCG(seed, 0))
				dir := t.TempDir()
				conf := config.Configuration{config.StateBackend.Key: backend, config.Unaligned.Key: "true", config.AlignedTimeout.Key: timeout,
					config.NetworkBufferSize.Key: "512 b", config.BufferTimeout.Key: "1 ms", config.MemoryThreshold.Key: fmt.Sprintf("%d b", rnd.IntN(2)*20480)}
				var r *river
				unaligned, p := 0, [5]int{1, 1, 1, 1, 1}
				for round := range 6 {
					if round != 3 { // once without change
						for i := range p {
							p[i] = 1 + rnd.IntN(4)
						}
					}
					last := r
					r = newRiver(40, 60, 2*time.Millisecond)
					if last != nil {
						r.restored, r.seen = true, last.seen
						r.emitted.Store(last.emitted.Load())
						r.sunk.Store(last.sunk.Load())
					}
					c := startCluster(t, dir, riverProgram(t, r, p), 4, 1+rnd.IntN(2), conf)
					c.running()
					c.flood(r, 100+rnd.Int64N(400))
					if rnd.IntN(2) == 0 {
						c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
						r.restored = true
						r.fail.Store(true)
						c.until("a restart", func() bool { return c.details().Restarts == 1 })
						c.running()
					}
					path := c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
					r.check(t)
					cp, err := savepoint.Load(t.Context(), c.reg, path, savepoint.NoClaim)
					if err != nil {
						t.Fatal(err)
					}
					if cp.Unaligned() {
						unaligned++
					}
					if round == 5 {
						r.finish(t, c)
					}
					c.cancel()
					conf[config.SavepointPath.Key] = path
				}
				if unaligned == 0 {
					t.Error("no checkpoint found anything under way")
				}
			})
		}
	}
}

// Behind a sink that takes a second for each record an unaligned checkpoint waits for the record that is being written, and no longer; a
// savepoint is aligned all the same.
func TestUnalignedCheckpointUnderFullBackpressure(t *testing.T) {
	for _, timeout := range []string{"0 ms", "100 ms"} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRiver(40, 2000, time.Second)
			c := startCluster(t, dir, riverProgram(t, r, [5]int{2, 2, 2, 2, 1}), 2, 2, config.Configuration{config.Unaligned.Key: "true", config.AlignedTimeout.Key: timeout})
			c.running()
			full := func() bool { // nothing moves but the sink's record
				d := c.details()
				return d.Checkpoints != nil && r.emitted.Load() > 10_000
			}
			c.until("backpressure", full)
			start := time.Now()
			c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
			t.Logf("complete after %v", time.Since(start))
			d := c.details().Checkpoints.Latest.Completed
			if d.Persisted == 0 || d.Duration() > 30*time.Second {
				t.Errorf("%d bytes were under way, it took %v; more than the record at the sink was waited for", d.Persisted, d.Duration())
			}
			unaligned := 0
			for _, v := range d.Vertices {
				for _, s := range v.Subtasks {
					if s.Unaligned {
						unaligned++
					}
				}
			}
			if unaligned == 0 {
				t.Error("no subtask says that its part is unaligned")
			}
			close(r.open)
			path := c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + dir})
			cp, err := savepoint.Load(t.Context(), c.reg, path, savepoint.NoClaim)
			if err != nil || cp.Unaligned() {
				t.Errorf("a savepoint holds what is under way: %v", err)
			}
			r.check(t)
			c.cancel()
		})
	}
}
