package stream

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// ProcessWindowFunction is a function over the records of a window, or over the one value that they were aggregated to. newFn makes a
// new instance at each call; embed PlainWindow in functions that hold nothing to open, clear or close. Its methods, each of which returns an
// error: Open(rt *WindowRuntimeContext[K]), Process(ctx *WindowContext[K], values iter.Seq[V], out *Collector[R]), Clear(ctx *WindowContext[K]),
// which removes what the function keeps of a window outside of its per-window states, and Close().
type ProcessWindowFunction[K comparable, V, R any] = operator.ProcessWindowFunction[K, V, R]

// What window functions work with.
type (
	// WindowRuntimeContext is given to Open. It has the methods of RuntimeContext, whose states are the key's over all windows (Flink's
	// globalState), and WindowValueState[V](name), WindowListState[V](name), WindowMapState[UK, V](name), WindowReducingState(name, fn) and
	// WindowAggregatingState(name, aggregator) for states of the key and window (Flink's windowState), which are removed with the window. Windows that
	// merge cannot have those.
	WindowRuntimeContext[K comparable] = operator.WindowRuntimeContext[K]
	// WindowContext has Key() K, Window() TimeWindow, and the methods of ProcessContext.
	WindowContext[K comparable] = operator.WindowContext[K]
)

// PlainWindow is embedded by window functions that hold nothing to open, clear or close.
type PlainWindow[K comparable] struct{}

// Open does nothing.
func (PlainWindow[K]) Open(*WindowRuntimeContext[K]) error { return nil }

// Clear does nothing.
func (PlainWindow[K]) Clear(*WindowContext[K]) error { return nil }

// Close does nothing.
func (PlainWindow[K]) Close() error { return nil }

// WindowedStream is a keyed stream in windows.
type WindowedStream[K comparable, T any] struct {
	s     KeyedStream[K, T]
	name  string
	spec  operator.WindowSpec[K, T]
	extra string // trigger and so on, for the plan
	given *bool  // it has a function
}

// Window groups the records of each key. Event-time windows are emitted when the watermark passes their end; records that come later are
// dropped and counted (numLateRecordsDropped), unless AllowedLateness or SideOutputLateData say otherwise.
func (s KeyedStream[K, T]) Window[A onlyAssigner](assigner A) WindowedStream[K, T] {
	a := WindowAssigner(assigner)
	w := WindowedStream[K, T]{s: s, name: a.name, given: s.env.wants("windows")}
	w.spec.Key = s.sel
	w.spec.Assigner = assign[T](s.env, a)
	return w
}

// onlyAssigner and number are what makes methods generic: see DataStream.
type (
	onlyAssigner interface{ WindowAssigner }
	number       interface{ int | int32 | int64 }
)

// assign is a as the operator's, over records of T.
func assign[T any](env *Environment, a WindowAssigner) operator.WindowAssigner[T] {
	o := operator.WindowAssigner[T]{Kind: a.kind, EventTime: a.event, Sliding: a.sliding, Session: operator.Session[T]{Gap: a.gap}}
	switch {
	case a.name == "":
		o.EventTime = true // nothing else is said of it
		env.mistake("the window assigner is a zero value: take TumblingEventTime, GlobalWindows or another")
	case a.err != nil:
		env.mistake("%v", a.err)
	}
	switch gap := a.dynamic.(type) {
	case nil:
	case func(T) time.Duration:
		if gap == nil {
			env.mistake("a session with a dynamic gap needs a gap function")
		}
		o.Session.Dynamic = func(v T) int64 { return gap(v).Milliseconds() }
	default:
		env.mistake("the session's gap function is %T, the stream's records are %s", a.dynamic, typeName[T]())
	}
	return o
}

func typeName[T any]() string { return fmt.Sprintf("%T", *new(T)) }

// CountWindow groups each size records of a key; fewer are never emitted.
func (s KeyedStream[K, T]) CountWindow[N number](records N) WindowedStream[K, T] {
	size := int64(records)
	if size < 1 {
		s.env.mistake("window size %d is not positive", size)
		size = 1
	}
	w := s.Window(GlobalWindows()).Trigger(PurgingTrigger(CountTrigger[T](size)))
	w.extra = fmt.Sprintf(" count %d", size)
	return w
}

