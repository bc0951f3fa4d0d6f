package taskmanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// worker is one job's worker. Its fields are guarded by TaskManager.mu.
type worker struct {
	t        *TaskManager
	start    *pb.StartWorker
	proc     Process
	link     rpc.WorkerLink
	hello    *pb.WorkerHello
	stopping bool
	killed   bool               // without grace: it hangs, and another one is to take its place
	greedy   string             // why it was killed for memory; "" when it was not
	silent   atomic.Bool        // killed, since nothing came from it
	cancel   context.CancelFunc // of what precedes the launch
	next     *pb.StartWorker    // to start when this one has ended
	timers   []*time.Timer
	tasks    map[string]int32 // slots of those deployed and not known to have ended
}

// slots are those of its tasks.
func (w *worker) slots() *pb.HeldSlots {
	held := &pb.HeldSlots{JobId: w.start.GetJobId(), Slots: slices.Sorted(maps.Values(w.tasks))}
	held.Slots = slices.Compact(held.Slots)
	return held
}

// send passes a message on; before the worker is connected there is nothing that it could mean.
func (w *worker) send(down *pb.WorkerDown) {
	for _, t := range down.GetDeploy().GetTasks() {
		w.tasks[t.GetExecutionId()] = t.GetSlot()
	}
	if c := down.GetCancel(); c.GetAll() { // those known here by their ids, and whatever else there may be
		c.ExecutionIds = slices.Sorted(maps.Keys(w.tasks))
	}
	if w.link != nil {
		_ = w.link.Send(down) // a broken link is the worker's end, reported as such
	}
}

func (w *worker) pid() int {
	if w.proc == nil {
		return 0
	}
	return w.proc.PID()
}

// stop ends the worker: the end of its link tells it to, and it is killed after grace. One that is not connected gets a signal.
func (w *worker) stop(grace time.Duration) {
	w.stopping = true
	switch {
	case w.proc == nil:
	case grace > 0 && w.link != nil:
		w.link.Close(nil)
		proc := w.proc
		w.killLater(grace, proc)
	default:
		w.proc.Stop(grace)
	}
	w.cancel()
}

// killLater kills the process after grace, unless it has ended by then.
func (w *worker) killLater(grace time.Duration, proc Process) {
	t := time.AfterFunc(grace, func() { proc.Stop(0) })
	w.timers = append(w.timers, t)
}

// startWorker starts the job's worker; a live one repeats its hello.
func (t *TaskManager) startWorker(s *pb.StartWorker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	if w := t.workers[s.GetJobId()]; w != nil {
		switch {
		case w.stopping:
			w.next = s
		case w.hello != nil && t.up != nil:
			_ = t.up.Send(helloMessage(s.GetJobId(), w.hello)) // a broken link shows at Recv
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{t: t, start: s, cancel: cancel, tasks: map[string]int32{}}
	t.workers[s.GetJobId()] = w
	t.wg.Go(func() { w.run(ctx) })
}

func helloMessage(job string, h *pb.WorkerHello) *pb.TaskManagerUp {
	return envelope(job, &pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: h}})
}

func envelope(job string, up *pb.WorkerUp) *pb.TaskManagerUp {
	return &pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Worker{Worker: &pb.WorkerEnvelopeUp{JobId: job, Up: up}}}
}

// run is the life of a worker.
func (w *worker) run(ctx context.Context) {
	t, job := w.t, w.start.GetJobId()
	exit, pid := w.live(ctx)
	w.cancel()
	if w.silent.Load() {
		exit.Reason = fmt.Sprintf("no word from it for %s (%s), as when a process is stopped or frozen; it was killed", w.timeout(), config.HeartbeatTimeout.Key)
	}
	t.mu.Lock()
	if w.greedy != "" {
		exit.Reason = w.greedy
	}
	delete(t.workers, job)
	next, closing := w.next, t.closing
	if w.stopping && !w.killed && next == nil { // the job needs nothing here any more; a worker that died is replaced
		t.dropBackups(job)
	}
	t.mu.Unlock()
	t.log.Info().Str("job_id", job).Int("pid", pid).Int("exit_code", exit.Code).Str("reason", exit.Reason).Msg("worker ended")
	rctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	t.report(rctx, &pb.TaskManagerUp{Msg: &pb.TaskManagerUp_WorkerExited{WorkerExited: &pb.WorkerExited{
		JobId: job, ExitCode: int32(exit.Code), Reason: exit.Reason, Pid: int32(pid)}}})
	cancel()
	if next != nil && !closing {
		t.startWorker(next)
	}
}

