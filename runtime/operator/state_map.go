package operator

import (
	"errors"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// MapState is a map per key, stored entry by entry. Iteration has no particular order. Of keys that hold floating point numbers, 0 and -0 are
// one, and those with a NaN are an error. Source: Flink MapState.
type MapState[UK comparable, V any] struct{ s mapAccess[UK, V] }

type mapAccess[UK comparable, V any] interface {
	get(UK) (V, bool, error)
	put(UK, V) error
	remove(UK) error
	// entries returns a copy of all entries.
	entries() ([]mapEntry[UK, V], error)
	empty() (bool, error)
	clear() error
	table() any
}

type mapEntry[UK comparable, V any] struct {
	key UK
	v   V
	at  int64 // with a time to live
}

// Get returns the value of an entry of the current key's map. Slices and maps inside of values, here and in ForEach and Values, are not to be
// changed.
func (s MapState[UK, V]) Get(k UK) (v V, found bool, err error) { return s.s.get(k) }

// Put sets an entry.
func (s MapState[UK, V]) Put(k UK, v V) error { return s.s.put(k, v) }

// PutAll sets entries.
func (s MapState[UK, V]) PutAll(m map[UK]V) error {
	for k, v := range m {
		if err := s.s.put(k, v); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes an entry.
func (s MapState[UK, V]) Remove(k UK) error { return s.s.remove(k) }

// Contains reports whether there is an entry; for time to live it is a read.
func (s MapState[UK, V]) Contains(k UK) (bool, error) {
	_, found, err := s.s.get(k)
	return found, err
}

// ForEach calls fn for every entry, until it returns an error. fn sees the map as it was at the call and may change the state.
func (s MapState[UK, V]) ForEach(fn func(k UK, v V) error) error {
	es, err := s.s.entries()
	if err != nil {
		return err
	}
	for i := range es {
		if err := fn(es[i].key, es[i].v); err != nil {
			return err
		}
	}
	return nil
}

// Keys returns the keys of all entries.
func (s MapState[UK, V]) Keys() ([]UK, error) {
	var out []UK
	err := s.ForEach(func(k UK, _ V) error { out = append(out, k); return nil })
	return out, err
}

// Values returns the values of all entries.
func (s MapState[UK, V]) Values() ([]V, error) {
	var out []V
	err := s.ForEach(func(_ UK, v V) error { out = append(out, v); return nil })
	return out, err
}

// IsEmpty reports whether the current key's map has no entry.
func (s MapState[UK, V]) IsEmpty() (bool, error) { return s.s.empty() }

// Clear removes every entry.
func (s MapState[UK, V]) Clear() error { return s.s.clear() }

func (s MapState[UK, V]) table() any { return s.s.table() }

// MapState opens the map state of this name.
func (r *RuntimeContext[K]) MapState[UK comparable, V any](name string, opts ...StateOption) (MapState[UK, V], error) {
	var none MapState[UK, V]
	sub, err := codecForKey[UK](r.ctx, name)
	if err != nil {
		return none, err
	}
	codec, err := codecFor[V](r.ctx, name, "value")
	if err != nil {
		return none, err
	}
	ttl, err := r.options(name, "MapState["+typeName[UK]()+", "+typeName[V]()+"]", opts)
	if err != nil {
		return none, err
	}
	if ttl == nil {
		t, err := openMap(r, state.MapDesc[K, UK, V]{Name: name, Sub: sub, Value: codec, Adapt: state.Adapt(codec)})
		m := &keyedMap[K, UK, V]{t, r.cur, r.namespace(), newRuledKeys(sub, "state", name)}
		if err == nil {
			r.ctx.listed(m)
		}
		return MapState[UK, V]{m}, err
	}
	t, err := openMap(r, state.MapDesc[K, UK, state.Timed[V]]{Name: name, Sub: sub, Value: state.TimedCodec(codec), Adapt: state.AdaptTimed(codec),
		TTL: &state.TTL[state.Timed[V]]{Now: r.ctx.Now, Removed: ttl.removed, Snapshots: ttl.CleanupFullSnapshot, Live: func(v state.Timed[V], now int64) (state.Timed[V], bool, bool) {
			return v, !ttl.expired(v.At, now), false
		}}})
	if err != nil {
		return none, err
	}
	ttl.sweep(t)
	m := &timedMap[K, UK, V]{t: t, cur: r.cur, ns: r.namespace(), ttl: ttl, rule: newRuledKeys(sub, "state", name)}
	m.one = timedValue[state.Pair[K, UK], V]{t, &m.entry, m.ns, ttl}
	r.ctx.listed(m)
	return MapState[UK, V]{m}, nil
}

func openMap[K, S comparable, V any](r *RuntimeContext[K], desc state.MapDesc[K, S, V]) (state.MapTable[K, S, V], error) {
	name := desc.Name
	desc.Name, desc.Key = r.stored(name), r.key
	var t state.MapTable[K, S, V]
	err := r.ctx.openState("state", name, func(b state.Backend) (err error) {
		t, err = backend.OpenMap(b, desc)
		return err
	})
	if err == nil && r.win != nil {
		r.win.keep(t.Clear, t.DropNamespace)
	}
	return t, err
}

// mapKeys lists the keys that have a map.
type mapKeys[K, UK comparable, V any] struct{ t state.MapTable[K, UK, V] }

func (l mapKeys[K, UK, V]) keys() (out []state.Key[K], err error) {
	seen := map[K]struct{}{}
	err = l.t.Scan(0, func(k state.Key[state.Pair[K, UK]], _ *V) error {
		if _, ok := seen[k.Key.Key]; !ok {
			seen[k.Key.Key] = struct{}{}
			out = append(out, state.Key[K]{Key: k.Key.Key, Hash: k.Key.Hash, Group: k.Group})
		}
		return nil
	})
	return out, err
}

// keyedMap is a map whose entries live for ever.
type keyedMap[K, UK comparable, V any] struct {
	t    state.MapTable[K, UK, V]
	cur  *state.Key[K]
	ns   *state.Namespace
	rule ruledKeys[UK]
}

func (k *keyedMap[K, UK, V]) get(u UK) (v V, found bool, err error) {
	if k.cur.Group == noKey {
		return v, false, noCurrentKey()
	}
	if err := k.rule.settle(&u); err != nil {
		return v, false, err
	}
	return k.t.Get(k.t.Entry(*k.cur, u), *k.ns)
}

func (k *keyedMap[K, UK, V]) put(u UK, v V) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	if err := k.rule.stored(&u); err != nil {
		return err
	}
	return k.t.Put(k.t.Entry(*k.cur, u), *k.ns, v)
}

// ref is the value of an entry, for changes in place: a new zero value when there is none. It is valid until the next call, and holds nothing that is somebody else's.
func (k *keyedMap[K, UK, V]) ref(u UK) (*V, error) {
	if k.cur.Group == noKey {
		return nil, noCurrentKey()
	}
	if err := k.rule.stored(&u); err != nil {
		return nil, err
	}
	p, _, err := k.t.Ref(k.t.Entry(*k.cur, u), *k.ns)
	return p, err
}

func (k *keyedMap[K, UK, V]) remove(u UK) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	if err := k.rule.settle(&u); err != nil {
		return err
	}
	return k.t.Delete(k.t.Entry(*k.cur, u), *k.ns)
}

func (k *keyedMap[K, UK, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Clear(*k.cur, *k.ns)
}

func (k *keyedMap[K, UK, V]) table() any { return mapKeys[K, UK, V]{k.t} }

func (k *keyedMap[K, UK, V]) entries() (out []mapEntry[UK, V], err error) {
	if k.cur.Group == noKey {
		return nil, noCurrentKey()
	}
	err = k.t.Each(*k.cur, *k.ns, func(u UK, v *V) error {
		out = append(out, mapEntry[UK, V]{key: u, v: *v})
		return nil
	})
	return out, err
}

func (k *keyedMap[K, UK, V]) empty() (bool, error) {
	if k.cur.Group == noKey {
		return false, noCurrentKey()
	}
	err := k.t.Each(*k.cur, *k.ns, func(UK, *V) error { return errStop })
	if errors.Is(err, errStop) {
		return false, nil
	}
	return err == nil, err
}

// timedMap is a map whose entries expire.
type timedMap[K, UK comparable, V any] struct {
	t     state.MapTable[K, UK, state.Timed[V]]
	cur   *state.Key[K]
	ns    *state.Namespace
	ttl   *ttl
	rule  ruledKeys[UK]
	entry state.Key[state.Pair[K, UK]]
	one   timedValue[state.Pair[K, UK], V] // the value of entry
}

func (k *timedMap[K, UK, V]) get(u UK) (v V, found bool, err error) {
	if err := k.rule.settle(&u); err != nil {
		return v, false, err
	}
	k.entry = k.t.Entry(*k.cur, u)
	return k.one.get()
}

func (k *timedMap[K, UK, V]) put(u UK, v V) error {
	if err := k.rule.stored(&u); err != nil {
		return err
	}
	k.entry = k.t.Entry(*k.cur, u)
	return k.one.put(v)
}

func (k *timedMap[K, UK, V]) remove(u UK) error {
	if err := k.rule.settle(&u); err != nil {
		return err
	}
	k.entry = k.t.Entry(*k.cur, u)
	return k.one.clear()
}

func (k *timedMap[K, UK, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Clear(*k.cur, *k.ns)
}

func (k *timedMap[K, UK, V]) table() any { return mapKeys[K, UK, state.Timed[V]]{k.t} }

func (k *timedMap[K, UK, V]) entries() (out []mapEntry[UK, V], err error) {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return nil, err
	}
	err = k.t.Each(*k.cur, *k.ns, func(u UK, v *state.Timed[V]) error {
		out = append(out, mapEntry[UK, V]{u, v.V, v.At})
		return nil
	})
	if err != nil {
		return nil, err
	}
	n := 0
	for _, e := range out {
		switch {
		case k.ttl.expired(e.at, now):
			if err := k.remove(e.key); err != nil {
				return nil, err
			}
			if k.ttl.Visibility == NeverReturnExpired {
				continue
			}
		case k.ttl.UpdateType == OnReadAndWrite && e.at != now:
			p, _, err := k.t.Ref(k.t.Entry(*k.cur, e.key), *k.ns)
			if err != nil {
				return nil, err
			}
			p.At = now
		}
		out[n] = e
		n++
	}
	return out[:n], nil
}

func (k *timedMap[K, UK, V]) empty() (bool, error) {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return false, err
	}
	err = k.t.Each(*k.cur, *k.ns, func(_ UK, v *state.Timed[V]) error {
		if k.ttl.hidden(v.At, now) {
			return nil
		}
		return errStop
	})
	if errors.Is(err, errStop) {
		return false, nil
	}
	return err == nil, err
}

// errStop ends an iteration.
var errStop = errors.New("stop")
