package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// firstAttempts is the number of attempts of one epoch that have numbers of their own, as in runtime/jobmaster.
const firstAttempts = 1 << 20

// master is a model of an application attempt: of its JobMaster (runtime/jobmaster), with the file work of coordinator.Runner.
type master struct {
	w        *World
	epoch    int64
	store    *ha.FileStore
	phase    *phase
	prog     *graph.Program
	graph    *graph.JobGraph
	storage  *storage.Storage
	coord    *coordinator.Coordinator
	sched    *scheduler.Scheduler // nil until it is known whether there are tasks to go on with
	required scheduler.Requirements
	adopting *adoption
	links    []*link
	hello    map[*link]bool
	needed   int
	mine     []scheduler.Slot // that the job has
	settling int              // declarations of slots whose outcome is under way
	prep     *preparation
	proc     *process
	procOf   *preparation // starts were sent for it
	starts   int          // that the process has not answered
	inbox    []func()     // answers of file work, in the order of their completion
	works    []*work
	removal  []coordinator.Effect
	tries    int // of the first removal
	timers   timers
	attempt  timers // void with the next attempt

	stopDir     string
	stopAsked   bool
	stopped     string // directory of the savepoint that the job was stopped with
	stopTrigger *coordinator.Trigger
	result      *scheduler.Ended
	ended       bool // the store has the result
	told        bool // of JobEnded
	fenced      bool
	dead        bool
}

type preparation struct {
	attempt  int
	slots    int
	part     bool // only these vertices have new attempts
	vertices []graph.VertexID
	// Of tasks that are adopted: nothing but the enumerators is prepared.
	attempts    map[graph.VertexID]int
	parallelism graph.Parallelism
	restored    bool
	coord       bool
	told        bool
	assigned    savepoint.Assignment
	id          int64
	states      map[graph.OperatorID][]byte
}

// work is one piece of file work. run returns false to be tried again.
type work struct {
	point string
	run   func() bool
	id    int64 // of the checkpoint, for metadata
}

// startMaster makes a new application attempt. What it reads and writes first may fail; then there is none, and the next one is tried.
func (w *World) startMaster() (*master, error) {
	ctx := context.Background()
	m := &master{w: w, phase: w.phase, hello: map[*link]bool{}, store: ha.NewFileStore(w.fs, "/ha", zerolog.Nop())}
	var err error
	if m.epoch, err = m.store.AcquireEpoch(ctx, "sim"); err != nil {
		return nil, err
	}
	if err := m.store.PutJob(ctx, ha.Job{ID: m.phase.job, Name: "sim", Data: []byte("sim")}); err != nil {
		return nil, err
	}
	pointer, first, err := m.store.OpenJob(ctx, m.phase.job)
	if err != nil {
		return nil, err
	}
	w.trace("epoch %d opens the job: pointer %d, numbers from %d", m.epoch, pointer.ID, first)
	if m.prog, err = program(w.in, w.broker, m.phase.par, w.conf); err != nil {
		w.violate("build the job: %v", err)
		return nil, err
	}
	var from *coordinator.Completed
	switch {
	case !pointer.IsZero():
		cp, err := savepoint.Load(ctx, w.reg, pointer.Dir, savepoint.Claim)
		if err != nil {
			if savepoint.Unreadable(err) && !w.struck {
				w.violate("the pointer names checkpoint %d, which cannot be read: %v", pointer.ID, err)
			}
			return nil, err
		}
		from = &coordinator.Completed{ID: pointer.ID, Dir: pointer.Dir, Owned: !cp.Savepoint, Checkpoint: cp}
	case m.phase.from != "":
		mode := savepoint.NoClaim
		if m.phase.claim {
			mode = savepoint.Claim
		}
		cp, err := savepoint.Load(ctx, w.reg, m.phase.from, mode)
		if err != nil {
			return nil, err
		}
		from = &coordinator.Completed{ID: cp.ID, Dir: m.phase.from, Owned: m.phase.claim, Checkpoint: cp}
		if cp.Savepoint {
			from.Kind = coordinator.Savepoint
		}
	}
	var cp metadata.Checkpoint
	if from != nil {
		cp = from.Checkpoint
	}
	adopted, err := savepoint.Check(cp, *m.prog.Graph, false)
	if err != nil {
		w.violate("restore: %v", err)
		return nil, err
	}
	g := adopted.Apply(*m.prog.Graph)
	m.graph = &g
	m.storage = storage.New(w.fs, "/checkpoints", m.phase.job, storage.WithRegistry(w.reg))
	cfg := coordinator.Config{Graph: g, JobID: m.phase.job, Dir: m.storage.Dir(), FirstID: first, ReservedID: first}
	cfg.FromConfiguration(w.conf)
	if from != nil {
		cfg.Existing, err = m.retained(ctx, *from, cfg.Retained)
		if err != nil {
			return nil, err
		}
	}
	if m.coord, err = coordinator.New(cfg); err != nil {
		return nil, err
	}
	if m.required, err = m.loadRequirements(ctx); err != nil {
		return nil, err
	}
	if w.plan.Adopt && m.epoch > 1 && !pointer.IsZero() {
		m.lookForTasks(from)
	}
	return m, nil
}

