package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// regionJob is a JobMaster's shell with its workers: what they have to do is done in any order.
type regionJob struct {
	t       *rapid.T
	s       *Scheduler
	at      time.Time
	region  map[graph.VertexID]int // computed as plainly as can be
	regions int
	full    bool
	tms     []string
	next    int
	todo    []func()
	runs    bool                   // all of it, and nothing has failed since
	hit     map[int]bool           // since all of it ran
	ran     map[graph.VertexID]int // attempts of when all of it ran
	ended   bool
	stopped *StopCheckpoints // of this step
}

func newRegionJob(t *rapid.T) *regionJob {
	g := &graph.JobGraph{}
	n := rapid.IntRange(1, 6).Draw(t, "vertices")
	var edges [][2]int
	for i := range n {
		v := graph.Vertex{ID: graph.VertexID{ID: graph.ID{15: byte(i + 1)}}, Name: string(rune('a' + i)), MaxParallelism: 8, Parallelism: rapid.IntRange(1, 3).Draw(t, "parallelism"),
			SlotSharingGroup: rapid.SampledFrom([]string{"", "other"}).Draw(t, "group")}
		for from := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				edges = append(edges, [2]int{from, i})
				v.Inputs = append(v.Inputs, graph.Input{From: g.Vertices[from].ID})
			}
		}
		g.Vertices = append(g.Vertices, v)
	}
	j := &regionJob{t: t, at: time.Unix(0, 0), region: map[graph.VertexID]int{}, full: rapid.IntRange(0, 4).Draw(t, "full") == 0, hit: map[int]bool{}, ran: map[graph.VertexID]int{}}
	of := make([]int, n)
	for i := range of {
		of[i] = i
	}
	for range n {
		for _, e := range edges {
			of[e[0]], of[e[1]] = min(of[e[0]], of[e[1]]), min(of[e[0]], of[e[1]])
		}
	}
	seen := map[int]bool{}
	for i, r := range of {
		j.region[g.Vertices[i].ID] = r
		seen[r] = true
	}
	j.regions = len(seen)
	s, err := New(Config{Graph: g, Checkpoints: true, Full: j.full, Strategy: StrategyOf(config.Configuration{"restart-strategy.type": "exponential-delay"}, graph.Streaming)})
	if err != nil {
		t.Fatal(err)
	}
	j.s = s
	for range rapid.IntRange(1, 3).Draw(t, "taskmanagers") {
		j.more()
	}
	return j
}

func (j *regionJob) more() {
	j.tms = append(j.tms, fmt.Sprint("tm", j.next))
	j.next++
}

// slots are more than enough, on all TaskManagers.
func (j *regionJob) slots() (out []Slot) {
	for i := range j.s.Slots() + 2 {
		out = append(out, Slot{j.tms[i%len(j.tms)], i / len(j.tms)})
	}
	return out
}

func (j *regionJob) later(fn func()) { j.todo = append(j.todo, fn) }

func (j *regionJob) report(id graph.ExecutionID, state TaskState) {
	j.later(func() { j.step(TaskChanged{ID: id, State: state}) })
}

func (j *regionJob) step(ev Event) {
	j.stopped = nil
	for _, e := range j.s.Step(j.at, ev) {
		j.effect(e)
	}
	j.check(ev)
}

func (j *regionJob) effect(e Effect) {
	switch e := e.(type) {
	case Prepare:
		if e.Part == (len(e.Vertices) == 0) {
			j.t.Fatalf("prepare %+v", e)
		}
		j.later(func() { j.step(Prepared{Attempt: e.Attempt, Slots: j.slots()}) })
	case Deploy:
		j.deployed(e)
	case CancelTasks:
		for _, id := range e.IDs {
			j.report(id, TaskCanceled)
		}
	case ScheduleRestart:
		j.later(func() { j.step(RestartDue{e.Attempt}) })
	case StopCheckpoints:
		j.stopped, j.runs = &e, false
	case AllRunning:
		j.runs = true
		clear(j.hit)
		for _, v := range j.s.Vertices() {
			j.ran[v.Spec.ID] = v.Tasks[0].ID.Attempt
		}
	case TriggerFinal:
		j.later(func() { j.step(FinalDone{true}) })
	case FinishTasks:
		for _, id := range e.IDs {
			j.report(id, TaskFinished)
		}
	case Ended:
		j.ended = true
	}
}

// deployed checks that regions are deployed as a whole.
func (j *regionJob) deployed(e Deploy) {
	n := map[graph.VertexID]int{}
	for _, p := range e.Tasks {
		n[p.ID.Vertex]++
		if p.ID.Attempt != e.Attempt {
			j.t.Fatalf("%v is deployed in attempt %d", p.ID, e.Attempt)
		}
		j.report(p.ID, TaskRunning)
	}
	for _, v := range j.s.Vertices() {
		for of := range n {
			if j.region[of] == j.region[v.Spec.ID] && n[v.Spec.ID] != v.Spec.Parallelism {
				j.t.Fatalf("%d of %d tasks of %s are deployed, and with them %v", n[v.Spec.ID], v.Spec.Parallelism, v.Spec.Name, n)
			}
		}
		for _, x := range v.Tasks {
			if x.ID.Attempt < e.Oldest {
				j.t.Fatalf("%v is void: the oldest attempt is %d", x.ID, e.Oldest)
			}
		}
	}
}

