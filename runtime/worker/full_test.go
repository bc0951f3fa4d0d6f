package worker_test

import (
	"os"
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

// A savepoint in the backend's own form is all in its folder: it outlives the job's checkpoints, which do not refer to it, and another
// parallelism starts from it. Another backend refuses the store's form, and says which form it reads.
func TestNativeSavepoints(t *testing.T) {
	for from, to := range map[string]string{"pebble": "hashmap", "hashmap": "pebble"} {
		t.Run(from, func(t *testing.T) {
			w := newWorld(3000)
			checkpoints := t.TempDir()
			c := startCluster(t, checkpoints, program(t, w, 2, -1), 2, 1, config.Configuration{config.StateBackend.Key: from, config.MemoryThreshold.Key: "0"})
			c.running()
			c.count(w, 1)
			checkpoint := jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true}
			c.trigger(checkpoint)
			sp := c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + t.TempDir(), Native: true})
			cp := c.read(sp)
			if cp.Canonical || !cp.Savepoint {
				t.Errorf("canonical %v, savepoint %v", cp.Canonical, cp.Savepoint)
			}
			own := map[string]bool{}
			cp.Refs(func(r *state.FileRef) {
				own[path.Base(r.Name)] = true
				if r.Name != "" && (strings.Contains(r.Name, "/") || r.Scope != state.Exclusive) {
					t.Errorf("the savepoint has %+v", *r)
				}
			})
			for format, n := range formats(cp) {
				if native := format != "canonical"; native != (from == "pebble") {
					t.Errorf("%d parts are in the form %q", n, format)
				}
			}
			later := c.read(c.trigger(checkpoint))
			later.Refs(func(r *state.FileRef) {
				if own[path.Base(r.Name)] && r.Name != "" {
					t.Errorf("the checkpoint after it has its file %s", r.Name)
				}
			})
			c.cancel()
			if err := os.RemoveAll(checkpoints); err != nil {
				t.Fatal(err)
			}
			w2 := newWorld(3000)
			c = startCluster(t, t.TempDir(), program(t, w2, 3, -1), 3, 1, config.Configuration{config.StateBackend.Key: from, config.SavepointPath.Key: sp})
			w2.rounds.Store(1) // as far as the savepoint
			c.running()
			c.count(w2, 2)
			c.cancel()
			if from == "hashmap" {
				return // whose own form is the canonical one
			}
			c = startCluster(t, t.TempDir(), program(t, newWorld(3000), 2, -1), 2, 1, config.Configuration{config.StateBackend.Key: to, config.SavepointPath.Key: sp, config.RestartStrategy.Key: "none"})
			c.ended("the job to be refused", func() bool { return c.details().Root != nil })
			if root := c.details().Root; !strings.Contains(root.Message, "take a savepoint in canonical form") {
				t.Errorf("%+v", root)
			}
		})
	}
}

// formats counts the parts of keyed state by their form.
func formats(cp metadata.Checkpoint) map[string]int {
	n := map[string]int{}
	for _, o := range cp.Operators {
		for _, s := range o.Subtasks {
			for _, h := range s.Keyed {
				n[h.Format]++
			}
		}
	}
	return n
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