func (w *worker) live(ctx context.Context) (Exit, int) {
	t, s := w.t, w.start
	failed := func(what string, err error) Exit {
		return Exit{Code: 1, Reason: fmt.Sprintf("worker could not be started: %s: %v", what, err)}
	}
	dirs, err := w.makeDirs()
	if err != nil {
		return failed("local folders", err), 0
	}
	defer func() {
		for _, d := range dirs {
			if err := os.RemoveAll(d); err != nil {
				t.log.Warn().Err(err).Str("dir", d).Msg("local folder of a worker could not be removed")
			}
		}
	}()
	proc, err := t.opts.Launcher.Launch(ctx, LaunchSpec{
		Start: s,
		Config: rpc.ProcessConfig{JobID: s.GetJobId(), JobName: s.GetJobName(), Fingerprint: s.GetFingerprint(), Config: s.GetConfig(), Args: s.GetArgs(), Graph: s.GetGraph(),
			TaskManagerID: t.opts.ID, Host: t.opts.Host, Slots: t.opts.Slots, MemoryBytes: t.opts.MemoryBytes, Dirs: dirs, BackupDirs: t.backupDirs(s.GetJobId()), LogDir: t.opts.LogDir,
			DataSecret: s.GetDataSecret()},
		Artifact: func(ctx context.Context) (string, error) { return t.cache.get(ctx, s.GetArtifact()) },
	})
	if err != nil {
		return failed("launch", err), 0
	}
	t.mu.Lock()
	w.proc = proc
	if w.stopping { // told to stop meanwhile
		proc.Stop(0)
	}
	t.mu.Unlock()
	t.log.Info().Str("job_id", s.GetJobId()).Int("pid", proc.PID()).Msg("worker started")

	lctx, cancel := context.WithTimeout(ctx, workerUpTimeout)
	link, err := proc.Link(lctx)
	cancel()
	if err != nil {
		proc.Stop(0)
		exit := proc.Wait()
		if ctx.Err() == nil && exit.Code == -9 && lctx.Err() == context.DeadlineExceeded {
			exit.Reason = fmt.Sprintf("worker did not connect within %s; is the artifact a program that calls stream.Main? %s", workerUpTimeout, exit.Reason)
		}
		return exit, proc.PID()
	}
	w.relay(ctx, link, proc)
	// The end of the link is the process's own, or tells it to end.
	t.mu.Lock()
	w.killLater(linkEndGrace, proc)
	t.mu.Unlock()
	exit := proc.Wait()
	t.mu.Lock()
	for _, timer := range w.timers {
		timer.Stop()
	}
	t.mu.Unlock()
	return exit, proc.PID()
}

// timeout is how long the worker may say nothing.
func (w *worker) timeout() time.Duration { return config.HeartbeatTimeout.Value(w.start.GetConfig()) }

// relay passes the worker's messages on until its link ends, and kills the process when it falls silent.
func (w *worker) relay(ctx context.Context, link rpc.WorkerLink, proc Process) {
	t, job := w.t, w.start.GetJobId()
	t.mu.Lock()
	w.link = link
	t.mu.Unlock()
	watch := rpc.NewWatch(config.HeartbeatInterval.Value(w.start.GetConfig()), w.timeout(), func() {
		w.silent.Store(true)
		proc.Stop(0)
	})
	defer watch.Stop()
	for {
		watch.Listen()
		up, err := link.Recv()
		if err != nil {
			link.Close(err)
			<-link.Done()
			t.mu.Lock()
			w.link = nil
			t.mu.Unlock()
			return
		}
		beat := up.GetMsg() == nil
		if watch.Heard(beat); beat {
			continue
		}
		if h := up.GetHello(); h != nil {
			if h.JobId == "" {
				h.JobId = job
			}
			t.mu.Lock()
			w.hello = h
			t.mu.Unlock()
		}
		switch st := up.GetTaskState(); st.GetState() {
		case pb.TaskState_FINISHED, pb.TaskState_CANCELED, pb.TaskState_FAILED:
			t.mu.Lock()
			delete(w.tasks, st.GetExecutionId())
			t.mu.Unlock()
		}
		t.report(ctx, envelope(job, up))
	}
}

func (w *worker) makeDirs() ([]string, error) {
	var out []string
	for _, d := range w.t.dirs {
		p, err := os.MkdirTemp(d, "job-"+shortID(w.start.GetJobId())+"-")
		if err != nil {
			w.t.log.Warn().Err(err).Str("dir", d).Msg("local folder is skipped")
			continue
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of %s can be written", filepath.Join(w.t.dirs...))
	}
	return out, nil
}

func shortID(id string) string {
	return filepath.Base(id[:min(8, len(id))])
}

// InProcess launches workers as goroutines of this process.
type InProcess struct {
	Run func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error
	// Left, unless it is nil, is called when a worker was told to end and did not, before it counts as ended.
	Left func()
}

// Launch implements Launcher.
func (p InProcess) Launch(_ context.Context, spec LaunchSpec) (Process, error) {
	lower, upper := rpc.Pipe[*pb.WorkerUp, *pb.WorkerDown]()
	ctx, cancel := context.WithCancel(context.Background())
	g := &goroutine{link: upper, cancel: cancel, done: make(chan struct{}), left: make(chan struct{}), onLeft: p.Left}
	spec.Config.Embedded = true
	go func() {
		defer close(g.done)
		defer cancel()
		err := guard(func() error { return p.Run(ctx, lower, spec.Config) })
		if err != nil {
			g.exit = Exit{Code: 1, Reason: err.Error()}
		}
		lower.Close(nil)
		<-lower.Done()
	}()
	return g, nil
}

func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

type goroutine struct {
	link   rpc.WorkerLink
	cancel context.CancelFunc
	done   chan struct{}
	exit   Exit
	stop   sync.Once
	left   chan struct{} // it was told to stop and did not
	onLeft func()
}

func (g *goroutine) Link(context.Context) (rpc.WorkerLink, error) { return g.link, nil }
func (g *goroutine) PID() int                                     { return os.Getpid() }

// leaveAfter is the least time that a goroutine has to end. There is no way to kill one: what user code holds on to then stays until it
// returns.
const leaveAfter = 5 * time.Second

func (g *goroutine) Stop(grace time.Duration) {
	g.cancel()
	g.stop.Do(func() { time.AfterFunc(max(grace, leaveAfter), func() { close(g.left) }) })
}

func (g *goroutine) Wait() Exit {
	select {
	case <-g.done:
		g.link.Close(nil)
		<-g.link.Done()
		return g.exit
	case <-g.left:
		err := errors.New("it did not end: user code in it does not return")
		if g.onLeft != nil {
			g.onLeft()
		}
		g.link.Close(err)
		return Exit{Code: 1, Reason: err.Error()}
	}
}
