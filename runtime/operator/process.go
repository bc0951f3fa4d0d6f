package operator

import (
	"context"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// KeyedProcessFunction is a user's function over a keyed stream. One instance serves one subtask.
// Source: Flink KeyedProcessFunction.
type KeyedProcessFunction[K comparable, T, R any] interface {
	// Open runs once, before any record; state handles are made here.
	Open(rt *RuntimeContext[K]) error
	ProcessElement(ctx *KeyedContext[K], v T, out *Collector[R]) error
	// OnTimer runs when a timer that the function registered is due.
	OnTimer(ctx *KeyedContext[K], timer Timer, out *Collector[R]) error
	Close() error
}

// Timer is a timer that fired.
type Timer struct {
	At        time.Time
	EventTime bool // else processing time
}

// RuntimeContext is what a keyed function gets in Open: the subtask's identity and its state handles. Its own methods open keyed state;
// those of the TaskContext inside open operator state.
type RuntimeContext[K comparable] struct {
	TaskContext
	cur *state.Key[K]
	key serde.Codec[K]
	win *windowState[K] // of per-window state; nil for the key's own
}

// KeyedContext is what ProcessElement and OnTimer get.
type KeyedContext[K comparable] struct {
	ProcessContext
	cur   state.Key[K]
	event state.Timers[K]
	proc  state.Timers[K]
	armed int64 // processing time that a wake-up is set for, 0 for none
	arm   func()
	over  bool // the last processing-time timers of the key fire, in BATCH
	watch timerWatch
}

// Timestamp is the event time of the record, or the time of the timer; for records that have none, the zero time.Time and false.
func (c *KeyedContext[K]) Timestamp() (t time.Time, ok bool) {
	if c.watch.firing != noTimer {
		return time.UnixMilli(c.watch.at).UTC(), true
	}
	return c.ProcessContext.Timestamp()
}

// Key is the current key.
func (c *KeyedContext[K]) Key() K { return c.cur.Key }

// timerTime is t in milliseconds; a timer beyond their range is at its end.
func timerTime(t time.Time) int64 {
	ms, _ := Millis(t)
	return ms
}

// RegisterEventTimeTimer calls OnTimer for the current key when the watermark reaches t. Registering twice is once.
//
// A time that the watermark has reached already is no error: the timer fires at the next watermark, as in Flink. It is counted
// (numLateTimersRegistered), and the first one of a subtask is logged with the place of the call. In OnTimer of an event-time timer, what
// counts is that timer's time: one that is behind it fires in its turn. The zero time.Time, which stands for a record without event time and
// for no watermark, and a time beyond 64-bit milliseconds are an error.
func (c *KeyedContext[K]) RegisterEventTimeTimer(t time.Time) error {
	at, err := c.watch.millis("RegisterEventTimeTimer", t)
	if err != nil {
		return err
	}
	c.watch.event("RegisterEventTimeTimer", at, c.watermark)
	return c.event.Register(c.cur, 0, at)
}

// DeleteEventTimeTimer removes a timer of the current key.
func (c *KeyedContext[K]) DeleteEventTimeTimer(t time.Time) error {
	return c.event.Delete(c.cur, 0, timerTime(t))
}

// RegisterProcessingTimeTimer calls OnTimer for the current key when the processing time reaches t; a time in the past fires right after the
// record in work, as in Flink. One more than a second in the past (in OnTimer of a processing-time timer: before that timer, too) is counted
// and logged, and a time that cannot be is an error, as by RegisterEventTimeTimer. In BATCH timers fire when the key's records are over, and
// what OnTimer registers then is dropped.
func (c *KeyedContext[K]) RegisterProcessingTimeTimer(t time.Time) error {
	at, err := c.watch.millis("RegisterProcessingTimeTimer", t)
	if err != nil || c.over {
		return err
	}
	c.watch.processing("RegisterProcessingTimeTimer", at)
	if err := c.proc.Register(c.cur, 0, at); err != nil {
		return err
	}
	c.arm()
	return nil
}

// DeleteProcessingTimeTimer removes a timer of the current key.
func (c *KeyedContext[K]) DeleteProcessingTimeTimer(t time.Time) error {
	return c.proc.Delete(c.cur, 0, timerTime(t))
}

// keyedFunction is what operators that run a user's keyed function share: its context, its timers and its life.
type keyedFunction[K comparable] struct {
	KeyedBase
	hooks   hooks
	codec   serde.Codec[K]
	kc      KeyedContext[K]
	onTimer func(Timer) error
	next    func(ts int64) error // passes a watermark on
}

func (f *keyedFunction[K]) init(ctx *Context, codec serde.Codec[K], e *emission, onTimer func(Timer) error, next func(int64) error) {
	f.Ctx, f.codec, f.onTimer, f.next = ctx, codec, onTimer, next
	f.kc.e, f.kc.watermark, f.kc.arm = e, MinWatermark, f.arm
	f.kc.cur.Group = noKey
	ctx.onKeyEnd(f.fireAll, func() { f.kc.cur.Group, f.kc.watermark = noKey, MinWatermark })
}

// fireAll fires the processing-time timers of a key whose records are over. There is no later time for those that are registered
// meanwhile: a function that goes on registering would never end.
func (f *keyedFunction[K]) fireAll() error {
	f.kc.over = true
	err := f.fire(f.kc.proc, MaxWatermark, false)
	f.kc.over = false
	return err
}

// open restores the timers and opens the user's function.
func (f *keyedFunction[K]) open(fn func(*RuntimeContext[K]) error) (err error) {
	if f.kc.event, err = OpenTimers(f.Ctx, EventTimers, f.codec); err != nil {
		return err
	}
	if f.kc.proc, err = OpenTimers(f.Ctx, ProcessingTimers, f.codec); err != nil {
		return err
	}
	f.kc.watch.init(f.Ctx)
	f.Ctx.Enter()
	if err := fn(&RuntimeContext[K]{TaskContext: TaskContext{f.Ctx}, cur: &f.kc.cur, key: f.codec}); err != nil {
		return f.Ctx.wrap(err)
	}
	f.arm()
	return nil
}

// enter makes a record's key and meta data current.
func (f *keyedFunction[K]) enter(k state.Key[K], m Meta) {
	f.Ctx.Enter()
	f.kc.cur = k
	f.kc.e.begin(m)
}

// Snapshot lets the function add to its operator state first.
func (f *keyedFunction[K]) Snapshot(b Barrier) (Snapshot, error) {
	f.kc.cur.Group = noKey
	if err := f.hooks.prepare(b); err != nil {
		return Snapshot{}, err
	}
	return f.KeyedBase.Snapshot(b)
}

// CheckpointComplete tells the backend and the function.
func (f *keyedFunction[K]) CheckpointComplete(id int64) error {
	if err := f.KeyedBase.CheckpointComplete(id); err != nil {
		return err
	}
	return f.hooks.complete(id)
}

// CheckpointAborted tells the backend and the function.
func (f *keyedFunction[K]) CheckpointAborted(id int64) {
	f.KeyedBase.CheckpointAborted(id)
	f.hooks.aborted(id)
}

func (f *keyedFunction[K]) Watermark(ts int64) error {
	f.kc.watermark = ts
	if err := f.fire(f.kc.event, ts, true); err != nil {
		return err
	}
	return f.next(ts)
}

func (f *keyedFunction[K]) fire(timers state.Timers[K], until int64, event bool) error {
	return runTimers(f.Ctx, &f.kc.watch, timers, until, event, func(k state.Key[K], _ state.Namespace, at int64) error {
		m := Meta{TS: at, Hash: k.Hash}
		if !event {
			m.TS = NoTimestamp
		}
		f.enter(k, m)
		f.kc.watch.fire(event, at)
		err := f.kc.e.done(f.onTimer(Timer{At: time.UnixMilli(at).UTC(), EventTime: event}))
		f.kc.watch.done()
		return err
	})
}

// arm asks for a wake-up at the earliest processing-time timer.
func (f *keyedFunction[K]) arm() {
	if f.Ctx.Batch {
		return // they fire at the key's end
	}
	at, ok := f.kc.proc.Next()
	if !ok || f.kc.armed != 0 && f.kc.armed <= at {
		return
	}
	f.kc.armed = at
	f.Ctx.At(at, func() error {
		if f.kc.armed == at {
			f.kc.armed = 0
		}
		if err := f.fire(f.kc.proc, f.Ctx.Now(), false); err != nil {
			return err
		}
		f.arm()
		return nil
	})
}

// close closes the user's function and the state.
func (f *keyedFunction[K]) close(fn func() error) error {
	f.Ctx.Enter()
	err := f.kc.e.closed(fn())
	if cerr := f.KeyedBase.Close(); err == nil {
		err = cerr
	}
	return err
}

// KeyedProcess runs a user's function over a keyed stream; newFn makes one instance per subtask.
func KeyedProcess[K comparable, T, R any](sel KeySelector[K, T], newFn func() KeyedProcessFunction[K, T, R]) Factory {
	return laid(layoutKeyedProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &processOp[K, T, R]{sel: sel, fn: newFn(), out: r, c: newCollector(ctx, r)}
		o.init(ctx, sel.Codec, &o.c.emission, func(t Timer) error { return o.fn.OnTimer(&o.kc, t, &o.c) }, r.Watermark)
		o.hooks = newHooks(ctx, o.fn)
		return o, nil
	})
}

