package jobmaster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// ErrEnded is returned by requests to a job that has ended.
var ErrEnded = errors.New("the job has ended")

// JobMaster runs one job. Make it with New, run it once with Run; the other methods are for any goroutine.
type JobMaster struct {
	opts  Options
	id    string
	log   zerolog.Logger
	q     *queue
	start time.Time

	// The rest belongs to the loop.
	ctx           context.Context // life of the loop; ends what runs beside it
	wg            sync.WaitGroup  // what runs beside the loop
	timers        map[*time.Timer]struct{}
	attemptTimers []func()        // stop what inAttempt started
	graph         *graph.JobGraph // with max parallelisms set
	graphJSON     []byte          // the submitted one, for job processes
	sched         *scheduler.Scheduler
	ckpt          *checkpoints              // nil when the job can take none
	loaded        *checkpoints              // what prepareStart made; to be read when all that runs beside the loop has ended
	ops           map[string]graph.VertexID // vertex of each operator
	vertex        map[graph.VertexID]*graph.Vertex

	workers  map[string]*workerState // by TaskManager
	restored struct {                // what the attempt that was deployed last has begun with
		attempt int
		id      int64 // of the checkpoint, 0 for none
	}
	falling bool            // an older checkpoint is being read, see fallback.go
	served  map[string]bool // TaskManagers that may hold local copies of the job's checkpoints
	slots   []resourcemanager.Slot
	needed  int
	scaling rescaling

	autoscaling autoscaling
	coord       coordState
	prep        *preparation
	adopting    *adoption // nil: there are no tasks of an earlier attempt, or it is decided about them
	adopted     int       // tasks of an earlier attempt that the job went on with
	held        *held     // nil: tasks run as soon as they are restored
	commits     commits
	saving      saving
	resumed     map[graph.ExecutionID]string // finished in an earlier application attempt: the worker's incarnation
	checked     bool                         // which of those workers are still there

	history     []Recorded        // newest first
	endpoints   map[string]string // host:port of workers, by TaskManager
	stacks      map[string]bool   // panics whose stack was logged, by message
	root        *scheduler.Failure
	ending      bool // root is of the present attempt
	metrics     *taskMetrics
	waiting     map[string]chan<- TriggerResult // checkpoint requests by id
	nextReq     int
	cancelAfter string // request of the savepoint after which the job is cancelled
	stopReq     string
	stopTrigger coordinator.Trigger // of a Stop that the scheduler is asked about
	result      *Result
	fenced      bool

	finalMu sync.Mutex
	final   *Details // of a job that ended
}

// firstAttempts is the number of attempts of one epoch that have numbers of their own.
const firstAttempts = 1 << 20

