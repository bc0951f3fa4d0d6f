package canonical_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var metas = []state.TableMeta{
	{Name: "t", Kind: canonical.KindTable, Key: serde.Schema{Kind: "string"}, Value: serde.Schema{Kind: "bytes"}},
	{Name: "x", Kind: canonical.KindTimers, Key: serde.Schema{Kind: "string"}},
}

func sample(t testing.TB, big int) state.Handle { return sampleOf(t, big, canonical.Write) }

func sampleOf(t testing.TB, big int, write func(ctx context.Context, sink state.Sink, maxParallelism int, rng state.Range, tables []state.TableMeta,
	fill func(ctx context.Context, w *canonical.Writer) error) (state.Handle, error)) state.Handle {
	t.Helper()
	h, err := write(context.Background(), &statetest.Store{InlineLimit: 1 << 30}, 16, state.Range{Start: 2, End: 9}, metas, func(_ context.Context, w *canonical.Writer) error {
		for g := 2; g < 9; g += 2 {
			if err := w.Begin(g); err != nil {
				return err
			}
			for i := range 5 {
				if err := w.Entry(0, int64(-i), []byte(fmt.Sprint(g, i)), bytes.Repeat([]byte{byte(i)}, big)); err != nil {
					return err
				}
				if err := w.Timer(1, int64(i), int64(g), []byte("k")); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func read(h state.Handle, rng state.Range) (n int, err error) {
	r, err := canonical.NewReader(context.Background(), &statetest.Store{}, 16, rng, []state.Handle{h})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if _, err := r.Tables(); err != nil {
		return 0, err
	}
	for _, name := range []string{"t", "x", "unknown"} {
		if err := r.Scan(name, func(e *canonical.Entry) error {
			if !rng.Contains(e.Group) {
				return fmt.Errorf("group %d outside of %+v", e.Group, rng)
			}
			n++
			return nil
		}); err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestRanges(t *testing.T) {
	for _, big := range []int{0, 10, 100_000, 3 << 20} { // 3 MiB: entries above the reader's window
		h := sample(t, big)
		for _, c := range []struct{ lo, hi, want int }{{0, 16, 40}, {2, 3, 10}, {3, 4, 0}, {4, 7, 20}, {10, 12, 0}} {
			n, err := read(h, state.Range{Start: c.lo, End: c.hi})
			if err != nil || n != c.want {
				t.Errorf("value of %d bytes, groups [%d, %d): %d entries, %v; want %d", big, c.lo, c.hi, n, err, c.want)
			}
		}
		if h.Tables[0].Stored != 20 || h.Tables[1].Stored != 20 {
			t.Errorf("stored %d and %d", h.Tables[0].Stored, h.Tables[1].Stored)
		}
	}
}

// Whatever a file holds, reading it ends with entries or an error.
func FuzzRead(f *testing.F) {
	h := sample(f, 10)
	good := h.Files[0].Ref.Inline
	f.Add(good, h.Offsets[1])
	f.Add(good[:len(good)/2], h.Offsets[1])
	packed := sampleOf(f, 10, canonical.WriteCompressed)
	f.Add(packed.Files[0].Ref.Inline, packed.Offsets[1])
	f.Add([]byte("TWKS\x01\x00\x00\x00\xff\xff\xff\x00"), int64(5))
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		x := h
		x.Files = []state.File{{Ref: state.FileRef{Inline: append([]byte{}, b...), Size: int64(len(b))}}}
		x.Offsets = append([]int64{}, h.Offsets...)
		x.Offsets[1] = offset
		if n, err := read(x, state.Range{End: 16}); err == nil && bytes.Equal(b, good) && offset == h.Offsets[1] && n != 40 {
			t.Fatalf("%d entries", n)
		}
	})
}

// A compressed file is smaller and holds the same, in whole and in part, whatever the size of its entries; a bit that turned is found.
func TestCompressedFiles(t *testing.T) {
	for _, size := range []int{0, 10, 3000, 200_000} {
		plain, packed := sample(t, size), sampleOf(t, size, canonical.WriteCompressed)
		if size > 100 && packed.Size > plain.Size/10 || packed.Size != int64(len(packed.Files[0].Ref.Inline)) {
			t.Errorf("%d bytes, compressed %d", plain.Size, packed.Size)
		}
		for _, rng := range []state.Range{{Start: 0, End: 16}, {Start: 3, End: 5}, {Start: 8, End: 9}} {
			want, err := entries(plain, rng)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := entries(packed, rng); err != nil || got != want {
				t.Errorf("key groups %v: other entries, %v", rng, err)
			}
		}
	}
	whole := sampleOf(t, 3000, canonical.WriteCompressed)
	b := whole.Files[0].Ref.Inline
	for i := int(whole.Offsets[0]); i < int(whole.Offsets[len(whole.Offsets)-1]); i++ {
		x := whole
		turned := bytes.Clone(b)
		turned[i] ^= 4
		x.Files = []state.File{{Ref: state.FileRef{Inline: turned, Size: int64(len(b))}}}
		if _, err := read(x, state.Range{End: 16}); !errors.Is(err, canonical.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

// entries are all entries of a range in text.
func entries(h state.Handle, rng state.Range) (string, error) {
	r, err := canonical.NewReader(context.Background(), &statetest.Store{}, 16, rng, []state.Handle{h})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range []string{"t", "x"} {
		if err == nil {
			err = r.Scan(name, func(e *canonical.Entry) error {
				fmt.Fprintln(&out, name, e.Group, e.Namespace, e.At, string(e.Key), string(e.Value))
				return nil
			})
		}
	}
	return out.String(), errors.Join(err, r.Close())
}
