package serde

import "unsafe"

// Packer is implemented by codecs of types whose values refer to nothing but the strings that they hold themselves. It copies the strings of
// many values into one block, where Clone makes one for each value.
type Packer[T any] interface {
	// TextLen is the number of bytes of the strings of *p.
	TextLen(p *T) int
	// Strings are the offsets of the strings in a value; none when there are none, or other memory too.
	Strings() []uintptr
	// Pack appends the strings of *p to dst, whose capacity holds them, makes them views of what it appended, and returns the extended slice.
	// The caller leaves those bytes unchanged from then on.
	Pack(dst []byte, p *T) []byte
}

// Packing returns c as a Packer; ok is false when values hold no strings, or refer to other memory too.
func Packing[T any](c Codec[T]) (p Packer[T], ok bool) {
	p, ok = c.(Packer[T])
	if !ok || len(p.Strings()) == 0 {
		return nil, false
	}
	return p, true
}

// strings are the offsets of the strings, when those at the top are all that a value refers to, else none. A time.Time refers to what never changes.
func (pr *program) strings() (offsets []uintptr) {
	for i := range pr.cloneOps {
		if pr.cloneOps[i].kind != opString {
			return nil
		}
		offsets = append(offsets, pr.cloneOps[i].off)
	}
	return offsets
}

// Strings implements Packer.
func (c *programCodec[T]) Strings() []uintptr { return c.pr.strings() }

// TextLen implements Packer.
func (c *programCodec[T]) TextLen(p *T) (n int) {
	for i := range c.pr.cloneOps {
		n += len(*(*string)(unsafe.Add(unsafe.Pointer(p), c.pr.cloneOps[i].off)))
	}
	return n
}

// Pack implements Packer.
func (c *programCodec[T]) Pack(dst []byte, p *T) []byte {
	for i := range c.pr.cloneOps {
		dst = pack(dst, (*string)(unsafe.Add(unsafe.Pointer(p), c.pr.cloneOps[i].off)))
	}
	return dst
}

// Strings implements Packer.
func (c *text[T]) Strings() []uintptr { return []uintptr{0} }

// TextLen implements Packer.
func (c *text[T]) TextLen(p *T) int { return len(*(*string)(unsafe.Pointer(p))) }

// Pack implements Packer.
func (c *text[T]) Pack(dst []byte, p *T) []byte { return pack(dst, (*string)(unsafe.Pointer(p))) }

func pack(dst []byte, s *string) []byte {
	n := len(dst)
	if len(*s) == 0 {
		*s = "" // it may be a view of a large buffer
		return dst
	}
	dst = append(dst, *s...)
	*s = viewString(dst[n:])
	return dst
}
