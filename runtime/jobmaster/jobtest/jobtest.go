// Package jobtest has scripted job processes for tests of the runtime: workers that speak the control plane but process no records, and a
// coordinator process that does likewise. It is layer L3, used by tests only. No compatibility promise.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task"
)

// Pause waits for two milliseconds: the pace of loops that poll a condition with a deadline.
func Pause() {
	t := time.NewTimer(2 * time.Millisecond)
	<-t.C
}

// Op makes an operator id from a small number.
func Op(n byte) graph.OperatorID { return graph.OperatorID{ID: graph.ID{15: n}} }

// Graph is source(p) -> hash -> sink(q), both stateful, the source coordinated.
func Graph(p, q int) *graph.JobGraph {
	src, sink := Op(1), Op(2)
	vs, vk := graph.VertexID(src), graph.VertexID(sink)
	return &graph.JobGraph{Name: "test-job", Protocol: version.Protocol, SDK: version.Version, Fingerprint: "f00d", Config: map[string]string{}, Vertices: []graph.Vertex{
		{ID: vs, Name: "Source: numbers", Parallelism: p, MaxParallelism: 128, SlotSharingGroup: "default",
			Operators: []graph.Operator{{ID: src, UID: "numbers", Name: "numbers", Kind: "source", Source: true, Stateful: true, Coordinate: true}},
			Outputs:   []graph.Output{{To: vk, From: src, Partitioner: graph.Hash}}},
		{ID: vk, Name: "Sum -> Sink: out", Parallelism: q, MaxParallelism: 128, SlotSharingGroup: "default",
			Operators: []graph.Operator{{ID: sink, UID: "sum", Name: "sum", Kind: "reduce", Stateful: true}},
			Inputs:    []graph.Input{{From: vs, Partitioner: graph.Hash}}},
	}}
}

// World is what the scripted processes of one job share. The functions are hooks of a test; nil ones do nothing. They are called without locks.
type World struct {
	// OnDeploy is called with every task; it may return a failure, which the task then reports.
	OnDeploy func(t *pb.TaskDeployment) *pb.Failure
	// Open is called with every task that is held: what does not fit, and whether the task has opened its state; nil opens each, and all fits.
	Open func(t *pb.TaskDeployment) (misfits []string, ok bool)
	// OnRun is called with the execution of every task that begins to run.
	OnRun func(id string)
	// Bounded makes every task report END_OF_DATA once it runs.
	Bounded bool
	// Mute drops acknowledgements.
	Mute func(checkpoint int64) bool
	// Deaf: workers do not say which tasks run on, as those of an SDK that does not know that question.
	Deaf bool
	// Preflight fails the coordinator process's start.
	Preflight *pb.Failure

	mu       sync.Mutex
	onDeploy func(t *pb.TaskDeployment) *pb.Failure
	workers  map[*Worker]bool
	triggers []*pb.TriggerCheckpoint
	complete []int64
	aborted  []*pb.CheckpointNotice
	adopted  []string
	starts   []*pb.StartCoordinators
	coords   []*Coordinator
	events   []string
}

// Worker is a scripted worker.
type Worker struct {
	w    *World
	Link rpc.WorkerUplink
	Cfg  rpc.ProcessConfig
	kill chan error

	mu    sync.Mutex
	tasks map[string]*pb.TaskDeployment
	over  map[string]*task.Takeover // by task
	stuck bool
}

// survives answers ReportTasks.
func (k *Worker) survives() {
	r := &pb.TasksReport{}
	k.mu.Lock()
	for id, t := range k.tasks {
		m := &pb.SurvivingTask{ExecutionId: id, Slot: t.GetSlot(), Parallelism: t.GetParallelism(), MaxParallelism: t.GetMaxParallelism(), Source: len(t.GetInputs()) == 0}
		k.over[id].Fill(m)
		r.Tasks = append(r.Tasks, m)
	}
	k.mu.Unlock()
	_ = k.Link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Report{Report: r}})
}

// takeovers calls fn for the tasks with these ids, for all when there are none.
func (k *Worker) takeovers(ids []string, fn func(t *task.Takeover)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.tasks {
		if len(ids) == 0 || slices.Contains(ids, id) {
			fn(k.over[id])
		}
	}
}