// begin is the first step of a new master.
func (m *master) begin() {
	if m.adopting == nil {
		m.schedule(nil)
	}
	m.considerAdoption()
}

// schedule makes the scheduler, and starts it.
func (m *master) schedule(adopted *scheduler.Adopted) {
	sched, err := scheduler.New(scheduler.Config{Graph: m.graph, Strategy: scheduler.StrategyOf(m.w.conf, m.graph.Mode),
		FirstAttempt: int(m.epoch-1) * firstAttempts, Checkpoints: true, Requirements: m.required, Rescaling: m.w.rescaling(), Adopt: adopted})
	if err != nil {
		m.w.violate("plan the job: %v", err)
		return
	}
	m.sched = sched
	m.graph = m.sched.Graph()
	m.checkpoints(coordinator.Rescaled{Graph: *m.graph})
	m.step(scheduler.Start{})
}

func (m *master) retained(ctx context.Context, from coordinator.Completed, n int) (all []coordinator.Completed, err error) {
	if n > 1 && from.Owned {
		older, err := m.storage.Completed(ctx, from.ID-1, n-1)
		if err != nil {
			return nil, err
		}
		for _, o := range older {
			all = append(all, coordinator.Completed{ID: o.Checkpoint.ID, Dir: o.Dir, Owned: true, Checkpoint: o.Checkpoint})
		}
	}
	return append(all, from), nil
}

// kill ends the attempt's process; its coordinator process goes with it.
func (m *master) kill(why string) {
	if m.dead {
		return
	}
	m.w.trace("the application master of epoch %d dies (%s)", m.epoch, why)
	m.dead = true
	for _, l := range m.links {
		l.sever()
	}
	if m.ended && !m.told || len(m.removal) > 0 {
		m.w.leaves = true
		m.w.sometimes("an application master died between the end of the job and the removal of its files")
	}
}

// step feeds the scheduler.
func (m *master) step(ev scheduler.Event) {
	if m.sched == nil {
		return
	}
	for _, e := range m.sched.Step(m.w.time(), ev) {
		m.effect(e)
	}
}

