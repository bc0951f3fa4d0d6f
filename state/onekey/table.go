package onekey

import (
	"slices"
	"sort"

	"github.com/thalweg/thalweg/state"
)

// OpenTable returns the table of a name.
func OpenTable[K comparable, V any](b *Backend, desc state.TableDesc[K, V]) (state.Table[K, V], error) {
	t, err := open(b, desc.Name, func() *table[K, V] { return &table[K, V]{desc: desc} })
	if err != nil {
		return nil, err
	}
	return t, nil
}

// table holds the values of a key by namespace: in nearly all cases one, or windows that come and go in order.
type table[K comparable, V any] struct {
	holder[K]
	desc    state.TableDesc[K, V]
	entries []entry[V] // ascending by namespace, from head on
	head    int        // entries before were removed
}

type entry[V any] struct {
	ns state.Namespace
	v  V
}

func live[K comparable, V any](t *table[K, V]) []entry[V] { return t.entries[t.head:] }

// find is the index into live of a namespace, or where it belongs.
func find[K comparable, V any](t *table[K, V], ns state.Namespace) (i int, found bool) {
	l := live(t)
	if n := len(l); n == 0 || l[n-1].ns < ns {
		return n, false
	} else if l[n-1].ns == ns {
		return n - 1, true
	}
	i = sort.Search(len(l), func(i int) bool { return l[i].ns >= ns })
	return i, l[i].ns == ns
}

// at finds the value of a key; a key that is not held has none.
func at[K comparable, V any](t *table[K, V], k state.Key[K], ns state.Namespace) (i int, found bool) {
	if t.Len() == 0 || t.cur.Key != k.Key {
		return 0, false
	}
	return find(t, ns)
}

// own finds the value of the key or makes it.
func own[K comparable, V any](t *table[K, V], k state.Key[K], ns state.Namespace) (v *V, found bool, err error) {
	if t.Len() == 0 {
		t.cur = k
		t.cur.Key = t.desc.Key.Clone(k.Key)
	} else if t.cur.Key != k.Key {
		return nil, false, errTwoKeys
	}
	i, found := find(t, ns)
	if !found {
		t.entries = slices.Insert(t.entries, t.head+i, entry[V]{ns: ns})
	}
	return &t.entries[t.head+i].v, found, nil
}

func remove[K comparable, V any](t *table[K, V], i int) {
	if i == 0 {
		t.entries[t.head] = entry[V]{}
		t.head++
	} else {
		t.entries = slices.Delete(t.entries, t.head+i, t.head+i+1)
	}
	if t.head == len(t.entries) {
		t.entries, t.head = t.entries[:0], 0
	}
}

func (t *table[K, V]) clear() {
	clear(t.entries[t.head:])
	t.entries, t.head = t.entries[:0], 0
	if cap(t.entries) > 1<<12 { // what one large key took is given back
		t.entries = nil
	}
}

// Get implements state.Table.
func (t *table[K, V]) Get(k state.Key[K], ns state.Namespace) (v V, found bool, err error) {
	if i, ok := at(t, k, ns); ok {
		return t.entries[t.head+i].v, true, nil
	}
	return v, false, nil
}

// Put implements state.Table.
func (t *table[K, V]) Put(k state.Key[K], ns state.Namespace, v V) error {
	p, _, err := own(t, k, ns)
	if err == nil {
		*p = t.desc.Value.Clone(v)
	}
	return err
}

// Ref implements state.Table.
func (t *table[K, V]) Ref(k state.Key[K], ns state.Namespace) (p *V, found bool, err error) {
	return own(t, k, ns)
}

// Delete implements state.Table.
func (t *table[K, V]) Delete(k state.Key[K], ns state.Namespace) error {
	if i, ok := at(t, k, ns); ok {
		remove(t, i)
	}
	return nil
}

// Namespaces implements state.Table.
func (t *table[K, V]) Namespaces(dst []state.Namespace) ([]state.Namespace, error) {
	for i := range live(t) {
		dst = append(dst, live(t)[i].ns)
	}
	return dst, nil
}

// Scan implements state.Table.
func (t *table[K, V]) Scan(ns state.Namespace, fn func(k state.Key[K], v *V) error) error {
	if i, ok := find(t, ns); ok {
		return fn(t.cur, &t.entries[t.head+i].v)
	}
	return nil
}

// DropNamespace implements state.Table.
func (t *table[K, V]) DropNamespace(ns state.Namespace) error {
	if i, ok := find(t, ns); ok {
		remove(t, i)
	}
	return nil
}

// Len implements state.Table.
func (t *table[K, V]) Len() int { return len(t.entries) - t.head }
