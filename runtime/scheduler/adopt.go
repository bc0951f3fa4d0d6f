package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Survivor is a task that an earlier JobMaster deployed, as its worker tells of it.
type Survivor struct {
	ID                          graph.ExecutionID
	Slot                        Slot
	Running, EndOfData          bool // EndOfData is a running one, too
	Parallelism, MaxParallelism int
	Restored                    int64 // the checkpoint that it began with, 0 for none
	// Of a source. Taken are the checkpoints that it was triggered for and was not told to be aborted, Assigned the last of them, or what it was
	// restored from, before its enumerator's last word about splits; -1 without any.
	Source   bool
	Taken    []int64
	Assigned int64
	Custom   bool // it has sent events of its connector to the enumerator
	// Suspended by a stop-with-savepoint; Finishing: told to end.
	Suspended, Finishing bool
}

// Adopted are the tasks of a job that run on, and what is to be made good with them.
type Adopted struct {
	Tasks       []Survivor // of each vertex, by subtask
	Parallelism graph.Parallelism
	// Attempts are those of the tasks, by vertex.
	Attempts map[graph.VertexID]int
	// Aborted are checkpoints that no JobMaster will complete any more.
	Aborted []int64
	// Notify are the tasks that took the latest checkpoint and may not know that it is complete.
	Notify []graph.ExecutionID
}

// IDs lists the tasks.
func (a *Adopted) IDs() (ids []graph.ExecutionID) {
	for i := range a.Tasks {
		ids = append(ids, a.Tasks[i].ID)
	}
	return ids
}

// Restored is the checkpoint that the tasks were last restored from, 0 for none.
func (a *Adopted) Restored() (id int64) {
	for i := range a.Tasks {
		id = max(id, a.Tasks[i].Restored)
	}
	return id
}

// Adopt says whether a JobMaster can go on with the tasks of an earlier one, where latest is the job's latest completed checkpoint and g its graph with
// any parallelism. The error says why not: then the job has to be restarted from that checkpoint. It can when
//
//   - every subtask runs, all of a pipeline in one attempt, at a parallelism within the requirements, and none is to end;
//   - every task has taken the checkpoint, or began with it, so that what is notified, and restored later, is of these tasks;
//   - since the checkpoint no source has heard of its enumerator, and none has ever sent events of its connector to it: an enumerator that is made
//     again from the checkpoint knows then what the readers have. (What it decided and nobody heard it will decide again, or differently.)
func Adopt(g *graph.JobGraph, req Requirements, latest int64, survivors []Survivor) (*Adopted, error) {
	a := &Adopted{Parallelism: graph.Parallelism{}, Attempts: map[graph.VertexID]int{}}
	newest := map[graph.VertexID]map[int]Survivor{}
	ids := map[int64]bool{}
	for _, t := range survivors {
		of := newest[t.ID.Vertex]
		if of == nil {
			of = map[int]Survivor{}
			newest[t.ID.Vertex] = of
		}
		if old, ok := of[t.ID.Subtask]; !ok || old.ID.Attempt < t.ID.Attempt {
			of[t.ID.Subtask] = t
		}
		for _, id := range t.Taken {
			ids[id] = id != latest
		}
	}
	for i := range g.Vertices {
		if err := a.add(&g.Vertices[i], newest[g.Vertices[i].ID], latest); err != nil {
			return nil, err
		}
	}
	if err := a.fits(g, req); err != nil {
		return nil, err
	}
	for id, abort := range ids {
		if abort {
			a.Aborted = append(a.Aborted, id)
		}
	}
	slices.Sort(a.Aborted)
	return a, nil
}

