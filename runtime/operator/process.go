package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
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

// RuntimeContext is what Open gets: the subtask's identity and its state handles.
type RuntimeContext[K comparable] struct {
	ctx *Context
	cur *state.Key[K]
	key serde.Codec[K]
}

// Subtask is this subtask's index, Parallelism how many there are.
func (r *RuntimeContext[K]) Subtask() int { return r.ctx.Subtask }

// Parallelism is the operator's parallelism.
func (r *RuntimeContext[K]) Parallelism() int { return r.ctx.Parallelism }

// Logger is a logger with the operator's identity.
func (r *RuntimeContext[K]) Logger() zerolog.Logger { return r.ctx.Logger }

// Metrics registers the function's own metrics.
func (r *RuntimeContext[K]) Metrics() connector.Metrics { return r.ctx.Metrics }

// ValueState is one value per key.
type ValueState[V any] struct{ s valueAccess[V] }

type valueAccess[V any] interface {
	get() (V, bool, error)
	put(V) error
	clear() error
}

// Value returns the current key's value; found is false when there is none.
func (s ValueState[V]) Value() (v V, found bool, err error) { return s.s.get() }

// Update sets the current key's value.
func (s ValueState[V]) Update(v V) error { return s.s.put(v) }

// Clear removes the current key's value.
func (s ValueState[V]) Clear() error { return s.s.clear() }

type keyedValue[K comparable, V any] struct {
	table state.Table[K, V]
	cur   *state.Key[K]
}

func (k *keyedValue[K, V]) get() (V, bool, error) { return k.table.Get(*k.cur, 0) }
func (k *keyedValue[K, V]) put(v V) error         { return k.table.Put(*k.cur, 0, v) }
func (k *keyedValue[K, V]) clear() error          { return k.table.Delete(*k.cur, 0) }

// ValueState opens the value state of this name. Names are unique in a function and stable across versions.
func (r *RuntimeContext[K]) ValueState[V any](name string) (ValueState[V], error) {
	codec, err := serde.For[V]()
	if err != nil {
		return ValueState[V]{}, fmt.Errorf("operator %s: state %q: %w", r.ctx.Describe(), name, err)
	}
	t, err := OpenTable(r.ctx, "user-"+name, r.key, codec)
	if err != nil {
		return ValueState[V]{}, err
	}
	return ValueState[V]{&keyedValue[K, V]{t, r.cur}}, nil
}

// KeyedContext is what ProcessElement and OnTimer get.
type KeyedContext[K comparable] struct {
	cur       state.Key[K]
	ts        int64
	watermark int64
	event     state.Timers[K]
	proc      state.Timers[K]
	svc       Services
	armed     int64 // processing time that a wake-up is set for, 0 for none
	arm       func()
}

// Key is the current key.
func (c *KeyedContext[K]) Key() K { return c.cur.Key }

// Timestamp is the event time of the record or timer; ok is false when the record has none.
func (c *KeyedContext[K]) Timestamp() (t time.Time, ok bool) {
	return time.UnixMilli(c.ts).UTC(), c.ts != NoTimestamp
}

// Watermark is the current event time; ok is false before the first watermark.
func (c *KeyedContext[K]) Watermark() (t time.Time, ok bool) {
	return time.UnixMilli(c.watermark).UTC(), c.watermark != MinWatermark
}

// ProcessingTime is the current processing time.
func (c *KeyedContext[K]) ProcessingTime() time.Time { return time.UnixMilli(c.svc.Now()).UTC() }

// RegisterEventTimeTimer calls OnTimer for the current key when the watermark reaches t. Registering twice is once.
func (c *KeyedContext[K]) RegisterEventTimeTimer(t time.Time) error {
	return c.event.Register(c.cur, 0, t.UnixMilli())
}

// DeleteEventTimeTimer removes a timer of the current key.
func (c *KeyedContext[K]) DeleteEventTimeTimer(t time.Time) error {
	return c.event.Delete(c.cur, 0, t.UnixMilli())
}

// RegisterProcessingTimeTimer calls OnTimer for the current key when the processing time reaches t.
func (c *KeyedContext[K]) RegisterProcessingTimeTimer(t time.Time) error {
	if err := c.proc.Register(c.cur, 0, t.UnixMilli()); err != nil {
		return err
	}
	c.arm()
	return nil
}

