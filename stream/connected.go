package stream

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// CoProcessFunction is a function over two connected streams without keys; KeyedCoProcessFunction over two that are keyed alike, with
// state and timers of the key. newFn makes a new instance at each call. Their methods are those of ProcessFunction (Open, Close) and KeyedProcessFunction (OnTimer, too), with
// ProcessFirst(ctx, v A, out) and ProcessSecond(ctx, v B, out) in place of ProcessElement.
type (
	CoProcessFunction[A, B, R any]                    = operator.CoProcessFunction[A, B, R]
	KeyedCoProcessFunction[K comparable, A, B, R any] = operator.KeyedCoProcessFunction[K, A, B, R]
)

// ConnectedStreams are two streams, of any types, that one operator reads. Its watermark is the least of theirs.
type ConnectedStreams[A, B any] struct {
	first  DataStream[A]
	second DataStream[B]
}

// Connect lets one operator read this stream and another.
func (s DataStream[T]) Connect[B any](other Stream[B]) ConnectedStreams[T, B] {
	if operator.IsNil(other) {
		s.f.env().need(false, "the other stream")
		return ConnectedStreams[T, B]{s, DataStream[B]{&flow{e: s.f.env()}}}
	}
	o := other.dataStream()
	if !s.f.env().with(o.f.env(), "Connect") {
		o.f = o.f.in(s.f.env())
	}
	return ConnectedStreams[T, B]{s, o}
}

// Map applies one function to the records of the first stream and another to those of the second.
func (c ConnectedStreams[A, B]) Map[R any](first func(A) R, second func(B) R) SingleOutputStreamOperator[R] {
	c.first.f.env().need(first != nil, "the first function")
	c.first.f.env().need(second != nil, "the second function")
	return connected[A, B, R](c, "comap", "Co-Map", operator.CoProcess(func() CoProcessFunction[A, B, R] {
		return coFunctions[A, B, R]{
			first:  func(v A, out *Collector[R]) error { out.Collect(first(v)); return nil },
			second: func(v B, out *Collector[R]) error { out.Collect(second(v)); return nil },
		}
	}))
}

// FlatMap applies one function to the records of the first stream and another to those of the second; both emit any number of results.
func (c ConnectedStreams[A, B]) FlatMap[R any](first func(v A, out *Collector[R]) error, second func(v B, out *Collector[R]) error) SingleOutputStreamOperator[R] {
	c.first.f.env().need(first != nil, "the first function")
	c.first.f.env().need(second != nil, "the second function")
	return connected[A, B, R](c, "coflatmap", "Co-Flat Map", operator.CoProcess(func() CoProcessFunction[A, B, R] {
		return coFunctions[A, B, R]{first: first, second: second}
	}))
}

// Process runs a function over both streams; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (c ConnectedStreams[A, B]) Process[R any](newFn func() CoProcessFunction[A, B, R]) SingleOutputStreamOperator[R] {
	c.first.f.env().constructor(newFn != nil && c.first.f.env().made(newFn(), newFn()))
	return connected[A, B, R](c, "coprocess", "Co-Process", operator.CoProcess(newFn))
}

// KeyBy keys both streams by keys of one type: records of one key meet in one subtask, whichever stream they are of.
func (c ConnectedStreams[A, B]) KeyBy[K comparable](first func(A) K, second func(B) K) ConnectedKeyedStreams[K, A, B] {
	return c.first.KeyBy(first).Connect(c.second.KeyBy(second))
}

func connected[A, B, R any](c ConnectedStreams[A, B], kind, name string, f operator.Factory) SingleOutputStreamOperator[R] {
	n := c.first.f.env().add(&graph.Node{Kind: kind, Name: name, Stateful: kind == "coprocess", In: append(edges(c.first.f, 0), edges(c.second.f, 1)...), Impl: f})
	return output[R](c.first.f.env(), n)
}

// coFunctions is a CoProcessFunction of two functions.
type coFunctions[A, B, R any] struct {
	Plain
	first  func(A, *Collector[R]) error
	second func(B, *Collector[R]) error
}

func (f coFunctions[A, B, R]) ProcessFirst(_ *ProcessContext, v A, out *Collector[R]) error {
	return f.first(v, out)
}

func (f coFunctions[A, B, R]) ProcessSecond(_ *ProcessContext, v B, out *Collector[R]) error {
	return f.second(v, out)
}

// ConnectedKeyedStreams are two streams keyed alike that one operator reads.
type ConnectedKeyedStreams[K comparable, A, B any] struct {
	first  KeyedStream[K, A]
	second KeyedStream[K, B]
}

// Connect lets one operator read this stream and another that is keyed by the same type.
func (s KeyedStream[K, T]) Connect[B any](other KeyedStream[K, B]) ConnectedKeyedStreams[K, T, B] {
	if !s.env.with(other.env, "Connect") {
		other.env = s.env
	}
	return ConnectedKeyedStreams[K, T, B]{s, other}
}

// Process runs a function with state and timers over both streams; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (c ConnectedKeyedStreams[K, A, B]) Process[R any](newFn func() KeyedCoProcessFunction[K, A, B, R]) SingleOutputStreamOperator[R] {
	c.first.env.constructor(newFn != nil && c.first.env.made(newFn(), newFn()))
	return connectedKeyed[K, A, B, R](c, "coprocess", "KeyedCoProcess", operator.KeyedCoProcess(c.first.sel, c.second.sel, newFn))
}

func connectedKeyed[K comparable, A, B, R any](c ConnectedKeyedStreams[K, A, B], kind, name string, f operator.Factory) SingleOutputStreamOperator[R] {
	n := c.first.env.add(&graph.Node{Kind: kind, Name: name, Stateful: true, Keyed: true, KeyType: c.first.keyType,
		In: append(keyedEdges(c.first.in.f, c.first.sel, 0), keyedEdges(c.second.in.f, c.second.sel, 1)...), Impl: f})
	return output[R](c.first.env, n)
}
