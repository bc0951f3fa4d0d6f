package stream

import (
	"fmt"
	"time"

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

// edges are the inputs of a keyed node that follows s.
func (s KeyedStream[K, T]) edges(input int) []graph.Edge {
	in := s.in.edges(input)
	for i := range in {
		in[i].Partitioner, in[i].Keyer = graph.Hash, s.sel
	}
	return in
}

// keyed adds a keyed operator.
func keyed[K comparable, T, R any](s KeyedStream[K, T], kind, name, detail string, f operator.Factory) SingleOutputStreamOperator[R] {
	in := s.edges(0)
	n := s.env.add(&graph.Node{Kind: kind, Name: name, Detail: detail, Stateful: true, Keyed: true, KeyType: s.keyType, In: in, Impl: f})
	return output[R](s.env, n)
}

// Reduce keeps one value per key, fn of it and each record, and emits it after each record.
func (s KeyedStream[K, T]) Reduce(fn func(acc, v T) T) SingleOutputStreamOperator[T] {
	return keyed[K, T, T](s, "reduce", "Keyed Reduce", "", operator.Reduce(s.sel, fn))
}

// KeyedProcessFunction is a function over a keyed stream with state and timers. newFn makes one instance per subtask; embed
// NoTimers in functions that use none.
type KeyedProcessFunction[K comparable, T, R any] = operator.KeyedProcessFunction[K, T, R]

// RuntimeContext, KeyedContext and Timer are what a KeyedProcessFunction works with; state.go has its state.
type (
	RuntimeContext[K comparable] = operator.RuntimeContext[K]
	KeyedContext[K comparable]   = operator.KeyedContext[K]
	Timer                        = operator.Timer
)

// NoTimers is embedded by process functions that register no timers and hold nothing to close.
type NoTimers[K comparable, R any] struct{}

// OnTimer does nothing.
func (NoTimers[K, R]) OnTimer(*KeyedContext[K], Timer, *Collector[R]) error { return nil }

// Close does nothing.
func (NoTimers[K, R]) Close() error { return nil }

// Process runs a function with state and timers; newFn makes one instance per subtask.
func (s KeyedStream[K, T]) Process[R any](newFn func() KeyedProcessFunction[K, T, R]) SingleOutputStreamOperator[R] {
	return keyed[K, T, R](s, "process", "KeyedProcess", "", operator.KeyedProcess(s.sel, newFn))
}

// WindowAssigner assigns records to windows.
type WindowAssigner struct {
	t   operator.Tumbling
	err error
}

// TumblingEventTime assigns each event time to one window of the given size, aligned to the epoch.
func TumblingEventTime(size time.Duration) WindowAssigner { return TumblingEventTimeOffset(size, 0) }

// TumblingEventTimeOffset is TumblingEventTime with windows that start at offset modulo size; offsets may be negative.
func TumblingEventTimeOffset(size, offset time.Duration) WindowAssigner {
	w := WindowAssigner{t: operator.Tumbling{Size: size.Milliseconds(), Offset: offset.Milliseconds()}}
	if size < time.Millisecond {
		w.err = fmt.Errorf("window size %v is below a millisecond", size)
	} else if offset <= -size || offset >= size {
		w.err = fmt.Errorf("window offset %v must be less than the size %v", offset, size)
	}
	return w
}

// TimeWindow is the half-open interval [Start, End) of event time.
type TimeWindow struct{ Start, End time.Time }

func timeWindow(w operator.Window) TimeWindow {
	return TimeWindow{time.UnixMilli(w.Start).UTC(), time.UnixMilli(w.End).UTC()}
}

// Window groups the records of each key by event time. Windows are emitted when the watermark passes their end; later records of them
// are dropped and counted (numLateRecordsDropped).
func (s KeyedStream[K, T]) Window(a WindowAssigner) WindowedStream[K, T] {
	if a.err != nil {
		s.env.mistake("%v", a.err)
		a.t.Size = 1
	}
	return WindowedStream[K, T]{s, a.t}
}

// WindowedStream is a keyed stream in windows.
type WindowedStream[K comparable, T any] struct {
	s KeyedStream[K, T]
	t operator.Tumbling
}

// Reduce combines the records of each key and window and emits the result, with the window's last millisecond as its event time.
func (w WindowedStream[K, T]) Reduce(fn func(acc, v T) T) SingleOutputStreamOperator[T] {
	f := operator.WindowFunctions[K, T, T, T]{
		Add: func(acc *T, v T, first bool) {
			if first {
				*acc = v
			} else {
				*acc = fn(*acc, v)
			}
		},
		Emit: func(_ K, _ operator.Window, acc *T, out *Collector[T]) error {
			out.Collect(*acc)
			return nil
		},
	}
	return keyed[K, T, T](w.s, "window", "TumblingEventTimeWindows", w.t.String()+" reduce", operator.TumblingWindow(w.s.sel, w.t, f))
}

// Aggregate folds the records of each key and window into an accumulator and emits fn of its result.
func (w WindowedStream[K, T]) Aggregate[A, V, R any](agg Aggregator[T, A, V], fn func(key K, w TimeWindow, v V) R) SingleOutputStreamOperator[R] {
	f := operator.WindowFunctions[K, T, A, R]{
		Add: func(acc *A, v T, first bool) {
			if first {
				*acc = agg.Create()
			}
			agg.Add(acc, v)
		},
		Emit: func(k K, win operator.Window, acc *A, out *Collector[R]) error {
			out.Collect(fn(k, timeWindow(win), agg.Result(*acc)))
			return nil
		},
	}
	return keyed[K, T, R](w.s, "window", "TumblingEventTimeWindows", w.t.String()+" aggregate", operator.TumblingWindow(w.s.sel, w.t, f))
}
