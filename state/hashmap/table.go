package hashmap

import (
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// OpenTable returns the table with the restored entries of its name. Opening a name again with the same types returns the same table.
func OpenTable[K comparable, V any](b *Backend, desc state.TableDesc[K, V]) (state.Table[K, V], error) {
	t, err := openTable(b, desc, nil)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// openTable opens a table; with owner set, its entries are found by owner, too.
func openTable[K comparable, V any](b *Backend, desc state.TableDesc[K, V], owner func(*K) uint32) (*table[K, V], error) {
	if s, ok := b.names[desc.Name]; ok {
		t, ok := s.(*table[K, V])
		if !ok {
			return nil, openTwice(desc.Name)
		}
		return t, nil
	}
	t := &table[K, V]{b: b, desc: desc, clock: b.clock, pool: slots.NewPool[K, V](b.clock), spaces: map[state.Namespace]*slots.Space[K, V]{}}
	if owner != nil {
		t.owner, t.chains = owner, map[state.Namespace]*slots.Chains{}
	}
	t.mutable = serde.Mutable(desc.Value)
	t.copyKey = desc.Key.Pointers()
	t.texts, _ = serde.Packing(desc.Value)
	t.copyVal = desc.Value.Pointers() && t.texts == nil
	values := canonical.NewReaders(t.desc.Restorer)
	fits := func(stored serde.Schema) error { _, err := t.desc.Restorer(stored); return err }
	if err := add(b, t, fits, func(r canonical.Scanner) error { return t.load(values, r) }); err != nil {
		return nil, err
	}
	return t, nil
}

// table has the methods of its interfaces and no others: each method is compiled, with its wrappers, in every program that has a state of these
// types, whether it is called or not.
type table[K comparable, V any] struct {
	clock *slots.Clock
	// The place of the last entry that was found or made: most streams hit some keys again and again, and what is read is often written
	// next. Everything that may put another page in place of one sets or clears it.
	last struct {
		page *slots.Page[K, V]
		slot uint32
		hash uint32
		ns   state.Namespace
	}
	lastNS    state.Namespace
	lastSpace *slots.Space[K, V]

	b                         *Backend
	desc                      state.TableDesc[K, V]
	pool                      *slots.Pool[K, V]
	spaces                    map[state.Namespace]*slots.Space[K, V]
	n                         int
	mutable, copyKey, copyVal bool
	texts                     serde.Packer[V]                 // of values that hold nothing but strings
	owner                     func(*K) uint32                 // of maps
	share                     func(ns state.Namespace, k K) K // of maps whose keys hold pointers: the copy to keep of an entry's key
	chains                    map[state.Namespace]*slots.Chains
	hand                      struct { // of Sweep
		order []state.Namespace
		page  int
	}
}

// space returns the space of ns, nil when it holds nothing.
func space[K comparable, V any](t *table[K, V], ns state.Namespace) *slots.Space[K, V] {
	if t.lastSpace != nil && t.lastNS == ns {
		return t.lastSpace
	}
	s := t.spaces[ns]
	if s != nil {
		t.lastNS, t.lastSpace = ns, s
	}
	return s
}

func newSpace[K comparable, V any](t *table[K, V], ns state.Namespace) *slots.Space[K, V] {
	s := slots.NewSpace(t.pool)
	t.spaces[ns] = s
	t.lastNS, t.lastSpace = ns, s
	return s
}

// Get implements state.Table.
func (t *table[K, V]) Get(k state.Key[K], ns state.Namespace) (v V, found bool, err error) {
	if p := known(t, &k, ns); p != nil {
		return p.Vals[t.last.slot], true, nil
	}
	s := space(t, ns)
	if s == nil {
		return v, false, nil
	}
	id, ok := slots.Find(s, k.Hash, k.Key)
	if !ok {
		return v, false, nil
	}
	p, i := slots.At(s, id)
	note(t, p, i, k.Hash, ns)
	return p.Vals[i], true, nil
}

// known is the page of an entry when that was the last one, at slot t.last.slot.
func known[K comparable, V any](t *table[K, V], k *state.Key[K], ns state.Namespace) *slots.Page[K, V] {
	if p := t.last.page; p != nil && t.last.hash == k.Hash && t.last.ns == ns && p.Keys[t.last.slot] == k.Key {
		return p
	}
	return nil
}

func note[K comparable, V any](t *table[K, V], p *slots.Page[K, V], i, hash uint32, ns state.Namespace) {
	t.last.page, t.last.slot, t.last.hash, t.last.ns = p, i, hash, ns
}

// Ref implements state.Table.
func (t *table[K, V]) Ref(k state.Key[K], ns state.Namespace) (*V, bool, error) {
	if p := known(t, &k, ns); p != nil && p.Epoch == t.clock.Epoch && (!t.mutable || p.Owned>>t.last.slot&1 != 0) {
		return &p.Vals[t.last.slot], true, nil
	}
	p, i, found, err := place(t, k, ns, true)
	if err != nil {
		return nil, false, err
	}
	return &p.Vals[i], found, nil
}

// Keep implements state.Keeper.
func (t *table[K, V]) Keep(p *V) bool {
	l := &t.last
	if t.texts == nil || l.page == nil || p != &l.page.Vals[l.slot] {
		return false
	}
	slots.KeepTexts(t.texts, &l.page.Head, l.page.Vals, l.slot)
	return true
}

// place finds or makes the writable slot of a key. With own set the value is ready for changes in place.
func place[K comparable, V any](t *table[K, V], k state.Key[K], ns state.Namespace, own bool) (*slots.Page[K, V], uint32, bool, error) {
	s := space(t, ns)
	if s == nil {
		s = newSpace(t, ns)
	} else if id, ok := slots.Find(s, k.Hash, k.Key); ok {
		p, i := slots.Writable(s, id)
		if t.mutable && p.Owned>>i&1 == 0 {
			if own {
				p.Vals[i] = t.desc.Value.Clone(p.Vals[i])
			}
			p.Owned |= 1 << i
		}
		note(t, p, i, k.Hash, ns)
		return p, i, true, nil
	}
	if t.desc.Verify != nil {
		if err := t.desc.Verify(k); err != nil {
			return nil, 0, false, err
		}
	}
	key := k.Key
	switch {
	case t.share != nil:
		key = t.share(ns, key)
	case t.copyKey:
		key = t.desc.Key.Clone(key)
	}
	id, p, i := slots.Insert(s, k.Hash, key)
	t.n++
	note(t, p, i, k.Hash, ns)
	if t.owner != nil {
		chain(t, ns, id, &p.Keys[i]) // not &key, which would move it to the heap for every new key
	}
	return p, i, false, nil
}

// Put implements state.Table.
func (t *table[K, V]) Put(k state.Key[K], ns state.Namespace, v V) error {
	if t.copyVal {
		v = t.desc.Value.Clone(v)
	}
	return store(t, k, ns, v)
}

func store[K comparable, V any](t *table[K, V], k state.Key[K], ns state.Namespace, v V) error {
	p, i := known(t, &k, ns), t.last.slot
	if p != nil && p.Epoch == t.clock.Epoch {
		p.Owned |= 1 << i
	} else {
		var err error
		if p, i, _, err = place(t, k, ns, false); err != nil {
			return err
		}
	}
	p.Vals[i] = v
	if t.texts != nil {
		slots.KeepTexts(t.texts, &p.Head, p.Vals, i)
	}
	return nil
}

// Delete implements state.Table.
func (t *table[K, V]) Delete(k state.Key[K], ns state.Namespace) error {
	s, id, ok := find(t, &k, ns)
	if !ok {
		return nil
	}
	t.last.page = nil
	remove(t, s, ns, id)
	return dropEmpty(t, s, ns)
}

// find looks an entry up. Get and place, which see every record, have it written out.
func find[K comparable, V any](t *table[K, V], k *state.Key[K], ns state.Namespace) (s *slots.Space[K, V], id uint32, ok bool) {
	if s = space(t, ns); s == nil {
		return nil, 0, false
	}
	id, ok = slots.Find(s, k.Hash, k.Key)
	return s, id, ok
}

// Take implements state.Taker.
func (t *table[K, V]) Take(k state.Key[K], ns state.Namespace) (v V, own bool, err error) {
	s, id, ok := find(t, &k, ns)
	if !ok {
		return v, false, nil
	}
	t.last.page = nil
	p, i := slots.At(s, id)
	v, own = p.Vals[i], p.Epoch == t.clock.Epoch && p.Owned>>i&1 != 0
	remove(t, s, ns, id)
	return v, own, dropEmpty(t, s, ns)
}

// Namespaces implements state.Table.
func (t *table[K, V]) Namespaces(dst []state.Namespace) ([]state.Namespace, error) {
	n := len(dst)
	for ns := range t.spaces {
		dst = append(dst, ns)
	}
	state.SortNamespaces(dst[n:])
	return dst, nil
}

// Scan implements state.Table. Changes that fn makes through v are not seen as changes: v is for reading.
func (t *table[K, V]) Scan(ns state.Namespace, fn func(k state.Key[K], v *V) error) error {
	s := space(t, ns)
	if s == nil {
		return nil
	}
	for _, p := range s.Pages {
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			h := p.Hash[i]
			if err := fn(state.Key[K]{Key: p.Keys[i], Hash: h, Group: state.GroupOf(h, t.b.cfg.MaxParallelism)}, &p.Vals[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// DropNamespace implements state.Table.
func (t *table[K, V]) DropNamespace(ns state.Namespace) error {
	t.last.page = nil
	s := t.spaces[ns]
	if s == nil {
		return nil
	}
	if t.lastSpace == s {
		t.lastSpace = nil
	}
	t.n -= s.IDs.Len()
	slots.Drop(s)
	delete(t.spaces, ns)
	delete(t.chains, ns)
	return nil
}

// Len implements state.Table.
func (t *table[K, V]) Len() int { return t.n }

func (t *table[K, V]) meta() state.TableMeta {
	return state.TableMeta{Name: t.desc.Name, Kind: canonical.KindTable, Key: t.desc.Key.Schema(), Value: t.desc.Value.Schema(), Stored: int64(t.n)}
}

func (t *table[K, V]) size() int64 {
	var k K
	var v V
	return int64(t.n) * int64(unsafe.Sizeof(k)+unsafe.Sizeof(v)+16)
}

func (t *table[K, V]) freeze() view {
	t.last.page = nil
	v := &tableView[K, V]{key: t.desc.Key, value: t.desc.Value}
	if t.desc.TTL != nil && t.desc.TTL.Snapshots {
		v.live, v.now = t.desc.TTL.Live, t.desc.TTL.Now()
	}
	for ns, s := range t.spaces {
		v.parts = append(v.parts, frozen[K, V]{ns, slices.Clone(s.Pages)})
	}
	return v
}

func (t *table[K, V]) load(values *canonical.Readers[V], r canonical.Scanner) error {
	return r.Scan(t.desc.Name, func(e *canonical.Entry) error {
		key, err := canonical.DecodeKey(t.desc.Key, e, t.b.cfg.MaxParallelism)
		if err != nil {
			return err
		}
		value, err := values.Of(e)
		if err != nil {
			return err
		}
		v, n, err := value.Decode(e.Value)
		if err != nil {
			return err
		}
		if n != len(e.Value) {
			return fmt.Errorf("value of %d bytes, %d decoded: %w", len(e.Value), n, canonical.ErrCorrupt)
		}
		return t.Put(key, e.Namespace, v)
	})
}
