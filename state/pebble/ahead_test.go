package pebble_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/pebble"
	"github.com/thalweg/thalweg/state/statetest"
)

// How long a snapshot keeps the task does not grow with what has changed since the one before, when that is spread over many keys. Keys that change
// all the time are not written ahead again and again. Restored, the state is what it was.
func TestChangesAreWrittenAhead(t *testing.T) {
	t.Parallel()
	const n, every = 20_000, 256
	cfg := state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: filepath.Join(t.TempDir(), "state")}
	b, err := pebble.NewWithOptions(cfg, pebble.Options{}.Ahead(every))
	if err != nil {
		t.Fatal(err)
	}
	store, keys := &statetest.Store{}, state.NewHasher(serde.Must[int64]())
	desc := state.TableDesc[int64, int64]{Name: "rows", Key: serde.Must[int64](), Value: serde.Must[int64]()}
	rows, err := backend.OpenTable(b, desc)
	if err != nil {
		t.Fatal(err)
	}
	change := func(k int64) {
		t.Helper()
		v, _, err := rows.Ref(state.KeyOf(keys, k, 128), 0)
		if err != nil {
			t.Fatal(err)
		}
		*v++
		b.AwaitAhead()
	}
	var id int64
	snapshot := func() (int, state.Handle) {
		t.Helper()
		id++
		early := b.Early()
		s, err := b.Snapshot(id, false)
		if err != nil {
			t.Fatal(err)
		}
		pending := b.Pending() - early
		h, err := s.Write(context.Background(), store)
		if err != nil {
			t.Fatal(err)
		}
		b.CheckpointCompleted(id)
		return pending, h
	}
	for k := range int64(n) {
		change(k)
	}
	snapshot()
	for k := range int64(n) {
		change(k)
	}
	spread, _ := snapshot()
	for range 10 { // in no order, so that each page has changed lately
		for k := range int64(n / 16) {
			change(k * 7919 % (n / 16))
		}
	}
	hot, last := snapshot()
	const entry = 20 // bytes at least
	if all := n * entry; spread > all/4 {
		t.Errorf("%d bytes of changes were left for the snapshot, of over %d", spread, all)
	}
	if hot < n/16/2*entry {
		t.Errorf("of %d hot keys only %d bytes were left for the snapshot", n/16, hot)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Dir, cfg.Restore, cfg.Source = filepath.Join(t.TempDir(), "restored"), []state.Handle{last}, store
	if b, err = pebble.NewWithOptions(cfg, pebble.Options{}); err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // end of the test
	if rows, err = backend.OpenTable(b, desc); err != nil {
		t.Fatal(err)
	}
	for k := range int64(n) {
		want := int64(2)
		if k < n/16 {
			want += 10
		}
		if v, found, err := rows.Get(state.KeyOf(keys, k, 128), 0); err != nil || !found || v != want {
			t.Fatalf("key %d: %d, %v, %v; want %d", k, v, found, err, want)
		}
	}
}