// DeleteProcessingTimeTimer removes a timer of the current key.
func (c *KeyedContext[K]) DeleteProcessingTimeTimer(t time.Time) error {
	return c.proc.Delete(c.cur, 0, t.UnixMilli())
}

// KeyedProcess runs a user's function over a keyed stream; newFn makes one instance per subtask.
func KeyedProcess[K comparable, T, R any](sel KeySelector[K, T], newFn func() KeyedProcessFunction[K, T, R]) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &processOp[K, T, R]{KeyedBase: KeyedBase{Ctx: ctx}, sel: sel, fn: newFn(), out: r}
		o.c = Collector[R]{ctx: ctx, out: r}
		o.kc.svc, o.kc.watermark, o.kc.arm = ctx.Services, MinWatermark, o.arm
		return o, nil
	})
}

type processOp[K comparable, T, R any] struct {
	KeyedBase
	sel KeySelector[K, T]
	fn  KeyedProcessFunction[K, T, R]
	out Receiver[R]
	c   Collector[R]
	kc  KeyedContext[K]
}

func (o *processOp[K, T, R]) Input(int) any        { return Receiver[T](o) }
func (o *processOp[K, T, R]) Idle(idle bool) error { return o.out.Idle(idle) }

func (o *processOp[K, T, R]) Open(context.Context) (err error) {
	if o.kc.event, err = OpenTimers(o.Ctx, "event-timers", o.sel.Codec); err != nil {
		return err
	}
	if o.kc.proc, err = OpenTimers(o.Ctx, "processing-timers", o.sel.Codec); err != nil {
		return err
	}
	o.Ctx.Enter()
	if err := o.fn.Open(&RuntimeContext[K]{ctx: o.Ctx, cur: &o.kc.cur, key: o.sel.Codec}); err != nil {
		return o.Ctx.wrap(err)
	}
	o.arm()
	return nil
}

func (o *processOp[K, T, R]) Process(v T, m Meta) error {
	o.Ctx.Enter()
	o.kc.cur, o.kc.ts, o.c.m = o.sel.key(o.Ctx, v, m), m.TS, m
	if err := o.fn.ProcessElement(&o.kc, v, &o.c); err != nil {
		return o.Ctx.wrap(err)
	}
	return o.c.err
}

func (o *processOp[K, T, R]) Watermark(ts int64) error {
	o.kc.watermark = ts
	if err := o.fire(o.kc.event, ts, true); err != nil {
		return err
	}
	return o.out.Watermark(ts)
}

func (o *processOp[K, T, R]) fire(timers state.Timers[K], until int64, event bool) error {
	if at, ok := timers.Next(); !ok || at > until {
		return nil
	}
	o.Ctx.Enter()
	return timers.PopUntil(until, func(k state.Key[K], _ state.Namespace, at int64) error {
		o.kc.cur, o.kc.ts = k, at
		o.c.m = Meta{TS: at, Hash: k.Hash}
		if !event {
			o.kc.ts, o.c.m.TS = NoTimestamp, NoTimestamp
		}
		if err := o.fn.OnTimer(&o.kc, Timer{At: time.UnixMilli(at).UTC(), EventTime: event}, &o.c); err != nil {
			return o.Ctx.wrap(err)
		}
		return o.c.err
	})
}

// arm asks for a wake-up at the earliest processing-time timer.
func (o *processOp[K, T, R]) arm() {
	at, ok := o.kc.proc.Next()
	if !ok || o.kc.armed != 0 && o.kc.armed <= at {
		return
	}
	o.kc.armed = at
	o.Ctx.At(at, func() error {
		if o.kc.armed == at {
			o.kc.armed = 0
		}
		if err := o.fire(o.kc.proc, o.Ctx.Now(), false); err != nil {
			return err
		}
		o.arm()
		return nil
	})
}

func (o *processOp[K, T, R]) Close() error {
	o.Ctx.Enter()
	err := o.Ctx.wrap(o.fn.Close())
	if cerr := o.KeyedBase.Close(); err == nil {
		err = cerr
	}
	return err
}
