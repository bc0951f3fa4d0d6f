package jobmaster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// A JobMaster of a later application attempt finds tasks that run on. It asks each worker which those are, and what of it has to be known; when
// they are all of the job's (scheduler.Adopt), it makes the enumerators again from the latest completed checkpoint and goes on with the tasks as
// they are. Otherwise they are cancelled, and the job restarts from that checkpoint. There is no scheduler before this is decided.
//
// Invariants:
//
//  1. Nothing that a worker said before its report counts, but for tasks that ended: what the report says may be older than that.
//  2. Between the decision and AdoptTasks nothing is sent to a task. What a source says to its enumerator meanwhile it says again.
type adoption struct {
	s        started
	required scheduler.Requirements
	latest   int64
	since    time.Time
	asked    map[string]bool                                     // TaskManagers whose worker is to be up; one that ends is not started again
	reports  map[string]map[graph.ExecutionID]scheduler.Survivor // by TaskManager
	ended    map[graph.ExecutionID]bool
	atEnd    map[graph.ExecutionID]bool
	custom   map[graph.ExecutionID]bool // their source sent events of its connector after it had reported
	chosen   *scheduler.Adopted         // its enumerators are being made
	stop     func()                     // of the next look
	// back: no TaskManager of the attempt before is still to come, and those that came are known; asking: this is on its way.
	asking, back bool
}

// adoptionPause is the time between two looks at what has come.
const adoptionPause = 50 * time.Millisecond

// mayAdopt reports whether tasks of an earlier attempt are looked for.
func (j *JobMaster) mayAdopt(s started) bool {
	return j.opts.Epoch > 1 && !j.batch() && !j.opts.Pointer.IsZero() && s.from != nil && s.spare == 0 && j.checkpointing() &&
		config.PreviousWorkerTimeout.Value(j.opts.Config) > 0
}

// lookForTasks begins the wait for the workers of the attempt before.
func (j *JobMaster) lookForTasks(s started) {
	j.adopting = &adoption{s: s, required: j.requirements(s.required), latest: s.from.ID, since: time.Now(), asked: map[string]bool{},
		reports: map[string]map[graph.ExecutionID]scheduler.Survivor{}, ended: map[graph.ExecutionID]bool{}, atEnd: map[graph.ExecutionID]bool{}, custom: map[graph.ExecutionID]bool{}, stop: func() {}}
	j.log.Info().Int64("checkpoint_id", s.from.ID).Msg("tasks of the attempt before are looked for")
	j.considerAdoption()
}

// askForTasks asks a worker for its tasks.
func (j *JobMaster) askForTasks(tm string) {
	j.toWorker(tm, &pb.WorkerDown{Msg: &pb.WorkerDown_Report{Report: &pb.ReportTasks{}}})
}

// tasksReported takes a worker's answer.
func (j *JobMaster) tasksReported(tm string, m *pb.TasksReport) {
	a := j.adopting
	if a == nil {
		return
	}
	a.reports[tm] = map[graph.ExecutionID]scheduler.Survivor{}
	for _, t := range m.GetTasks() {
		id, err := graph.ParseExecutionID(t.GetExecutionId())
		if err != nil {
			continue // it will be missing
		}
		atEnd := t.GetState() == pb.TaskState_END_OF_DATA
		a.reports[tm][id] = scheduler.Survivor{ID: id, Slot: scheduler.Slot{TaskManager: tm, Index: int(t.GetSlot())}, Running: atEnd || t.GetState() == pb.TaskState_RUNNING, EndOfData: atEnd,
			Parallelism: int(t.GetParallelism()), MaxParallelism: int(t.GetMaxParallelism()), Restored: t.GetRestoredCheckpointId(), Source: t.GetSource(), Taken: t.GetTaken(),
			Assigned: t.GetAssigned(), Custom: t.GetCustom(), Suspended: t.GetSuspended(), Finishing: t.GetFinishing()}
	}
	j.considerAdoption()
}

// duringAdoption takes what workers say before it is decided.
func (j *JobMaster) duringAdoption(up *pb.WorkerUp) {
	a := j.adopting
	switch m := up.GetMsg().(type) {
	case *pb.WorkerUp_TaskState:
		id, err := graph.ParseExecutionID(m.TaskState.GetExecutionId())
		if err != nil {
			return
		}
		switch m.TaskState.GetState() {
		case pb.TaskState_END_OF_DATA:
			a.atEnd[id] = true
		case pb.TaskState_RUNNING, pb.TaskState_INITIALIZING:
			return
		default:
			a.ended[id] = true
		}
		j.considerAdoption()
	case *pb.WorkerUp_OperatorEvent:
		v, ok := j.ops[m.OperatorEvent.GetOperatorId()]
		var e operator.SourceEvent
		if ok && (json.Unmarshal(m.OperatorEvent.GetPayload(), &e) != nil || e.Custom != nil) {
			a.custom[graph.ExecutionID{Vertex: v, Subtask: int(m.OperatorEvent.GetSubtask()), Attempt: int(m.OperatorEvent.GetAttempt())}] = true
			j.considerAdoption()
		}
	}
}

// survivors lists what is known to run.
func (a *adoption) survivors() (all []scheduler.Survivor) {
	for _, tm := range slices.Sorted(maps.Keys(a.reports)) {
		for id, t := range a.reports[tm] {
			t.Running = t.Running && !a.ended[id]
			t.EndOfData, t.Custom = t.EndOfData || a.atEnd[id], t.Custom || a.custom[id]
			all = append(all, t)
		}
	}
	return all
}

