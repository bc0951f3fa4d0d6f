package jobmaster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// workerState is the job's worker on one TaskManager.
type workerState struct {
	hello *pb.WorkerHello // nil until it is up
}

// listener adapts the loop to resourcemanager.JobListener.
type listener struct{ j *JobMaster }

func (j *JobMaster) listener() resourcemanager.JobListener { return listener{j} }

func (l listener) SlotsChanged(slots []resourcemanager.Slot) {
	l.j.q.Post(func() { l.j.slotsChanged(slots) })
}

func (l listener) TaskManagerLost(id, reason string) {
	l.j.q.Post(func() { l.j.taskManagerLost(id, reason) })
}

func (l listener) TaskManagerExit(id string, exit resourcemanager.Exit) {
	l.j.q.Post(func() { l.j.taskManagerExit(id, exit) })
}

func (l listener) FromWorker(tm string, up *pb.WorkerUp) {
	l.j.q.PostWait(context.Background(), func() { l.j.fromWorker(tm, up) })
}

func (l listener) WorkerExited(tm string, e *pb.WorkerExited) {
	l.j.q.PostWait(context.Background(), func() { l.j.workerExited(tm, e) })
}

func (j *JobMaster) slotsChanged(slots []resourcemanager.Slot) {
	before := j.slots
	j.slots = slots
	j.stopUnused(before)
	j.startNew(before)
	j.checkPrepared()
}

func (j *JobMaster) hasSlots(tm string) bool {
	return slices.ContainsFunc(j.slots, func(s resourcemanager.Slot) bool { return s.TaskManager == tm })
}

// startWorker makes sure that a TaskManager runs the job's worker.
func (j *JobMaster) startWorker(tm string) {
	if j.workers[tm] != nil {
		return
	}
	j.workers[tm] = &workerState{}
	j.served[tm] = true
	if err := j.opts.Resources.Send(tm, &pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StartWorker{StartWorker: &pb.StartWorker{
		JobId: j.id, Artifact: j.opts.Artifact, Args: j.opts.Args, Config: j.opts.Config, Fingerprint: j.graph.Fingerprint, JobName: j.graph.Name, Graph: j.graphJSON, DataSecret: j.opts.DataSecret}}}); err != nil {
		j.log.Debug().Err(err).Msg("start worker") // TaskManagerLost follows
	}
}

func (j *JobMaster) stopWorker(tm string, grace time.Duration) {
	_ = j.opts.Resources.Send(tm, &pb.TaskManagerDown{Msg: &pb.TaskManagerDown_StopWorker{StopWorker: &pb.StopWorker{
		JobId: j.id, GraceMs: grace.Milliseconds()}}}) // a TaskManager that is gone took the worker with it
}

// stopWorkers ends the job's workers. TaskManagers whose worker is dead are told too: they still have its local copies.
func (j *JobMaster) stopWorkers(grace time.Duration) {
	for tm := range j.served {
		j.stopWorker(tm, grace)
	}
}

func (j *JobMaster) toWorker(tm string, down *pb.WorkerDown) {
	if err := j.opts.Resources.Send(tm, &pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: j.id, Down: down}}}); err != nil {
		j.log.Debug().Err(err).Msg("message to a worker is lost with its link")
	}
}

// sendToTasks sends one message per worker, made from the ids of its tasks.
func (j *JobMaster) sendToTasks(ids []graph.ExecutionID, message func(ids []string) *pb.WorkerDown) {
	var order []string
	by := map[string][]string{}
	for _, id := range ids {
		x := j.sched.Execution(id)
		if x == nil || x.Slot.TaskManager == "" {
			continue
		}
		tm := x.Slot.TaskManager
		if by[tm] == nil {
			order = append(order, tm)
		}
		by[tm] = append(by[tm], id.String())
	}
	for _, tm := range order {
		j.toWorker(tm, message(by[tm]))
	}
}

// toAllWorkers sends a message to each worker that has tasks.
func (j *JobMaster) toAllWorkers(ids []graph.ExecutionID, down *pb.WorkerDown) {
	j.sendToTasks(ids, func([]string) *pb.WorkerDown { return down })
}

func cancelMessage(ids []string) *pb.WorkerDown {
	return &pb.WorkerDown{Msg: &pb.WorkerDown_Cancel{Cancel: &pb.CancelTasks{ExecutionIds: ids}}}
}

func finishMessage(ids []string) *pb.WorkerDown {
	return &pb.WorkerDown{Msg: &pb.WorkerDown_Finish{Finish: &pb.FinishTasks{ExecutionIds: ids}}}
}

