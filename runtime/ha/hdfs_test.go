package ha

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

func onHDFS(t testing.TB) *hdfs.FileSystem {
	t.Helper()
	cfg := rigtest.HDFS(t, rigtest.Admin)
	f, err := hdfs.New("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// The NameNode decides among contending attempts as the model does.
func TestContendingAttemptsOnHDFS(t *testing.T) {
	f := onHDFS(t)
	for range 5 {
		dir := "/tmp/thalweg-ha-test-" + graph.NewID().String()
		h := newHistory()
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() { h.live(t.Context(), NewFileStore(f, dir, zerolog.Nop()), n, 10, n == 2) })
		}
		wg.Wait()
		if err := h.check(top(t, f, dir)); err != nil {
			for _, l := range h.log {
				t.Log(l)
			}
			t.Fatal(err)
		}
		if err := f.Remove(t.Context(), dir, true); err != nil {
			t.Fatal(err)
		}
	}
}

// What a checkpoint costs after the last acknowledgement: metadata of 100 KB, then the pointer.
func BenchmarkCheckpoint100KBOnHDFS(b *testing.B) {
	f := onHDFS(b)
	ctx := b.Context()
	root := "/tmp/thalweg-ha-bench-" + graph.NewID().String()
	s := NewFileStore(f, root+"/ha", zerolog.Nop())
	id := jobID(1)
	st := storage.New(f, root+"/ckp", id)
	c := metadata.Checkpoint{Operators: []metadata.Operator{{Name: "op", Parallelism: 1, MaxParallelism: 128, Subtasks: []metadata.Subtask{
		{Lists: []metadata.ListState{{Name: "l", Items: [][]byte{make([]byte, 100<<10)}}}}}}}}
	if _, err := s.AcquireEpoch(ctx, "bench"); err != nil {
		b.Fatal(err)
	}
	if err := s.PutJob(ctx, Job{ID: id}); err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.OpenJob(ctx, id); err != nil {
		b.Fatal(err)
	}
	var write, point []time.Duration
	for n := int64(1); b.Loop(); n++ {
		start := time.Now()
		if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(n), c); err != nil {
			b.Fatal(err)
		}
		written := time.Now()
		if err := s.StorePointer(ctx, id, Pointer{ID: n, Dir: st.CheckpointDir(n)}); err != nil {
			b.Fatal(err)
		}
		write, point = append(write, written.Sub(start)), append(point, time.Since(written))
	}
	p50 := func(d []time.Duration) float64 { slices.Sort(d); return float64(d[len(d)/2].Microseconds()) / 1000 }
	b.ReportMetric(p50(write), "metadata-ms")
	b.ReportMetric(p50(point), "pointer-ms")
	if err := f.Remove(ctx, root, true); err != nil {
		b.Fatal(fmt.Errorf("clean up: %w", err))
	}
}
