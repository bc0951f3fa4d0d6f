package state_test

import (
	"encoding/binary"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Known answers of MurmurHash3_x86_32 with seed 0. Source: SMHasher and the Wikipedia article's test vectors.
func TestHash32(t *testing.T) {
	for in, want := range map[string]uint32{
		"": 0, "test": 0xba6bd213, "Hello, world!": 0xc0363e43, "The quick brown fox jumps over the lazy dog": 0x2e4ff723,
	} {
		if got := state.Hash32([]byte(in)); got != want {
			t.Errorf("%q: %#x, want %#x", in, got, want)
		}
	}
}

// Ranges partition the key groups, and a group's owner is the subtask whose range holds it.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, state.MaxMaxParallelism).Draw(t, "max")
		p := rapid.IntRange(1, min(m, 300)).Draw(t, "parallelism")
		next := 0
		for i := range p {
			r := state.RangeOf(m, p, i)
			if r.Start != next || r.End <= r.Start {
				t.Fatalf("subtask %d has %+v, want a start of %d", i, r, next)
			}
			next = r.End
			for _, g := range []int{r.Start, r.End - 1, (r.Start + r.End) / 2} {
				if s := state.SubtaskOf(m, p, uint16(g)); s != i {
					t.Fatalf("group %d belongs to %d, is in the range of %d", g, s, i)
				}
			}
		}
		if next != m {
			t.Fatalf("%d groups of %d", next, m)
		}
		if g := state.GroupOf(rapid.Uint32().Draw(t, "hash"), m); int(g) >= m {
			t.Fatalf("group %d of %d", g, m)
		}
	})
}

func TestDefaultMaxParallelism(t *testing.T) {
	for p, want := range map[int]int{1: 128, 85: 128, 86: 256, 128: 256, 200: 512, 30000: 32768} {
		if got := state.DefaultMaxParallelism(p); got != want {
			t.Errorf("parallelism %d: %d, want %d", p, got, want)
		}
	}
}

func TestHasher(t *testing.T) {
	h := state.NewHasher(serde.Must[int64]())
	k := state.KeyOf(h, 5, 128)
	want := state.Hash32(binary.LittleEndian.AppendUint64(nil, 5))
	if k.Hash != want || k.Group != state.GroupOf(want, 128) {
		t.Fatalf("%+v, want hash %d", k, want)
	}
	hs := state.NewHasher(serde.Must[string]())
	if n := testing.AllocsPerRun(100, func() { hs.Hash("some key that is longer than a word") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