type processOp[K comparable, T, R any] struct {
	keyedFunction[K]
	sel KeySelector[K, T]
	fn  KeyedProcessFunction[K, T, R]
	out Receiver[R]
	c   Collector[R]
}

func (o *processOp[K, T, R]) Input(int) any              { return Receiver[T](o) }
func (o *processOp[K, T, R]) Idle(idle bool) error       { return o.out.Idle(idle) }
func (o *processOp[K, T, R]) Open(context.Context) error { return o.open(o.fn.Open) }
func (o *processOp[K, T, R]) Close() error               { return o.close(o.fn.Close) }

func (o *processOp[K, T, R]) Process(v T, m Meta) error {
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	o.enter(k, m)
	return o.c.done(o.fn.ProcessElement(&o.kc, v, &o.c))
}

// ProcessFunction is a user's function over a stream without keys. One instance serves one subtask.
// Source: Flink ProcessFunction.
type ProcessFunction[T, R any] interface {
	// Open runs once, before any record.
	Open(rt *TaskContext) error
	ProcessElement(ctx *ProcessContext, v T, out *Collector[R]) error
	Close() error
}

// openCloser is the life of a function without keys.
type openCloser interface {
	Open(rt *TaskContext) error
	Close() error
}

// plainFunction is what operators that run a user's function without keys share: its life and its part in checkpoints.
type plainFunction struct {
	Base
	ctx   *Context
	hooks hooks
	life  openCloser
	e     *emission
}

