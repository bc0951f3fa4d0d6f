package stream

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// BroadcastProcessFunction is a function over a stream and a broadcast stream; KeyedBroadcastProcessFunction over a keyed stream and a
// broadcast one, with state and timers of the key. Only ProcessBroadcastElement can change broadcast state. newFn makes a new instance at
// each call. Their methods are those of ProcessFunction (Open, Close) and KeyedProcessFunction (OnTimer, too), with ProcessElement(ctx *ReadOnlyContext (keyed:
// *KeyedReadOnlyContext[K]), v T, out) and ProcessBroadcastElement(ctx *BroadcastContext (*KeyedBroadcastContext[K]), v B, out).
type (
	BroadcastProcessFunction[T, B, R any]                    = operator.BroadcastProcessFunction[T, B, R]
	KeyedBroadcastProcessFunction[K comparable, T, B, R any] = operator.KeyedBroadcastProcessFunction[K, T, B, R]
)

// These are what such functions work with.
type (
	// ReadOnlyContext has BroadcastState(descriptor) (ReadOnlyBroadcastState, error), and the methods of ProcessContext.
	ReadOnlyContext = operator.ReadOnlyContext
	// BroadcastContext has BroadcastState(descriptor) (BroadcastState, error), and the methods of ProcessContext.
	BroadcastContext = operator.BroadcastContext
	// KeyedReadOnlyContext has BroadcastState(descriptor) (ReadOnlyBroadcastState, error), and the methods of KeyedContext.
	KeyedReadOnlyContext[K comparable] = operator.KeyedReadOnlyContext[K]
	// KeyedBroadcastContext has the methods of BroadcastContext, and ApplyToKeyedState(state, func(key K, state) error) error, which goes over
	// all keys that have the state. There is no current key.
	KeyedBroadcastContext[K comparable] = operator.KeyedBroadcastContext[K]
)

// NoBroadcastTimers is embedded by KeyedBroadcastProcessFunctions that register no timers and hold nothing to close.
type NoBroadcastTimers[K comparable, R any] struct{}

// OnTimer is an error when the function registered timers after all. Those that a former version of it left in the state it drops.
func (NoBroadcastTimers[K, R]) OnTimer(ctx *KeyedReadOnlyContext[K], timer Timer, _ *Collector[R]) error {
	return operator.Unhandled(ctx.KeyedContext, timer, "NoBroadcastTimers")
}

// Close does nothing.
func (NoBroadcastTimers[K, R]) Close() error { return nil }

// MapStateDescriptor names a broadcast state, for DataStream.BroadcastState and the contexts' methods of that name.
type MapStateDescriptor[UK comparable, V any] = operator.MapStateDescriptor[UK, V]

// NewMapStateDescriptor returns the descriptor of a broadcast state from UK to V.
func NewMapStateDescriptor[UK comparable, V any](name string) MapStateDescriptor[UK, V] {
	return MapStateDescriptor[UK, V]{Name: name}
}

// StateDescriptor is any MapStateDescriptor.
type StateDescriptor = operator.BroadcastDescriptor

// BroadcastStream is a stream whose records go to every subtask of what it is connected with, and the states that are kept of them.
type BroadcastStream[B any] struct {
	s      DataStream[B]
	states []StateDescriptor
}

// BroadcastState broadcasts the stream for ConnectBroadcast, with the states that the function keeps of its records.
// Source: Flink DataStream.broadcast(MapStateDescriptor...).
func (s DataStream[T]) BroadcastState(states ...StateDescriptor) BroadcastStream[T] {
	s.f.env().broadcastStates(states)
	return BroadcastStream[T]{DataStream[T]{dealt(s.f, graph.Broadcast)}, append([]StateDescriptor(nil), states...)}
}

// broadcastStates notes the mistakes of descriptors.
func (e *Environment) broadcastStates(states []StateDescriptor) {
	seen := map[string]bool{}
	for _, d := range states {
		if operator.IsNil(d) {
			e.need(false, "a state")
			continue
		}
		name, err := d.Check()
		switch {
		case err != nil:
			e.mistake("BroadcastState: %v", err)
		case seen[name]:
			e.mistake("BroadcastState: two states are named %q", name)
		}
		seen[name] = true
	}
}

func (b BroadcastStream[B]) in(env *Environment) DataStream[B] {
	if !env.with(b.s.f.env(), "ConnectBroadcast") {
		b.s.f = b.s.f.in(env)
	}
	return b.s
}

// BroadcastConnectedStream is a stream and a broadcast stream that one operator reads.
type BroadcastConnectedStream[T, B any] struct {
	first DataStream[T]
	b     BroadcastStream[B]
}

// ConnectBroadcast lets one operator read this stream and a broadcast one.
func (s DataStream[T]) ConnectBroadcast[B any](b BroadcastStream[B]) BroadcastConnectedStream[T, B] {
	b.s = b.in(s.f.env())
	return BroadcastConnectedStream[T, B]{s, b}
}

// Process runs a function over both streams; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (c BroadcastConnectedStream[T, B]) Process[R any](newFn func() BroadcastProcessFunction[T, B, R]) SingleOutputStreamOperator[R] {
	c.first.f.env().constructor(newFn != nil && c.first.f.env().made(newFn(), newFn()))
	n := c.first.f.env().add(&graph.Node{Kind: "broadcastprocess", Name: "Co-Process-Broadcast", Stateful: true,
		In: append(edges(c.first.f, 0), edges(c.b.s.f, 1)...), Impl: operator.BroadcastProcess(c.b.states, newFn)})
	return output[R](c.first.f.env(), n)
}

// KeyedBroadcastConnectedStream is a keyed stream and a broadcast stream that one operator reads.
type KeyedBroadcastConnectedStream[K comparable, T, B any] struct {
	first KeyedStream[K, T]
	b     BroadcastStream[B]
}

// ConnectBroadcast lets one operator read this stream and a broadcast one.
func (s KeyedStream[K, T]) ConnectBroadcast[B any](b BroadcastStream[B]) KeyedBroadcastConnectedStream[K, T, B] {
	b.s = b.in(s.env)
	return KeyedBroadcastConnectedStream[K, T, B]{s, b}
}

// Process runs a function with state and timers over both streams; newFn makes a new instance at each call: one per subtask, and two when the graph is built.
func (c KeyedBroadcastConnectedStream[K, T, B]) Process[R any](newFn func() KeyedBroadcastProcessFunction[K, T, B, R]) SingleOutputStreamOperator[R] {
	c.first.env.constructor(newFn != nil && c.first.env.made(newFn(), newFn()))
	n := c.first.env.add(&graph.Node{Kind: "broadcastprocess", Name: "Co-Process-Broadcast-Keyed", Stateful: true, Keyed: true, KeyType: c.first.keyType,
		In: append(keyedEdges(c.first.in.f, c.first.sel, 0), edges(c.b.s.f, 1)...), Impl: operator.KeyedBroadcastProcess(c.first.sel, c.b.states, newFn)})
	return output[R](c.first.env, n)
}
