package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// twoPipes is source(2) -> sink(3), and the same once more, beside it.
func twoPipes() *graph.JobGraph {
	g := &graph.JobGraph{Name: "job"}
	for i := range byte(2) {
		src, sink := graph.VertexID{ID: graph.ID{0: i + 1, 1: 1}}, graph.VertexID{ID: graph.ID{0: i + 1, 1: 2}}
		g.Vertices = append(g.Vertices,
			graph.Vertex{ID: src, Name: "source", Parallelism: 2, MaxParallelism: 8, SlotSharingGroup: "default", Operators: []graph.Operator{{ID: graph.OperatorID(src), Source: true}},
				Outputs: []graph.Output{{To: sink, Partitioner: graph.Hash}}},
			graph.Vertex{ID: sink, Name: "sink", Parallelism: 3, MaxParallelism: 8, SlotSharingGroup: "default", Operators: []graph.Operator{{ID: graph.OperatorID(sink)}},
				Inputs: []graph.Input{{From: src, Partitioner: graph.Hash}}})
	}
	return g
}

// survivorsOf are the tasks that a scheduler of this graph deploys, the second pipeline in a later attempt; they began with checkpoint 3, and took 5.
func survivorsOf(g *graph.JobGraph) (all []Survivor) {
	for n := range g.Vertices {
		v := &g.Vertices[n]
		for i := range v.Parallelism {
			t := Survivor{ID: graph.ExecutionID{Vertex: v.ID, Subtask: i, Attempt: 4 + n/2}, Slot: Slot{TaskManager: "tm", Index: i * 3 / v.Parallelism}, Running: true,
				Parallelism: v.Parallelism, MaxParallelism: 8, Restored: 3, Source: len(v.Inputs) == 0, Assigned: -1}
			if t.Source {
				t.Taken, t.Assigned = []int64{4, 5, 6}, 3
			}
			all = append(all, t)
		}
	}
	return all
}

