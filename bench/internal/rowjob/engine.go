// Package rowjob runs the job of bench/jobs/state on either engine and follows it: a row per key, first each key once, then keys at random, until a
// file exists. Layer: bench, below the commands.
//
// Main flow: Start starts the job of a Spec; Follow makes a Watcher, whose Running, Span, Kill and Finish are the parts of a run.
package rowjob

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// The engines.
const (
	Thalweg = "thalweg"
	Peer    = "flink"
)

// Spec is what to run, on which engine.
type Spec struct {
	Side  string
	Root  string      // the checkout
	Dir   string      // scratch of this run; it is made, and its folders are emptied
	Flink *flink.Home // for Peer

	Keys int64
	Hot  int64 // keys that are updated at a time; 0: all
	// Parallelism is that of the operator with the rows; 0 is 1. Slots are those of the TaskManager; 0 is 1. The source has one subtask.
	Parallelism, Slots int
	// Rate is events a second after each key was there; 0 is no limit.
	Rate        int64
	Delay       time.Duration // that each event takes in the operator once its key was there, in whole milliseconds
	Interval    time.Duration // between two checkpoints; 0 for none
	Checkpoints string        // URI of their folder; "" for one in Dir
	Memory      int64         // bytes of the TaskManager's container
	Free        bool          // the containers have no limit but the key's
	Ours        config.Configuration
	Theirs      map[string]string
	Log         io.Writer
}

func (s *Spec) results() string { return filepath.Join(s.Dir, "results") }
func (s *Spec) stop() string    { return filepath.Join(s.Dir, "stop") }
func (s *Spec) local() string   { return filepath.Join(s.Dir, "checkpoints") }

func (s *Spec) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Log, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...)) // only shows
}

func (s *Spec) args() []string {
	return []string{"--keys", strconv.FormatInt(s.Keys, 10), "--hot", strconv.FormatInt(s.Hot, 10), "--rate", strconv.FormatInt(s.Rate, 10), "--delay", strconv.FormatInt(s.Delay.Milliseconds(), 10), "--stop", s.stop(), "--result", s.results()}
}

// Engine is a running job of either side. Close it.
type Engine interface {
	REST() (*flink.REST, string) // and the job's id
	CPU() time.Duration          // of all its processes so far
	Memory() cgroup.Usage        // of the TaskManager's container
	// Kill kills the TaskManager and all that it has locally, as the loss of its container does; another one takes its place.
	Kill(ctx context.Context) error
	// KillWorker kills the process that runs the job's tasks: ours is a child of the TaskManager, Flink's is the TaskManager.
	KillWorker(ctx context.Context) error
	End(ctx context.Context, limit time.Duration) error
	LocalDir() string
	Close() error
}

