package stream

import (
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// TimeWindow is the half-open interval [Start, End) of time, in UTC.
type TimeWindow = operator.TimeWindow

// WindowAssigner assigns records to windows. Sizes, slides, gaps and offsets are whole milliseconds.
type WindowAssigner struct {
	kind    operator.WindowKind
	name    string // Flink's
	event   bool
	sliding operator.Sliding
	gap     int64
	dynamic any // func(T) time.Duration
	err     error
}

// ms is d in milliseconds; err says why it cannot be.
func ms(what string, d time.Duration) (int64, error) {
	switch {
	case d < time.Millisecond && d > 0:
		return 1, fmt.Errorf("%s %v is below a millisecond", what, d)
	case d <= 0:
		return 1, fmt.Errorf("%s %v is not positive", what, d)
	case d%time.Millisecond != 0:
		return d.Milliseconds(), fmt.Errorf("%s %v is not a whole number of milliseconds", what, d)
	}
	return d.Milliseconds(), nil
}

func sliding(name string, event bool, size, slide, offset time.Duration) WindowAssigner {
	a := WindowAssigner{name: name, event: event}
	s, err := ms("window size", size)
	l, lerr := ms("window slide", slide)
	switch {
	case err != nil:
		a.err = err
	case lerr != nil:
		a.err = lerr
	case size == slide && (offset <= -size || offset >= size):
		a.err = fmt.Errorf("window offset %v must be less than the size %v", offset, size)
	case offset <= -slide || offset >= slide:
		a.err = fmt.Errorf("window offset %v must be less than the slide %v", offset, slide)
	case offset%time.Millisecond != 0:
		a.err = fmt.Errorf("window offset %v is not a whole number of milliseconds", offset)
	}
	a.sliding = operator.Sliding{Size: s, Slide: l, Offset: offset.Milliseconds()}
	if a.err != nil {
		a.sliding = operator.Sliding{Size: 1, Slide: 1}
	}
	return a
}

// TumblingEventTime assigns each event time to one window of the given size, aligned to the epoch.
func TumblingEventTime(size time.Duration) WindowAssigner { return TumblingEventTimeOffset(size, 0) }

// TumblingEventTimeOffset is TumblingEventTime with windows that start at offset modulo size; offsets may be negative.
func TumblingEventTimeOffset(size, offset time.Duration) WindowAssigner {
	return sliding("TumblingEventTimeWindows", true, size, size, offset)
}

// TumblingProcessingTime assigns each record to one window of the given size by the time when it is processed.
func TumblingProcessingTime(size time.Duration) WindowAssigner {
	return TumblingProcessingTimeOffset(size, 0)
}

// TumblingProcessingTimeOffset is TumblingProcessingTime with windows that start at offset modulo size.
func TumblingProcessingTimeOffset(size, offset time.Duration) WindowAssigner {
	return sliding("TumblingProcessingTimeWindows", false, size, size, offset)
}

// SlidingEventTime assigns each event time to the windows of the given size, one of which starts each slide. Windows share what they have
// in common: a record is aggregated (or kept) once, whatever the number of its windows. When slide is greater than size, records between
// windows are in none.
func SlidingEventTime(size, slide time.Duration) WindowAssigner {
	return SlidingEventTimeOffset(size, slide, 0)
}

// SlidingEventTimeOffset is SlidingEventTime with windows that start at offset modulo slide.
func SlidingEventTimeOffset(size, slide, offset time.Duration) WindowAssigner {
	return sliding("SlidingEventTimeWindows", true, size, slide, offset)
}

// SlidingProcessingTime is SlidingEventTime by the time when records are processed.
func SlidingProcessingTime(size, slide time.Duration) WindowAssigner {
	return SlidingProcessingTimeOffset(size, slide, 0)
}

// SlidingProcessingTimeOffset is SlidingProcessingTime with windows that start at offset modulo slide.
func SlidingProcessingTimeOffset(size, slide, offset time.Duration) WindowAssigner {
	return sliding("SlidingProcessingTimeWindows", false, size, slide, offset)
}

func sessionOf(name string, event bool, gap time.Duration) WindowAssigner {
	g, err := ms("session gap", gap)
	return WindowAssigner{kind: operator.SessionWindows, name: name, event: event, gap: g, err: err}
}

// EventTimeSession assigns records of a key to one window as long as each is at most gap away from another: windows reach from their first
// record to gap after their last one. Records that come late but belong to a session that is still open are not late.
func EventTimeSession(gap time.Duration) WindowAssigner {
	return sessionOf("EventTimeSessionWindows", true, gap)
}

// ProcessingTimeSession is EventTimeSession by the time when records are processed.
func ProcessingTimeSession(gap time.Duration) WindowAssigner {
	return sessionOf("ProcessingTimeSessionWindows", false, gap)
}

// EventTimeSessionDynamic is EventTimeSession with a gap for each record. A gap below a millisecond fails the job.
func EventTimeSessionDynamic[T any](gap func(T) time.Duration) WindowAssigner {
	return WindowAssigner{kind: operator.SessionWindows, name: "DynamicEventTimeSessionWindows", event: true, gap: 1, dynamic: gap}
}

// ProcessingTimeSessionDynamic is ProcessingTimeSession with a gap for each record. A gap below a millisecond fails the job.
func ProcessingTimeSessionDynamic[T any](gap func(T) time.Duration) WindowAssigner {
	return WindowAssigner{kind: operator.SessionWindows, name: "DynamicProcessingTimeSessionWindows", gap: 1, dynamic: gap}
}

// GlobalWindows assigns all records of a key to one window without end. It is emitted only by a trigger of its own.
func GlobalWindows() WindowAssigner {
	return WindowAssigner{kind: operator.GlobalWindows, name: "GlobalWindows"}
}

// Trigger decides when a window is emitted; times are milliseconds since 1970. It is given as CustomTrigger(newFn). Embed TriggerBase in triggers
// that do not merge and need few of the methods, which are: Open(rt *TriggerRuntime) error,
// OnElement(v T, ts int64, w Window, ctx *TriggerContext) (TriggerResult, error),
// OnEventTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error), OnProcessingTime, which is alike,
// OnMerge(w Window, ctx *MergeContext) error, CanMerge() bool, Clear(w Window, ctx *TriggerContext) error.
type Trigger[T any] = operator.Trigger[T]

// What triggers work with.
type (
	// TriggerBase has all methods of Trigger but OnElement; they do nothing, and CanMerge is false.
	TriggerBase = operator.TriggerBase
	// TriggerResult is Continue, Fire, Purge or FireAndPurge.
	TriggerResult = operator.TriggerResult
	// TriggerRuntime is given to Open, where a trigger opens its state of a key and window: ValueState[V](name), ReducingState[V](name, fn).
	TriggerRuntime = operator.TriggerRuntime
	// TriggerContext has Watermark() and ProcessingTime(), both int64, and RegisterEventTimeTimer(at), DeleteEventTimeTimer(at),
	// RegisterProcessingTimeTimer(at) and DeleteProcessingTimeTimer(at), which return an error.
	TriggerContext = operator.TriggerContext
	// MergeContext has the methods of TriggerContext, and MergeState(s TriggerReducingState) error.
	MergeContext = operator.MergeContext
	// TriggerValueState has Value() (v V, found bool, err error), Update(v), Clear().
	TriggerValueState[V any] = operator.TriggerValueState[V]
	// TriggerReducingState has Get() (v V, found bool, err error), Add(v) (V, error) with the result, Clear().
	TriggerReducingState[V any] = operator.TriggerReducingState[V]
	// Window is a window in milliseconds: fields Start and End, MaxTimestamp() int64 and Times() TimeWindow.
	Window = operator.Window
)

// The results of triggers.
const (
	Continue     = operator.Continue
	Fire         = operator.Fire
	Purge        = operator.Purge
	FireAndPurge = operator.FireAndPurge
)

// WindowTrigger makes the triggers of a window operator, one per subtask.
type WindowTrigger[T any] struct {
	newFn func() Trigger[T]
	err   error
}

// EventTimeTrigger emits a window when the watermark passes its end, and for each record after that. It is the event-time windows' own.
func EventTimeTrigger[T any]() WindowTrigger[T] {
	return WindowTrigger[T]{newFn: operator.NewEventTimeTrigger[T]}
}

// ProcessingTimeTrigger emits a window when the processing time passes its end. It is the processing-time windows' own.
func ProcessingTimeTrigger[T any]() WindowTrigger[T] {
	return WindowTrigger[T]{newFn: operator.NewProcessingTimeTrigger[T]}
}

// NeverTrigger never emits. It is the global windows' own.
func NeverTrigger[T any]() WindowTrigger[T] {
	return WindowTrigger[T]{newFn: operator.NewNeverTrigger[T]}
}

// CountTrigger emits a window whenever n records were added to it.
func CountTrigger[T any](n int64) WindowTrigger[T] {
	t := WindowTrigger[T]{newFn: func() Trigger[T] { return operator.NewCountTrigger[T](n) }}
	if n < 1 {
		t.err = fmt.Errorf("trigger count %d is not positive", n)
	}
	return t
}

// ContinuousEventTimeTrigger emits a window when the watermark passes multiples of the interval, and at its end.
func ContinuousEventTimeTrigger[T any](interval time.Duration) WindowTrigger[T] {
	return continuous[T](interval, true)
}

// ContinuousProcessingTimeTrigger emits a window when the processing time passes multiples of the interval, and its end.
func ContinuousProcessingTimeTrigger[T any](interval time.Duration) WindowTrigger[T] {
	return continuous[T](interval, false)
}

func continuous[T any](interval time.Duration, event bool) WindowTrigger[T] {
	n, err := ms("trigger interval", interval)
	return WindowTrigger[T]{func() Trigger[T] { return operator.NewContinuousTrigger[T](n, event) }, err}
}

// DeltaTrigger emits a window when delta of a record and the one that it was emitted at last (at first: the first one) exceeds threshold.
// It is not possible with sessions.
func DeltaTrigger[T any](threshold float64, delta func(old, updated T) float64) WindowTrigger[T] {
	t := WindowTrigger[T]{newFn: func() Trigger[T] { return operator.NewDeltaTrigger(threshold, delta) }}
	switch {
	case math.IsNaN(threshold):
		t.err = fmt.Errorf("trigger threshold is not a number")
	case delta == nil:
		t.err = fmt.Errorf("DeltaTrigger needs a delta function")
	}
	return t
}

// PurgingTrigger is another trigger that also removes the contents of a window that it emits.
func PurgingTrigger[T any](t WindowTrigger[T]) WindowTrigger[T] {
	if t.newFn == nil || t.err != nil {
		return t // Trigger tells
	}
	return WindowTrigger[T]{func() Trigger[T] {
		inner := t.newFn()
		if operator.IsNil(inner) {
			return nil
		}
		return operator.NewPurgingTrigger(inner)
	}, nil}
}

// CustomTrigger is a trigger of your own; newFn makes a new instance at each call: one per subtask, and some that are only
// looked at. It has the methods
//
//	Open(rt *TriggerRuntime) error
//	OnElement(v T, ts int64, w Window, ctx *TriggerContext) (TriggerResult, error)
//	OnEventTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error)
//	OnProcessingTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error)
//	CanMerge() bool
//	OnMerge(w Window, ctx *MergeContext) error
//	Clear(w Window, ctx *TriggerContext) error
//
// of which TriggerBase, embedded, has all but OnElement. For windows that merge (sessions) CanMerge returns true, and OnMerge puts the reducing
// states of the windows that became w together (ctx.MergeState(s)) and registers the timers of w.
func CustomTrigger[T any](newFn func() Trigger[T]) WindowTrigger[T] {
	t := WindowTrigger[T]{newFn: newFn}
	switch {
	case newFn == nil:
		t.err = fmt.Errorf("CustomTrigger needs a function that makes the trigger")
	case sameInstance(newFn(), newFn()):
		t.err = fmt.Errorf("CustomTrigger: %s: each subtask needs its own", oneInstance)
	}
	return t
}

// Evictor removes records from a window when it is emitted, before or after the window function; times are milliseconds since 1970. Its methods
// return the records that stay: EvictBefore(elements []TimestampedValue[T], w Window, ctx *EvictorContext) []TimestampedValue[T], and
// EvictAfter, which is alike.
type Evictor[T any] = operator.Evictor[T]

// What evictors work with.
type (
	// TimestampedValue has the fields Value T and Timestamp int64.
	TimestampedValue[T any] = operator.TimestampedValue[T]
	// EvictorContext has the fields Watermark and ProcessingTime, both int64.
	EvictorContext = operator.EvictorContext
)

// WindowEvictor is an evictor of this package or one of the user's own.
type WindowEvictor[T any] struct {
	make  func(after bool) Evictor[T]
	after bool
	err   error
}

// After lets the evictor work after the window function, instead of before it. It does nothing for CustomEvictor.
func (e WindowEvictor[T]) After() WindowEvictor[T] {
	e.after = true
	return e
}

// CountEvictor keeps the last n records of a window.
func CountEvictor[T any](n int64) WindowEvictor[T] {
	e := WindowEvictor[T]{make: func(after bool) Evictor[T] { return operator.NewCountEvictor[T](int(n), after) }}
	if n < 0 {
		e.err = fmt.Errorf("evictor count %d is negative", n)
	}
	return e
}

// TimeEvictor keeps the records of the last d before the latest one of a window.
func TimeEvictor[T any](d time.Duration) WindowEvictor[T] {
	n, err := ms("evictor time", d)
	return WindowEvictor[T]{make: func(after bool) Evictor[T] { return operator.NewTimeEvictor[T](n, after) }, err: err}
}

// DeltaEvictor keeps the records whose delta to the last one of the window is below threshold.
func DeltaEvictor[T any](threshold float64, delta func(old, last T) float64) WindowEvictor[T] {
	e := WindowEvictor[T]{make: func(after bool) Evictor[T] { return operator.NewDeltaEvictor(threshold, delta, after) }}
	switch {
	case math.IsNaN(threshold):
		e.err = fmt.Errorf("evictor threshold is not a number")
	case delta == nil:
		e.err = fmt.Errorf("DeltaEvictor needs a delta function")
	}
	return e
}

// CustomEvictor is an evictor of the user's own. It is shared by the subtasks.
func CustomEvictor[T any](e Evictor[T]) WindowEvictor[T] {
	w := WindowEvictor[T]{make: func(bool) Evictor[T] { return e }}
	if operator.IsNil(e) {
		w.err = fmt.Errorf("CustomEvictor needs an evictor")
	}
	return w
}
