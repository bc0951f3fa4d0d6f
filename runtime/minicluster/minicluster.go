package minicluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

// Result is how the job ended.
type Result = jobmaster.Result

// Cluster is a running embedded cluster.
type Cluster struct {
	opts       Options
	conf       config.Configuration
	dir        string
	ownDir     bool
	driver     *resourcemanager.Embedded
	Resources  *resourcemanager.Manager
	Dispatcher *dispatcher.Dispatcher
	JobID      graph.JobID
	RESTURL    string // "" without REST
	stopREST   func()

	accepting sync.WaitGroup
	fatal     chan error
	left      atomic.Pointer[error] // a worker that was left behind
	submitted chan struct{}         // closed when JobID is set
	over      chan struct{}         // closed at the beginning of Close
	closing   sync.Once
}

// Run starts a cluster, runs the job to its end and takes everything down. When ctx ends first, the job is cancelled; the result then is
// CANCELED. The error is about the cluster; a job that failed is a Result with State FAILED (see JobError).
func Run(ctx context.Context, opts Options) (Result, error) {
	c, err := Start(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	if opts.OnStarted != nil {
		opts.OnStarted(c, c.RESTURL)
	}
	r, err := c.Wait(ctx)
	if err == nil && c.RESTURL != "" {
		read, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		c.Dispatcher.AwaitRead(read)
	}
	return r, err
}

// readTimeout bounds the wait for clients to fetch the outcome of a savepoint, when the job is over.
const readTimeout = 10 * time.Second

// JobError turns the result of a job that did not finish into an error: nil for FINISHED. It says so when the failure was fatal: then no restart
// strategy would have helped.
func JobError(r Result) error {
	if r.State == scheduler.JobFinished {
		return nil
	}
	if r.Failure == nil {
		return fmt.Errorf("job %s", r.State)
	}
	where := ""
	if r.Failure.Task != "" {
		where = " in " + r.Failure.Task
	}
	why := ""
	if r.Failure.Fatal {
		why = ". No restart: " + scheduler.Unhealable
	}
	return fmt.Errorf("job %s%s: %s%s", r.State, where, r.Failure.Message, why)
}

// Start starts a cluster and submits the job. Close takes it down.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Graph == nil || opts.RunWorker == nil || opts.FS == nil {
		return nil, errors.New("minicluster: start: Graph, RunWorker and FS are required")
	}
	c := &Cluster{opts: opts, conf: opts.Config.Clone(), dir: opts.Dir, fatal: make(chan error, 1), submitted: make(chan struct{}), over: make(chan struct{})}
	if c.conf == nil {
		c.conf = config.Configuration{}
	}
	if c.dir == "" {
		d, err := makeDir(config.TmpDirs.Value(c.conf))
		if err != nil {
			return nil, err
		}
		c.dir, c.ownDir = d, true
	}
	if config.CheckpointDir.Value(c.conf) == "" && opts.Graph.Config[config.CheckpointDir.Key] == "" {
		config.CheckpointDir.Set(c.conf, "file://"+filepath.Join(c.dir, "checkpoints"))
	}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// makeDir makes the cluster's folder in the first usable one of io.tmp.dirs, or in the system's temporary folder.
func makeDir(dirs []string) (string, error) {
	if len(dirs) == 0 {
		d, err := process.Folder("", "thalweg-local-")
		if err != nil {
			return "", fmt.Errorf("minicluster: start: %w; choose another folder with %s", err, config.TmpDirs.Key)
		}
		return d, nil
	}
	var bad []error
	for _, dir := range dirs {
		dir, err := filepath.Abs(dir) // it becomes a part of URIs
		if err == nil {
			err = os.MkdirAll(dir, 0o750)
		}
		if err == nil {
			dir, err = process.Folder(dir, "thalweg-local-")
		}
		if err == nil {
			return dir, nil
		}
		bad = append(bad, err)
	}
	return "", fmt.Errorf("minicluster: start: no folder of %s is usable: %w", config.TmpDirs.Key, errors.Join(bad...))
}

// localDirs are the TaskManagers' folders for state and artifacts.
func (c *Cluster) localDirs() []string {
	if dirs := config.TmpDirs.Value(c.conf); len(dirs) > 0 {
		return dirs
	}
	return []string{filepath.Join(c.dir, "local")}
}

func (c *Cluster) start(ctx context.Context) error {
	store := ha.NewMemory()
	epoch, err := store.AcquireEpoch(ctx, "minicluster")
	if err != nil {
		return fmt.Errorf("minicluster: start: %w", err)
	}
	c.driver = resourcemanager.NewEmbedded(c.runTaskManager)
	c.driver.Limit(c.opts.MaxTaskManagers)
	c.Resources = resourcemanager.New(resourcemanager.Options{Config: c.conf, Driver: c.driver, Epoch: epoch, Spec: c.spec(), Logger: c.opts.Logger,
		OnFatal: func(err error) {
			select {
			case c.fatal <- err:
			default:
			}
		}})
	if err := c.Resources.Start(ctx); err != nil {
		return err
	}
	var launcher dispatcher.Launcher
	if c.opts.RunCoordinator != nil {
		launcher = dispatcher.InProcess{Run: c.opts.RunCoordinator}
	}
	c.Dispatcher = dispatcher.New(dispatcher.Options{Config: c.conf, Resources: c.Resources, Store: store, FS: c.opts.FS, Launcher: launcher, Epoch: epoch,
		CancelTimeout: cmp.Or(c.opts.CancelTimeout, config.CancellationTimeout.Value(c.conf)), Logger: c.opts.Logger})
	if c.opts.RESTAddress != "" {
		if err := c.startREST(ctx); err != nil {
			return err
		}
	}
	c.JobID, err = c.Dispatcher.Submit(ctx, dispatcher.Submission{JobID: c.opts.JobID, Graph: c.opts.Graph, Args: c.opts.Args, Config: c.opts.Config})
	if err == nil {
		close(c.submitted)
	}
	return err
}

