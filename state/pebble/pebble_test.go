package pebble_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/hashmap"
	"github.com/thalweg/thalweg/state/pebble"
	"github.com/thalweg/thalweg/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func new(o pebble.Options) func(cfg state.Config) (state.Backend, error) {
	return func(cfg state.Config) (state.Backend, error) {
		b, err := pebble.NewWithOptions(cfg, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

var (
	plain = statetest.Factory{Name: "pebble", New: new(pebble.Options{}), Native: true}
	tiny  = statetest.Factory{Name: "pebble-tiny", New: new(pebble.Options{CacheBytes: 1, TimersInMemory: 4}.Deciding(2).Ahead(3)), Native: true}
	eager = statetest.Factory{Name: "pebble-ahead", New: new(pebble.Options{}.Ahead(1)), Native: true}
	heap  = statetest.Factory{Name: "hashmap", New: func(cfg state.Config) (state.Backend, error) {
		b, err := hashmap.New(cfg)
		if err != nil {
			return nil, err
		}
		return b, nil
	}}
)

func TestModel(t *testing.T) {
	t.Parallel()
	statetest.Model(t, plain)
}

func TestModelTiny(t *testing.T) {
	t.Parallel()
	statetest.Model(t, tiny)
}

func TestModelAhead(t *testing.T) {
	t.Parallel()
	statetest.Model(t, eager)
}

func TestExchange(t *testing.T) {
	t.Parallel()
	statetest.Model(t, heap, plain, tiny)
}

func BenchmarkState(b *testing.B)      { statetest.Bench(b, plain, 512<<20) }
func BenchmarkStateSmall(b *testing.B) { statetest.Bench(b, plain, 64<<20) }

func TestSuite(t *testing.T) {
	t.Parallel()
	statetest.Suite(t, plain, heap)
}

func TestSuiteTiny(t *testing.T) {
	t.Parallel()
	statetest.Suite(t, tiny, plain)
}

func TestMaps(t *testing.T) {
	t.Parallel()
	statetest.Maps(t, plain)
}

func TestMapsTiny(t *testing.T) {
	t.Parallel()
	statetest.Maps(t, tiny)
}

func TestMapsExchange(t *testing.T) {
	t.Parallel()
	statetest.Maps(t, heap, plain, tiny)
}

func TestEntries(t *testing.T) { statetest.Entries(t, plain) }

// The cache counts what values really hold: large ones push each other out, though each is one entry.
func TestCacheOfLargeValues(t *testing.T) {
	b, err := pebble.NewWithOptions(state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: t.TempDir() + "/x", MemoryBytes: 64 << 20}, pebble.Options{CacheBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	tb, err := pebble.OpenTable(b, state.TableDesc[int64, []int64]{Name: "lists", Key: serde.Must[int64](), Value: state.ListCodec(serde.Must[int64]())})
	if err != nil {
		t.Fatal(err)
	}
	h := state.NewHasher(serde.Must[int64]())
	const n, size = 8_000, 1_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range int64(n) { // 64 MB, one element in one list after the other
		p, _, err := tb.Ref(state.KeyOf(h, i, 128), 0)
		if err != nil {
			t.Fatal(err)
		}
		*p = append(*p, make([]int64, size)...)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 40<<20 {
		t.Errorf("%d MB are held by a cache of 4 MB and memtables", held>>20)
	}
	for i := range int64(n) {
		if v, found, err := tb.Get(state.KeyOf(h, i, 128), 0); err != nil || !found || len(v) != size {
			t.Fatalf("key %d: %d elements, %v %v", i, len(v), found, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTextsTiny(t *testing.T) { statetest.Texts(t, tiny, heap) }

func TestUnopened(t *testing.T) { statetest.Unopened(t, heap, plain, tiny) }

func TestUnopenedSchemas(t *testing.T) { statetest.UnopenedSchemas(t, plain, heap) }

func FuzzRestore(f *testing.F) { statetest.FuzzRestore(f, plain) }