func (j *JobMaster) fromWorker(tm string, up *pb.WorkerUp) {
	if j.adopting != nil {
		j.duringAdoption(up)
	}
	switch m := up.GetMsg().(type) {
	case *pb.WorkerUp_Hello:
		j.workerHello(tm, m.Hello)
	case *pb.WorkerUp_TaskState:
		j.taskState(tm, m.TaskState)
	case *pb.WorkerUp_Ack:
		if j.batch() {
			j.commitAck(m.Ack)
		} else if j.ckpt != nil {
			j.ckpt.ack(m.Ack)
		}
	case *pb.WorkerUp_Declined:
		if j.batch() {
			j.commitDeclined(m.Declined)
		} else if j.ckpt != nil {
			j.ckpt.declined(m.Declined)
		}
	case *pb.WorkerUp_Report:
		j.tasksReported(tm, m.Report)
	case *pb.WorkerUp_OperatorEvent:
		if v, ok := j.ops[m.OperatorEvent.GetOperatorId()]; ok && j.sched != nil &&
			j.sched.Execution(graph.ExecutionID{Vertex: v, Subtask: int(m.OperatorEvent.GetSubtask()), Attempt: int(m.OperatorEvent.GetAttempt())}) != nil {
			j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_OperatorEvent{OperatorEvent: m.OperatorEvent}})
		}
	case *pb.WorkerUp_Opened:
		if id, err := graph.ParseExecutionID(m.Opened.GetExecutionId()); err == nil {
			j.taskOpened(id, m.Opened.GetMisfits())
		}
	case *pb.WorkerUp_Metrics:
		j.metrics.update(m.Metrics, func(id graph.ExecutionID) bool { return j.sched != nil && j.sched.Execution(id) != nil })
	}
}

func (j *JobMaster) workerHello(tm string, h *pb.WorkerHello) {
	w := j.workers[tm]
	if w == nil {
		return // of a TaskManager without slots for this job
	}
	switch {
	case h.GetProtocol() != version.Protocol:
		j.fail(scheduler.Failure{Kind: "protocol", Fatal: true, TaskManager: tm, Message: fmt.Sprintf(
			"the job's binary was built with SDK %s (protocol %d), the cluster is %s (protocol %d): build the job with the cluster's version", h.GetSdk(), h.GetProtocol(), version.Version, version.Protocol)})
		return
	case h.GetFingerprint() != "" && h.GetFingerprint() != j.graph.Fingerprint:
		j.fail(scheduler.Failure{Kind: "graph", Fatal: true, TaskManager: tm, Message: fmt.Sprintf(
			"the job's binary built another graph in the worker (fingerprint %.12s, submitted %.12s): build must not depend on time, randomness, map order or the machine", h.GetFingerprint(), j.graph.Fingerprint)})
		return
	}
	first := w.hello == nil
	w.hello = h
	j.endpoints[tm] = h.GetDataAddress()
	switch {
	case j.adopting != nil:
		j.askForTasks(tm)
	case first && j.opts.Epoch > 1: // of an earlier attempt; nothing of this one is there yet
		j.cancelTasks(tm)
	}
	j.checkPrepared()
}

var taskStates = map[pb.TaskState]scheduler.TaskState{
	pb.TaskState_INITIALIZING: scheduler.TaskInitializing, pb.TaskState_RUNNING: scheduler.TaskRunning, pb.TaskState_END_OF_DATA: scheduler.TaskRunning,
	pb.TaskState_FINISHED: scheduler.TaskFinished, pb.TaskState_CANCELED: scheduler.TaskCanceled, pb.TaskState_FAILED: scheduler.TaskFailed,
	pb.TaskState_FAILING: scheduler.TaskCanceling,
}

func (j *JobMaster) taskState(tm string, m *pb.TaskStateChanged) {
	id, err := graph.ParseExecutionID(m.GetExecutionId())
	st, ok := taskStates[m.GetState()]
	if err != nil || !ok {
		j.log.Warn().Str("container_id", tm).Str("execution", m.GetExecutionId()).Stringer("state", m.GetState()).Msg("a worker sent a task state that makes no sense")
		return
	}
	ev := scheduler.TaskChanged{ID: id, State: st, EndOfData: m.GetState() == pb.TaskState_END_OF_DATA}
	if st == scheduler.TaskFailed || st == scheduler.TaskCanceling {
		f := failureOf(m.GetFailure())
		if f.Kind == rpc.KindDamaged {
			f.Whole = true
			j.fallBack(id, &f)
		}
		ev.Failure = &f
	}
	j.step(ev)
	if st == scheduler.TaskRunning {
		j.taskOpened(id, nil) // it was not held, by an SDK that does not know how to
	}
}

