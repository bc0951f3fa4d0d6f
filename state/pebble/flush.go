package pebble

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// addTo puts a cache entry into a batch and notes that its namespace is stored.
func addTo[K comparable, V any](t *table[K, V], batch batch, s *nspace[K, V], p *slots.Page[K, V], i int) error {
	g := int(state.GroupOf(p.Hash[i], t.b.cfg.MaxParallelism))
	key := storedKey(t, p.Keys[i], g, s.ns)
	if p.Gone>>i&1 != 0 {
		return batch.Delete(key, nil)
	}
	t.vb = t.desc.Value.Append(append(t.vb[:0], t.version), p.Vals[i])
	if t.copyVal {
		weigh(t, len(t.vb))
	}
	s.stored.add(g - t.start)
	return batch.Set(key, t.vb, nil)
}

// gathered is how many pages are brought into the processor's cache together.
const gathered = 128

// flush implements set. Everything that goes into the batch stays cached, since the batch may be applied later; deletions are taken
// out of the cache at the flush after.
func (t *table[K, V]) flush(batch batch) error {
	t.last.page = nil
	for _, s := range t.spaces {
		if s.present < s.space.IDs.Len() {
			if err := sweepGone(t, s); err != nil {
				return fmt.Errorf("pebble: state %q: flush: %w", t.desc.Name, err)
			}
		}
		s.dirty = distinct(s.dirty, len(s.space.Pages)) // in the order of memory
		if err := addPages(t, batch, s, s.dirty); err != nil {
			return fmt.Errorf("pebble: state %q: flush: %w", t.desc.Name, err)
		}
		s.dirty, s.changes, s.hand = s.dirty[:0], 0, 0
	}
	return nil
}

// addPages puts the changed entries of pages into a batch.
func addPages[K comparable, V any](t *table[K, V], batch batch, s *nspace[K, V], pages []uint32) error {
	for n, pi := range pages {
		if n%gathered == 0 {
			t.gathered += slots.Gather(s.space.Pages, pages[n:min(n+gathered, len(pages))], t.strings)
		}
		p := s.space.Pages[pi]
		for d := p.Dirty; d != 0; d &= d - 1 {
			if err := addTo(t, batch, s, p, bits.TrailingZeros64(d)); err != nil {
				return err
			}
		}
		p.Dirty = 0
	}
	return nil
}

// sweepGone removes deletions that Pebble has from the cache, and forgets the namespace when that leaves nothing of it: sessions must not
// pile up. The store is settled.
func sweepGone[K comparable, V any](t *table[K, V], s *nspace[K, V]) error {
	for pi, p := range s.space.Pages {
		for x := p.Live &^ p.Dirty; x != 0; x &= x - 1 {
			if i := bits.TrailingZeros64(x); p.Gone>>i&1 != 0 {
				remove(t, s, uint32(pi*slots.PageLen+i))
			}
		}
	}
	if s.space.IDs.Len() > 0 {
		return nil
	}
	has, err := storedAny(t, s)
	if err != nil || has {
		return err
	}
	delete(t.spaces, s.ns)
	if t.lastSpace == s {
		t.lastSpace = nil
	}
	return nil
}

// evict makes room in the largest cache, if the pool has none.
func (b *Backend) evict() error {
	if b.look(); b.used < b.limit || b.mayWait() {
		return nil
	}
	return b.evictLargest()
}

// giveBack lets go of what others of the pool need by now. No snapshot is pending.
func (b *Backend) giveBack() error {
	if b.share == nil {
		return nil
	}
	for b.look(); b.used > b.limit; b.look() {
		was := b.used
		if err := b.evictLargest(); err != nil {
			return err
		}
		if b.used >= was {
			return nil
		}
	}
	return nil
}

func (b *Backend) evictLargest() error {
	var largest set
	for _, s := range b.sets {
		if largest == nil || s.size() > largest.size() {
			largest = s
		}
	}
	if largest == nil {
		return nil
	}
	return largest.evict()
}

// evict implements set: it frees an eighth of the table's cache, entries not used since the clock's hand passed them last.
func (t *table[K, V]) evict() error {
	if t.cached < 8 {
		return nil
	}
	t.last.page = nil
	batch, err := t.b.alongAhead()
	if err != nil {
		return fmt.Errorf("pebble: state %q: evict: %w", t.desc.Name, err)
	}
	err = evictInto(t, batch)
	if cerr := batch.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("pebble: state %q: evict: %w", t.desc.Name, err)
	}
	return nil
}

// victims are the slots of a page to be evicted.
type victims[K comparable, V any] struct {
	s    *nspace[K, V]
	page int
	bits uint64
}

