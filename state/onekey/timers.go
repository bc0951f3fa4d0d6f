package onekey

import (
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/internal/slots"
	"github.com/thalweg/thalweg/state/internal/timerset"
)

// OpenTimers returns the timer set of a name.
func OpenTimers[K comparable](b *Backend, desc state.TimersDesc[K]) (state.Timers[K], error) {
	t, err := open(b, desc.Name, func() *timers[K] { return &timers[K]{desc: desc, set: newTimers()} })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// timers are those of a key: the set that the hashmap backend has, without the key, which is one.
type timers[K comparable] struct {
	holder[K]
	desc state.TimersDesc[K]
	set  *timerset.Set[struct{}]
	most int // timers in set at a time
}

// manyTimers is how many of a key leave a set that the next key does not get.
const manyTimers = 1 << 12

func newTimers() *timerset.Set[struct{}] { return timerset.New[struct{}](slots.NewClock()) }

func timer(ns state.Namespace, at int64) timerset.Key[struct{}] {
	return timerset.Key[struct{}]{NS: ns, At: at}
}

func (t *timers[K]) clear() {
	if timerset.Len(t.set) > 0 || t.most > manyTimers {
		t.set = newTimers()
	}
	t.most = 0
}

// Register implements state.Timers.
func (t *timers[K]) Register(k state.Key[K], ns state.Namespace, at int64) error {
	n := timerset.Len(t.set)
	if n == 0 {
		t.cur = k
		t.cur.Key = t.desc.Key.Clone(k.Key)
	} else if t.cur.Key != k.Key {
		return errTwoKeys
	}
	if x := timer(ns, at); !timerset.Has(t.set, x) {
		timerset.Add(t.set, x)
		t.most = max(t.most, n+1)
	}
	return nil
}

// Delete implements state.Timers.
func (t *timers[K]) Delete(k state.Key[K], ns state.Namespace, at int64) error {
	if timerset.Len(t.set) > 0 && t.cur.Key == k.Key {
		timerset.Delete(t.set, timer(ns, at))
	}
	return nil
}

// Next implements state.Timers.
func (t *timers[K]) Next() (at int64, ok bool) { return timerset.Next(t.set) }

// PopUntil implements state.Timers.
func (t *timers[K]) PopUntil(until int64, fn func(k state.Key[K], ns state.Namespace, at int64) error) error {
	for {
		k := t.cur
		x, ok := timerset.Pop(t.set, until)
		if !ok {
			return nil
		}
		if err := fn(k, x.NS, x.At); err != nil {
			return err
		}
	}
}

// Len implements state.Timers.
func (t *timers[K]) Len() int { return timerset.Len(t.set) }
