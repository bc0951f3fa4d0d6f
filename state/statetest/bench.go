package statetest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Row is a 96-byte value without pointers.
type Row struct {
	A [10]int64
	B [2]float64
}

// Bench measures the hot paths of a backend: Ref of existing keys, in an order without locality, and of one hot key; a snapshot.
func Bench(b *testing.B, f Factory, memory int64) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("Ref/%d", n), func(b *testing.B) {
			be := benchBackend(b, f, memory)
			keys := benchKeys(b, n)
			t := fillRows(b, be, keys)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p, _, err := t.Ref(keys[i], 0)
				if err != nil {
					b.Fatal(err)
				}
				p.A[0]++
				if i += 7919 % n; i >= n {
					i -= n
				}
			}
		})
	}
	b.Run("RefHot", func(b *testing.B) {
		be := benchBackend(b, f, memory)
		keys := benchKeys(b, 1000)
		t := fillRows(b, be, keys)
		b.ReportAllocs()
		for b.Loop() {
			p, _, err := t.Ref(keys[5], 0)
			if err != nil {
				b.Fatal(err)
			}
			p.A[0]++
		}
	})
	b.Run("RefString/100000", func(b *testing.B) {
		be := benchBackend(b, f, memory)
		h := state.NewHasher(serde.Must[string]())
		keys := make([]state.Key[string], 100_000)
		t, err := backend.OpenTable(be, state.TableDesc[string, int64]{Name: "strings", Key: serde.Must[string](), Value: serde.Must[int64]()})
		if err != nil {
			b.Fatal(err)
		}
		for i := range keys {
			keys[i] = state.KeyOf(h, fmt.Sprintf("customer-%d", i), 128)
			if err := t.Put(keys[i], 0, 1); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			p, _, err := t.Ref(keys[i], 0)
			if err != nil {
				b.Fatal(err)
			}
			*p++
			if i += 7919; i >= len(keys) {
				i -= len(keys)
			}
		}
	})
	benchEntries(b, f, memory)
	b.Run("Snapshot/1000000", func(b *testing.B) { benchSnapshot(b, f, memory, Row{}, func(r *Row) { r.A[0]++ }) })
	b.Run("SnapshotText/1000000", func(b *testing.B) {
		texts := [2]string{strings.Repeat("a", 192), strings.Repeat("b", 192)}
		benchSnapshot(b, f, 2*memory, TextRow{Text: texts[0]}, func(r *TextRow) { r.Count++; r.Text = texts[r.Count%2] })
	})
	b.Run("Timers", func(b *testing.B) {
		be := benchBackend(b, f, memory)
		keys := benchKeys(b, 100_000)
		t, err := backend.OpenTimers(be, state.TimersDesc[int64]{Name: "timers", Key: serde.Must[int64]()})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		i, at := 0, int64(0)
		fire := func(state.Key[int64], state.Namespace, int64) error { return nil }
		for b.Loop() { // one timer registered and one fired, 100,000 in the set
			at++
			if err := t.Register(keys[i], 0, at); err != nil {
				b.Fatal(err)
			}
			if err := t.PopUntil(at-100_000, fire); err != nil {
				b.Fatal(err)
			}
			if i += 7919; i >= len(keys) {
				i -= len(keys)
			}
		}
	})
}

// TextRow is a value with a text.
type TextRow struct {
	Count int64
	Text  string
}

// benchSnapshot changes one row in a hundred between snapshots.
func benchSnapshot[V any](b *testing.B, f Factory, memory int64, row V, change func(*V)) {
	be := benchBackend(b, f, memory)
	keys := benchKeys(b, 1_000_000)
	t := fillTable(b, be, keys, row)
	var sync, async time.Duration
	id := int64(0)
	once := func() {
		id++
		start := time.Now()
		s, err := be.Snapshot(id, false)
		if err != nil {
			b.Fatal(err)
		}
		sync += time.Since(start)
		start = time.Now()
		if _, err := s.Write(context.Background(), &Store{}); err != nil {
			b.Fatal(err)
		}
		async += time.Since(start)
		be.CheckpointCompleted(id)
	}
	once()
	sync, async = 0, 0
	n := 0
	for b.Loop() {
		n++
		for i := range len(keys) / 100 { // others each time, in an order that is not that of their insertion
			p, _, err := t.Ref(keys[(n+i*100)*7919%len(keys)], 0)
			if err != nil {
				b.Fatal(err)
			}
			change(p)
		}
		once()
	}
	b.ReportMetric(float64(sync.Microseconds())/float64(n), "sync-us/op")
	b.ReportMetric(float64(async.Microseconds())/float64(n), "async-us/op")
}

func benchBackend(b *testing.B, f Factory, memory int64) state.Backend {
	be, err := f.New(state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, MemoryBytes: memory, Dir: filepath.Join(b.TempDir(), "state")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := be.Close(); err != nil {
			b.Error(err)
		}
	})
	return be
}

func benchKeys(b *testing.B, n int) []state.Key[int64] {
	h := state.NewHasher(serde.Must[int64]())
	keys := make([]state.Key[int64], n)
	for i := range keys {
		keys[i] = state.KeyOf(h, int64(i), 128)
	}
	return keys
}

func fillRows(b *testing.B, be state.Backend, keys []state.Key[int64]) state.Table[int64, Row] {
	return fillTable(b, be, keys, Row{})
}

func fillTable[V any](b *testing.B, be state.Backend, keys []state.Key[int64], row V) state.Table[int64, V] {
	t, err := backend.OpenTable(be, state.TableDesc[int64, V]{Name: "rows", Key: serde.Must[int64](), Value: serde.Must[V]()})
	if err != nil {
		b.Fatal(err)
	}
	for i := range keys {
		if err := t.Put(keys[i], 0, row); err != nil {
			b.Fatal(err)
		}
	}
	return t
}
