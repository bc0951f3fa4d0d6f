package onekey

import (
	"cmp"
	"slices"

	"github.com/thalweg/thalweg/state"
)

// OpenTimers returns the timer set of a name.
func OpenTimers[K comparable](b *Backend, desc state.TimersDesc[K]) (state.Timers[K], error) {
	t, err := open(b, desc.Name, func() *timers[K] { return &timers[K]{desc: desc} })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// timers are those of a key, ascending from head on.
type timers[K comparable] struct {
	holder[K]
	desc state.TimersDesc[K]
	set  []timer
	head int // timers before have fired
}

type timer struct {
	at int64
	ns state.Namespace
}

func (t timer) compare(o timer) int { return cmp.Or(cmp.Compare(t.at, o.at), cmp.Compare(t.ns, o.ns)) }

func findTimer(l []timer, x timer) (int, bool) {
	if n := len(l); n == 0 || l[n-1].compare(x) < 0 {
		return n, false
	}
	return slices.BinarySearchFunc(l, x, timer.compare)
}

// insertTimer and deleteTimer keep slices.Insert and Delete out of what is generic.
func insertTimer(l []timer, i int, x timer) []timer { return slices.Insert(l, i, x) }
func deleteTimer(l []timer, i int) []timer          { return slices.Delete(l, i, i+1) }

func (t *timers[K]) clear() {
	if t.set, t.head = t.set[:0], 0; cap(t.set) > 1<<12 {
		t.set = nil
	}
}

// Register implements state.Timers.
func (t *timers[K]) Register(k state.Key[K], ns state.Namespace, at int64) error {
	if t.Len() == 0 {
		t.clear()
		t.cur = k
		t.cur.Key = t.desc.Key.Clone(k.Key)
	} else if t.cur.Key != k.Key {
		return errTwoKeys
	}
	if i, ok := findTimer(t.set[t.head:], timer{at, ns}); !ok {
		t.set = insertTimer(t.set, t.head+i, timer{at, ns})
	}
	return nil
}

// Delete implements state.Timers.
func (t *timers[K]) Delete(k state.Key[K], ns state.Namespace, at int64) error {
	if t.Len() == 0 || t.cur.Key != k.Key {
		return nil
	}
	if i, ok := findTimer(t.set[t.head:], timer{at, ns}); ok {
		t.set = deleteTimer(t.set, t.head+i)
	}
	return nil
}

// Next implements state.Timers.
func (t *timers[K]) Next() (at int64, ok bool) {
	if t.Len() == 0 {
		return 0, false
	}
	return t.set[t.head].at, true
}

// PopUntil implements state.Timers.
func (t *timers[K]) PopUntil(until int64, fn func(k state.Key[K], ns state.Namespace, at int64) error) error {
	for t.Len() > 0 && t.set[t.head].at <= until {
		x, k := t.set[t.head], t.cur
		t.head++
		if err := fn(k, x.ns, x.at); err != nil {
			return err
		}
	}
	return nil
}

// Len implements state.Timers.
func (t *timers[K]) Len() int { return len(t.set) - t.head }
