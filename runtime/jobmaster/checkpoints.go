package jobmaster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// errNoDirectory answers requests for checkpoints of a job that has no place for them.
var errNoDirectory = errors.New("jobmaster: checkpoint: the job has no checkpoint directory; set execution.checkpointing.dir")

// checkpoints is the shell of the checkpoint coordinator. It belongs to the JobMaster's loop.
type checkpoints struct {
	j       *JobMaster
	core    *coordinator.Coordinator
	fs      fs.FileSystem // of the storage, closed with it
	storage *storage.Storage
	runner  *coordinator.Runner
	timer   *time.Timer
}

// removeTimeout bounds the removal of files at the end of a job.
const removeTimeout = 10 * time.Second

// close lets removals end, and stops the file work.
func (c *checkpoints) close() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := c.runner.Flush(ctx); err != nil {
		c.j.log.Warn().Err(err).Msg("checkpoint data of the ended job could not be removed in time")
	}
	c.runner.Close()
	c.closeStorage()
}

// closeStorage gives the file systems back.
func (c *checkpoints) closeStorage() {
	if err := errors.Join(c.storage.Close(), c.fs.Close()); err != nil {
		c.j.log.Debug().Err(err).Msg("close the checkpoint storage")
	}
}

// newCheckpoints runs beside the loop. A job without any directory gets nil: no checkpoints and no savepoints.
func newCheckpoints(ctx context.Context, j *JobMaster, g *graph.JobGraph, from *coordinator.Completed, spare int64) (c *checkpoints, err error) {
	conf := j.opts.Config
	dir := config.CheckpointDir.Value(conf)
	if dir == "" && config.CheckpointInterval.Value(conf) > 0 {
		return nil, errNoDirectory
	}
	if dir == "" {
		if dir = config.SavepointDir.Value(conf); dir == "" && from == nil {
			return nil, nil
		}
		if dir == "" {
			return nil, errNoDirectory
		}
	}
	f, path, err := j.opts.FS.Resolve(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("jobmaster: open execution.checkpointing.dir: %w", err)
	}
	c = &checkpoints{j: j, fs: f, storage: storage.New(f, path, j.opts.JobID, storage.WithRegistry(j.opts.FS))}
	opened := c
	defer func() {
		if err != nil {
			opened.closeStorage()
		}
	}()
	marks, err := c.own(ctx, g.Name, from)
	if err != nil {
		return nil, err
	}
	cfg := coordinator.Config{Graph: *g, JobID: j.opts.JobID, Product: version.Version, Conf: conf.Redacted(), Dir: c.storage.Dir(),
		FirstID: j.opts.FirstID, ReservedID: j.opts.FirstID, Spare: spare, Marks: marks}
	cfg.FromConfiguration(conf)
	if from != nil {
		if cfg.Existing, err = c.retained(ctx, *from, cfg.Retained); err != nil {
			return nil, err
		}
	}
	if c.core, err = coordinator.New(cfg); err != nil {
		return nil, err
	}
	// It outlives the loop: what the job's end discards is removed after it.
	c.runner = coordinator.NewRunner(context.WithoutCancel(ctx), c.storage, ha.JobPointers{Store: j.opts.Store, Job: j.opts.JobID}, j.log,
		func(ev coordinator.Event) { j.q.Post(func() { c.step(ev) }) })
	return c, nil
}

// own makes the job the owner of its folder, which has to be writable, and of the snapshot that it claims. A job that neither takes
// checkpoints by itself nor claims one owns nothing.
func (c *checkpoints) own(ctx context.Context, name string, from *coordinator.Completed) (marks []string, err error) {
	o := c.j.opts
	claims := config.ClaimMode.Value(o.Config) == "claim" && config.SavepointPath.Value(o.Config) != ""
	if !claims && config.CheckpointInterval.Value(o.Config) == 0 {
		return nil, nil
	}
	owner := storage.Owner{Job: o.JobID, Name: name, By: o.Owner, Since: time.Now().UTC().Truncate(time.Second)}
	if claims && from != nil && from.Owned && o.Pointer.IsZero() {
		if owner.Claims, err = storage.Claims(from.Dir, from.Checkpoint); err != nil {
			return nil, err
		}
	}
	return c.storage.Own(ctx, owner)
}

