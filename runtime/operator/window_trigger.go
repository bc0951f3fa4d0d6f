package operator

import (
	"fmt"
	"math"
	"slices"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// TriggerResult is what a trigger wants done with its window.
type TriggerResult uint8

const (
	Continue     TriggerResult = 0
	Fire         TriggerResult = 1 // emit the window's results and keep its contents
	Purge        TriggerResult = 2 // remove the contents, keep the window
	FireAndPurge TriggerResult = Fire | Purge
)

func (r TriggerResult) fires() bool  { return r&Fire != 0 }
func (r TriggerResult) purges() bool { return r&Purge != 0 }

// Trigger decides when a window is emitted. One instance serves one subtask; what it knows of a window is in the state handles that it made
// in Open, which are those of the key and window of the call. Source: Flink Trigger.
type Trigger[T any] interface {
	Open(rt *TriggerRuntime) error
	// OnElement runs for each record that is added to a window. ts is its event time, or NoTimestamp.
	OnElement(v T, ts int64, w Window, ctx *TriggerContext) (TriggerResult, error)
	// OnEventTime and OnProcessingTime run when a timer of the window is due.
	OnEventTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error)
	OnProcessingTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error)
	// OnMerge runs when windows became w, before the triggers of those are cleared.
	OnMerge(w Window, ctx *MergeContext) error
	// CanMerge says that OnMerge works; without it the trigger is not possible with session windows.
	CanMerge() bool
	// Clear removes the timers and the state of a window that is gone.
	Clear(w Window, ctx *TriggerContext) error
}

// triggerOps are what the operator does for its trigger, for the current key and window.
type triggerOps interface {
	now() int64
	current() int64
	timer(event, register bool, at int64) error
	merges() bool
	// open opens state of the current key.
	open(name, what string, value *serde.Boxed) (boxes, error)
	// window is where the namespace of the current window is kept.
	window() *state.Namespace
}

// mergeable is state of the current key and window that can be moved between windows.
type mergeable[V any] interface {
	get() (V, bool, error)
	put(V) error
	clear() error
	// of returns another window's value of the current key.
	of(ns state.Namespace) (V, bool, error)
}

// TriggerContext is what a trigger gets with each call.
type TriggerContext struct {
	ops   triggerOps
	watch *timerWatch
}

// Watermark is the current event time in milliseconds; the least int64 before the first watermark.
func (c *TriggerContext) Watermark() int64 { return c.ops.current() }

// ProcessingTime is the current processing time in milliseconds.
func (c *TriggerContext) ProcessingTime() int64 { return c.ops.now() }

// RegisterEventTimeTimer calls OnEventTime for this key and window when the watermark reaches at. Registering twice is once. What
// KeyedContext.RegisterEventTimeTimer says of times in the past and of those that cannot be holds here, too.
func (c *TriggerContext) RegisterEventTimeTimer(at int64) error {
	if err := c.watch.valid("RegisterEventTimeTimer", at); err != nil {
		return err
	}
	c.watch.event("RegisterEventTimeTimer", at, c.ops.current())
	return c.ops.timer(true, true, at)
}

// DeleteEventTimeTimer removes a timer.
func (c *TriggerContext) DeleteEventTimeTimer(at int64) error { return c.ops.timer(true, false, at) }

// RegisterProcessingTimeTimer calls OnProcessingTime for this key and window when the processing time reaches at; see
// KeyedContext.RegisterProcessingTimeTimer.
func (c *TriggerContext) RegisterProcessingTimeTimer(at int64) error {
	if err := c.watch.valid("RegisterProcessingTimeTimer", at); err != nil {
		return err
	}
	c.watch.processing("RegisterProcessingTimeTimer", at)
	return c.ops.timer(false, true, at)
}

// DeleteProcessingTimeTimer removes a timer.
func (c *TriggerContext) DeleteProcessingTimeTimer(at int64) error {
	return c.ops.timer(false, false, at)
}

// MergeContext is what a trigger gets when windows are merged. Its state and timers are those of the window that results.
type MergeContext struct {
	TriggerContext
	merged []state.Namespace
}

// MergeState adds the states of the merged windows to that of the window that results.
func (c *MergeContext) MergeState(s MergeableTriggerState) error { return s.merge(c.merged) }

