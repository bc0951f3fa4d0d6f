package operator

import "github.com/thalweg/thalweg/serde"

// ReducingState is one value per key that everything added is reduced to. Source: Flink ReducingState.
type ReducingState[V any] struct {
	s       valueAccess[V]
	fn      func(a, b V) V
	mutable bool
}

// Get returns what the current key's values were reduced to; found is false when there are none.
func (s ReducingState[V]) Get() (v V, found bool, err error) { return s.s.get() }

// Add reduces v into the current key's value.
func (s ReducingState[V]) Add(v V) error {
	var old V
	var found bool
	var err error
	if s.mutable { // fn may change it in place
		var p *V
		if p, found, err = s.s.ref(); err == nil {
			old = *p
		}
	} else {
		old, found, err = s.s.get()
	}
	if err != nil {
		return err
	}
	if found {
		v = s.fn(old, v)
	}
	return s.s.put(v)
}

// Clear removes the current key's value.
func (s ReducingState[V]) Clear() error { return s.s.clear() }

func (s ReducingState[V]) table() any { return s.s.table() }

// ReducingState opens the reducing state of this name. fn may change its first argument in place.
func (r *RuntimeContext[K]) ReducingState[V any](name string, fn func(a, b V) V, opts ...StateOption) (ReducingState[V], error) {
	codec, err := codecFor[V](r.ctx, name, "value")
	if err != nil {
		return ReducingState[V]{}, err
	}
	if fn == nil {
		return ReducingState[V]{}, lasting("state %q, opened at %s: the reduce function is nil", name, userSite())
	}
	s, err := r.openValue(name, "ReducingState["+typeName[V]()+"]", codec, opts)
	return ReducingState[V]{s, fn, serde.Mutable(codec)}, err
}

// AggregatingState is one accumulator per key that values of T are added to, with results of R. Source: Flink AggregatingState.
type AggregatingState[T, R any] struct{ s aggregate[T, R] }

type aggregate[T, R any] interface {
	add(T) error
	get() (R, bool, error)
	clear() error
	table() any
}

// Get returns the result of the current key's accumulator; found is false when nothing was added.
func (s AggregatingState[T, R]) Get() (r R, found bool, err error) { return s.s.get() }

// Add adds v to the current key's accumulator.
func (s AggregatingState[T, R]) Add(v T) error { return s.s.add(v) }

// Clear removes the current key's accumulator.
func (s AggregatingState[T, R]) Clear() error { return s.s.clear() }

func (s AggregatingState[T, R]) table() any { return s.s.table() }

// StateAggregator folds values of T into an accumulator A with the result R. Add changes acc in place; Result must not (sort a copy).
type StateAggregator[T, A, R any] interface {
	Create() A
	Add(acc *A, v T)
	Result(acc A) R
}

type accumulator[T, A, R any] struct {
	valueAccess[A]
	agg   StateAggregator[T, A, R]
	codec serde.Codec[A]
	views bool // accumulators hold strings or slices, which may be views of a record's buffer
	// shares: results may share memory with accumulators, which go on changing.
	shares bool
}

func (a *accumulator[T, A, R]) add(v T) error {
	p, found, err := a.ref()
	if err != nil {
		return err
	}
	if !found {
		*p = a.agg.Create()
	}
	a.agg.Add(p, v)
	if a.views {
		*p = a.codec.Clone(*p)
	}
	return nil
}

func (a *accumulator[T, A, R]) get() (r R, found bool, err error) {
	acc, found, err := a.valueAccess.get()
	if err != nil || !found {
		return r, false, err
	}
	if a.shares {
		acc = a.codec.Clone(acc)
	}
	return a.agg.Result(acc), true, nil
}

// AggregatingState opens the aggregating state of this name.
func (r *RuntimeContext[K]) AggregatingState[T, A, R any](name string, agg StateAggregator[T, A, R], opts ...StateOption) (AggregatingState[T, R], error) {
	codec, err := codecFor[A](r.ctx, name, "accumulator")
	if err != nil {
		return AggregatingState[T, R]{}, err
	}
	if IsNil(agg) {
		return AggregatingState[T, R]{}, lasting("state %q, opened at %s: the aggregator is nil", name, userSite())
	}
	s, err := r.openValue(name, "AggregatingState["+typeName[A]()+"]", codec, opts)
	return AggregatingState[T, R]{&accumulator[T, A, R]{s, agg, codec, codec.Views(), serde.Mutable(codec) && mutableType[R]()}}, err
}
