package backend_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKinds(t *testing.T) {
	cfg := state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: filepath.Join(t.TempDir(), "x")}
	for _, kind := range []string{backend.HashMap, backend.Pebble} {
		b, err := backend.New(kind, cfg)
		if err != nil {
			t.Fatal(err)
		}
		tb, err := backend.OpenTable(b, state.TableDesc[string, int64]{Name: "x", Key: serde.Must[string](), Value: serde.Must[int64]()})
		if err != nil {
			t.Fatal(err)
		}
		if err := tb.Put(state.Key[string]{Key: "a"}, 0, 1); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(cfg.Dir); !os.IsNotExist(err) {
			t.Fatalf("%s left %s behind: %v", kind, cfg.Dir, err)
		}
	}
	for kind, want := range map[string]string{"rocksdb": `use "pebble"`, "memory": `known are "hashmap" and "pebble"`} {
		if b, err := backend.New(kind, cfg); b != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v: want %q", kind, b, err, want)
		}
	}
	for _, bad := range []state.Config{{MaxParallelism: 0}, {MaxParallelism: 10, Range: state.Range{Start: 5, End: 11}}, {MaxParallelism: 1 << 20}} {
		for _, kind := range []string{backend.HashMap, backend.Pebble} {
			if b, err := backend.New(kind, bad); b != nil || err == nil {
				t.Errorf("%s: %+v accepted", kind, bad)
			}
		}
	}
}

// A block cache without room for its memtables is refused, with the size that would do.
func TestStarvedCache(t *testing.T) {
	_, err := backend.New(backend.Pebble, state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: filepath.Join(t.TempDir(), "x"), MemoryBytes: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), "at least 2097152 bytes") {
		t.Fatal(err)
	}
}