// RunWorker is minicluster.Options.RunWorker.
func (w *World) RunWorker(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
	k := &Worker{w: w, Link: link, Cfg: cfg, kill: make(chan error, 1), tasks: map[string]*pb.TaskDeployment{}, over: map[string]*task.Takeover{}}
	w.mu.Lock()
	if w.workers == nil {
		w.workers = map[*Worker]bool{}
	}
	w.workers[k] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.workers, k)
		w.mu.Unlock()
	}()
	_ = link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: &pb.WorkerHello{Protocol: version.Protocol, Sdk: version.Version, Pid: int32(os.Getpid()),
		DataAddress: "data-of-" + cfg.TaskManagerID, Fingerprint: cfg.Fingerprint, JobId: cfg.JobID}}})
	msgs := make(chan *pb.WorkerDown)
	done := make(chan struct{})
	defer func() { <-done }()
	defer link.Close(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(done)
		defer close(msgs)
		for {
			m, err := link.Recv()
			if err != nil {
				return
			}
			select {
			case msgs <- m:
			case <-stop:
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-k.kill:
			return err
		case m, ok := <-msgs:
			if !ok {
				return nil
			}
			k.handle(m)
		}
	}
}

// SetStuck makes the worker's tasks ignore CancelTasks.
func (w *World) SetStuck(k *Worker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stuck = true
}

func (k *Worker) isStuck() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stuck
}

// SetOnDeploy replaces OnDeploy while the job runs.
func (w *World) SetOnDeploy(fn func(t *pb.TaskDeployment) *pb.Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onDeploy = fn
}

func (w *World) hook() func(t *pb.TaskDeployment) *pb.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.onDeploy != nil {
		return w.onDeploy
	}
	return w.OnDeploy
}

func (k *Worker) handle(m *pb.WorkerDown) {
	w := k.w
	switch x := m.GetMsg().(type) {
	case *pb.WorkerDown_Deploy:
		for _, t := range x.Deploy.GetTasks() {
			k.mu.Lock()
			k.tasks[t.GetExecutionId()], k.over[t.GetExecutionId()] = t, task.NewTakeover(t.GetRestoredCheckpointId())
			k.mu.Unlock()
			k.State(t.GetExecutionId(), pb.TaskState_INITIALIZING, nil)
			if hook := w.hook(); hook != nil {
				if f := hook(t); f != nil {
					k.end(t.GetExecutionId(), pb.TaskState_FAILED, f)
					continue
				}
			}
			if !t.GetHold() {
				k.run(t.GetExecutionId())
				continue
			}
			var misfits []string
			ok := true
			if w.Open != nil {
				misfits, ok = w.Open(t)
			}
			if ok {
				k.Opened(t.GetExecutionId(), misfits...)
			}
		}
	case *pb.WorkerDown_Report:
		if !w.Deaf {
			k.survives()
		}
	case *pb.WorkerDown_Adopt:
		w.mu.Lock()
		w.adopted = append(w.adopted, x.Adopt.GetExecutionIds()...)
		w.mu.Unlock()
	case *pb.WorkerDown_Proceed:
		for _, id := range x.Proceed.GetExecutionIds() {
			k.run(id)
		}
	case *pb.WorkerDown_Cancel:
		ids := x.Cancel.GetExecutionIds()
		if x.Cancel.GetAll() {
			ids = k.Tasks()
		}
		for _, id := range ids {
			if !k.isStuck() {
				k.end(id, pb.TaskState_CANCELED, nil)
			}
		}
	case *pb.WorkerDown_Finish:
		k.takeovers(x.Finish.GetExecutionIds(), (*task.Takeover).Finishing)
		for _, id := range x.Finish.GetExecutionIds() {
			k.end(id, pb.TaskState_FINISHED, nil)
		}
	case *pb.WorkerDown_Trigger:
		k.takeovers(x.Trigger.GetExecutionIds(), func(t *task.Takeover) { t.Triggered(x.Trigger.GetCheckpointId(), x.Trigger.GetSuspend()) })
		w.mu.Lock()
		first := len(w.triggers) == 0 || w.triggers[len(w.triggers)-1].GetCheckpointId() != x.Trigger.GetCheckpointId()
		if first {
			w.triggers = append(w.triggers, x.Trigger)
			w.events = append(w.events, fmt.Sprintf("trigger %d", x.Trigger.GetCheckpointId()))
		}
		all := make([]*Worker, 0, len(w.workers))
		for o := range w.workers {
			all = append(all, o)
		}
		w.mu.Unlock()
		if first && (w.Mute == nil || !w.Mute(x.Trigger.GetCheckpointId())) {
			for _, o := range all {
				o.ack(x.Trigger.GetCheckpointId())
			}
		}
	case *pb.WorkerDown_Completed:
		k.takeovers(x.Completed.GetExecutionIds(), func(t *task.Takeover) { t.Completed(x.Completed.GetCheckpointId()) })
		w.mu.Lock()
		w.complete = append(w.complete, x.Completed.GetCheckpointId())
		w.mu.Unlock()
	case *pb.WorkerDown_Aborted:
		k.takeovers(nil, func(t *task.Takeover) { t.Aborted(x.Aborted.GetCheckpointId(), x.Aborted.GetResume()) })
		w.mu.Lock()
		w.aborted = append(w.aborted, x.Aborted)
		w.mu.Unlock()
	case *pb.WorkerDown_OperatorEvent:
		w.mu.Lock()
		w.events = append(w.events, "event "+string(x.OperatorEvent.GetPayload()))
		w.mu.Unlock()
		k.received(x.OperatorEvent)
	}
}