// CountWindowSliding emits, after each slide records of a key, the last size of them.
func (s KeyedStream[K, T]) CountWindowSliding[N number](records, every N) WindowedStream[K, T] {
	size, slide := int64(records), int64(every)
	switch {
	case size < 1:
		s.env.mistake("window size %d is not positive", size)
	case slide < 1:
		s.env.mistake("window slide %d is not positive", slide)
	}
	w := s.Window(GlobalWindows()).Evictor(CountEvictor[T](max(size, 1))).Trigger(CountTrigger[T](max(slide, 1)))
	w.extra = fmt.Sprintf(" count %d slide %d", size, slide)
	return w
}

// Trigger replaces the assigner's own trigger.
func (w WindowedStream[K, T]) Trigger[W interface{ WindowTrigger[T] }](t W) WindowedStream[K, T] {
	setTrigger(w.s.env, &w.spec, WindowTrigger[T](t), &w.extra)
	return w
}

func setTrigger[K comparable, T any](env *Environment, spec *operator.WindowSpec[K, T], t WindowTrigger[T], extra *string) {
	switch {
	case t.err != nil:
		env.mistake("%v", t.err)
	case t.newFn == nil:
		env.mistake("Trigger needs a trigger")
	case operator.IsNil(t.newFn()):
		env.mistake("CustomTrigger: the function that makes the trigger returns nil")
	case spec.Assigner.Kind == operator.SessionWindows && !t.newFn().CanMerge():
		env.mistake("sessions merge, and the trigger cannot: %s", nameOf(t.newFn()))
	default:
		spec.Trigger = t.newFn
		*extra += " with trigger"
	}
}

// Evictor lets an evictor choose from a window's records when it is emitted. All records are kept then, also for Reduce and Aggregate.
func (w WindowedStream[K, T]) Evictor[W interface{ WindowEvictor[T] }](e W) WindowedStream[K, T] {
	setEvictor(w.s.env, &w.spec, WindowEvictor[T](e), &w.extra)
	return w
}

func setEvictor[K comparable, T any](env *Environment, spec *operator.WindowSpec[K, T], e WindowEvictor[T], extra *string) {
	if e.err != nil || e.make == nil {
		env.mistake("%v", cmp.Or(e.err, fmt.Errorf("Evictor needs an evictor")))
		return
	}
	spec.Evictor = e.make(e.after)
	*extra += " with evictor"
}

// AllowedLateness keeps event-time windows for d after their end: a record that comes in that time emits its windows again. Other windows,
// of processing time, counts and GlobalWindows, have no late records: there it is a mistake, where Flink's has no effect.
func (w WindowedStream[K, T]) AllowedLateness(d time.Duration) WindowedStream[K, T] {
	setLateness(w.s.env, &w.spec.Lateness, d, w.spec.Assigner.EventTime)
	return w
}

// setLateness sets the lateness of windows, which are of event time or not.
func setLateness(env *Environment, lateness *int64, d time.Duration, event bool) {
	switch {
	case d > 0 && !event:
		env.mistake("allowed lateness %v has no effect: only event-time windows have late records, and these are of processing time, of counts or global", d)
	case d < 0:
		env.mistake("allowed lateness %v is negative", d)
	case d%time.Millisecond != 0:
		env.mistake("allowed lateness %v is not a whole number of milliseconds", d)
	default:
		*lateness = d.Milliseconds()
	}
}

// SideOutputLateData sends records whose windows are all gone to a side output of the window's operator, instead of dropping and counting
// them. When nobody reads the side output they are counted.
func (w WindowedStream[K, T]) SideOutputLateData(tag OutputTag[T]) WindowedStream[K, T] {
	if tag.ID == "" {
		w.s.env.mistake("SideOutputLateData: the tag has no name")
		return w
	}
	w.spec.Late = operator.LateTag[T]{Tag: tag, Set: true}
	return w
}

func windowed[K comparable, T, R any](w WindowedStream[K, T], what string, f operator.Factory) SingleOutputStreamOperator[R] {
	w.s.env.finish(w.given)
	out := keyed[K, T, R](w.s, "window", w.name, w.spec.Assigner.String()+w.extra+" "+what, f)
	declare(out.f.node, w.spec.Late.Tag)
	return out
}

func reducing[K comparable, T, R any](fn func(acc, v T) T) operator.WindowFunctions[K, T, T, R] {
	return operator.WindowFunctions[K, T, T, R]{
		Add: func(acc *T, v T, first bool) {
			if first {
				*acc = v
			} else {
				*acc = fn(*acc, v)
			}
		},
		Merge: fn,
	}
}

// itself emits a window's value as it is.
func itself[K comparable, T any](_ K, _ operator.Window, acc *T, out *Collector[T]) error {
	out.Collect(*acc)
	return nil
}

