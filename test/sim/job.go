package sim

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/kafka/enumerator"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Event is a record of the input: the n-th of its key, which is in one split only.
type Event struct{ Key, N, Value, Time int64 }

// Kinds of Out.
const (
	kindTotal  = iota // N-th record of Key, with the sum so far: one for each Event
	kindWindow        // N records of the group Key in the window that starts at At
	kindTimer         // the timer of Key at At
)

// Out is a record of the output.
type Out struct{ Kind, Key, N, Sum, At int64 }

// Total is the state of a key.
type Total struct{ N, Sum int64 }

const (
	keysPerSplit = 4
	groups       = 5  // keys of the windows of a pipeline, which come from all of its splits
	windowSize   = 50 // ms
	timerEvery   = 5  // records of a key
	topicName    = "t"
	maxParallel  = 16
)

// input makes the records of each split.
func input(r *rand.Rand, splits, records int) [][]Event {
	in := make([][]Event, splits)
	for s := range in {
		n := map[int64]int64{}
		at := int64(1000)
		for range records {
			k := int64(s*keysPerSplit) + r.Int64N(keysPerSplit)
			n[k]++
			at += r.Int64N(12)
			in[s] = append(in[s], Event{Key: k, N: n[k], Value: r.Int64N(1000), Time: at})
		}
	}
	return in
}

// pipeOf is the pipeline of a split.
func pipeOf(split, pipes int) int { return split % pipes }

// groupOf is the key of the windows that a record goes into.
func groupOf(e Event, pipes int) int64 {
	return int64(groups*pipeOf(int(e.Key/keysPerSplit), pipes)) + e.Key%groups
}

// named is the name, and the UID, of an operator in a pipeline.
func named(name string, pipe int) string {
	if pipe == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, pipe+1)
}

// is reports whether it is the UID of an operator of that name, in any pipeline.
func is(uid, name string) bool { return uid == name || uid == named(name, 1) }

// topic is a source of the splits of a pipeline, over the core of the Kafka source's enumerator.
type topic struct {
	in   [][]Event // of all pipelines
	w    *World
	pipe int
}

func (t *topic) Boundedness() connector.Boundedness { return connector.Bounded }

func (t *topic) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	core, err := enumerator.New(enumerator.Config{Parallelism: ctx.Parallelism(), Final: true, Bounded: true}, restored)
	if err != nil {
		return nil, err
	}
	return &topicEnumerator{t: t, ctx: ctx, core: core}, nil
}

func (t *topic) Reader(ctx connector.ReaderContext) (connector.Reader[Event], error) {
	return &topicReader{t: t, ctx: ctx}, nil
}

type topicEnumerator struct {
	t    *topic
	ctx  connector.EnumeratorContext
	core *enumerator.Core
}

func (e *topicEnumerator) Start(context.Context) error {
	e.ctx.Async(0, func(context.Context) (any, error) { return nil, nil }, func(any, error) {
		var parts []enumerator.Partition
		for s := range e.t.in {
			if pipeOf(s, e.t.w.plan.Pipes) != e.t.pipe {
				continue
			}
			parts = append(parts, enumerator.Partition{Key: enumerator.Key{Topic: topicName, Partition: int32(s)}, TopicID: [16]byte{1}})
		}
		e.apply(e.core.Discovered(parts))
	})
	return nil
}

func (e *topicEnumerator) apply(effects []enumerator.Effect) {
	for _, f := range effects {
		switch f := f.(type) {
		case enumerator.Resolve:
			e.ctx.Async(0, func(context.Context) (any, error) { return nil, nil }, func(any, error) {
				splits := map[enumerator.Key]connector.Split{}
				for _, p := range f.Partitions {
					splits[p.Key] = connector.Split{ID: p.Key.String(), State: encodePosition(0)}
				}
				e.apply(e.core.Resolved(f.Partitions, splits))
			})
		case enumerator.Assign:
			e.ctx.Assign(f.Subtask, f.Splits...)
		case enumerator.NoMore:
			e.ctx.NoMoreSplits(f.Subtask)
		default:
			e.ctx.Fail(fmt.Errorf("the enumerator wants %T", f))
		}
	}
}

