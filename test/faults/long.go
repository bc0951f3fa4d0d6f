package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/test/kafkaproxy"
)

// prepareLong makes what faults of long runs need.
func (r *run) prepareLong() (end func(), err error) {
	dir, err := os.MkdirTemp("", "thalweg-failpoints-")
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // containers may run as another user
		return nil, fmt.Errorf("faults: %w", err)
	}
	if r.armoury, err = failpoint.NewArmoury(dir); err != nil {
		return nil, err
	}
	if r.proxy, err = kafkaproxy.Start(r.o.Cluster.KafkaBootstrap); err != nil {
		return nil, err
	}
	r.savepoints = r.o.Cluster.DefaultFS + "/tmp/" + r.name + "-savepoints"
	if root() {
		if r.disk, err = mountDisk(); err != nil {
			return nil, err
		}
	}
	return func() {
		r.proxy.Close()
		_ = os.RemoveAll(dir)
		if r.disk != nil {
			if err := r.disk.unmount(); err != nil {
				r.logf("%v", err)
			}
		}
	}, nil
}

// root reports whether this process may cut networks and mount file systems.
func root() bool { return os.Geteuid() == 0 }

// longConf is the configuration that long runs have beside the others': failpoints, no state so small that it is in the metadata, and nothing
// that a job which was cancelled keeps. So many failures in an hour would make the pause before a restart a minute long, and so many deaths of the application
// master within the usual 10 s end the application.
func (r *run) longConf() []string {
	dir := r.armoury.Env() // NAME=DIR
	all := []string{"-Dcontainerized.master.env." + dir, "-Dcontainerized.taskmanager.env." + dir, "-Dexecution.checkpointing.fs.memory-threshold=0",
		"-Dexecution.checkpointing.externalized-checkpoint-retention=delete_on_cancellation", "-Drestart-strategy.exponential-delay.max-backoff=1 s",
		"-Dyarn.application-attempt-failures-validity-interval=3 s"}
	if r.disk != nil {
		all = append(all, "-Dio.tmp.dirs="+r.disk.dir)
	}
	return all
}

// pool is how many transactional ids a subtask may use: each checkpoint that fails in a row takes another one, and each whose commit is not
// through yet.
func (r *run) pool() int {
	switch {
	case r.o.Interval > 0: // commits whose connections break lag behind the quick checkpoints
		return 150
	case r.o.long():
		return 40
	}
	return 10
}

// steps injects the faults of a long run. One that the job does not recover from in time is a failure; the run goes on when the job
// becomes healthy all the same, and is stuck when it does not.
func (r *run) steps(ctx context.Context) (failed, stuck error) {
	begin := time.Now()
	for i, s := range r.o.Steps {
		if d := time.Until(begin.Add(r.o.Every * time.Duration(i))); d > 0 {
			if err := r.pause(ctx, d); err != nil {
				return failed, err
			}
		}
		if err := r.ready(ctx); err != nil {
			return failed, errors.Join(failed, fmt.Errorf("faults: seed %d: before fault %d (%s): %w", r.o.Seed, i+1, s.name(), err))
		}
		n, err := r.strike(ctx, i, s)
		if err != nil {
			err = fmt.Errorf("faults: seed %d: fault %d (%s): %w", r.o.Seed, i+1, s.name(), err)
			r.logf("%v", err)
			r.tell(ctx)
			failed = errors.Join(failed, err)
		}
		r.report.Injected += n
		r.left.Add(-1)
		if err := r.usage.sample(r.job.app); err != nil {
			return failed, err
		}
	}
	if r.o.long() {
		var err error
		r.report.Flowed, r.report.Of = r.raw.seconds(begin, time.Now())
		r.report.Late = r.proxy.Delivered()
		r.report.Reached, err = r.armoury.Reached()
		return failed, err
	}
	return failed, nil
}

// ready waits until the job is healthy, with the parallelism that it began with.
func (r *run) ready(ctx context.Context) error {
	err := r.healthy(ctx)
	if err == nil {
		err = r.level(ctx)
	}
	if err != nil {
		r.tell(ctx)
	}
	return err
}

// tell logs what the job says of itself.
func (r *run) tell(ctx context.Context) {
	for _, path := range []string{"", "/exceptions", "/checkpoints"} {
		text, err := r.job.text(ctx, "/jobs/"+r.job.id+path)
		if err == nil && !json.Valid([]byte(text)) { // a page of the ResourceManager's about an application that is over
			text = "no answer"
		}
		r.logf("%s%s: %.4000s %v", r.job.id, path, text, err)
	}
}

// cancel ends the job. With Ending the application master is killed on the way; the next one ends the job, or runs it again, and then it is
// cancelled again.
func (r *run) cancel(ctx context.Context) error {
	once := func(ctx context.Context) error {
		_, err := thalweg(ctx, r.o.Cluster, r.o.Bin, "cancel", "-Dyarn.application.id="+r.job.app)
		return err
	}
	if r.o.Ending == "" {
		return once(ctx)
	}
	r.note("kill at " + r.o.Ending + " while the job is cancelled")
	if err := r.armoury.Arm(r.o.Ending, failpoint.Action{Kind: failpoint.Kill, Hit: 1}); err != nil {
		return err
	}
	var next time.Time
	var failed error
	err := until(ctx, 3*time.Minute, "the end of the application", func(ctx context.Context) (bool, error) {
		ended, err := r.job.ended(ctx)
		if ended {
			failed = err
		}
		if err != nil || ended {
			return ended, err
		}
		if time.Now().Before(next) {
			return false, nil
		}
		cctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		err = once(cctx)
		next = time.Now().Add(10 * time.Second)
		return false, err
	})
	return errors.Join(err, failed)
}

// ended asks the ResourceManager whether the application is over.
func (j *job) ended(ctx context.Context) (bool, error) {
	var r struct {
		App struct {
			State string `json:"state"`
			Final string `json:"finalStatus"`
			Text  string `json:"diagnostics"`
		} `json:"app"`
	}
	if err := j.getURL(ctx, j.cluster.ResourceManagerWeb+"/ws/v1/cluster/apps/"+j.app, &r); err != nil {
		return false, err
	}
	switch r.App.State {
	case "FINISHED", "KILLED":
		return true, nil
	case "FAILED":
		return true, fmt.Errorf("faults: %s FAILED: %s", j.app, r.App.Text)
	}
	return false, nil
}

// orphans waits until no file is left below the folder of the checkpoints of a long run's job, which was cancelled and keeps none.
func (r *run) orphans(ctx context.Context) error {
	if !r.o.long() {
		return nil
	}
	if err := r.checkpoints.fs.Remove(ctx, r.checkpoints.saves, true); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return until(ctx, time.Minute, "an empty checkpoint folder", func(ctx context.Context) (bool, error) {
		var left []string
		var err error
		for _, d := range r.checkpoints.folders() {
			more, ferr := files(ctx, r.checkpoints.fs, d)
			left, err = append(left, more...), errors.Join(err, ferr)
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d files are left, such as %s", len(left), left[0])
		}
		return err == nil, err
	})
}

// files lists the files below dir; none when it is not there.
func files(ctx context.Context, f fs.FileSystem, dir string) (all []string, err error) {
	list, err := f.List(ctx, dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if !e.IsDir {
			all = append(all, e.Path)
			continue
		}
		below, err := files(ctx, f, e.Path)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, err
}
