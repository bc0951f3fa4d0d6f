package jobmaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// ErrRequirements says that a job cannot have the parallelism that was asked for.
var ErrRequirements = errors.New("the job cannot run so")

// rescaling is what belongs to changes of the job's parallelism.
type rescaling struct {
	settling int // declarations whose outcome is still in the queue
	stopTick func()
	saveID   string // request of the checkpoint for a rescale
	storing  bool
	asked    []func() // wait for the store
	history  rescales
}

// requirements are what the job starts with: what was asked for, or what the scheduler's kind makes of the graph.
func (j *JobMaster) requirements(asked scheduler.Requirements) scheduler.Requirements {
	switch {
	case j.batch():
		return nil
	case asked != nil:
		err := asked.Check(j.graph)
		if err == nil {
			return asked
		}
		j.log.Warn().Err(err).Msg("the stored parallelism does not fit the job; its own is taken")
	}
	if j.adaptive() {
		return scheduler.Elastic(j.graph)
	}
	return scheduler.Fixed(j.graph)
}

func (j *JobMaster) adaptive() bool {
	return config.SchedulerKind.Value(j.opts.Config) == "adaptive" && !j.batch()
}

// rescalingOf reads when the parallelism changes.
func (j *JobMaster) rescalingOf(restored bool) scheduler.Rescaling {
	c := j.opts.Config
	return scheduler.Rescaling{Wait: config.AdaptiveWait.Value(c), Stabilization: config.AdaptiveStabilization.Value(c), Cooldown: config.AdaptiveCooldown.Value(c),
		ExecutingStabilization: config.AdaptiveExecutingStabilization.Value(c), Checkpoint: config.RescaleCheckpoint.Value(c), MaxFailures: config.RescaleMaxFailures.Value(c),
		MaxDelay: RescaleMaxDelay(c), Patience: config.SlotRequestTimeout.Value(c), Off: j.ckpt == nil, Restored: restored}
}

// longestDelay keeps instants far from the end of their type.
const longestDelay = 100 * 365 * 24 * time.Hour

// RescaleMaxDelay is how long a checkpoint for a change of the parallelism is waited for.
func RescaleMaxDelay(c config.Configuration) time.Duration {
	if config.RescaleMaxDelay.IsSet(c) {
		return config.RescaleMaxDelay.Value(c)
	}
	d, failures := config.CheckpointInterval.Value(c), time.Duration(config.RescaleMaxFailures.Value(c))
	if d > 0 && failures < longestDelay/d {
		d *= failures + 1
	}
	if config.RescaleCheckpoint.Value(c) {
		d = max(d, config.CheckpointTimeout.Value(c))
	}
	return d
}

// loadRequirements reads what was asked for of an earlier JobMaster, and makes it this one's. It runs beside the loop.
func (j *JobMaster) loadRequirements(ctx context.Context) (scheduler.Requirements, error) {
	data, err := j.opts.Store.Requirements(ctx, j.opts.JobID)
	if err != nil || data == nil {
		return nil, err
	}
	var r scheduler.Requirements
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("jobmaster: the stored parallelism of the job cannot be decoded: %w", err)
	}
	err = ha.Await(ctx, j.log, "store requirements", func(ctx context.Context) error { return j.opts.Store.StoreRequirements(ctx, j.opts.JobID, data) })
	return r, err
}

// setGraph takes a graph of another parallelism.
func (j *JobMaster) setGraph(g *graph.JobGraph) {
	j.graph = g
	for i := range g.Vertices {
		j.vertex[g.Vertices[i].ID] = &g.Vertices[i]
	}
}

func (j *JobMaster) rescaled(e scheduler.Rescaled) {
	failpoint.At("rescale/switch")
	j.rescaleBegins(e.Planned)
	j.setGraph(e.Graph)
	if j.ckpt != nil {
		j.ckpt.step(coordinator.Rescaled{Graph: *e.Graph})
	}
	line := j.log.Info()
	for i := range e.Graph.Vertices {
		line = line.Int(e.Graph.Vertices[i].Name, e.Graph.Vertices[i].Parallelism)
	}
	line.Msg("the job's parallelism changes")
}

// requireSlots declares the slots. What becomes of it is in the queue when Declare returns; until then j.slots may hold some that were given back.
func (j *JobMaster) requireSlots(e scheduler.RequireSlots) {
	j.needed = e.N
	if e.N == 0 {
		return
	}
	var keep []resourcemanager.Slot
	for _, s := range e.Keep {
		keep = append(keep, resourcemanager.Slot{TaskManager: s.TaskManager, Index: s.Index})
	}
	j.opts.Resources.Declare(j.id, e.N, keep...)
	j.scaling.settling++
	j.q.Post(func() {
		j.scaling.settling--
		j.checkPrepared()
	})
}

// stopUnused ends the job's workers where it has no slots any more. One that had none yet stays: after a change of the application master
// workers may be back before their slots are the job's again, with what finished stages left.
func (j *JobMaster) stopUnused(before []resourcemanager.Slot) {
	for _, s := range before {
		tm := s.TaskManager
		if j.workers[tm] == nil || j.hasSlots(tm) {
			continue
		}
		j.log.Info().Str("container_id", tm).Msg("the job has no slots left there; its worker ends")
		j.stopWorker(tm, j.opts.StopGrace)
		delete(j.workers, tm)
	}
}

// startNew starts the workers of slots that a running job got beside its own, so that they are up when tasks come.
func (j *JobMaster) startNew(before []resourcemanager.Slot) {
	had := map[string]bool{}
	for _, s := range before {
		had[s.TaskManager] = true
	}
	for _, s := range j.slots {
		if !had[s.TaskManager] && j.sched != nil && j.prep == nil {
			j.startWorker(s.TaskManager)
		}
	}
}

