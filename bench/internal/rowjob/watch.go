package rowjob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

// Phase is a part of the run.
type Phase struct {
	Events int64   `json:"events"`
	Wall   float64 `json:"wall_s"`
	CPU    float64 `json:"cpu_s"`
}

// Checkpoint is one checkpoint and the phase that it began in.
type Checkpoint struct {
	flink.Checkpoint
	Phase string `json:"phase"`
	Sync  int64  `json:"sync_ms"` // of the slowest task; known after Syncs
}

// Restore is what happened after a kill, in seconds since then.
type Restore struct {
	Noticed  float64 `json:"noticed_s"` // tasks are no longer all running
	Running  float64 `json:"running_s"` // tasks all run again: state is back
	Flows    float64 `json:"flows_s"`   // the first result after the restore
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

// Watcher follows a run.
type Watcher struct {
	Engine      Engine
	Checkpoints []Checkpoint // in the order of their numbers

	spec  *Spec
	seen  map[int64]int // checkpoint -> index
	phase string
	asked time.Time
}

// Follow makes a Watcher of a job.
func Follow(s *Spec, e Engine) *Watcher { return &Watcher{Engine: e, spec: s, seen: map[int64]int{}} }

// Run starts a job and waits until all of its tasks run; do measures it. Then the input ends and the results are compared.
func Run(ctx context.Context, s *Spec, do func(*Watcher) error) (err error) {
	e, err := Start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	w := Follow(s, e)
	if err := w.Running(ctx); err != nil {
		return err
	}
	if err := do(w); err != nil {
		return err
	}
	return w.Finish(ctx)
}

// Running waits until all tasks run.
func (w *Watcher) Running(ctx context.Context) error {
	return w.until(ctx, runWait, "all tasks running", w.runs)
}

// Finish ends the input, waits for the job's end and compares the results with the plain computation.
func (w *Watcher) Finish(ctx context.Context) error {
	if err := os.WriteFile(w.spec.stop(), nil, 0o644); err != nil {
		return err
	}
	if err := w.Engine.End(ctx, runWait); err != nil {
		return err
	}
	w.spec.logf("%s: compares with the plain computation", w.spec.Side)
	got, err := tally.Read(w.spec.results(), max(1, w.spec.Parallelism))
	if err != nil {
		return err
	}
	if want := rows.Expected(got.Count, w.spec.Keys, w.spec.Hot); got != want {
		return fmt.Errorf("wrong results: the sink has %+v, the plain computation %+v", got, want)
	}
	return nil
}

// Span follows the job until the end of a phase.
func (w *Watcher) Span(ctx context.Context, name string, over func(records int64, since time.Duration) bool) (Phase, error) {
	w.phase = name
	from, err := tally.ReadProgress(w.spec.results(), 0)
	if err != nil {
		return Phase{}, err
	}
	begin, cpu := time.Now(), w.Engine.CPU()
	now, told := from, time.Now()
	var p Phase
	err = w.until(ctx, fillWait, "the end of phase "+name, func(ctx context.Context) (bool, error) {
		var err error
		if now, err = tally.ReadProgress(w.spec.results(), 0); err != nil {
			return false, err
		}
		p = Phase{Events: now - from, Wall: time.Since(begin).Seconds(), CPU: (w.Engine.CPU() - cpu).Seconds()}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			m := w.Engine.Memory()
			w.spec.logf("  %s: %d records in %.0f s, %.0f CPU s; memory %d MiB (own %d), read again %d MiB", name, p.Events, p.Wall, p.CPU, m.Now>>20, m.Anon>>20, m.Again>>20)
		}
		return over(now, time.Since(begin)), w.alive(ctx)
	})
	w.spec.logf("  %s: %d records, %.1f s, %.1f CPU s", name, p.Events, p.Wall, p.CPU)
	return p, err
}

