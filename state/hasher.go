package state

import "github.com/thalweg/thalweg/serde"

// Hasher computes the hash of keys by their encoding. It keeps a scratch buffer, so that hashing does not allocate: one Hasher per
// task, not for concurrent use.
type Hasher[K any] struct {
	codec serde.Codec[K]
	buf   []byte
}

// NewHasher returns a Hasher for keys encoded by codec.
func NewHasher[K any](codec serde.Codec[K]) *Hasher[K] {
	return &Hasher[K]{codec: codec, buf: make([]byte, 0, 64)}
}

// Hash is Hash32 of the encoded key.
func (h *Hasher[K]) Hash(k K) uint32 {
	h.buf = h.codec.Append(h.buf[:0], k)
	return Hash32(h.buf)
}

// KeyOf returns k with its hash and its key group of maxParallelism.
func KeyOf[K comparable](h *Hasher[K], k K, maxParallelism int) Key[K] {
	x := h.Hash(k)
	return Key[K]{Key: k, Hash: x, Group: GroupOf(x, maxParallelism)}
}
