package hashmap

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// OpenMap returns the map table with the restored entries of its name, as OpenTable does.
func OpenMap[K, S comparable, V any](b *Backend, desc state.MapDesc[K, S, V]) (state.MapTable[K, S, V], error) {
	t, err := openTable(b, desc.Table(b.cfg.MaxParallelism), func(p *state.Pair[K, S]) uint32 { return p.Hash })
	if err != nil {
		return nil, err
	}
	if desc.Key.Pointers() {
		t.share = func(ns state.Namespace, k state.Pair[K, S]) state.Pair[K, S] { // all entries of a map hold one copy of its key
			if c := t.chains[ns]; c != nil {
				if id, ok := c.First(k.Hash); ok {
					if p, i := slots.At(space(t, ns), id); p.Keys[i].Key == k.Key {
						k.Key, k.Sub = p.Keys[i].Key, desc.Sub.Clone(k.Sub)
						return k
					}
				}
			}
			return t.desc.Key.Clone(k)
		}
	}
	return &mapTable[K, S, V]{t, state.NewHasher(desc.Sub)}, nil
}

type mapTable[K, S comparable, V any] struct {
	*table[state.Pair[K, S], V]
	subs *state.Hasher[S]
}

// Entry implements state.MapTable.
func (m *mapTable[K, S, V]) Entry(k state.Key[K], sub S) state.Key[state.Pair[K, S]] {
	return state.Key[state.Pair[K, S]]{
		Key:  state.Pair[K, S]{Key: k.Key, Sub: sub, Hash: k.Hash},
		Hash: state.PairHash(k.Hash, m.subs.Hash(sub), m.b.cfg.MaxParallelism), Group: k.Group,
	}
}

// Each implements state.MapTable.
func (m *mapTable[K, S, V]) Each(k state.Key[K], ns state.Namespace, fn func(sub S, v *V) error) error {
	s, c := space(m.table, ns), m.chains[ns]
	if s == nil {
		return nil
	}
	for id, ok := c.First(k.Hash); ok; id, ok = c.Next(id) {
		if p, i := slots.At(s, id); p.Keys[i].Key == k.Key {
			if err := fn(p.Keys[i].Sub, &p.Vals[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clear implements state.MapTable.
func (m *mapTable[K, S, V]) Clear(k state.Key[K], ns state.Namespace) error {
	m.last.page = nil
	s, c := space(m.table, ns), m.chains[ns]
	if s == nil {
		return nil
	}
	for id, ok := c.First(k.Hash); ok; {
		next, more := c.Next(id)
		if p, i := slots.At(s, id); p.Keys[i].Key == k.Key {
			remove(m.table, s, ns, id)
		}
		id, ok = next, more
	}
	return dropEmpty(m.table, s, ns)
}

// Sweep implements state.Sweeper: pages are looked at in order, namespace by namespace.
func (t *table[K, V]) Sweep(n int) error {
	ttl := t.desc.TTL
	if ttl == nil {
		return nil
	}
	now, wrapped := ttl.Now(), false
	for n > 0 {
		if len(t.hand.order) == 0 {
			if wrapped || len(t.spaces) == 0 {
				return nil
			}
			wrapped = true
			for ns := range t.spaces {
				t.hand.order = append(t.hand.order, ns)
			}
			t.hand.page = 0
		}
		ns := t.hand.order[0]
		s := t.spaces[ns]
		if s == nil || t.hand.page >= len(s.Pages) {
			t.hand.order, t.hand.page = t.hand.order[1:], 0
			continue
		}
		n -= sweepPage(t, s, ns, now)
		t.hand.page++
		if err := dropEmpty(t, s, ns); err != nil {
			return err
		}
	}
	return nil
}

func sweepPage[K comparable, V any](t *table[K, V], s *slots.Space[K, V], ns state.Namespace, now int64) (seen int) {
	first := uint32(t.hand.page) * slots.PageLen
	for i := range uint32(len(s.Pages[t.hand.page].Hash)) {
		p := s.Pages[t.hand.page] // a write may put another in its place
		if p.Live>>i&1 == 0 {
			continue
		}
		seen++
		left, keep, changed := t.desc.TTL.Live(p.Vals[i], now)
		switch {
		case !keep:
			t.last.page = nil
			remove(t, s, ns, first+i)
		case changed:
			w, j := slots.Writable(s, first+i)
			w.Vals[j] = left
			w.Owned &^= 1 << j // elements may still be those of a frozen page
			t.last.page = nil
		}
	}
	return max(seen, 1)
}

func remove[K comparable, V any](t *table[K, V], s *slots.Space[K, V], ns state.Namespace, id uint32) {
	if t.owner != nil {
		t.chains[ns].Remove(id)
	}
	slots.Delete(s, id)
	t.n--
}

func dropEmpty[K comparable, V any](t *table[K, V], s *slots.Space[K, V], ns state.Namespace) error {
	if s.IDs.Len() > 0 {
		return nil
	}
	return t.DropNamespace(ns)
}

// chain notes an entry that was added.
func chain[K comparable, V any](t *table[K, V], ns state.Namespace, id uint32, k *K) {
	c := t.chains[ns]
	if c == nil {
		c = &slots.Chains{}
		t.chains[ns] = c
	}
	c.Add(t.owner(k), id)
}

func openTwice(name string) error {
	return fmt.Errorf("hashmap: open %q: it is open already as another kind or with other types", name)
}
