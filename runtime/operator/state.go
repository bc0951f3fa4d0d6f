package operator

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// The handles below are those of the current key: they are opened once, in Open, and mean another value with each record and timer.

// StateOption is an option of a keyed state.
type StateOption func(*stateOptions)

type stateOptions struct{ ttl *StateTTLConfig }

// WithTTL lets the state's values expire.
func WithTTL(c StateTTLConfig) StateOption { return func(o *stateOptions) { o.ttl = &c } }

// KeyedState is any keyed state's handle.
type KeyedState interface{ table() any }

// keyLister lists the keys that have state in namespace 0.
type keyLister[K comparable] interface {
	keys() ([]state.Key[K], error)
}

// claim notes that a state is opened, and refuses a name that is open as something else, and a new one when Open has returned. Each scope has names of its own. That, as
// everything that is wrong with the way in which the program opens a state, is met again by every restart.
func (c *Context) claim(name, what string, of scope, ttl *StateTTLConfig) error {
	if name == "" {
		return lasting("a state has no name: %s, opened at %s", what, userSite())
	}
	if of == ofOperator && userPrefix+name == schemasState {
		return lasting("operator state %q, opened at %s: snapshots keep what states are encoded as under this name; give it another one", name, userSite())
	}
	if c.claims == nil {
		c.claims = map[claimed]claim{}
	}
	n, key := claim{what, ttl, userSite()}, claimed{name, of}
	old, ok := c.claims[key]
	if !ok && c.opened {
		return lasting("state %q, opened at %s: Open has returned; open it in Open: a subtask that sees no record would not open it, and what is opened later is not restored with the others", name, n.site)
	}
	if !ok {
		c.claims[key] = n
		return nil
	}
	if old.what != what {
		return lasting("state %q is opened as %s at %s and as %s at %s; give one of them another name", name, old.what, old.site, what, n.site)
	}
	if (old.ttl == nil) != (ttl == nil) || ttl != nil && *old.ttl != *ttl {
		return lasting("state %q is opened at %s and at %s with other settings of its time to live", name, old.site, n.site)
	}
	return nil
}

// scope is what a state belongs to.
type scope uint8

const (
	ofOperator scope = iota
	ofKey
	ofWindow
	ofTrigger
)

type claimed struct {
	name string
	of   scope
}

type claim struct {
	what string
	ttl  *StateTTLConfig
	site string
}

// userSite is file:line of the first caller outside of this package, and of what tests look into it with.
func userSite() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/runtime/operator.") && !strings.Contains(f.Function, "/stream/streamtest.") || strings.HasSuffix(f.File, "_test.go") {
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return "?"
		}
	}
}

func typeName[T any]() string { return reflect.TypeFor[T]().String() }

// codecFor is the codec of a part of a state.
func codecFor[V any](c *Context, name, part string) (serde.Codec[V], error) {
	codec, err := serde.For[V]()
	if err != nil {
		return nil, lasting("state %q, opened at %s: %s: %w", name, userSite(), part, err)
	}
	return codec, nil
}

// IsNil also sees nil pointers and functions in an interface.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func) && r.IsNil()
}

func codecForKey[K comparable](c *Context, name string) (serde.Codec[K], error) {
	codec, err := serde.ForKey[K]()
	if err != nil {
		return nil, lasting("state %q, opened at %s: key: %w", name, userSite(), err)
	}
	return codec, nil
}

// options claims the name and returns the state's time to live, nil when it lives for ever.
func (r *RuntimeContext[K]) options(name, what string, opts []StateOption) (*ttl, error) {
	var o stateOptions
	for _, f := range opts {
		f(&o)
	}
	if err := r.ctx.claim(name, what, ofKey, o.ttl); err != nil {
		return nil, err
	}
	if o.ttl == nil {
		return nil, nil
	}
	t, err := newTTL(r.ctx, name, *o.ttl)
	if err != nil {
		return nil, lasting("state %q, opened at %s: %w", name, userSite(), err)
	}
	return t, nil
}

// openTable opens a table of user state.
func openTable[K comparable, V any](c *Context, desc state.TableDesc[K, V]) (state.Table[K, V], error) {
	name := desc.Name
	desc.Name, desc.Verify = userPrefix+name, verifyKeys(c, desc.Key)
	var t state.Table[K, V]
	err := c.openState("state", name, func(b state.Backend) (err error) {
		t, err = backend.OpenTable(b, desc)
		return err
	})
	return t, err
}

