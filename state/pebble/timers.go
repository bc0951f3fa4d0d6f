package pebble

import (
	"errors"
	"fmt"
	"math"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
	"github.com/thalweg/thalweg/state/internal/timerset"
)

// OpenTimers returns the timer set with the restored timers of its name.
func OpenTimers[K comparable](b *Backend, desc state.TimersDesc[K]) (state.Timers[K], error) {
	if s, ok := b.names[desc.Name]; ok {
		t, ok := s.(*timers[K])
		if !ok {
			return nil, fmt.Errorf("pebble: open %q: it is open already as another kind or with other types", desc.Name)
		}
		return t, nil
	}
	t := &timers[K]{b: b, desc: desc, limit: b.opts.TimersInMemory, whole: true}
	t.near = timerset.New[K](slots.NewClock())
	m, stored, err := b.register(t.describe())
	if err != nil {
		return nil, err
	}
	t.id = m.ID
	t.delta = slots.NewSpace(slots.NewPool[timerset.Key[K], change](slots.NewClock()))
	if err := loadCanonicalTimers(t, &stored); err != nil {
		return nil, fmt.Errorf("pebble: open %q: restore: %w", desc.Name, err)
	}
	if stored {
		t.whole, t.horizon = false, math.MinInt64
	}
	b.openedLater(desc.Name)
	b.names[desc.Name] = t
	b.sets = append(b.sets, t)
	return t, nil
}

// change is what Pebble does not know yet about a timer.
type change uint8

const (
	addNew   change = iota // added, and certainly not stored
	addMaybe               // added, perhaps stored before
	removed
)

// timers holds the timers before horizon in memory (near); the others are in Pebble and in delta. With whole set there are no others.
type timers[K comparable] struct {
	b       *Backend
	desc    state.TimersDesc[K]
	id      uint16
	near    *timerset.Set[K]
	limit   int
	horizon int64
	whole   bool
	far     int // timers not in near, estimated
	delta   *slots.Space[timerset.Key[K], change]
	err     error // of a refill in Next, which cannot return it
	kb      []byte
}

func (t *timers[K]) describe() state.TableMeta {
	return state.TableMeta{Name: t.desc.Name, Kind: canonical.KindTimers, Key: t.desc.Key.Schema(), Stored: -1}
}

func (t *timers[K]) number() uint16 { return t.id }
func (t *timers[K]) size() int64    { return 0 } // bounded by limit
func (t *timers[K]) evict() error   { return nil }
func (t *timers[K]) now() int64     { return 0 }
func (t *timers[K]) current(_, _ []byte, _ int64) ([]byte, bool, error) {
	return nil, true, nil
}
func isNear[K comparable](t *timers[K], at int64) bool { return t.whole || at < t.horizon }
func noteChange[K comparable](t *timers[K], k timerset.Key[K], c change) uint32 {
	id, p, i := slots.Insert(t.delta, k.Hash^uint32(k.At)*0x9e3779b1^uint32(k.NS)*0x85ebca6b, k)
	p.Vals[i] = c
	return id
}

func noted[K comparable](t *timers[K], k timerset.Key[K]) (uint32, bool) {
	return slots.Find(t.delta, k.Hash^uint32(k.At)*0x9e3779b1^uint32(k.NS)*0x85ebca6b, k)
}

// Register implements state.Timers.
func (t *timers[K]) Register(k state.Key[K], ns state.Namespace, at int64) error {
	tk := timerset.Key[K]{K: k.Key, NS: ns, At: at, Hash: k.Hash}
	near := isNear(t, at)
	if near && timerset.Has(t.near, tk) {
		return nil
	}
	id, ok := noted(t, tk)
	switch {
	case ok:
		p, i := slots.Writable(t.delta, id)
		if p.Vals[i] != removed {
			return nil // far, registered before
		}
		p.Vals[i] = addMaybe
		tk.K = p.Keys[i].K
	default:
		tk.K = t.desc.Key.Clone(tk.K)
		c := addMaybe
		if near {
			c = addNew
		}
		noteChange(t, tk, c)
	}
	if !near {
		t.far++
		return bound(t)
	}
	timerset.Add(t.near, tk)
	if timerset.Len(t.near) > t.limit {
		return spill(t)
	}
	return bound(t)
}

