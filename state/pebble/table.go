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
	t := &table[K, V]{b: b, desc: desc, owner: owner, start: b.cfg.Range.Start, pool: slots.NewPool[K, V](slots.NewClock()), spaces: map[state.Namespace]*nspace[K, V]{}}
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
	var e slots.Page[K, V]
	t.cost = int64(unsafe.Sizeof(e.Keys[:1:1][0])+unsafe.Sizeof(e.Vals[:1:1][0])) + 24
	t.copyKey, t.copyVal = desc.Key.Pointers(), desc.Value.Pointers()
	if texts, ok := serde.Packing(desc.Value); ok {
		t.texts, t.strings = texts, texts.Strings()
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
		if err := findNamespaces(t); err != nil {
			return nil, fmt.Errorf("pebble: open %q: %w", desc.Name, err)
		}
	}
	if err := loadCanonical(t); err != nil {
		return nil, fmt.Errorf("pebble: open %q: restore: %w", desc.Name, err)
	}
	b.openedLater(desc.Name)
	b.names[desc.Name] = t
	b.sets = append(b.sets, t)
	return t, nil
}

// nspace is one namespace. An entry that is gone was deleted, and Pebble does not know it yet.
type nspace[K comparable, V any] struct {
	ns      state.Namespace
	space   *slots.Space[K, V]
	present int      // cached entries that are not gone
	stored  groupSet // key groups that may have entries in Pebble
	dirty   []uint32 // pages with dirty slots, and perhaps some without
	changes int      // entries that have become dirty since the last look; see ahead
	look    uint32   // looks so far
	hand    int      // of the looks, in dirty
	chains  slots.Chains
}

// distinct sorts pages, of so many, and leaves out what is there twice. Like state.SortNamespaces it keeps sorting out of what is generic.
func distinct(pages []uint32, of int) []uint32 {
	if len(pages) < of/64 {
		slices.Sort(pages)
		return slices.Compact(pages)
	}
	in := make([]uint64, of/64+1)
	for _, p := range pages {
		in[p/64] |= 1 << (p % 64)
	}
	pages = pages[:0]
	for i, word := range in {
		for ; word != 0; word &= word - 1 {
			pages = append(pages, uint32(i*64+bits.TrailingZeros64(word))) //nolint:gosec // below of
		}
	}
	return pages
}

// mark notes that an entry is to be written.
func mark[K comparable, V any](t *table[K, V], s *nspace[K, V], id uint32, p *slots.Page[K, V], i uint32) {
	p.Changed = s.look
	if p.Dirty>>i&1 != 0 {
		return
	}
	if p.Dirty == 0 {
		if n := len(s.dirty); n > 64 && n > 4*len(s.space.Pages) { // evictions and changes in turn
			s.dirty = distinct(s.dirty, len(s.space.Pages))
		}
		s.dirty = append(s.dirty, id/slots.PageLen)
	}
	p.Dirty |= 1 << i
	if s.changes++; s.changes >= t.b.opts.aheadEvery {
		ahead(t, s)
	}
}