// spec is one TaskManager with all slots, unless TaskManagers or the configuration say otherwise, or there are more than one may have: then
// several of one size.
func (c *Cluster) spec() resourcemanager.WorkerSpec {
	s := resourcemanager.SpecOf(c.conf)
	need := c.opts.Graph.Slots()
	switch n := c.opts.TaskManagers; {
	case config.TaskSlots.IsSet(c.conf):
	case n > 0:
		s.Slots = max(1, (need+n-1)/n)
	default:
		n = (need + resourcemanager.MaxSlots - 1) / resourcemanager.MaxSlots
		s.Slots = max(1, (need+n-1)/max(1, n))
	}
	s.Slots = min(s.Slots, resourcemanager.MaxSlots)
	s.Cores = runtime.GOMAXPROCS(0)
	return s
}

func (c *Cluster) runTaskManager(ctx context.Context, id resourcemanager.WorkerID, spec resourcemanager.WorkerSpec) error {
	tm, err := taskmanager.New(taskmanager.Options{ID: string(id), Host: "127.0.0.1", Slots: spec.Slots, MemoryBytes: spec.MemoryBytes, Cores: spec.Cores,
		Dirs: c.localDirs(), Config: c.conf, Logger: c.opts.Logger,
		Launcher: taskmanager.InProcess{Run: c.opts.RunWorker, Left: c.workerLeft},
		Leader:   func(context.Context) (taskmanager.Leader, error) { return taskmanager.Leader{Address: "embedded"}, nil },
		Connect: func(context.Context, taskmanager.Leader) (taskmanager.Connection, error) {
			lower, upper := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
			c.accepting.Go(func() { c.Resources.Accept(upper, "embedded") })
			return taskmanager.Connection{Link: lower}, nil
		}})
	if err != nil {
		return err
	}
	return tm.Run(ctx)
}

// KillTaskManager ends a TaskManager as if its container had died; another one is started.
func (c *Cluster) KillTaskManager(id string) { c.driver.Kill(resourcemanager.WorkerID(id)) }

// LimitTaskManagers bounds the number of TaskManagers from now on, 0 for no bound; those that run are left alone.
func (c *Cluster) LimitTaskManagers(n int) { c.driver.Limit(n) }

// Wait waits for the job's end. When ctx ends first, the job is cancelled.
func (c *Cluster) Wait(ctx context.Context) (Result, error) {
	done := make(chan struct{})
	defer close(done)
	fatal := make(chan error, 1)
	wctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case err := <-c.fatal:
			fatal <- err
			cancel(err)
		case <-ctx.Done():
			_ = c.Dispatcher.Cancel(c.JobID) // ended already is fine
			t := time.NewTimer(cancelPatience)
			defer t.Stop()
			select {
			case <-t.C:
				cancel(fmt.Errorf("minicluster: the job did not end within %s of its cancellation", cancelPatience))
			case <-done:
			case <-wctx.Done():
			}
		case <-wctx.Done():
		}
	})
	r, err := c.Dispatcher.Wait(wctx, c.JobID)
	cancel(nil)
	if left := c.left.Load(); err == nil && left != nil && (r.Failure == nil || r.State != scheduler.JobFailed) {
		err = *left
	}
	return r, err
}

// workerLeft notes that a worker was told to end, and the code of a task in it does not return. Nothing in this process can kill it, so that
// the job cannot start again beside it: it fails. This returns when the job is over.
func (c *Cluster) workerLeft() {
	text := "a task was told to end and did not: the program's code in it does not return"
	if at := guard.Busy("runtime/task"); len(at) > 0 {
		text += ", at " + strings.Join(at, ", ")
	}
	select {
	case <-c.submitted: // the job may be at work before its id is known here
	case <-c.over:
		return
	}
	err := fmt.Errorf("minicluster: %s. It is left behind, since this process has no way to kill it, and the job does not start again beside it", text)
	ctx, cancel := context.WithTimeout(context.Background(), leftPatience)
	defer cancel()
	d, known := c.Dispatcher.Details(ctx, c.JobID)
	restarts := known == nil && d.State == scheduler.JobRestarting
	if known == nil && d.Root != nil {
		err = fmt.Errorf("%w. Before: %s", err, d.Root.Message)
	}
	c.left.Store(&err)
	if !restarts {
		return
	}
	select {
	case c.fatal <- err:
	default:
	}
	<-c.over
}

// leftPatience bounds the look at the job's state.
const leftPatience = 10 * time.Second

// cancelPatience bounds the end of a cancelled job.
const cancelPatience = time.Minute

// Close takes everything down and waits for it.
func (c *Cluster) Close() {
	c.closing.Do(func() {
		close(c.over)
		if c.stopREST != nil {
			c.stopREST()
		}
		if c.Dispatcher != nil {
			c.Dispatcher.Close()
		}
		if c.Resources != nil {
			if err := c.Resources.Close(); err != nil {
				c.opts.Logger.Debug().Err(err).Msg("closing the resource manager")
			}
		}
		c.accepting.Wait()
		if c.ownDir {
			if err := os.RemoveAll(c.dir); err != nil {
				c.opts.Logger.Warn().Err(err).Str("dir", c.dir).Msg("local folder could not be removed")
			}
		}
	})
}
