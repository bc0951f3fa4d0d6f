package statetest

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Entries checks that entries cost no allocation of their own: those that are new in a table, those that are new in the map of a key that
// is a string, those that hold strings, and those that are read and written back.
func Entries(t *testing.T, f Factory) {
	for name, step := range entrySteps(t, f, 64<<20) {
		t.Run(name, func(t *testing.T) {
			const n = 20_000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range int64(n) {
				check(t, step(i))
			}
			runtime.ReadMemStats(&after)
			if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.2 { // room for pages and indexes
				t.Errorf("%.3f allocations for each", per)
			}
		})
	}
}

// benchEntries measures what Entries does.
func benchEntries(b *testing.B, f Factory, memory int64) {
	for name, step := range entrySteps(b, f, memory) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := int64(0)
			for b.Loop() {
				if err := step(i); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// entrySteps do the i-th of many accesses each, on a backend of their own.
func entrySteps(t testing.TB, f Factory, memory int64) map[string]func(i int64) error {
	be, err := f.New(state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, MemoryBytes: memory, Dir: filepath.Join(t.TempDir(), "state")})
	check(t, err)
	t.Cleanup(func() { check(t, be.Close()) })
	numbers, texts := state.NewHasher(serde.Must[int64]()), state.NewHasher(serde.Must[string]())
	open := func(name string) state.Table[int64, int64] {
		table, err := backend.OpenTable(be, state.TableDesc[int64, int64]{Name: name, Key: serde.Must[int64](), Value: serde.Must[int64]()})
		check(t, err)
		return table
	}
	fresh, old := open("new"), open("old")
	notes, err := backend.OpenTable(be, state.TableDesc[int64, Note]{Name: "notes", Key: serde.Must[int64](), Value: serde.Must[Note]()})
	check(t, err)
	note := Note{1, "a title", strings.Repeat("x", 100)}
	maps, err := backend.OpenMap(be, state.MapDesc[string, int64, int64]{Name: "maps", Key: serde.Must[string](), Sub: serde.Must[int64](), Value: serde.Must[int64]()})
	check(t, err)
	owners := []state.Key[string]{state.KeyOf(texts, "channel-apple", 128), state.KeyOf(texts, "channel-google", 128)}
	return map[string]func(int64) error{
		"New":     func(i int64) error { return fresh.Put(state.KeyOf(numbers, i, 128), 0, i) },
		"NewMap":  func(i int64) error { return maps.Put(maps.Entry(owners[i&1], i/2), 0, i) },
		"NewText": func(i int64) error { return notes.Put(state.KeyOf(numbers, i, 128), 0, note) },
		"PutText": func(i int64) error { return notes.Put(state.KeyOf(numbers, i*7919&1023, 128), 1, note) },
		"GetPut": func(i int64) error {
			k := state.KeyOf(numbers, i&1023, 128)
			v, _, err := old.Get(k, 0)
			if err != nil {
				return err
			}
			return old.Put(k, 0, v+1)
		},
	}
}
