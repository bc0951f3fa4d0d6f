package stream

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// KeyedStream is a stream whose records of one key meet in one subtask.
type KeyedStream[K comparable, T any] struct {
	env     *Environment
	in      DataStream[T]
	sel     operator.KeySelector[K, T]
	keyType string
	site    string
}

// keyedEdges are the inputs of a keyed node.
func keyedEdges(s *flow, sel any, input int) []graph.Edge {
	in := edges(s, input)
	for i := range in {
		in[i].Partitioner, in[i].Keyer = graph.Hash, sel
	}
	return in
}

// keyed adds a keyed operator.
func keyed[K comparable, T, R any](s KeyedStream[K, T], kind, name, detail string, f operator.Factory) SingleOutputStreamOperator[R] {
	return keyedNext[R](s.in.f, s.sel, s.keyType, kind, name, detail, f)
}

func keyedNext[R any](s *flow, sel any, keyType, kind, name, detail string, f operator.Factory) SingleOutputStreamOperator[R] {
	in := keyedEdges(s, sel, 0)
	n := s.env().add(&graph.Node{Kind: kind, Name: name, Detail: detail, Stateful: true, Keyed: true, KeyType: keyType, In: in, Impl: f})
	return output[R](s.env(), n)
}

// Reduce keeps one value per key, fn of it and each record, and emits it after each record. fn may change acc in place.
func (s KeyedStream[K, T]) Reduce[F ~func(acc, v T) T](fn F) SingleOutputStreamOperator[T] {
	s.env.need(fn != nil, "the function")
	return keyed[K, T, T](s, "reduce", "Keyed Reduce", "", operator.Reduce(s.sel, fn))
}

// KeyedProcessFunction is a function over a keyed stream with state and timers. newFn makes a new instance at each call; embed
// NoTimers in functions that use none. Its methods, each of which returns an error: Open(rt *RuntimeContext[K]),
// ProcessElement(ctx *KeyedContext[K], v T, out *Collector[R]), OnTimer(ctx *KeyedContext[K], timer Timer, out *Collector[R]), Close().
type KeyedProcessFunction[K comparable, T, R any] = operator.KeyedProcessFunction[K, T, R]

// RuntimeContext, KeyedContext and Timer are what a KeyedProcessFunction works with.
type (
	// RuntimeContext is given to Open, where a function opens its state. opts are StateOptions (WithTTL):
	//   - ValueState[V](name, opts...) (ValueState[V], error)
	//   - ListState[V](name, opts...) (ListState[V], error)
	//   - MapState[UK, V](name, opts...) (MapState[UK, V], error)
	//   - ReducingState[V](name, fn func(a, b V) V, opts...) (ReducingState[V], error)
	//   - AggregatingState[T, A, R](name, aggregator, opts...) (AggregatingState[T, R], error)
	//
	// It also has the methods of TaskContext; operator state is opened by rt.TaskContext.ListState.
	RuntimeContext[K comparable] = operator.RuntimeContext[K]
	// KeyedContext is given with each record and timer:
	//   - Key() K
	//   - RegisterEventTimeTimer(t time.Time) error, DeleteEventTimeTimer(t time.Time) error
	//   - RegisterProcessingTimeTimer(t time.Time) error, DeleteProcessingTimeTimer(t time.Time) error
	//
	// It also has the methods of ProcessContext; Timestamp is the timer's time in OnTimer.
	KeyedContext[K comparable] = operator.KeyedContext[K]
	// Timer has the fields At time.Time and EventTime bool; it is one in processing time else.
	Timer = operator.Timer
)

// NoTimers is embedded by process functions that register no timers and hold nothing to close.
type NoTimers[K comparable, R any] struct{}

// OnTimer is an error when the function registered timers after all. Those that a former version of it left in the state it drops.
func (NoTimers[K, R]) OnTimer(ctx *KeyedContext[K], timer Timer, _ *Collector[R]) error {
	return operator.Unhandled(ctx, timer, "NoTimers")
}

// Close does nothing.
func (NoTimers[K, R]) Close() error { return nil }

// Process runs a function with state and timers; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (s KeyedStream[K, T]) Process[R any](newFn func() KeyedProcessFunction[K, T, R]) SingleOutputStreamOperator[R] {
	s.env.constructor(newFn != nil && s.env.made(newFn(), newFn()))
	return keyed[K, T, R](s, "process", "KeyedProcess", "", operator.KeyedProcess(s.sel, newFn))
}
