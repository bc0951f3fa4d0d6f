package worker_test

import (
	"path"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/state"
)

func (c *cluster) read(uri string) metadata.Checkpoint {
	c.t.Helper()
	cp, err := storage.ReadMetadata(c.t.Context(), c.reg, uri)
	if err != nil {
		c.t.Fatal(err)
	}
	return cp
}

// A full checkpoint refers to no file of an earlier one; the next incremental one builds on it.
func TestFullCheckpoints(t *testing.T) {
	for _, backend := range []string{"pebble", "hashmap"} {
		t.Run(backend, func(t *testing.T) {
			w := newWorld(3000)
			c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, config.Configuration{config.StateBackend.Key: backend, config.MemoryThreshold.Key: "0"})
			c.running()
			c.count(w, 1)
			of := func(full bool) map[string]int {
				n := map[string]int{}
				cp := c.read(c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true, Full: full}))
				cp.Refs(func(r *state.FileRef) {
					if r.Name != "" {
						number, _, _ := strings.Cut(path.Base(r.Name), "-")
						n[number]++
					}
				})
				return n
			}
			first := of(false)
			second := of(false)
			third := of(true)
			fourth := of(false)
			if len(first) != 1 || len(third) != 1 || third["3"] == 0 {
				t.Errorf("the first has files of checkpoints %v, the full one %v", first, third)
			}
			if backend == "pebble" && (second["1"] == 0 || fourth["3"] == 0 || fourth["1"] > 0) {
				t.Errorf("the second has files of checkpoints %v, the one after the full one %v", second, fourth)
			}
			w.fail.Store(true)
			w.round()
			c.until("every key to be counted twice", func() bool { return c.details().Restarts == 1 && w.counted(2) })
		})
	}
}

// A savepoint that is written compressed is read by either backend, whatever is set there.
func TestCompressedSavepoints(t *testing.T) {
	for _, from := range []string{"pebble", "hashmap"} {
		t.Run("from "+from, func(t *testing.T) {
			size := map[string]int64{}
			for _, compress := range []string{"true", "false"} {
				w := newWorld(5000)
				c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, config.Configuration{config.StateBackend.Key: from, config.SnapshotCompression.Key: compress})
				c.running()
				c.count(w, 1)
				sp := c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + t.TempDir()})
				cp := c.read(sp)
				cp.Refs(func(r *state.FileRef) { size[compress] += r.Size })
				c.cancel()
				for _, to := range []string{"pebble", "hashmap"} {
					w := newWorld(5000)
					c := startCluster(t, t.TempDir(), program(t, w, 3, -1), 3, 1, config.Configuration{config.StateBackend.Key: to, config.SavepointPath.Key: sp})
					w.rounds.Store(1) // as far as the savepoint
					c.running()
					c.count(w, 2)
					c.cancel()
				}
			}
			if size["true"] > size["false"]*3/4 {
				t.Errorf("%d bytes compressed, %d else", size["true"], size["false"])
			}
		})
	}
}
