package operator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Tumbling assigns each event time to the one window [start, start+Size) with start = Offset modulo Size.
type Tumbling struct{ Size, Offset int64 } // milliseconds

// Start is the start of ts's window; right for negative times and offsets. Source: FLINK-26334 for the floor. It wraps around for the
// few times that have no window; see Holds.
func (t Tumbling) Start(ts int64) int64 { return ts - t.into(ts) }

// into is how far ts is into its window. The differences are taken modulo Size, so that they cannot overflow.
func (t Tumbling) into(ts int64) int64 {
	r := (ts%t.Size - t.Offset%t.Size) % t.Size
	if r < 0 {
		r += t.Size
	}
	return r
}

// Holds reports whether ts's window is one of int64 milliseconds: times within a window of either end of that range may have none.
func (t Tumbling) Holds(ts int64) bool {
	r := t.into(ts)
	return ts >= math.MinInt64+r && ts-r <= math.MaxInt64-t.Size
}

func (t Tumbling) String() string {
	return fmt.Sprintf("TumblingEventTime(%s)", time.Duration(t.Size)*time.Millisecond)
}

// Window is a half-open interval of event time in milliseconds.
type Window struct{ Start, End int64 }

// WindowFunctions are the user's halves of an aggregating window operator: A is the accumulator.
type WindowFunctions[K comparable, T, A, R any] struct {
	// Add adds a record; first says that the accumulator is new (its zero value).
	Add func(acc *A, v T, first bool)
	// Emit emits the results of a window that is complete.
	Emit func(key K, w Window, acc *A, out *Collector[R]) error
}

// TumblingWindow aggregates per key and tumbling event-time window, in one accumulator per key and window; a window's results are
// emitted when the watermark passes its end, with the time end-1. Records of windows that were emitted are dropped and counted. A record
// without event time, or with one whose window's bounds overflow, is an error (Flink drops the latter as late).
//
// State is kept per window (namespace = window start), so that a window is dropped as a whole and needs no timer per key.
// Source: Flink WindowOperator with EventTimeTrigger and no allowed lateness.
func TumblingWindow[K comparable, T, A, R any](sel KeySelector[K, T], w Tumbling, f WindowFunctions[K, T, A, R]) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		codec, err := serde.For[A]()
		if err != nil {
			return nil, err
		}
		t, err := OpenTable(ctx, "window-contents", sel.Codec, codec)
		if err != nil {
			return nil, err
		}
		o := &windowOp[K, T, A, R]{KeyedBase: KeyedBase{Ctx: ctx}, codec: codec, views: codec.Views(), sel: sel, win: w, f: f, out: r, table: t, watermark: MinWatermark}
		o.collector = newCollector(ctx, r)
		ctx.Metrics.Gauge("numLateRecordsDropped", func() float64 { return float64(o.latePublished.Load()) })
		return o, nil
	})
}

type windowOp[K comparable, T, A, R any] struct {
	KeyedBase
	codec         serde.Codec[A]
	views         bool // accumulators hold strings or slices, which may be views of a record's buffer
	sel           KeySelector[K, T]
	win           Tumbling
	f             WindowFunctions[K, T, A, R]
	out           Receiver[R]
	table         state.Table[K, A]
	watermark     int64
	pending       []int64 // starts of windows with state, ascending
	last          int64   // start that was found last; valid when hasLast
	hasLast       bool
	late          int64
	latePublished atomic.Int64
	collector     Collector[R]
}

func (o *windowOp[K, T, A, R]) Input(int) any        { return Receiver[T](o) }
func (o *windowOp[K, T, A, R]) Idle(idle bool) error { return o.out.Idle(idle) }
func (o *windowOp[K, T, A, R]) Publish()             { o.latePublished.Store(o.late) }

func (o *windowOp[K, T, A, R]) Open(context.Context) error {
	p, err := o.table.Namespaces(nil)
	if err != nil {
		return fmt.Errorf("operator %s: restore windows: %w", o.Ctx.Describe(), err)
	}
	o.pending = p
	return nil
}

func (o *windowOp[K, T, A, R]) Process(v T, m Meta) error {
	if m.TS == NoTimestamp {
		return o.Ctx.wrap(fmt.Errorf("record has no event time; give the source a watermark strategy with a timestamp function"))
	}
	if !o.win.Holds(m.TS) {
		return o.Ctx.wrap(fmt.Errorf("record's event time %d ms has no %v window: its bounds are beyond 64-bit milliseconds; leave such records out, or correct their times in the source's timestamp function", m.TS, o.win))
	}
	start := o.win.Start(m.TS)
	if start+o.win.Size-1 <= o.watermark {
		o.late++
		return nil
	}
	o.Ctx.Enter()
	acc, found, err := o.table.Ref(o.sel.key(o.Ctx, v, m), start)
	if err != nil {
		return fmt.Errorf("operator %s: %w", o.Ctx.Describe(), err)
	}
	if !found && (!o.hasLast || start != o.last) {
		if i, ok := slices.BinarySearch(o.pending, start); !ok {
			o.pending = slices.Insert(o.pending, i, start)
		}
		o.last, o.hasLast = start, true
	}
	o.f.Add(acc, v, !found)
	if o.views {
		*acc = o.codec.Clone(*acc) // else each would keep a whole exchange buffer alive
	}
	return nil
}

func (o *windowOp[K, T, A, R]) Watermark(ts int64) error {
	if ts > o.watermark {
		o.watermark = ts
		for len(o.pending) > 0 && o.pending[0]+o.win.Size-1 <= ts {
			if err := o.fire(o.pending[0]); err != nil {
				return err
			}
			o.pending = slices.Delete(o.pending, 0, 1)
			o.hasLast = false
		}
	}
	return o.out.Watermark(ts)
}

func (o *windowOp[K, T, A, R]) fire(start int64) error {
	w := Window{start, start + o.win.Size}
	o.Ctx.Enter()
	o.collector.m = Meta{TS: w.End - 1}
	var failed error // of user code or further down the chain, already attributed
	err := o.table.Scan(start, func(k state.Key[K], acc *A) error {
		o.collector.m.Hash = k.Hash
		if err := o.f.Emit(k.Key, w, acc, &o.collector); err != nil {
			failed = o.Ctx.wrap(err)
		} else {
			failed = o.collector.err
		}
		return failed
	})
	if failed != nil {
		return failed
	}
	if err == nil {
		err = o.table.DropNamespace(start)
	}
	if err != nil {
		return fmt.Errorf("operator %s: window at %d: %w", o.Ctx.Describe(), start, err)
	}
	return nil
}
