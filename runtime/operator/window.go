package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/state"
)

// Window is a half-open interval of time in milliseconds.
type Window struct{ Start, End int64 }

// TimeWindow is the half-open interval [Start, End) of time, in UTC.
type TimeWindow struct{ Start, End time.Time }

// Times is the window in times.
func (w Window) Times() TimeWindow {
	return TimeWindow{time.UnixMilli(w.Start).UTC(), time.UnixMilli(w.End).UTC()}
}

// GlobalWindow is the one window of the global assigner.
func GlobalWindow() Window { return Window{math.MinInt64, math.MaxInt64} }

// MaxTimestamp is the last millisecond of the window; the greatest of all for the global window.
func (w Window) MaxTimestamp() int64 {
	if w == GlobalWindow() {
		return math.MaxInt64
	}
	return w.End - 1
}

// touches reports whether two windows overlap or follow each other without a gap. Source: Flink TimeWindow.intersects.
func (w Window) touches(o Window) bool { return w.Start <= o.End && w.End >= o.Start }

// cover is the least window that holds both.
func (w Window) cover(o Window) Window { return Window{min(w.Start, o.Start), max(w.End, o.End)} }

// Tumbling assigns each time to the one window [start, start+Size) with start = Offset modulo Size.
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

// Sliding assigns each time to the windows [start, start+Size) with start = Offset modulo Slide. With Slide equal to Size they tumble;
// with a greater one some times have no window.
type Sliding struct{ Size, Slide, Offset int64 } // milliseconds

func (s Sliding) starts() Tumbling { return Tumbling{s.Slide, s.Offset} }

// slices are the largest intervals that no window's bound divides.
func (s Sliding) slices() Tumbling {
	g, r := s.Size, s.Slide
	for r != 0 {
		g, r = r, g%r
	}
	return Tumbling{g, s.Offset % g}
}

// Holds reports whether all windows of ts are of int64 milliseconds.
func (s Sliding) Holds(ts int64) bool {
	if s.Slide == s.Size {
		return s.starts().Holds(ts)
	}
	reach := max(s.Size, s.Slide)
	return ts >= math.MinInt64+reach && ts <= math.MaxInt64-reach
}

// lastEnd is the end of the last window that holds ts; ok is false when none does.
func (s Sliding) lastEnd(ts int64) (end int64, ok bool) {
	start := s.starts().Start(ts)
	return start + s.Size, ts-start < s.Size
}

// endAfter is the least end of a window that is greater than ts.
func (s Sliding) endAfter(ts int64) int64 {
	return Tumbling{s.Slide, s.Offset%s.Slide + s.Size%s.Slide}.Start(ts) + s.Slide
}

// minus subtracts a duration that is not negative and stops at the end of the range.
func minus(ts, d int64) int64 {
	if ts < math.MinInt64+d {
		return math.MinInt64
	}
	return ts - d
}

const (
	watermarkState = "window-watermark"
	nextIDState    = "window-next-id"
)

// windowClock is an operator's watermark. It is in snapshots, by key group: windows that were emitted before the snapshot are neither
// emitted again after it nor open to records that would have been late, wherever their keys go.
type windowClock struct {
	watermark int64
	first     int     // first key group
	floors    []int64 // restored watermarks by key group
	top       int64   // the highest of them
}

func newWindowClock(ctx *Context, r state.Range) (windowClock, error) {
	c := windowClock{watermark: MinWatermark, top: MinWatermark, first: r.Start}
	for _, b := range ctx.List(watermarkState) {
		if len(b) != 16 {
			return c, ctx.undecodable("watermarks", fmt.Errorf("an item of %d bytes", len(b)))
		}
		from, to := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		ts := int64(binary.LittleEndian.Uint64(b[8:]))
		for g := max(from, r.Start); g < min(to, r.End); g++ {
			if c.floors == nil {
				c.floors = make([]int64, r.End-r.Start)
				for i := range c.floors {
					c.floors[i] = MinWatermark
				}
			}
			c.floors[g-r.Start] = max(c.floors[g-r.Start], ts)
			c.top = max(c.top, ts)
		}
	}
	return c, nil
}

