package operator

import (
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// The compiler makes the code of both backends' tables once more for each pair of types. Where a pointer more does not matter, values are
// kept behind one, in tables whose values are any: there is one such table for each type of key. What is stored is the same.

// boxCodec is a codec of *V as any.
type boxCodec[V any] struct{ of serde.Codec[V] }

// Append implements serde.Codec. A nil box is the zero value: Ref makes it.
func (c boxCodec[V]) Append(dst []byte, v any) []byte {
	if p, ok := v.(*V); ok {
		return c.of.Append(dst, *p)
	}
	var zero V
	return c.of.Append(dst, zero)
}

// Decode implements serde.Codec.
func (c boxCodec[V]) Decode(src []byte) (any, int, error) {
	v, n, err := c.of.Decode(src)
	if err != nil {
		return nil, 0, err
	}
	return &v, n, nil
}

// Clone implements serde.Codec.
func (c boxCodec[V]) Clone(v any) any {
	p, ok := v.(*V)
	if !ok {
		return nil
	}
	n := c.of.Clone(*p)
	return &n
}

// Views implements serde.Codec.
func (c boxCodec[V]) Views() bool { return c.of.Views() }

// Pointers implements serde.Codec.
func (boxCodec[V]) Pointers() bool { return true }

// Mutable says that what a snapshot holds must not be changed in place.
func (boxCodec[V]) Mutable() bool { return true }

// Schema implements serde.Codec.
func (c boxCodec[V]) Schema() serde.Schema { return c.of.Schema() }

// reader decodes values that were stored with another schema. It is state.TableDesc.Adapt.
func (c boxCodec[V]) reader(stored serde.Schema, _ int64) (serde.Codec[any], error) {
	m, err := serde.Migrating(c.of, stored)
	if err != nil {
		return nil, err
	}
	return boxCodec[V]{m}, nil
}

// box is what is needed to open a table of boxed values.
type box struct {
	codec serde.Codec[any]
	adapt func(serde.Schema, int64) (serde.Codec[any], error)
}

func boxing[V any](c serde.Codec[V]) box {
	b := boxCodec[V]{c}
	return box{b, b.reader}
}

// openBoxes opens a keyed table of this operator. Each name is opened with one type of values.
func openBoxes[K comparable](ctx *Context, name string, key serde.Codec[K], value box) (state.Table[K, any], error) {
	b, err := ctx.Backend()
	if err != nil {
		return nil, err
	}
	t, err := backend.OpenTable(b, state.TableDesc[K, any]{Name: name, Key: key, Value: value.codec, Adapt: value.adapt})
	if err != nil {
		return nil, ctx.restoring(fmt.Sprintf("state %q", name), err)
	}
	return t, nil
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
	codec serde.Codec[V]
}

func openBoxed[K comparable, V any](ctx *Context, name string, key serde.Codec[K], value serde.Codec[V]) (state.Table[K, V], error) {
	t, err := openBoxes(ctx, name, key, boxing(value))
	if err != nil {
		return nil, err
	}
	return &boxedTable[K, V]{t, value}, nil
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
	*p = t.codec.Clone(v)
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