// ack acknowledges a checkpoint for every task of the worker, with a list state that names task and checkpoint.
func (k *Worker) ack(id int64) {
	k.mu.Lock()
	tasks := make([]*pb.TaskDeployment, 0, len(k.tasks))
	for _, t := range k.tasks {
		tasks = append(tasks, t)
	}
	k.mu.Unlock()
	for _, t := range tasks {
		v, err := graph.ParseID(t.GetVertexId())
		if err != nil {
			panic(err)
		}
		b, err := metadata.EncodeTask(metadata.Task{Operators: []metadata.TaskOperator{{ID: graph.OperatorID{ID: v}, State: metadata.Subtask{Index: int(t.GetSubtask()),
			Lists: []metadata.ListState{{Name: "seen", Mode: metadata.Split, Items: [][]byte{fmt.Appendf(nil, "%d@%d", t.GetSubtask(), id)}}}}}}})
		if err != nil {
			panic(err)
		}
		_ = k.Link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Ack{Ack: &pb.CheckpointAck{ExecutionId: t.GetExecutionId(), CheckpointId: id, State: b, Size: 10, NewSize: 10}}})
	}
}

// Tasks lists the worker's tasks.
func (k *Worker) Tasks() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ids []string
	for id := range k.tasks {
		ids = append(ids, id)
	}
	return ids
}

// Opened reports that a task that is held has opened its state.
func (k *Worker) Opened(id string, misfits ...string) {
	_ = k.Link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Opened{Opened: &pb.TaskOpened{ExecutionId: id, Misfits: misfits}}})
}

func (k *Worker) run(id string) {
	if k.w.OnRun != nil {
		k.w.OnRun(id)
	}
	k.State(id, pb.TaskState_RUNNING, nil)
	if k.w.Bounded {
		k.State(id, pb.TaskState_END_OF_DATA, nil)
	}
}

// received notes an event of an enumerator at the task that it is for.
func (k *Worker) received(e *pb.OperatorEvent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, t := range k.tasks {
		if t.GetVertexId() == e.GetOperatorId() && t.GetSubtask() == e.GetSubtask() && t.GetAttempt() == e.GetAttempt() {
			k.over[id].Received(e.GetPayload())
		}
	}
}

// State reports a task's state.
func (k *Worker) State(id string, s pb.TaskState, f *pb.Failure) {
	k.mu.Lock()
	if o := k.over[id]; o != nil {
		o.Moved(s)
	}
	k.mu.Unlock()
	_ = k.Link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{ExecutionId: id, State: s, Failure: f}}})
}

func (k *Worker) end(id string, s pb.TaskState, f *pb.Failure) {
	k.mu.Lock()
	_, ok := k.tasks[id]
	delete(k.tasks, id)
	k.mu.Unlock()
	if ok {
		k.State(id, s, f)
	}
}

// Fail makes a task fail.
func (k *Worker) Fail(id string, f *pb.Failure) { k.end(id, pb.TaskState_FAILED, f) }

// Kill ends the worker as a crash would; killing it twice is once.
func (k *Worker) Kill(reason string) {
	select {
	case k.kill <- errors.New(reason):
	default:
	}
}

// Workers lists the live workers.
func (w *World) Workers() []*Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*Worker
	for k := range w.workers {
		out = append(out, k)
	}
	return out
}

// Running counts the deployed tasks of all workers.
func (w *World) Running() int {
	n := 0
	for _, k := range w.Workers() {
		n += len(k.Tasks())
	}
	return n
}