// check: what was not hit runs as it ran, and a region is of one attempt.
func (j *regionJob) check(ev Event) {
	going := false
	for _, v := range j.s.Vertices() {
		r := j.region[v.Spec.ID]
		for _, x := range v.Tasks {
			going = going || !x.State.Terminal() && x.State != TaskCanceling && x.State != TaskScheduled && x.State != TaskCreated
			if x.ID.Attempt != v.Tasks[0].ID.Attempt {
				j.t.Fatalf("%s has several attempts after %T", v.Spec.Name, ev)
			}
			if len(j.ran) > 0 && !j.hit[r] && (x.ID.Attempt != j.ran[v.Spec.ID] || x.State != TaskRunning) && !j.ended && j.s.final == finalNone {
				j.t.Fatalf("%v, which has failed nowhere, is %s after %T; it ran in attempt %d", x.ID, x.State, ev, j.ran[v.Spec.ID])
			}
			if j.runs && x.State != TaskRunning && j.s.final == finalNone {
				j.t.Fatalf("all is to run, and %v is %s", x.ID, x.State)
			}
		}
	}
	if j.stopped != nil && j.stopped.Part != going {
		j.t.Fatalf("%+v, and some go on: %t", *j.stopped, going)
	}
}

func (j *regionJob) pick() *Execution {
	v := rapid.SampledFrom(j.s.Vertices()).Draw(j.t, "vertex")
	return rapid.SampledFrom(v.Tasks).Draw(j.t, "task")
}

func (j *regionJob) strikes(x *Execution) {
	j.hit[j.region[x.ID.Vertex]] = true
	if j.full {
		j.all()
	}
}

func (j *regionJob) all() {
	for _, r := range j.region {
		j.hit[r] = true
	}
}

func (j *regionJob) fails() {
	switch rapid.IntRange(0, 5).Draw(j.t, "what fails") {
	case 0, 1:
		if x := j.pick(); x.State == TaskRunning || x.State == TaskDeploying {
			j.strikes(x)
			j.step(TaskChanged{ID: x.ID, State: TaskFailed, Failure: &Failure{Message: "failed", Kind: rapid.SampledFrom([]string{"error", "connection"}).Draw(j.t, "kind")}})
		}
	case 2, 3:
		at := rapid.IntRange(0, len(j.tms)-1).Draw(j.t, "taskmanager")
		tm, process := j.tms[at], rapid.Bool().Draw(j.t, "process")
		j.s.each(func(x *Execution) {
			if x.Slot.TaskManager == tm && !x.State.Terminal() && x.State != TaskCreated && x.State != TaskScheduled {
				j.strikes(x)
			}
		})
		if !process {
			j.tms = slices.Delete(j.tms, at, at+1)
			j.more()
		}
		j.step(WorkerDown{TaskManager: tm, Process: process, Failure: Failure{Message: "down", Kind: "worker", Death: true}})
	case 4:
		j.all()
		j.step(Fail{Failure{Message: "all", Kind: "checkpoint"}})
	case 5:
		j.later(func() { j.step(CancelStuck{Attempt: j.s.Attempt()}) })
	}
}

// work does some of what there is to do.
func (j *regionJob) work(n int) {
	for range n {
		if len(j.todo) == 0 {
			return
		}
		at := rapid.IntRange(0, len(j.todo)-1).Draw(j.t, "next")
		fn := j.todo[at]
		j.todo = slices.Delete(j.todo, at, at+1)
		j.at = j.at.Add(time.Second)
		fn()
	}
}

// A failure restarts what is connected with the task, as a whole, and nothing else, in whatever order things happen and whatever else fails
// meanwhile; in the end all runs, and comes to its end.
func TestRegionsRestartAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newRegionJob(t)
		if n := len(j.s.cfg.Graph.Stages()); n != j.regions {
			t.Fatalf("%d regions, want %d", n, j.regions)
		}
		j.step(Start{})
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
				if !j.runs && len(j.ran) == 0 {
					j.all()
				}
				j.fails()
			}
			j.work(rapid.IntRange(0, 12).Draw(t, "work"))
		}
		for len(j.todo) > 0 {
			j.work(1)
		}
		if !j.runs || j.s.State() != JobRunning {
			t.Fatalf("nothing is left to do, and the job is %s", j.s.State())
		}
		j.s.each(func(x *Execution) { j.step(TaskChanged{ID: x.ID, State: TaskRunning, EndOfData: true}) })
		for len(j.todo) > 0 {
			j.work(1)
		}
		if !j.ended || j.s.State() != JobFinished {
			t.Fatalf("the job is %s", j.s.State())
		}
	})
}
