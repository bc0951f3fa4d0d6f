package serde

import "reflect"

// Boxed is the codec of a type T on pointers to its values, *T as any: what works with it needs no type parameter. The encoding is that of
// For. A nil any is the zero value.
type Boxed struct {
	scalar
	t    reflect.Type
	pr   *program
	from *program // decodes
}

// ForBoxed returns the codec of *T as any; it fails as For does.
func ForBoxed[T any]() (*Boxed, error) { return boxedFor(reflect.TypeFor[T]()) }

func boxedFor(t reflect.Type) (*Boxed, error) {
	var c compiler
	pr, schema := c.compile(t, nil)
	if len(c.problems) > 0 {
		return nil, &TypeError{Type: typeName(t), Problems: c.problems}
	}
	return &Boxed{scalar{typeName(t), schema}, t, pr, pr}, nil
}

// Append implements Codec.
func (b *Boxed) Append(dst []byte, v any) []byte {
	if v == nil {
		return b.pr.append(dst, reflect.New(b.t).UnsafePointer())
	}
	return b.pr.append(dst, reflect.ValueOf(v).UnsafePointer())
}

// Decode implements Codec.
func (b *Boxed) Decode(src []byte) (any, int, error) {
	v := reflect.New(b.t)
	n, err := b.from.decode(src, 0, v.UnsafePointer())
	if err != nil {
		return nil, 0, withType(err, b.name)
	}
	return v.Interface(), n, nil
}

// Clone implements Codec.
func (b *Boxed) Clone(v any) any {
	if v == nil {
		return nil
	}
	n := reflect.New(b.t)
	n.Elem().Set(reflect.ValueOf(v).Elem())
	b.pr.clone(n.UnsafePointer())
	return n.Interface()
}

// Own is Clone in place: afterwards what v points to shares no memory with anything else.
func (b *Boxed) Own(v any) { b.pr.clone(reflect.ValueOf(v).UnsafePointer()) }

// Views implements Codec.
func (b *Boxed) Views() bool { return b.pr.views }

// Pointers implements Codec.
func (*Boxed) Pointers() bool { return true }

// Mutable says that copies of the any share the value.
func (*Boxed) Mutable() bool { return true }

// Lossy is Lossy of T's codec.
func (b *Boxed) Lossy() bool { return b.pr.lossy }

// Migrating is Migrating for boxed values.
func (b *Boxed) Migrating(old Schema) (*Boxed, error) {
	if Same(old, b.schema) {
		return b, nil
	}
	if err := Compatible(old, b.schema); err != nil {
		return nil, err
	}
	var c compiler
	from, _ := c.compile(b.t, &old)
	if len(c.problems) > 0 {
		return nil, &TypeError{Type: b.name, Problems: c.problems}
	}
	return &Boxed{b.scalar, b.t, b.pr, from}, nil
}