// Reduce combines the records of each key and window and emits the result, with the window's last millisecond as its event time. fn is
// associative; results of parts of a window (the slices of sliding windows, merged sessions) are combined by it, too. (A method with a type
// parameter is compiled only where it is called, one without it for each type of stream.)
func (w WindowedStream[K, T]) Reduce[F ~func(acc, v T) T](fn F) SingleOutputStreamOperator[T] {
	w.s.env.need(fn != nil, "the function")
	return windowed[K, T, T](w, "reduce", operator.AggregateWindow(w.spec, func() operator.WindowFunctions[K, T, T, T] {
		f := reducing[K, T, T](fn)
		f.Emit = itself[K, T]
		return f
	}))
}

// ReduceApply is Reduce with a function that makes the result of it, the key and the window.
func (w WindowedStream[K, T]) ReduceApply[R any](fn func(acc, v T) T, result func(key K, w TimeWindow, v T) R) SingleOutputStreamOperator[R] {
	w.s.env.need(fn != nil, "the function")
	w.s.env.need(result != nil, "the result function")
	return windowed[K, T, R](w, "reduce", operator.AggregateWindow(w.spec, func() operator.WindowFunctions[K, T, T, R] {
		f := reducing[K, T, R](fn)
		f.Emit = func(k K, win operator.Window, acc *T, out *Collector[R]) error {
			out.Collect(result(k, win.Times(), *acc))
			return nil
		}
		return f
	}))
}

// ReduceProcess is Reduce with a function that gets the result as the only element.
func (w WindowedStream[K, T]) ReduceProcess[R any](fn func(acc, v T) T, newFn func() ProcessWindowFunction[K, T, R]) SingleOutputStreamOperator[R] {
	w.s.env.need(fn != nil, "the function")
	w.s.env.constructor(newFn != nil && w.s.env.made(newFn(), newFn()))
	return windowed[K, T, R](w, "reduce process", operator.AggregateProcessWindow(w.spec,
		func() operator.WindowFunctions[K, T, T, R] { return reducing[K, T, R](fn) }, func(acc *T) T { return *acc }, newFn))
}

func aggregating[K comparable, T, A, V, R any](agg Aggregator[T, A, V]) operator.WindowFunctions[K, T, A, R] {
	c, ok := agg.(Copier)
	return operator.WindowFunctions[K, T, A, R]{
		Copies: ok && c.Copies(),
		Create: agg.Create,
		Add: func(acc *A, v T, first bool) {
			if first {
				*acc = agg.Create()
			}
			agg.Add(acc, v)
		},
		Merge: agg.Merge,
	}
}

// Aggregate folds the records of each key and window into an accumulator and emits fn of its result.
func (w WindowedStream[K, T]) Aggregate[A, V, R any](agg Aggregator[T, A, V], fn func(key K, w TimeWindow, v V) R) SingleOutputStreamOperator[R] {
	w.s.env.aggregator(agg)
	w.s.env.need(fn != nil, "the result function")
	return windowed[K, T, R](w, "aggregate", operator.AggregateWindow(w.spec, func() operator.WindowFunctions[K, T, A, R] {
		f := aggregating[K, T, A, V, R](agg)
		f.Emit = func(k K, win operator.Window, acc *A, out *Collector[R]) error {
			out.Collect(fn(k, win.Times(), agg.Result(*acc)))
			return nil
		}
		return f
	}))
}

// AggregateProcess is Aggregate with a function that gets the result as the only element.
func (w WindowedStream[K, T]) AggregateProcess[A, V, R any](agg Aggregator[T, A, V], newFn func() ProcessWindowFunction[K, V, R]) SingleOutputStreamOperator[R] {
	w.s.env.aggregator(agg)
	w.s.env.constructor(newFn != nil && w.s.env.made(newFn(), newFn()))
	return windowed[K, T, R](w, "aggregate process", operator.AggregateProcessWindow(w.spec,
		func() operator.WindowFunctions[K, T, A, R] { return aggregating[K, T, A, V, R](agg) },
		func(acc *A) V { return agg.Result(*acc) }, newFn))
}

// Process keeps the records of each key and window and gives them to a function when the window is emitted. Sliding windows share their
// records: those of a window come in the order of its slices, and of their arrival in a slice.
func (w WindowedStream[K, T]) Process[R any](newFn func() ProcessWindowFunction[K, T, R]) SingleOutputStreamOperator[R] {
	w.s.env.constructor(newFn != nil && w.s.env.made(newFn(), newFn()))
	return windowed[K, T, R](w, "process", operator.ProcessWindow(w.spec, newFn))
}