// Triggers, Completed, Aborted, Starts and Events list what arrived.
func (w *World) Triggers() []*pb.TriggerCheckpoint { return snapshot(w, &w.triggers) }

// Completed lists the checkpoints whose completion was notified, once per worker.
func (w *World) Completed() []int64 { return snapshot(w, &w.complete) }

// Adopted lists the tasks that were told that another JobMaster goes on with them.
func (w *World) Adopted() []string { return snapshot(w, &w.adopted) }

// Aborted lists the notices of aborted checkpoints.
func (w *World) Aborted() []*pb.CheckpointNotice { return snapshot(w, &w.aborted) }

// Starts lists the StartCoordinators messages.
func (w *World) Starts() []*pb.StartCoordinators { return snapshot(w, &w.starts) }

// Events lists triggers and operator events in the order in which workers got them.
func (w *World) Events() []string { return snapshot(w, &w.events) }

func snapshot[T any](w *World, s *[]T) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]T(nil), *s...)
}

// Coordinator is a scripted coordinator process.
type Coordinator struct {
	Link rpc.CoordinatorUplink
	kill chan error

	mu    sync.Mutex
	ready []*pb.SubtaskReady
	// AfterSnapshot is sent right behind the next snapshot.
	after []*pb.OperatorEvent
}

// RunCoordinator is minicluster.Options.RunCoordinator.
func (w *World) RunCoordinator(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error {
	c := &Coordinator{Link: link, kill: make(chan error, 1)}
	w.mu.Lock()
	w.coords = append(w.coords, c)
	w.mu.Unlock()
	_ = link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Hello{Hello: &pb.WorkerHello{Protocol: version.Protocol, Sdk: version.Version, Fingerprint: cfg.Fingerprint, JobId: cfg.JobID}}})
	done := make(chan struct{})
	defer func() { <-done }()
	defer link.Close(nil)
	ended := make(chan error, 1)
	go func() {
		defer close(done)
		for {
			m, err := link.Recv()
			if err != nil {
				ended <- nil
				return
			}
			c.handle(w, m)
		}
	}()
	select {
	case err := <-c.kill:
		return err
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (c *Coordinator) handle(w *World, m *pb.CoordinatorDown) {
	switch x := m.GetMsg().(type) {
	case *pb.CoordinatorDown_Start:
		w.mu.Lock()
		w.starts = append(w.starts, x.Start)
		w.mu.Unlock()
		if w.Preflight != nil {
			_ = c.Link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Failure{Failure: w.Preflight}})
			return
		}
		_ = c.Link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Ready{Ready: &pb.CoordinatorReady{}}})
	case *pb.CoordinatorDown_Snapshot:
		_ = c.Link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Snapshot{Snapshot: &pb.CoordinatorSnapshot{CheckpointId: x.Snapshot.GetCheckpointId(),
			States: map[string][]byte{Op(1).String(): fmt.Appendf(nil, "enum@%d", x.Snapshot.GetCheckpointId())}}}})
		c.mu.Lock()
		after := c.after
		c.after = nil
		c.mu.Unlock()
		for _, e := range after {
			c.Event(e)
		}
	case *pb.CoordinatorDown_SubtaskReady:
		c.mu.Lock()
		c.ready = append(c.ready, x.SubtaskReady)
		c.mu.Unlock()
	}
}

// Event sends an operator event.
func (c *Coordinator) Event(e *pb.OperatorEvent) {
	_ = c.Link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_OperatorEvent{OperatorEvent: e}})
}

// AfterSnapshot sends an event right behind the next snapshot.
func (c *Coordinator) AfterSnapshot(e *pb.OperatorEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = append(c.after, e)
}

// Ready lists the SubtaskReady messages.
func (c *Coordinator) Ready() []*pb.SubtaskReady {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*pb.SubtaskReady(nil), c.ready...)
}

// TryKill is Kill, unless the process was killed already.
func (c *Coordinator) TryKill(reason string) {
	select {
	case c.kill <- errors.New(reason):
	default:
	}
}

// Kill ends the process as a crash would.
func (c *Coordinator) Kill(reason string) { c.kill <- errors.New(reason) }

// Coordinator returns the present coordinator process, or nil.
func (w *World) Coordinator() *Coordinator {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.coords) == 0 {
		return nil
	}
	return w.coords[len(w.coords)-1]
}

// Launches counts the coordinator processes so far.
func (w *World) Launches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.coords)
}
