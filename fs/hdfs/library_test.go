package hdfs_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os/user"
	"testing"

	library "github.com/colinmarc/hdfs/v2"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
)

func libraryClient(t testing.TB, cfg hdfs.Config) *library.Client {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	c, err := library.NewClient(library.ClientOptions{Addresses: []string{cfg.DefaultAuthority}, User: me.Username})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestAnotherClientReadsWhatWeWriteAndTheOtherWayRound is an independent check of content and checksums, over several blocks.
func TestAnotherClientReadsWhatWeWriteAndTheOtherWayRound(t *testing.T) {
	cfg := cluster(t)
	cfg.BlockSize = 1 << 20
	f, lib := open(t, cfg), libraryClient(t, cfg)
	dir := "/tmp/library-check"
	if err := f.Mkdir(t.Context(), dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lib.RemoveAll(dir) })
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{0, 1, 511, 512, 513, 65_535, 65_536, 65_537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 77} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if err := fs.WriteFile(t.Context(), f, dir+"/ours", data, true); err != nil {
			t.Fatal(err)
		}
		if got, err := lib.ReadFile(dir + "/ours"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes of ours: the library reads %d, %v", size, len(got), err)
		}
		_ = lib.Remove(dir + "/theirs")
		w, err := lib.CreateFile(dir+"/theirs", 1, 1<<20, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		for err = w.Close(); library.IsErrReplicating(err); err = w.Close() { // not complete yet: its last block is not reported
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fs.ReadFile(t.Context(), f, dir+"/theirs", 8<<20); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes of theirs: we read %d, %v", size, len(got), err)
		}
	}
}

func BenchmarkLibrary(b *testing.B) {
	cfg := cluster(b)
	lib := libraryClient(b, cfg)
	if err := lib.MkdirAll("/tmp/bench", 0o755); err != nil {
		b.Fatal(err)
	}
	write := func(b *testing.B, data []byte) {
		_ = lib.Remove("/tmp/bench/lib")
		w, err := lib.Create("/tmp/bench/lib")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			b.Fatal(err)
		}
		for err = w.Close(); library.IsErrReplicating(err); err = w.Close() {
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for name, size := range map[string]int{"small": 100_000, "large": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			data := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				write(b, data)
			}
		})
	}
	b.Run("read", func(b *testing.B) {
		write(b, make([]byte, 64<<20))
		b.SetBytes(64 << 20)
		for b.Loop() {
			r, err := lib.Open("/tmp/bench/lib")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); err != nil || n != 64<<20 {
				b.Fatal(n, err)
			}
			_ = r.Close()
		}
	})
	_ = lib.RemoveAll("/tmp/bench")
}
