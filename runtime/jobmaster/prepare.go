package jobmaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// readPatience is how long what the job starts from is tried to be read again after an error that may pass; while the file system is
// unavailable, it is tried for as long as that takes (see ha.Await).
const (
	readPatience = 2 * time.Minute
	readPause    = time.Second
)

// preparation is what stands between Prepare and Prepared.
type preparation struct {
	attempt  int
	part     bool                   // only these vertices have new attempts
	attempts map[graph.VertexID]int // of tasks that are adopted: nothing but the coordinator process is prepared
	vertices []graph.VertexID
	slots    int  // that are needed
	restored bool // the state to restore is chosen and assigned
	coord    bool // the coordinator process has started its enumerators
	told     bool // Prepared was sent
	// stopTimeout ends the wait for slots.
	stopTimeout func()
	assigned    savepoint.Assignment
	id          int64 // of the restored checkpoint, 0 for none
	states      map[graph.OperatorID][]byte
}

// prepareStart runs beside the loop: it reads what the job starts from and checks it against the graph, before anything is scheduled.
func (j *JobMaster) prepareStart(ctx context.Context) {
	s, f := j.load(ctx)
	j.loaded = s.ckpt
	if ctx.Err() != nil {
		return
	}
	j.q.Post(func() {
		if f != nil {
			j.failInit(*f)
			return
		}
		j.begin(s)
	})
}

// started is what a job starts from.
type started struct {
	graph *graph.JobGraph
	ckpt  *checkpoints
	from  *coordinator.Completed
	done  *storedProgress // in BATCH
	// spare is the checkpoint that could not be read, after from; 0 for none.
	spare int64
	// required is what was asked for of the parallelism; nil for nothing.
	required scheduler.Requirements
}

func (j *JobMaster) load(ctx context.Context) (started, *scheduler.Failure) {
	var s started
	refuse := func(kind string, err error) (started, *scheduler.Failure) {
		return s, &scheduler.Failure{Kind: kind, Fatal: true, Message: err.Error()}
	}
	if j.batch() {
		if err := j.checkBatch(); err != nil {
			return refuse("restore", err)
		}
		s.graph = j.opts.Graph
		var err error
		if s.done, err = j.loadProgress(ctx); err != nil {
			return refuse("restore", err)
		}
		return s, nil
	}
	from, err := j.loadFrom(ctx)
	if err != nil && savepoint.Unreadable(err) && !j.opts.Pointer.IsZero() {
		if from = j.olderThan(ctx, j.opts.Pointer.ID, err); from != nil {
			s.spare, err = j.opts.Pointer.ID, nil
		}
	}
	if err != nil {
		return refuse("restore", err)
	}
	if s.required, err = j.loadRequirements(ctx); err != nil {
		return refuse("restore", err)
	}
	var cp metadata.Checkpoint
	if from != nil {
		cp, s.from = from.Checkpoint, from
	}
	adopted, err := savepoint.Check(cp, *j.opts.Graph, config.AllowNonRestored.Value(j.opts.Config))
	if err == nil {
		err = savepoint.CheckBackend(cp, *j.opts.Graph, config.StateBackend.Value(j.opts.Config))
	}
	if err != nil {
		var misfit *savepoint.MisfitError
		if errors.As(err, &misfit) && from != nil {
			misfit.Path = from.Dir
		}
		return refuse("restore", err)
	}
	g := adopted.Apply(*j.opts.Graph)
	s.graph = &g
	if s.ckpt, err = newCheckpoints(ctx, j, &g, from, s.spare); err != nil {
		return refuse("checkpoint", err)
	}
	return s, nil
}

