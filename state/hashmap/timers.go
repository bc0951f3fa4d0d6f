package hashmap

import (
	"slices"
	"unsafe"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/timerset"
)

// OpenTimers returns the timer set with the restored timers of its name.
func OpenTimers[K comparable](b *Backend, desc state.TimersDesc[K]) (state.Timers[K], error) {
	if s, ok := b.names[desc.Name]; ok {
		t, ok := s.(*timers[K])
		if !ok {
			return nil, openTwice(desc.Name)
		}
		return t, nil
	}
	t := &timers[K]{b: b, desc: desc, set: timerset.New[K](b.clock)}
	if err := add(b, t, nil, t.load); err != nil {
		return nil, err
	}
	return t, nil
}

type timers[K comparable] struct {
	b    *Backend
	desc state.TimersDesc[K]
	set  *timerset.Set[K]
}

// Register implements state.Timers.
func (t *timers[K]) Register(k state.Key[K], ns state.Namespace, at int64) error {
	tk := timerset.Key[K]{K: k.Key, NS: ns, At: at, Hash: k.Hash}
	if !timerset.Has(t.set, tk) {
		tk.K = t.desc.Key.Clone(tk.K)
		timerset.Add(t.set, tk)
	}
	return nil
}

// Delete implements state.Timers.
func (t *timers[K]) Delete(k state.Key[K], ns state.Namespace, at int64) error {
	timerset.Delete(t.set, timerset.Key[K]{K: k.Key, NS: ns, At: at, Hash: k.Hash})
	return nil
}

// Next implements state.Timers.
func (t *timers[K]) Next() (int64, bool) { return timerset.Next(t.set) }

// PopUntil implements state.Timers.
func (t *timers[K]) PopUntil(until int64, fn func(k state.Key[K], ns state.Namespace, at int64) error) error {
	for {
		k, ok := timerset.Pop(t.set, until)
		if !ok {
			return nil
		}
		if err := fn(state.Key[K]{Key: k.K, Hash: k.Hash, Group: state.GroupOf(k.Hash, t.b.cfg.MaxParallelism)}, k.NS, k.At); err != nil {
			return err
		}
	}
}

// Len implements state.Timers.
func (t *timers[K]) Len() int { return timerset.Len(t.set) }

func (t *timers[K]) meta() state.TableMeta {
	return state.TableMeta{Name: t.desc.Name, Kind: canonical.KindTimers, Key: t.desc.Key.Schema(), Stored: int64(timerset.Len(t.set))}
}

func (t *timers[K]) size() int64 {
	var k timerset.Key[K]
	return int64(timerset.Len(t.set)) * int64(unsafe.Sizeof(k)+32)
}

func (t *timers[K]) freeze() view {
	return &timersView[K]{key: t.desc.Key, pages: slices.Clone(timerset.Pages(t.set))}
}

func (t *timers[K]) load(r canonical.Scanner) error {
	return r.Scan(t.desc.Name, func(e *canonical.Entry) error {
		k, err := canonical.DecodeKey(t.desc.Key, e, t.b.cfg.MaxParallelism)
		if err != nil {
			return err
		}
		return t.Register(k, e.Namespace, e.At)
	})
}