// Start starts the job.
func Start(ctx context.Context, s *Spec) (Engine, error) {
	for _, d := range []string{s.results(), s.local(), filepath.Join(s.Dir, s.Side)} {
		if err := os.RemoveAll(d); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(s.stop()); err != nil {
		return nil, err
	}
	if s.Checkpoints == "" {
		s.Checkpoints = "file://" + s.local()
	}
	s.logf("%s: starts", s.Side)
	if s.Side == Peer {
		return startTheirs(ctx, s)
	}
	return startOurs(ctx, s)
}

type ours struct{ *confined.App }

func startOurs(ctx context.Context, s *Spec) (Engine, error) {
	program := filepath.Join(s.Dir, "job")
	if err := machine.Build(ctx, s.Root, program, "./bench/jobs/state", s.Log); err != nil {
		return nil, err
	}
	conf := config.Configuration{
		"taskmanager.memory.process.size": strconv.FormatInt(s.Memory, 10) + "b", "taskmanager.numberOfTaskSlots": strconv.Itoa(max(1, s.Slots)), "parallelism.default": strconv.Itoa(max(1, s.Parallelism)),
		"state.backend.type": "pebble", "execution.checkpointing.interval": s.Interval.String(), "execution.checkpointing.dir": s.Checkpoints,
		"execution.checkpointing.mode": "exactly_once",
	}
	maps.Copy(conf, s.Ours)
	a, err := confined.Launch(ctx, confined.Spec{Dir: filepath.Join(s.Dir, s.Side), Lib: filepath.Join(s.Root, "bin"), Program: program, Args: s.args(), Config: conf, Free: s.Free})
	if err != nil {
		return nil, err
	}
	return ours{a}, nil
}

func (o ours) REST() (*flink.REST, string)      { return o.App.REST, o.Job }
func (o ours) CPU() time.Duration               { return o.Usage().CPU }
func (o ours) Memory() cgroup.Usage             { return o.App.Memory(false) }
func (o ours) Kill(context.Context) error       { return o.KillTaskManager() }
func (o ours) KillWorker(context.Context) error { return o.App.KillWorker() }

// theirs is Flink's standalone cluster, its TaskManager in a control group. The group's anonymous memory is what the kernel says at each look.
type theirs struct {
	*flink.Standalone
	group  *cgroup.Group
	job    string
	ended  time.Duration // CPU time of the TaskManager that was killed
	before time.Duration // and of both processes before the job
	anon   int64
}

func startTheirs(ctx context.Context, s *Spec) (_ Engine, err error) {
	t := &theirs{}
	enter := flink.Enter{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if !s.Free {
		if t.group, err = confined.NewGroup("flink", s.Memory); err != nil {
			return nil, err
		}
		enter[flink.TaskManagerName] = t.group.Enter()
	}
	settings := map[string]string{
		"taskmanager.memory.process.size": strconv.FormatInt(s.Memory, 10) + "b", "taskmanager.numberOfTaskSlots": strconv.Itoa(max(1, s.Slots)),
		"state.backend.type": "rocksdb", "execution.checkpointing.dir": s.Checkpoints, "execution.checkpointing.mode": "EXACTLY_ONCE", "restart-strategy.type": "exponential-delay",
	}
	if s.Interval > 0 {
		settings["execution.checkpointing.interval"] = strconv.FormatInt(s.Interval.Milliseconds(), 10) + " ms"
	}
	maps.Copy(settings, s.Theirs)
	t.Standalone, err = s.Flink.StartIn(ctx, filepath.Join(s.Dir, s.Side), settings, enter)
	if err != nil {
		return nil, err
	}
	t.before = proc.CPU(t.JobManager(), t.TaskManager())
	t.job, err = t.Submit(ctx, "thalweg.bench.State", max(1, s.Parallelism), s.args()...)
	return t, err
}

func (t *theirs) REST() (*flink.REST, string) { return t.Standalone.REST, t.job }

// CPU implements Engine.
func (t *theirs) CPU() time.Duration {
	return t.ended + proc.CPU(t.JobManager(), t.TaskManager()) - t.before
}

// Memory implements Engine.
func (t *theirs) Memory() cgroup.Usage {
	if t.group == nil {
		return cgroup.Usage{}
	}
	u := t.group.Read()
	t.anon = max(t.anon, u.Anon)
	u.Anon = t.anon
	return u
}

// Kill implements Engine.
func (t *theirs) Kill(ctx context.Context) error {
	t.ended += proc.CPU(t.TaskManager())
	return t.ReplaceTaskManager(ctx)
}

// KillWorker implements Engine.
func (t *theirs) KillWorker(ctx context.Context) error { return t.Kill(ctx) }

// End implements Engine.
func (t *theirs) End(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := t.Wait(ctx, t.job)
	return err
}

// Close implements Engine.
func (t *theirs) Close() error {
	var errs []error
	if t.Standalone != nil {
		errs = append(errs, t.Stop())
	}
	if t.group != nil {
		errs = append(errs, t.group.Close(context.Background()))
	}
	return errors.Join(errs...)
}
