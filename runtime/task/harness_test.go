package task_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// event is the record of these tests.
type event struct {
	Key   int64
	Value int64
	Time  int64
	Pad   [72]byte
}

// numbers is a bounded source of n events, split over the subtasks by i, i+p, i+2p, ….
// With batch they come several at a time.
type numbers struct {
	n, keys int64
	batch   bool
}

func (s numbers) Boundedness() connector.Boundedness { return connector.Bounded }
func (s numbers) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, nil
}
func (s numbers) Reader(ctx connector.ReaderContext) (connector.Reader[event], error) {
	return &numbersReader{numbers: s, next: int64(ctx.Subtask), step: int64(ctx.Parallelism)}, nil
}

type numbersReader struct {
	numbers
	next, step int64
	out        connector.SplitOutput[event]
	made       []event
}

func (s numbers) event(i int64) event { return event{Key: i % s.keys, Value: i, Time: i / 100} }

func (r *numbersReader) pollBatch(max int) (connector.Status, error) {
	r.made = r.made[:0]
	for ; len(r.made) < min(max, 128) && r.next < r.n; r.next += r.step {
		r.made = append(r.made, r.event(r.next))
	}
	if len(r.made) == 0 {
		return connector.EndOfInput, nil
	}
	return connector.MoreAvailable, r.out.(connector.BatchOutput[event]).CollectBatch(r.made, nil)
}

func (r *numbersReader) Start(context.Context) error       { return nil }
func (r *numbersReader) AddSplits([]connector.Split) error { return nil }
func (r *numbersReader) NoMoreSplits()                     {}

var never = make(chan struct{})

func (r *numbersReader) Available() <-chan struct{}                      { return never }
func (r *numbersReader) Snapshot(int64) ([]connector.Split, error)       { return nil, nil }
func (r *numbersReader) CheckpointComplete(context.Context, int64) error { return nil }
func (r *numbersReader) CheckpointAborted(int64)                         {}
func (r *numbersReader) Close() error                                    { return nil }
func (r *numbersReader) Poll(out connector.Output[event], max int) (connector.Status, error) {
	if r.out == nil {
		r.out = out.Split("n")
	}
	if r.batch {
		return r.pollBatch(max)
	}
	for range max {
		if r.next >= r.n {
			return connector.EndOfInput, nil
		}
		i := r.next
		r.next += r.step
		if err := r.out.Collect(r.event(i), i/100); err != nil {
			return connector.MoreAvailable, err
		}
	}
	return connector.MoreAvailable, nil
}

// counter is a sink that adds up.
type counter struct {
	mu  sync.Mutex
	n   int64
	sum int64
}

func (c *counter) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[event], error) {
	return &counterWriter{c: c}, nil
}

type counterWriter struct {
	c      *counter
	n, sum int64
}

func (w *counterWriter) Write(v event, _ int64) error {
	w.n++
	w.sum += v.Value
	return nil
}
func (w *counterWriter) WriteBatch(vs []event, _ []int64) error {
	for i := range vs {
		w.n++
		w.sum += vs[i].Value
	}
	return nil
}
func (w *counterWriter) Flush(_ context.Context, end bool) error {
	if end {
		w.c.mu.Lock()
		w.c.n += w.n
		w.c.sum += w.sum
		w.c.mu.Unlock()
	}
	return nil
}
func (w *counterWriter) Snapshot(int64) ([][]byte, error) { return nil, nil }
func (w *counterWriter) Close() error                     { return nil }

// reporter collects what tasks report and lets the whole job finish once every task is at its end of data.
type reporter struct {
	mu       sync.Mutex
	tasks    map[graph.ExecutionID]*task.Task
	ended    int
	failures []*pb.Failure
	acks     chan *pb.CheckpointAck
}

