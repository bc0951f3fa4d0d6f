package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/state"
)

// With file merging the state of many subtasks is in few files, and a job goes on from it like from any other: after failures, with local
// copies or without, at another parallelism, from a moved checkpoint and from savepoints, incrementally.
func TestFileMerging(t *testing.T) {
	for _, backend := range []string{"pebble", "hashmap"} {
		for _, more := range []config.Configuration{{}, {config.LocalBackup.Key: "true", config.SnapshotCompression.Key: "true"}} {
			t.Run(backend+" "+more[config.LocalBackup.Key], func(t *testing.T) {
				t.Parallel()
				const p = 8
				conf := config.Configuration{config.StateBackend.Key: backend, config.MemoryThreshold.Key: "0", config.FileMerging.Key: "true", config.CheckpointsRetained.Key: "2"}
				for k, v := range more {
					conf[k] = v
				}
				w := newWorld(2000)
				c := startCluster(t, t.TempDir(), program(t, w, p, -1), p, 1, conf)
				c.running()
				n := int64(0)
				count := func() { t.Helper(); n++; c.count(w, n) }
				count()
				for range 3 {
					path := c.checkpoint()
					few(t, c, path, p)
					count()
				}
				w.fail.Store(true)
				count()
				c.running()
				path := c.checkpoint()
				few(t, c, path, p)
				c.nextAttempt()
				c.running()
				count()
				path = c.checkpoint()
				few(t, c, path, p)
				c.until("the removal of what is not retained", func() bool {
					left, err := filepath.Glob(filepath.Join(c.dir, "ckp", "*", "chk-*"))
					return err == nil && len(left) == 2
				})
				readable(t, c, path)
				c.cancel()

				// Moved, as a whole: shared files are beside the checkpoint's folder.
				moved := filepath.Join(t.TempDir(), "moved")
				if err := os.Rename(filepath.Dir(strings.TrimPrefix(path, "file://")), moved); err != nil {
					t.Fatal(err)
				}
				for _, p := range []int{3, 5} {
					again := conf.Clone()
					again[config.SavepointPath.Key] = "file://" + filepath.Join(moved, filepath.Base(path))
					if p == 5 {
						again[config.SavepointPath.Key] = path
					}
					old := w.rounds.Load()
					w = newWorld(2000)
					w.rounds.Store(old)
					c = startCluster(t, t.TempDir(), program(t, w, p, -1), p, 1, again)
					c.running()
					count()
					few(t, c, c.checkpoint(), p)
					path = c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + c.dir})
					if cp, err := savepoint.Load(t.Context(), c.reg, path, savepoint.NoClaim); err != nil {
						t.Error(err)
					} else {
						cp.Refs(func(r *state.FileRef) {
							if r.Part {
								t.Errorf("the savepoint has parts of %s", r.Name)
							}
						})
					}
					c.cancel()
				}
			})
		}
	}
}

// few checks that a checkpoint of p subtasks in one process has no more files than merging leaves: one of each scope for four subtasks.
func few(t *testing.T, c *cluster, path string, p int) {
	t.Helper()
	number := strings.TrimPrefix(filepath.Base(path), "chk-")
	if n, most := len(c.files(number)), 2*(p+3)/4+2; n > most {
		t.Errorf("checkpoint %s has %d files, want %d at most", number, n, most)
	}
	parts := 0
	cp, err := savepoint.Load(t.Context(), c.reg, path, savepoint.NoClaim)
	if err != nil {
		t.Fatal(err)
	}
	cp.Refs(func(r *state.FileRef) {
		if r.Part {
			parts++
		}
	})
	if parts < p {
		t.Errorf("checkpoint %s has %d parts of files, of %d subtasks", number, parts, p)
	}
}

// readable reads all that a checkpoint holds, without the program.
func readable(t *testing.T, c *cluster, path string) {
	t.Helper()
	s, err := inspect.Open(t.Context(), c.reg, path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, o := range s.Operators() {
		for _, st := range o.States {
			if err := s.Each(t.Context(), st, func(inspect.Entry) error { n++; return nil }); err != nil {
				t.Error(err)
			}
		}
	}
	if n < 2000 {
		t.Errorf("%d entries", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