// at is the watermark as it is for a key group.
func (c *windowClock) at(group uint16) int64 {
	if c.top > c.watermark {
		return max(c.watermark, c.floors[int(group)-c.first])
	}
	return c.watermark
}

// list is the clock as operator state: runs of key groups with one watermark.
func (c *windowClock) list(r state.Range) metadata.ListState {
	l := metadata.ListState{Name: watermarkState, Mode: metadata.Union}
	for g := r.Start; g < r.End; {
		from, ts := g, c.at(uint16(g))
		for g++; g < r.End && c.at(uint16(g)) == ts; g++ {
		}
		if ts != MinWatermark && ts != MaxWatermark { // a job that was drained may go on with more input
			b := binary.LittleEndian.AppendUint32(nil, uint32(from))
			b = binary.LittleEndian.AppendUint32(b, uint32(g))
			l.Items = append(l.Items, binary.LittleEndian.AppendUint64(b, uint64(ts)))
		}
	}
	return l
}

// LateTag is where late records go: a side output, or the counter numLateRecordsDropped for the zero value.
type LateTag[T any] struct {
	Tag OutputTag[T]
	Set bool
	by  func(e *emission, v T, m Meta) (sent bool) // instead of Tag, for records of several types
}

func (l *LateTag[T]) send(e *emission, v T, m Meta) (sent bool) {
	if l.by != nil {
		return l.by(e, v, m)
	}
	return l.Set && sendLate(e, l.Tag, v, m)
}

// sendLate sends a late record to a side output; sent is false when there is none, or when nobody reads it.
func sendLate[T any](e *emission, tag OutputTag[T], v T, m Meta) (sent bool) {
	if tag.ID == "" || e.ctx.Side[tag.ID] == nil {
		return false
	}
	e.send(tag, v, m)
	return true
}

// windowBase is what the window operators share.
type windowBase[K comparable, T, R any] struct {
	KeyedBase
	sel      KeySelector[K, T]
	clock    windowClock
	groups   state.Range
	lateness int64
	lateTag  LateTag[T]
	out      Receiver[R]
	late     connector.Counter
	side     emission // for late records
}

func (o *windowBase[K, T, R]) init(ctx *Context, sel KeySelector[K, T], out any, lateness int64, late LateTag[T]) error {
	r, err := receiver[R](out)
	if err != nil {
		return err
	}
	o.Ctx, o.sel, o.out, o.lateness, o.lateTag, o.side = ctx, sel, r, lateness, late, emission{ctx: ctx}
	b, err := ctx.Backend()
	if err != nil {
		return err
	}
	o.groups = b.Range()
	ctx.onKeyEnd(nil, func() { o.clock.watermark = MinWatermark })
	if o.clock, err = newWindowClock(ctx, o.groups); err != nil {
		return err
	}
	o.late = ctx.Metrics.Counter("numLateRecordsDropped")
	return nil
}

func (o *windowBase[K, T, R]) Idle(idle bool) error { return o.out.Idle(idle) }

// Snapshot snapshots the keyed state and the watermark.
func (o *windowBase[K, T, R]) Snapshot(b Barrier) (Snapshot, error) {
	s, err := o.KeyedBase.Snapshot(b)
	if err == nil {
		s.Lists = append(s.Lists, o.clock.list(o.groups))
	}
	return s, err
}

// dropLate takes a record that is too late: to the side output, or to the counter when there is none that is read.
func (o *windowBase[K, T, R]) dropLate(v T, m Meta) error {
	if o.lateTag.send(&o.side, v, m) {
		return o.side.err
	}
	o.late.Add(1)
	return nil
}

func (o *windowBase[K, T, R]) noTime() error {
	return o.Ctx.wrap(o.Ctx.noTime())
}

func (o *windowBase[K, T, R]) noWindow(ts int64, assigner fmt.Stringer) error {
	return o.Ctx.wrap(fmt.Errorf("record's event time %d ms has no %v window: its bounds are beyond 64-bit milliseconds; leave such records out, or correct their times in the source's timestamp function", ts, assigner))
}

func (o *windowBase[K, T, R]) failed(err error) error {
	if _, ok := errors.AsType[*UserError](err); ok { // a wrong key
		return err
	}
	return fmt.Errorf("operator %s: windows: %w", o.Ctx.Describe(), err)
}