// New makes a JobMaster.
func New(opts Options) (*JobMaster, error) {
	if opts.Graph == nil || len(opts.Graph.Vertices) == 0 {
		return nil, errors.New("jobmaster: make: the job graph is empty: add a source and a sink")
	}
	if opts.Epoch < 1 || opts.Epoch >= 2048 {
		return nil, fmt.Errorf("jobmaster: make: epoch %d is not in [1, 2048)", opts.Epoch)
	}
	setDefault(&opts.CancelTimeout, 30*time.Second)
	setDefault(&opts.StopGrace, 5*time.Second)
	setDefault(&opts.ReadyTimeout, 2*time.Minute)
	j := &JobMaster{opts: opts, id: opts.JobID.String(), q: newQueue(), start: time.Now(), timers: map[*time.Timer]struct{}{},
		graph: opts.Graph, ops: map[string]graph.VertexID{}, vertex: map[graph.VertexID]*graph.Vertex{}, workers: map[string]*workerState{}, served: map[string]bool{},
		waiting: map[string]chan<- TriggerResult{}, metrics: newTaskMetrics(), commits: newCommits(), resumed: map[graph.ExecutionID]string{}, stacks: map[string]bool{}, endpoints: map[string]string{}, coord: coordState{stopTimeout: func() {}}}
	j.log = opts.Logger.With().Str("component", "jobmaster").Str("job_id", j.id).Int64("epoch", opts.Epoch).Logger()
	return j, nil
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// Run runs the job to its end. When ctx ends before, the job is suspended: its tasks are left alone, for the next attempt or for whoever
// ends the TaskManagers. Everything that Run started has ended when it returns.
func (j *JobMaster) Run(ctx context.Context) Result {
	loop, cancel := context.WithCancel(ctx)
	defer cancel()
	j.ctx = loop
	j.opts.Resources.RegisterJob(j.id, j.listener())
	j.beside(j.prepareStart)
	for j.result == nil {
		select {
		case <-j.q.wake:
			for _, fn := range j.q.take() {
				if fn(); j.result != nil {
					break
				}
			}
		case <-ctx.Done():
			j.suspend(scheduler.Failure{Message: "the JobMaster is shut down", Kind: "shutdown"})
		}
	}
	j.shutdown(cancel)
	return *j.result
}

// shutdown ends what belongs to the job. The final checkpoint files, if any, are still cleaned up.
func (j *JobMaster) shutdown(cancel context.CancelFunc) {
	state := j.result.State
	known := state
	j.endCoordinator()
	if state.Terminal() {
		j.stopWorkers(j.opts.StopGrace)
		if j.opts.OnEnd != nil {
			if err := j.opts.OnEnd(*j.result); err != nil {
				j.log.Warn().Err(err).Msg("the job's end is not stored; its checkpoints stay")
				known = scheduler.JobSuspended
			}
		}
	}
	if j.ckpt != nil {
		j.ckpt.jobEnded(known)
	}
	for t := range j.timers {
		t.Stop()
	}
	for id, ch := range j.waiting {
		ch <- TriggerResult{Err: fmt.Errorf("jobmaster: checkpoint: %w (%s)", ErrEnded, state)}
		delete(j.waiting, id)
	}
	j.result.Details = j.details()
	j.finalMu.Lock()
	j.final = j.result.Details
	j.finalMu.Unlock()
	j.q.close()
	cancel()
	j.opts.Resources.UnregisterJob(j.id)
	j.wg.Wait()
	if j.ckpt == nil && j.loaded != nil { // the job ended before it began, and owns its folder and what it has claimed by now
		j.ckpt = j.loaded
		j.ckpt.jobEnded(known)
	}
	if j.ckpt != nil {
		j.ckpt.close()
	}
}

// beside runs fn on a goroutine of its own; fn posts its result.
func (j *JobMaster) beside(fn func(ctx context.Context)) {
	j.wg.Go(func() { fn(j.ctx) })
}

// after posts fn after d, unless stop is called first. Both belong to the loop.
func (j *JobMaster) after(d time.Duration, fn func()) (stop func()) {
	var t *time.Timer
	ready := make(chan struct{})
	t = time.AfterFunc(d, func() {
		<-ready
		j.q.Post(func() {
			if _, ok := j.timers[t]; !ok {
				return // stopped when it was on its way
			}
			delete(j.timers, t)
			fn()
		})
	})
	j.timers[t] = struct{}{}
	close(ready)
	return func() {
		t.Stop()
		delete(j.timers, t)
	}
}

// inAttempt is after for what concerns the tasks' present attempt only: the next one stops it.
func (j *JobMaster) inAttempt(d time.Duration, fn func()) (stop func()) {
	stop = j.after(d, fn)
	j.attemptTimers = append(j.attemptTimers, stop)
	return stop
}

// newAttempt forgets what concerned the attempt before.
func (j *JobMaster) newAttempt() {
	for _, stop := range j.attemptTimers {
		stop()
	}
	j.attemptTimers = nil
	j.metrics.keep(func(id graph.ExecutionID) bool { return j.sched.Execution(id) != nil })
	j.ending = false
}

// step feeds the scheduler and carries out its effects.
func (j *JobMaster) step(ev scheduler.Event) {
	if j.sched == nil {
		return
	}
	for _, e := range j.sched.Step(time.Now(), ev) {
		j.effect(e)
	}
	j.armScheduler()
	j.saveProgress()
}

func (j *JobMaster) effect(e scheduler.Effect) {
	switch e := e.(type) {
	case scheduler.JobChanged:
		j.log.Info().Str("from", string(e.From)).Str("to", string(e.To)).Msg("job state")
		if j.opts.OnState != nil {
			j.opts.OnState(e.To)
		}
	case scheduler.TaskMoved:
		j.taskMoved(e)
	case scheduler.RequireSlots:
		j.requireSlots(e)
	case scheduler.Rescaled:
		j.rescaled(e)
	case scheduler.TriggerRescale:
		j.triggerRescale()
	case scheduler.RescaleEnded:
		j.rescaleEnded(e)
	case scheduler.Prepare:
		j.newAttempt()
		j.prepare(e)
	case scheduler.Deploy:
		j.deploy(e)
	case scheduler.PrepareCommit:
		j.prepareCommit(e)
	case scheduler.Commit:
		j.commit(e)
	case scheduler.KeepCommits, scheduler.StageFinished:
		j.saving.wanted = true
	case scheduler.ReleasePartitions:
		j.release(e)
	case scheduler.AllRunning:
		j.log.Info().Int("attempt", e.Attempt).Msg("all tasks run")
		j.rescaleRuns()
		if j.ckpt != nil {
			j.ckpt.step(coordinator.TasksRunning{Tasks: j.checkpointTasks()})
		}
	case scheduler.StopCheckpoints:
		j.prep = nil
		if j.ckpt != nil {
			j.ckpt.step(coordinator.JobRestarting{Reason: e.Reason, Part: e.Part})
		}
	case scheduler.CancelTasks:
		j.sendToTasks(e.IDs, cancelMessage)
		j.inAttempt(j.opts.CancelTimeout, func() { j.step(scheduler.CancelStuck(e)) })
	case scheduler.FinishTasks:
		j.sendToTasks(e.IDs, finishMessage)
	case scheduler.KillWorkers:
		for _, tm := range e.TaskManagers {
			j.log.Warn().Str("container_id", tm).Msg("tasks do not end; their worker is killed")
			j.stopWorker(tm, 0)
		}
	case scheduler.TriggerFinal:
		j.inAttempt(e.After, func() {
			if j.ckpt == nil {
				j.step(scheduler.FinalDone{OK: true})
				return
			}
			j.ckpt.step(coordinator.EndOfData{})
		})
	case scheduler.TriggerStop:
		j.triggerStop(e)
	case scheduler.ScheduleRestart:
		pause := e.Pause(rand.Float64())
		j.log.Warn().Dur("dur", pause).Int("restarts", j.sched.Restarts()+1).Msg("restart")
		j.after(pause, func() { j.step(scheduler.RestartDue{Attempt: e.Attempt}) })
	case scheduler.FailureRecorded:
		j.recordFailure(e)
	case scheduler.Ended:
		j.result = &Result{State: e.State, Failure: e.Failure, Start: j.start, End: time.Now(), Fenced: j.fenced}
	}
}

func (j *JobMaster) suspend(f scheduler.Failure) {
	if j.sched != nil {
		j.step(scheduler.Suspend{Failure: f})
	}
	if j.result == nil {
		j.result = &Result{State: scheduler.JobSuspended, Failure: &f, Start: j.start, End: time.Now(), Fenced: j.fenced}
	}
}

// failInit ends a job whose graph never came to be scheduled.
func (j *JobMaster) failInit(f scheduler.Failure) {
	f.At = time.Now()
	j.recordFailure(scheduler.FailureRecorded{Failure: f, Root: true})
	if j.opts.OnState != nil {
		j.opts.OnState(scheduler.JobFailed)
	}
	j.result = &Result{State: scheduler.JobFailed, Failure: &f, Start: j.start, End: time.Now()}
}

func (j *JobMaster) checkpointing() bool {
	return config.CheckpointInterval.Value(j.opts.Config) > 0 && j.ckpt != nil
}
