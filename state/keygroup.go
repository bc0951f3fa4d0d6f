package state

import "math/bits"

// DefaultMaxParallelism is Flink's rule: 1.5 times the parallelism, rounded up to a power of two, within [128, 32768].
// Source: Flink KeyGroupRangeAssignment.computeDefaultMaxParallelism.
func DefaultMaxParallelism(parallelism int) int {
	n := parallelism + parallelism/2
	p := 1
	for p < n {
		p <<= 1
	}
	return min(max(p, 128), MaxMaxParallelism)
}

// MaxMaxParallelism is the upper limit of a max parallelism.
const MaxMaxParallelism = 1 << 15

// Hash32 hashes an encoded key: 32-bit MurmurHash3 with seed 0. Every part of the system that places keys uses it.
// Source: Austin Appleby's MurmurHash3_x86_32 (public domain algorithm).
func Hash32(b []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	var h uint32
	n := len(b)
	for len(b) >= 4 {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		b = b[4:]
		h ^= bits.RotateLeft32(k*c1, 15) * c2
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	var k uint32
	switch len(b) {
	case 3:
		k ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		k ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		k ^= uint32(b[0])
		h ^= bits.RotateLeft32(k*c1, 15) * c2
	}
	h ^= uint32(n)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// GroupOf maps a key's hash to its key group in [0, maxParallelism): the high part of the product, so that hash tables may use the
// low bits independently.
func GroupOf(hash uint32, maxParallelism int) uint16 {
	return uint16(uint64(hash) * uint64(maxParallelism) >> 32)
}

// RangeOf is the key-group range of one subtask. Source: Flink KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex.
func RangeOf(maxParallelism, parallelism, subtask int) Range {
	return Range{
		Start: (subtask*maxParallelism + parallelism - 1) / parallelism,
		End:   ((subtask+1)*maxParallelism + parallelism - 1) / parallelism,
	}
}

// SubtaskOf is the subtask that owns key group g. Source: Flink KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup.
func SubtaskOf(maxParallelism, parallelism int, g uint16) int {
	return int(g) * parallelism / maxParallelism
}