// Delete implements state.Timers.
func (t *timers[K]) Delete(k state.Key[K], ns state.Namespace, at int64) error {
	tk := timerset.Key[K]{K: k.Key, NS: ns, At: at, Hash: k.Hash}
	if isNear(t, at) {
		if !timerset.Delete(t.near, tk) {
			return nil
		}
	} else {
		t.far = max(t.far-1, 0)
	}
	tk.K = t.desc.Key.Clone(tk.K)
	gone(t, tk)
	return bound(t)
}

// gone notes that a timer is no more; the set keeps k.K.
func gone[K comparable](t *timers[K], k timerset.Key[K]) {
	id, ok := noted(t, k)
	if !ok {
		noteChange(t, k, removed)
		return
	}
	p, i := slots.Writable(t.delta, id)
	if p.Vals[i] == addNew {
		slots.Delete(t.delta, id)
		return
	}
	p.Vals[i] = removed
}

// bound writes the changes when there are many of them.
func bound[K comparable](t *timers[K]) error {
	if t.delta.IDs.Len() < 2*t.limit || t.b.mayWait() && t.delta.IDs.Len() < 4*t.limit {
		return nil
	}
	return writeTimers(t)
}

// writeTimers stores the changes at once.
func writeTimers[K comparable](t *timers[K]) error {
	if t.delta.IDs.Len() == 0 {
		return nil
	}
	err := t.b.settle()
	if err != nil {
		return err
	}
	batch, err := t.b.batch()
	if err == nil {
		if err = t.flush(batch); err == nil {
			err = t.b.apply(batch)
		}
		err = errors.Join(err, batch.Close())
	}
	if err != nil {
		return fmt.Errorf("pebble: timers %q: write: %w", t.desc.Name, err)
	}
	return nil
}

// flush implements set.
func (t *timers[K]) flush(batch batch) error {
	for _, p := range t.delta.Pages {
		for i := range p.Keys {
			if p.Live>>i&1 == 0 {
				continue
			}
			k := &p.Keys[i]
			t.kb = appendOrdered(appendGroup(t.kb[:0], t.id, int(state.GroupOf(k.Hash, t.b.cfg.MaxParallelism))), k.At)
			t.kb = t.desc.Key.Append(appendOrdered(t.kb, k.NS), k.K)
			var err error
			if p.Vals[i] == removed {
				err = batch.Delete(t.kb, nil)
			} else {
				err = batch.Set(t.kb, nil, nil)
			}
			if err != nil {
				return err
			}
		}
	}
	slots.Drop(t.delta)
	return nil
}

// spill moves the later half of the timers in memory to Pebble.
func spill[K comparable](t *timers[K]) error {
	if t.b.mayWait() && timerset.Len(t.near) < 2*t.limit {
		return nil
	}
	times := make([]int64, 0, timerset.Len(t.near))
	timerset.Each(t.near, func(k *timerset.Key[K]) bool {
		times = append(times, k.At)
		return true
	})
	state.SortNamespaces(times)
	h := times[len(times)/2]
	if h == times[0] { // more than half are due at the same time
		i, _ := state.FindNamespace(times, h+1)
		if h == math.MaxInt64 || i == len(times) {
			t.limit *= 2
			return nil
		}
		h = times[i]
	}
	if err := writeTimers(t); err != nil {
		return err
	}
	keep := timerset.New[K](slots.NewClock())
	timerset.Each(t.near, func(k *timerset.Key[K]) bool {
		if k.At < h {
			timerset.Add(keep, *k)
		} else {
			t.far++
		}
		return true
	})
	t.near, t.horizon, t.whole = keep, h, false
	return nil
}

// refill loads the next timers from Pebble when there are none in memory. Afterwards near is not empty or whole is set.
func refill[K comparable](t *timers[K]) error {
	if t.whole || timerset.Len(t.near) > 0 {
		return nil
	}
	if err := writeTimers(t); err != nil {
		return err
	}
	if err := t.b.settle(); err != nil {
		return err
	}
	if err := loadTimers(t); err != nil {
		return fmt.Errorf("pebble: timers %q: load: %w", t.desc.Name, err)
	}
	return nil
}