func (e *topicEnumerator) AddReader(subtask int)                { e.apply(e.core.ReaderUp(subtask)) }
func (e *topicEnumerator) AddSplitsBack([]connector.Split, int) {}
func (e *topicEnumerator) HandleSplitRequest(int)               {}
func (e *topicEnumerator) Snapshot(int64) ([]byte, error)       { return e.core.Snapshot(), nil }
func (e *topicEnumerator) CheckpointComplete(int64)             {}
func (e *topicEnumerator) Close() error                         { return nil }

func encodePosition(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func splitNumber(id string) (n int, err error) {
	_, err = fmt.Sscanf(id, topicName+"-%d", &n)
	return n, err
}

// position is a split's number and the next record of it.
func position(s connector.Split) (split int, next int64, err error) {
	split, err = splitNumber(s.ID)
	if err == nil && len(s.State) != 8 {
		err = fmt.Errorf("the position of split %s has %d bytes", s.ID, len(s.State))
	}
	if err != nil {
		return 0, 0, err
	}
	return split, int64(binary.BigEndian.Uint64(s.State)), nil
}

type reading struct {
	split int
	next  int64
	out   connector.SplitOutput[Event]
	over  bool
}

type topicReader struct {
	t      *topic
	ctx    connector.ReaderContext
	splits []*reading
	noMore bool
	turn   int
}

func (r *topicReader) Start(context.Context) error { return nil }

func (r *topicReader) AddSplits(splits []connector.Split) error {
	for _, s := range splits {
		n, next, err := position(s)
		if err != nil {
			return err
		}
		r.splits = append(r.splits, &reading{split: n, next: next})
	}
	slices.SortFunc(r.splits, func(a, b *reading) int { return cmp.Compare(a.split, b.split) })
	return nil
}

func (r *topicReader) NoMoreSplits() { r.noMore = true }

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (r *topicReader) Available() <-chan struct{} { return closed }

// Poll reads up to max records of one split.
func (r *topicReader) Poll(out connector.Output[Event], max int) (connector.Status, error) {
	for range r.splits {
		s := r.splits[r.turn%len(r.splits)]
		r.turn++
		if s.over {
			continue
		}
		id := fmt.Sprintf("%s-%d", topicName, s.split)
		if s.out == nil {
			s.out = out.Split(id)
		}
		records := r.t.in[s.split]
		for ; max > 0 && s.next < int64(len(records)); max-- {
			e := records[s.next]
			if err := s.out.Collect(e, e.Time); err != nil {
				return connector.MoreAvailable, err
			}
			s.next++
		}
		if s.next == int64(len(records)) {
			s.over = true
			out.ReleaseSplit(id)
		}
		return connector.MoreAvailable, nil
	}
	if r.noMore {
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

func (r *topicReader) Snapshot(int64) ([]connector.Split, error) {
	var out []connector.Split
	for _, s := range r.splits {
		if s.over {
			continue // it was released
		}
		out = append(out, connector.Split{ID: fmt.Sprintf("%s-%d", topicName, s.split), State: encodePosition(s.next)})
	}
	return out, nil
}

func (r *topicReader) CheckpointComplete(context.Context, int64) error { return nil }
func (r *topicReader) CheckpointAborted(int64)                         {}
func (r *topicReader) Close() error                                    { return nil }

// totals is the keyed function of the job.
type totals struct{ state operator.ValueState[Total] }

func (f *totals) Open(rt *operator.RuntimeContext[int64]) (err error) {
	f.state, err = rt.ValueState[Total]("total")
	return err
}

func (f *totals) ProcessElement(ctx *operator.KeyedContext[int64], e Event, out *operator.Collector[Out]) error {
	t, _, err := f.state.Value()
	if err != nil {
		return err
	}
	if e.N != t.N+1 {
		return &misfit{fmt.Sprintf("key %d: record %d came when the state had counted %d", e.Key, e.N, t.N)}
	}
	t.N++
	t.Sum += e.Value
	if err := f.state.Update(t); err != nil {
		return err
	}
	out.Collect(Out{Kind: kindTotal, Key: e.Key, N: t.N, Sum: t.Sum})
	if e.N%timerEvery == 0 {
		return ctx.RegisterEventTimeTimer(time.UnixMilli(timerOf(e)))
	}
	return nil
}

// timerOf is unlike for each record of a key.
func timerOf(e Event) int64 { return 1000*e.Time + e.N + 25_000 }

func (f *totals) OnTimer(ctx *operator.KeyedContext[int64], t operator.Timer, out *operator.Collector[Out]) error {
	out.Collect(Out{Kind: kindTimer, Key: ctx.Key(), At: t.At.UnixMilli()})
	return nil
}

func (f *totals) Close() error { return nil }

// misfit is what a function of the job found wrong: it ends the run, not only the task.
type misfit struct{ text string }

func (m *misfit) Error() string { return m.text }

func isMisfit(err error) bool {
	var m *misfit
	return errors.As(err, &m)
}

// program builds the job for the given parallelism of source, keyed functions and sink, with so many pipelines.
func program(in [][]Event, b *Broker, par [3]int, conf config.Configuration) (*graph.Program, error) {
	events, err := operator.TypeOf[Event]()
	if err != nil {
		return nil, err
	}
	outs, err := operator.TypeOf[Out]()
	if err != nil {
		return nil, err
	}
	key, err := serde.For[int64]()
	if err != nil {
		return nil, err
	}
	byKey := operator.KeySelector[int64, Event]{Fn: func(e Event) int64 { return e.Key }, Codec: key}
	pipes := b.w.plan.Pipes
	byGroup := operator.KeySelector[int64, Event]{Fn: func(e Event) int64 { return groupOf(e, pipes) }, Codec: key}
	ofOut := operator.KeySelector[int64, Out]{Fn: func(o Out) int64 { return o.Kind<<32 | o.Key }, Codec: key}
	wm := operator.Watermarks[Event]{Enabled: true}
	var nodes []*graph.Node
	for i := range pipes {
		t := &topic{in: in, w: b.w, pipe: i}
		src := &graph.Node{Kind: "source", Name: named("source", i), UID: named("source", i), Source: true, Bounded: true, Coordinated: true, Stateful: true, Parallelism: par[0],
			Impl: operator.Source[Event](t, wm), OutImpl: events, Coordinator: operator.SourceCoordinator[Event](t, wm)}
		tot := &graph.Node{Kind: "process", Name: named("totals", i), UID: named("totals", i), Keyed: true, Stateful: true, Parallelism: par[1], MaxParallelism: maxParallel, OutImpl: outs,
			In:   []graph.Edge{{From: src, Partitioner: graph.Hash, Keyer: byKey}},
			Impl: operator.KeyedProcess(byKey, func() operator.KeyedProcessFunction[int64, Event, Out] { return &totals{} })}
		win := &graph.Node{Kind: "window", Name: named("windows", i), UID: named("windows", i), Keyed: true, Stateful: true, Parallelism: par[1], MaxParallelism: maxParallel, OutImpl: outs,
			In: []graph.Edge{{From: src, Partitioner: graph.Hash, Keyer: byGroup}},
			Impl: operator.TumblingWindow(byGroup, operator.Tumbling{Size: windowSize}, operator.WindowFunctions[int64, Event, Total, Out]{
				Add: func(a *Total, e Event, _ bool) { a.N++; a.Sum += e.Value },
				Emit: func(k int64, w operator.Window, a *Total, out *operator.Collector[Out]) error {
					out.Collect(Out{Kind: kindWindow, Key: k, N: a.N, Sum: a.Sum, At: w.Start})
					return nil
				},
			})}
		snk := &graph.Node{Kind: "sink", Name: named("sink", i), UID: named("sink", i), Stateful: true, Parallelism: par[2],
			In:   []graph.Edge{{From: tot, Partitioner: graph.Hash, Keyer: ofOut}, {From: win, Partitioner: graph.Hash, Keyer: ofOut}},
			Impl: operator.Sink[Out](&brokerSink{b, named("sim", i) + ":"})}
		nodes = append(nodes, src, tot, win, snk)
	}
	return graph.Translate(&graph.StreamGraph{Name: "sim", Nodes: nodes},
		graph.Options{Parallelism: 1, Chaining: true, DefaultMax: state.DefaultMaxParallelism, Config: conf})
}