func (m *master) effect(e scheduler.Effect) {
	w := m.w
	switch e := e.(type) {
	case scheduler.JobChanged:
		w.trace("epoch %d: job %s -> %s", m.epoch, e.From, e.To)
	case scheduler.TaskMoved:
		m.taskMoved(e)
	case scheduler.RequireSlots:
		m.needed = e.N
		m.settling++
		m.inbox = append(m.inbox, func() {
			m.settling--
			m.allot(e.Keep)
			m.checkPrepared()
		})
	case scheduler.Rescaled:
		m.rescaled(e)
	case scheduler.TriggerRescale:
		m.inbox = append(m.inbox, func() { m.checkpoints(coordinator.Trigger{Kind: coordinator.Manual, RequestID: rescaleRequest}) })
	case scheduler.RescaleEnded:
		m.rescaleEnded(e)
	case scheduler.Prepare:
		m.attempt, m.stopped, m.stopAsked = timers{}, "", false
		m.prep = &preparation{attempt: e.Attempt, slots: e.Slots, part: e.Part, vertices: e.Vertices}
		if e.Part {
			w.sometimes("a part of the job restarted, and the rest ran on")
		}
		m.expectSlots(m.prep, e.Patience)
		m.chooseRestore()
		m.checkPrepared()
	case scheduler.Deploy:
		m.deploy(e)
	case scheduler.AllRunning:
		m.checkpoints(coordinator.TasksRunning{Tasks: m.tasks()})
	case scheduler.StopCheckpoints:
		m.prep = nil
		m.checkpoints(coordinator.JobRestarting{Reason: e.Reason, Part: e.Part})
	case scheduler.CancelTasks:
		m.toTasks(e.IDs, func(wk *worker, ids []graph.ExecutionID) { wk.cancel(ids) })
		m.attempt.add(w.now+2000, func() error { m.step(scheduler.CancelStuck(e)); return nil })
	case scheduler.FinishTasks:
		m.toTasks(e.IDs, func(wk *worker, ids []graph.ExecutionID) {
			wk.each(ids, func(t *Task) {
				t.takeover.Finishing()
				t.inbox = append(t.inbox, func() error { t.finishing = true; return nil })
			})
		})
	case scheduler.KillWorkers:
		w.sometimes("workers were killed because their tasks did not end")
		for _, l := range m.live() {
			if slices.Contains(e.TaskManagers, l.tm.id) {
				l.send(func() { l.tm.killWorker("stuck") })
			}
		}
	case scheduler.TriggerFinal:
		m.attempt.add(w.now+e.After.Milliseconds(), func() error { m.checkpoints(coordinator.EndOfData{}); return nil })
	case scheduler.TriggerStop:
		t := *m.stopTrigger
		m.stopTrigger = nil
		m.checkpoints(t)
	case scheduler.ScheduleRestart:
		m.timers.add(w.now+e.After.Milliseconds(), func() error { m.step(scheduler.RestartDue{Attempt: e.Attempt}); return nil })
	case scheduler.FailureRecorded:
		w.trace("epoch %d: failure (%s) root=%v: %.200s", m.epoch, e.Failure.Kind, e.Root, randomNames.ReplaceAllString(e.Failure.Message, "*")) // before it is cut
	case scheduler.Ended:
		m.result = &e
		m.finish()
	default:
		w.violate("nobody carries out the scheduler's effect %T", e)
	}
}

func (m *master) taskMoved(e scheduler.TaskMoved) {
	if m.proc == nil || e.To != scheduler.TaskRunning || !m.prog.Heads[e.ID.Vertex].Node.Source {
		return
	}
	p, op := m.proc, m.graph.Vertex(e.ID.Vertex).Operators[0].ID
	p.down = append(p.down, func() {
		if x := p.all[op]; x != nil && x.attempt == e.ID.Attempt {
			x.ready(e.ID.Subtask)
		}
	})
}

// live lists the links that the master takes for whole.
func (m *master) live() []*link {
	return slices.DeleteFunc(slices.Clone(m.links), func(l *link) bool { return l.detected })
}

func (m *master) offered(tm *manager) {
	l := tm.link
	l.send(tm.startWorker)
	m.checkPrepared()
}

// lost is the end of a link as the master sees it.
func (m *master) lost(l *link) {
	l.detected = true
	delete(m.hello, l)
	if a := m.adopting; a != nil {
		delete(a.reports, l.tm.id)
		m.considerAdoption()
		return
	}
	m.step(scheduler.WorkerDown{TaskManager: l.tm.id, Failure: scheduler.Failure{Kind: "taskmanager", Death: true, Message: l.tm.id + " is gone"}})
	m.checkPrepared() // the slots have changed
}

// execution is a task of the present attempts, nil for others.
func (m *master) execution(id graph.ExecutionID) *scheduler.Execution {
	if m.sched == nil {
		return nil
	}
	return m.sched.Execution(id)
}

func (m *master) toTasks(ids []graph.ExecutionID, do func(*worker, []graph.ExecutionID)) {
	by := map[string][]graph.ExecutionID{}
	for _, id := range ids {
		if x := m.execution(id); x != nil {
			by[x.Slot.TaskManager] = append(by[x.Slot.TaskManager], id)
		}
	}
	for _, l := range m.live() {
		if mine := by[l.tm.id]; len(mine) > 0 {
			l.send(func() {
				if l.tm.worker != nil {
					do(l.tm.worker, mine)
				}
			})
		}
	}
}