// considerAdoption goes on when all tasks have been found, or when it is certain, or has taken too long, that they will not be.
func (j *JobMaster) considerAdoption() {
	a := j.adopting
	if a == nil || j.result != nil {
		return
	}
	a.stop()
	for _, tm := range j.workersOfSlots() {
		if !a.asked[tm] {
			a.asked[tm] = true
			j.startWorker(tm) // one that lives says hello again
		}
	}
	found, err := scheduler.Adopt(a.s.graph, a.required, a.latest, a.survivors())
	switch {
	case a.chosen != nil && (err != nil || !slices.Equal(found.IDs(), a.chosen.IDs())):
		if err == nil {
			err = fmt.Errorf("jobmaster: adopt: the tasks changed meanwhile")
		}
		j.abandon(err.Error())
	case a.chosen != nil && j.prep.coord:
		j.adopt(found)
	case a.chosen != nil: // the enumerators are on their way
	case err == nil:
		j.choose(found)
	case time.Since(a.since) >= config.PreviousWorkerTimeout.Value(j.opts.Config), a.back && j.allReported():
		j.abandon(err.Error())
	default:
		if !a.asking && j.opts.Resources.Returning() == 0 { // which may be news that has overtaken their slots
			a.asking = true
			j.q.Post(func() { a.back = true; j.considerAdoption() })
		}
		a.stop = j.after(adoptionPause, j.considerAdoption)
	}
}

// allReported reports whether every worker of the job that was there has said what it has.
func (j *JobMaster) allReported() bool {
	return !slices.ContainsFunc(j.workersOfSlots(), func(tm string) bool {
		_, ok := j.adopting.reports[tm]
		return !ok
	})
}

func (j *JobMaster) workersOfSlots() (tms []string) {
	for _, s := range j.slots {
		if !slices.Contains(tms, s.TaskManager) {
			tms = append(tms, s.TaskManager)
		}
	}
	return tms
}

// choose makes the enumerators of the tasks.
func (j *JobMaster) choose(found *scheduler.Adopted) {
	failpoint.At("adopt/chosen")
	a := j.adopting
	a.chosen = found
	j.setGraph(j.graph.With(found.Parallelism))
	j.prep = &preparation{attempts: found.Attempts, restored: true, id: a.latest, states: a.s.from.Checkpoint.Coordinators, stopTimeout: func() {}}
	j.startCoordinators()
}

// adopt goes on with the tasks.
func (j *JobMaster) adopt(found *scheduler.Adopted) {
	a := j.adopting
	failpoint.At("adopt/before")
	j.adopting, j.prep = nil, nil
	j.adopted = len(found.Tasks)
	by := map[string]*pb.AdoptTasks{}
	for _, t := range found.Tasks {
		tm := t.Slot.TaskManager
		if by[tm] == nil {
			by[tm] = &pb.AdoptTasks{}
		}
		by[tm].ExecutionIds = append(by[tm].ExecutionIds, t.ID.String())
	}
	for tm := range j.workers {
		m := by[tm]
		if m == nil {
			m = &pb.AdoptTasks{} // all of its tasks are void
		}
		j.toWorker(tm, &pb.WorkerDown{Msg: &pb.WorkerDown_Adopt{Adopt: m}})
	}
	line := j.log.Info().Int64("checkpoint_id", a.latest).Int("tasks", len(found.Tasks)).Int("workers", len(by)).Ints64("aborted", found.Aborted).Dur("dur", time.Since(a.since))
	for i := range j.graph.Vertices {
		v := &j.graph.Vertices[i]
		line = line.Str(v.Name, fmt.Sprintf("%d tasks of attempt %d", found.Parallelism[v.ID], found.Attempts[v.ID]))
	}
	line.Msg("the job goes on with the tasks of the attempt before")
	j.setGraph(a.s.graph)
	if !j.schedule(a.s, found) {
		return
	}
	if id := found.Restored(); id > 0 {
		j.ckpt.step(coordinator.Adopted{Restored: id}) // what the tasks count, they count since then
	}
	failpoint.At("adopt/after")
	// What the attempt before could not tell any more.
	if len(found.Notify) > 0 {
		j.sendToTasks(found.Notify, func(ids []string) *pb.WorkerDown {
			return &pb.WorkerDown{Msg: &pb.WorkerDown_Completed{Completed: &pb.CheckpointNotice{CheckpointId: a.latest, ExecutionIds: ids}}}
		})
		j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Completed{Completed: &pb.CheckpointNotice{CheckpointId: a.latest}}})
	}
	for _, id := range found.Aborted {
		j.toAllWorkers(found.IDs(), &pb.WorkerDown{Msg: &pb.WorkerDown_Aborted{Aborted: &pb.CheckpointNotice{CheckpointId: id}}})
	}
}

// abandon cancels what is left of the attempt before, and restarts the job.
func (j *JobMaster) abandon(why string) {
	a := j.adopting
	j.adopting, j.prep = nil, nil
	a.stop()
	if len(a.survivors()) > 0 {
		j.log.Info().Str("reason", strings.TrimPrefix(why, "scheduler: adopt")).Msg("the tasks of the attempt before cannot go on; the job restarts from its latest checkpoint")
	}
	for tm := range j.workers {
		j.cancelTasks(tm)
	}
	j.setGraph(a.s.graph)
	j.schedule(a.s, nil)
}

// cancelTasks cancels whatever tasks a worker has.
func (j *JobMaster) cancelTasks(tm string) {
	j.toWorker(tm, &pb.WorkerDown{Msg: &pb.WorkerDown_Cancel{Cancel: &pb.CancelTasks{All: true}}})
}
