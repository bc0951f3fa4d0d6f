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
	of := ofKey
	if r.win != nil {
		if r.win.merging {
			return nil, lasting("state %q, opened at %s: per-window state is not possible with windows that merge; use the key's state", name, userSite())
		}
		of, what = ofWindow, "Window"+what
	}
	if err := r.ctx.claim(name, what, of, o.ttl); err != nil {
		return nil, err
	}
	if o.ttl == nil {
		return nil, nil
	}
	t, err := newTTL(r.ctx, strings.TrimPrefix(r.stored(name), userPrefix), *o.ttl)
	if err != nil {
		return nil, lasting("state %q, opened at %s: %w", name, userSite(), err)
	}
	return t, nil
}

// openTable opens a table of user state.
func (r *RuntimeContext[K]) openTable[V any](desc state.TableDesc[K, V]) (state.Table[K, V], error) {
	name := desc.Name
	desc.Name, desc.Key, desc.Verify = r.stored(name), r.key, verifyKeys(r.ctx, r.key)
	var t state.Table[K, V]
	err := r.ctx.openState("state", name, func(b state.Backend) (err error) {
		t, err = backend.OpenTable(b, desc)
		return err
	})
	if err == nil && r.win != nil {
		r.win.keep(t.Delete, t.DropNamespace)
	}
	return t, err
}

// stored is the name of a state in snapshots.
func (r *RuntimeContext[K]) stored(name string) string {
	if r.win != nil {
		return windowPrefix + name
	}
	return userPrefix + name
}

// noWindow is the namespace of the key's own state.
var noWindow state.Namespace

// namespace is where the namespace of the current window is kept.
func (r *RuntimeContext[K]) namespace() *state.Namespace {
	if r.win != nil {
		return &r.win.ns
	}
	return &noWindow
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

// keyedValue is a value that lives for ever, or as long as its window.
type keyedValue[K comparable, V any] struct {
	t   state.Table[K, V]
	cur *state.Key[K]
	ns  *state.Namespace
}

func (k *keyedValue[K, V]) get() (v V, found bool, err error) {
	if k.cur.Group == noKey {
		return v, false, noCurrentKey()
	}
	return k.t.Get(*k.cur, *k.ns)
}

func (k *keyedValue[K, V]) put(v V) error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Put(*k.cur, *k.ns, v)
}

func (k *keyedValue[K, V]) ref() (*V, bool, error) {
	if k.cur.Group == noKey {
		return nil, false, noCurrentKey()
	}
	return k.t.Ref(*k.cur, *k.ns)
}

func (k *keyedValue[K, V]) clear() error {
	if k.cur.Group == noKey {
		return noCurrentKey()
	}
	return k.t.Delete(*k.cur, *k.ns)
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
		t, err := r.openTable(state.TableDesc[K, V]{Name: name, Value: codec, Adapt: state.Adapt(codec)})
		if err != nil {
			return nil, err
		}
		v := &keyedValue[K, V]{t, r.cur, r.namespace()}
		r.ctx.listed(v)
		return v, nil
	}
	t, err := r.openTable(state.TableDesc[K, state.Timed[V]]{Name: name, Value: state.TimedCodec(codec), Adapt: state.AdaptTimed(codec),
		TTL: &state.TTL[state.Timed[V]]{Now: r.ctx.Now, Removed: ttl.removed, Snapshots: ttl.CleanupFullSnapshot, Live: func(v state.Timed[V], now int64) (state.Timed[V], bool, bool) {
			return v, !ttl.expired(v.At, now), false
		}}})
	if err != nil {
		return nil, err
	}
	ttl.sweep(t)
	v := &timedValue[K, V]{t, r.cur, r.namespace(), ttl}
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
