package operator

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/state"
)

// Session assigns each time the window that reaches from it to Gap later; windows of a key that touch are merged to one.
type Session[T any] struct {
	Gap     int64         // milliseconds
	Dynamic func(T) int64 // the gap of a record, instead of Gap
}

func (s Session[T]) String() string {
	if s.Dynamic != nil {
		return "EventTimeSession(dynamic gap)"
	}
	return fmt.Sprintf("EventTimeSession(%s)", time.Duration(s.Gap)*time.Millisecond)
}

// window is the window of one record.
func (s *Session[T]) window(v T, ts int64) (w Window, fits bool, err error) {
	gap := s.Gap
	if s.Dynamic != nil {
		if gap = s.Dynamic(v); gap <= 0 {
			return w, true, fmt.Errorf("session gap of %d ms: the gap function must return at least a millisecond", gap)
		}
	}
	if ts > math.MaxInt64-gap {
		return w, false, nil
	}
	return Window{ts, ts + gap}, true, nil
}

// session is one session of a key. Its state is exported for the codec alone.
type session[C any] struct {
	Start, End int64
	// Timer is the time of the timer that minds this session: not after what is due next, so that a session that grows needs no other one.
	Timer int64
	Fired bool // the watermark passed the end, and the contents are kept for late records
	C     C
}

// sessions are the sessions of a key, in no order: nearly always there is one, which needs no memory of its own.
type sessions[C any] struct {
	One  session[C]
	Some bool // One is in use
	More []session[C]
}

func (s *sessions[C]) len() int {
	if !s.Some {
		return 0
	}
	return 1 + len(s.More)
}

func (s *sessions[C]) at(i int) *session[C] {
	if i == 0 {
		return &s.One
	}
	return &s.More[i-1]
}

func (s *sessions[C]) add() *session[C] {
	if !s.Some {
		s.Some = true
		s.One = session[C]{}
		return &s.One
	}
	s.More = append(s.More, session[C]{})
	return &s.More[len(s.More)-1]
}

func (s *sessions[C]) remove(i int) {
	last := s.len() - 1
	if i != last {
		*s.at(i) = *s.at(last)
	}
	*s.at(last) = session[C]{}
	if last == 0 {
		s.Some = false
	} else {
		s.More = s.More[:last-1]
	}
}

// sessionOp is the operator of event-time sessions that fire when the watermark passes their end, and again for each record that is late
// within the allowed lateness. All sessions of a key are one entry of the state: a record costs one access to it. A session has one timer,
// which is not moved when the session grows: one that comes too early is registered again.
// Source: Flink WindowOperator with EventTimeSessionWindows, MergingWindowSet and EventTimeTrigger.
type sessionOp[K comparable, T, C, R any] struct {
	windowBase[K, T, R]
	win    Session[T]
	c      contents[T, C]
	user   windowUser[K, C, R]
	env    windowEnv[K, R]
	table  state.Table[K, sessions[C]]
	timers state.Timers[K]
	set    sessions[C] // of the key in work
}

func newSession[K comparable, T, C, R any](ctx *Context, out any, sel KeySelector[K, T], win Session[T], c contents[T, C], user windowUser[K, C, R], lateness int64, late LateTag[T]) (Operator, error) {
	o := &sessionOp[K, T, C, R]{win: win, c: c, user: user}
	if err := o.init(ctx, sel, out, lateness, late); err != nil {
		return nil, err
	}
	if err := o.c.init(user.shares()); err != nil {
		return nil, err
	}
	var err error
	if o.table, err = openBoxed[K, sessions[C]](ctx, "window-sessions", sel.Codec); err != nil {
		return nil, err
	}
	if o.timers, err = OpenTimers(ctx, "window-timers", sel.Codec); err != nil {
		return nil, err
	}
	ctx.vacant = func() bool {
		_, open := o.timers.Next()
		return !open
	}
	o.env = windowEnv[K, R]{ctx: ctx, codec: sel.Codec, c: newCollector(ctx, o.out), clock: &o.clock, merging: true}
	return o, nil
}

func (o *sessionOp[K, T, C, R]) Input(int) any              { return Receiver[T](o) }
func (o *sessionOp[K, T, C, R]) Open(context.Context) error { return o.user.open(&o.env) }

func (o *sessionOp[K, T, C, R]) Close() error {
	err := o.user.close()
	if cerr := o.KeyedBase.Close(); err == nil {
		err = cerr
	}
	return err
}

