package operator

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
)

// KeyRule is what all keys keep to, those of KeyBy, of map states and of broadcast states: keys that are equal by == encode alike, and each
// key equals itself. So 0 and -0 are one key, which is 0, and a NaN is none.
type KeyRule[K comparable] struct {
	floats []keyFloat
}

// keyFloat is a floating point number inside of a key.
type keyFloat struct {
	off  uintptr
	four bool // float32
}

// NewKeyRule finds the numbers of a key type that the rule is about. Most types have none.
func NewKeyRule[K comparable]() KeyRule[K] {
	return KeyRule[K]{floatsOf(nil, reflect.TypeFor[K](), 0)}
}

func floatsOf(to []keyFloat, t reflect.Type, off uintptr) []keyFloat {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return append(to, keyFloat{off, t.Size() == 4})
	case reflect.Complex64, reflect.Complex128:
		half := t.Size() / 2
		return append(to, keyFloat{off, half == 4}, keyFloat{off + half, half == 4})
	case reflect.Array:
		if len(floatsOf(nil, t.Elem(), 0)) == 0 {
			return to
		}
		for i := range t.Len() {
			to = floatsOf(to, t.Elem(), off+uintptr(i)*t.Elem().Size())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			to = floatsOf(to, t.Field(i).Type, off+t.Field(i).Offset)
		}
	}
	return to
}

// Checks reports whether there is anything that Settle could do.
func (r KeyRule[K]) Checks() bool { return len(r.floats) > 0 }

// Settle makes each -0 in *k 0. It returns false when *k is, or holds, a NaN: no key then.
func (r KeyRule[K]) Settle(k *K) bool {
	return len(r.floats) == 0 || settleFloats(r.floats, unsafe.Pointer(k))
}

// settleFloats also takes -0 for == 0.
func settleFloats(fs []keyFloat, p unsafe.Pointer) bool {
	for _, f := range fs {
		if f.four {
			x := (*float32)(unsafe.Add(p, f.off))
			if *x == 0 {
				*x = 0
			} else if *x != *x {
				return false
			}
			continue
		}
		x := (*float64)(unsafe.Add(p, f.off))
		if *x == 0 {
			*x = 0
		} else if math.IsNaN(*x) {
			return false
		}
	}
	return true
}

// KeyFn is fn with the rule. A NaN fails the task for good: the record is the same after a restart.
func (r KeyRule[K]) KeyFn[T any](site string, fn func(T) K) func(T) K {
	if !r.Checks() {
		return fn
	}
	return func(v T) K {
		k := fn(v)
		if !r.Settle(&k) {
			panic(notANumber("KeyBy at "+site, k))
		}
		return k
	}
}

// notANumber is the error of a key that is none.
func notANumber(where string, k any) error {
	return lasting("%s: the key %v is, or holds, not a number (NaN), which equals no key, not even itself: leave such records out", where, k)
}

// again checks that keys come back from their encoding: what a codec of the user's leaves out is lost in snapshots, and keys that differ in
// nothing else are one key there. It is nil for the codecs of the engine. A codec that leaves something out does so with most keys, so that the
// first keyChecksFirst are checked, and then one of keyCheckEvery.
type again[K comparable] struct {
	codec serde.Codec[K]
	rule  KeyRule[K]
	buf   []byte
	n     int // asked
}

func newAgain[K comparable](codec serde.Codec[K]) *again[K] {
	if !serde.Lossy(codec) {
		return nil
	}
	return &again[K]{codec: codec, rule: NewKeyRule[K]()}
}

// verify names the key's KeyBy by its site.
func (a *again[K]) verify(site string, k K) error { return a.comesBack("KeyBy at ", site, k) }

func (a *again[K]) comesBack(what, where string, k K) error {
	if a == nil {
		return nil
	}
	if a.n++; a.n > keyChecksFirst && a.n%keyCheckEvery != 0 {
		return nil
	}
	a.buf = a.codec.Append(a.buf[:0], k)
	got, _, err := a.codec.Decode(a.buf)
	if err == nil && a.rule.Settle(&got) && got == k {
		return nil
	}
	came := fmt.Sprintf("%#v", got)
	if err != nil {
		came = err.Error()
	}
	return lasting("%s%s: a key of type %s does not come back from its encoding: of %#v came %s. Its codec (MarshalBinary and UnmarshalBinary, or the one it was registered with) "+
		"must keep all that == compares, or keys become one, or are not found, after a restart", what, where, typeName[K](), k, came)
}

// ruledKeys are the keys of a map state or a broadcast state.
type ruledKeys[UK comparable] struct {
	KeyRule[UK]
	again      *again[UK]
	kind, name string
}

func newRuledKeys[UK comparable](codec serde.Codec[UK], kind, name string) ruledKeys[UK] {
	return ruledKeys[UK]{NewKeyRule[UK](), newAgain(codec), kind, name}
}

// stored is settle for a key that is written.
func (r *ruledKeys[UK]) stored(k *UK) error {
	if err := r.settle(k); err != nil || r.again == nil {
		return err
	}
	return r.again.comesBack(r.kind+" ", strconv.Quote(r.name), *k)
}

// settle is Settle with an error.
func (r *ruledKeys[UK]) settle(k *UK) error {
	if r.Settle(k) {
		return nil
	}
	return notANumber(fmt.Sprintf("%s %q", r.kind, r.name), *k)
}