type table[K comparable, V any] struct {
	// The place of the last entry that was found or made, and is not gone: what is read is often written next. Everything that takes
	// entries out of the cache, or that may put another page in place of one, sets or clears it.
	last struct {
		page  *slots.Page[K, V]
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
	pool             *slots.Pool[K, V]
	spaces           map[state.Namespace]*nspace[K, V]
	cached           int   // entries in all spaces
	cost             int64 // bytes of an entry, estimated: fixed, and what values point to, which is about their encoded size
	fixed            int64
	mean             float64 // encoded size of recent values
	n                int
	copyKey, copyVal bool
	texts            serde.Packer[V] // of values that hold nothing but strings
	strings          []uintptr       // in a value of texts
	kb, vb, fb       []byte
	gathered         uint64   // see slots.Gather
	rested           []uint32 // pages to be written ahead
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

func spaceOf[K comparable, V any](t *table[K, V], ns state.Namespace) *nspace[K, V] {
	if s := t.lastSpace; s != nil && s.ns == ns {
		return s
	}
	s := t.spaces[ns]
	if s != nil {
		t.lastSpace = s
	}
	return s
}

func spaceOrNew[K comparable, V any](t *table[K, V], ns state.Namespace) *nspace[K, V] {
	s := spaceOf(t, ns)
	if s == nil {
		s = &nspace[K, V]{ns: ns, space: slots.NewSpace(t.pool)}
		t.spaces[ns] = s
		t.lastSpace = s
	}
	return s
}

// storedKey encodes a key for Pebble into the table's scratch.
func storedKey[K comparable, V any](t *table[K, V], k K, group int, ns state.Namespace) []byte {
	t.kb = t.desc.Key.Append(appendNamespace(t.kb[:0], t.id, group, ns), k)
	return t.kb
}

// decodeValue decodes a stored value; it is a view of b.
func decodeValue[K comparable, V any](t *table[K, V], b []byte) (v V, err error) {
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
func fetch[K comparable, V any](t *table[K, V], s *nspace[K, V], k state.Key[K]) (v V, found bool, err error) {
	if !s.stored.has(int(k.Group) - t.start) {
		return v, false, nil
	}
	b, closer, err := t.b.db.Get(storedKey(t, k.Key, int(k.Group), s.ns))
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
	v, err = decodeValue(t, b)
	if err == nil && t.copyVal {
		weigh(t, len(b))
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
	if p, i := known(t, &k, ns); p != nil {
		p.Hot |= 1 << i
		return p.Vals[i], true, nil
	}
	s := spaceOf(t, ns)
	if s == nil {
		return v, false, nil
	}
	if id, ok := slots.Find(s.space, k.Hash, k.Key); ok {
		p, i := slots.At(s.space, id)
		p.Hot |= 1 << i
		if p.Gone>>i&1 != 0 {
			return v, false, nil
		}
		noteLast(t, s, id, p, k.Hash)
		return p.Vals[i], true, nil
	}
	if v, found, err = fetch(t, s, k); err != nil || !found {
		return v, false, err
	}
	id, p, i, err := insert(t, s, k)
	if err != nil {
		return v, false, err
	}
	setValue(t, p, i, v)
	s.present++
	noteLast(t, s, id, p, k.Hash)
	return p.Vals[i], true, nil
}

// setValue gives an entry a value that fetch returned or that is somebody else's.
func setValue[K comparable, V any](t *table[K, V], p *slots.Page[K, V], i uint32, v V) {
	p.Vals[i] = v
	p.Gone &^= 1 << i
	if t.texts != nil {
		slots.KeepTexts(t.texts, &p.Head, p.Vals, i)
	}
}

// known is the page and slot of an entry when that was the last one.
func known[K comparable, V any](t *table[K, V], k *state.Key[K], ns state.Namespace) (*slots.Page[K, V], uint32) {
	l := &t.last
	if l.page == nil || l.hash != k.Hash || l.space.ns != ns {
		return nil, 0
	}
	if i := l.id % slots.PageLen; l.page.Keys[i] == k.Key {
		return l.page, i
	}
	return nil, 0
}

func noteLast[K comparable, V any](t *table[K, V], s *nspace[K, V], id uint32, p *slots.Page[K, V], hash uint32) {
	l := &t.last
	l.page, l.space, l.id, l.hash = p, s, id, hash
}

// Ref implements state.Table.
func (t *table[K, V]) Ref(k state.Key[K], ns state.Namespace) (*V, bool, error) {
	if p, i := known(t, &k, ns); p != nil {
		if p.Dirty>>i&1 == 0 {
			mark(t, t.last.space, t.last.id, p, i)
		}
		p.Hot |= 1 << i
		return &p.Vals[i], true, nil
	}
	s := spaceOrNew(t, ns)
	found := true
	var p *slots.Page[K, V]
	var i uint32
	id, ok := slots.Find(s.space, k.Hash, k.Key)
	if ok {
		p, i = slots.At(s.space, id)
		if p.Gone>>i&1 != 0 {
			p.Gone &^= 1 << i // the value is a zero one
			s.present++
			t.n++
			found = false
		}
	} else {
		v, ok, err := fetch(t, s, k)
		if err != nil {
			return nil, false, err
		}
		if id, p, i, err = insert(t, s, k); err != nil {
			return nil, false, err
		}
		setValue(t, p, i, v)
		s.present++
		if found = ok; !ok {
			t.n++
		}
	}
	mark(t, s, id, p, i)
	p.Hot |= 1 << i
	noteLast(t, s, id, p, k.Hash)
	return &p.Vals[i], found, nil
}

// Keep implements state.Keeper.
func (t *table[K, V]) Keep(p *V) bool {
	l := &t.last
	i := l.id % slots.PageLen
	if t.texts == nil || l.page == nil || p != &l.page.Vals[i] {
		return false
	}
	slots.KeepTexts(t.texts, &l.page.Head, l.page.Vals, i)
	return true
}

// weigh takes the encoded size of a value into the estimate of what a cached one holds.
func weigh[K comparable, V any](t *table[K, V], size int) {
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
func weighOne[K comparable, V any](t *table[K, V], s *nspace[K, V]) {
	pages := s.space.Pages
	t.probe++
	if p := pages[t.probe%uint32(len(pages))]; p.Live != 0 {
		t.vb = t.desc.Value.Append(t.vb[:0], p.Vals[bits.TrailingZeros64(p.Live)])
		weigh(t, len(t.vb))
	}
}

// insert makes a cache entry for a key that is not cached, after making room.
func insert[K comparable, V any](t *table[K, V], s *nspace[K, V], k state.Key[K]) (uint32, *slots.Page[K, V], uint32, error) {
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
	id, p, i := slots.Insert(s.space, k.Hash, key)
	if t.owner != nil {
		s.chains.Add(t.owner(&p.Keys[i]), id) // not &key, which would move it to the heap for every new key
	}
	t.cached++
	t.b.used += t.cost
	if t.copyVal && t.cached%weighEvery == 0 {
		weighOne(t, s)
	}
	return id, p, i, nil
}

// Put implements state.Table. It does not read Pebble.
func (t *table[K, V]) Put(k state.Key[K], ns state.Namespace, v V) error {
	if t.copyVal && t.texts == nil {
		v = t.desc.Value.Clone(v)
	}
	if p, i := known(t, &k, ns); p != nil {
		if p.Dirty>>i&1 == 0 {
			mark(t, t.last.space, t.last.id, p, i)
		}
		setValue(t, p, i, v)
		p.Hot |= 1 << i
		return nil
	}
	s := spaceOrNew(t, ns)
	var p *slots.Page[K, V]
	var i uint32
	id, ok := slots.Find(s.space, k.Hash, k.Key)
	if ok {
		p, i = slots.At(s.space, id)
		if p.Gone>>i&1 != 0 {
			s.present++
			t.n++
		}
	} else {
		var err error
		if id, p, i, err = insert(t, s, k); err != nil {
			return err
		}
		s.present++
		if !s.stored.has(int(k.Group) - t.start) {
			t.n++
		}
	}
	setValue(t, p, i, v)
	mark(t, s, id, p, i)
	p.Hot |= 1 << i
	noteLast(t, s, id, p, k.Hash)
	return nil
}

// Take implements state.Taker. What is not cached is not read: it is worth nothing here.
func (t *table[K, V]) Take(k state.Key[K], ns state.Namespace) (v V, own bool, err error) {
	if s := spaceOf(t, ns); s != nil {
		if id, ok := slots.Find(s.space, k.Hash, k.Key); ok {
			p, i := slots.At(s.space, id)
			v, own = p.Vals[i], p.Gone>>i&1 == 0
		}
	}
	return v, own, t.Delete(k, ns)
}

// Delete implements state.Table. It does not read Pebble.
func (t *table[K, V]) Delete(k state.Key[K], ns state.Namespace) error {
	t.last.page = nil
	s := spaceOf(t, ns)
	if s == nil {
		return nil
	}
	stored := s.stored.has(int(k.Group) - t.start)
	id, ok := slots.Find(s.space, k.Hash, k.Key)
	if !ok && !stored {
		return nil
	}
	if !ok {
		id, p, i, err := insert(t, s, k)
		if err != nil {
			return err
		}
		p.Gone |= 1 << i
		mark(t, s, id, p, i)
		return nil
	}
	p, i := slots.At(s.space, id)
	if p.Gone>>i&1 == 0 {
		s.present--
		t.n = max(t.n-1, 0)
	}
	if stored {
		var zero V
		p.Vals[i] = zero
		p.Gone |= 1 << i
		mark(t, s, id, p, i)
		return nil
	}
	remove(t, s, id)
	if s.space.IDs.Len() == 0 && s.stored.empty() {
		return t.DropNamespace(ns)
	}
	return nil
}

// remove takes an entry out of the cache.
func remove[K comparable, V any](t *table[K, V], s *nspace[K, V], id uint32) {
	if t.owner != nil {
		s.chains.Remove(id)
	}
	slots.Delete(s.space, id)
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
			if has, err = storedAny(t, s); err != nil {
				return dst[:n], err
			}
		}
		if has {
			dst = append(dst, ns)
		}
	}
	state.SortNamespaces(dst[n:])
	return dst, nil
}

var errFound = errors.New("found")

// storedAny reports whether Pebble has an entry that the cache does not mark as gone.
func storedAny[K comparable, V any](t *table[K, V], s *nspace[K, V]) (bool, error) {
	err := scanStored(t, s, func(state.Key[K], []byte) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// scanStored calls fn for every entry in Pebble whose key is not cached.
func scanStored[K comparable, V any](t *table[K, V], s *nspace[K, V], fn func(k state.Key[K], stored []byte) error) (err error) {
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
			if _, cached := slots.Find(s.space, h, key); cached {
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
	s := spaceOf(t, ns)
	if s == nil {
		return nil
	}
	for _, p := range s.space.Pages {
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			if p.Gone>>i&1 != 0 {
				continue
			}
			h := p.Hash[i]
			if err := fn(state.Key[K]{Key: p.Keys[i], Hash: h, Group: state.GroupOf(h, t.b.cfg.MaxParallelism)}, &p.Vals[i]); err != nil {
				return err
			}
		}
	}
	return scanStored(t, s, func(k state.Key[K], b []byte) error {
		v, err := decodeValue(t, b)
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
	t.cached -= s.space.IDs.Len()
	t.b.used -= int64(s.space.IDs.Len()) * t.cost
	t.n = max(t.n-s.present, 0)
	slots.Drop(s.space)
	delete(t.spaces, ns)
	return s.stored.each(func(i int) error {
		p := appendNamespace(nil, t.id, i+t.start, ns)
		t.b.drops = append(t.b.drops, keyRange{p, after(p)})
		return nil
	})
}

// Len implements state.Table; it is an estimate: writes to keys that are not cached do not look whether they exist.
func (t *table[K, V]) Len() int { return t.n }
