package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

type taskState int

const (
	running taskState = iota
	finished
	canceled
	failed
)

type failure struct {
	message, kind string
	fatal         bool
}

// What workers tell the JobMaster.
type (
	taskReport struct {
		id        graph.ExecutionID
		state     taskState
		endOfData bool
		failure   *failure
	}
	ackReport struct {
		id         graph.ExecutionID
		checkpoint int64
		state      []byte
	}
	declineReport struct {
		id         graph.ExecutionID
		checkpoint int64
		reason     string
		notRunning bool
	}
	eventReport struct {
		id      graph.ExecutionID
		op      graph.OperatorID
		payload []byte
	}
	helloReport struct{}
	exitReport  struct{ wasUp bool }
)

// link carries messages between a master and a TaskManager, in order, until it is cut.
type link struct {
	m        *master
	tm       *manager
	down     []func()
	up       []any
	cut      bool
	detected bool // by the master
}

func (l *link) send(fn func()) {
	if !l.cut {
		l.down = append(l.down, fn)
	}
}

func (l *link) sever() { l.cut, l.down, l.up = true, nil, nil }

// manager is a TaskManager with a worker of the job.
type manager struct {
	w      *World
	id     string
	number int
	slots  int
	link   *link // nil: has none yet
	epoch  int64 // of the highest master that it served
	worker *worker
	alive  bool
	zombie bool // cut off for good: its container will be killed some time
}

// worker is the process that runs tasks.
type worker struct {
	w     *World
	tm    *manager
	up    bool
	tasks map[graph.ExecutionID]*Task
	skew  int64 // ms by which the clock of its machine was set
}

// sorted lists the tasks in an order that is the same each time.
func (w *worker) sorted() []*Task {
	return slices.SortedFunc(maps.Values(w.tasks), func(a, b *Task) int {
		return cmp.Or(cmp.Compare(a.d.id.Attempt, b.d.id.Attempt), slices.Compare(a.d.id.Vertex.ID[:], b.d.id.Vertex.ID[:]), cmp.Compare(a.d.id.Subtask, b.d.id.Subtask))
	})
}

func (w *worker) report(r any) {
	if l := w.tm.link; l != nil && !l.cut {
		l.up = append(l.up, r)
	}
}

// kill ends the process as kill -9 does.
func (w *worker) kill() {
	for _, t := range w.sorted() {
		t.killed = true
		t.end(failed, nil)
	}
	w.tm.worker = nil
}

// deploy starts tasks; those of attempts that are void end first.
func (w *worker) deploy(ds []deployment, oldest int) {
	for _, t := range w.sorted() {
		if t.d.id.Attempt < oldest {
			w.w.sometimes("a deployment ended tasks that an earlier application master had left")
			t.end(canceled, nil)
		}
	}
	for _, d := range ds {
		t := newTask(w, d)
		w.tasks[d.id] = t
	}
}

func (w *worker) cancel(ids []graph.ExecutionID) {
	for _, id := range ids {
		if t := w.tasks[id]; t != nil {
			t.end(canceled, nil)
		} else {
			w.report(taskReport{id: id, state: canceled})
		}
	}
}

// completed tells tasks that a checkpoint is complete.
func (w *worker) completed(ids []graph.ExecutionID, id int64) {
	w.each(ids, func(t *Task) {
		t.takeover.Completed(id)
		t.inbox = append(t.inbox, func() error { return t.complete(id) })
	})
}

// aborted tells all tasks that a checkpoint was given up.
func (w *worker) aborted(id int64, resume bool) {
	for _, t := range w.sorted() {
		t.takeover.Aborted(id, resume)
		t.abortUpload(id)
		t.inbox = append(t.inbox, func() error { return t.aborted(id, resume) })
	}
}

func (w *worker) trigger(ids []graph.ExecutionID, b operator.Barrier) {
	for _, id := range ids {
		if t := w.tasks[id]; t != nil {
			t.takeover.Triggered(b.ID, b.Suspend)
			t.inbox = append(t.inbox, func() error { return t.trigger(b) })
		} else {
			w.report(declineReport{id: id, checkpoint: b.ID, reason: "the task is not running", notRunning: true})
		}
	}
}

func (w *worker) each(ids []graph.ExecutionID, fn func(t *Task)) {
	for _, id := range ids {
		if t := w.tasks[id]; t != nil {
			fn(t)
		}
	}
}

func (tm *manager) startWorker() {
	if tm.worker == nil {
		tm.worker = &worker{w: tm.w, tm: tm, tasks: map[graph.ExecutionID]*Task{}}
		return
	}
	if tm.worker.up {
		tm.worker.report(helloReport{})
	}
}

// killWorker ends the worker's process; the TaskManager lives and says so.
func (tm *manager) killWorker(why string) {
	w := tm.worker
	if w == nil {
		return
	}
	tm.w.trace("%s: its worker dies (%s)", tm.id, why)
	w.kill()
	w.report(exitReport{w.up})
}

// kill ends the TaskManager and its worker.
func (tm *manager) kill(why string) {
	if !tm.alive {
		return
	}
	tm.w.trace("%s dies (%s)", tm.id, why)
	tm.alive = false
	if tm.worker != nil {
		tm.worker.kill()
	}
	if tm.link != nil {
		tm.link.sever()
	}
}

// isolate cuts the TaskManager off from the master; its tasks go on until its container is killed.
func (tm *manager) isolate() {
	if tm.link == nil || tm.link.cut {
		return
	}
	tm.w.trace("%s is cut off, and goes on as a zombie", tm.id)
	tm.zombie, tm.w.zombies = true, true
	tm.link.sever()
}

// register makes the TaskManager known to a master of a higher epoch.
func (tm *manager) register(m *master) {
	if tm.link != nil {
		tm.link.sever()
	}
	tm.epoch = m.epoch
	tm.link = &link{m: m, tm: tm}
	m.links = append(m.links, tm.link)
	m.w.trace("%s registers with epoch %d", tm.id, m.epoch)
	m.offered(tm)
}

func (w *World) addManager(slots int) {
	n := w.managersMade
	w.managersMade++
	w.managers = append(w.managers, &manager{w: w, id: fmt.Sprintf("tm-%d", n), number: n, slots: slots, alive: true})
}

// timers are what is to happen at times.
type timers struct{ all []timer }

type timer struct {
	at int64
	fn func() error
}

func (t *timers) add(at int64, fn func() error) {
	i, _ := slices.BinarySearchFunc(t.all, at+1, func(x timer, at int64) int { return cmp.Compare(x.at, at) })
	t.all = slices.Insert(t.all, i, timer{at, fn})
}

func (t *timers) due(now int64) bool { return len(t.all) > 0 && t.all[0].at <= now }

func (t *timers) pop() func() error {
	fn := t.all[0].fn
	t.all = t.all[1:]
	return fn
}

func (t *timers) next() (int64, bool) {
	if len(t.all) == 0 {
		return 0, false
	}
	return t.all[0].at, true
}
