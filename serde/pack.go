package serde

import "unsafe"

// Packer is implemented by codecs of types whose values refer to nothing but the strings that they hold themselves. It copies the strings of
// many values into one block, where Clone makes one for each value.
type Packer[T any] interface {
	// TextLen is the number of bytes of the strings of *p.
	TextLen(p *T) int
	// TouchTexts reads a byte of each cache line of the strings of *p, so that they are in the processor's cache. The sum means nothing.
	TouchTexts(p *T) uint64
	// Pack appends the strings of *p to dst, whose capacity holds them, makes them views of what it appended, and returns the extended slice.
	// The caller leaves those bytes unchanged from then on.
	Pack(dst []byte, p *T) []byte
}

// Packing returns c as a Packer; ok is false when values hold no strings, or refer to other memory too.
func Packing[T any](c Codec[T]) (p Packer[T], ok bool) {
	x, ok := c.(interface {
		Packer[T]
		Packs() bool
	})
	if !ok || !x.Packs() {
		return nil, false
	}
	return x, true
}

// packs reports whether strings, at the top, are all that a value refers to. A time.Time refers to what never changes.
func (pr *program) packs() bool {
	for i := range pr.cloneOps {
		if pr.cloneOps[i].kind != opString {
			return false
		}
	}
	return len(pr.cloneOps) > 0
}

// Packs implements the question of Packing.
func (c *programCodec[T]) Packs() bool { return c.pr.packs() }

// TextLen implements Packer.
func (c *programCodec[T]) TextLen(p *T) (n int) {
	for i := range c.pr.cloneOps {
		n += len(*(*string)(unsafe.Add(unsafe.Pointer(p), c.pr.cloneOps[i].off)))
	}
	return n
}

// TouchTexts implements Packer.
func (c *programCodec[T]) TouchTexts(p *T) (sum uint64) {
	for i := range c.pr.cloneOps {
		sum += touch((*string)(unsafe.Add(unsafe.Pointer(p), c.pr.cloneOps[i].off)))
	}
	return sum
}

// Pack implements Packer.
func (c *programCodec[T]) Pack(dst []byte, p *T) []byte {
	for i := range c.pr.cloneOps {
		dst = pack(dst, (*string)(unsafe.Add(unsafe.Pointer(p), c.pr.cloneOps[i].off)))
	}
	return dst
}

// Packs implements the question of Packing.
func (c *text[T]) Packs() bool { return true }

// TextLen implements Packer.
func (c *text[T]) TextLen(p *T) int { return len(*(*string)(unsafe.Pointer(p))) }

// TouchTexts implements Packer.
func (c *text[T]) TouchTexts(p *T) uint64 { return touch((*string)(unsafe.Pointer(p))) }

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

func touch(s *string) (sum uint64) {
	const line = 64 // bytes of a cache line
	for at := 0; at < len(*s); at += line {
		sum += uint64((*s)[at])
	}
	return sum
}
