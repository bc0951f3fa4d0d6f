package operator

import (
	"slices"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// ListState is a list: of the current key when a RuntimeContext opened it, of the subtask when a TaskContext did. Source: Flink ListState.
type ListState[V any] struct{ s listAccess[V] }

type listAccess[V any] interface {
	get() ([]V, error)
	add(v V) error
	put(vs []V) error
	clear() error
	table() any
}

// Get returns the elements in the order in which they were added; the slice is not to be changed, and valid until the list changes.
func (s ListState[V]) Get() ([]V, error) { return s.s.get() }

// Add appends v.
func (s ListState[V]) Add(v V) error { return s.s.add(v) }

// AddAll appends vs in their order.
func (s ListState[V]) AddAll(vs []V) error {
	for _, v := range vs {
		if err := s.s.add(v); err != nil {
			return err
		}
	}
	return nil
}

// Update replaces the list.
func (s ListState[V]) Update(vs []V) error {
	if len(vs) == 0 {
		return s.s.clear()
	}
	return s.s.put(vs)
}

// Clear removes every element.
func (s ListState[V]) Clear() error { return s.s.clear() }

func (s ListState[V]) table() any { return s.s.table() }

// ListState opens the list state of this name. A list is read and written as a whole when it is not in the cache: use MapState for lists
// of many elements.
func (r *RuntimeContext[K]) ListState[V any](name string, opts ...StateOption) (ListState[V], error) {
	elem, err := codecFor[V](r.ctx, name, "element")
	if err != nil {
		return ListState[V]{}, err
	}
	ttl, err := r.options(name, "ListState["+typeName[V]()+"]", opts)
	if err != nil {
		return ListState[V]{}, err
	}
	if ttl == nil {
		t, err := r.openTable(state.TableDesc[K, []V]{Name: name, Value: state.ListCodec(elem), Adapt: state.AdaptList(state.Adapt(elem))})
		k := &keyedList[K, V]{t: t, cur: r.cur, ns: r.namespace(), elem: elem}
		k.taker, _ = t.(state.Taker[K, []V])
		if err == nil {
			r.ctx.listed(k)
		}
		return ListState[V]{k}, err
	}
	t, err := r.openTable(state.TableDesc[K, []state.Timed[V]]{Name: name, Value: state.ListCodec(state.TimedCodec(elem)),
		Adapt: state.AdaptList(state.AdaptTimed(elem)),
		TTL: &state.TTL[[]state.Timed[V]]{Now: r.ctx.Now, Removed: ttl.removed, Snapshots: ttl.CleanupFullSnapshot, Live: func(l []state.Timed[V], now int64) ([]state.Timed[V], bool, bool) {
			left := liveElements(ttl, l, now)
			return left, len(left) > 0, len(left) < len(l)
		}}})
	if err != nil {
		return ListState[V]{}, err
	}
	ttl.sweep(t)
	l := &timedListState[K, V]{t: t, cur: r.cur, ns: r.namespace(), elem: elem, ttl: ttl}
	r.ctx.listed(l)
	return ListState[V]{l}, nil
}

type keyedList[K comparable, V any] struct {
	t     state.Table[K, []V]
	taker state.Taker[K, []V] // t, when it is one
	cur   *state.Key[K]
	ns    *state.Namespace
	elem  serde.Codec[V]
	free  [][]V // room of lists that were cleared, for new ones: many lists hold a few elements for a moment
}

const (
	freeLists = 64 // lists kept
	freeElems = 64 // and how many elements they have room for
)

func (k *keyedList[K, V]) get() ([]V, error) {
	if k.cur.Group == noKey {
		return nil, noCurrentKey()
	}
	l, _, err := k.t.Get(*k.cur, *k.ns)
	return slices.Clip(l), err
}

func (k *keyedList[K, V]) add(v V) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	p, _, err := k.t.Ref(*k.cur, *k.ns)
	if err != nil {
		return err
	}
	if n := len(k.free); n > 0 && cap(*p) == 0 {
		*p, k.free = k.free[n-1], k.free[:n-1]
	}
	*p = append(*p, k.elem.Clone(v))
	return nil
}

func (k *keyedList[K, V]) put(vs []V) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Put(*k.cur, *k.ns, vs)
}

func (k *keyedList[K, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	if k.taker == nil {
		return k.t.Delete(*k.cur, *k.ns)
	}
	l, own, err := k.taker.Take(*k.cur, *k.ns)
	if own && cap(l) > 0 && cap(l) <= freeElems && len(k.free) < freeLists {
		clear(l)
		k.free = append(k.free, l[:0])
	}
	return err
}

func (k *keyedList[K, V]) table() any { return tableKeys[K, []V]{k.t} }

// liveElements is a list without what has expired: the list itself, or another one.
func liveElements[V any](t *ttl, l []state.Timed[V], now int64) []state.Timed[V] {
	n := 0
	for i := range l {
		if !t.expired(l[i].At, now) {
			n++
		}
	}
	if n == len(l) {
		return l
	}
	left := make([]state.Timed[V], 0, n)
	for _, e := range l {
		if !t.expired(e.At, now) {
			left = append(left, e)
		}
	}
	return left
}

// timedListState is a list whose elements expire.
type timedListState[K comparable, V any] struct {
	t    state.Table[K, []state.Timed[V]]
	cur  *state.Key[K]
	ns   *state.Namespace
	elem serde.Codec[V]
	ttl  *ttl
}

func (k *timedListState[K, V]) get() ([]V, error) {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return nil, err
	}
	l, found, err := k.t.Get(*k.cur, *k.ns)
	if err != nil || !found {
		return nil, err
	}
	live := liveElements(k.ttl, l, now)
	shown := live
	if k.ttl.Visibility == ReturnExpiredIfNotCleanedUp {
		shown = l
	}
	out := make([]V, len(shown))
	for i := range shown {
		out[i] = shown[i].V
	}
	switch {
	case len(live) == 0:
		return out, k.t.Delete(*k.cur, *k.ns)
	case k.ttl.UpdateType == OnReadAndWrite:
		live = slices.Clone(live)
		for i := range live {
			live[i].At = now
		}
	case len(live) == len(l) || k.ttl.Visibility == ReturnExpiredIfNotCleanedUp:
		return out, nil
	}
	return out, k.t.Put(*k.cur, *k.ns, live)
}

func (k *timedListState[K, V]) add(v V) error {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return err
	}
	p, _, err := k.t.Ref(*k.cur, *k.ns)
	if err != nil {
		return err
	}
	for k.ttl.Visibility == NeverReturnExpired && len(*p) > 0 && k.ttl.expired((*p)[0].At, now) { // the oldest stand first
		*p = (*p)[1:]
	}
	*p = append(*p, state.Timed[V]{At: now, V: k.elem.Clone(v)})
	return nil
}

func (k *timedListState[K, V]) put(vs []V) error {
	now, err := k.ttl.access(k.cur.Group)
	if err != nil {
		return err
	}
	l := make([]state.Timed[V], len(vs))
	for i, v := range vs {
		l[i] = state.Timed[V]{At: now, V: v}
	}
	return k.t.Put(*k.cur, *k.ns, l)
}

func (k *timedListState[K, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Delete(*k.cur, *k.ns)
}

func (k *timedListState[K, V]) table() any { return tableKeys[K, []state.Timed[V]]{k.t} }