// MergeableTriggerState is state that MergeState takes: a TriggerReducingState.
type MergeableTriggerState interface{ merge([]state.Namespace) error }

// TriggerRuntime is what a trigger gets in Open.
type TriggerRuntime struct{ ops triggerOps }

// TriggerValueState is one value per key and window.
type TriggerValueState[V any] struct{ s mergeable[V] }

// Value returns the value; found is false when there is none.
func (s TriggerValueState[V]) Value() (v V, found bool, err error) { return s.s.get() }

// Update sets the value.
func (s TriggerValueState[V]) Update(v V) error { return s.s.put(v) }

// Clear removes the value.
func (s TriggerValueState[V]) Clear() error { return s.s.clear() }

// TriggerReducingState is one value per key and window that all that is added is reduced to.
type TriggerReducingState[V any] struct {
	s  mergeable[V]
	fn func(a, b V) V
}

// Get returns the value; found is false when nothing was added.
func (s TriggerReducingState[V]) Get() (v V, found bool, err error) { return s.s.get() }

// Add adds a value and returns the result.
func (s TriggerReducingState[V]) Add(v V) (V, error) {
	old, found, err := s.s.get()
	if err != nil {
		return v, err
	}
	if found {
		v = s.fn(old, v)
	}
	return v, s.s.put(v)
}

// Clear removes the value.
func (s TriggerReducingState[V]) Clear() error { return s.s.clear() }

