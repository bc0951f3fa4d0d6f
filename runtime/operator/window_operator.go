package operator

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// windowOp is the operator of all windows that the special ones do not serve: with triggers, evictors, processing time and the global
// window. It does what Flink's WindowOperator and EvictingWindowOperator do, step by step.
//
// Contents are in one entry per key and window (namespace = window start). Windows that merge are in one entry per key; each has an
// id, which is the namespace of its timers and its trigger's state, and which is never used again.
type windowOp[K comparable, T, C, R any] struct {
	windowBase[K, T, R]
	win     WindowAssigner[T]
	trigger Trigger[T]
	c       contents[T, C]
	user    windowUser[K, C, R]
	env     windowEnv[K, R]
	table   state.Table[K, C]          // of windows that do not merge
	merging state.Table[K, windows[C]] // of windows that do
	event   state.Timers[K]
	proc    state.Timers[K]
	armed   int64 // processing time that a wake-up is set for
	wakes   bool
	over    bool // the last processing-time timers of the key fire, in BATCH
	nextID  int64
	overlap bool           // records are in several windows
	values  serde.Codec[T] // set when each of these needs a record of its own
	quiet   bool           // the trigger is interested in the first record of a window alone
	tc      TriggerContext
	watch   timerWatch // of the trigger's timers
	drops   []func(state.Namespace) error
	live    []int64 // starts of windows with contents, ascending; not for the global window

	// The key, the window and its namespace in work.
	cur  state.Key[K]
	w    Window
	ns   state.Namespace
	buf  C
	win1 [1]Window
	wins []Window
}

// windows are the windows of a key that merge. The fields are exported for the codec alone.
type windows[C any] struct{ List []merged[C] }

type merged[C any] struct {
	Start, End, ID int64
	Some           bool // has contents
	C              C
}

func newWindow[K comparable, T, C, R any](ctx *Context, out any, spec *WindowSpec[K, T], c contents[T, C], user windowUser[K, C, R], open tableOpener[K, C]) (Operator, error) {
	o := &windowOp[K, T, C, R]{win: spec.Assigner, c: c, user: user}
	if spec.Trigger != nil {
		o.trigger = spec.Trigger()
	} else {
		o.trigger = spec.Assigner.defaultTrigger()
		o.quiet = !spec.Assigner.EventTime // its timer is registered
	}
	if err := o.init(ctx, spec.Key, out, spec.Lateness, spec.Late); err != nil {
		return nil, err
	}
	if err := o.c.init(user.shares()); err != nil {
		return nil, err
	}
	o.overlap = o.win.Kind == SlidingWindows && o.win.Sliding.Size > o.win.Sliding.Slide
	if o.overlap {
		o.values = mutableCodec[T]()
	}
	o.env = windowEnv[K, R]{ctx: ctx, codec: o.sel.Codec, c: newCollector(ctx, o.out), clock: &o.clock, merging: o.merges(), ns: o.nsOf}
	var err error
	if o.merges() {
		if o.merging, err = openBoxed[K, windows[C]](ctx, "window-merging", o.sel.Codec); err != nil {
			return nil, err
		}
	} else {
		if o.table, err = open(ctx, "window-contents", o.sel.Codec); err != nil {
			return nil, err
		}
		o.c.keeper, _ = o.table.(state.Keeper[C])
		o.drops = append(o.drops, o.table.DropNamespace)
	}
	if o.event, err = OpenTimers(ctx, windowEventTimers, o.sel.Codec); err != nil {
		return nil, err
	}
	if o.proc, err = OpenTimers(ctx, windowProcessingTimers, o.sel.Codec); err != nil {
		return nil, err
	}
	for _, b := range ctx.List(nextIDState) {
		if len(b) != 8 {
			return nil, ctx.undecodable("the number of the next window", fmt.Errorf("an item of %d bytes", len(b)))
		}
		o.nextID = max(o.nextID, int64(binary.LittleEndian.Uint64(b)))
	}
	if spec.Trigger != nil {
		o.watch.init(ctx)
	}
	o.tc = TriggerContext{o, &o.watch}
	ctx.vacant = o.vacant
	ctx.onKeyEnd(o.fireAll, func() { o.live = o.live[:0] })
	return o, nil
}