// armScheduler sets the timer to the scheduler's next deadline.
func (j *JobMaster) armScheduler() {
	if j.scaling.stopTick != nil {
		j.scaling.stopTick()
		j.scaling.stopTick = nil
	}
	if at, ok := j.sched.Deadline(); ok && j.result == nil {
		j.scaling.stopTick = j.after(max(0, time.Until(at)), func() {
			j.scaling.stopTick = nil
			j.step(scheduler.Tick{})
		})
	}
}

// triggerRescale takes a checkpoint for a change of the parallelism.
func (j *JobMaster) triggerRescale() {
	failpoint.At("rescale/checkpoint")
	if j.ckpt == nil {
		j.q.Post(func() { j.step(scheduler.RescaleFailed{}) })
		return
	}
	j.nextReq++
	j.scaling.saveID = strconv.Itoa(j.nextReq)
	t := coordinator.Trigger{Kind: coordinator.Manual, RequestID: j.scaling.saveID}
	j.q.Post(func() { j.ckpt.step(t) }) // not from inside of the coordinator's effects
}

func (j *JobMaster) rescaleEnded(e scheduler.RescaleEnded) {
	switch {
	case e.Failure == "":
		j.scaling.history.became(j.graph)
		j.scaling.history.end("COMPLETED", "SUCCEEDED", "")
	case e.Resources:
		j.scaling.history.end("FAILED", "EXCEPTION_OCCURRED", e.Failure+": "+j.resourceProblem())
	default:
		j.scaling.history.end("FAILED", "EXCEPTION_OCCURRED", e.Failure)
	}
	if e.Failure == "" {
		j.log.Info().Msg("the job runs with the parallelism that was asked for")
		return
	}
	j.log.Warn().Str("failure", e.Failure).Str("problem", j.opts.Resources.CurrentProblem()).Msg("the job cannot have the parallelism that was asked for, and goes on as before")
	j.storeRequirements(e.Requirements, func(err error) {
		if err != nil {
			j.log.Warn().Err(err).Msg("the next application attempt will try again to change the job's parallelism")
		}
	})
}

// resourceProblem says why slots are missing.
func (j *JobMaster) resourceProblem() string {
	if p := j.opts.Resources.CurrentProblem(); p != "" {
		return p
	}
	return "the cluster has no more to give"
}

// patienceKey names the option that has set the patience of a preparation.
func (j *JobMaster) patienceKey(d time.Duration) string {
	if d == config.SlotRequestTimeout.Value(j.opts.Config) {
		return config.SlotRequestTimeout.Key
	}
	return config.AdaptiveWait.Key
}

// storeRequirements stores beside the loop, one after another, and tells the loop.
func (j *JobMaster) storeRequirements(r scheduler.Requirements, done func(error)) {
	s := &j.scaling
	if s.storing {
		s.asked = append(s.asked, func() { j.storeRequirements(r, done) })
		return
	}
	data, err := json.Marshal(r)
	if err != nil {
		done(err)
		return
	}
	s.storing = true
	j.beside(func(ctx context.Context) {
		err := j.opts.Store.StoreRequirements(ctx, j.opts.JobID, data)
		j.q.Post(func() {
			s.storing = false
			done(err)
			if len(s.asked) > 0 && !s.storing {
				next := s.asked[0]
				s.asked = s.asked[1:]
				next()
			}
		})
	})
}

// Require sets what the job's parallelism must be, for this and later application attempts. It returns when that is stored: the job changes
// its parallelism as soon as it has slots and a checkpoint, or goes on as before when the slots do not come (Details tells how it went).
// Errors: ErrRequirements when it can never run so, ErrEnded.
func (j *JobMaster) Require(ctx context.Context, r scheduler.Requirements) error {
	ch := make(chan error, 1)
	if !j.q.Post(func() { j.require(r, ch) }) {
		return fmt.Errorf("jobmaster: rescale: %w", ErrEnded)
	}
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (j *JobMaster) require(r scheduler.Requirements, ch chan<- error) {
	refuse := func(err error) bool {
		if err != nil {
			ch <- fmt.Errorf("jobmaster: rescale: %w: %w", ErrRequirements, err)
		}
		return err != nil
	}
	if refuse(j.mayRescale()) || refuse(r.Check(j.graph)) {
		return
	}
	failpoint.At("rescale/store")
	j.storeRequirements(r, func(err error) {
		failpoint.At("rescale/stored")
		switch {
		case err != nil:
			ch <- fmt.Errorf("jobmaster: rescale: the job stays as it is: %w", err)
			return
		case j.result != nil:
			ch <- fmt.Errorf("jobmaster: rescale: %w", ErrEnded)
			return
		}
		j.log.Info().Interface("requirements", r).Msg("another parallelism was asked for")
		j.scaling.history.begin(CauseRequirements, j.graph, r)
		j.step(scheduler.Require{Requirements: r})
		ch <- nil
	})
}

// mayRescale says why the job cannot change its parallelism.
func (j *JobMaster) mayRescale() error {
	switch {
	case j.batch():
		return errors.New("it runs in BATCH, at the parallelism that it was started with")
	case j.sched == nil:
		return errors.New("it is not running yet")
	case j.sched.State() != scheduler.JobRunning && j.sched.State() != scheduler.JobRestarting:
		return fmt.Errorf("it is %s", j.sched.State())
	case j.ckpt == nil:
		return errors.New("it takes no checkpoints, from which it could go on: set execution.checkpointing.dir")
	}
	return nil
}