func (m *master) checkPrepared() {
	if m.considerAdoption(); m.result != nil || m.settling > 0 || m.sched == nil {
		return
	}
	m.allot(nil)
	ready := m.ready()
	m.step(scheduler.SlotsReady{Slots: ready})
	p := m.prep
	if p == nil || p.told || m.result != nil || len(ready) < p.slots || !p.restored || !p.coord {
		return
	}
	p.told = true
	m.step(scheduler.Prepared{Attempt: p.attempt, Slots: ready})
}

func (m *master) deploy(e scheduler.Deploy) {
	p := m.prep
	if p == nil || p.attempt != e.Attempt {
		m.w.violate("deploy without a preparation")
		return
	}
	by := map[string][]deployment{}
	for _, t := range e.Tasks {
		v := m.graph.Vertex(t.ID.Vertex)
		d := deployment{id: t.ID, slot: t.Slot, head: m.prog.Heads[v.ID], vertex: v, graph: m.graph, parallelism: v.Parallelism, checkpoint: p.id}
		if tasks := p.assigned[v.ID]; t.ID.Subtask < len(tasks) {
			d.restore = tasks[t.ID.Subtask]
		}
		for _, in := range v.Inputs {
			var from []network.Source
			producers := m.graph.Vertex(in.From).Parallelism
			a, b := in.Partitioner.Producers(producers, v.Parallelism, t.ID.Subtask)
			for i := a; i < b; i++ {
				first, _ := in.Partitioner.Consumers(producers, v.Parallelism, i)
				from = append(from, network.Source{Partition: network.PartitionID{Producer: m.sched.Vertex(in.From).Tasks[i].ID, Output: in.FromOutput}, Subpartition: t.ID.Subtask - first})
			}
			d.inputs = append(d.inputs, from)
		}
		by[t.Slot.TaskManager] = append(by[t.Slot.TaskManager], d)
	}
	for _, l := range m.live() {
		if ds := by[l.tm.id]; len(ds) > 0 {
			l.send(func() {
				if l.tm.worker != nil {
					l.tm.worker.deploy(ds, e.Oldest)
				}
			})
		}
	}
	m.prep = nil
	m.w.trace("epoch %d: attempt %d deployed from checkpoint %d", m.epoch, e.Attempt, p.id)
	m.w.deployed(m, p.id)
}

func (m *master) tasks() (out []coordinator.Task) {
	for _, v := range m.sched.Vertices() {
		for _, x := range v.Tasks {
			out = append(out, coordinator.Task{Execution: x.ID, Source: len(v.Spec.Inputs) == 0})
		}
	}
	return out
}

// stop asks for a stop-with-savepoint.
func (m *master) stop(drain bool) {
	if m.stopAsked || m.result != nil || m.sched == nil || !m.sched.Ready() {
		return
	}
	m.stopAsked, m.stopDir = true, fmt.Sprintf("%s/savepoints/savepoint-%s", m.w.fs.URI(), m.w.name())
	m.stopTrigger = &coordinator.Trigger{RequestID: "stop", Kind: coordinator.StopWithSavepoint, Dir: m.stopDir, Canonical: true, Drain: drain}
	m.step(scheduler.Stop{Drain: drain})
	if m.stopTrigger != nil {
		m.stopTrigger, m.stopAsked = nil, false
	}
}

// savepointRequest is the request of a savepoint that the job goes on after.
const savepointRequest = "savepoint"

// manual asks for a checkpoint or a savepoint that the job goes on after.
func (m *master) manual(kind coordinator.Kind, full bool) {
	t := coordinator.Trigger{RequestID: "manual", Kind: kind, Full: full && kind == coordinator.Manual}
	if kind == coordinator.Savepoint {
		t.RequestID = savepointRequest
		t.Dir, t.Canonical = fmt.Sprintf("%s/savepoints/savepoint-%s", m.w.fs.URI(), m.w.name()), true
	}
	m.checkpoints(t)
}

func superseded(err error) bool { return ha.JobPointers{}.Superseded(err) }

func retryable(err error) bool { return err != nil && !errors.Is(err, storage.ErrClaimed) }
