package sim

import (
	"maps"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// adoptionPatience is how long tasks of an earlier application master are looked for, in ms.
const adoptionPatience = 400

// adoption is what a master knows of the tasks that an earlier one left; see runtime/jobmaster/adopt.go. It has no scheduler before it has decided.
type adoption struct {
	latest  int64
	states  map[graph.OperatorID][]byte
	reports map[string]map[graph.ExecutionID]scheduler.Survivor // by TaskManager
	ended   map[graph.ExecutionID]bool
	atEnd   map[graph.ExecutionID]bool
	chosen  *scheduler.Adopted
}

type tasksReport struct{ tasks []scheduler.Survivor }

// survives says what tasks there are.
func (w *worker) survives() {
	var r tasksReport
	for _, t := range w.sorted() {
		var m pb.SurvivingTask
		t.takeover.Fill(&m)
		atEnd := m.GetState() == pb.TaskState_END_OF_DATA
		r.tasks = append(r.tasks, scheduler.Survivor{ID: t.d.id, Slot: t.d.slot, Running: atEnd || m.GetState() == pb.TaskState_RUNNING, EndOfData: atEnd,
			Parallelism: t.d.parallelism, MaxParallelism: t.d.vertex.MaxParallelism, Restored: m.GetRestoredCheckpointId(), Source: len(t.d.inputs) == 0,
			Taken: m.GetTaken(), Assigned: m.GetAssigned(), Custom: m.GetCustom(), Suspended: m.GetSuspended(), Finishing: m.GetFinishing()})
	}
	w.report(r)
}

// adopt tells tasks that another master goes on with them, and ends the others.
func (w *worker) adopt(ids []graph.ExecutionID) {
	for _, t := range w.sorted() {
		if !slices.Contains(ids, t.d.id) {
			t.end(canceled, nil)
			continue
		}
		t.inbox = append(t.inbox, func() error {
			if t.source != nil {
				t.source.Adopted()
			}
			return nil
		})
	}
}

// lookForTasks begins the wait for the workers of the master before.
func (m *master) lookForTasks(from *coordinator.Completed) {
	m.adopting = &adoption{latest: from.ID, states: from.Checkpoint.Coordinators, reports: map[string]map[graph.ExecutionID]scheduler.Survivor{},
		ended: map[graph.ExecutionID]bool{}, atEnd: map[graph.ExecutionID]bool{}}
	m.timers.add(m.w.now+adoptionPatience, func() error {
		if a := m.adopting; a != nil && a.chosen == nil {
			m.abandon("time is over")
		}
		return nil
	})
}

// returning counts the TaskManagers that may still bring tasks.
func (m *master) returning() (n int) {
	for _, tm := range m.w.managers {
		if tm.alive && !tm.zombie && tm.epoch > 0 && tm.epoch < m.epoch {
			n++
		}
	}
	return n
}

func (a *adoption) survivors() (all []scheduler.Survivor) {
	for _, tm := range slices.Sorted(maps.Keys(a.reports)) {
		for _, t := range a.reports[tm] {
			t.Running = t.Running && !a.ended[t.ID]
			t.EndOfData = t.EndOfData || a.atEnd[t.ID]
			all = append(all, t)
		}
	}
	return all
}

// considerAdoption decides, when it can.
func (m *master) considerAdoption() {
	a := m.adopting
	if a == nil || m.result != nil {
		return
	}
	found, err := scheduler.Adopt(m.graph, m.required, a.latest, a.survivors())
	reported := !slices.ContainsFunc(m.live(), func(l *link) bool { return a.reports[l.tm.id] == nil })
	switch {
	case a.chosen != nil && (err != nil || !slices.Equal(found.IDs(), a.chosen.IDs())):
		m.w.sometimes("tasks changed while they were adopted")
		m.abandon("the tasks changed meanwhile")
	case a.chosen != nil && m.prep.coord:
		m.adopt(found)
	case a.chosen != nil:
	case err == nil:
		a.chosen = found
		m.prep = &preparation{attempts: found.Attempts, restored: true, id: a.latest, states: a.states, parallelism: found.Parallelism}
		m.w.trace("epoch %d: all tasks run on; they are adopted at checkpoint %d", m.epoch, a.latest)
		m.w.point("adopting")
		m.startEnumerator()
	case m.returning() == 0 && reported:
		m.abandon(err.Error())
	}
}

// adopt goes on with the tasks.
func (m *master) adopt(found *scheduler.Adopted) {
	a, w := m.adopting, m.w
	m.adopting, m.prep = nil, nil
	w.sometimes("a new application master adopted the tasks of the one before")
	if len(found.Aborted) > 0 {
		w.sometimes("a checkpoint was under way when its tasks were adopted")
	}
	for _, t := range found.Tasks {
		if !slices.Contains(m.mine, t.Slot) {
			m.mine = append(m.mine, t.Slot)
		}
		if t.EndOfData {
			w.sometimes("a task at its end was adopted")
		}
	}
	ids := found.IDs()
	for _, l := range m.live() {
		l.send(func() {
			if l.tm.worker != nil {
				l.tm.worker.adopt(ids)
			}
		})
	}
	m.schedule(found)
	m.toTasks(found.Notify, func(wk *worker, ids []graph.ExecutionID) { wk.completed(ids, a.latest) })
	for _, id := range found.Aborted {
		m.toTasks(ids, func(wk *worker, _ []graph.ExecutionID) { wk.aborted(id, false) })
	}
	w.point("adopted")
}

// abandon restarts the job. What is left of its tasks ends when others are deployed.
func (m *master) abandon(why string) {
	m.w.trace("epoch %d: the tasks of the master before do not go on: %s", m.epoch, why)
	if len(m.adopting.survivors()) > 0 {
		m.w.sometimes("the tasks of an application master could not be adopted by the next one")
	}
	m.adopting, m.prep = nil, nil
	m.schedule(nil)
}

// duringAdoption takes what a worker says before it is decided.
func (m *master) duringAdoption(l *link, r any) {
	a := m.adopting
	switch r := r.(type) {
	case helloReport:
		m.hello[l] = true
		l.send(func() {
			if l.tm.worker != nil {
				l.tm.worker.survives()
			}
		})
	case tasksReport:
		of := map[graph.ExecutionID]scheduler.Survivor{}
		for _, t := range r.tasks {
			of[t.ID] = t
		}
		a.reports[l.tm.id] = of
	case exitReport:
		delete(m.hello, l)
		delete(a.reports, l.tm.id)
		l.send(l.tm.startWorker)
	case taskReport:
		a.ended[r.id] = a.ended[r.id] || r.state != running
		a.atEnd[r.id] = a.atEnd[r.id] || r.endOfData
	}
	m.considerAdoption()
}
