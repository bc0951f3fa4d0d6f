package state

import (
	"encoding/binary"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
)

// TTL lets the values of a table expire. Tables leave expired values out of snapshots and remove them in Sweep; reads and writes see
// them as they are, so that it is for the reader to decide.
type TTL[V any] struct {
	// Now is the processing time in milliseconds; called on the task's goroutine.
	Now func() int64
	// Live is what is left of v at a time: keep false when nothing is, changed when it is less than v. It does not change v, and is
	// called from any goroutine.
	Live func(v V, now int64) (left V, keep, changed bool)
	// Snapshots says that canonical snapshots leave out what has expired.
	Snapshots bool
	// Removed, when set, is told how many entries a step of Sweep has removed, where Len does not tell (pebble).
	Removed func(n int)
}

// Sweeper is implemented by tables: Sweep looks at about n entries, going on where the last call stopped, and removes what has expired.
type Sweeper interface{ Sweep(n int) error }

// Timed is a value with the time of its last access in milliseconds.
type Timed[V any] struct {
	At int64
	V  V
}

// KindTimed and KindList are schema kinds of values: with a time, and lists of elements that are encoded one after the other.
const (
	KindTimed = "ttl"
	KindList  = "list"
)

// HasTime reports whether values, or the elements of lists, are stored with a time of last access.
func HasTime(s serde.Schema) bool {
	if s.Kind == KindList && s.Elem != nil {
		s = *s.Elem
	}
	return s.Kind == KindTimed
}

// TimedCodec encodes the time in 8 bytes, little-endian, then the value.
func TimedCodec[V any](c serde.Codec[V]) serde.Codec[Timed[V]] {
	t := &timedCodec[V]{c: c}
	if p, ok := serde.Packing(c); ok {
		t.pack = p
		for _, at := range p.Strings() {
			t.strings = append(t.strings, unsafe.Offsetof(Timed[V]{}.V)+at)
		}
	}
	return t
}

type timedCodec[V any] struct {
	c    serde.Codec[V]
	pack serde.Packer[V] // nil when values are not such as to be packed
	bare bool            // stored values have no time
	at   int64           // the time of what is decoded, when not 0 or when it has none

	strings []uintptr // see serde.Packer
}

// Append implements serde.Codec.
func (c *timedCodec[V]) Append(dst []byte, v Timed[V]) []byte {
	return c.c.Append(binary.LittleEndian.AppendUint64(dst, uint64(v.At)), v.V)
}

// Decode implements serde.Codec.
func (c *timedCodec[V]) Decode(src []byte) (v Timed[V], n int, err error) {
	if c.bare {
		v.At = c.at
		v.V, n, err = c.c.Decode(src)
		return v, n, err
	}
	if len(src) < 8 {
		return v, 0, &serde.DecodeError{Type: "time of last access", Reason: "input ends"}
	}
	if v.At = c.at; v.At == 0 {
		v.At = int64(binary.LittleEndian.Uint64(src))
	}
	v.V, n, err = c.c.Decode(src[8:])
	return v, n + 8, err
}

// Clone implements serde.Codec.
func (c *timedCodec[V]) Clone(v Timed[V]) Timed[V] { return Timed[V]{v.At, c.c.Clone(v.V)} }

// Views implements serde.Codec.
func (c *timedCodec[V]) Views() bool { return c.c.Views() }

// Pointers implements serde.Codec.
func (c *timedCodec[V]) Pointers() bool { return c.c.Pointers() }

// Mutable says whether values hold memory that an update in place could change.
func (c *timedCodec[V]) Mutable() bool { return serde.Mutable(c.c) }

// Strings implements serde.Packer: none when the values themselves are not such as to be packed.
func (c *timedCodec[V]) Strings() []uintptr { return c.strings }

// TextLen implements serde.Packer.
func (c *timedCodec[V]) TextLen(p *Timed[V]) int { return c.pack.TextLen(&p.V) }

// Pack implements serde.Packer.
func (c *timedCodec[V]) Pack(dst []byte, p *Timed[V]) []byte { return c.pack.Pack(dst, &p.V) }

// Schema implements serde.Codec.
func (c *timedCodec[V]) Schema() serde.Schema {
	s := c.c.Schema()
	return serde.Schema{Kind: KindTimed, Elem: &s}
}

