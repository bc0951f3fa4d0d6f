package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/cgroup"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

// result is what one engine did.
type result struct {
	Engine      string       `json:"engine"`
	Fill        phase        `json:"fill"`
	Update      phase        `json:"update"`
	Again       phase        `json:"update_after_restore"`
	Checkpoints []checkpoint `json:"checkpoints"`
	Restore     restore      `json:"restore"`
	Memory      cgroup.Usage `json:"memory"`
	Local       int64        `json:"local_bytes"`
	Remote      int64        `json:"checkpoint_bytes"`
	Error       string       `json:"error,omitempty"`
}

// phase is a part of the run.
type phase struct {
	Events int64   `json:"events"`
	Wall   float64 `json:"wall_s"`
	CPU    float64 `json:"cpu_s"`
}

// checkpoint is one checkpoint and the phase that it began in.
type checkpoint struct {
	flink.Checkpoint
	Phase string `json:"phase"`
}

// restore is what happened after the kill, in seconds since then.
type restore struct {
	Noticed  float64 `json:"noticed_s"` // tasks are no longer all running
	Running  float64 `json:"running_s"` // tasks all run again: state is back
	Output   float64 `json:"output_s"`  // more results than at the kill
	Bytes    int64   `json:"bytes"`     // of the checkpoint
	Repeated int64   `json:"repeated"`  // events that were processed again
	CPU      float64 `json:"cpu_s"`     // until tasks all ran
}

const (
	look     = 50 * time.Millisecond
	fillWait = time.Hour
	runWait  = 10 * time.Minute
)

// watcher follows a run.
type watcher struct {
	b     *bench
	e     engine
	p     paths
	seen  map[int64]int // checkpoint -> index in res
	phase string
	res   *result
	asked time.Time
}

func (b *bench) measure(ctx context.Context, side string) (res result, err error) {
	res.Engine = side
	var p paths
	if p.results, err = b.folder("results"); err != nil {
		return res, err
	}
	if p.checkpoints, err = b.folder("checkpoints"); err != nil {
		return res, err
	}
	p.stop = filepath.Join(b.dir, "stop")
	if err := os.RemoveAll(p.stop); err != nil {
		return res, err
	}
	b.logf("%s: starts", side)
	e, err := b.start(ctx, side, p)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	w := &watcher{b: b, e: e, p: p, seen: map[int64]int{}, res: &res}
	if err := w.run(ctx); err != nil {
		return res, err
	}
	b.logf("%s: compares with the plain computation", side)
	got, err := tally.Read(p.results, 1)
	if err != nil {
		return res, err
	}
	if want := rows.Expected(got.Count, b.keys); got != want {
		return res, fmt.Errorf("wrong results: the sink has %+v, the plain computation %+v", got, want)
	}
	return res, nil
}

func (w *watcher) run(ctx context.Context) error {
	if err := w.until(ctx, runWait, "all tasks running", w.runs); err != nil {
		return err
	}
	var err error
	if w.res.Fill, err = w.span(ctx, "fill", func(n int64, _ time.Duration) bool { return n >= w.b.keys }); err != nil {
		return err
	}
	if w.res.Update, err = w.span(ctx, "update", func(_ int64, d time.Duration) bool { return d >= w.b.update && w.completed() >= 2 }); err != nil {
		return err
	}
	w.res.Local, w.res.Remote = diskUsage(w.e.localDir()), diskUsage(w.p.checkpoints)
	if err := w.restore(ctx); err != nil {
		return err
	}
	if w.res.Again, err = w.span(ctx, "again", func(_ int64, d time.Duration) bool { return d >= w.b.update && w.completed() >= 1 }); err != nil {
		return err
	}
	if err := os.WriteFile(w.p.stop, nil, 0o644); err != nil {
		return err
	}
	err = w.e.end(ctx, runWait)
	w.res.Memory = w.e.memory()
	return err
}

// span follows the job until the end of a phase.
func (w *watcher) span(ctx context.Context, name string, over func(records int64, since time.Duration) bool) (phase, error) {
	w.phase = name
	from, err := tally.ReadProgress(w.p.results, 0)
	if err != nil {
		return phase{}, err
	}
	begin, cpu := time.Now(), w.e.cpu()
	now, told := from, time.Now()
	var p phase
	err = w.until(ctx, fillWait, "the end of phase "+name, func(ctx context.Context) (bool, error) {
		var err error
		if now, err = tally.ReadProgress(w.p.results, 0); err != nil {
			return false, err
		}
		p = phase{Events: now - from, Wall: time.Since(begin).Seconds(), CPU: (w.e.cpu() - cpu).Seconds()}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			m := w.e.memory()
			w.b.logf("  %s: %d records in %.0f s, %.0f CPU s; memory %d MiB (own %d), read again %d MiB", name, p.Events, p.Wall, p.CPU, m.Now>>20, m.Anon>>20, m.Again>>20)
		}
		return over(now, time.Since(begin)), w.alive(ctx)
	})
	w.b.logf("  %s: %d records, %.1f s, %.1f CPU s", name, p.Events, p.Wall, p.CPU)
	return p, err
}

