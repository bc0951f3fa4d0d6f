package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/bench/internal/cgroup"
	"github.com/thalweg/thalweg/bench/internal/rowjob"
)

// result is what one engine did.
type result struct {
	Engine      string              `json:"engine"`
	Fill        rowjob.Phase        `json:"fill"`
	Update      rowjob.Phase        `json:"update"`
	Again       rowjob.Phase        `json:"update_after_restore"`
	Checkpoints []rowjob.Checkpoint `json:"checkpoints"`
	Restore     rowjob.Restore      `json:"restore"`
	Memory      cgroup.Usage        `json:"memory"`
	Local       int64               `json:"local_bytes"`
	Remote      int64               `json:"checkpoint_bytes"`
	Error       string              `json:"error,omitempty"`
}

func (b *bench) measure(ctx context.Context, side string) (res result, err error) {
	res.Engine = side
	s := &rowjob.Spec{Side: side, Root: b.root, Dir: filepath.Join(b.dir, side), Flink: b.flink, Keys: b.keys, Interval: b.interval, Memory: int64(b.options.memory), Ours: b.Ours, Log: b.out}
	e, err := rowjob.Start(ctx, s)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	w := rowjob.Follow(s, e)
	err = b.run(ctx, w, &res)
	res.Checkpoints, res.Memory = w.Checkpoints, e.Memory()
	return res, err
}

func (b *bench) run(ctx context.Context, w *rowjob.Watcher, res *result) (err error) {
	if err := w.Running(ctx); err != nil {
		return err
	}
	if res.Fill, err = w.Span(ctx, "fill", func(n int64, _ time.Duration) bool { return n >= b.keys }); err != nil {
		return err
	}
	if res.Update, err = w.Span(ctx, "update", func(_ int64, d time.Duration) bool { return d >= b.update && w.Completed() >= 2 }); err != nil {
		return err
	}
	res.Local, res.Remote = rowjob.DiskUsage(w.Engine.LocalDir()), w.DiskUsage()
	if res.Restore, err = w.Kill(ctx, w.Engine.Kill); err != nil {
		return err
	}
	if res.Again, err = w.Span(ctx, "again", func(_ int64, d time.Duration) bool { return d >= b.update && w.Completed() >= 1 }); err != nil {
		return err
	}
	return w.Finish(ctx)
}
