package pebble

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// Keys in Pebble, numbers big-endian so that bytes order as values do:
//
//	table    2 bytes id | 2 bytes key group | 8 bytes namespace, sign flipped | encoded key
//	timers   2 bytes id | 2 bytes key group | 8 bytes time, sign flipped | 8 bytes namespace, sign flipped | encoded key
//	meta     0 0 'm'
//
// A table's value is one byte, the version of the value's schema in meta, and the encoded value. A timer's value is empty.

const (
	groupPrefix = 4
	tablePrefix = 12
	timerPrefix = 20
)

// whole checks that a stored key of a set of a kind has all that stands before the encoded key.
func whole(kind string, k []byte) error {
	n := tablePrefix
	if kind == canonical.KindTimers {
		n = timerPrefix
	}
	if len(k) < n {
		return fmt.Errorf("a stored key of %d bytes: %w", len(k), canonical.ErrCorrupt)
	}
	return nil
}

var metaKey = []byte{0, 0, 'm'}

func appendGroup(dst []byte, id uint16, group int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, id)
	return binary.BigEndian.AppendUint16(dst, uint16(group))
}

func appendOrdered(dst []byte, x int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(x)^1<<63)
}

func ordered(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

func appendNamespace(dst []byte, id uint16, group int, ns state.Namespace) []byte {
	return appendOrdered(appendGroup(dst, id, group), ns)
}

// after is the least key above all keys that start with prefix; prefixes here are never all 0xff.
func after(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return b[:i+1]
		}
	}
	return nil
}

// groupEnd is the end of the keys of a state's key groups below group end.
func groupEnd(id uint16, end int) []byte {
	if end > 0xffff {
		return binary.BigEndian.AppendUint16(nil, id+1)
	}
	return appendGroup(nil, id, end)
}

// groupSet is a set of key groups, counted from the start of the backend's range.
type groupSet []uint64

func (g groupSet) has(i int) bool { return i>>6 < len(g) && g[i>>6]>>(i&63)&1 != 0 }

func (g *groupSet) add(i int) {
	for i>>6 >= len(*g) {
		*g = append(*g, 0)
	}
	(*g)[i>>6] |= 1 << (i & 63)
}

func (g groupSet) empty() bool {
	for _, w := range g {
		if w != 0 {
			return false
		}
	}
	return true
}

// each calls fn with every group of the set, ascending, until it returns an error.
func (g groupSet) each(fn func(i int) error) error {
	for w := range g {
		for x := g[w]; x != 0; x &= x - 1 {
			if err := fn(w<<6 + bits.TrailingZeros64(x)); err != nil {
				return err
			}
		}
	}
	return nil
}
