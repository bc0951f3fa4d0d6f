package pebble

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// sweeper is where Sweep goes on: in the cache, namespace by namespace, and then in Pebble.
type sweeper struct {
	order []state.Namespace
	page  int
	from  []byte // the next key in Pebble, nil while in the cache
}

// found is an entry that has expired, in part or as a whole.
type found[K comparable, V any] struct {
	key  state.Key[K]
	ns   state.Namespace
	left V
	keep bool
}

// Sweep implements state.Sweeper. It goes once over the cache and then once over what Pebble holds and the cache does not.
func (t *table[K, V]) Sweep(n int) error {
	if t.desc.TTL == nil {
		return nil
	}
	now := t.desc.TTL.Now()
	var out []found[K, V]
	var err error
	if w := &t.ttl; w.from == nil {
		out = sweepCache(t, n, now)
		if len(w.order) == 0 {
			w.from = appendGroup(nil, t.id, t.b.cfg.Range.Start)
		}
	} else if out, err = sweepStored(t, n, now); err != nil {
		return fmt.Errorf("pebble: state %q: clean up: %w", t.desc.Name, err)
	}
	removed := 0
	for _, f := range out {
		if f.keep {
			err = t.Put(f.key, f.ns, f.left)
		} else {
			err = t.Delete(f.key, f.ns)
			removed++
		}
		if err != nil {
			return err
		}
	}
	if removed > 0 && t.desc.TTL.Removed != nil {
		t.desc.TTL.Removed(removed)
	}
	return nil
}

// lookAt adds an entry to out when it has expired.
func lookAt[K comparable, V any](t *table[K, V], out []found[K, V], k state.Key[K], ns state.Namespace, v V, now int64, view bool) []found[K, V] {
	left, keep, changed := t.desc.TTL.Live(v, now)
	if keep && !changed {
		return out
	}
	if view {
		k.Key = t.desc.Key.Clone(k.Key)
		if keep && t.copyVal {
			left = t.desc.Value.Clone(left)
		}
	}
	return append(out, found[K, V]{k, ns, left, keep})
}

func sweepCache[K comparable, V any](t *table[K, V], n int, now int64) (out []found[K, V]) {
	w := &t.ttl
	if len(w.order) == 0 {
		w.page = 0
		for ns := range t.spaces {
			w.order = append(w.order, ns)
		}
	}
	for n > 0 && len(w.order) > 0 {
		s := t.spaces[w.order[0]]
		if s == nil || w.page >= len(s.space.Pages) {
			w.order, w.page = w.order[1:], 0
			continue
		}
		p := s.space.Pages[w.page]
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			if p.Gone>>i&1 == 0 {
				k := state.Key[K]{Key: p.Keys[i], Hash: p.Hash[i], Group: state.GroupOf(p.Hash[i], t.b.cfg.MaxParallelism)}
				out = lookAt(t, out, k, s.ns, p.Vals[i], now, false)
			}
		}
		n -= slots.PageLen
		w.page++
	}
	return out
}

func sweepStored[K comparable, V any](t *table[K, V], n int, now int64) (out []found[K, V], err error) {
	w := &t.ttl
	it, err := t.b.db.iter(w.from, groupEnd(t.id, t.b.cfg.Range.End))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	ok := it.First()
	for ; ok && n > 0; ok = it.Next() {
		n--
		k := it.Key()
		if err := whole(canonical.KindTable, k); err != nil {
			return nil, err
		}
		ns, enc := ordered(k[groupPrefix:]), k[tablePrefix:]
		s := t.spaces[ns]
		if s == nil {
			continue // dropped
		}
		key, _, err := t.desc.Key.Decode(enc)
		if err != nil {
			return nil, err
		}
		h := state.HashEncoded(t.desc.Key, enc)
		if _, cached := slots.Find(s.space, h, key); cached {
			continue
		}
		b, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		v, err := decodeValue(t, b)
		if err != nil {
			return nil, err
		}
		out = lookAt(t, out, state.Key[K]{Key: key, Hash: h, Group: state.GroupOf(h, t.b.cfg.MaxParallelism)}, ns, v, now, true)
	}
	if w.from = nil; ok {
		w.from = append([]byte{}, it.Key()...)
	}
	return out, it.Error()
}

// now implements set.
func (t *table[K, V]) now() int64 {
	if t.desc.TTL == nil || !t.desc.TTL.Snapshots {
		return math.MinInt64
	}
	return t.desc.TTL.Now()
}
