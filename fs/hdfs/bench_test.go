package hdfs_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/thalweg/thalweg/fs"
)

// BenchmarkSmallFile is what a checkpoint of a small job costs: one file of 100 KB, written and replaced.
func BenchmarkSmallFile(b *testing.B) {
	f := open(b, cluster(b))
	data := make([]byte, 100_000)
	for _, overwrite := range []bool{false, true} {
		b.Run(fmt.Sprintf("overwrite=%t", overwrite), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for i := 0; b.Loop(); i++ {
				p := "/tmp/bench/f"
				if !overwrite {
					p = fmt.Sprintf("/tmp/bench/%d-%d", b.N, i)
				}
				if err := fs.WriteFile(b.Context(), f, p, data, overwrite); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := f.Remove(b.Context(), "/tmp/bench", true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLargeFile(b *testing.B) {
	f := open(b, cluster(b))
	data := make([]byte, 64<<20)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			if err := fs.WriteFile(b.Context(), f, "/tmp/bench/large", data, true); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			r, err := f.Open(b.Context(), "/tmp/bench/large")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); err != nil || n != int64(len(data)) {
				b.Fatal(n, err)
			}
			if err := r.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("readat-4k", func(b *testing.B) {
		r, err := f.Open(b.Context(), "/tmp/bench/large")
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, 4096)
		for i := 0; b.Loop(); i++ {
			if _, err := r.ReadAt(buf, int64(i*1_000_003)%(60<<20)); err != nil {
				b.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	})
	if err := f.Remove(b.Context(), "/tmp/bench", true); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkStat(b *testing.B) {
	f := open(b, cluster(b))
	for b.Loop() {
		if _, err := f.Stat(b.Context(), "/tmp"); err != nil {
			b.Fatal(err)
		}
	}
}