// Apply is Process with a function without state.
func (w WindowedStream[K, T]) Apply[R any](fn func(key K, w TimeWindow, elements iter.Seq[T], out *Collector[R]) error) SingleOutputStreamOperator[R] {
	w.s.env.need(fn != nil, "the function")
	return windowed[K, T, R](w, "apply", operator.ProcessWindow(w.spec, func() ProcessWindowFunction[K, T, R] { return applied[K, T, R]{fn: fn} }))
}

type applied[K comparable, T, R any] struct {
	PlainWindow[K]
	fn func(K, TimeWindow, iter.Seq[T], *Collector[R]) error
}

func (a applied[K, T, R]) Process(ctx *WindowContext[K], elements iter.Seq[T], out *Collector[R]) error {
	return a.fn(ctx.Key(), ctx.Window(), elements, out)
}

// combined emits the one record that those of a window are combined to.
func combined[K comparable, T any](w WindowedStream[K, T], what string, newFn func() combiner[T]) SingleOutputStreamOperator[T] {
	return windowed[K, T, T](w, what, operator.AggregateWindow(w.spec, func() operator.WindowFunctions[K, T, T, T] {
		c := newFn()
		return operator.WindowFunctions[K, T, T, T]{Add: c.add, Merge: c.merge, Emit: itself[K, T]}
	}))
}

// Sum emits the first record of each key and window with the sum of a field of all of them: Sum(func(o *Order) *int64 { return &o.Cents }).
func (w WindowedStream[K, T]) Sum[N Number](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(w.s.env, field)
	return combined(w, "sum", summing(field))
}

// Min emits the first record of each key and window with the least value of a field of all of them; MinBy emits the record that has it.
func (w WindowedStream[K, T]) Min[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(w.s.env, field)
	return combined(w, "min", extremes(field, -1))
}

// Max is Min with the greatest value.
func (w WindowedStream[K, T]) Max[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(w.s.env, field)
	return combined(w, "max", extremes(field, 1))
}

// MinBy emits the record of each key and window with the least of, the first one of several.
func (w WindowedStream[K, T]) MinBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	w.s.env.need(of != nil, "the value function")
	return combined(w, "minBy", extremeRecord(of, -1))
}

// MaxBy is MinBy with the greatest.
func (w WindowedStream[K, T]) MaxBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	w.s.env.need(of != nil, "the value function")
	return combined(w, "maxBy", extremeRecord(of, 1))
}

// Count counts the records of each key and window.
func (w WindowedStream[K, T]) Count[R any](fn func(key K, w TimeWindow, n int64) R) SingleOutputStreamOperator[R] {
	return w.Aggregate(Count[T](), fn)
}

// Average is the mean of a number of the records of each key and window.
func (w WindowedStream[K, T]) Average[N Number, R any](of func(T) N, fn func(key K, w TimeWindow, mean float64) R) SingleOutputStreamOperator[R] {
	return w.Aggregate(Average(of), fn)
}

// AllKey is the key of windows over streams without keys: there is one.
type AllKey uint8

// ProcessAllWindowFunction is a ProcessWindowFunction over a stream without keys.
type ProcessAllWindowFunction[V, R any] = ProcessWindowFunction[AllKey, V, R]

// AllWindowedStream is a stream without keys in windows. Its operator has parallelism 1.
type AllWindowedStream[T any] struct{ w WindowedStream[AllKey, T] }

// WindowAll groups all records of the stream. The operator has parallelism 1: all records go through one subtask.
func (s DataStream[T]) WindowAll[A onlyAssigner](a A) AllWindowedStream[T] {
	return AllWindowedStream[T]{s.KeyBy(func(T) AllKey { return 0 }).Window(a)}
}

// CountWindowAll groups each size records; fewer are never emitted.
func (s DataStream[T]) CountWindowAll[N number](size N) AllWindowedStream[T] {
	return AllWindowedStream[T]{s.KeyBy(func(T) AllKey { return 0 }).CountWindow(size)}
}

// CountWindowAllSliding emits, after each slide records, the last size of them.
func (s DataStream[T]) CountWindowAllSliding[N number](size, slide N) AllWindowedStream[T] {
	return AllWindowedStream[T]{s.KeyBy(func(T) AllKey { return 0 }).CountWindowSliding(size, slide)}
}

// one gives an operator parallelism 1, for good.
func one[R any](s SingleOutputStreamOperator[R]) SingleOutputStreamOperator[R] {
	s.f.node.Parallelism, s.f.node.MaxParallelism, s.f.single = 1, 1, true
	return s
}