func (o *windowOp[K, T, C, R]) merges() bool { return o.win.Kind == SessionWindows }

func (o *windowOp[K, T, C, R]) nsOf(w Window) state.Namespace {
	if o.win.Kind == GlobalWindows {
		return 0
	}
	return w.Start
}

func (o *windowOp[K, T, C, R]) Input(int) any { return Receiver[T](o) }

func (o *windowOp[K, T, C, R]) Open(context.Context) error {
	o.Ctx.Enter()
	if err := o.trigger.Open(&TriggerRuntime{o}); err != nil {
		return o.Ctx.wrap(err)
	}
	if err := o.user.open(&o.env); err != nil {
		return err
	}
	if o.win.Kind == SlidingWindows {
		var err error
		if o.live, err = o.table.Namespaces(nil); err != nil {
			return o.failed(err)
		}
		if err = o.adopt(); err != nil {
			return err
		}
	}
	o.arm()
	return nil
}

func (o *windowOp[K, T, C, R]) Close() error {
	err := o.user.close()
	if cerr := o.KeyedBase.Close(); err == nil {
		err = cerr
	}
	return err
}

// Snapshot snapshots the keyed state, the watermark and the next id.
func (o *windowOp[K, T, C, R]) Snapshot(b Barrier) (Snapshot, error) {
	s, err := o.windowBase.Snapshot(b)
	if err == nil && o.merges() {
		s.Lists = append(s.Lists, metadata.ListState{Name: nextIDState, Mode: metadata.Union,
			Items: [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(o.nextID))}})
	}
	return s, err
}

// triggerOps.

func (o *windowOp[K, T, C, R]) now() int64     { return o.Ctx.Now() }
func (o *windowOp[K, T, C, R]) current() int64 { return o.clock.at(o.cur.Group) }

func (o *windowOp[K, T, C, R]) timer(event, register bool, at int64) error {
	t := o.proc
	if event {
		t = o.event
	}
	if !register {
		return t.Delete(o.cur, o.ns, at)
	}
	if o.over && !event {
		return nil
	}
	if err := t.Register(o.cur, o.ns, at); err != nil {
		return err
	}
	if !event {
		o.arm()
	}
	return nil
}

func (o *windowOp[K, T, C, R]) open(name, what string, value *serde.Boxed) (boxes, error) {
	if err := o.Ctx.claim(name, what, ofTrigger, nil); err != nil {
		return nil, err
	}
	t, err := openBoxes(o.Ctx, "window-trigger-"+name, o.sel.Codec, value)
	if err != nil {
		return nil, err
	}
	if !o.merges() {
		o.drops = append(o.drops, t.DropNamespace)
	}
	return &keyBoxes[K]{t, &o.cur}, nil
}

func (o *windowOp[K, T, C, R]) window() *state.Namespace { return &o.ns }

// cleanup is when a window is gone, in the assigner's time. Source: Flink WindowOperator.cleanupTime.
func (o *windowOp[K, T, C, R]) cleanup(w Window) int64 {
	if o.win.EventTime {
		return plus(w.MaxTimestamp(), o.lateness)
	}
	return w.MaxTimestamp()
}

func (o *windowOp[K, T, C, R]) isLate(w Window) bool {
	return o.win.EventTime && o.cleanup(w) <= o.current()
}

// mind registers or deletes the timer that removes a window.
func (o *windowOp[K, T, C, R]) mind(w Window, register bool) error {
	at := o.cleanup(w)
	if at == math.MaxInt64 {
		return nil // never
	}
	if err := o.timer(o.win.EventTime, register, at); err != nil {
		return o.failed(err)
	}
	return nil
}

