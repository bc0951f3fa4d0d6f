package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
)

// files lists the state files that a checkpoint wrote.
func (c *cluster) files(number string) []string {
	c.t.Helper()
	var out []string
	for _, dir := range []string{"chk-" + number, "shared"} {
		all, err := filepath.Glob(filepath.Join(c.dir, "ckp", "*", dir, number+"-*"))
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, all...)
	}
	if len(out) == 0 {
		c.t.Fatalf("checkpoint %s has no files", number)
	}
	return out
}

func (c *cluster) metadata(number string) string {
	c.t.Helper()
	all, err := filepath.Glob(filepath.Join(c.dir, "ckp", "*", "chk-"+number, "_metadata"))
	if err != nil || len(all) != 1 {
		c.t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

var damages = map[string]func(string) error{
	"truncated": func(p string) error { return os.Truncate(p, 20) },
	"missing":   os.Remove,
	"turned": func(p string) error {
		b, err := os.ReadFile(p)
		if err == nil {
			b[len(b)/2] ^= 0x10
			err = os.WriteFile(p, b, 0o600)
		}
		return err
	},
}

// A restart that meets a damaged state file goes back to the retained checkpoint before, and nothing of the damaged one is removed.
func TestDamagedStateFallsBack(t *testing.T) {
	for _, backend := range []string{"pebble", "hashmap"} {
		for name, damage := range damages {
			t.Run(backend+" "+name, func(t *testing.T) {
				w := newWorld(2000)
				c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, config.Configuration{
					config.StateBackend.Key: backend, config.MemoryThreshold.Key: "0", config.CheckpointsRetained.Key: "2", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1",
				})
				c.running()
				for n := int64(1); n <= 2; n++ {
					c.count(w, n)
					c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
				}
				for _, f := range c.files("2") {
					if err := damage(f); err != nil {
						t.Fatal(err)
					}
				}
				left := len(damaged(t, c))
				w.fail.Store(true) // uses up the only restart that counts
				w.round()
				c.until("every key to be counted three times", func() bool { return c.details().Restarts == 2 && w.counted(3) })
				c.running()
				c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
				c.count(w, 4)
				c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
				if n := len(damaged(t, c)); n != left {
					t.Errorf("%d files of the damaged checkpoint are left of %d", n, left)
				}
				d := c.details()
				found := false
				for _, f := range d.History {
					found = found || f.Kind == "damaged" && strings.Contains(f.Message, "state file")
				}
				if !found {
					t.Errorf("no failure says what was damaged: %+v", d.History)
				}
			})
		}
	}
}

// damaged are all files of checkpoint 2.
func damaged(t *testing.T, c *cluster) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(c.dir, "ckp", "*", "*", "2-*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, c.metadata("2"))
}

// The next application attempt goes back likewise when the metadata of the latest checkpoint cannot be read. Without another checkpoint
// the job fails, and says which file it is.
func TestDamagedMetadataFallsBack(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			w := newWorld(500)
			c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, config.Configuration{config.MemoryThreshold.Key: "0", config.CheckpointsRetained.Key: "2"})
			c.running()
			for n := int64(1); n <= 2; n++ {
				c.count(w, n)
				c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			}
			if err := damage(c.metadata("2")); err != nil {
				t.Fatal(err)
			}
			state := c.files("2")
			c.nextAttempt()
			c.running()
			c.count(w, 3)
			c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
			c.count(w, 4)
			if now := c.files("2"); len(now) != len(state) {
				t.Errorf("%v are left of %v", now, state)
			}
		})
	}
}

// What the user names to start from is refused when it is damaged, whatever else there is.
func TestDamagedStateIsRefusedOnExplicitRestore(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(500)
	conf := config.Configuration{config.MemoryThreshold.Key: "0", config.CheckpointsRetained.Key: "2"}
	c := startCluster(t, dir, program(t, w, 2, -1), 2, 1, conf)
	c.running()
	for n := int64(1); n <= 2; n++ {
		c.count(w, n)
		c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
	}
	file := c.files("2")[0]
	meta := c.metadata("2")
	c.cancel()
	for name, hurt := range map[string]struct{ file, want string }{"state": {file, filepath.Base(file)}, "metadata": {meta, "_metadata"}} {
		whole, err := os.ReadFile(hurt.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := damages["turned"](hurt.file); err != nil {
			t.Fatal(err)
		}
		again := conf.Clone()
		again[config.SavepointPath.Key] = "file://" + filepath.Dir(meta)
		x := startCluster(t, t.TempDir(), program(t, newWorld(500), 2, -1), 2, 1, again)
		var root string
		x.ended("the job to be refused", func() bool {
			d := x.details()
			if d.State.Terminal() && d.Root != nil {
				root = d.Root.Message
			}
			return root != ""
		})
		if !strings.Contains(root, hurt.want) {
			t.Errorf("%s: %s", name, root)
		}
		if err := os.WriteFile(hurt.file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What an unaligned checkpoint found under way is state like all other: when it is damaged, a restart goes back to the checkpoint before.
func TestDamagedRecordsUnderWayFallBack(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRiver(40, 60, 2*time.Millisecond)
			c := startCluster(t, t.TempDir(), riverProgram(t, r, [5]int{2, 2, 2, 2, 1}), 2, 1, config.Configuration{
				config.Unaligned.Key: "true", config.NetworkBufferSize.Key: "512 b", config.BufferTimeout.Key: "1 ms", config.MemoryThreshold.Key: "0",
				config.CheckpointsRetained.Key: "2", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1",
			})
			c.running()
			var path string
			for range 2 {
				c.flood(r, 100)
				path = c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
			}
			cp, err := savepoint.Load(t.Context(), c.reg, path, savepoint.NoClaim)
			if err != nil || !cp.Unaligned() {
				t.Fatalf("nothing is under way: %v", err)
			}
			done := map[string]bool{}
			for _, x := range cp.Exchanges {
				for _, p := range x.Parts {
					file := strings.TrimPrefix(p.Segment.File.Path(), "file://")
					if done[file] {
						continue
					}
					done[file] = true
					if err := damage(file); err != nil {
						t.Fatal(err)
					}
				}
			}
			r.restored = true
			r.fail.Store(true) // uses up the only restart that counts
			c.until("two restarts", func() bool { return c.details().Restarts == 2 })
			c.running()
			r.finish(t, c)
		})
	}
}