// Trigger replaces the assigner's own trigger.
func (w AllWindowedStream[T]) Trigger[W interface{ WindowTrigger[T] }](t W) AllWindowedStream[T] {
	return AllWindowedStream[T]{w.w.Trigger(t)}
}

// Evictor lets an evictor choose from a window's records when it is emitted.
func (w AllWindowedStream[T]) Evictor[W interface{ WindowEvictor[T] }](e W) AllWindowedStream[T] {
	return AllWindowedStream[T]{w.w.Evictor(e)}
}

// AllowedLateness keeps event-time windows for d after their end: a record that comes in that time emits its windows again. Of other windows
// it is a mistake.
func (w AllWindowedStream[T]) AllowedLateness(d time.Duration) AllWindowedStream[T] {
	return AllWindowedStream[T]{w.w.AllowedLateness(d)}
}

// SideOutputLateData sends records whose windows are all gone to a side output.
func (w AllWindowedStream[T]) SideOutputLateData(tag OutputTag[T]) AllWindowedStream[T] {
	return AllWindowedStream[T]{w.w.SideOutputLateData(tag)}
}

// Reduce combines the records of each window.
func (w AllWindowedStream[T]) Reduce[F ~func(acc, v T) T](fn F) SingleOutputStreamOperator[T] {
	return one(w.w.Reduce(fn))
}

// ReduceProcess is Reduce with a function that gets the result as the only element.
func (w AllWindowedStream[T]) ReduceProcess[R any](fn func(acc, v T) T, newFn func() ProcessAllWindowFunction[T, R]) SingleOutputStreamOperator[R] {
	return one(w.w.ReduceProcess(fn, newFn))
}

// Aggregate folds the records of each window into an accumulator and emits fn of its result.
func (w AllWindowedStream[T]) Aggregate[A, V, R any](agg Aggregator[T, A, V], fn func(w TimeWindow, v V) R) SingleOutputStreamOperator[R] {
	w.w.s.env.need(fn != nil, "the result function")
	return one(w.w.Aggregate(agg, func(_ AllKey, win TimeWindow, v V) R { return fn(win, v) }))
}

// AggregateProcess is Aggregate with a function that gets the result as the only element.
func (w AllWindowedStream[T]) AggregateProcess[A, V, R any](agg Aggregator[T, A, V], newFn func() ProcessAllWindowFunction[V, R]) SingleOutputStreamOperator[R] {
	return one(w.w.AggregateProcess(agg, newFn))
}

// Process keeps the records of each window and gives them to a function when the window is emitted.
func (w AllWindowedStream[T]) Process[R any](newFn func() ProcessAllWindowFunction[T, R]) SingleOutputStreamOperator[R] {
	return one(w.w.Process(newFn))
}

// Apply is Process with a function without state.
func (w AllWindowedStream[T]) Apply[R any](fn func(w TimeWindow, elements iter.Seq[T], out *Collector[R]) error) SingleOutputStreamOperator[R] {
	w.w.s.env.need(fn != nil, "the function")
	return one(w.w.Apply(func(_ AllKey, win TimeWindow, elements iter.Seq[T], out *Collector[R]) error {
		return fn(win, elements, out)
	}))
}

// Sum emits the first record of each window with the sum of a field of all of them.
func (w AllWindowedStream[T]) Sum[N Number](field func(*T) *N) SingleOutputStreamOperator[T] {
	return one(w.w.Sum(field))
}

// Min emits the first record of each window with the least value of a field of all of them.
func (w AllWindowedStream[T]) Min[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	return one(w.w.Min(field))
}

// Max is Min with the greatest value.
func (w AllWindowedStream[T]) Max[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	return one(w.w.Max(field))
}

// MinBy emits the record of each window with the least of, the first one of several.
func (w AllWindowedStream[T]) MinBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	return one(w.w.MinBy(of))
}

// MaxBy is MinBy with the greatest.
func (w AllWindowedStream[T]) MaxBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	return one(w.w.MaxBy(of))
}

// Count counts the records of each window.
func (w AllWindowedStream[T]) Count[R any](fn func(w TimeWindow, n int64) R) SingleOutputStreamOperator[R] {
	return w.Aggregate(Count[T](), fn)
}

// Average is the mean of a number of the records of each window.
func (w AllWindowedStream[T]) Average[N Number, R any](of func(T) N, fn func(w TimeWindow, mean float64) R) SingleOutputStreamOperator[R] {
	return w.Aggregate(Average(of), fn)
}