// assign returns the windows of a record, the latest first. The slice is valid until the next call.
func (o *windowOp[K, T, C, R]) assign(v T, ts int64) ([]Window, error) {
	if o.win.Kind == GlobalWindows {
		o.win1[0] = GlobalWindow()
		return o.win1[:], nil
	}
	if !o.win.EventTime {
		ts = o.Ctx.Now()
	} else if ts == NoTimestamp {
		return nil, o.noTime()
	}
	if o.win.Kind == SessionWindows {
		w, fits, err := o.win.Session.window(v, ts)
		if err != nil {
			return nil, o.Ctx.wrap(err)
		}
		if !fits {
			return nil, o.noWindow(ts, o.win)
		}
		o.win1[0] = w
		return o.win1[:], nil
	}
	s := o.win.Sliding
	if !s.Holds(ts) {
		return nil, o.noWindow(ts, o.win)
	}
	o.wins = o.wins[:0]
	for end, _ := s.lastEnd(ts); end > ts; end -= s.Slide {
		o.wins = append(o.wins, Window{end - s.Size, end})
	}
	return o.wins, nil
}

func (o *windowOp[K, T, C, R]) Process(v T, m Meta) error {
	o.Ctx.Enter()
	wins, err := o.assign(v, m.TS)
	if err != nil {
		return err
	}
	if o.cur, err = o.sel.key(o.Ctx, v, m); err != nil {
		return err
	}
	skipped := true
	record := v
	for i, w := range wins {
		var late bool
		if v = record; o.values != nil && i < len(wins)-1 {
			v = o.values.Clone(record)
		}
		if o.merges() {
			late, err = o.addMerging(v, m.TS, w)
		} else {
			late, err = o.add(v, m.TS, w)
		}
		if err != nil {
			return err
		}
		skipped = skipped && late
	}
	if skipped && o.win.EventTime && plus(m.TS, o.lateness) <= o.current() {
		return o.dropLate(v, m)
	}
	return nil
}

// add adds a record to a window that does not merge.
func (o *windowOp[K, T, C, R]) add(v T, ts int64, w Window) (late bool, err error) {
	if o.isLate(w) {
		return true, nil
	}
	o.w, o.ns = w, o.nsOf(w)
	p, found, err := o.table.Ref(o.cur, o.ns)
	if err != nil {
		return false, o.failed(err)
	}
	if !found && o.win.Kind == SlidingWindows {
		if i, ok := slices.BinarySearch(o.live, o.ns); !ok {
			o.live = slices.Insert(o.live, i, o.ns)
		}
	}
	o.c.put(p, v, ts, !found)
	if found && o.quiet {
		return false, nil
	}
	return false, o.element(v, ts)
}

// element lets the trigger see a record that was added to the current window.
func (o *windowOp[K, T, C, R]) element(v T, ts int64) error {
	w := o.w
	r, err := o.trigger.OnElement(v, ts, w, &o.tc)
	if err != nil {
		return o.Ctx.wrap(err)
	}
	if err := o.act(r, false); err != nil {
		return err
	}
	return o.mind(w, true)
}

// act does what the trigger decided about the current window; over says that it is removed afterwards.
func (o *windowOp[K, T, C, R]) act(r TriggerResult, over bool) error {
	if r.fires() {
		found, err := o.load()
		if err != nil {
			return err
		}
		if found {
			k, w, ns := o.cur, o.w, o.ns
			if o.c.shares && (o.overlap || !over && !r.purges()) {
				o.buf = o.c.codec.Clone(o.buf)
			}
			changed, err := o.user.fire(k, w, &o.buf)
			if err == nil && changed && !r.purges() {
				if o.c.void != nil && o.c.void(&o.buf) {
					err = o.purge()
				} else {
					err = o.store()
				}
			}
			var zero C
			o.buf = zero
			if err != nil {
				return err
			}
			o.Ctx.Enter()
			o.cur, o.w, o.ns = k, w, ns
		}
	}
	if r.purges() {
		return o.purge()
	}
	return nil
}

// load gets the current window's contents into buf.
func (o *windowOp[K, T, C, R]) load() (found bool, err error) {
	if o.table != nil {
		if o.buf, found, err = o.table.Get(o.cur, o.ns); err != nil {
			return false, o.failed(err)
		}
		return found, nil
	}
	s, _, err := o.merging.Get(o.cur, 0)
	if err != nil {
		return false, o.failed(err)
	}
	if i := s.find(o.ns); i >= 0 && s.List[i].Some {
		o.buf = s.List[i].C
		return true, nil
	}
	return false, nil
}

