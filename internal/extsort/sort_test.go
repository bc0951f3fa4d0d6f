package extsort

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// TestSortAgainstMemory: with whatever little memory, the records come out as a stable sort in memory puts them, nothing that was returned
// changes later, and no file is left.
func TestSortAgainstMemory(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		cfg := Config{Dir: dir, Memory: int64(rapid.SampledFrom([]int{1, 200, 1000, 1 << 20}).Draw(rt, "memory")),
			FanIn: rapid.IntRange(2, 5).Draw(rt, "fan-in"), BlockSize: rapid.SampledFrom([]int{1, 9, 100, 4096}).Draw(rt, "block")}
		type record struct{ key, value []byte }
		keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 12), 1, 8).Draw(rt, "keys")
		var want []record
		s := New(cfg)
		for i := range rapid.IntRange(0, 200).Draw(rt, "records") {
			r := record{rapid.SampledFrom(keys).Draw(rt, "key"), fmt.Appendf(nil, "%d-%s", i, strings.Repeat("x", rapid.IntRange(0, 40).Draw(rt, "pad")))}
			want = append(want, r)
			k, v := bytes.Clone(r.key), bytes.Clone(r.value)
			if err := s.Add(k, v); err != nil {
				rt.Fatal(err)
			}
			clear(k) // the sorter keeps copies
			clear(v)
		}
		slices.SortStableFunc(want, func(a, b record) int { return bytes.Compare(a.key, b.key) })
		it, err := s.Sort()
		if err != nil {
			rt.Fatal(err)
		}
		var got []record
		for {
			k, v, ok, err := it.Next()
			if err != nil {
				rt.Fatal(err)
			}
			if !ok {
				break
			}
			got = append(got, record{k, v})
		}
		if !slices.EqualFunc(got, want, func(a, b record) bool { return bytes.Equal(a.key, b.key) && bytes.Equal(a.value, b.value) }) {
			rt.Fatalf("%d records came out otherwise than %d went in", len(got), len(want))
		}
		if cfg.Memory == 1 && len(want) > 1 && s.Spilled() == 0 {
			rt.Fatal("nothing was spilled")
		}
		if err := s.Add(nil, nil); err == nil {
			rt.Fatal("a record was taken after the sort")
		}
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			rt.Fatalf("files are left: %v", err)
		}
	})
}

// Half-way closed sorters leave nothing either.
func TestCloseBeforeTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill")
	s := New(Config{Dir: dir, Memory: 1})
	for i := range 10 {
		if err := s.Add([]byte{byte(10 - i)}, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	it, err := s.Sort()
	if err != nil {
		t.Fatal(err)
	}
	if k, _, ok, err := it.Next(); !ok || err != nil || k[0] != 1 {
		t.Fatal(k, ok, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func TestDamagedRun(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut short": func(b []byte) []byte { return b[:len(b)-1] },
		"lengths":   func(b []byte) []byte { return append(bytes.Repeat([]byte{0xff}, 8), b[8:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Dir: filepath.Join(t.TempDir(), "spill"), Memory: 1})
			defer func() { _ = s.Close() }()
			for i := range 3 {
				if err := s.Add([]byte{byte(i)}, []byte("value")); err != nil {
					t.Fatal(err)
				}
			}
			b, err := os.ReadFile(s.runs[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.runs[0], damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			it, err := s.Sort()
			for ok := err == nil; ok && err == nil; {
				_, _, ok, err = it.Next()
			}
			if err == nil || !strings.Contains(err.Error(), s.cfg.Dir) {
				t.Fatalf("want an error that names the run, got %v", err)
			}
		})
	}
}

func TestFullDisk(t *testing.T) {
	err := diskError("write a run", &os.PathError{Op: "write", Path: "/d/run-1", Err: syscall.ENOSPC})
	if s := err.Error(); !strings.Contains(s, "/d/run-1") || !strings.Contains(s, "io.tmp.dirs") {
		t.Fatal(s)
	}
}

func BenchmarkSort(b *testing.B) {
	for _, memory := range []int64{64 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("memory=%dMiB", memory>>20), func(b *testing.B) {
			value := make([]byte, 80)
			for b.Loop() {
				s := New(Config{Dir: filepath.Join(b.TempDir(), "spill"), Memory: memory})
				var key [20]byte
				for i := range 200_000 {
					x := uint64(i) * 0x9e3779b97f4a7c15
					for j := range 8 {
						key[j] = byte(x >> (8 * j))
					}
					if err := s.Add(key[:], value); err != nil {
						b.Fatal(err)
					}
				}
				it, err := s.Sort()
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for ok := true; ok; {
					if _, _, ok, err = it.Next(); err != nil {
						b.Fatal(err)
					} else if ok {
						n++
					}
				}
				if cmp.Compare(n, 200_000) != 0 {
					b.Fatal(n)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
