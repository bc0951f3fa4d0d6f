package state

import (
	"math/bits"

	"github.com/thalweg/thalweg/serde"
)

// Pair is the key of one entry of a map that belongs to Key. Hash is the hash of Key alone.
type Pair[K, S comparable] struct {
	Key  K
	Sub  S
	Hash uint32
}

// MapDesc describes a map table. Name is unique in its operator and stable across versions.
type MapDesc[K, S comparable, V any] struct {
	Name  string
	Key   serde.Codec[K]
	Sub   serde.Codec[S]
	Value serde.Codec[V]
	Adapt func(stored serde.Schema, at int64) (serde.Codec[V], error) // see TableDesc
	TTL   *TTL[V]
}

// Table describes the table that holds the map's entries.
func (d MapDesc[K, S, V]) Table(maxParallelism int) TableDesc[Pair[K, S], V] {
	return TableDesc[Pair[K, S], V]{Name: d.Name, Key: PairCodec(d.Key, d.Sub, maxParallelism), Value: d.Value, Adapt: d.Adapt, TTL: d.TTL}
}

// MapTable holds one map per (key, namespace), entry by entry: no access to one entry reads or writes another.
type MapTable[K, S comparable, V any] interface {
	Table[Pair[K, S], V]
	// Entry is the address of an entry of k's map.
	Entry(k Key[K], sub S) Key[Pair[K, S]]
	// Each calls fn for every entry of k's map, in no particular order; as in Scan, fn must not touch the table.
	Each(k Key[K], ns Namespace, fn func(sub S, v *V) error) error
	// Clear removes every entry of k's map.
	Clear(k Key[K], ns Namespace) error
}

// KindPair is the schema kind of keys that are pairs.
const KindPair = "pair"

// PairHash is the hash of a pair: from the hashes of its parts, in the key group of the first.
func PairHash(key, sub uint32, maxParallelism int) uint32 {
	m := uint64(maxParallelism)
	g := uint64(key) * m >> 32
	lo, hi := (g<<32+m-1)/m, ((g+1)<<32+m-1)/m
	x := (uint64(key)<<32 | uint64(sub)) * 0x9e3779b97f4a7c15
	x ^= bits.RotateLeft64(x, 32)
	x *= 0xd6e8feb86659fd93
	return uint32(lo + x>>32*(hi-lo)>>32)
}

// HashEncoded is the hash of an encoded key: Hash32, unless the codec places keys by a part of them.
func HashEncoded[K any](c serde.Codec[K], enc []byte) uint32 {
	if p, ok := c.(interface{ HashEncoded(enc []byte) uint32 }); ok {
		return p.HashEncoded(enc)
	}
	return Hash32(enc)
}

// PairCodec encodes pairs: the key, then the sub-key, so that the entries of one map lie together where keys are ordered.
func PairCodec[K, S comparable](key serde.Codec[K], sub serde.Codec[S], maxParallelism int) serde.Codec[Pair[K, S]] {
	return &pairCodec[K, S]{key, sub, maxParallelism}
}

type pairCodec[K, S comparable] struct {
	key serde.Codec[K]
	sub serde.Codec[S]
	max int
}

// Append implements serde.Codec.
func (c *pairCodec[K, S]) Append(dst []byte, p Pair[K, S]) []byte {
	return c.sub.Append(c.key.Append(dst, p.Key), p.Sub)
}

// Decode implements serde.Codec.
func (c *pairCodec[K, S]) Decode(src []byte) (p Pair[K, S], n int, err error) {
	if p.Key, n, err = c.key.Decode(src); err != nil {
		return p, 0, err
	}
	p.Hash = Hash32(src[:n])
	sub, m, err := c.sub.Decode(src[n:])
	p.Sub = sub
	return p, n + m, err
}

// Clone implements serde.Codec.
func (c *pairCodec[K, S]) Clone(p Pair[K, S]) Pair[K, S] {
	return Pair[K, S]{c.key.Clone(p.Key), c.sub.Clone(p.Sub), p.Hash}
}

// Views implements serde.Codec.
func (c *pairCodec[K, S]) Views() bool { return c.key.Views() || c.sub.Views() }

// Pointers implements serde.Codec.
func (c *pairCodec[K, S]) Pointers() bool { return c.key.Pointers() || c.sub.Pointers() }

// Schema implements serde.Codec.
func (c *pairCodec[K, S]) Schema() serde.Schema {
	k, s := c.key.Schema(), c.sub.Schema()
	return serde.Schema{Kind: KindPair, Key: &k, Elem: &s}
}

// HashEncoded is PairHash of an encoded pair. What is no pair hashes as a whole.
func (c *pairCodec[K, S]) HashEncoded(enc []byte) uint32 {
	_, n, err := c.key.Decode(enc)
	if err != nil {
		return Hash32(enc)
	}
	return PairHash(Hash32(enc[:n]), Hash32(enc[n:]), c.max)
}
