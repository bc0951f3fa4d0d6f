package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/bench/internal/cgroup"
	"github.com/thalweg/thalweg/bench/internal/confined"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/config"
)

// engine is a running job of either side.
type engine interface {
	rest() (*flink.REST, string) // and the job's id
	cpu() time.Duration          // of all its processes so far
	memory() cgroup.Usage        // of the TaskManager's container
	kill(ctx context.Context) error
	end(ctx context.Context, limit time.Duration) error
	localDir() string
	close() error
}

// paths are what a job reads and writes.
type paths struct{ stop, results, checkpoints string }

func (b *bench) args(p paths) []string {
	return []string{"--keys", strconv.FormatInt(b.keys, 10), "--stop", p.stop, "--result", p.results}
}

func (b *bench) start(ctx context.Context, side string, p paths) (engine, error) {
	if side == peer {
		return b.startFlink(ctx, p)
	}
	return b.startOurs(ctx, p)
}

type ours struct{ *confined.App }

func (b *bench) startOurs(ctx context.Context, p paths) (engine, error) {
	dir, err := b.folder("thalweg")
	if err != nil {
		return nil, err
	}
	program := filepath.Join(b.dir, "job")
	if err := machine.Build(ctx, b.root, program, "./bench/jobs/state", b.out); err != nil {
		return nil, err
	}
	conf := config.Configuration{
		"taskmanager.memory.process.size": strconv.FormatInt(int64(b.options.memory), 10) + "b", "taskmanager.numberOfTaskSlots": "1", "parallelism.default": "1",
		"state.backend.type": "pebble", "execution.checkpointing.interval": b.interval.String(), "execution.checkpointing.dir": "file://" + p.checkpoints,
		"execution.checkpointing.mode": "exactly_once",
	}
	maps.Copy(conf, b.extra)
	a, err := confined.Launch(ctx, confined.Spec{Dir: dir, Lib: filepath.Join(b.root, "bin"), Program: program, Args: b.args(p), Config: conf})
	if err != nil {
		return nil, err
	}
	return ours{a}, nil
}

func (o ours) rest() (*flink.REST, string)                        { return o.REST, o.Job }
func (o ours) cpu() time.Duration                                 { return o.Usage().CPU }
func (o ours) memory() cgroup.Usage                               { return o.Memory(false) }
func (o ours) kill(context.Context) error                         { return o.KillTaskManager() }
func (o ours) end(ctx context.Context, limit time.Duration) error { return o.End(ctx, limit) }
func (o ours) localDir() string                                   { return o.LocalDir() }
func (o ours) close() error                                       { return o.Close() }

// theirs is Flink's standalone cluster, its TaskManager in a control group. The group's anonymous memory is what the kernel says at each look.
type theirs struct {
	*flink.Standalone
	group  *cgroup.Group
	job    string
	ended  time.Duration // CPU time of the TaskManager that was killed
	before time.Duration // and of both processes before the job
	anon   int64
}

func (b *bench) startFlink(ctx context.Context, p paths) (_ engine, err error) {
	dir, err := b.folder("flink")
	if err != nil {
		return nil, err
	}
	t := &theirs{}
	if t.group, err = confined.NewGroup("flink", int64(b.options.memory)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	t.Standalone, err = b.flink.StartIn(ctx, dir, map[string]string{
		"taskmanager.memory.process.size": strconv.FormatInt(int64(b.options.memory), 10) + "b", "taskmanager.numberOfTaskSlots": "1",
		"state.backend.type": "rocksdb", "execution.checkpointing.interval": strconv.FormatInt(b.interval.Milliseconds(), 10) + " ms",
		"execution.checkpointing.dir": "file://" + p.checkpoints, "execution.checkpointing.mode": "EXACTLY_ONCE", "restart-strategy.type": "exponential-delay",
	}, flink.Enter{flink.TaskManagerName: t.group.Enter()})
	if err != nil {
		return nil, err
	}
	t.before = proc.CPU(t.JobManager(), t.TaskManager())
	t.job, err = t.Submit(ctx, "thalweg.bench.State", 1, b.args(p)...)
	return t, err
}

func (t *theirs) rest() (*flink.REST, string) { return t.REST, t.job }

func (t *theirs) cpu() time.Duration {
	return t.ended + proc.CPU(t.JobManager(), t.TaskManager()) - t.before
}

func (t *theirs) memory() cgroup.Usage {
	u := t.group.Read()
	t.anon = max(t.anon, u.Anon)
	u.Anon = t.anon
	return u
}

func (t *theirs) kill(ctx context.Context) error {
	t.ended += proc.CPU(t.TaskManager())
	return t.ReplaceTaskManager(ctx)
}

func (t *theirs) end(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := t.Wait(ctx, t.job)
	return err
}

func (t *theirs) localDir() string { return t.LocalDir() }

func (t *theirs) close() error {
	var errs []error
	if t.Standalone != nil {
		errs = append(errs, t.Stop())
	}
	return errors.Join(append(errs, t.group.Close(context.Background()))...)
}

// diskUsage is what the files below a folder take; links to one file count once.
func diskUsage(dir string) int64 {
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