// loadFrom reads the checkpoint that the pointer names, else the savepoint that the user gave.
func (j *JobMaster) loadFrom(ctx context.Context) (*coordinator.Completed, error) {
	failpoint.At("restore/load")
	if p := j.opts.Pointer; !p.IsZero() {
		cp, err := j.patientLoad(ctx, fmt.Sprintf("the latest checkpoint %d", p.ID), p.Dir, savepoint.Claim)
		if err != nil {
			return nil, fmt.Errorf("jobmaster: restore the latest checkpoint %d: %w", p.ID, err)
		}
		if cp.JobID != (graph.JobID{}) && cp.JobID != j.opts.JobID {
			return nil, fmt.Errorf("jobmaster: restore the latest checkpoint %d: %s holds a checkpoint of job %s (%s), not of this one: somebody has replaced it; start from another one (execution.state-recovery.path)",
				p.ID, p.Dir, cp.JobID, cp.JobName)
		}
		return &coordinator.Completed{ID: p.ID, Dir: p.Dir, Owned: !cp.Savepoint, Checkpoint: cp}, nil
	}
	uri := config.SavepointPath.Value(j.opts.Config)
	if uri == "" {
		return nil, nil
	}
	mode, owned := savepoint.NoClaim, false
	if config.ClaimMode.Value(j.opts.Config) == "claim" {
		mode, owned = savepoint.Claim, true
	}
	load := j.patientLoad
	if j.opts.Epoch == 1 { // the user is there, and mends it
		load = func(ctx context.Context, _, dir string, mode savepoint.ClaimMode) (metadata.Checkpoint, error) {
			return savepoint.Load(ctx, j.opts.FS, dir, mode)
		}
	}
	cp, err := load(ctx, "the savepoint", uri, mode)
	if err != nil {
		return nil, fmt.Errorf("jobmaster: start from %s: %w", uri, err)
	}
	kind := coordinator.Periodic
	if cp.Savepoint {
		kind = coordinator.Savepoint
	}
	return &coordinator.Completed{ID: cp.ID, Kind: kind, Dir: uri, Owned: owned, Checkpoint: cp}, nil
}

// patientLoad is savepoint.Load that goes on after errors that may pass, and shows in the history of failures what it waits for.
func (j *JobMaster) patientLoad(ctx context.Context, what, dir string, mode savepoint.ClaimMode) (metadata.Checkpoint, error) {
	deadline := time.Now().Add(readPatience)
	for {
		cp, err := savepoint.Load(ctx, j.opts.FS, dir, mode)
		if err == nil || ctx.Err() != nil || savepoint.Unreadable(err) || !errors.Is(err, fs.ErrUnavailable) && time.Now().After(deadline) {
			return cp, err
		}
		f := scheduler.Failure{Kind: waiting, At: time.Now(), Message: fmt.Sprintf("%s cannot be read, trying again: %v", what, err)}
		j.q.Post(func() { j.waitsFor(f) })
		t := time.NewTimer(readPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// begin starts the scheduler.
func (j *JobMaster) begin(s started) {
	j.ckpt = s.ckpt
	j.setGraph(s.graph)
	for i := range j.graph.Vertices {
		for _, op := range j.graph.Vertices[i].Operators {
			j.ops[op.ID.String()] = j.graph.Vertices[i].ID
		}
	}
	if err := checkEdges(j.graph); err != nil {
		j.failInit(scheduler.Failure{Kind: "graph", Fatal: true, Message: err.Error()})
		return
	}
	var err error
	if j.graphJSON, err = json.Marshal(j.opts.Graph); err != nil {
		j.failInit(scheduler.Failure{Kind: "graph", Fatal: true, Message: fmt.Sprintf("jobmaster: encode the job graph: %v", err)})
		return
	}
	if j.mayAdopt(s) {
		j.lookForTasks(s)
		return
	}
	j.schedule(s, nil)
}

// schedule starts the scheduler, with the tasks of an earlier attempt when there are any to go on with. It reports whether there is one.
func (j *JobMaster) schedule(s started, adopted *scheduler.Adopted) bool {
	done, err := j.resume(s.done)
	if err != nil {
		j.failInit(scheduler.Failure{Kind: "restore", Fatal: true, Message: err.Error()})
		return false
	}
	sched, err := scheduler.New(scheduler.Config{Graph: j.graph, Strategy: scheduler.StrategyOf(j.opts.Config, j.graph.Mode),
		FirstAttempt: int(j.opts.Epoch-1) * firstAttempts, Checkpoints: j.checkpointing(), Resume: done, Adopt: adopted,
		Requirements: j.requirements(s.required), Rescaling: j.rescalingOf(s.from != nil), Full: config.FailoverStrategy.Value(j.opts.Config) == "full"})
	if err != nil {
		j.failInit(scheduler.Failure{Kind: "graph", Fatal: true, Message: err.Error()})
		return false
	}
	j.sched = sched
	j.setGraph(sched.Graph())
	if j.ckpt != nil { // the parallelism may be another one, which an earlier JobMaster was asked for
		j.ckpt.step(coordinator.Rescaled{Graph: *j.graph})
	}
	if s.from != nil && adopted == nil {
		j.log.Info().Int64("checkpoint_id", s.from.ID).Str("path", s.from.Dir).Msg("the job starts from a checkpoint")
		if j.opts.Pointer.IsZero() {
			j.held = &held{path: s.from.Dir, opened: map[heldTask]bool{}}
		}
	}
	if len(done) > 0 {
		j.log.Info().Int("vertices", len(done)).Int("of", len(j.graph.Vertices)).Msg("the job goes on behind the stages that had finished or begun to commit")
	}
	j.step(scheduler.Start{})
	j.startAutoscaler()
	return true
}

// prepare begins a preparation.
func (j *JobMaster) prepare(e scheduler.Prepare) {
	p := &preparation{attempt: e.Attempt, part: e.Part, vertices: e.Vertices, slots: e.Slots, stopTimeout: func() {}}
	j.prep = p
	if e.Part && !j.batch() {
		j.log.Info().Int("attempt", e.Attempt).Strs("vertices", j.names(e.Vertices)).Msg("a part of the job restarts, the rest runs on")
	}
	if e.Patience >= 0 {
		p.stopTimeout = j.inAttempt(e.Patience, func() {
			if j.prep == p && !p.told && len(j.slots) < p.slots {
				j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "resources", Message: fmt.Sprintf(
					"%d of %d slots within %s (%s): %s", len(j.slots), p.slots, e.Patience, j.patienceKey(e.Patience), j.resourceProblem())}})
			}
		})
	}
	j.chooseRestore()
	j.checkPrepared()
}

