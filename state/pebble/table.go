package pebble

import (
	"errors"
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

// openTable opens a table; with owner set, its cached entries are found by owner, too.
func openTable[K comparable, V any](b *Backend, desc state.TableDesc[K, V], owner func(*K) uint32) (*table[K, V], error) {
	if s, ok := b.names[desc.Name]; ok {
		t, ok := s.(*table[K, V])
		if !ok {
			return nil, fmt.Errorf("pebble: open %q: it is open already as another kind or with other types", desc.Name)
		}
		return t, nil
	}
	t := &table[K, V]{b: b, desc: desc, owner: owner, start: b.cfg.Range.Start, pool: slots.NewPool[K, entry[V]](slots.NewClock()), spaces: map[state.Namespace]*nspace[K, V]{}}
	m, stored, err := b.register(t.describe())
	if err != nil {
		return nil, err
	}
	t.id, t.version = m.ID, byte(len(m.Values)-1)
	if desc.TTL != nil && m.enabled(desc.TTL.Now) {
		b.metaChanged = true
	}
	for v, schema := range m.Values {
		c, err := desc.Reader(schema, m.Since[v])
		if err != nil {
			return nil, fmt.Errorf("pebble: open %q: value, version %d: %w", desc.Name, v, err)
		}
		t.versions = append(t.versions, c)
	}
	var e slots.Page[K, entry[V]]
	t.cost = int64(unsafe.Sizeof(e.Keys[:1:1][0])+unsafe.Sizeof(e.Vals[:1:1][0])) + 24
	t.copyKey, t.copyVal = desc.Key.Pointers(), desc.Value.Pointers()
	if p, ok := serde.Packing(desc.Value); ok {
		t.texts = slots.NewTextsOf[K](packer[V]{p})
	}
	if t.copyKey {
		t.cost += 32
	}
	t.fixed = t.cost
	if t.copyVal {
		t.mean = 64
		t.cost += int64(t.mean)
	}
	if stored {
		if err := t.findNamespaces(); err != nil {
			return nil, fmt.Errorf("pebble: open %q: %w", desc.Name, err)
		}
	}
	if err := t.loadCanonical(); err != nil {
		return nil, fmt.Errorf("pebble: open %q: restore: %w", desc.Name, err)
	}
	b.names[desc.Name] = t
	b.sets = append(b.sets, t)
	return t, nil
}

// entry is a cached value. gone marks a deletion that Pebble does not know yet.
type entry[V any] struct {
	v    V
	gone bool
}

// packer packs the strings of entries.
type packer[V any] struct{ serde.Packer[V] }

func (p packer[V]) TextLen(e *entry[V]) int { return p.Packer.TextLen(&e.v) }

func (p packer[V]) Pack(dst []byte, e *entry[V]) []byte { return p.Packer.Pack(dst, &e.v) }

// nspace is one namespace.
type nspace[K comparable, V any] struct {
	ns      state.Namespace
	space   *slots.Space[K, entry[V]]
	present int      // cached entries that are not gone
	stored  groupSet // key groups that may have entries in Pebble
	dirty   []uint32 // pages with dirty slots, and perhaps some without
	chains  slots.Chains
}

// mark notes that an entry is to be written.
func (s *nspace[K, V]) mark(id uint32, p *slots.Page[K, entry[V]], i uint32) {
	if p.Dirty == 0 {
		if n := len(s.dirty); n > 64 && n > 4*len(s.space.Pages()) { // evictions and changes in turn
			slices.Sort(s.dirty)
			s.dirty = slices.Compact(s.dirty)
		}
		s.dirty = append(s.dirty, id/slots.PageLen)
	}
	p.Dirty |= 1 << i
}

type table[K comparable, V any] struct {
	// The place of the last entry that was found or made, and is not gone: what is read is often written next. Everything that takes
	// entries out of the cache, or that may put another page in place of one, sets or clears it.
	last struct {
		page  *slots.Page[K, entry[V]]
		space *nspace[K, V]
		id    uint32
		hash  uint32
	}
	lastSpace *nspace[K, V]

	b                *Backend
	desc             state.TableDesc[K, V]
	id               uint16
	version          byte
	versions         []serde.Codec[V]
	start            int
	pool             *slots.Pool[K, entry[V]]
	spaces           map[state.Namespace]*nspace[K, V]
	cached           int   // entries in all spaces
	cost             int64 // bytes of an entry, estimated: fixed, and what values point to, which is about their encoded size
	fixed            int64
	mean             float64 // encoded size of recent values
	n                int
	copyKey, copyVal bool
	texts            *slots.Texts[K, entry[V]] // of values that hold nothing but strings
	kb, vb, fb       []byte
	hand             struct { // of the eviction clock
		order []state.Namespace
		page  int
	}
	probe uint32
	owner func(*K) uint32              // of maps
	share func(s *nspace[K, V], k K) K // of maps whose keys hold pointers: the copy to keep of an entry's key
	ttl   sweeper
}

func (t *table[K, V]) describe() state.TableMeta {
	return state.TableMeta{Name: t.desc.Name, Kind: canonical.KindTable, Key: t.desc.Key.Schema(), Value: t.desc.Value.Schema(), Stored: -1}
}

func (t *table[K, V]) number() uint16 { return t.id }
func (t *table[K, V]) size() int64    { return int64(t.cached) * t.cost }

func (t *table[K, V]) space(ns state.Namespace) *nspace[K, V] {
	if s := t.lastSpace; s != nil && s.ns == ns {
		return s
	}
	s := t.spaces[ns]
	if s != nil {
		t.lastSpace = s
	}
	return s
}

func (t *table[K, V]) spaceOrNew(ns state.Namespace) *nspace[K, V] {
	s := t.space(ns)
	if s == nil {
		s = &nspace[K, V]{ns: ns, space: slots.NewSpace(t.pool)}
		t.spaces[ns] = s
		t.lastSpace = s
	}
	return s
}

// key encodes a key for Pebble into the table's scratch.
func (t *table[K, V]) key(k K, group int, ns state.Namespace) []byte {
	t.kb = t.desc.Key.Append(appendNamespace(t.kb[:0], t.id, group, ns), k)
	return t.kb
}

// decode decodes a stored value; it is a view of b.
func (t *table[K, V]) decode(b []byte) (v V, err error) {
	if len(b) == 0 || int(b[0]) >= len(t.versions) {
		return v, fmt.Errorf("pebble: state %q: unknown version of a value: %w", t.desc.Name, canonical.ErrCorrupt)
	}
	v, n, err := t.versions[b[0]].Decode(b[1:])
	if err == nil && n != len(b)-1 {
		err = fmt.Errorf("pebble: state %q: value of %d bytes, %d decoded: %w", t.desc.Name, len(b)-1, n, canonical.ErrCorrupt)
	}
	return v, err
}

// fetch reads a value from Pebble. With texts set it is a view, valid until the next fetch, else it is a copy.
func (t *table[K, V]) fetch(s *nspace[K, V], k state.Key[K]) (v V, found bool, err error) {
	if !s.stored.has(int(k.Group) - t.start) {
		return v, false, nil
	}
	b, closer, err := t.b.db.Get(t.key(k.Key, int(k.Group), s.ns))
	if errors.Is(err, errNotFound) {
		return v, false, nil
	}
	if err != nil {
		return v, false, fmt.Errorf("pebble: state %q: get: %w", t.desc.Name, err)
	}
	if t.texts != nil {
		t.fb = append(t.fb[:0], b...)
		b = t.fb
	}
	v, err = t.decode(b)
	if err == nil && t.copyVal {
		t.weigh(len(b))
		if t.texts == nil {
			v = t.desc.Value.Clone(v)
		}
	}
	if cerr := closer.Close(); err == nil {
		err = cerr
	}
	return v, err == nil, err
}

// Get implements state.Table. Values read from Pebble are cached.
func (t *table[K, V]) Get(k state.Key[K], ns state.Namespace) (v V, found bool, err error) {
	if p, i := t.known(&k, ns); p != nil {
		p.Hot |= 1 << i
		return p.Vals[i].v, true, nil
	}
	s := t.space(ns)
	if s == nil {
		return v, false, nil
	}
	if id, ok := s.space.Find(k.Hash, k.Key); ok {
		p, i := s.space.At(id)
		p.Hot |= 1 << i
		if p.Vals[i].gone {
			return v, false, nil
		}
		t.note(s, id, p, k.Hash)
		return p.Vals[i].v, true, nil
	}
	if v, found, err = t.fetch(s, k); err != nil || !found {
		return v, false, err
	}
	id, p, i, err := t.insert(s, k)
	if err != nil {
		return v, false, err
	}
	t.set(p, i, v)
	s.present++
	t.note(s, id, p, k.Hash)
	return p.Vals[i].v, true, nil
}

// set gives an entry a value that fetch returned or that is somebody else's.
func (t *table[K, V]) set(p *slots.Page[K, entry[V]], i uint32, v V) {
	p.Vals[i] = entry[V]{v: v}
	if t.texts != nil {
		t.texts.Keep(p, i)
	}
}

// known is the page and slot of an entry when that was the last one.
func (t *table[K, V]) known(k *state.Key[K], ns state.Namespace) (*slots.Page[K, entry[V]], uint32) {
	l := &t.last
	if l.page == nil || l.hash != k.Hash || l.space.ns != ns {
		return nil, 0
	}
	if i := l.id % slots.PageLen; l.page.Keys[i] == k.Key {
		return l.page, i
	}
	return nil, 0
}

func (t *table[K, V]) note(s *nspace[K, V], id uint32, p *slots.Page[K, entry[V]], hash uint32) {
	l := &t.last
	l.page, l.space, l.id, l.hash = p, s, id, hash
}

// Ref implements state.Table.
func (t *table[K, V]) Ref(k state.Key[K], ns state.Namespace) (*V, bool, error) {
	if p, i := t.known(&k, ns); p != nil {
		if p.Dirty>>i&1 == 0 {
			t.last.space.mark(t.last.id, p, i)
		}
		p.Hot |= 1 << i
		return &p.Vals[i].v, true, nil
	}
	s := t.spaceOrNew(ns)
	found := true
	var p *slots.Page[K, entry[V]]
	var i uint32
	id, ok := s.space.Find(k.Hash, k.Key)
	if ok {
		p, i = s.space.At(id)
		if e := &p.Vals[i]; e.gone {
			*e = entry[V]{}
			s.present++
			t.n++
			found = false
		}
	} else {
		v, ok, err := t.fetch(s, k)
		if err != nil {
			return nil, false, err
		}
		if id, p, i, err = t.insert(s, k); err != nil {
			return nil, false, err
		}
		t.set(p, i, v)
		s.present++
		if found = ok; !ok {
			t.n++
		}
	}
	s.mark(id, p, i)
	p.Hot |= 1 << i
	t.note(s, id, p, k.Hash)
	return &p.Vals[i].v, found, nil
}

// Keep implements state.Keeper.
func (t *table[K, V]) Keep(p *V) bool {
	l := &t.last
	i := l.id % slots.PageLen
	if t.texts == nil || l.page == nil || p != &l.page.Vals[i].v {
		return false
	}
	t.texts.Keep(l.page, i)
	return true
}

// weigh takes the encoded size of a value into the estimate of what a cached one holds.
func (t *table[K, V]) weigh(size int) {
	t.mean += (float64(size) - t.mean) / 64
	held := int64(t.mean)
	if t.texts != nil {
		held += held / 2 // what is free or garbage in the blocks, half full on average when values change
	}
	if cost := t.fixed + held; cost > t.cost+t.cost/8 || cost < t.cost-t.cost/8 {
		t.b.used += int64(t.cached) * (cost - t.cost)
		t.cost = cost
	}
}

// weighEvery is how many entries come into the cache between looks at the size of a value in it: values may grow while nothing is stored.
const weighEvery = 64

// weighOne looks at the value after the last one that it looked at.
func (t *table[K, V]) weighOne(s *nspace[K, V]) {
	pages := s.space.Pages()
	t.probe++
	if p := pages[t.probe%uint32(len(pages))]; p.Live != 0 {
		t.vb = t.desc.Value.Append(t.vb[:0], p.Vals[bits.TrailingZeros64(p.Live)].v)
		t.weigh(len(t.vb))
	}
}

// insert makes a cache entry for a key that is not cached, after making room.
func (t *table[K, V]) insert(s *nspace[K, V], k state.Key[K]) (uint32, *slots.Page[K, entry[V]], uint32, error) {
	t.last.page = nil
	if t.desc.Verify != nil {
		if err := t.desc.Verify(k); err != nil {
			return 0, nil, 0, err
		}
	}
	if t.b.used >= t.b.limit {
		if err := t.b.evict(); err != nil {
			return 0, nil, 0, err
		}
	}
	key := k.Key
	switch {
	case t.share != nil:
		key = t.share(s, key)
	case t.copyKey:
		key = t.desc.Key.Clone(key)
	}
	id, p, i := s.space.Insert(k.Hash, key)
	if t.owner != nil {
		s.chains.Add(t.owner(&p.Keys[i]), id) // not &key, which would move it to the heap for every new key
	}
	t.cached++
	t.b.used += t.cost
	if t.copyVal && t.cached%weighEvery == 0 {
		t.weighOne(s)
	}
	return id, p, i, nil
}

// Put implements state.Table. It does not read Pebble.
func (t *table[K, V]) Put(k state.Key[K], ns state.Namespace, v V) error {
	if t.copyVal && t.texts == nil {
		v = t.desc.Value.Clone(v)
	}
	if p, i := t.known(&k, ns); p != nil {
		if p.Dirty>>i&1 == 0 {
			t.last.space.mark(t.last.id, p, i)
		}
		t.set(p, i, v)
		p.Hot |= 1 << i
		return nil
	}
	s := t.spaceOrNew(ns)
	var p *slots.Page[K, entry[V]]
	var i uint32
	id, ok := s.space.Find(k.Hash, k.Key)
	if ok {
		p, i = s.space.At(id)
		if p.Vals[i].gone {
			s.present++
			t.n++
		}
	} else {
		var err error
		if id, p, i, err = t.insert(s, k); err != nil {
			return err
		}
		s.present++
		if !s.stored.has(int(k.Group) - t.start) {
			t.n++
		}
	}
	t.set(p, i, v)
	s.mark(id, p, i)
	p.Hot |= 1 << i
	t.note(s, id, p, k.Hash)
	return nil
}

// Take implements state.Taker. What is not cached is not read: it is worth nothing here.
func (t *table[K, V]) Take(k state.Key[K], ns state.Namespace) (v V, own bool, err error) {
	if s := t.space(ns); s != nil {
		if id, ok := s.space.Find(k.Hash, k.Key); ok {
			p, i := s.space.At(id)
			v, own = p.Vals[i].v, !p.Vals[i].gone
		}
	}
	return v, own, t.Delete(k, ns)
}

// Delete implements state.Table. It does not read Pebble.
func (t *table[K, V]) Delete(k state.Key[K], ns state.Namespace) error {
	t.last.page = nil
	s := t.space(ns)
	if s == nil {
		return nil
	}
	stored := s.stored.has(int(k.Group) - t.start)
	id, ok := s.space.Find(k.Hash, k.Key)
	if !ok && !stored {
		return nil
	}
	if !ok {
		id, p, i, err := t.insert(s, k)
		if err != nil {
			return err
		}
		p.Vals[i].gone = true
		s.mark(id, p, i)
		return nil
	}
	p, i := s.space.At(id)
	if !p.Vals[i].gone {
		s.present--
		t.n = max(t.n-1, 0)
	}
	if stored {
		p.Vals[i] = entry[V]{gone: true}
		s.mark(id, p, i)
		return nil
	}
	t.remove(s, id)
	if s.space.Len() == 0 && s.stored.empty() {
		return t.DropNamespace(ns)
	}
	return nil
}

// remove takes an entry out of the cache.
func (t *table[K, V]) remove(s *nspace[K, V], id uint32) {
	if t.owner != nil {
		s.chains.Remove(id)
	}
	s.space.Delete(id)
	t.cached--
	t.b.used -= t.cost
}

// Namespaces implements state.Table.
func (t *table[K, V]) Namespaces(dst []state.Namespace) ([]state.Namespace, error) {
	n := len(dst)
	for ns, s := range t.spaces {
		has := s.present > 0
		if !has {
			var err error
			if has, err = t.storedAny(s); err != nil {
				return dst[:n], err
			}
		}
		if has {
			dst = append(dst, ns)
		}
	}
	slices.Sort(dst[n:])
	return dst, nil
}

var errFound = errors.New("found")

// storedAny reports whether Pebble has an entry that the cache does not mark as gone.
func (t *table[K, V]) storedAny(s *nspace[K, V]) (bool, error) {
	err := t.scanStored(s, func(state.Key[K], []byte) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// scanStored calls fn for every entry in Pebble whose key is not cached.
func (t *table[K, V]) scanStored(s *nspace[K, V], fn func(k state.Key[K], stored []byte) error) (err error) {
	if s.stored.empty() {
		return nil
	}
	it, err := t.b.db.iter(nil, nil)
	if err != nil {
		return fmt.Errorf("pebble: state %q: scan: %w", t.desc.Name, err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("pebble: state %q: scan: %w", t.desc.Name, cerr)
		}
	}()
	var prefix []byte
	return s.stored.each(func(i int) error {
		g := i + t.start
		prefix = appendNamespace(prefix[:0], t.id, g, s.ns)
		it.SetBounds(prefix, after(prefix))
		for ok := it.First(); ok; ok = it.Next() {
			enc := it.Key()[tablePrefix:]
			key, _, err := t.desc.Key.Decode(enc)
			if err != nil {
				return err
			}
			h := state.HashEncoded(t.desc.Key, enc)
			if _, cached := s.space.Find(h, key); cached {
				continue
			}
			b, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := fn(state.Key[K]{Key: key, Hash: h, Group: uint16(g)}, b); err != nil {
				return err
			}
		}
		return it.Error()
	})
}

// Scan implements state.Table.
func (t *table[K, V]) Scan(ns state.Namespace, fn func(k state.Key[K], v *V) error) error {
	s := t.space(ns)
	if s == nil {
		return nil
	}
	for _, p := range s.space.Pages() {
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			if p.Vals[i].gone {
				continue
			}
			h := p.Hash[i]
			if err := fn(state.Key[K]{Key: p.Keys[i], Hash: h, Group: state.GroupOf(h, t.b.cfg.MaxParallelism)}, &p.Vals[i].v); err != nil {
				return err
			}
		}
	}
	return t.scanStored(s, func(k state.Key[K], b []byte) error {
		v, err := t.decode(b)
		if err != nil {
			return err
		}
		// Both are views of the iterator's buffers, which the next step overwrites; what fn emits may live on.
		if t.desc.Key.Views() {
			k.Key = t.desc.Key.Clone(k.Key)
		}
		if t.desc.Value.Views() {
			v = t.desc.Value.Clone(v)
		}
		return fn(k, &v)
	})
}

// DropNamespace implements state.Table.
func (t *table[K, V]) DropNamespace(ns state.Namespace) error {
	s := t.spaces[ns]
	if s == nil {
		return nil
	}
	t.last.page, t.lastSpace = nil, nil
	t.cached -= s.space.Len()
	t.b.used -= int64(s.space.Len()) * t.cost
	t.n = max(t.n-s.present, 0)
	s.space.Drop()
	delete(t.spaces, ns)
	return s.stored.each(func(i int) error {
		p := appendNamespace(nil, t.id, i+t.start, ns)
		t.b.drops = append(t.b.drops, keyRange{p, after(p)})
		return nil
	})
}

// Len implements state.Table; it is an estimate: writes to keys that are not cached do not look whether they exist.
func (t *table[K, V]) Len() int { return t.n }