// store puts buf as the current window's contents.
func (o *windowOp[K, T, C, R]) store() error {
	if o.table != nil {
		if err := o.table.Put(o.cur, o.ns, o.buf); err != nil {
			return o.failed(err)
		}
		return nil
	}
	return o.change(func(m *merged[C]) { m.C = o.c.codec.Clone(o.buf) })
}

func (o *windowOp[K, T, C, R]) purge() error {
	if o.table != nil {
		if err := o.table.Delete(o.cur, o.ns); err != nil {
			return o.failed(err)
		}
		return nil
	}
	return o.change(func(m *merged[C]) {
		var zero C
		m.C, m.Some = zero, false
	})
}

// change changes the current window, which merges.
func (o *windowOp[K, T, C, R]) change(fn func(*merged[C])) error {
	s, _, err := o.merging.Ref(o.cur, 0)
	if err != nil {
		return o.failed(err)
	}
	if i := s.find(o.ns); i >= 0 {
		fn(&s.List[i])
	}
	return nil
}

func (s *windows[C]) find(id int64) int {
	return slices.IndexFunc(s.List, func(m merged[C]) bool { return m.ID == id })
}

// addMerging adds a record to a window that merges. Source: Flink WindowOperator.processElement, MergingWindowSet.addWindow.
func (o *windowOp[K, T, C, R]) addMerging(v T, ts int64, w Window) (late bool, err error) {
	s, _, err := o.merging.Get(o.cur, 0)
	if err != nil {
		return false, o.failed(err)
	}
	result, touched, inside := w, 0, int64(-1)
	for i := range s.List {
		e := Window{s.List[i].Start, s.List[i].End}
		if !w.touches(e) {
			continue
		}
		touched++
		result = result.cover(e)
		if result == e {
			inside = s.List[i].ID
		}
	}
	if o.isLate(result) {
		return true, nil
	}
	p, _, err := o.merging.Ref(o.cur, 0)
	if err != nil {
		return false, o.failed(err)
	}
	if touched == 1 && inside >= 0 {
		o.w, o.ns = result, inside
		o.putInto(&p.List[p.find(inside)], v, ts)
		return false, o.element(v, ts)
	}
	n := merged[C]{Start: result.Start, End: result.End, ID: o.nextID}
	o.nextID++
	var old []merged[C]
	if touched > 0 {
		rest := p.List[:0]
		for _, e := range p.List {
			if !w.touches(Window{e.Start, e.End}) {
				rest = append(rest, e)
				continue
			}
			switch {
			case e.Some && n.Some:
				n.C = o.c.merge(n.C, e.C)
			case e.Some:
				n.C, n.Some = e.C, true
			}
			var zero C
			e.C = zero
			old = append(old, e)
		}
		clear(p.List[len(rest):])
		p.List = rest
	}
	o.putInto(&n, v, ts)
	p.List = append(p.List, n)
	if len(old) > 0 {
		if err := o.merge(result, n.ID, old); err != nil {
			return false, err
		}
	}
	o.w, o.ns = result, n.ID
	return false, o.element(v, ts)
}

func (o *windowOp[K, T, C, R]) putInto(m *merged[C], v T, ts int64) {
	o.c.put(&m.C, v, ts, !m.Some)
	m.Some = true
}

// merge tells the trigger that old became w.
func (o *windowOp[K, T, C, R]) merge(w Window, id int64, old []merged[C]) error {
	o.w, o.ns = w, id
	mc := MergeContext{TriggerContext: o.tc}
	for i := range old {
		mc.merged = append(mc.merged, old[i].ID)
	}
	if err := o.trigger.OnMerge(w, &mc); err != nil {
		return o.Ctx.wrap(err)
	}
	for i := range old {
		o.w, o.ns = Window{old[i].Start, old[i].End}, old[i].ID
		if err := o.trigger.Clear(o.w, &o.tc); err != nil {
			return o.Ctx.wrap(err)
		}
		if err := o.mind(o.w, false); err != nil {
			return err
		}
	}
	return nil
}

func (o *windowOp[K, T, C, R]) Watermark(ts int64) error {
	if ts > o.clock.watermark {
		o.clock.watermark = ts
		if err := o.fire(o.event, ts, true); err != nil {
			return err
		}
		if err := o.forget(ts, true); err != nil {
			return err
		}
	}
	return o.out.Watermark(ts)
}

