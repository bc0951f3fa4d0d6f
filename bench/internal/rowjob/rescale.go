package rowjob

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// Rescaled is what happened when another parallelism was asked for, in seconds.
type Rescaled struct {
	From    int     `json:"from"`
	To      int     `json:"to"`
	Running float64 `json:"running_s"` // from the request until all tasks ran so
	Gap     float64 `json:"gap_s"`     // the longest time without a result, from the request on
}

const (
	lookAtOutput = 5 * time.Millisecond
	afterwards   = 5 * time.Second // that the output is followed for when the tasks run
)

// Rescale asks for another parallelism of the operator with the rows, and follows the output until it has gone on for a while.
func (w *Watcher) Rescale(ctx context.Context, to int) (r Rescaled, err error) {
	w.phase = "rescale"
	r.From, r.To = max(1, w.spec.Parallelism), to
	rest, job := w.Engine.REST()
	begin := time.Now()
	if err := rest.Require(ctx, job, 1, to); err != nil {
		return r, err
	}
	followed, stop := context.WithCancel(ctx)
	gap := make(chan time.Duration, 1)
	go func() { gap <- w.longestGap(followed, begin, max(r.From, to)) }()
	err = w.until(ctx, runWait, "all tasks running with another parallelism", func(ctx context.Context) (bool, error) {
		ok, err := w.runs(ctx)
		if !ok || err != nil {
			return false, err
		}
		j, err := rest.Job(ctx, job)
		return err == nil && len(j.Vertices) == 2 && j.Vertices[1].Parallelism == to, err
	})
	r.Running = time.Since(begin).Seconds()
	if err == nil {
		t := time.NewTimer(afterwards)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	stop()
	r.Gap = (<-gap).Seconds()
	w.spec.Parallelism = to
	w.spec.logf("  %d -> %d: running after %.2f s, %.2f s without a result", r.From, to, r.Running, r.Gap)
	if err == nil && r.Gap > afterwards.Seconds()/2+r.Running {
		err = fmt.Errorf("no results for %.1f s", r.Gap)
	}
	return r, err
}

// longestGap is the longest time between two results of any sink subtask, until ctx ends.
func (w *Watcher) longestGap(ctx context.Context, begin time.Time, subtasks int) (longest time.Duration) {
	last := begin
	tick := time.NewTicker(lookAtOutput)
	defer tick.Stop()
	for {
		for i := range subtasks {
			if at := tally.Told(w.spec.results(), i); at.After(last) {
				longest = max(longest, at.Sub(last))
				last = at
			}
		}
		select {
		case <-ctx.Done():
			return max(longest, time.Since(last))
		case <-tick.C:
		}
	}
}
