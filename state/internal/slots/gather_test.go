package slots

import (
	"testing"

	"github.com/thalweg/thalweg/serde"
)

// Gather reads within the entries whatever their types, those of no size and those whose strings are empty included.
func TestGather(t *testing.T) {
	type wide struct {
		A    [20]int64
		Text string
	}
	gather[int64, wide](t, wide{Text: string(make([]byte, 300))}, wide{})
	gather[struct{}, struct{}](t, struct{}{})
	gather[string, string](t, "", "a text")
	gather[int8, bool](t, true)
}

func gather[K comparable, V any](t *testing.T, vals ...V) {
	t.Helper()
	var strings []uintptr
	if p, ok := serde.Packing(serde.Must[V]()); ok {
		strings = p.Strings()
	}
	p := newPage(NewPool[K, V](&Clock{}), PageLen)
	for i, v := range vals {
		p.Vals[PageLen-1-i] = v // the last of the page is the end of its memory
		p.Dirty |= 1 << (PageLen - 1 - i)
	}
	Gather([]*Page[K, V]{p}, []uint32{0}, strings)
	Gather([]*Page[K, V]{p}, nil, strings)
}