// retained is the checkpoint to restore from with the older ones that execution.checkpointing.num-retained keeps beside it.
func (c *checkpoints) retained(ctx context.Context, from coordinator.Completed, n int) ([]coordinator.Completed, error) {
	var all []coordinator.Completed
	if n > 1 && from.Owned {
		older, err := c.storage.Completed(ctx, from.ID-1, n-1)
		if err != nil {
			return nil, fmt.Errorf("jobmaster: find retained checkpoints: %w", err)
		}
		for _, o := range older {
			all = append(all, coordinator.Completed{ID: o.Checkpoint.ID, Dir: o.Dir, Owned: true, Checkpoint: o.Checkpoint})
		}
	}
	return append(all, from), nil
}

// step feeds the core and carries out its effects.
func (c *checkpoints) step(ev coordinator.Event) {
	for _, e := range c.core.Step(time.Now(), ev) {
		c.effect(e)
	}
	c.arm()
	if c.core.Settled() {
		c.j.chooseRestore()
	}
}

// arm sets the timer to the core's next deadline.
func (c *checkpoints) arm() {
	if c.timer != nil {
		c.timer.Stop()
		delete(c.j.timers, c.timer)
		c.timer = nil
	}
	at, ok := c.core.Deadline()
	if !ok || c.j.result != nil {
		return
	}
	c.timer = time.AfterFunc(max(0, time.Until(at)), func() { c.j.q.Post(func() { c.step(coordinator.Tick{}) }) })
	c.j.timers[c.timer] = struct{}{}
}

func (c *checkpoints) effect(e coordinator.Effect) {
	j := c.j
	switch e := e.(type) {
	case coordinator.SnapshotCoordinators:
		failpoint.At("checkpoint/enumerators")
		if j.coord.link == nil || !j.coord.hello {
			j.q.Post(func() {
				c.step(coordinator.CoordinatorSnapshot{ID: e.ID, Err: errors.New("the coordinator process is not there")})
			})
			return
		}
		j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Snapshot{Snapshot: &pb.SnapshotCoordinators{CheckpointId: e.ID}}})
	case coordinator.TriggerTasks:
		failpoint.At("checkpoint/trigger")
		j.log.Debug().Int64("checkpoint_id", e.ID).Msg("checkpoint triggered")
		j.sendToTasks(e.Tasks, func(ids []string) *pb.WorkerDown {
			return &pb.WorkerDown{Msg: &pb.WorkerDown_Trigger{Trigger: &pb.TriggerCheckpoint{CheckpointId: e.ID, TimestampMs: e.Timestamp.UnixMilli(), ExecutionIds: ids,
				Savepoint: e.Options.Savepoint, Canonical: e.Options.Canonical, ExclusiveDir: e.Options.ExclusiveDir, SharedDir: e.Options.SharedDir,
				Suspend: e.Options.Suspend, Drain: e.Options.Drain, Full: e.Options.Full, Base: e.Options.Base}}}
		})
	case coordinator.NotifyComplete:
		failpoint.At("checkpoint/notify")
		j.log.Debug().Int64("checkpoint_id", e.ID).Msg("checkpoint completed")
		notice := &pb.CheckpointNotice{CheckpointId: e.ID}
		j.toAllWorkers(e.Tasks, &pb.WorkerDown{Msg: &pb.WorkerDown_Completed{Completed: notice}})
		j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Completed{Completed: notice}})
		j.step(scheduler.CheckpointDone{})
	case coordinator.NotifyAborted:
		failpoint.At("checkpoint/abort")
		level := zerolog.WarnLevel
		if e.Restarts { // a change of the parallelism is no reason to warn, and a failure has its own line
			level = zerolog.InfoLevel
		}
		j.log.WithLevel(level).Int64("checkpoint_id", e.ID).Str("reason", e.Reason).Msg("checkpoint aborted")
		j.toAllWorkers(e.Tasks, &pb.WorkerDown{Msg: &pb.WorkerDown_Aborted{Aborted: &pb.CheckpointNotice{CheckpointId: e.ID, Resume: e.Resume}}})
	case coordinator.FinishTasks:
		failpoint.At("stop/finish-tasks")
		// Whichever of the two is pending; the scheduler ignores the other.
		j.step(scheduler.StopDone{OK: true})
		j.step(scheduler.FinalDone{OK: true})
	case coordinator.FailJob:
		if e.Fenced {
			j.fenced = true
			j.suspend(scheduler.Failure{Kind: "fenced", Message: e.Reason})
			return
		}
		j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "checkpoint", Message: e.Reason}})
	case coordinator.Finished:
		c.finished(e)
	default:
		if !c.runner.Do(e) {
			j.log.Error().Str("effect", fmt.Sprintf("%T", e)).Msg("nobody carries out this effect of the checkpoint coordinator")
		}
	}
}