func (o *sessionOp[K, T, C, R]) Process(v T, m Meta) error {
	if m.TS == NoTimestamp {
		return o.noTime()
	}
	o.Ctx.Enter()
	w, fits, err := o.win.window(v, m.TS)
	if err != nil {
		return o.Ctx.wrap(err)
	}
	if !fits {
		return o.noWindow(m.TS, o.win)
	}
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	at := o.clock.at(k.Group)
	gone := minus(at, o.lateness)
	if w.End-1 <= gone {
		// It counts only when it belongs to a session that is still open.
		var found bool
		if o.set, found, err = o.table.Get(k, 0); err != nil {
			return o.failed(err)
		}
		set, open := &o.set, false
		for i := 0; found && !open && i < set.len(); i++ {
			s := set.at(i)
			open = w.touches(Window{s.Start, s.End})
		}
		if !open {
			return o.dropLate(v, m)
		}
	}
	set, _, err := o.table.Ref(k, 0)
	if err != nil {
		return o.failed(err)
	}
	var s *session[C]
	n := set.len()
	for i := 0; i < n; i++ {
		if e := set.at(i); w.touches(Window{e.Start, e.End}) {
			if s == nil {
				s = e
				c := w.cover(Window{e.Start, e.End})
				s.Start, s.End = c.Start, c.End
				w = c
				continue
			}
			w = w.cover(Window{e.Start, e.End})
			s.Start, s.End = w.Start, w.End
			s.Timer = min(s.Timer, e.Timer)
			s.C = o.c.merge(s.C, e.C)
			set.remove(i) // s is before i, and stays
			i, n = i-1, n-1
		}
	}
	first := s == nil
	if first {
		s = set.add()
		s.Start, s.End, s.Timer = w.Start, w.End, math.MaxInt64
	}
	o.c.put(&s.C, v, m.TS, first)
	s.Fired = s.End-1 <= at
	fire := s.Fired
	if due := o.due(s); due < s.Timer {
		s.Timer = due
		if err := o.timers.Register(k, 0, due); err != nil {
			return o.failed(err)
		}
	}
	if fire {
		win := Window{s.Start, s.End}
		if o.set, _, err = o.table.Get(k, 0); err != nil {
			return o.failed(err)
		}
		for i := range o.set.len() {
			if s := o.set.at(i); s.Start == win.Start {
				_, err := o.user.fire(k, win, o.c.given(&s.C, true))
				return err
			}
		}
	}
	return nil
}

// due is when something is next to be done for a session.
func (o *sessionOp[K, T, C, R]) due(s *session[C]) int64 {
	if s.Fired {
		return plus(s.End-1, o.lateness)
	}
	return s.End - 1
}

func (o *sessionOp[K, T, C, R]) Watermark(ts int64) error {
	if ts > o.clock.watermark {
		o.clock.watermark = ts
		if at, ok := o.timers.Next(); ok && at <= ts {
			if err := o.timers.PopUntil(ts, o.timer); err != nil {
				return err
			}
		}
	}
	return o.out.Watermark(ts)
}

// timer does what is due for the sessions that a timer minds.
func (o *sessionOp[K, T, C, R]) timer(k state.Key[K], _ state.Namespace, at int64) error {
	for {
		var found bool
		var err error
		if o.set, found, err = o.table.Get(k, 0); err != nil {
			return o.failed(err)
		}
		set, i := &o.set, 0
		for ; found && i < set.len() && set.at(i).Timer != at; i++ {
		}
		if !found || i == set.len() {
			return nil // it minded a session that was merged with another
		}
		s := set.at(i)
		if due := o.due(s); due > at {
			if err := o.again(k, i, due, false); err != nil {
				return err
			}
			continue
		}
		w := Window{s.Start, s.End}
		if !s.Fired {
			if _, err := o.user.fire(k, w, o.c.given(&s.C, o.lateness > 0)); err != nil {
				return err
			}
			if o.lateness > 0 {
				if err := o.again(k, i, plus(w.End-1, o.lateness), true); err != nil {
					return err
				}
				continue
			}
		}
		if o.user.stateful() {
			if err := o.user.clear(k, w); err != nil {
				return err
			}
		}
		if set.len() == 1 {
			if err := o.table.Delete(k, 0); err != nil {
				return o.failed(err)
			}
			return nil
		}
		p, _, err := o.table.Ref(k, 0)
		if err != nil {
			return o.failed(err)
		}
		p.remove(i)
	}
}

// again registers the next timer of session i of a key.
func (o *sessionOp[K, T, C, R]) again(k state.Key[K], i int, due int64, fired bool) error {
	p, _, err := o.table.Ref(k, 0)
	if err != nil {
		return o.failed(err)
	}
	s := p.at(i)
	s.Timer, s.Fired = due, s.Fired || fired
	if err := o.timers.Register(k, 0, due); err != nil {
		return o.failed(err)
	}
	return nil
}
