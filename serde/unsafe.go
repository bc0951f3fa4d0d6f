package serde

import "unsafe"

// This file holds the only pointer tricks of the package that the compiler cannot check.
//
// Codec passes values by value so that users' records stay on the stack, yet the compiled program works on an address. noescape
// hides that address from escape analysis. That is sound here because of what the programs do with it:
//
//  1. The address is only held in unsafe.Pointer variables of callee frames. The garbage collector finds the variable through them
//     (address-taken variables are stack objects), and stack growth adjusts them.
//  2. No program stores the address, or a value that contains it, in the heap, in a global or in another goroutine. Parts that use
//     reflection (maps, pointers, marshalers) first copy the value into a heap cell of their own.
//  3. The address exists as an integer only inside noescape. There is no safe point in that function, and a goroutine that is
//     preempted asynchronously has its innermost frame scanned conservatively and its stack not moved.
//
// The same technique, for the same reason, is used by the standard library (internal/abi.NoEscape).

// noescape returns p, unseen by escape analysis.
//
//go:nosplit
func noescape(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

// sliceHeader is the memory form of every slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

// zeroBase is what slices of zero-sized elements and empty slices point to.
var zeroBase uint64

// allocPlain returns zeroed memory of n bytes that the garbage collector does not look into, aligned for every pointer-free type.
func allocPlain(n uintptr) unsafe.Pointer {
	if n == 0 {
		return unsafe.Pointer(&zeroBase)
	}
	return unsafe.Pointer(unsafe.SliceData(make([]uint64, (n+7)/8)))
}

// view returns the n bytes of memory at p.
func view(p unsafe.Pointer, n uintptr) []byte { return unsafe.Slice((*byte)(p), n) }

// viewString returns b as a string that shares its memory.
func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
