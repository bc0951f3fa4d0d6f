package pebble_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/pebble"
)

// stuck is a sink whose files never end: it says when the first one was begun.
type stuck struct{ begun chan struct{} }

func (s stuck) Create(ctx context.Context, _ state.Scope) (state.Stream, error) {
	return stuckStream{ctx, s.begun}, nil
}

type stuckStream struct {
	ctx   context.Context //nolint:containedctx // of the write
	begun chan struct{}
}

func (s stuckStream) Write([]byte) (int, error) {
	select {
	case s.begun <- struct{}{}:
	default:
	}
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}
func (stuckStream) Commit() (state.FileRef, error) { return state.FileRef{}, errors.New("committed") }
func (stuckStream) Abort()                         {}

// A task that is cancelled in the midst of a scan and of a snapshot leaves nothing: the backend closes without an error, and its folder with
// the links of the snapshot goes, again and again in one process (pebble issues 2390 and 1986).
func TestCancelledInTheMiddle(t *testing.T) {
	t.Parallel()
	stop := errors.New("cancelled")
	pool := state.NewPool(64<<20, 1)
	for round := range 50 {
		dir := filepath.Join(t.TempDir(), "state")
		b, err := pebble.NewWithOptions(state.Config{Range: state.Range{End: 16}, MaxParallelism: 16, Dir: dir, Pool: pool}, pebble.Options{CacheBytes: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		tb, err := pebble.OpenTable(b, state.TableDesc[int64, string]{Name: "names", Key: serde.Must[int64](), Value: serde.Must[string]()})
		if err != nil {
			t.Fatal(err)
		}
		h := state.NewHasher(serde.Must[int64]())
		for i := range int64(500) {
			if err := tb.Put(state.KeyOf(h, i, 16), 0, "a name that takes its room in the cache and on the disk"); err != nil {
				t.Fatal(err)
			}
		}
		s, err := b.Snapshot(1, round%2 == 1)
		if err != nil {
			t.Fatal(err)
		}
		begun, written := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			_, err := s.Write(context.Background(), stuck{begun})
			written <- err
		}()
		<-begun
		n := 0
		err = tb.Scan(0, func(state.Key[int64], *string) error {
			if n++; n == 100 {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) {
			t.Fatalf("round %d: the scan ends with %v", round, err)
		}
		if err := b.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := <-written; err == nil {
			t.Fatalf("round %d: the snapshot was written", round)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Fatalf("round %d: %s is left: %v", round, dir, err)
		}
	}
}
