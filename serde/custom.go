package serde

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// registry maps types to users' codecs. compiled maps types to the result of For.
var (
	registryMu sync.RWMutex
	registry   = map[reflect.Type]registration{}
	compiled   sync.Map // reflect.Type -> result[T]
)

type registration struct {
	erased  erased
	codec   any // Codec[T]
	schema  Schema
	views   bool
	ptrs    bool
	mutable bool
}

// Register makes c the codec of T, for T as a whole and wherever it occurs inside of other types. Call it from init, before the first
// For of a type that contains T. The encoding of a value takes at least one byte. Register fails when T is registered already or a codec for T was compiled already.
func Register[T any](c Codec[T]) error {
	t := reflect.TypeFor[T]()
	if c == nil {
		return fmt.Errorf("serde: register %s: nil codec", t)
	}
	s := c.Schema()
	if s.Kind == "" {
		s = Schema{Kind: "custom", Name: typeName(t)}
	}
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, ok := registry[t]; ok {
		return fmt.Errorf("serde: register %s: a codec is registered already; register each type once", t)
	}
	if _, ok := compiled.Load(t); ok {
		return fmt.Errorf("serde: register %s: a codec was compiled already; register in init, before the first use", t)
	}
	registry[t] = registration{
		erased: &userCodec[T]{c}, codec: c, schema: s,
		views: c.Views(), ptrs: c.Pointers(), mutable: Mutable(c),
	}
	return nil
}

func registered(t reflect.Type) (registration, bool) {
	registryMu.RLock()
	defer registryMu.RUnlock()
	r, ok := registry[t]
	return r, ok
}

// userCodec adapts a Codec to fields of its type.
type userCodec[T any] struct{ c Codec[T] }

func (u *userCodec[T]) appendTo(dst []byte, p unsafe.Pointer) []byte {
	return u.c.Append(dst, *(*T)(p))
}

func (u *userCodec[T]) decodeTo(src []byte, p unsafe.Pointer) (int, error) {
	v, n, err := u.c.Decode(src)
	if err == nil {
		*(*T)(p) = v
	}
	return n, err
}

func (u *userCodec[T]) cloneAt(p unsafe.Pointer) { *(*T)(p) = u.c.Clone(*(*T)(p)) }

// marshaler encodes a type by its MarshalBinary and UnmarshalBinary methods.
type marshaler struct{ typ reflect.Type }

var (
	binaryMarshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
	binaryUnmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// marshals reports whether t has both methods of its own. Methods promoted from an embedded field do not count: they would encode
// that field alone.
func marshals(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	if !p.Implements(binaryMarshaler) || !p.Implements(binaryUnmarshaler) {
		return false
	}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous && (f.Type.Implements(binaryMarshaler) || reflect.PointerTo(f.Type).Implements(binaryMarshaler)) {
				return false
			}
		}
	}
	return true
}

// heap copies the value at p to a heap cell (see unsafe.go, rule 2).
func (m *marshaler) heap(p unsafe.Pointer) reflect.Value {
	cell := reflect.New(m.typ)
	cell.Elem().Set(reflect.NewAt(m.typ, p).Elem())
	return cell
}

func (m *marshaler) appendTo(dst []byte, p unsafe.Pointer) []byte {
	b, err := m.heap(p).Interface().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic(&MarshalError{Type: m.typ.String(), Err: err})
	}
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

func (m *marshaler) decodeTo(src []byte, p unsafe.Pointer) (int, error) {
	l, w, ok := readLen(src)
	if !ok || l > len(src)-w {
		return 0, errors.New(reasonShort)
	}
	cell := reflect.New(m.typ)
	if err := cell.Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(src[w : w+l]); err != nil {
		return 0, fmt.Errorf("UnmarshalBinary: %w", err)
	}
	reflect.NewAt(m.typ, p).Elem().Set(cell.Elem())
	return w + l, nil
}

func (m *marshaler) cloneAt(p unsafe.Pointer) {
	b := m.appendTo(nil, p)
	if _, err := m.decodeTo(b, p); err != nil {
		panic(&MarshalError{Type: m.typ.String(), Err: err})
	}
}
