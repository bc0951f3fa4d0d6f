package operator

import (
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// The compiler makes the code of both backends' tables once more for each pair of types. Where a pointer more does not matter, values are
// kept behind one, in tables whose values are any: there is one such table for each type of key. What is stored is the same.

// openBoxes opens a keyed table of this operator. Each name is opened with one type of values.
func openBoxes[K comparable](ctx *Context, name string, key serde.Codec[K], value *serde.Boxed) (state.Table[K, any], error) {
	adapt := func(stored serde.Schema, _ int64) (serde.Codec[any], error) { return asCodec(value.Migrating(stored)) }
	var t state.Table[K, any]
	err := ctx.openState("state", name, func(b state.Backend) (err error) {
		t, err = backend.OpenTable(b, state.TableDesc[K, any]{Name: name, Key: key, Value: value, Adapt: adapt, Verify: verifyKeys(ctx, key)})
		return err
	})
	return t, err
}

// asCodec keeps a nil pointer from becoming a codec.
func asCodec(b *serde.Boxed, err error) (serde.Codec[any], error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// unbox returns a copy of what is in a box.
func unbox[V any](b any, found bool, err error) (v V, _ bool, _ error) {
	if p, ok := b.(*V); ok {
		v = *p
	}
	return v, found, err
}

// unboxed returns what is in a box that a table's Ref returned.
func unboxed[V any](b *any, found bool, err error) (*V, bool, error) {
	if err != nil {
		return nil, false, err
	}
	p, ok := (*b).(*V)
	if !ok {
		p = new(V)
		*b = p
	}
	return p, found, nil
}

// boxedTable is a table of V whose values are boxed. Put reads what it replaces.
type boxedTable[K comparable, V any] struct {
	state.Table[K, any]
	codec *serde.Boxed
}

func openBoxed[K comparable, V any](ctx *Context, name string, key serde.Codec[K]) (state.Table[K, V], error) {
	codec, err := serde.ForBoxed[V]()
	if err != nil {
		return nil, err
	}
	t, err := openBoxes(ctx, name, key, codec)
	if err != nil {
		return nil, err
	}
	return &boxedTable[K, V]{t, codec}, nil
}

// Get implements state.Table.
func (t *boxedTable[K, V]) Get(k state.Key[K], ns state.Namespace) (V, bool, error) {
	return unbox[V](t.Table.Get(k, ns))
}

// Put implements state.Table.
func (t *boxedTable[K, V]) Put(k state.Key[K], ns state.Namespace, v V) error {
	p, _, err := t.Ref(k, ns)
	if err != nil {
		return err
	}
	*p = v
	t.codec.Own(p)
	return nil
}

// Ref implements state.Table.
func (t *boxedTable[K, V]) Ref(k state.Key[K], ns state.Namespace) (*V, bool, error) {
	return unboxed[V](t.Table.Ref(k, ns))
}

// Scan implements state.Table.
func (t *boxedTable[K, V]) Scan(ns state.Namespace, fn func(k state.Key[K], v *V) error) error {
	return t.Table.Scan(ns, func(k state.Key[K], b *any) error {
		p, _, _ := unboxed[V](b, true, nil)
		return fn(k, p)
	})
}

// openTyped opens a table whose values are not boxed.
func openTyped[K comparable, V any](ctx *Context, name string, key serde.Codec[K]) (state.Table[K, V], error) {
	codec, err := serde.For[V]()
	if err != nil {
		return nil, err
	}
	return OpenTable(ctx, name, key, codec)
}