func evictInto[K comparable, V any](t *table[K, V], batch batch) error {
	target := max(t.cached/8, 8)
	var out []victims[K, V]
	for round := 0; target > 0 && round < 3; {
		if len(t.hand.order) == 0 {
			round++
			for ns, s := range t.spaces {
				if s.space.IDs.Len() > 0 {
					t.hand.order = append(t.hand.order, ns)
				}
			}
			if len(t.hand.order) == 0 {
				break
			}
			t.hand.page = 0
		}
		s := t.spaces[t.hand.order[0]]
		if s == nil || t.hand.page >= len(s.space.Pages) {
			t.hand.order, t.hand.page = t.hand.order[1:], 0
			continue
		}
		p := s.space.Pages[t.hand.page]
		v := p.Live &^ p.Hot
		p.Hot = 0
		if v != 0 {
			out = append(out, victims[K, V]{s, t.hand.page, v})
			for d := v & p.Dirty; d != 0; d &= d - 1 {
				if err := addTo(t, batch, s, p, bits.TrailingZeros64(d)); err != nil {
					return err
				}
			}
			p.Dirty &^= v
			target -= bits.OnesCount64(v)
		}
		t.hand.page++
	}
	if !batch.Empty() {
		if err := applied(t.b, batch); err != nil {
			return err
		}
	}
	for _, v := range out {
		p := v.s.space.Pages[v.page]
		for x := v.bits; x != 0; x &= x - 1 {
			i := bits.TrailingZeros64(x)
			if p.Live>>i&1 == 0 {
				continue // met in two rounds
			}
			if p.Gone>>i&1 == 0 {
				v.s.present--
			}
			remove(t, v.s, uint32(v.page*slots.PageLen+i))
		}
	}
	return nil
}

// applied writes a batch in one piece or in several.
func applied(b *Backend, x batch) error {
	if c, ok := x.(*chunks); ok {
		return c.apply()
	}
	return b.apply(x)
}

// current implements set.
func (t *table[K, V]) current(stored, scratch []byte, now int64) ([]byte, bool, error) {
	newest := len(stored) > 0 && stored[0] == t.version
	if newest && now == math.MinInt64 {
		return stored[1:], true, nil
	}
	v, err := decodeValue(t, stored)
	if err != nil {
		return nil, false, err
	}
	if now != math.MinInt64 {
		left, keep, changed := t.desc.TTL.Live(v, now)
		if !keep {
			return nil, false, nil
		}
		if newest && !changed {
			return stored[1:], true, nil
		}
		v = left
	}
	return t.desc.Value.Append(scratch[:0], v), true, nil
}

// findNamespaces learns what a restored store holds.
func findNamespaces[K comparable, V any](t *table[K, V]) (err error) {
	r := t.b.cfg.Range
	it, err := t.b.db.iter(appendGroup(nil, t.id, r.Start), groupEnd(t.id, r.End))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; {
		k := it.Key()
		if err := whole(canonical.KindTable, k); err != nil {
			return err
		}
		g, ns := int(k[2])<<8|int(k[3]), ordered(k[groupPrefix:])
		spaceOrNew(t, ns).stored.add(g - t.start)
		ok = it.SeekGE(after(k[:tablePrefix]))
	}
	return it.Error()
}

// loadCanonical writes the restored entries of a canonical snapshot to Pebble.
func loadCanonical[K comparable, V any](t *table[K, V]) error {
	old, ok := t.b.restored[t.desc.Name]
	if !ok {
		return nil
	}
	if _, err := t.desc.Restorer(old.Value); err != nil {
		return err
	}
	values, now := canonical.NewReaders(t.desc.Restorer), t.desc.Value.Schema()
	var last *serde.Schema
	same := false
	l := loader{b: t.b}
	return l.load(t.desc.Name, func(e *canonical.Entry, batch batch) error {
		if _, err := canonical.DecodeKey(t.desc.Key, e, t.b.cfg.MaxParallelism); err != nil {
			return err
		}
		if e.Schema != last {
			last, same = e.Schema, serde.Same(*e.Schema, now)
		}
		from, err := values.Of(e)
		if err != nil {
			return err
		}
		v, n, err := from.Decode(e.Value)
		if err != nil {
			return err
		}
		if n != len(e.Value) {
			return fmt.Errorf("value of %d bytes, %d decoded: %w", len(e.Value), n, canonical.ErrCorrupt)
		}
		t.kb = append(appendNamespace(t.kb[:0], t.id, e.Group, e.Namespace), e.Key...)
		t.vb = append(t.vb[:0], t.version)
		if same {
			t.vb = append(t.vb, e.Value...)
		} else {
			t.vb = t.desc.Value.Append(t.vb, v)
		}
		spaceOrNew(t, e.Namespace).stored.add(e.Group - t.start)
		t.n++
		return batch.Set(t.kb, t.vb, nil)
	})
}

// loader writes restored entries in batches.
type loader struct {
	b     *Backend
	batch batch
}

const loadBatch = 1 << 20

func (l *loader) load(name string, add func(e *canonical.Entry, batch batch) error) error {
	l.batch = l.b.db.newBatch()
	err := l.b.restore.Scan(name, func(e *canonical.Entry) error {
		if err := add(e, l.batch); err != nil {
			return err
		}
		if l.batch.Len() < loadBatch {
			return nil
		}
		return l.apply()
	})
	if err == nil {
		err = l.apply()
	}
	return errors.Join(err, l.batch.Close())
}

func (l *loader) apply() error {
	if l.batch.Empty() {
		return nil
	}
	if err := l.b.apply(l.batch); err != nil {
		return err
	}
	l.batch.Reset()
	return nil
}
