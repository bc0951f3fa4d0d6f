package sim

import (
	"slices"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// received takes what a worker says.
func (m *master) received(l *link, r any) {
	if m.adopting != nil {
		m.duringAdoption(l, r)
		return
	}
	switch r := r.(type) {
	case helloReport:
		m.hello[l] = true
		m.checkPrepared()
	case exitReport:
		delete(m.hello, l)
		m.step(scheduler.WorkerDown{TaskManager: l.tm.id, Process: true, Failure: scheduler.Failure{Kind: "worker", Death: true, Message: "the worker on " + l.tm.id + " ended"}})
		l.send(l.tm.startWorker)
		m.checkPrepared()
	case tasksReport: // it was too late
	case taskReport:
		ev := scheduler.TaskChanged{ID: r.id, EndOfData: r.endOfData, State: map[taskState]scheduler.TaskState{
			running: scheduler.TaskRunning, finished: scheduler.TaskFinished, canceled: scheduler.TaskCanceled, failed: scheduler.TaskFailed}[r.state]}
		if r.failure != nil {
			ev.Failure = &scheduler.Failure{Message: r.failure.message, Kind: r.failure.kind, Fatal: r.failure.fatal, Death: r.failure.kind == "connection"}
		}
		m.step(ev)
	case ackReport:
		st, err := metadata.DecodeTask(r.state)
		if err != nil {
			m.w.violate("a task's report cannot be read: %v", err)
			return
		}
		m.checkpoints(coordinator.Ack{ID: r.checkpoint, Execution: r.id, State: st})
	case declineReport:
		m.checkpoints(coordinator.Decline{ID: r.checkpoint, Execution: r.id, Reason: r.reason, TaskFailed: r.notRunning})
	case eventReport:
		if p := m.proc; p != nil && m.execution(r.id) != nil {
			_ = p // the source's readers ask for nothing
		}
	}
}

// chooseRestore waits for the outcome of a checkpoint whose pointer is being stored, then assigns the latest state.
func (m *master) chooseRestore() {
	p := m.prep
	if p == nil || p.restored {
		return
	}
	if !m.coord.Settled() {
		m.w.sometimes("a restart waited for a pointer that was being stored")
		return
	}
	p.restored = true
	if latest, ok := m.coord.Latest(); ok {
		assigned, err := savepoint.Assign(latest.Checkpoint, *m.graph)
		if err != nil {
			m.w.violate("assign the state of checkpoint %d: %v", latest.ID, err)
			return
		}
		p.assigned, p.id, p.states = assigned, latest.ID, latest.Checkpoint.Coordinators
		m.checkpoints(coordinator.RestoredFrom{ID: latest.ID})
	}
	m.startEnumerator()
}

func (m *master) startEnumerator() {
	p := m.prep
	if p == nil || !p.restored || p.coord || m.procOf == p {
		return
	}
	if m.proc == nil {
		m.proc = &process{m: m, all: map[graph.OperatorID]*enumerating{}}
		m.proc.up = append(m.proc.up, processHello{})
		return
	}
	if !m.proc.up1 {
		return
	}
	m.procOf = p
	for i := range m.graph.Vertices {
		v := &m.graph.Vertices[i]
		op := v.Operators[0].ID
		half, source := m.prog.Nodes[op].Coordinator.(operator.Coordinator)
		if !source || p.part && !slices.Contains(p.vertices, v.ID) {
			continue
		}
		m.starts++
		proc, state, attempt, parallelism := m.proc, p.states[op], p.attempt, v.Parallelism
		if p.attempts != nil {
			attempt, parallelism = p.attempts[v.ID], p.parallelism[v.ID]
		}
		proc.down = append(proc.down, func() { proc.start(attempt, parallelism, op, half, state) })
	}
}

// heard takes what the coordinator process says.
func (m *master) heard(msg any) {
	switch msg := msg.(type) {
	case processHello:
		m.proc.up1 = true
		m.startEnumerator()
	case processReady:
		if m.starts--; m.prep != nil && m.procOf == m.prep && m.starts == 0 {
			m.prep.coord = true
			m.checkPrepared()
		}
	case processSnapshot:
		m.checkpoints(coordinator.CoordinatorSnapshot{ID: msg.id, States: msg.states, Err: msg.err})
	case processFailure:
		if m.adopting != nil {
			m.abandon("the enumerators cannot be made")
			return
		}
		m.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "coordinator", Message: msg.err.Error()}})
	case processEvent:
		x := m.execution(graph.ExecutionID{Vertex: graph.VertexID(msg.op), Subtask: msg.subtask, Attempt: msg.attempt})
		if x == nil || x.State.Terminal() {
			return
		}
		m.toTasks([]graph.ExecutionID{x.ID}, func(wk *worker, ids []graph.ExecutionID) {
			wk.each(ids, func(t *Task) {
				t.takeover.Received(msg.payload)
				t.inbox = append(t.inbox, func() error { return t.event(msg.op, msg.payload) })
			})
		})
	}
}

// killProcess ends the coordinator process.
func (m *master) killProcess() {
	if m.proc == nil || m.result != nil {
		return
	}
	m.w.trace("epoch %d: the coordinator process dies", m.epoch)
	m.proc, m.procOf, m.starts = nil, nil, 0
	if m.prep != nil {
		m.prep.coord = false
	}
	if m.adopting != nil {
		m.abandon("the coordinator process ended")
		return
	}
	m.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "coordinator", Death: true, Message: "the coordinator process ended"}})
	m.startEnumerator()
}