// add takes the tasks of a vertex.
func (a *Adopted) add(v *graph.Vertex, of map[int]Survivor, latest int64) error {
	first, ok := of[0]
	if !ok {
		return fmt.Errorf("scheduler: adopt %s: subtask 1 is gone", v.Name)
	}
	if len(of) != first.Parallelism {
		return fmt.Errorf("scheduler: adopt %s: %d of %d subtasks are left", v.Name, len(of), first.Parallelism)
	}
	for i := range first.Parallelism {
		t, ok := of[i]
		misfit := func(format string, args ...any) error {
			return fmt.Errorf("scheduler: adopt %s (%d/%d): "+format, append([]any{v.Name, i + 1, first.Parallelism}, args...)...)
		}
		taken := t.Restored == latest || slices.Contains(t.Taken, latest)
		switch {
		case !ok:
			return misfit("it is gone")
		case !t.Running:
			return misfit("it does not run")
		case t.Parallelism != first.Parallelism || t.ID.Attempt != first.ID.Attempt:
			return misfit("it is not of the attempt of subtask 1")
		case t.MaxParallelism != v.MaxParallelism:
			return misfit("its max parallelism is %d, the graph has %d", t.MaxParallelism, v.MaxParallelism)
		case t.Suspended || t.Finishing:
			return misfit("it was told to end")
		case t.Source != (len(v.Inputs) == 0):
			return misfit("it is of another graph")
		case t.Restored > latest || t.Source && !taken:
			return misfit("it has not taken checkpoint %d", latest)
		case t.Source && (t.Assigned >= latest || t.Custom):
			return misfit("its splits changed after checkpoint %d", latest)
		}
		a.Tasks = append(a.Tasks, t)
		if t.Restored < latest {
			a.Notify = append(a.Notify, t.ID)
		}
	}
	a.Parallelism[v.ID], a.Attempts[v.ID] = first.Parallelism, first.ID.Attempt
	return nil
}

// fits compares the tasks of different vertices.
func (a *Adopted) fits(g *graph.JobGraph, req Requirements) error {
	if !req.holds(a.Parallelism) {
		return fmt.Errorf("scheduler: adopt: the tasks do not have the parallelism that the job must have")
	}
	for _, group := range g.Stages() {
		first := g.Vertices[group[0]].ID
		for _, i := range group {
			if v := &g.Vertices[i]; a.Attempts[v.ID] != a.Attempts[first] {
				return fmt.Errorf("scheduler: adopt %s: it is not of the attempt of %s, with which it is connected", v.Name, g.Vertex(first).Name)
			}
		}
	}
	if _, err := a.places(g.With(a.Parallelism)); err != nil {
		return err
	}
	return nil
}

// places are the slots of the tasks as deploy would have placed them.
func (a *Adopted) places(g *graph.JobGraph) ([]Slot, error) {
	groups, n := groupsOf(g, func(v *graph.Vertex) int { return v.Parallelism })
	placed := make([]Slot, n)
	used := map[Slot]int{}
	for _, t := range a.Tasks {
		v := g.Vertex(t.ID.Vertex)
		at := groups[slices.IndexFunc(groups, func(g group) bool { return g.name == v.SlotSharingGroup })]
		i := at.from + t.ID.Subtask*at.size/v.Parallelism
		if other, taken := used[t.Slot]; placed[i] != (Slot{}) && placed[i] != t.Slot || taken && other != i {
			return nil, fmt.Errorf("scheduler: adopt %s (%d/%d): its slot is not where it should be", v.Name, t.ID.Subtask+1, v.Parallelism)
		}
		placed[i], used[t.Slot] = t.Slot, i
	}
	return placed, nil
}

// adopt makes the tasks of an earlier JobMaster those of the job.
func (s *Scheduler) adopt() {
	a := s.cfg.Adopt
	s.placed, _ = a.places(s.cfg.Graph) // New has seen to it
	n := max(s.slots, slotsOf(s.cfg.Graph, s.scale.req.Upper()))
	s.scale.leaving.base, s.scale.wanted = n, n
	s.emit(RequireSlots{N: n, Keep: s.placed})
	for _, st := range s.stages {
		st.state = stageRunning
	}
	for _, t := range a.Tasks {
		x := &Execution{ID: t.ID, State: TaskCreated, EndOfData: t.EndOfData, Slot: t.Slot, Since: map[TaskState]time.Time{TaskCreated: s.now}}
		s.byID[t.ID.Vertex].Tasks[t.ID.Subtask] = x
	}
	s.each(func(x *Execution) {
		for _, to := range []TaskState{TaskScheduled, TaskDeploying, TaskInitializing, TaskRunning} {
			s.setTask(x, to)
		}
	})
	s.phase, s.running, s.runSince = phaseActive, true, s.now
	s.emit(AllRunning{s.attempt})
	s.ran()
	s.checkEndOfData()
}

// adoptable refuses tasks that are not all of the job's.
func (s *Scheduler) adoptable() error {
	a := s.cfg.Adopt
	if a == nil {
		return nil
	}
	if s.batch || !maps.Equal(a.Parallelism, s.cfg.Graph.Parallelism()) {
		return fmt.Errorf("scheduler: adopt: the tasks are of another graph")
	}
	_, err := a.places(s.cfg.Graph)
	return err
}