func (j *JobMaster) names(ids []graph.VertexID) (names []string) {
	for _, id := range ids {
		names = append(names, j.vertex[id].Name)
	}
	return names
}

// chooseRestore waits for the outcome of a checkpoint whose pointer is being stored, then assigns the latest state.
func (j *JobMaster) chooseRestore() {
	p := j.prep
	if p == nil || p.restored || j.falling || j.ckpt != nil && !j.ckpt.core.Settled() {
		return
	}
	p.restored = true
	if j.ckpt == nil {
		j.startCoordinators()
		return
	}
	latest, ok := j.ckpt.core.Latest()
	if ok {
		assigned, err := savepoint.Assign(latest.Checkpoint, *j.graph)
		if err != nil {
			j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "restore", Fatal: true, Message: err.Error()}})
			return
		}
		p.assigned, p.id, p.states = assigned, latest.ID, latest.Checkpoint.Coordinators
		j.ckpt.step(coordinator.RestoredFrom{ID: latest.ID})
		j.log.Info().Int64("checkpoint_id", latest.ID).Int("attempt", p.attempt).Msg("state is restored")
	}
	j.startCoordinators()
}

// checkPrepared starts the workers of new slots, and tells the scheduler when nothing is missing.
func (j *JobMaster) checkPrepared() {
	j.considerAdoption()
	if j.result != nil || j.sched == nil || j.scaling.settling > 0 {
		return
	}
	ready := j.readySlots()
	j.step(scheduler.SlotsReady{Slots: ready, Leaving: j.leaving()})
	p := j.prep
	if p == nil || p.told || j.result != nil || len(ready) < p.slots || !p.restored || !p.coord || !j.survivors() {
		return
	}
	failpoint.At("restore/prepared")
	p.told = true
	p.stopTimeout()
	j.step(scheduler.Prepared{Attempt: p.attempt, Slots: ready})
}

// leaving are the TaskManagers with slots of the job that will be taken away, with the time of it.
func (j *JobMaster) leaving() map[string]time.Time {
	var out map[string]time.Time
	for _, s := range j.slots {
		if s.Leaves == nil {
			continue
		}
		if out == nil {
			out = map[string]time.Time{}
		}
		out[s.TaskManager] = s.Leaves.Until
	}
	return out
}

// readySlots returns the slots whose workers are up. A preparation starts those that are not.
func (j *JobMaster) readySlots() []scheduler.Slot {
	var ready []scheduler.Slot
	for _, s := range j.slots {
		if j.prep != nil && !j.prep.told {
			j.startWorker(s.TaskManager)
		}
		if w := j.workers[s.TaskManager]; w != nil && w.hello != nil {
			ready = append(ready, scheduler.Slot{TaskManager: s.TaskManager, Index: s.Index})
		}
	}
	return ready
}
