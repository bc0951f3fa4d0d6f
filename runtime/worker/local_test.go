package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/rpc"
)

// A worker that ends is replaced by one that has its state from the TaskManager's disk: the checkpoint's folder is away meanwhile. With the
// job the copies go.
func TestWorkersRestoreFromLocalCopies(t *testing.T) {
	for _, backend := range []string{"pebble", "hashmap"} {
		t.Run(backend, func(t *testing.T) {
			dir := t.TempDir()
			var mu sync.Mutex
			var kill context.CancelFunc
			w := newWorld(3000)
			c := startCluster(t, dir, program(t, w, 2, -1), 2, 1, config.Configuration{
				config.StateBackend.Key: backend, config.LocalBackup.Key: "true", config.MemoryThreshold.Key: "0",
			}, func(c *cluster) {
				run := c.run
				c.run = func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
					mu.Lock()
					ctx, kill = context.WithCancel(ctx)
					defer kill()
					mu.Unlock()
					return run(ctx, link, cfg)
				}
			})
			copies := func() []string {
				all, err := filepath.Glob(filepath.Join(dir, "local", "*", "localState", "*", "chk-*"))
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			c.running()
			c.count(w, 1)
			c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			c.count(w, 2)
			c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			c.until("the copies of the first checkpoint to go", func() bool { return len(copies()) == 1 })
			away := func(from, to string) {
				if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
					t.Fatal(err)
				}
			}
			for restart := 1; restart <= 2; restart++ { // the second one from the copies of what the first one wrote
				away("ckp", "away")
				mu.Lock()
				kill()
				mu.Unlock()
				c.until("a restart", func() bool { return c.details().Restarts == restart })
				c.running()
				c.count(w, int64(2+restart))
				away("away", "ckp")
				c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			}
			// Without copies the folder is read.
			for _, d := range copies() {
				if err := os.RemoveAll(d); err != nil {
					t.Fatal(err)
				}
			}
			mu.Lock()
			kill()
			mu.Unlock()
			c.until("a restart", func() bool { return c.details().Restarts == 3 })
			c.running()
			c.count(w, 5)
			c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			if len(copies()) == 0 {
				t.Error("no copies")
			}
			c.cancel()
			c.ended("the copies to go with the job", func() bool { return len(copies()) == 0 })
		})
	}
}
