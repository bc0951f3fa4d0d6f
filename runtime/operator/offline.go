package operator

import (
	"math"
	"slices"
	"time"

	"github.com/thalweg/thalweg/state"
)

// What reads and writes the state of an operator outside of a task (stream/stateprocessor). Nothing of it is used while a job runs.

// Offline is the keyed state of an operator's function, of all key groups of its context, for a key that the caller chooses.
type Offline[K comparable] struct {
	*Inspector[K]
	event, proc state.Timers[K]
}

// NewOffline returns the state of the operator that c belongs to; open states with Runtime.
func NewOffline[K comparable](c *Context) (*Offline[K], error) {
	c.listing = true
	i, err := NewInspector[K](c)
	if err != nil {
		return nil, err
	}
	o := &Offline[K]{Inspector: i}
	if o.event, err = OpenTimers(c, EventTimers, i.RuntimeContext.key); err != nil {
		return nil, err
	}
	o.proc, err = OpenTimers(c, ProcessingTimers, i.RuntimeContext.key)
	return o, err
}

// Runtime is what a function's Open gets.
func (o *Offline[K]) Runtime() *RuntimeContext[K] { return o.RuntimeContext }

// NoKey leaves no key current.
func (o *Offline[K]) NoKey() { o.Inspector.key.Group = noKey }

// Keys are those that have something in one of the states that were opened, or a timer.
func (o *Offline[K]) Keys() ([]K, error) {
	seen := map[K]struct{}{}
	var all []K
	add := func(k K) {
		if _, ok := seen[k]; !ok {
			seen[k] = struct{}{}
			all = append(all, k)
		}
	}
	for _, l := range o.ctx.listers {
		keys, err := l.(keyLister[K]).keys()
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			add(k.Key)
		}
	}
	for _, t := range []state.Timers[K]{o.event, o.proc} {
		all, err := timersOf(t)
		if err != nil {
			return nil, err
		}
		for _, x := range all {
			add(x.key.Key)
		}
	}
	return all, nil
}

// keyTimer is a timer.
type keyTimer[K comparable] struct {
	key state.Key[K]
	ns  state.Namespace
	at  int64
}

// timersOf lists a set, which has no other way than to take all out and put them back.
func timersOf[K comparable](t state.Timers[K]) (all []keyTimer[K], err error) {
	if err := t.PopUntil(math.MaxInt64, func(k state.Key[K], ns state.Namespace, at int64) error {
		all = append(all, keyTimer[K]{k, ns, at})
		return nil
	}); err != nil {
		return nil, err
	}
	for _, x := range all {
		if err := t.Register(x.key, x.ns, x.at); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// TimersByKey lists the event-time or the processing-time timers, in the order of their times.
func (o *Offline[K]) TimersByKey(event bool) (map[K][]time.Time, error) {
	all, err := timersOf(o.timers(event))
	if err != nil {
		return nil, err
	}
	by := map[K][]time.Time{}
	for _, x := range all {
		by[x.key.Key] = append(by[x.key.Key], time.UnixMilli(x.at).UTC())
	}
	for _, l := range by {
		slices.SortFunc(l, time.Time.Compare)
	}
	return by, nil
}

func (o *Offline[K]) timers(event bool) state.Timers[K] {
	if event {
		return o.event
	}
	return o.proc
}

// RegisterTimer registers a timer of the current key.
func (o *Offline[K]) RegisterTimer(event bool, t time.Time) error {
	if o.Inspector.key.Group == noKey {
		return errNoKey
	}
	return o.timers(event).Register(o.Inspector.key, 0, timerTime(t))
}

// DeleteTimer removes a timer of the current key.
func (o *Offline[K]) DeleteTimer(event bool, t time.Time) error {
	if o.Inspector.key.Group == noKey {
		return errNoKey
	}
	return o.timers(event).Delete(o.Inspector.key, 0, timerTime(t))
}

// OfflineTask is what the Open of a function without keys gets.
func OfflineTask(c *Context) *TaskContext { return &TaskContext{c} }

// TakeOffline is the snapshot of what was opened through c, with what was not as it was restored.
func TakeOffline(c *Context, b Barrier) (Snapshot, error) {
	if err := c.settle(); err != nil {
		return Snapshot{}, err
	}
	s, err := (&KeyedBase{Ctx: c}).Snapshot(b)
	if err == nil {
		s.Lists = c.carried.addTo(s.Lists)
	}
	return s, err
}

// CloseOffline closes the state of c.
func CloseOffline(c *Context) error { return (&KeyedBase{Ctx: c}).Close() }

// WatermarkState is the list in which window operators keep their watermark by key group.
const WatermarkState = watermarkState

// OfUser reports whether a list of operator state is one that functions open, or what describes them.
func OfUser(list string) bool {
	return len(list) > len(userPrefix) && list[:len(userPrefix)] == userPrefix
}

// listed notes a keyed state that was opened, for Offline.Keys.
func (c *Context) listed(s KeyedState) {
	if c.listing {
		c.listers = append(c.listers, s.table())
	}
}
