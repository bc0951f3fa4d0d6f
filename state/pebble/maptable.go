package pebble

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// OpenMap returns the map table with the restored entries of its name, as OpenTable does. The entries of a key's map lie together, as
// its encoded key is their prefix.
func OpenMap[K, S comparable, V any](b *Backend, desc state.MapDesc[K, S, V]) (state.MapTable[K, S, V], error) {
	t, err := openTable(b, desc.Table(b.cfg.MaxParallelism), func(p *state.Pair[K, S]) uint32 { return p.Hash })
	if err != nil {
		return nil, err
	}
	if desc.Key.Pointers() {
		t.share = func(s *nspace[state.Pair[K, S], V], k state.Pair[K, S]) state.Pair[K, S] { // all cached entries of a map hold one copy of its key
			if id, ok := s.chains.First(k.Hash); ok {
				if p, i := slots.At(s.space, id); p.Keys[i].Key == k.Key {
					k.Key, k.Sub = p.Keys[i].Key, desc.Sub.Clone(k.Sub)
					return k
				}
			}
			return t.desc.Key.Clone(k)
		}
	}
	return &mapTable[K, S, V]{table: t, desc: desc, subs: state.NewHasher(desc.Sub)}, nil
}

type mapTable[K, S comparable, V any] struct {
	*table[state.Pair[K, S], V]
	desc   state.MapDesc[K, S, V]
	subs   *state.Hasher[S]
	prefix []byte
}

// Entry implements state.MapTable.
func (m *mapTable[K, S, V]) Entry(k state.Key[K], sub S) state.Key[state.Pair[K, S]] {
	return state.Key[state.Pair[K, S]]{
		Key:  state.Pair[K, S]{Key: k.Key, Sub: sub, Hash: k.Hash},
		Hash: state.PairHash(k.Hash, m.subs.Hash(sub), m.b.cfg.MaxParallelism), Group: k.Group,
	}
}

// Each implements state.MapTable: first the cached entries, then those in Pebble that are not cached.
func (m *mapTable[K, S, V]) Each(k state.Key[K], ns state.Namespace, fn func(sub S, v *V) error) error {
	s := spaceOf(m.table, ns)
	if s == nil {
		return nil
	}
	for id, ok := s.chains.First(k.Hash); ok; id, ok = s.chains.Next(id) {
		if p, i := slots.At(s.space, id); p.Keys[i].Key == k.Key && p.Gone>>i&1 == 0 {
			if err := fn(p.Keys[i].Sub, &p.Vals[i]); err != nil {
				return err
			}
		}
	}
	return eachStored(m, s, k, func(p state.Pair[K, S], b []byte) error {
		v, err := decodeValue(m.table, b)
		if err != nil {
			return err
		}
		if m.desc.Sub.Views() {
			p.Sub = m.desc.Sub.Clone(p.Sub)
		}
		if m.desc.Value.Views() {
			v = m.desc.Value.Clone(v)
		}
		return fn(p.Sub, &v)
	})
}

// eachStored calls fn for every entry of k's map in Pebble that is not cached; both arguments are views.
func eachStored[K, S comparable, V any](m *mapTable[K, S, V], s *nspace[state.Pair[K, S], V], k state.Key[K], fn func(p state.Pair[K, S], b []byte) error) (err error) {
	if !s.stored.has(int(k.Group) - m.start) {
		return nil
	}
	m.prefix = m.desc.Key.Append(appendNamespace(m.prefix[:0], m.id, int(k.Group), s.ns), k.Key)
	it, err := m.b.db.iter(m.prefix, after(m.prefix))
	if err != nil {
		return fmt.Errorf("pebble: state %q: scan: %w", m.desc.Name, err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("pebble: state %q: scan: %w", m.desc.Name, cerr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		enc := it.Key()[len(m.prefix):]
		sub, _, err := m.desc.Sub.Decode(enc)
		if err != nil {
			return err
		}
		p := state.Pair[K, S]{Key: k.Key, Sub: sub, Hash: k.Hash}
		if _, cached := slots.Find(s.space, state.PairHash(k.Hash, state.Hash32(enc), m.b.cfg.MaxParallelism), p); cached {
			continue
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := fn(p, b); err != nil {
			return err
		}
	}
	return it.Error()
}

// fewEntries is up to how many entries Clear deletes one by one: a range deletion slows down later reads in its neighbourhood.
const fewEntries = 64

var errMany = errors.New("more entries")

// Clear implements state.MapTable.
func (m *mapTable[K, S, V]) Clear(k state.Key[K], ns state.Namespace) error {
	s := spaceOf(m.table, ns)
	if s == nil {
		return nil
	}
	var subs []S
	note := func(sub S) error {
		if subs = append(subs, sub); len(subs) > fewEntries {
			return errMany
		}
		return nil
	}
	err := eachStored(m, s, k, func(p state.Pair[K, S], _ []byte) error { return note(m.desc.Sub.Clone(p.Sub)) })
	if errors.Is(err, errMany) {
		if err := deleteRange(m, k, ns); err != nil {
			return fmt.Errorf("pebble: state %q: clear: %w", m.desc.Name, err)
		}
		for id, ok := s.chains.First(k.Hash); ok; {
			next, more := s.chains.Next(id)
			if p, i := slots.At(s.space, id); p.Keys[i].Key == k.Key {
				if p.Gone>>i&1 == 0 {
					s.present--
					m.n = max(m.n-1, 0)
				}
				remove(m.table, s, id)
			}
			id, ok = next, more
		}
		return nil
	}
	if err != nil {
		return err
	}
	for id, ok := s.chains.First(k.Hash); ok; id, ok = s.chains.Next(id) {
		if p, i := slots.At(s.space, id); p.Keys[i].Key == k.Key && p.Gone>>i&1 == 0 {
			subs = append(subs, p.Keys[i].Sub)
		}
	}
	for _, sub := range subs {
		if err := m.Delete(m.Entry(k, sub), ns); err != nil {
			return err
		}
	}
	return nil
}

// deleteRange removes what Pebble holds of k's map at once.
func deleteRange[K, S comparable, V any](m *mapTable[K, S, V], k state.Key[K], ns state.Namespace) error {
	if err := m.b.settle(); err != nil {
		return err
	}
	x, err := m.b.batch()
	if err != nil {
		return err
	}
	m.last.page = nil
	prefix := m.desc.Key.Append(appendNamespace(nil, m.id, int(k.Group), ns), k.Key)
	err = x.DeleteRange(prefix, after(prefix), nil)
	if err == nil {
		err = m.b.db.write(x)
	}
	return errors.Join(err, x.Close())
}
