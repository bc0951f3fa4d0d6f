package main

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/rows"
)

// result is what one engine did in one case.
type result struct {
	Case        string              `json:"case"`
	Engine      string              `json:"engine"`
	Checkpoints []rowjob.Checkpoint `json:"checkpoints"`
	Worker      *rowjob.Restore     `json:"worker_killed,omitempty"`
	Container   *rowjob.Restore     `json:"container_killed,omitempty"`
	Without     []rowjob.Phase      `json:"without_checkpoints,omitempty"` // by round, each beside the one with
	With        []rowjob.Phase      `json:"with_checkpoints,omitempty"`
	Error       string              `json:"error,omitempty"`
}

// The phases of a run. Those of measured are in the report.
const (
	fill     = "fill"
	settle   = "settle" // first updates and two checkpoints, the first of which holds most of the state
	measured = "measured"
)

// killsFrom is the least size at which processes are killed.
const killsFrom = 100 << 20

const unaligned = "execution.checkpointing.unaligned.enabled"

func (b *bench) measure(ctx context.Context, c, side string) (result, error) {
	r := result{Case: c, Engine: side}
	if isCost(c) {
		return r, b.cost(ctx, &r)
	}
	size := c
	if c == backpressure {
		size = "100kb"
	}
	keys, err := rows.Keys(size)
	if err != nil {
		return r, err
	}
	s, remove, err := b.spec(c, side, keys)
	if err != nil {
		return r, err
	}
	s.Rate = max(int64(float64(keys)*b.change/b.interval.Seconds()), 20)
	if c == backpressure { // the source has always more than 500 events a second
		s.Rate, s.Delay = 0, 2*time.Millisecond
		s.Ours, s.Theirs = maps.Clone(s.Ours), map[string]string{unaligned: "true"}
		s.Ours[unaligned] = "true"
	}
	return r, errors.Join(rowjob.Run(ctx, s, func(w *rowjob.Watcher) error { return b.checkpoints(ctx, w, &r, keys) }), remove())
}

func (b *bench) checkpoints(ctx context.Context, w *rowjob.Watcher, r *result, keys int64) error {
	if _, err := w.Span(ctx, fill, func(n int64, _ time.Duration) bool { return n >= keys }); err != nil {
		return err
	}
	completed := func(n int) func(int64, time.Duration) bool {
		return func(int64, time.Duration) bool { return w.Completed() >= n }
	}
	if _, err := w.Span(ctx, settle, completed(2)); err != nil {
		return err
	}
	if _, err := w.Span(ctx, measured, completed(b.count)); err != nil {
		return err
	}
	if err := w.Syncs(ctx); err != nil {
		return err
	}
	for _, c := range w.Checkpoints {
		if c.Phase == measured {
			r.Checkpoints = append(r.Checkpoints, c)
		}
	}
	if keys < killsFrom/rows.Bytes {
		return nil
	}
	again := func(kill func(context.Context) error) (*rowjob.Restore, error) {
		x, err := w.Kill(ctx, kill)
		if err != nil {
			return nil, err
		}
		_, err = w.Span(ctx, settle, completed(1))
		return &x, err
	}
	var err error
	if r.Worker, err = again(w.Engine.KillWorker); err != nil {
		return err
	}
	r.Container, err = again(w.Engine.Kill)
	return err
}

// costFor is how long the throughput is measured, costRounds how often without checkpoints and with them, in turn.
const (
	costFor    = 20 * time.Second
	costRounds = 3
)

// cost measures the throughput of updates of 100 MB of state on disk-backed state, which fits in memory, without checkpoints and with one each second. At a
// million updates a second these change as much of the state in a second as -change says, or nearly all of it.
func (b *bench) cost(ctx context.Context, r *result) error {
	keys := int64(100<<20) / rows.Bytes
	for n := range 2 * costRounds {
		part := []struct {
			interval time.Duration
			into     *[]rowjob.Phase
		}{{0, &r.Without}, {time.Second, &r.With}}[n%2]
		s, remove, err := b.spec(r.Case, r.Engine, keys)
		if err != nil {
			return err
		}
		if r.Case == cost {
			s.Hot = max(int64(float64(keys)*b.change), 1)
		}
		s.Interval = part.interval
		err = rowjob.Run(ctx, s, func(w *rowjob.Watcher) error {
			if _, err := w.Span(ctx, fill, func(n int64, d time.Duration) bool { return n >= 3*keys && d >= 5*time.Second }); err != nil {
				return err
			}
			p, err := w.Span(ctx, measured, func(_ int64, d time.Duration) bool { return d >= costFor })
			*part.into = append(*part.into, p)
			return err
		})
		if err := errors.Join(err, remove()); err != nil {
			return err
		}
	}
	return nil
}
