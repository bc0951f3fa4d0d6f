package serde

import (
	"encoding/binary"
	"unsafe"
)

// Codecs of types that are one scalar as a whole: the usual keys. They avoid the program interpreter.

// InPlace is implemented by the codecs of this package for callers that own addressable memory, such as state tables.
type InPlace[T any] interface {
	AppendFrom(dst []byte, p *T) []byte
	DecodeInto(src []byte, p *T) (n int, err error)
}

type scalar struct {
	name   string
	schema Schema
}

func (s *scalar) Schema() Schema { return s.schema }
func (s *scalar) Lossy() bool    { return false }

// ofThisPackage says that the encoding is what a compiled program writes.
func (s *scalar) ofThisPackage() {}

func short(name string, n int) error { return &DecodeError{Type: name, Offset: n, Reason: reasonShort} }

// word encodes types of 8 bytes (int, int64, uint64, uint, float64 and types based on them) and of 4. It is one type for both: each is compiled in
// every program, for each type that For is called with.
type word[T any] struct {
	scalar
	four bool
}

func (c *word[T]) Append(dst []byte, v T) []byte {
	if c.four {
		return binary.LittleEndian.AppendUint32(dst, *(*uint32)(unsafe.Pointer(&v)))
	}
	return binary.LittleEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(&v)))
}

func (c *word[T]) Decode(src []byte) (v T, n int, err error) {
	if c.four {
		if len(src) < 4 {
			return v, 0, short(c.name, len(src))
		}
		*(*uint32)(unsafe.Pointer(&v)) = binary.LittleEndian.Uint32(src)
		return v, 4, nil
	}
	if len(src) < 8 {
		return v, 0, short(c.name, len(src))
	}
	*(*uint64)(unsafe.Pointer(&v)) = binary.LittleEndian.Uint64(src)
	return v, 8, nil
}

func (c *word[T]) Clone(v T) T    { return v }
func (c *word[T]) Views() bool    { return false }
func (c *word[T]) Pointers() bool { return false }

// text encodes strings: uvarint length, bytes.
type text[T any] struct{ scalar }

func (c *text[T]) Append(dst []byte, v T) []byte {
	return appendString(dst, *(*string)(unsafe.Pointer(&v)))
}

func (c *text[T]) Decode(src []byte) (v T, n int, err error) {
	if len(src) > 0 && src[0] < 0x80 && int(src[0]) < len(src) {
		n = 1 + int(src[0])
		*(*string)(unsafe.Pointer(&v)) = viewString(src[1:n])
		return v, n, nil
	}
	l, w, ok := readLen(src)
	if !ok || l > len(src)-w {
		return v, 0, short(c.name, len(src))
	}
	*(*string)(unsafe.Pointer(&v)) = viewString(src[w : w+l])
	return v, w + l, nil
}

func (c *text[T]) Clone(v T) T {
	s := string(append([]byte(nil), *(*string)(unsafe.Pointer(&v))...))
	*(*string)(unsafe.Pointer(&v)) = s
	return v
}
func (c *text[T]) Views() bool    { return true }
func (c *text[T]) Pointers() bool { return true }
func (c *text[T]) Mutable() bool  { return false }

func appendString(dst []byte, s string) []byte {
	if n := len(dst); len(s) < 0x80 && cap(dst)-n > len(s) {
		dst = dst[:n+1+len(s)]
		dst[n] = byte(len(s))
		copy(dst[n+1:], s)
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// readLen reads a uvarint that fits an int.
func readLen(src []byte) (l, w int, ok bool) {
	if len(src) > 0 && src[0] < 0x80 {
		return int(src[0]), 1, true
	}
	u, w := binary.Uvarint(src)
	if w <= 0 || u > 1<<48 {
		return 0, 0, false
	}
	return int(u), w, true
}

// Mutable reports whether values of c hold memory that an update in place could change behind the back of a shallow copy (slices,
// maps, pointers). Strings and time.Time do not count. Codecs that do not say so are taken as mutable when they hold pointers.
func Mutable[T any](c Codec[T]) bool {
	if m, ok := any(c).(interface{ Mutable() bool }); ok {
		return m.Mutable()
	}
	return c.Pointers()
}

// Lossy reports whether a decoded value may differ from the one that was encoded: time.Time loses its zone, and codecs of users and
// MarshalBinary are not known. Codecs that do not say so are taken as lossy.
func Lossy[T any](c Codec[T]) bool {
	if l, ok := any(c).(interface{ Lossy() bool }); ok {
		return l.Lossy()
	}
	return true
}