// Kill calls kill, which takes the job's tasks away (Engine.Kill or KillWorker), and waits for the output to go on.
func (w *Watcher) Kill(ctx context.Context, kill func(context.Context) error) (r Restore, err error) {
	w.phase = "restore"
	w.lookAtCheckpoints(ctx)
	for _, c := range w.Checkpoints {
		if c.Completed() {
			r.Bytes = c.State
		}
	}
	before, err := tally.ReadProgress(w.spec.results(), 0)
	if err != nil {
		return r, err
	}
	w.spec.logf("  %s: kills after %d records", w.spec.Side, before)
	begin, cpu := time.Now(), w.Engine.CPU()
	if err := kill(ctx); err != nil {
		return r, err
	}
	err = w.until(ctx, runWait, "the tasks' end", func(ctx context.Context) (bool, error) {
		ok, err := w.runs(ctx)
		return err == nil && !ok, err
	})
	if err != nil {
		return r, err
	}
	r.Noticed = time.Since(begin).Seconds()
	if err := w.until(ctx, runWait, "all tasks running again", w.runs); err != nil {
		return r, err
	}
	r.Running, r.CPU = time.Since(begin).Seconds(), (w.Engine.CPU() - cpu).Seconds()
	first := before
	err = w.until(ctx, runWait, "results after the restore", func(context.Context) (bool, error) {
		n, err := tally.ReadProgress(w.spec.results(), 0)
		if n < first { // the first after the restore
			first, r.Flows = n, time.Since(begin).Seconds()
			return false, err
		}
		return n > before, err
	})
	r.Output, r.Repeated = time.Since(begin).Seconds(), before-first
	if r.Flows == 0 {
		r.Flows = r.Output
	}
	w.spec.logf("  noticed after %.1f s, running after %.1f s, first result after %.1f s, as far as before after %.1f s", r.Noticed, r.Running, r.Flows, r.Output)
	return r, err
}

// DiskUsage is what the folder of checkpoints takes, if it is in the run's own.
func (w *Watcher) DiskUsage() int64 { return DiskUsage(w.spec.local()) }

// runs says that all tasks run.
func (w *Watcher) runs(ctx context.Context) (bool, error) {
	rest, job := w.Engine.REST()
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
func (w *Watcher) alive(ctx context.Context) error {
	if time.Since(w.asked) < time.Second {
		return nil
	}
	w.asked = time.Now()
	w.lookAtCheckpoints(ctx)
	rest, job := w.Engine.REST()
	j, err := rest.Job(ctx, job)
	if err == nil && j.Ended() {
		return fatal{fmt.Errorf("the job has ended %s: %s", j.State, rest.RootCause(ctx, job))}
	}
	return nil // REST may be late on a machine that is busy
}

// lookAtCheckpoints takes up what REST tells of them, also of those seen before.
func (w *Watcher) lookAtCheckpoints(ctx context.Context) {
	rest, job := w.Engine.REST()
	all, err := rest.Checkpoints(ctx, job)
	if err != nil {
		return // the next look finds them
	}
	for i := len(all) - 1; i >= 0; i-- { // the oldest first
		c := all[i]
		at, ok := w.seen[c.ID]
		if !ok {
			at = len(w.Checkpoints)
			w.seen[c.ID] = at
			w.Checkpoints = append(w.Checkpoints, Checkpoint{Phase: w.phase})
		}
		w.Checkpoints[at].Checkpoint = c
	}
}

// Completed is how many checkpoints of this phase are complete.
func (w *Watcher) Completed() (n int) {
	for _, c := range w.Checkpoints {
		if c.Phase == w.phase && c.Completed() {
			n++
		}
	}
	return n
}

// Syncs asks for the synchronous parts of the completed checkpoints of this phase.
func (w *Watcher) Syncs(ctx context.Context) error {
	w.lookAtCheckpoints(ctx)
	rest, job := w.Engine.REST()
	for i := range w.Checkpoints {
		c := &w.Checkpoints[i]
		if c.Phase != w.phase || !c.Completed() {
			continue
		}
		var err error
		if c.Sync, err = rest.Sync(ctx, job, c.ID); err != nil {
			return err
		}
	}
	return nil
}

// fatal is an error that no wait gets over.
type fatal struct{ error }

// until waits for a condition.
func (w *Watcher) until(ctx context.Context, limit time.Duration, what string, cond func(context.Context) (bool, error)) error {
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

// DiskUsage is what the files below a folder take; links to one file count once.
func DiskUsage(dir string) int64 {
	return walk(dir, map[uint64]bool{})
}

func walk(dir string, seen map[uint64]bool) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error { // files come and go meanwhile
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if i := inode(info); i == 0 || !seen[i] {
				seen[i] = true
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
