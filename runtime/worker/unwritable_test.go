package worker_test

import (
	"context"
	iofs "io/fs"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// A checkpoint root that cannot be written any more fails the job when more checkpoints in a row have failed than are tolerated, and the
// failure names path and reason. One that is in safe mode for a while is waited for. At the start it refuses the job (FLINK-27570).
func TestCheckpointRootThatCannotBeWritten(t *testing.T) {
	start := func(t *testing.T, conf config.Configuration, rules ...fault.Rule) (*cluster, *world, *fault.FileSystem) {
		f := fault.New(local.New(), rules...)
		w := newWorld(10)
		all := config.Configuration{config.CheckpointInterval.Key: "10 ms", config.TolerableFailures.Key: "2", "restart-strategy.type": "none"}
		for k, v := range conf {
			all[k] = v
		}
		c := startCluster(t, t.TempDir(), program(t, w, 1, -1), 1, 1, all, func(c *cluster) {
			c.reg.Register("file", func(context.Context, *url.URL) (fs.FileSystem, error) { return f, nil })
		})
		return c, w, f
	}
	completed := func(c *cluster) int { return c.details().Checkpoints.Counts.Completed }
	failure := func(t *testing.T, c *cluster) string {
		t.Helper()
		c.ended("the job to fail", func() bool { return c.details().State == scheduler.JobFailed })
		return c.details().Root.Message
	}
	denied := fault.When(fault.On(fault.Create, "/**"), fault.Fail(iofs.ErrPermission))
	t.Run("while it runs", func(t *testing.T) {
		c, w, f := start(t, nil)
		c.running()
		c.count(w, 1)
		c.until("a checkpoint", func() bool { return completed(c) > 0 })
		f.Set(denied)
		why := failure(t, c)
		for _, part := range []string{filepath.Join(c.dir, "ckp"), "permission denied"} {
			if !strings.Contains(why, part) {
				t.Errorf("%q does not say %q", why, part)
			}
		}
	})
	t.Run("at the start", func(t *testing.T) {
		c, _, _ := start(t, nil, denied)
		why := failure(t, c)
		for _, part := range []string{filepath.Join(c.dir, "ckp"), "permission denied", "by user", config.CheckpointDir.Key} {
			if !strings.Contains(why, part) {
				t.Errorf("%q does not say %q", why, part)
			}
		}
	})
	t.Run("in safe mode", func(t *testing.T) {
		c, w, f := start(t, nil)
		c.running()
		c.until("a checkpoint", func() bool { return completed(c) > 0 })
		f.Set(fault.When(fault.First(3, fault.On(fault.Create, "/**")), fault.Fail(fs.ErrSafeMode)))
		before := completed(c)
		c.count(w, 1)
		c.until("more checkpoints", func() bool { return completed(c) > before+2 })
	})
}
