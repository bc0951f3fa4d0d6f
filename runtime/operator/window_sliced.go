package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/state"
)

// slicedOp is the operator of tumbling and sliding event-time windows that fire when the watermark passes their end, and again for each
// record that is late within the allowed lateness.
//
// A record goes into one slice, whatever the number of windows that hold it: slices are the intervals that no window's bound divides. A
// window's contents are merged from its slices when it is emitted. State is kept per slice (namespace = slice start), so that a slice
// is dropped as a whole and no timer is needed per key. Source: Flink WindowOperator with EventTimeTrigger; for the slices, Flink SQL's
// SliceSharedWindowAggProcessor.
type slicedOp[K comparable, T, C, R any] struct {
	windowBase[K, T, R]
	win     Sliding
	slice   Tumbling
	c       contents[T, C]
	user    windowUser[K, C, R]
	env     windowEnv[K, R]
	table   state.Table[K, C]
	horizon int64 // watermark less lateness: windows whose last millisecond is not after it are gone
	cur     struct {
		start, end int64 // of the slice of the last record
		last       int64 // last millisecond of the last window that holds it
		first      int64 // last millisecond of the first window that holds it
		none       bool  // no window holds it
		pending    bool  // known to be in pending
	}
	pending []int64 // starts of slices with state, ascending
	g       gather[K, C]
}

func newSliced[K comparable, T, C, R any](ctx *Context, out any, sel KeySelector[K, T], win Sliding, c contents[T, C], user windowUser[K, C, R], lateness int64, late LateTag[T]) (Operator, error) {
	o := &slicedOp[K, T, C, R]{win: win, slice: win.slices(), c: c, user: user, horizon: MinWatermark}
	if err := o.init(ctx, sel, out, lateness, late); err != nil {
		return nil, err
	}
	if err := o.c.init(user.shares()); err != nil {
		return nil, err
	}
	t, err := OpenTable(ctx, "window-contents", sel.Codec, o.c.codec)
	if err != nil {
		return nil, err
	}
	o.table = t
	o.c.keeper, _ = t.(state.Keeper[C])
	if err := o.dropTimers(); err != nil {
		return nil, err
	}
	ctx.vacant = func() bool { return len(o.pending) == 0 }
	ctx.onKeyEnd(nil, func() { o.horizon, o.pending, o.cur.pending = MinWatermark, o.pending[:0], false })
	o.env = windowEnv[K, R]{ctx: ctx, codec: sel.Codec, c: newCollector(ctx, o.out), clock: &o.clock, ns: func(w Window) state.Namespace { return w.Start }}
	return o, nil
}

func (o *slicedOp[K, T, C, R]) String() string {
	if o.win.Slide == o.win.Size {
		return Tumbling{o.win.Size, o.win.Offset}.String()
	}
	return fmt.Sprintf("SlidingEventTime(%s, %s)", time.Duration(o.win.Size)*time.Millisecond, time.Duration(o.win.Slide)*time.Millisecond)
}

func (o *slicedOp[K, T, C, R]) Input(int) any { return Receiver[T](o) }

func (o *slicedOp[K, T, C, R]) Open(context.Context) error {
	p, err := o.table.Namespaces(nil)
	if err != nil {
		return fmt.Errorf("operator %s: restore windows: %w", o.Ctx.Describe(), err)
	}
	o.pending = p
	return o.user.open(&o.env)
}

func (o *slicedOp[K, T, C, R]) Close() error {
	err := o.user.close()
	if cerr := o.KeyedBase.Close(); err == nil {
		err = cerr
	}
	return err
}

// find makes the slice of ts current.
func (o *slicedOp[K, T, C, R]) find(ts int64) error {
	if ts == NoTimestamp {
		return o.noTime()
	}
	if !o.win.Holds(ts) {
		return o.noWindow(ts, o)
	}
	c := &o.cur
	c.start = o.slice.Start(ts)
	c.end = c.start + o.slice.Size
	c.pending = false
	last, ok := o.win.lastEnd(ts)
	c.last, c.none = last-1, !ok
	c.first = o.win.endAfter(ts) - 1
	return nil
}

func (o *slicedOp[K, T, C, R]) Process(v T, m Meta) error {
	c := &o.cur
	if m.TS < c.start || m.TS >= c.end {
		if err := o.find(m.TS); err != nil {
			return err
		}
	}
	if c.last <= o.horizon || o.clock.top > o.clock.watermark || c.none {
		if skip, err := o.skip(v, m); skip || err != nil {
			return err
		}
	}
	o.Ctx.Enter()
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	acc, found, err := o.table.Ref(k, c.start)
	if err != nil {
		return o.failed(err)
	}
	if !found && !c.pending {
		if i, ok := slices.BinarySearch(o.pending, c.start); !ok {
			o.pending = slices.Insert(o.pending, i, c.start)
		}
		c.pending = true
	}
	o.c.put(acc, v, m.TS, !found)
	if o.lateness > 0 && c.first <= o.clock.at(k.Group) {
		return o.update(k, m.TS)
	}
	return nil
}

// skip decides about a record that may be late or in no window.
func (o *slicedOp[K, T, C, R]) skip(v T, m Meta) (bool, error) {
	at := minus(o.clock.at(state.GroupOf(m.Hash, o.Ctx.MaxParallelism)), o.lateness)
	if o.cur.none {
		if m.TS > at {
			return true, nil
		}
	} else if o.cur.last > at {
		return false, nil
	}
	return true, o.dropLate(v, m)
}

