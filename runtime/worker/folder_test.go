package worker_test

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// checkpoint takes one when all tasks run, which after a restart the job's master may hear later than the first results come.
func (c *cluster) checkpoint() string {
	c.t.Helper()
	c.running()
	return c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
}

// Two jobs with one checkpoint folder have a folder of their own in it each: whatever one does, its failures and its end included, the other
// one's checkpoints restore.
func TestTwoJobsInOneCheckpointFolder(t *testing.T) {
	dir := t.TempDir()
	conf := config.Configuration{config.CheckpointDir.Key: "file://" + filepath.Join(dir, "ckp"), config.MemoryThreshold.Key: "0", config.StateBackend.Key: "pebble"}
	worlds, jobs := [2]*world{newWorld(300), newWorld(300)}, [2]*cluster{}
	for i := range jobs {
		jobs[i] = startCluster(t, t.TempDir(), program(t, worlds[i], 2, -1), 2, 1, conf)
	}
	var last [2]string
	for n := int64(1); n <= 3; n++ {
		for i, c := range jobs {
			c.running()
			c.count(worlds[i], n)
			last[i] = c.checkpoint()
		}
		worlds[n%2].fail.Store(true)
	}
	if filepath.Dir(last[0]) == filepath.Dir(last[1]) {
		t.Fatalf("both jobs have checkpoints in %s", last[0])
	}
	jobs[0].cancel()
	jobs[1].count(worlds[1], 4)
	last[1] = jobs[1].checkpoint()
	jobs[1].cancel()
	for i, n := range []int64{4, 5} {
		again := conf.Clone()
		again[config.SavepointPath.Key] = last[i]
		w := newWorld(300)
		w.rounds.Store(n - 1)
		c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, again)
		c.running()
		c.count(w, n)
		c.cancel()
	}
}

// A checkpoint is one job's to remove: nobody claims it from a job that runs, be it the one that took it or the one that has claimed it. Both
// are named to who tries, and both are free again when they have ended. Whoever was refused has touched nothing.
func TestOneJobClaimsACheckpoint(t *testing.T) {
	dir := t.TempDir()
	conf := config.Configuration{config.CheckpointDir.Key: "file://" + filepath.Join(dir, "ckp"), config.MemoryThreshold.Key: "0", config.StateBackend.Key: "pebble",
		config.CheckpointInterval.Key: "1 h"}
	claim := func(path string, w *world) *cluster {
		again := conf.Clone()
		again[config.SavepointPath.Key], again[config.ClaimMode.Key] = path, "claim"
		return startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, again)
	}
	refused := func(path string, owner *cluster) {
		t.Helper()
		c := claim(path, newWorld(300))
		c.ended("the job to be refused", func() bool { return c.details().State == scheduler.JobFailed })
		why := c.details().Root.Message
		for _, part := range []string{owner.job.String(), "NO_CLAIM", "/_owner"} {
			if !strings.Contains(why, part) {
				t.Errorf("%q does not say %q", why, part)
			}
		}
	}
	later := func(n int64) *world {
		w := newWorld(300)
		w.rounds.Store(n)
		return w
	}
	w := newWorld(300)
	first := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, conf)
	first.running()
	first.count(w, 1)
	path := first.checkpoint()
	refused(path, first)
	first.count(w, 2)
	path = first.checkpoint()
	first.cancel()

	w = later(2)
	second := claim(path, w)
	second.running()
	refused(path, second)
	second.count(w, 3)
	second.checkpoint() // the first job's checkpoint is gone with it, and its shared files are not
	w.fail.Store(true)
	second.count(w, 4)
	path = second.checkpoint()
	refused(path, second)
	second.nextAttempt()
	second.running()
	second.count(w, 5)
	path = second.checkpoint()
	refused(path, second)
	second.cancel()

	w = later(5)
	third := claim(path, w)
	third.running()
	third.count(w, 6)
	third.cancel()
}

// A checkpoint of another job is refused with each of its operators that the job has not, and a job's folder with the checkpoints in it.
func TestCheckpointOfAnotherJobIsRefused(t *testing.T) {
	r := newRiver(4, 10, 0)
	c := startCluster(t, t.TempDir(), riverProgram(t, r, [5]int{1, 1, 1, 1, 1}), 1, 1, nil)
	c.running()
	c.until("the last record", r.done)
	path := c.checkpoint()
	job := path[:strings.LastIndexByte(path, '/')]
	c.cancel()
	for uri, want := range map[string][]string{
		path: {path, `uid "river"`, `uid "first"`, `uid "second"`, "--allowNonRestoredState"},
		job:  {storage.ErrNoCheckpoint.Error(), "it is the folder of a job", filepath.Base(path)},
	} {
		x := startCluster(t, t.TempDir(), program(t, newWorld(1), 1, -1), 1, 1, config.Configuration{config.SavepointPath.Key: uri})
		x.ended("the job to be refused", func() bool { return x.details().State == scheduler.JobFailed })
		for _, part := range want {
			if why := x.details().Root.Message; !strings.Contains(why, part) {
				t.Errorf("%s: %q does not say %q", uri, why, part)
			}
		}
	}
	if _, err := storage.ReadMetadata(t.Context(), c.reg, path); err != nil {
		t.Error(err)
	}
}

// A checkpoint folder without space fails checkpoints, with the file (at once or, for metadata, when there was none until their time-out), and nothing else: the job goes on, no half file stays, and the next
// checkpoint completes when there is space again.
func TestFullCheckpointFolder(t *testing.T) {
	for _, what := range []string{"/**/[0-9]*-*", "/**/_metadata*"} {
		for _, merging := range []string{"false", "true"} {
			t.Run(strings.Trim(what, "/*")+" merging "+merging, func(t *testing.T) {
				t.Parallel()
				full := fault.When(func(e fault.Event) bool {
					ok, _ := filepath.Match(strings.TrimPrefix(what, "/**/"), filepath.Base(e.Path))
					return ok && e.Op == fault.Write && strings.Contains(e.Path, "/ckp/")
				}, fault.Torn(5, syscall.ENOSPC))
				f := fault.New(local.New())
				w := newWorld(300)
				c := startCluster(t, t.TempDir(), program(t, w, 2, -1), 2, 1, config.Configuration{config.MemoryThreshold.Key: "0", config.StateBackend.Key: "pebble",
					config.FileMerging.Key: merging, config.CheckpointTimeout.Key: "1500 ms", config.TolerableFailures.Key: "100", "restart-strategy.type": "none"}, func(c *cluster) {
					c.reg.Register("file", func(context.Context, *url.URL) (fs.FileSystem, error) { return f, nil })
				})
				c.running()
				c.count(w, 1)
				c.checkpoint()
				f.Set(full)
				c.count(w, 2)
				_, err := c.disp.Trigger(t.Context(), c.job, jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true})
				if err == nil || !strings.Contains(err.Error(), filepath.Join(c.dir, "ckp")) || !strings.Contains(err.Error(), "no space left") {
					t.Errorf("%v", err)
				}
				f.Set()
				c.count(w, 3)
				path := c.checkpoint()
				job := filepath.Dir(strings.TrimPrefix(path, "file://"))
				st := storage.New(f, filepath.Dir(job), c.job)
				c.until("nothing else to be left", func() bool {
					left, err := st.Orphans(t.Context(), []string{path})
					return err == nil && len(left) == 0
				})
				c.cancel()
			})
		}
	}
}