// untimedCodec reads values that were stored with a time.
type untimedCodec[V any] struct{ serde.Codec[V] }

// Decode implements serde.Codec.
func (c untimedCodec[V]) Decode(src []byte) (v V, n int, err error) {
	if len(src) < 8 {
		return v, 0, &serde.DecodeError{Type: "time of last access", Reason: "input ends"}
	}
	v, n, err = c.Codec.Decode(src[8:])
	return v, n + 8, err
}

// Adapt is TableDesc.Adapt for values of c: those stored with a time lose it.
func Adapt[V any](c serde.Codec[V]) func(serde.Schema, int64) (serde.Codec[V], error) {
	return func(stored serde.Schema, _ int64) (serde.Codec[V], error) {
		if stored.Kind != KindTimed || stored.Elem == nil {
			return serde.Migrating(c, stored)
		}
		from, err := serde.Migrating(c, *stored.Elem)
		return untimedCodec[V]{from}, err
	}
}

// AdaptTimed is TableDesc.Adapt for values of c with a time: those stored without one get the time at, and so do those that were
// stored with one, when at is not 0.
func AdaptTimed[V any](c serde.Codec[V]) func(serde.Schema, int64) (serde.Codec[Timed[V]], error) {
	return func(stored serde.Schema, at int64) (serde.Codec[Timed[V]], error) {
		if stored.Kind == KindTimed && stored.Elem != nil {
			from, err := serde.Migrating(c, *stored.Elem)
			return &timedCodec[V]{c: from, at: at}, err
		}
		from, err := serde.Migrating(c, stored)
		return &timedCodec[V]{c: from, bare: true, at: at}, err
	}
}

// ListCodec encodes the number of elements as a uvarint, then each of them.
func ListCodec[E any](c serde.Codec[E]) serde.Codec[[]E] { return listCodec[E]{c} }

// AdaptList is TableDesc.Adapt for lists whose elements are adapted by elem.
func AdaptList[E any](elem func(serde.Schema, int64) (serde.Codec[E], error)) func(serde.Schema, int64) (serde.Codec[[]E], error) {
	return func(stored serde.Schema, at int64) (serde.Codec[[]E], error) {
		if stored.Kind != KindList || stored.Elem == nil {
			return nil, &serde.SchemaError{Misfits: []string{"stored " + stored.String() + ", now list"}}
		}
		c, err := elem(*stored.Elem, at)
		return listCodec[E]{c}, err
	}
}

type listCodec[E any] struct{ c serde.Codec[E] }

// Append implements serde.Codec.
func (c listCodec[E]) Append(dst []byte, vs []E) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(vs)))
	for i := range vs {
		dst = c.c.Append(dst, vs[i])
	}
	return dst
}

// Decode implements serde.Codec.
func (c listCodec[E]) Decode(src []byte) ([]E, int, error) {
	u, at := binary.Uvarint(src)
	if at <= 0 {
		return nil, 0, &serde.DecodeError{Type: "list", Reason: "input ends"}
	}
	vs := make([]E, 0, min(u, uint64(len(src)-at))) // an element may take no bytes: the list then grows as it is read
	for range u {
		v, n, err := c.c.Decode(src[at:])
		if err != nil {
			return nil, 0, err
		}
		if n == 0 && u > 1<<24 { // a corrupt length must not run for ever
			return nil, 0, &serde.DecodeError{Type: "list", Offset: at, Reason: "length is out of range"}
		}
		vs, at = append(vs, v), at+n
	}
	return vs, at, nil
}

// Clone implements serde.Codec.
func (c listCodec[E]) Clone(vs []E) []E {
	out := make([]E, len(vs))
	if !c.c.Pointers() {
		copy(out, vs)
		return out
	}
	for i := range vs {
		out[i] = c.c.Clone(vs[i])
	}
	return out
}

// Views implements serde.Codec.
func (c listCodec[E]) Views() bool { return c.c.Views() }

// Pointers implements serde.Codec.
func (c listCodec[E]) Pointers() bool { return true }

// Schema implements serde.Codec.
func (c listCodec[E]) Schema() serde.Schema {
	s := c.c.Schema()
	return serde.Schema{Kind: KindList, Elem: &s}
}
