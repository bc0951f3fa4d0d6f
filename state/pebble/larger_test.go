package pebble_test

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/pebble"
	"github.com/thalweg/thalweg/state/statetest"
)

// State several times as large as its memory: the memory stays bounded while it is filled and while a snapshot is taken, later snapshots send
// what has changed, also the first after a restore, and a restore brings back what the snapshot had, not what came after.
func TestStateLargerThanMemory(t *testing.T) {
	const memory, size = 24 << 20, 200
	n := int64(500_000)
	if testing.Short() {
		n /= 4
	}
	ctx, store, keys := context.Background(), &statetest.Store{}, state.NewHasher(serde.Must[int64]())
	var id int64
	var b *pebble.Backend
	var rows state.Table[int64, []byte]
	open := func(hs ...state.Handle) {
		t.Helper()
		var err error
		b, err = pebble.New(state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: filepath.Join(t.TempDir(), "state"), Pool: state.NewPool(memory, 1),
			Restore: hs, Source: store, ReuseRestored: true})
		if err != nil {
			t.Fatal(err)
		}
		if rows, err = pebble.OpenTable(b, state.TableDesc[int64, []byte]{Name: "rows", Key: serde.Must[int64](), Value: serde.Must[[]byte]()}); err != nil {
			t.Fatal(err)
		}
	}
	value := make([]byte, size)
	put := func(k, version int64) {
		t.Helper()
		x := uint64(k*31 + version)
		for i := 0; i < size; i += 8 { // nothing that compresses
			x = x*6364136223846793005 + 1442695040888963407
			binary.LittleEndian.PutUint64(value[i:], x)
		}
		if err := rows.Put(state.KeyOf(keys, k, 128), 0, value); err != nil {
			t.Fatal(err)
		}
	}
	check := func(k, version int64) {
		t.Helper()
		v, found, err := rows.Get(state.KeyOf(keys, k, 128), 0)
		want := uint64(k*31+version)*6364136223846793005 + 1442695040888963407
		if err != nil || !found || len(v) != size || binary.LittleEndian.Uint64(v) != want {
			t.Fatalf("key %d: %d bytes, %v, %v", k, len(v), found, err)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	snapshot := func() state.Handle {
		t.Helper()
		id++
		s, err := b.Snapshot(id, false)
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Write(ctx, store)
		if err != nil {
			t.Fatal(err)
		}
		b.CheckpointCompleted(id)
		return h
	}
	open()
	before := heap()
	for k := range n {
		put(k*7919%n, 0) // each once
		if k%(n/8) == n/16 {
			if held := heap() - before; held > memory*5/4 {
				t.Errorf("%d MiB are held of %d after %d rows", held>>20, memory>>20, k)
			}
		}
	}
	s, err := b.Snapshot(0, false) // the changes are encoded, and not yet written
	if err != nil {
		t.Fatal(err)
	}
	if held := heap() - before; held > memory*2 {
		t.Errorf("%d MiB are held of %d while a snapshot is pending", held>>20, memory>>20)
	}
	s.Discard()
	full := snapshot()
	if full.Size < n*size || full.New != full.Size {
		t.Errorf("first snapshot: %d of %d bytes", full.New, full.Size)
	}
	for k := range n / 100 {
		put(k*7919*13%n, 1)
	}
	h := snapshot()
	if h.New > h.Size/2 {
		t.Errorf("after 1 %% changed: %d of %d bytes are sent", h.New, h.Size)
	}
	for k := range n / 50 {
		put(k, 2) // lost
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	open(h)
	changed := map[int64]bool{}
	for k := range n / 100 {
		changed[k*7919*13%n] = true
	}
	for k := int64(0); k < n; k += 7 {
		if changed[k] {
			check(k, 1)
		} else {
			check(k, 0)
		}
	}
	put(1, 3)
	if h := snapshot(); h.New > h.Size*4/5 { // compactions may have gone on
		t.Errorf("first snapshot after the restore: %d of %d bytes are sent", h.New, h.Size)
	}
	check(1, 3)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