func TestTasksThatAreWholeAreAdopted(t *testing.T) {
	g := twoPipes()
	all := survivorsOf(g)
	all = append(all, Survivor{ID: graph.ExecutionID{Vertex: g.Vertices[0].ID, Subtask: 1, Attempt: 2}}) // one that is not gone yet
	all[2].EndOfData = true
	a, err := Adopt(g, Fixed(g), 5, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Tasks) != 10 || len(a.Notify) != 10 || !slices.Equal(a.Aborted, []int64{4, 6}) {
		t.Errorf("%d tasks, notify %d, abort %v", len(a.Tasks), len(a.Notify), a.Aborted)
	}
	s, err := New(Config{Graph: g, FirstAttempt: 1 << 20, Checkpoints: true, Adopt: a, Rescaling: Rescaling{Patience: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1)
	var running, moved int
	for _, e := range s.Step(now, Start{}) {
		switch e := e.(type) {
		case Prepare, Deploy, FailureRecorded, ScheduleRestart, Rescaled:
			t.Errorf("effect %T", e)
		case AllRunning:
			running++
		case TaskMoved:
			if e.To == TaskRunning {
				moved++
			}
		case RequireSlots:
			if e.N != 3 || len(e.Keep) != 3 {
				t.Errorf("slots %+v", e)
			}
		}
	}
	if s.State() != JobRunning || !s.Ready() || s.Restarts() != 0 || running != 1 || moved != 10 {
		t.Errorf("%s, ready %v, %d restarts, all run %d, %d run", s.State(), s.Ready(), s.Restarts(), running, moved)
	}
	// A failure restarts its pipeline, in an attempt of this JobMaster, in the slots of before.
	s.Step(now, TaskChanged{ID: all[5].ID, State: TaskFailed})
	for _, x := range all[6:10] {
		s.Step(now, TaskChanged{ID: x.ID, State: TaskCanceled})
	}
	s.Step(now, RestartDue{Attempt: 1 << 20})
	for _, e := range s.Step(now, Prepared{Attempt: 1<<20 + 1, Slots: []Slot{{"tm", 2}, {"tm", 1}, {"tm", 0}}}) {
		d, ok := e.(Deploy)
		if !ok {
			continue
		}
		if len(d.Tasks) != 5 || d.Oldest != 4 {
			t.Errorf("deployment %+v", d)
		}
		for _, p := range d.Tasks {
			if want := p.ID.Subtask * 3 / s.Vertex(p.ID.Vertex).Spec.Parallelism; p.Slot.Index != want || p.ID.Attempt != 1<<20+1 {
				t.Errorf("%v in slot %d, want %d", p.ID, p.Slot.Index, want)
			}
		}
	}
}

func TestTasksThatCannotGoOn(t *testing.T) {
	for _, c := range []struct {
		why   string
		spoil func(all []Survivor) []Survivor
	}{
		{"subtask 1 is gone", func(all []Survivor) []Survivor { return all[1:] }},
		{"2 of 3 subtasks", func(all []Survivor) []Survivor { return slices.Delete(all, 3, 4) }},
		{"does not run", func(all []Survivor) []Survivor { all[3].Running = false; return all }},
		{"not of the attempt of subtask 1", func(all []Survivor) []Survivor { all[1].ID.Attempt++; return all }},
		{"with which it is connected", func(all []Survivor) []Survivor {
			for i := range 2 {
				all[i].ID.Attempt++
			}
			return all
		}},
		{"max parallelism is 4", func(all []Survivor) []Survivor { all[0].MaxParallelism = 4; return all }},
		{"told to end", func(all []Survivor) []Survivor { all[0].Suspended = true; return all }},
		{"told to end", func(all []Survivor) []Survivor { all[4].Finishing = true; return all }},
		{"another graph", func(all []Survivor) []Survivor { all[0].Source = false; return all }},
		{"has not taken checkpoint 5", func(all []Survivor) []Survivor { all[0].Taken = []int64{4, 6}; return all }},
		{"has not taken checkpoint 5", func(all []Survivor) []Survivor { all[3].Restored = 6; return all }},
		{"splits changed after checkpoint 5", func(all []Survivor) []Survivor { all[0].Assigned = 5; return all }},
		{"splits changed after checkpoint 5", func(all []Survivor) []Survivor {
			all[0].Restored, all[0].Taken, all[0].Assigned = 5, nil, 5
			return all
		}},
		{"splits changed after checkpoint 5", func(all []Survivor) []Survivor { all[0].Custom = true; return all }},
		{"the parallelism that the job must have", func(all []Survivor) []Survivor {
			for i := range 2 {
				all[i].Parallelism = 1
			}
			return append(all[:1], all[2:]...)
		}},
		{"its slot is not where it should be", func(all []Survivor) []Survivor { all[2].Slot.Index = 2; return all }},
	} {
		g := twoPipes()
		if _, err := Adopt(g, Fixed(g), 5, c.spoil(survivorsOf(g))); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %q", err, c.why)
		}
	}
}

// A job that runs with less than its graph says goes on so.
func TestAdoptedTasksKeepTheirParallelism(t *testing.T) {
	g := twoPipes()
	p := graph.Parallelism{}
	for id := range g.Parallelism() {
		p[id] = 1
	}
	small := g.With(p)
	all := survivorsOf(small)
	for i := range all {
		all[i].Slot.Index = 0
	}
	a, err := Adopt(g, Elastic(g), 5, all)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Graph: g, FirstAttempt: 1 << 20, Checkpoints: true, Adopt: a, Requirements: Elastic(g)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.Step(time.UnixMilli(1), Start{}) {
		if r, ok := e.(RequireSlots); ok && (r.N != 3 || !slices.Equal(r.Keep, []Slot{{"tm", 0}})) {
			t.Errorf("slots %+v, want those of the graph, the one in use among them", r)
		}
	}
	if got := s.Graph().Vertices[1].Parallelism; got != 1 || s.Slots() != 1 || s.Rescales() != 0 {
		t.Errorf("parallelism %d, %d slots, %d changes", got, s.Slots(), s.Rescales())
	}
}