// forget drops the namespaces of windows that are gone for all keys.
func (o *windowOp[K, T, C, R]) forget(now int64, event bool) error {
	if event != o.win.EventTime {
		return nil
	}
	n := 0
	for ; n < len(o.live) && o.cleanup(Window{o.live[n], o.live[n] + o.win.Sliding.Size}) <= now; n++ {
		for _, drop := range o.drops {
			if err := drop(o.live[n]); err != nil {
				return o.failed(err)
			}
		}
		if err := o.user.forget(o.live[n]); err != nil {
			return o.failed(err)
		}
	}
	o.live = slices.Delete(o.live, 0, n)
	return nil
}

func (o *windowOp[K, T, C, R]) fire(timers state.Timers[K], until int64, event bool) error {
	return runTimers(o.Ctx, &o.watch, timers, until, event, func(k state.Key[K], ns state.Namespace, at int64) error { return o.due(k, ns, at, event) })
}

// due does what a timer of a window asks for. Source: Flink WindowOperator.onEventTime, onProcessingTime.
func (o *windowOp[K, T, C, R]) due(k state.Key[K], ns state.Namespace, at int64, event bool) error {
	o.Ctx.Enter()
	o.cur, o.ns = k, ns
	switch o.win.Kind {
	case GlobalWindows:
		o.w = GlobalWindow()
	case SlidingWindows:
		o.w = Window{ns, ns + o.win.Sliding.Size}
	default:
		s, _, err := o.merging.Get(k, 0)
		if err != nil {
			return o.failed(err)
		}
		i := s.find(ns)
		if i < 0 {
			return nil // it was merged, or is gone
		}
		o.w = Window{s.List[i].Start, s.List[i].End}
	}
	w := o.w
	on := o.trigger.OnProcessingTime
	if event {
		on = o.trigger.OnEventTime
	}
	o.watch.fire(event, at)
	r, err := on(at, w, &o.tc)
	o.watch.done()
	if err != nil {
		return o.Ctx.wrap(err)
	}
	over := event == o.win.EventTime && at == o.cleanup(w)
	if err := o.act(r, over); err != nil || !over {
		return err
	}
	return o.remove(w)
}

// remove removes all that is known of the current window. Source: Flink WindowOperator.clearAllState.
func (o *windowOp[K, T, C, R]) remove(w Window) error {
	if o.table != nil {
		if err := o.purge(); err != nil {
			return err
		}
	}
	if err := o.trigger.Clear(w, &o.tc); err != nil {
		return o.Ctx.wrap(err)
	}
	if o.user.stateful() {
		if err := o.user.clear(o.cur, w); err != nil {
			return err
		}
		if err := o.user.remove(o.cur, o.ns); err != nil {
			return o.failed(err)
		}
	}
	if o.table != nil {
		return nil
	}
	s, _, err := o.merging.Ref(o.cur, 0)
	if err != nil {
		return o.failed(err)
	}
	if i := s.find(o.ns); i >= 0 {
		s.List = slices.Delete(s.List, i, i+1)
	}
	if len(s.List) == 0 {
		if err := o.merging.Delete(o.cur, 0); err != nil {
			return o.failed(err)
		}
	}
	return nil
}

// fireAll fires the processing-time timers of a key whose records are over, in BATCH.
func (o *windowOp[K, T, C, R]) fireAll() error {
	o.over = true
	err := o.fire(o.proc, MaxWatermark, false)
	o.over = false
	if err != nil {
		return err
	}
	return o.forget(MaxWatermark, false)
}

// arm asks for a wake-up at the earliest processing-time timer.
func (o *windowOp[K, T, C, R]) arm() {
	if o.Ctx.Batch {
		return
	}
	at, ok := o.proc.Next()
	if !ok || o.wakes && o.armed <= at {
		return
	}
	o.armed, o.wakes = at, true
	o.Ctx.At(at, func() error {
		if o.armed == at {
			o.wakes = false
		}
		now := o.Ctx.Now()
		if err := o.fire(o.proc, now, false); err != nil {
			return err
		}
		if err := o.forget(now, false); err != nil {
			return err
		}
		o.arm()
		return nil
	})
}