func (f *plainFunction) init(ctx *Context, fn openCloser, e *emission) {
	f.ctx, f.hooks, f.life, f.e = ctx, newHooks(ctx, fn), fn, e
}

// enter makes a record's meta data current.
func (f *plainFunction) enter(m Meta) {
	f.ctx.Enter()
	f.e.begin(m)
}

func (f *plainFunction) Open(context.Context) error {
	f.ctx.Enter()
	return f.ctx.wrap(f.life.Open(&TaskContext{f.ctx}))
}

func (f *plainFunction) Snapshot(b Barrier) (Snapshot, error) { return f.hooks.snapshotOf(b) }
func (f *plainFunction) CheckpointComplete(id int64) error    { return f.hooks.complete(id) }
func (f *plainFunction) CheckpointAborted(id int64)           { f.hooks.aborted(id) }

func (f *plainFunction) Close() error {
	f.ctx.Enter()
	return f.e.closed(f.life.Close())
}

// Process runs a user's function; newFn makes one instance per subtask.
func Process[T, R any](newFn func() ProcessFunction[T, R]) Factory {
	return laid(layoutProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &plainProcessOp[T, R]{fn: newFn(), out: r, c: newCollector(ctx, r)}
		o.pc = ProcessContext{&o.c.emission, MinWatermark}
		o.init(ctx, o.fn, &o.c.emission)
		return o, nil
	})
}

type plainProcessOp[T, R any] struct {
	plainFunction
	fn  ProcessFunction[T, R]
	out Receiver[R]
	c   Collector[R]
	pc  ProcessContext
}

func (o *plainProcessOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *plainProcessOp[T, R]) Idle(idle bool) error { return o.out.Idle(idle) }

func (o *plainProcessOp[T, R]) Process(v T, m Meta) error {
	o.enter(m)
	return o.c.done(o.fn.ProcessElement(&o.pc, v, &o.c))
}

func (o *plainProcessOp[T, R]) Watermark(ts int64) error {
	o.pc.watermark = ts
	return o.out.Watermark(ts)
}