func (c *checkpoints) finished(e coordinator.Finished) {
	j := c.j
	if e.Err != nil && e.RequestID != "" && e.RequestID == j.stopReq {
		j.stopReq = ""
		j.step(scheduler.StopDone{OK: false})
	}
	if e.RequestID != "" && e.RequestID == j.cancelAfter {
		j.cancelAfter = ""
		if e.Err == nil {
			// Not from inside of the coordinator's effects, which the cancelling adds to.
			j.q.Post(func() { j.step(scheduler.CancelJob{}) })
		}
	}
	if e.RequestID != "" && e.RequestID == j.scaling.saveID {
		j.scaling.saveID = ""
		if e.Err != nil {
			j.log.Warn().Err(e.Err).Msg("the checkpoint for a change of the parallelism failed")
			j.q.Post(func() { j.step(scheduler.RescaleFailed{}) })
		}
	}
	if ch := j.waiting[e.RequestID]; ch != nil {
		delete(j.waiting, e.RequestID)
		ch <- TriggerResult{ID: e.ID, Path: e.Path, Err: e.Err}
	}
}

func (c *checkpoints) ack(m *pb.CheckpointAck) {
	failpoint.At("checkpoint/ack")
	id, err := graph.ParseExecutionID(m.GetExecutionId())
	if err != nil {
		return
	}
	st, err := metadata.DecodeTask(m.GetState())
	if err != nil {
		c.step(coordinator.Decline{ID: m.GetCheckpointId(), Execution: id, Reason: fmt.Sprintf("its report cannot be read: %v", err)})
		return
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	c.step(coordinator.Ack{ID: m.GetCheckpointId(), Execution: id, State: st, Stats: coordinator.TaskStats{Sync: ms(m.GetSyncMs()), Async: ms(m.GetAsyncMs()),
		Alignment: ms(m.GetAlignmentMs()), StartDelay: ms(m.GetStartDelayMs()), Size: m.GetSize(), New: m.GetNewSize(),
		Processed: m.GetProcessed(), Persisted: m.GetPersisted(), Unaligned: m.GetUnaligned()}})
}

func (c *checkpoints) declined(m *pb.CheckpointDeclined) {
	id, err := graph.ParseExecutionID(m.GetExecutionId())
	if err != nil {
		return
	}
	c.step(coordinator.Decline{ID: m.GetCheckpointId(), Execution: id, Reason: m.GetFailure().GetMessage(),
		TaskFailed: m.GetFailure().GetKind() == rpc.KindNotRunning})
}

func (c *checkpoints) jobEnded(state scheduler.JobState) {
	end := coordinator.Suspended
	switch state {
	case scheduler.JobFinished:
		end = coordinator.FinishedOK
	case scheduler.JobCanceled:
		end = coordinator.Canceled
	case scheduler.JobFailed:
		end = coordinator.Failed
	}
	c.step(coordinator.JobEnded{State: end})
}

// TriggerResult is the outcome of a requested checkpoint or savepoint.
type TriggerResult struct {
	ID   int64
	Path string // URI of the directory
	Err  error
}

// TriggerKind says what to trigger.
type TriggerKind int

const (
	TriggerCheckpoint TriggerKind = iota
	TriggerSavepoint
	TriggerStop // stop with savepoint
)

// TriggerRequest asks for a checkpoint, savepoint or stop.
type TriggerRequest struct {
	Kind      TriggerKind
	Directory string // parent of a savepoint's directory; execution.checkpointing.savepoint-dir when empty
	Full      bool   // a checkpoint that refers to no file of earlier ones
	Native    bool   // a savepoint in the backend's own form
	Drain     bool   // stop: emit the maximal watermark first
	Cancel    bool   // savepoint: cancel the job when it is complete
}

// Trigger starts a checkpoint or savepoint and returns a channel that receives its outcome, once.
func (j *JobMaster) Trigger(r TriggerRequest) <-chan TriggerResult {
	ch := make(chan TriggerResult, 1)
	if !j.q.Post(func() { j.trigger(r, ch) }) {
		ch <- TriggerResult{Err: fmt.Errorf("jobmaster: checkpoint: %w", ErrEnded)}
	}
	return ch
}

func (j *JobMaster) trigger(r TriggerRequest, ch chan<- TriggerResult) {
	refuse := func(err error) { ch <- TriggerResult{Err: err} }
	if j.batch() {
		refuse(errBatch)
		return
	}
	if j.ckpt == nil || j.sched == nil {
		if j.sched == nil {
			refuse(fmt.Errorf("jobmaster: checkpoint: %w", coordinator.ErrNotRunning))
			return
		}
		refuse(errNoDirectory)
		return
	}
	t := coordinator.Trigger{Kind: coordinator.Manual, Canonical: !r.Native, Drain: r.Drain, Full: r.Full && r.Kind == TriggerCheckpoint}
	if r.Kind != TriggerCheckpoint {
		t.Kind = coordinator.Savepoint
		dir := r.Directory
		if dir == "" {
			dir = config.SavepointDir.Value(j.opts.Config)
		}
		if dir == "" {
			refuse(errors.New("jobmaster: savepoint: no directory was given, and execution.checkpointing.savepoint-dir is not set"))
			return
		}
		t.Dir = storage.NewSavepointDir(dir, j.opts.JobID)
	}
	j.nextReq++
	t.RequestID = strconv.Itoa(j.nextReq)
	j.waiting[t.RequestID] = ch
	if r.Kind == TriggerSavepoint && r.Cancel {
		j.cancelAfter = t.RequestID
	}
	if r.Kind != TriggerStop {
		failpoint.At("savepoint/trigger")
		j.ckpt.step(t)
		return
	}
	failpoint.At("stop/request")
	t.Kind = coordinator.StopWithSavepoint
	if j.stopReq != "" {
		delete(j.waiting, t.RequestID)
		refuse(fmt.Errorf("jobmaster: stop: %w already", coordinator.ErrStopping))
		return
	}
	if !j.sched.Ready() {
		delete(j.waiting, t.RequestID)
		refuse(fmt.Errorf("jobmaster: stop: %w", coordinator.ErrNotRunning))
		return
	}
	j.stopReq = t.RequestID
	j.stopTrigger = t
	j.step(scheduler.Stop{Drain: r.Drain})
	if j.stopTrigger.RequestID != "" { // the scheduler did not take it
		j.stopReq, j.stopTrigger = "", coordinator.Trigger{}
		delete(j.waiting, t.RequestID)
		refuse(fmt.Errorf("jobmaster: stop: %w", coordinator.ErrNotRunning))
	}
}

func (j *JobMaster) triggerStop(scheduler.TriggerStop) {
	failpoint.At("stop/trigger")
	t := j.stopTrigger
	j.stopTrigger = coordinator.Trigger{}
	j.ckpt.step(t)
}

// Cancel cancels the job; it returns when the request is with the loop.
func (j *JobMaster) Cancel() error {
	if !j.q.Post(func() {
		if j.sched == nil {
			j.opts.Resources.Declare(j.id, 0)
			if j.opts.OnState != nil {
				j.opts.OnState(scheduler.JobCanceled)
			}
			j.result = &Result{State: scheduler.JobCanceled, Start: j.start, End: time.Now()}
			return
		}
		j.step(scheduler.CancelJob{})
	}) {
		return fmt.Errorf("jobmaster: cancel: %w", ErrEnded)
	}
	return nil
}