// valueAccess is one value of the current key.
type valueAccess[V any] interface {
	get() (V, bool, error)
	put(V) error
	// ref is the value for update in place, a zero one when there is none.
	ref() (*V, bool, error)
	clear() error
	table() any
}

// noKey is the key group of the current key while there is none: in Open, in SnapshotState, and with broadcast records.
const noKey = math.MaxUint16

var errNoKey = errors.New("there is no current key: keyed state is that of a record's or a timer's key (ApplyToKeyedState goes over keys)")

// noCurrentKey is errNoKey with the user's line.
func noCurrentKey() error { return fmt.Errorf("state used at %s: %w", userSite(), errNoKey) }

// keyedValue is a value that lives for ever.
type keyedValue[K comparable, V any] struct {
	t   state.Table[K, V]
	cur *state.Key[K]
}

func (k *keyedValue[K, V]) get() (v V, found bool, err error) {
	if k.cur.Group == noKey {
		return v, false, noCurrentKey()
	}
	return k.t.Get(*k.cur, 0)
}

func (k *keyedValue[K, V]) put(v V) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Put(*k.cur, 0, v)
}

func (k *keyedValue[K, V]) ref() (*V, bool, error) {
	if k.cur.Group == noKey {
		return nil, false, noCurrentKey()
	}
	return k.t.Ref(*k.cur, 0)
}

func (k *keyedValue[K, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Delete(*k.cur, 0)
}

func (k *keyedValue[K, V]) table() any { return tableKeys[K, V]{k.t} }

// tableKeys lists a table's keys.
type tableKeys[K comparable, V any] struct{ t state.Table[K, V] }

func (l tableKeys[K, V]) keys() (out []state.Key[K], err error) {
	err = l.t.Scan(0, func(k state.Key[K], _ *V) error {
		out = append(out, k)
		return nil
	})
	return out, err
}

// openValue opens one value per key, as what.
func (r *RuntimeContext[K]) openValue[V any](name, what string, codec serde.Codec[V], opts []StateOption) (valueAccess[V], error) {
	ttl, err := r.options(name, what, opts)
	if err != nil {
		return nil, err
	}
	if ttl == nil {
		t, err := openTable(r.ctx, state.TableDesc[K, V]{Name: name, Key: r.key, Value: codec, Adapt: state.Adapt(codec)})
		if err != nil {
			return nil, err
		}
		v := &keyedValue[K, V]{t, r.cur}
		r.ctx.listed(v)
		return v, nil
	}
	t, err := openTable(r.ctx, state.TableDesc[K, state.Timed[V]]{Name: name, Key: r.key, Value: state.TimedCodec(codec), Adapt: state.AdaptTimed(codec),
		TTL: &state.TTL[state.Timed[V]]{Now: r.ctx.Now, Removed: ttl.removed, Snapshots: ttl.CleanupFullSnapshot, Live: func(v state.Timed[V], now int64) (state.Timed[V], bool, bool) {
			return v, !ttl.expired(v.At, now), false
		}}})
	if err != nil {
		return nil, err
	}
	ttl.sweep(t)
	v := &timedValue[K, V]{t, r.cur, ttl}
	r.ctx.listed(v)
	return v, nil
}

// ValueState is one value per key. Source: Flink ValueState.
type ValueState[V any] struct{ s valueAccess[V] }

// Value returns the current key's value; found is false when there is none. Slices and maps inside are not to be changed.
func (s ValueState[V]) Value() (v V, found bool, err error) { return s.s.get() }

// Update sets the current key's value.
func (s ValueState[V]) Update(v V) error { return s.s.put(v) }

// Clear removes the current key's value.
func (s ValueState[V]) Clear() error { return s.s.clear() }

func (s ValueState[V]) table() any { return s.s.table() }

// ValueState opens the value state of this name. Names are unique in a function and stable across versions.
func (r *RuntimeContext[K]) ValueState[V any](name string, opts ...StateOption) (ValueState[V], error) {
	codec, err := codecFor[V](r.ctx, name, "value")
	if err != nil {
		return ValueState[V]{}, err
	}
	s, err := r.openValue(name, "ValueState["+typeName[V]()+"]", codec, opts)
	return ValueState[V]{s}, err
}

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