// update emits again the windows of a record that came after their end.
func (o *slicedOp[K, T, C, R]) update(k state.Key[K], ts int64) error {
	at := o.clock.at(k.Group)
	gone := minus(at, o.lateness)
	for end := o.cur.last + 1; end > ts && end-1 > gone; end -= o.win.Slide {
		if end-1 > at {
			continue
		}
		w := Window{end - o.win.Size, end}
		var acc C
		have := false
		for _, s := range o.slicesOf(w) {
			c, found, err := o.table.Get(k, s)
			if err != nil {
				return o.failed(err)
			}
			if found {
				o.join(&acc, &c, have)
				have = true
			}
		}
		if have {
			if _, err := o.user.fire(k, w, &acc); err != nil {
				return err
			}
			o.Ctx.Enter() // the next window's slices are merged
		}
	}
	return nil
}

// join adds a slice's contents, which stay as they are, to those of a window.
func (o *slicedOp[K, T, C, R]) join(acc, c *C, have bool) {
	switch {
	case have:
		*acc = o.c.merge(*acc, *o.c.given(c, true))
	case o.c.mutable && o.slice.Size != o.win.Size, o.c.shares && o.lateness > 0:
		*acc = o.c.codec.Clone(*c)
	default:
		*acc = *c
	}
}

// slicesOf are the pending slices of a window.
func (o *slicedOp[K, T, C, R]) slicesOf(w Window) []int64 {
	i, _ := slices.BinarySearch(o.pending, w.Start)
	j, _ := slices.BinarySearch(o.pending, w.End)
	return o.pending[i:j]
}

func (o *slicedOp[K, T, C, R]) Watermark(ts int64) error {
	if ts > o.clock.watermark {
		before, gone := o.clock.watermark, o.horizon
		o.clock.watermark, o.horizon = ts, minus(ts, o.lateness)
		if len(o.pending) > 0 {
			if err := o.advance(before, gone); err != nil {
				return err
			}
		}
	}
	return o.out.Watermark(ts)
}

func (o *slicedOp[K, T, C, R]) advance(before, gone int64) error {
	together := o.lateness == 0
	err := o.windows(before, o.clock.watermark, func(w Window) error {
		if !o.user.stateful() && o.slice.Size == o.win.Size {
			return o.fireDirect(w)
		}
		return o.collect(w, 0, func(k state.Key[K], c *C) error {
			_, err := o.user.fire(k, w, c)
			if err == nil && together && o.user.stateful() {
				err = o.user.clear(k, w)
			}
			return err
		})
	})
	if err == nil && o.user.stateful() {
		err = o.windows(gone, o.horizon, func(w Window) error {
			if !together {
				if err := o.collect(w, o.lateness, func(k state.Key[K], _ *C) error { return o.user.clear(k, w) }); err != nil {
					return err
				}
			}
			if err := o.user.forget(w.Start); err != nil {
				return o.failed(err)
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	n := 0
	for ; n < len(o.pending); n++ {
		if last, _ := o.win.lastEnd(o.pending[n]); last-1 > o.horizon {
			break
		}
		if err := o.table.DropNamespace(o.pending[n]); err != nil {
			return o.failed(err)
		}
	}
	if n > 0 {
		o.pending = slices.Delete(o.pending, 0, n)
		o.cur.pending = false
	}
	return nil
}

// windows calls fn for the windows with contents whose last millisecond is after from and not after to, in order of time.
func (o *slicedOp[K, T, C, R]) windows(from, to int64, fn func(Window) error) error {
	if to <= from {
		return nil
	}
	end := from + 1
	for i := 0; i < len(o.pending); {
		p := o.pending[i]
		if end >= p+o.win.Size { // all windows of this slice are done
			i++
			continue
		}
		next := o.win.endAfter(max(p, end))
		if next <= p || next-o.win.Size > p { // no more windows, or beyond the range
			i++
			continue
		}
		if next-1 > to {
			return nil
		}
		end = next
		if err := fn(Window{end - o.win.Size, end}); err != nil {
			return err
		}
	}
	return nil
}

// fireDirect emits a window of one slice out of the table.
func (o *slicedOp[K, T, C, R]) fireDirect(w Window) error {
	var failed error // of user code or further down the chain, already attributed
	err := o.table.Scan(w.Start, func(k state.Key[K], c *C) error {
		if o.clock.top > o.clock.watermark || o.clock.floors != nil {
			if o.done(k, w, 0) {
				return nil
			}
		}
		_, failed = o.user.fire(k, w, o.c.given(c, o.lateness > 0))
		return failed
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return o.failed(err)
	}
	return nil
}

// done reports whether the watermark had passed a window's end plus late when the key's state was restored.
func (o *slicedOp[K, T, C, R]) done(k state.Key[K], w Window, late int64) bool {
	return o.clock.floors != nil && plus(w.End-1, late) <= o.clock.floors[int(k.Group)-o.clock.first]
}

// gatherLimit is about how many keys are gathered at a time; tests lower it.
var gatherLimit = 1 << 20

// collect calls fn for each key of a window with its contents, outside of the table: fn may use state. Windows of very many keys are
// gathered in several passes, which bounds the memory that they need.
func (o *slicedOp[K, T, C, R]) collect(w Window, late int64, fn func(state.Key[K], *C) error) error {
	passes := uint64(1 + o.table.Len()/gatherLimit)
	for pass := range passes {
		o.Ctx.Enter()
		o.g.reset()
		for _, s := range o.slicesOf(w) {
			err := o.table.Scan(s, func(k state.Key[K], c *C) error {
				if passes > 1 && uint64(k.Hash*0x85ebca6b)*passes>>32 != pass || o.done(k, w, late) {
					return nil
				}
				acc, have := o.g.at(k)
				o.join(acc, c, have)
				return nil
			})
			if err != nil {
				return o.failed(err)
			}
		}
		for i := range o.g.entries {
			e := &o.g.entries[i]
			if err := fn(e.k, &e.c); err != nil {
				return err
			}
		}
	}
	return nil
}
