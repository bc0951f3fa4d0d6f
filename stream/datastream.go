package stream

import (
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/serde"
)

// Collector emits the results of a function. Its methods: Collect(v), with the event time of the record (or timer) that is processed, and
// CollectAt(v, ms), with another one in milliseconds since 1970.
type Collector[R any] = operator.Collector[R]

// Stream is any stream of T: a DataStream or what embeds one.
type Stream[T any] interface{ dataStream() DataStream[T] }

// A generic type is compiled in each package that mentions it, for each of its types, with all of its methods, the wrappers of those of what it
// embeds, and every generic type and function that they mention in turn; a method with type parameters of its own only where it is
// called. That is most of what an edited test waits for. So streams are thin: what need not know T is in flow and in functions that are not
// generic, and methods that lead far (windows, watermarks) take their argument as a type parameter, which always is the one type.

// DataStream is a stream of T.
type DataStream[T any] struct{ f *flow }

// flow is a stream of whatever type; nil in a zero value.
type flow struct {
	e    *Environment
	ins  []upstream
	node *graph.Node // of a stream that an operator made
	// single says that the operator runs in one subtask, for good.
	single bool
}

func (f *flow) env() *Environment {
	if f == nil {
		return nil
	}
	return f.e
}

// in is f as a stream of another environment.
func (f *flow) in(e *Environment) *flow { return &flow{e: e, ins: f.ins, node: f.node} }

type upstream struct {
	node  *graph.Node
	tag   string // of a side output
	part  graph.Partitioner
	keyer any // operator.CustomPartitioner
}

func (s DataStream[T]) dataStream() DataStream[T] { return s }

// edges are the inputs of a node that follows s.
func edges(s *flow, input int) []graph.Edge {
	if s == nil {
		noEnvironment()
	}
	var in []graph.Edge
	for _, u := range s.ins {
		in = append(in, graph.Edge{From: u.node, Tag: u.tag, Input: input, Partitioner: u.part, Keyer: u.keyer})
	}
	return in
}

// dealt is s with another partitioner.
func dealt(s *flow, p graph.Partitioner) *flow {
	if s == nil {
		return nil
	}
	out := &flow{e: s.e}
	for _, u := range s.ins {
		out.ins = append(out.ins, upstream{node: u.node, tag: u.tag, part: p})
	}
	return out
}

// SingleOutputStreamOperator is a stream that an operator made, with the operator's own settings.
type SingleOutputStreamOperator[T any] struct{ DataStream[T] }

// DataStreamSource is the stream of a source.
type DataStreamSource[T any] = SingleOutputStreamOperator[T]

// next adds an operator with one input.
func next[R any](s *flow, kind, name string, f operator.Factory) SingleOutputStreamOperator[R] {
	return output[R](s.env(), s.env().add(&graph.Node{Kind: kind, Name: name, In: edges(s, 0), Impl: f}))
}

// Map applies fn to each record.
func (s DataStream[T]) Map[R any](fn func(T) R) SingleOutputStreamOperator[R] {
	s.f.env().need(fn != nil, "the function")
	return next[R](s.f, "map", "Map", operator.Map(fn))
}

// Update changes each record in place. For wide records (more than four fields, or 32 bytes) it is several times faster than Map, since
// nothing is copied.
func (s DataStream[T]) Update(fn func(*T)) SingleOutputStreamOperator[T] {
	s.f.env().need(fn != nil, "the function")
	return next[T](s.f, "update", "Update", operator.Update(fn))
}

// FilterRef is Filter for wide records: fn looks at the record in place and must not change it.
func (s DataStream[T]) FilterRef(fn func(*T) bool) SingleOutputStreamOperator[T] {
	s.f.env().need(fn != nil, "the function")
	return next[T](s.f, "filter", "Filter", operator.FilterRef(fn))
}

// FilterMap makes a result of each record and keeps it when fn is true: the fastest way to pick some records and the fields that are needed
// of them, since nothing is copied on the way. fn must not change v, and sets every field of the results that it keeps: r holds anything. It
// makes new slices and maps: those that r holds may be in use by whoever got the last ones.
func (s DataStream[T]) FilterMap[R any](fn func(v *T, r *R) bool) SingleOutputStreamOperator[R] {
	s.f.env().need(fn != nil, "the function")
	return next[R](s.f, "filtermap", "FilterMap", operator.FilterMap(fn))
}

// TryMap applies fn to each record; an error fails the task.
func (s DataStream[T]) TryMap[R any](fn func(T) (R, error)) SingleOutputStreamOperator[R] {
	s.f.env().need(fn != nil, "the function")
	return next[R](s.f, "map", "Map", operator.TryMap(fn))
}

// Filter keeps the records for which fn is true.
func (s DataStream[T]) Filter(fn func(T) bool) SingleOutputStreamOperator[T] {
	s.f.env().need(fn != nil, "the function")
	return next[T](s.f, "filter", "Filter", operator.Filter(fn))
}

// FlatMap applies fn, which emits any number of results; an error fails the task.
func (s DataStream[T]) FlatMap[R any](fn func(v T, out *Collector[R]) error) SingleOutputStreamOperator[R] {
	s.f.env().need(fn != nil, "the function")
	return next[R](s.f, "flatmap", "Flat Map", operator.FlatMap(fn))
}