func failureOf(f *pb.Failure) scheduler.Failure {
	if f == nil {
		return scheduler.Failure{Message: "no reason was given", Kind: "error"}
	}
	out := scheduler.Failure{Message: f.GetMessage(), Detail: f.GetDetail(), Kind: f.GetKind(), Fatal: f.GetFatal(), Operator: f.GetOperator()}
	// A task whose peer's process died sees a broken connection first; that is the same death.
	out.Death = out.Kind == "connection"
	if id, err := graph.ParseExecutionID(f.GetLostPartition()); err == nil {
		out.Lost = id
	}
	return out
}

func (j *JobMaster) fail(f scheduler.Failure) {
	if j.adopting != nil {
		if j.abandon(f.Message); !f.Fatal { // what begins now begins with all of it anew
			return
		}
	}
	if j.sched == nil {
		j.failInit(f)
		return
	}
	j.step(scheduler.Fail{Failure: f})
}

// workerExited: the process is gone, its TaskManager lives. A worker that had been up is started again at once, beside the
// cancelling of the other tasks, or for the tasks that it is to get; one that never came up is started with the restart, which the strategy paces.
func (j *JobMaster) workerExited(tm string, e *pb.WorkerExited) {
	w := j.workers[tm]
	if w == nil {
		return
	}
	delete(j.workers, tm)
	text, tail := exitText(e.GetReason())
	f := scheduler.Failure{Kind: "worker", Death: true, Detail: tail, TaskManager: tm, Message: fmt.Sprintf("the worker process %d on %s ended: %s", e.GetPid(), j.where(tm), text)}
	if w.hello == nil && rpc.BuildFailed(int(e.GetExitCode()), e.GetReason()) {
		f.Kind, f.Fatal, f.Death = "graph", true, false
	}
	if j.adopting != nil {
		j.adopting.reports[tm] = nil
		if f.Fatal {
			j.fail(f)
		}
		j.considerAdoption()
		return
	}
	j.step(scheduler.WorkerDown{TaskManager: tm, Process: true, Failure: f})
	if j.result != nil || j.sched == nil {
		return
	}
	waits := j.sched.State() == scheduler.JobRunning && j.prep == nil && !j.batch() // for a change of the parallelism
	if w.hello != nil && j.hasSlots(tm) && (j.sched.State() == scheduler.JobRestarting || waits) {
		j.startWorker(tm)
	}
	j.checkPrepared()
}

// exitText splits the words about a process's end into one line that says most and the last lines of its standard error.
func exitText(reason string) (text, tail string) {
	text, tail, _ = strings.Cut(reason, "\n")
	text = strings.TrimSuffix(text, "; last lines of its standard error:")
	if s := rpc.Summary(tail); s != "" && tail != "" {
		text += ": " + s
	}
	return text, tail
}

func (j *JobMaster) where(tm string) string {
	for _, s := range j.slots {
		if s.TaskManager == tm && s.Host != "" {
			return tm + " (" + s.Host + ")"
		}
	}
	return tm
}

func (j *JobMaster) taskManagerLost(tm, reason string) {
	where := j.where(tm)
	_, left := j.leaving()[tm]
	delete(j.workers, tm)
	delete(j.served, tm)
	j.slots = slices.DeleteFunc(slices.Clone(j.slots), func(s resourcemanager.Slot) bool { return s.TaskManager == tm })
	j.step(scheduler.WorkerDown{TaskManager: tm, Failure: scheduler.Failure{Kind: "taskmanager", Death: true, Free: left, TaskManager: tm,
		Message: fmt.Sprintf("TaskManager %s is gone: %s", where, reason)}})
	delete(j.endpoints, tm)
	if j.adopting != nil {
		delete(j.adopting.reports, tm)
		delete(j.adopting.asked, tm)
		j.considerAdoption()
	}
}

// taskMoved tells the coordinator process about subtasks of its operators.
func (j *JobMaster) taskMoved(e scheduler.TaskMoved) {
	if e.To == scheduler.TaskFailed || e.To == scheduler.TaskRunning {
		j.log.Debug().Str("task", j.sched.TaskName(e.ID)).Str("to", string(e.To)).Msg("task state")
	}
	for i := range j.vertex[e.ID.Vertex].Operators {
		op := &j.vertex[e.ID.Vertex].Operators[i]
		if !op.Coordinate {
			continue
		}
		switch e.To {
		case scheduler.TaskRunning:
			j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_SubtaskReady{SubtaskReady: &pb.SubtaskReady{
				OperatorId: op.ID.String(), Subtask: int32(e.ID.Subtask), Attempt: int32(e.ID.Attempt)}}})
		case scheduler.TaskFailed:
			j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_SubtaskFailed{SubtaskFailed: &pb.SubtaskFailed{
				OperatorId: op.ID.String(), Subtask: int32(e.ID.Subtask), Attempt: int32(e.ID.Attempt), Reason: "the task failed"}}})
		}
	}
}
