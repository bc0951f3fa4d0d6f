package onekey

import (
	"github.com/thalweg/thalweg/state"
)

// OpenMap returns the map table of a name.
func OpenMap[K, S comparable, V any](b *Backend, desc state.MapDesc[K, S, V]) (state.MapTable[K, S, V], error) {
	t, err := open(b, desc.Name, func() *mapTable[K, S, V] {
		return &mapTable[K, S, V]{desc: desc, subs: state.NewHasher(desc.Sub), max: b.cfg.MaxParallelism, spaces: map[state.Namespace]map[S]*V{}}
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// mapTable holds the maps of a key by namespace.
type mapTable[K, S comparable, V any] struct {
	holder[K]
	desc   state.MapDesc[K, S, V]
	subs   *state.Hasher[S]
	max    int
	spaces map[state.Namespace]map[S]*V // none is empty
	n      int
}

func (m *mapTable[K, S, V]) clear() {
	if m.n > 0 {
		clear(m.spaces)
		m.n = 0
	}
}

// Entry implements state.MapTable.
func (m *mapTable[K, S, V]) Entry(k state.Key[K], sub S) state.Key[state.Pair[K, S]] {
	return state.Key[state.Pair[K, S]]{Key: state.Pair[K, S]{Key: k.Key, Sub: sub, Hash: k.Hash}, Hash: state.PairHash(k.Hash, m.subs.Hash(sub), m.max), Group: k.Group}
}

// entriesOf is a key's map, nil when it has none.
func entriesOf[K, S comparable, V any](m *mapTable[K, S, V], k K, ns state.Namespace) map[S]*V {
	if m.n == 0 || m.cur.Key != k {
		return nil
	}
	return m.spaces[ns]
}

// Get implements state.Table.
func (m *mapTable[K, S, V]) Get(k state.Key[state.Pair[K, S]], ns state.Namespace) (v V, found bool, err error) {
	if p := entriesOf(m, k.Key.Key, ns)[k.Key.Sub]; p != nil {
		return *p, true, nil
	}
	return v, false, nil
}

// Put implements state.Table.
func (m *mapTable[K, S, V]) Put(k state.Key[state.Pair[K, S]], ns state.Namespace, v V) error {
	p, _, err := m.Ref(k, ns)
	if err == nil {
		*p = m.desc.Value.Clone(v)
	}
	return err
}

// Ref implements state.Table.
func (m *mapTable[K, S, V]) Ref(k state.Key[state.Pair[K, S]], ns state.Namespace) (p *V, found bool, err error) {
	if m.n == 0 {
		m.cur = state.Key[K]{Key: m.desc.Key.Clone(k.Key.Key), Hash: k.Key.Hash, Group: k.Group}
	} else if m.cur.Key != k.Key.Key {
		return nil, false, errTwoKeys
	}
	s := m.spaces[ns]
	if s == nil {
		s = map[S]*V{}
		m.spaces[ns] = s
	}
	if p = s[k.Key.Sub]; p != nil {
		return p, true, nil
	}
	p = new(V)
	s[m.desc.Sub.Clone(k.Key.Sub)] = p
	m.n++
	return p, false, nil
}

// Delete implements state.Table.
func (m *mapTable[K, S, V]) Delete(k state.Key[state.Pair[K, S]], ns state.Namespace) error {
	s := entriesOf(m, k.Key.Key, ns)
	if s[k.Key.Sub] == nil {
		return nil
	}
	delete(s, k.Key.Sub)
	m.n--
	if len(s) == 0 {
		delete(m.spaces, ns)
	}
	return nil
}

// Namespaces implements state.Table.
func (m *mapTable[K, S, V]) Namespaces(dst []state.Namespace) ([]state.Namespace, error) {
	n := len(dst)
	for ns := range m.spaces {
		dst = append(dst, ns)
	}
	state.SortNamespaces(dst[n:])
	return dst, nil
}

// Scan implements state.Table.
func (m *mapTable[K, S, V]) Scan(ns state.Namespace, fn func(k state.Key[state.Pair[K, S]], v *V) error) error {
	return m.Each(m.cur, ns, func(sub S, v *V) error { return fn(m.Entry(m.cur, sub), v) })
}

// DropNamespace implements state.Table.
func (m *mapTable[K, S, V]) DropNamespace(ns state.Namespace) error {
	m.n -= len(m.spaces[ns])
	delete(m.spaces, ns)
	return nil
}

// Len implements state.Table.
func (m *mapTable[K, S, V]) Len() int { return m.n }

// Each implements state.MapTable.
func (m *mapTable[K, S, V]) Each(k state.Key[K], ns state.Namespace, fn func(sub S, v *V) error) error {
	for sub, v := range entriesOf(m, k.Key, ns) {
		if err := fn(sub, v); err != nil {
			return err
		}
	}
	return nil
}

// Clear implements state.MapTable.
func (m *mapTable[K, S, V]) Clear(k state.Key[K], ns state.Namespace) error {
	if entriesOf(m, k.Key, ns) == nil {
		return nil
	}
	return m.DropNamespace(ns)
}