// Union merges streams of one type. The order between streams is not defined; the watermark is the least of theirs.
func (s DataStream[T]) Union(others ...Stream[T]) DataStream[T] {
	all := []*flow{s.f}
	for _, o := range others {
		if operator.IsNil(o) {
			s.f.env().need(false, "a stream")
			continue
		}
		all = append(all, o.dataStream().f)
	}
	return DataStream[T]{union(all)}
}

func union(all []*flow) *flow {
	if all[0] == nil {
		noEnvironment()
	}
	out := &flow{e: all[0].e, ins: append([]upstream(nil), all[0].ins...)}
	for _, d := range all[1:] {
		if out.e.with(d.env(), "union") {
			out.ins = append(out.ins, d.ins...)
		}
	}
	return out
}

// Process runs a function with side outputs and operator state; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (s DataStream[T]) Process[R any](newFn func() ProcessFunction[T, R]) SingleOutputStreamOperator[R] {
	s.f.env().constructor(newFn != nil && s.f.env().made(newFn(), newFn()))
	out := next[R](s.f, "process", "Process", operator.Process(newFn))
	out.f.node.Stateful = true // it may be
	return out
}

// Rebalance deals records out to the next operator's subtasks in turn.
func (s DataStream[T]) Rebalance() DataStream[T] {
	return DataStream[T]{dealt(s.f, graph.Rebalance)}
}

// Broadcast sends each record to every subtask of the next operator.
func (s DataStream[T]) Broadcast() DataStream[T] {
	return DataStream[T]{dealt(s.f, graph.Broadcast)}
}

// Forward sends records to the subtask of the same index; both operators need the same parallelism.
func (s DataStream[T]) Forward() DataStream[T] { return DataStream[T]{dealt(s.f, graph.Forward)} }

// Rescale deals records out in turn to those of the next operator's subtasks that are next to this one's: cheaper than Rebalance, as fewer
// subtasks are connected.
func (s DataStream[T]) Rescale() DataStream[T] { return DataStream[T]{dealt(s.f, graph.Rescale)} }

// Shuffle sends each record to a random subtask of the next operator.
func (s DataStream[T]) Shuffle() DataStream[T] { return DataStream[T]{dealt(s.f, graph.Shuffle)} }

// Global sends every record to the first subtask of the next operator.
func (s DataStream[T]) Global() DataStream[T] { return DataStream[T]{dealt(s.f, graph.Global)} }

// PartitionCustom sends each record to the subtask, 0 to n-1, that partition returns for its key and the number n of subtasks. Another one
// fails the job.
func (s DataStream[T]) PartitionCustom[K any](partition func(key K, n int) int, key func(T) K) DataStream[T] {
	s.f.env().need(partition != nil, "the partition function")
	s.f.env().need(key != nil, "the key function")
	out := DataStream[T]{dealt(s.f, graph.Custom)}
	for i := range out.f.ins {
		out.f.ins[i].keyer = operator.CustomPartitioner[T]{Choose: func(v T, n int) int { return partition(key(v), n) }, Site: callSite()}
	}
	return out
}

// KeyBy partitions the stream by key: all records of a key meet in one subtask. Keys are values that encode alike when they are equal by ==:
// no pointers, no time.Time, and no struct or array with one inside. Of floating point numbers, 0 and -0 are one key, and a NaN, which equals
// nothing, fails the job. The keys of map states and broadcast states keep to the same.
//
// fn runs before and behind the exchange and must return the same key, or the task fails: it depends on the record alone (no clock, no
// randomness, no variable that changes), and on what arrives of it. A time.Time arrives in UTC, without its zone: take days and hours of
// t.UTC().
func (s DataStream[T]) KeyBy[K comparable](fn func(T) K) KeyedStream[K, T] {
	s.f.env().need(fn != nil, "the key function")
	k := KeyedStream[K, T]{env: s.f.env(), in: s, site: callSite()}
	codec, err := serde.ForKey[K]()
	if err != nil {
		s.f.env().mistake("KeyBy: %v", err)
		return k
	}
	fn = operator.NewKeyRule[K]().KeyFn(k.site, fn)
	k.sel = operator.KeySelector[K, T]{Fn: fn, Codec: codec, Site: k.site, ID: new(byte)}
	if t, err := serde.For[K](); err == nil {
		k.keyType = operator.TypeName(t)
	}
	return k
}

// SinkTo writes the stream to a sink.
func (s DataStream[T]) SinkTo(sink connector.Sink[T]) DataStreamSink[T] {
	_, commits := sink.(connector.CommittingSink[T])
	return sinkTo(s.f, sink, operator.Sink(sink), commits)
}

func sinkTo(s *flow, sink any, f operator.Factory, commits bool) SinkOperator {
	if operator.IsNil(sink) {
		s.env().need(false, "the sink")
		return SinkOperator{s.env(), s.env().add(&graph.Node{Kind: "sink", Name: "Sink: Unnamed", In: edges(s, 0)})}
	}
	s.env().validate("sink", sink)
	s.env().own(sink)
	n := s.env().add(&graph.Node{Kind: "sink", Name: "Sink: Unnamed", Stateful: commits, In: edges(s, 0), Impl: f})
	if c := operator.SinkCoordinator(sink); c != nil {
		n.Coordinated, n.Coordinator = true, c
	}
	return SinkOperator{s.env(), n}
}

// DataStreamSink is the end of a stream.
type DataStreamSink[T any] = SinkOperator

// SinkOperator is a sink, with the operator's own settings.
type SinkOperator struct {
	env  *Environment
	node *graph.Node
}