func (s TriggerReducingState[V]) merge(merged []state.Namespace) error {
	for _, ns := range merged {
		v, found, err := s.s.of(ns)
		if err != nil {
			return err
		}
		if found {
			if _, err := s.Add(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// ValueState opens the value state of this name.
func (r *TriggerRuntime) ValueState[V any](name string) (TriggerValueState[V], error) {
	s, err := openTriggerState[V](r, name)
	return TriggerValueState[V]{s}, err
}

// ReducingState opens the reducing state of this name; fn is associative.
func (r *TriggerRuntime) ReducingState[V any](name string, fn func(a, b V) V) (TriggerReducingState[V], error) {
	s, err := openTriggerState[V](r, name)
	return TriggerReducingState[V]{s, fn}, err
}

// openTriggerState opens state of V: by namespace for windows that all keys share, else in one entry per key.
func openTriggerState[V any](r *TriggerRuntime, name string) (mergeable[V], error) {
	codec, err := serde.ForBoxed[V]()
	if err != nil {
		return nil, lasting("trigger state %q, opened at %s: %w", name, userSite(), err)
	}
	what := "trigger state of " + typeName[V]()
	if !r.ops.merges() {
		b, err := r.ops.open(name, what, codec)
		return &perWindow[V]{b, codec, r.ops.window()}, err
	}
	cells, err := serde.ForBoxed[[]windowCell[V]]()
	if err != nil {
		return nil, lasting("trigger state %q: %w", name, err)
	}
	b, err := r.ops.open(name, what, cells)
	return &perMerging[V]{b, codec, r.ops.window()}, err
}

// boxes is boxed state of the current key.
type boxes interface {
	get(ns state.Namespace) (any, bool, error)
	ref(ns state.Namespace) (*any, bool, error)
	remove(ns state.Namespace) error
}

type keyBoxes[K comparable] struct {
	t   state.Table[K, any]
	cur *state.Key[K]
}

func (b *keyBoxes[K]) get(ns state.Namespace) (any, bool, error) {
	if b.cur.Group == noKey {
		return nil, false, noCurrentKey()
	}
	return b.t.Get(*b.cur, ns)
}

func (b *keyBoxes[K]) ref(ns state.Namespace) (*any, bool, error) {
	if b.cur.Group == noKey {
		return nil, false, noCurrentKey()
	}
	return b.t.Ref(*b.cur, ns)
}

func (b *keyBoxes[K]) remove(ns state.Namespace) error {
	if b.cur.Group == noKey {
		return noCurrentKey()
	}
	return b.t.Delete(*b.cur, ns)
}

// perWindow is a value per key and window, of windows that do not merge.
type perWindow[V any] struct {
	b     boxes
	codec *serde.Boxed
	ns    *state.Namespace // the current window's
}

func (c *perWindow[V]) get() (V, bool, error)                  { return c.of(*c.ns) }
func (c *perWindow[V]) of(ns state.Namespace) (V, bool, error) { return unbox[V](c.b.get(ns)) }
func (c *perWindow[V]) clear() error                           { return c.b.remove(*c.ns) }
func (c *perWindow[V]) put(v V) error {
	p, _, err := unboxed[V](c.b.ref(*c.ns))
	if err == nil {
		*p = v
		c.codec.Own(p)
	}
	return err
}

// perMerging is a value per key and window, of windows that merge: all of a key are one entry.
type perMerging[V any] struct {
	b     boxes
	codec *serde.Boxed
	ns    *state.Namespace
}

// windowCell is one of them. Its fields are exported for the codec alone.
type windowCell[V any] struct {
	NS state.Namespace
	V  V
}

func find[V any](l []windowCell[V], ns state.Namespace) int {
	return slices.IndexFunc(l, func(c windowCell[V]) bool { return c.NS == ns })
}

func (c *perMerging[V]) get() (V, bool, error) { return c.of(*c.ns) }

func (c *perMerging[V]) of(ns state.Namespace) (v V, found bool, err error) {
	l, _, err := unbox[[]windowCell[V]](c.b.get(0))
	if i := find(l, ns); i >= 0 {
		return l[i].V, true, err
	}
	return v, false, err
}

func (c *perMerging[V]) put(v V) error {
	p, _, err := unboxed[[]windowCell[V]](c.b.ref(0))
	if err != nil {
		return err
	}
	i := find(*p, *c.ns)
	if i < 0 {
		i = len(*p)
		*p = append(*p, windowCell[V]{NS: *c.ns})
	}
	(*p)[i].V = v
	c.codec.Own(&(*p)[i].V)
	return nil
}

func (c *perMerging[V]) clear() error {
	l, _, err := unbox[[]windowCell[V]](c.b.get(0))
	if err != nil || find(l, *c.ns) < 0 {
		return err
	}
	if len(l) == 1 {
		return c.b.remove(0)
	}
	p, _, err := unboxed[[]windowCell[V]](c.b.ref(0))
	if err != nil {
		return err
	}
	i := find(*p, *c.ns)
	*p = slices.Delete(*p, i, i+1)
	return nil
}

// TriggerBase is embedded by triggers that have no state and do not merge: it does nothing.
type TriggerBase struct{}

func (TriggerBase) Open(*TriggerRuntime) error { return nil }
func (TriggerBase) OnEventTime(int64, Window, *TriggerContext) (TriggerResult, error) {
	return Continue, nil
}
func (TriggerBase) OnProcessingTime(int64, Window, *TriggerContext) (TriggerResult, error) {
	return Continue, nil
}
func (TriggerBase) OnMerge(Window, *MergeContext) error { return nil }
func (TriggerBase) CanMerge() bool                      { return false }
func (TriggerBase) Clear(Window, *TriggerContext) error { return nil }

// eventTimeTrigger fires when the watermark passes the window's end, and for each record after that. Source: Flink EventTimeTrigger.
type eventTimeTrigger[T any] struct{ TriggerBase }

// NewEventTimeTrigger returns the trigger that fires when the watermark passes the window's end, and for each record after that.
func NewEventTimeTrigger[T any]() Trigger[T] { return eventTimeTrigger[T]{} }

func (eventTimeTrigger[T]) OnElement(_ T, _ int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	if w.MaxTimestamp() <= ctx.Watermark() {
		return Fire, nil
	}
	return Continue, ctx.ops.timer(true, true, w.MaxTimestamp())
}

func (eventTimeTrigger[T]) OnEventTime(at int64, w Window, _ *TriggerContext) (TriggerResult, error) {
	if at == w.MaxTimestamp() {
		return Fire, nil
	}
	return Continue, nil
}

func (eventTimeTrigger[T]) OnMerge(w Window, ctx *MergeContext) error {
	if w.MaxTimestamp() > ctx.Watermark() {
		return ctx.ops.timer(true, true, w.MaxTimestamp())
	}
	return nil
}

func (eventTimeTrigger[T]) CanMerge() bool { return true }

func (eventTimeTrigger[T]) Clear(w Window, ctx *TriggerContext) error {
	return ctx.DeleteEventTimeTimer(w.MaxTimestamp())
}

// processingTimeTrigger fires when the processing time passes the window's end. Source: Flink ProcessingTimeTrigger.
type processingTimeTrigger[T any] struct{ TriggerBase }

// NewProcessingTimeTrigger returns the trigger that fires when the processing time passes the window's end.
func NewProcessingTimeTrigger[T any]() Trigger[T] { return processingTimeTrigger[T]{} }

func (processingTimeTrigger[T]) OnElement(_ T, _ int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	return Continue, ctx.ops.timer(false, true, w.MaxTimestamp())
}

func (processingTimeTrigger[T]) OnProcessingTime(int64, Window, *TriggerContext) (TriggerResult, error) {
	return Fire, nil
}

func (processingTimeTrigger[T]) OnMerge(w Window, ctx *MergeContext) error {
	if w.MaxTimestamp() > ctx.ProcessingTime() {
		return ctx.ops.timer(false, true, w.MaxTimestamp())
	}
	return nil
}

func (processingTimeTrigger[T]) CanMerge() bool { return true }

func (processingTimeTrigger[T]) Clear(w Window, ctx *TriggerContext) error {
	return ctx.DeleteProcessingTimeTimer(w.MaxTimestamp())
}

// neverTrigger is the global windows' own. Source: Flink GlobalWindows.NeverTrigger.
type neverTrigger[T any] struct{ TriggerBase }

// NewNeverTrigger returns the trigger that never fires.
func NewNeverTrigger[T any]() Trigger[T] { return neverTrigger[T]{} }

func (neverTrigger[T]) OnElement(T, int64, Window, *TriggerContext) (TriggerResult, error) {
	return Continue, nil
}
func (neverTrigger[T]) CanMerge() bool { return true }

// countTrigger fires at each n-th record. Source: Flink CountTrigger.
type countTrigger[T any] struct {
	TriggerBase
	n     int64
	count TriggerReducingState[int64]
}

// NewCountTrigger returns the trigger that fires whenever n records were added.
func NewCountTrigger[T any](n int64) Trigger[T] { return &countTrigger[T]{n: n} }

func (t *countTrigger[T]) Open(rt *TriggerRuntime) (err error) {
	t.count, err = rt.ReducingState("count", func(a, b int64) int64 { return a + b })
	return err
}

func (t *countTrigger[T]) OnElement(T, int64, Window, *TriggerContext) (TriggerResult, error) {
	n, err := t.count.Add(1)
	if err != nil || n < t.n {
		return Continue, err
	}
	return Fire, t.count.Clear()
}

func (t *countTrigger[T]) OnMerge(_ Window, ctx *MergeContext) error { return ctx.MergeState(t.count) }
func (t *countTrigger[T]) CanMerge() bool                            { return true }
func (t *countTrigger[T]) Clear(Window, *TriggerContext) error       { return t.count.Clear() }

// continuousTrigger fires at each multiple of an interval, in event or processing time, and at the window's end.
// Source: Flink ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger; times before 1970 are rounded down, as all others.
type continuousTrigger[T any] struct {
	TriggerBase
	every int64
	event bool
	next  TriggerReducingState[int64]
}

// NewContinuousTrigger returns the trigger that fires at each multiple of every milliseconds, in event or processing time.
func NewContinuousTrigger[T any](every int64, event bool) Trigger[T] {
	return &continuousTrigger[T]{every: every, event: event}
}

func (t *continuousTrigger[T]) Open(rt *TriggerRuntime) (err error) {
	t.next, err = rt.ReducingState("fire-time", func(a, b int64) int64 { return min(a, b) })
	return err
}

func (t *continuousTrigger[T]) OnElement(_ T, ts int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	if t.event {
		if w.MaxTimestamp() <= ctx.Watermark() {
			return Fire, nil
		}
		if ts == NoTimestamp {
			return Continue, fmt.Errorf("record has no event time, which a continuous event-time trigger needs")
		}
		if err := ctx.ops.timer(true, true, w.MaxTimestamp()); err != nil {
			return Continue, err
		}
	} else {
		ts = ctx.ProcessingTime()
	}
	if _, found, err := t.next.Get(); found || err != nil {
		return Continue, err
	}
	return Continue, t.register(Tumbling{Size: t.every}.Start(ts), w, ctx)
}

// register registers the time after one that fired.
func (t *continuousTrigger[T]) register(fired int64, w Window, ctx *TriggerContext) error {
	at := min(plus(fired, t.every), w.MaxTimestamp())
	if at <= fired {
		return nil // the window has ended
	}
	if _, err := t.next.Add(at); err != nil {
		return err
	}
	return ctx.ops.timer(t.event, true, at)
}

func (t *continuousTrigger[T]) due(at int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	next, found, err := t.next.Get()
	if err != nil || !found || next != at {
		return Continue, err
	}
	if err := t.next.Clear(); err != nil {
		return Continue, err
	}
	if t.event && ctx.Watermark() == MaxWatermark && w == GlobalWindow() {
		at = minus(math.MaxInt64, t.every) // the input has ended: without this the firings would not
	}
	return Fire, t.register(at, w, ctx)
}

func (t *continuousTrigger[T]) OnEventTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	if !t.event {
		return Continue, nil
	}
	if at == w.MaxTimestamp() {
		return Fire, nil
	}
	return t.due(at, w, ctx)
}

func (t *continuousTrigger[T]) OnProcessingTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	if t.event {
		return Continue, nil
	}
	return t.due(at, w, ctx)
}

func (t *continuousTrigger[T]) OnMerge(_ Window, ctx *MergeContext) error {
	if err := ctx.MergeState(t.next); err != nil {
		return err
	}
	next, found, err := t.next.Get()
	if err != nil || !found {
		return err
	}
	return ctx.ops.timer(t.event, true, next)
}

func (t *continuousTrigger[T]) CanMerge() bool { return true }

func (t *continuousTrigger[T]) Clear(w Window, ctx *TriggerContext) error {
	next, found, err := t.next.Get()
	if err != nil {
		return err
	}
	if t.event {
		if err := ctx.DeleteEventTimeTimer(w.MaxTimestamp()); err != nil {
			return err
		}
	}
	if !found {
		return nil
	}
	if err := ctx.ops.timer(t.event, false, next); err != nil {
		return err
	}
	return t.next.Clear()
}

// purgingTrigger removes the contents whenever another trigger fires. Source: Flink PurgingTrigger.
type purgingTrigger[T any] struct{ Trigger[T] }

// NewPurgingTrigger returns t with FireAndPurge instead of Fire.
func NewPurgingTrigger[T any](t Trigger[T]) Trigger[T] { return purgingTrigger[T]{t} }

// Inner is the other trigger.
func (t purgingTrigger[T]) Inner() any { return t.Trigger }

func purged(r TriggerResult, err error) (TriggerResult, error) {
	if r.fires() {
		r = FireAndPurge
	}
	return r, err
}

func (t purgingTrigger[T]) OnElement(v T, ts int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	return purged(t.Trigger.OnElement(v, ts, w, ctx))
}

func (t purgingTrigger[T]) OnEventTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	return purged(t.Trigger.OnEventTime(at, w, ctx))
}

func (t purgingTrigger[T]) OnProcessingTime(at int64, w Window, ctx *TriggerContext) (TriggerResult, error) {
	return purged(t.Trigger.OnProcessingTime(at, w, ctx))
}

// deltaTrigger fires when a record differs by more than a threshold from the one that it fired at last. Source: Flink DeltaTrigger.
type deltaTrigger[T any] struct {
	TriggerBase
	threshold float64
	delta     func(old, updated T) float64
	last      TriggerValueState[T]
}

// NewDeltaTrigger returns the trigger that fires when delta of the last firing's record (at first: the first one) and the new one exceeds
// threshold.
func NewDeltaTrigger[T any](threshold float64, delta func(old, updated T) float64) Trigger[T] {
	return &deltaTrigger[T]{threshold: threshold, delta: delta}
}

func (t *deltaTrigger[T]) Open(rt *TriggerRuntime) (err error) {
	t.last, err = rt.ValueState[T]("last-element")
	return err
}

func (t *deltaTrigger[T]) OnElement(v T, _ int64, _ Window, _ *TriggerContext) (TriggerResult, error) {
	last, found, err := t.last.Value()
	if err != nil {
		return Continue, err
	}
	if !found {
		return Continue, t.last.Update(v)
	}
	if t.delta(last, v) > t.threshold {
		return Fire, t.last.Update(v)
	}
	return Continue, nil
}

func (t *deltaTrigger[T]) Clear(Window, *TriggerContext) error { return t.last.Clear() }