// loadTimers reads the earliest timers of every key group: at most perGroup of them decide up to which time all are loaded.
func loadTimers[K comparable](t *timers[K]) (err error) {
	it, err := t.b.db.iter(nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	r := t.b.cfg.Range
	perGroup := max(t.limit/2/max(r.End-r.Start, 1), 16)
	last, cut := int64(math.MaxInt64), false
	for g := r.Start; g < r.End; g++ {
		n := 0
		for ok := seekTimer(t, it, g); ok && n < perGroup; ok = it.Next() {
			if n++; n == perGroup {
				k := it.Key()
				if err := whole(canonical.KindTimers, k); err != nil {
					return err
				}
				if at := ordered(k[groupPrefix:]); !cut || at < last {
					last, cut = at, true
				}
			}
		}
		if err := it.Error(); err != nil {
			return err
		}
	}
	loaded := 0
	for g := r.Start; g < r.End; g++ {
		for ok := seekTimer(t, it, g); ok; ok = it.Next() {
			k := it.Key()
			if err := whole(canonical.KindTimers, k); err != nil {
				return err
			}
			at := ordered(k[groupPrefix:])
			if at > last {
				break
			}
			key, _, err := t.desc.Key.Decode(k[timerPrefix:])
			if err != nil {
				return err
			}
			timerset.Add(t.near, timerset.Key[K]{K: t.desc.Key.Clone(key), NS: ordered(k[tablePrefix:]), At: at, Hash: state.Hash32(k[timerPrefix:])})
			loaded++
		}
		if err := it.Error(); err != nil {
			return err
		}
	}
	t.far = max(t.far-loaded, 0)
	if !cut || last == math.MaxInt64 {
		t.whole, t.far = true, 0
	} else {
		t.horizon = last + 1
	}
	return nil
}

// seekTimer goes to the first timer of a key group that is not in memory.
func seekTimer[K comparable](t *timers[K], it iterator, g int) bool {
	prefix := appendGroup(nil, t.id, g)
	it.SetBounds(appendOrdered(prefix, t.horizon), after(prefix))
	return it.First()
}

// Next implements state.Timers. When timers cannot be read it returns a time that is due, and PopUntil the error.
func (t *timers[K]) Next() (int64, bool) {
	if t.err = refill(t); t.err != nil {
		return math.MinInt64, true
	}
	return timerset.Next(t.near)
}

// PopUntil implements state.Timers.
func (t *timers[K]) PopUntil(until int64, fn func(k state.Key[K], ns state.Namespace, at int64) error) error {
	for {
		if err := refill(t); err != nil {
			return err
		}
		k, ok := timerset.Pop(t.near, until)
		if !ok {
			return nil
		}
		gone(t, k)
		if err := fn(state.Key[K]{Key: k.K, Hash: k.Hash, Group: state.GroupOf(k.Hash, t.b.cfg.MaxParallelism)}, k.NS, k.At); err != nil {
			return err
		}
		if err := bound(t); err != nil {
			return err
		}
	}
}

// Len implements state.Timers; timers on disk are estimated.
func (t *timers[K]) Len() int { return timerset.Len(t.near) + t.far }

// loadCanonicalTimers writes restored timers to Pebble.
func loadCanonicalTimers[K comparable](t *timers[K], stored *bool) error {
	if _, ok := t.b.restored[t.desc.Name]; !ok {
		return nil
	}
	*stored = true
	l := loader{b: t.b}
	return l.load(t.desc.Name, func(e *canonical.Entry, batch batch) error {
		if _, err := canonical.DecodeKey(t.desc.Key, e, t.b.cfg.MaxParallelism); err != nil {
			return err
		}
		t.kb = appendOrdered(appendGroup(t.kb[:0], t.id, e.Group), e.At)
		t.kb = append(appendOrdered(t.kb, e.Namespace), e.Key...)
		t.far++
		return batch.Set(t.kb, nil, nil)
	})
}
