package operator

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// WindowKind is a kind of assigner.
type WindowKind uint8

const (
	SlidingWindows WindowKind = iota // and tumbling ones
	SessionWindows
	GlobalWindows
)

// WindowAssigner says which windows a record is in.
type WindowAssigner[T any] struct {
	Kind      WindowKind
	EventTime bool // else processing time; not for GlobalWindows
	Sliding   Sliding
	Session   Session[T]
}

func (a WindowAssigner[T]) String() string {
	when := "ProcessingTime"
	if a.EventTime {
		when = "EventTime"
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	switch {
	case a.Kind == GlobalWindows:
		return "Global"
	case a.Kind == SessionWindows && a.Session.Dynamic != nil:
		return when + "Session(dynamic gap)"
	case a.Kind == SessionWindows:
		return fmt.Sprintf("%sSession(%s)", when, ms(a.Session.Gap))
	case a.Sliding.Size == a.Sliding.Slide:
		return fmt.Sprintf("Tumbling%s(%s)", when, ms(a.Sliding.Size))
	default:
		return fmt.Sprintf("Sliding%s(%s, %s)", when, ms(a.Sliding.Size), ms(a.Sliding.Slide))
	}
}

func (a WindowAssigner[T]) defaultTrigger() Trigger[T] {
	switch {
	case a.Kind == GlobalWindows:
		return NewNeverTrigger[T]()
	case a.EventTime:
		return NewEventTimeTrigger[T]()
	default:
		return NewProcessingTimeTrigger[T]()
	}
}

// WindowSpec describes a window operator without its function. Times are in milliseconds.
type WindowSpec[K comparable, T any] struct {
	Key      KeySelector[K, T]
	Assigner WindowAssigner[T]
	Trigger  func() Trigger[T] // one instance per subtask; nil for the assigner's own
	Evictor  Evictor[T]        // nil for none
	Lateness int64
	Late     LateTag[T]
}

// AggregateWindow aggregates the records of each key and window. newFn makes the functions of one subtask.
//
// A window's results are emitted when its trigger fires, with the window's last millisecond as their time. Records whose windows are all
// gone are late. A record without event time, or with one whose windows' bounds overflow, is an error (Flink drops the latter as late).
func AggregateWindow[K comparable, T, A, R any](spec WindowSpec[K, T], newFn func() WindowFunctions[K, T, A, R]) Factory {
	return chooseWindow(spec, func() (contents[T, A], windowUser[K, A, R]) {
		f := newFn()
		return aggregated(f), &emitFunc[K, A, R]{emit: f.Emit}
	})
}

// AggregateProcessWindow aggregates, and gives the result to a ProcessWindowFunction as the only element. f.Emit is not used.
func AggregateProcessWindow[K comparable, T, A, V, R any](spec WindowSpec[K, T], newFn func() WindowFunctions[K, T, A, R], result func(*A) V, process func() ProcessWindowFunction[K, V, R]) Factory {
	return chooseWindow(spec, func() (contents[T, A], windowUser[K, A, R]) {
		f := newFn()
		one := func(a *A) func(func(V) bool) {
			return func(yield func(V) bool) { yield(result(a)) }
		}
		return aggregated(f), &processUser[K, V, A, R]{fn: process(), each: func(a *A) iter.Seq[V] { return one(a) }}
	})
}

func aggregated[K comparable, T, A, R any](f WindowFunctions[K, T, A, R]) contents[T, A] {
	return contents[T, A]{fold: f.Add, merge: f.Merge, empty: f.Create, copies: f.Copies}
}

// ProcessWindow keeps the records of each key and window and gives them to a ProcessWindowFunction. With sliding windows, records are kept
// once, and come slice by slice in the order of time, those of one slice in the order of their arrival.
func ProcessWindow[K comparable, T, R any](spec WindowSpec[K, T], process func() ProcessWindowFunction[K, T, R]) Factory {
	codec, err := serde.For[T]()
	return chooseWindow(spec, func() (contents[T, []T], windowUser[K, []T, R]) {
		c := contents[T, []T]{copies: true, merge: func(a, b []T) []T { return append(a, b...) }, empty: func() []T { return nil }}
		clone := err == nil && codec.Views()
		c.add = func(b *[]T, v T, _ int64, _ bool) {
			if clone {
				v = codec.Clone(v)
			}
			*b = append(*b, v)
		}
		return c, &processUser[K, T, []T, R]{fn: process(), each: func(b *[]T) iter.Seq[T] { return slices.Values(*b) }}
	})
}

// tableOpener opens a table for windows' contents: openTyped where newSliced needs the same table, else openBoxed.
type tableOpener[K comparable, C any] = func(*Context, string, serde.Codec[K]) (state.Table[K, C], error)

// chooseWindow chooses the operator.
func chooseWindow[K comparable, T, C, R any](spec WindowSpec[K, T], parts func() (contents[T, C], windowUser[K, C, R])) Factory {
	a := spec.Assigner
	layout := windowLayout(a.Kind, a.EventTime, a.Sliding, spec.Trigger != nil, spec.Evictor != nil)
	return laid(layout, func(ctx *Context, out any) (Operator, error) {
		c, user := parts()
		plain := a.EventTime && spec.Trigger == nil && spec.Evictor == nil
		switch {
		case spec.Evictor != nil:
			return newEvicting(ctx, out, &spec, c, user)
		case plain && a.Kind == SlidingWindows && (c.merge != nil || a.Sliding.Size == a.Sliding.slices().Size):
			return newSliced(ctx, out, spec.Key, a.Sliding, c, user, spec.Lateness, spec.Late)
		case plain && a.Kind == SessionWindows:
			return newSession(ctx, out, spec.Key, a.Session, c, user, spec.Lateness, spec.Late)
		default:
			return newWindow(ctx, out, &spec, c, user, openTyped[K, C])
		}
	})
}

func newEvicting[K comparable, T, C, R any](ctx *Context, out any, spec *WindowSpec[K, T], c contents[T, C], user windowUser[K, C, R]) (Operator, error) {
	codec, err := serde.For[T]()
	if err != nil {
		return nil, err
	}
	b := contents[T, []TimestampedValue[T]]{copies: true, merge: func(a, b []TimestampedValue[T]) []TimestampedValue[T] { return append(a, b...) }}
	b.void = func(b *[]TimestampedValue[T]) bool { return len(*b) == 0 }
	b.add = func(b *[]TimestampedValue[T], v T, ts int64, _ bool) {
		if codec.Views() {
			v = codec.Clone(v)
		}
		*b = append(*b, TimestampedValue[T]{v, ts})
	}
	u := &evictUser[K, T, C, R]{windowUser: user, c: c, evictor: spec.Evictor, values: mutableCodec[T]()}
	return newWindow[K, T, []TimestampedValue[T], R](ctx, out, spec, b, evictBuffer[K, T, C, R]{u}, openBoxed[K, []TimestampedValue[T]])
}

// TumblingWindow aggregates per key and tumbling event-time window; see AggregateWindow. f's functions are shared by all subtasks.
func TumblingWindow[K comparable, T, A, R any](sel KeySelector[K, T], w Tumbling, f WindowFunctions[K, T, A, R]) Factory {
	return AggregateWindow(WindowSpec[K, T]{Key: sel, Assigner: WindowAssigner[T]{EventTime: true, Sliding: Sliding{w.Size, w.Size, w.Offset}}},
		func() WindowFunctions[K, T, A, R] { return f })
}