func (r *reporter) State(id graph.ExecutionID, s pb.TaskState, f *pb.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s {
	case pb.TaskState_END_OF_DATA:
		if r.ended++; r.ended == len(r.tasks) {
			for _, t := range r.tasks {
				t.Finish()
			}
		}
	case pb.TaskState_FAILED:
		r.failures = append(r.failures, f)
		for _, t := range r.tasks {
			t.Cancel()
		}
	}
}
func (r *reporter) Ack(a *pb.CheckpointAck) {
	select {
	case r.acks <- a:
	default:
	}
}
func (r *reporter) Decline(graph.ExecutionID, int64, *pb.Failure)     {}
func (r *reporter) Event(graph.OperatorID, graph.ExecutionID, []byte) {}
func (r *reporter) Opened(graph.ExecutionID, []string)                {}

// runJob runs a program with all tasks in this process and returns the failures.
func runJob(t testing.TB, g *graph.StreamGraph, conf config.Configuration) []*pb.Failure {
	t.Helper()
	p, err := graph.Translate(g, graph.Options{Parallelism: config.Parallelism.Value(conf), Chaining: config.OperatorChaining.Value(conf), DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	net := network.New(network.Config{BufferSize: 32 << 10, BuffersPerChannel: 2, FloatingPerGate: 8}, zerolog.Nop())
	reg := &fs.Registry{}
	local.Register(reg)
	rep := &reporter{tasks: map[graph.ExecutionID]*task.Task{}, acks: make(chan *pb.CheckpointAck, 64)}
	env := task.Environment{Config: conf, Network: net, FS: reg, Dirs: []string{t.TempDir()}, StateMemory: 64 << 20, Logger: zerolog.Nop(), Now: time.Now, Report: rep}
	var wg sync.WaitGroup
	for _, v := range p.Graph.Vertices {
		for sub := range v.Parallelism {
			d := task.Deployment{Execution: graph.ExecutionID{Vertex: v.ID, Subtask: sub}, JobName: g.Name, Vertex: p.Graph.Vertex(v.ID), Head: p.Heads[v.ID],
				Subtask: sub, Parallelism: v.Parallelism, MaxParallelism: v.MaxParallelism}
			for _, o := range v.Outputs {
				from, to := o.Partitioner.Consumers(v.Parallelism, p.Graph.Vertex(o.To).Parallelism, sub)
				d.Subpartitions = append(d.Subpartitions, to-from)
			}
			for _, in := range v.Inputs {
				var src []network.Source
				producers := p.Graph.Vertex(in.From).Parallelism
				from, to := in.Partitioner.Producers(producers, v.Parallelism, sub)
				for up := from; up < to; up++ {
					first, _ := in.Partitioner.Consumers(producers, v.Parallelism, up)
					src = append(src, network.Source{Partition: network.PartitionID{Producer: graph.ExecutionID{Vertex: in.From, Subtask: up}, Output: in.FromOutput}, Subpartition: sub - first})
				}
				d.Inputs = append(d.Inputs, src)
			}
			tk := task.New(context.Background(), env, d)
			rep.tasks[tk.ID()] = tk
		}
	}
	for _, tk := range rep.tasks {
		wg.Go(tk.Run)
	}
	wg.Wait()
	if err := net.Close(); err != nil {
		t.Error(err)
	}
	return rep.failures
}

func typeOf[T any](t testing.TB) operator.Type {
	t.Helper()
	typ, err := operator.TypeOf[T]()
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

func chainGraph(t testing.TB, n int64, batch bool, c *counter) *graph.StreamGraph {
	typ := typeOf[event](t)
	src := &graph.Node{Kind: "source", Name: "source", Source: true, Bounded: true, Impl: operator.Source(numbers{n, 1000, batch}, operator.Watermarks[event]{}), OutImpl: typ}
	m := &graph.Node{Kind: "map", Name: "map", In: []graph.Edge{{From: src}}, OutImpl: typ, Impl: operator.Map(func(e event) event { e.Value++; return e })}
	f := &graph.Node{Kind: "filter", Name: "filter", In: []graph.Edge{{From: m}}, OutImpl: typ, Impl: operator.Filter(func(e event) bool { return e.Value%10 != 0 })}
	if batch {
		m.Impl = operator.Update(func(e *event) { e.Value++ })
		f.Impl = operator.FilterRef(func(e *event) bool { return e.Value%10 != 0 })
	}
	s := &graph.Node{Kind: "sink", Name: "sink", In: []graph.Edge{{From: f}}, Impl: operator.Sink[event](c)}
	return &graph.StreamGraph{Name: "chain", Nodes: []*graph.Node{src, m, f, s}}
}

func windowGraph(t testing.TB, n, keys int64, batch bool, c *counter) *graph.StreamGraph {
	typ := typeOf[event](t)
	key, err := serde.For[int64]()
	if err != nil {
		t.Fatal(err)
	}
	sel := operator.KeySelector[int64, event]{Fn: func(e event) int64 { return e.Key }, Codec: key}
	src := &graph.Node{Kind: "source", Name: "source", Source: true, Bounded: true, OutImpl: typ,
		Impl: operator.Source(numbers{n, keys, batch}, operator.Watermarks[event]{Enabled: true, Time: func(e event, _ int64) int64 { return e.Time }})}
	w := &graph.Node{Kind: "window", Name: "window", Keyed: true, Stateful: true, In: []graph.Edge{{From: src, Partitioner: graph.Hash, Keyer: sel}}, OutImpl: typ,
		Impl: operator.TumblingWindow(sel, operator.Tumbling{Size: 1000}, operator.WindowFunctions[int64, event, int64, event]{
			Add: func(a *int64, _ event, _ bool) { *a++ },
			Emit: func(k int64, w operator.Window, a *int64, out *operator.Collector[event]) error {
				out.Collect(event{Key: k, Value: *a, Time: w.Start})
				return nil
			},
		})}
	s := &graph.Node{Kind: "sink", Name: "sink", In: []graph.Edge{{From: w}}, Impl: operator.Sink[event](c)}
	return &graph.StreamGraph{Name: "window", Nodes: []*graph.Node{src, w, s}}
}

// ways are the two ways records come from a source and through a chain.
var ways = map[string]bool{"records": false, "batches": true}

func TestChainProcessesEveryRecordOnce(t *testing.T) {
	for way, batch := range ways {
		t.Run(way, func(t *testing.T) {
			c := &counter{}
			if f := runJob(t, chainGraph(t, 100_000, batch, c), config.Configuration{}); len(f) > 0 {
				t.Fatal(f)
			}
			if c.n != 90_000 {
				t.Fatalf("got %d records, want 90000", c.n)
			}
		})
	}
}

func TestWindowCountsEveryRecordOnceAtEachParallelism(t *testing.T) {
	for _, p := range []int{1, 2, 3} {
		for way, batch := range ways {
			t.Run(fmt.Sprint(p, way), func(t *testing.T) {
				c := &counter{}
				conf := config.Configuration{"parallelism.default": fmt.Sprint(p)}
				if f := runJob(t, windowGraph(t, 300_000, 100, batch, c), conf); len(f) > 0 {
					t.Fatal(f)
				}
				if c.sum != 300_000 {
					t.Fatalf("windows count %d records, want 300000", c.sum)
				}
			})
		}
	}
}

// BenchmarkChain is generator -> map -> filter -> discard, one record per operation.
func BenchmarkChain(b *testing.B) {
	for way, batch := range ways {
		b.Run(way, func(b *testing.B) {
			b.ReportAllocs()
			runJob(b, chainGraph(b, int64(b.N), batch, &counter{}), config.Configuration{})
		})
	}
}

// BenchmarkWindow is generator -> hash exchange -> tumbling count, one record per operation, on each state backend.
func BenchmarkWindow(b *testing.B) {
	for _, backend := range []string{"hashmap", "pebble"} {
		b.Run(backend, func(b *testing.B) {
			b.ReportAllocs()
			conf := config.Configuration{"parallelism.default": "2", "state.backend.type": backend}
			if f := runJob(b, windowGraph(b, int64(b.N), 10_000, true, &counter{}), conf); len(f) > 0 {
				b.Fatal(f)
			}
		})
	}
}
