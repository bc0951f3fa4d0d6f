package scheduler

import (
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

func randomJob(pa, pb int, connected, checkpoints bool) *Scheduler {
	g := &graph.JobGraph{Vertices: []graph.Vertex{
		{ID: graph.VertexID{ID: graph.ID{15: 1}}, Name: "a", Parallelism: pa},
		{ID: graph.VertexID{ID: graph.ID{15: 2}}, Name: "b", Parallelism: pb}}}
	if connected {
		g.Vertices[1].Inputs = []graph.Input{{From: g.Vertices[0].ID}}
	}
	s, err := New(Config{Graph: g, Checkpoints: checkpoints, Strategy: StrategyOf(config.Configuration{"restart-strategy.type": "exponential-delay"}, graph.Streaming)})
	if err != nil {
		panic(err)
	}
	return s
}

// model checks the effects of a scheduler against its invariants.
type model struct {
	t        *rapid.T
	s        *Scheduler
	at       time.Time
	job      JobState
	tasks    map[string]TaskState
	tms      []string
	ended    bool
	prepared *Prepared
}

func (m *model) draw() Event {
	t := m.t
	pick := func() *Execution {
		v := m.s.Vertices()[rapid.IntRange(0, len(m.s.Vertices())-1).Draw(t, "vertex")]
		return v.Tasks[rapid.IntRange(0, len(v.Tasks)-1).Draw(t, "subtask")]
	}
	switch rapid.IntRange(0, 17).Draw(t, "event") {
	case 0, 1, 2:
		p := Prepared{Attempt: m.s.Attempt()}
		for i := range m.s.Slots() + rapid.IntRange(-1, 2).Draw(t, "more") {
			p.Slots = append(p.Slots, Slot{m.tms[i%len(m.tms)], i / len(m.tms)})
		}
		m.prepared = &p
		return p
	case 3, 4, 5:
		return TaskChanged{ID: pick().ID, State: rapid.SampledFrom([]TaskState{TaskInitializing, TaskRunning, TaskCanceling, TaskFinished, TaskCanceled, TaskFailed}).Draw(t, "state"),
			Failure: &Failure{Message: "failed", Kind: "error"}}
	case 6:
		return TaskChanged{ID: pick().ID, State: TaskRunning, EndOfData: true}
	case 7:
		return WorkerDown{TaskManager: rapid.SampledFrom(m.tms).Draw(t, "tm"), Process: rapid.Bool().Draw(t, "process"), Failure: Failure{Message: "down", Death: true}}
	case 8:
		return RestartDue{m.s.Attempt()}
	case 9:
		return CancelStuck{Attempt: m.s.Attempt()}
	case 10:
		return FinalDone{rapid.Bool().Draw(t, "ok")}
	case 11:
		return Stop{}
	case 12:
		return StopDone{rapid.Bool().Draw(t, "ok")}
	case 13:
		return Tick{}
	case 14:
		r := Requirements{}
		for _, v := range m.s.Vertices() {
			lower := rapid.IntRange(1, 3).Draw(t, "lower")
			r[v.Spec.ID] = Bounds{lower, lower + rapid.IntRange(0, 2).Draw(t, "upper")}
		}
		return Require{r}
	case 15:
		return CheckpointDone{}
	case 16:
		e := SlotsReady{}
		for i := range rapid.IntRange(0, 6).Draw(t, "slots") {
			e.Slots = append(e.Slots, Slot{m.tms[i%len(m.tms)], i / len(m.tms)})
		}
		return e
	default:
		id := pick().ID
		id.Attempt -= 1
		return TaskChanged{ID: id, State: TaskFailed}
	}
}

func (m *model) step(ev Event) {
	m.at = m.at.Add(time.Second)
	for _, e := range m.s.Step(m.at, ev) {
		if m.ended {
			m.t.Fatalf("%T after the end", e)
		}
		switch e := e.(type) {
		case JobChanged:
			if e.From != m.job || !e.From.may(e.To) {
				m.t.Fatalf("job %s -> %s, it was %s", e.From, e.To, m.job)
			}
			m.job = e.To
		case TaskMoved:
			was, ok := m.tasks[e.ID.String()]
			if !ok {
				was = TaskCreated
			}
			if e.From != was || !e.From.may(e.To) {
				m.t.Fatalf("task %s -> %s, it was %s", e.From, e.To, was)
			}
			m.tasks[e.ID.String()] = e.To
		case Deploy:
			m.deployed(e)
		case FinishTasks:
			if len(e.IDs) == 0 {
				m.t.Fatal("FinishTasks without tasks")
			}
		case Ended:
			m.ended = true
			if e.State != m.job {
				m.t.Fatalf("ended %s in state %s", e.State, m.job)
			}
			for id, st := range m.tasks {
				if !st.Terminal() {
					m.t.Fatalf("ended with task %s %s", id, st)
				}
			}
		}
	}
}

func (m *model) deployed(d Deploy) {
	type use struct {
		v graph.VertexID
		s Slot
	}
	seen := map[use]bool{}
	for _, t := range d.Tasks {
		ok := false
		for _, s := range m.prepared.Slots {
			ok = ok || s == t.Slot
		}
		u := use{t.ID.Vertex, t.Slot}
		if !ok || seen[u] {
			m.t.Fatalf("deployed into %v: offered %t, twice %t", t.Slot, ok, seen[u])
		}
		seen[u] = true
	}
}