// restore kills the TaskManager and waits for the output to go on.
func (w *watcher) restore(ctx context.Context) error {
	w.phase = "restore"
	w.lookAtCheckpoints(ctx)
	for _, c := range w.res.Checkpoints {
		if c.Completed() {
			w.res.Restore.Bytes = c.State
		}
	}
	before, err := tally.ReadProgress(w.p.results, 0)
	if err != nil {
		return err
	}
	w.b.logf("  kills the TaskManager after %d records", before)
	begin, cpu := time.Now(), w.e.cpu()
	if err := w.e.kill(ctx); err != nil {
		return err
	}
	r := &w.res.Restore
	err = w.until(ctx, runWait, "the tasks' end", func(ctx context.Context) (bool, error) {
		ok, err := w.runs(ctx)
		return err == nil && !ok, err
	})
	if err != nil {
		return err
	}
	r.Noticed = time.Since(begin).Seconds()
	if err := w.until(ctx, runWait, "all tasks running again", w.runs); err != nil {
		return err
	}
	r.Running, r.CPU = time.Since(begin).Seconds(), (w.e.cpu() - cpu).Seconds()
	first := before
	err = w.until(ctx, runWait, "results after the restore", func(context.Context) (bool, error) {
		n, err := tally.ReadProgress(w.p.results, 0)
		if n < first { // the first after the restore
			first = n
			return false, err
		}
		return n > before, err
	})
	r.Output, r.Repeated = time.Since(begin).Seconds(), before-first
	w.b.logf("  noticed after %.1f s, running after %.1f s, as far as before after %.1f s", r.Noticed, r.Running, r.Output)
	return err
}

// runs says that all tasks run.
func (w *watcher) runs(ctx context.Context) (bool, error) {
	rest, job := w.e.rest()
	if rest == nil {
		return false, fatal{errors.New("the job has ended before it ran")}
	}
	j, err := rest.Job(ctx, job)
	if err == nil && j.Ended() {
		return false, fatal{fmt.Errorf("the job has ended %s: %s", j.State, rest.RootCause(ctx, job))}
	}
	return err == nil && j.Runs(), err
}

// alive is an error when the job has ended; once in a while it also looks at the checkpoints.
func (w *watcher) alive(ctx context.Context) error {
	if time.Since(w.asked) < time.Second {
		return nil
	}
	w.asked = time.Now()
	w.lookAtCheckpoints(ctx)
	rest, job := w.e.rest()
	j, err := rest.Job(ctx, job)
	if err == nil && j.Ended() {
		return fatal{fmt.Errorf("the job has ended %s: %s", j.State, rest.RootCause(ctx, job))}
	}
	return nil // REST may be late on a machine that is busy
}

// lookAtCheckpoints takes up what REST tells of them, also of those seen before.
func (w *watcher) lookAtCheckpoints(ctx context.Context) {
	rest, job := w.e.rest()
	all, err := rest.Checkpoints(ctx, job)
	if err != nil {
		return // the next look finds them
	}
	for i := len(all) - 1; i >= 0; i-- { // the oldest first
		c := all[i]
		at, ok := w.seen[c.ID]
		if !ok {
			at = len(w.res.Checkpoints)
			w.seen[c.ID] = at
			w.res.Checkpoints = append(w.res.Checkpoints, checkpoint{Phase: w.phase})
		}
		w.res.Checkpoints[at].Checkpoint = c
	}
}

// completed is how many checkpoints of this phase are complete.
func (w *watcher) completed() (n int) {
	for _, c := range w.res.Checkpoints {
		if c.Phase == w.phase && c.Completed() {
			n++
		}
	}
	return n
}

// fatal is an error that no wait gets over.
type fatal struct{ error }

// until waits for a condition.
func (w *watcher) until(ctx context.Context, limit time.Duration, what string, cond func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	var last error
	for {
		ok, err := cond(ctx)
		var f fatal
		if errors.As(err, &f) {
			return f.error
		}
		if ok && err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s not within %v: %w", what, limit, context.Cause(ctx)), last)
		case <-tick.C:
		}
	}
}

// inode tells links to one file.
func inode(i os.FileInfo) uint64 {
	if s, ok := i.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
