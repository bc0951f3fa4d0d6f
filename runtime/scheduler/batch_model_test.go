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

// sim is a cluster that carries out what the scheduler says for a job in BATCH, and checks each step: tasks find all they read, finished
// stages run again only when a partition of theirs is missing, what may have been committed is never made again, and the job comes to its end.
// JobMasters die, too: the next one gets what was stored last, and the partitions that it says are kept.
type sim struct {
	stored     Progress // what the next JobMaster finds
	first      int      // attempt of this JobMaster
	masters    int
	resumed    map[graph.ExecutionID]string // finished for an earlier JobMaster -> TaskManager, until it is known which are there
	release    []graph.ExecutionID          // once the progress is stored
	t          *rapid.T
	s          *Scheduler
	g          *graph.JobGraph
	at         time.Time
	tms        []string
	live       map[graph.ExecutionID]*simTask
	partitions map[graph.ExecutionID]string // finished output -> TaskManager
	enumerator map[graph.VertexID]int       // attempt
	finished   map[graph.VertexID]bool      // as a whole, with nothing missing since
	committed  map[graph.VertexID]bool
	inbox      []Event // answers under way
	ended      JobState
	faults     int
	reruns     int
}

type simTask struct {
	slot       Slot
	state      TaskState
	commitOnly bool
	end        bool
	finish     bool
	cancel     bool
}

func (m *sim) step(ev Event) {
	m.at = m.at.Add(time.Second)
	m.t.Logf("> %T %+v", ev, ev)
	for _, e := range m.s.Step(m.at, ev) {
		m.t.Logf("  %T %+v", e, e)
		m.effect(e)
	}
}

func (m *sim) effect(e Effect) {
	switch e := e.(type) {
	case Prepare:
		if !e.Part {
			for i := range m.g.Vertices {
				m.enumerator[m.g.Vertices[i].ID] = e.Attempt
			}
		}
		for _, v := range e.Vertices {
			m.enumerator[v] = e.Attempt
		}
		p := Prepared{Attempt: e.Attempt}
		for i := range m.s.Slots() {
			p.Slots = append(p.Slots, Slot{m.tms[i%len(m.tms)], i / len(m.tms)})
		}
		m.inbox = append(m.inbox, p)
	case Deploy:
		for id := range m.partitions {
			if id.Attempt < e.Oldest && !slices.Contains(e.Kept, id) {
				m.drop(id)
			}
		}
		for _, p := range e.Tasks {
			m.deploy(p)
		}
	case PrepareCommit:
		m.inbox = append(m.inbox, CommitPrepared{e.IDs[0]})
	case KeepCommits:
		m.inbox = append(m.inbox, store{})
	case StageFinished:
		m.inbox = append(m.inbox, store{})
	case Commit:
		for _, id := range e.IDs {
			if m.committed[id.Vertex] && id.Subtask == 0 {
				m.t.Fatalf("%s is committed twice", m.s.TaskName(id))
			}
			if d, ok := m.stored[id.Vertex]; !ok || !d.Committing {
				m.t.Fatalf("%s commits what the next JobMaster would not know of", m.s.TaskName(id))
			}
			m.committed[id.Vertex] = true
		}
	case FinishTasks:
		for _, id := range e.IDs {
			if x := m.live[id]; x != nil {
				x.finish = true
			}
		}
	case CancelTasks:
		for _, id := range e.IDs {
			if x := m.live[id]; x != nil {
				x.cancel = true
			}
		}
	case ReleasePartitions:
		m.release = append(m.release, e.IDs...)
		m.inbox = append(m.inbox, store{})
	case ScheduleRestart:
		m.inbox = append(m.inbox, RestartDue{e.Attempt})
	case Ended:
		m.ended = e.State
	}
}

func (m *sim) drop(id graph.ExecutionID) {
	delete(m.partitions, id)
	m.finished[id.Vertex] = false
}

func (m *sim) deploy(p Placement) {
	v := m.g.Vertex(p.ID.Vertex)
	switch {
	case m.finished[v.ID]:
		m.t.Fatalf("%s runs again, though it has finished and nothing of it is missing", m.s.TaskName(p.ID))
	case p.CommitOnly && !m.stored[v.ID].Committing:
		m.t.Fatalf("%s is to commit what the next JobMaster would not know of", m.s.TaskName(p.ID))
	case m.committed[v.ID] && !p.CommitOnly:
		m.t.Fatalf("%s runs again after it may have committed", m.s.TaskName(p.ID))
	case len(v.Inputs) == 0 && m.enumerator[v.ID] != p.ID.Attempt:
		m.t.Fatalf("%s runs as attempt %d, its enumerator as %d", m.s.TaskName(p.ID), p.ID.Attempt, m.enumerator[v.ID])
	case !slices.Contains(m.tms, p.Slot.TaskManager):
		m.t.Fatalf("%s is deployed to %s, which is gone", m.s.TaskName(p.ID), p.Slot.TaskManager)
	}
	for _, in := range v.Inputs {
		for i := range m.g.Vertex(in.From).Parallelism {
			x := m.s.byID[in.From].Tasks[i]
			if _, there := m.partitions[x.ID]; !there && !p.CommitOnly {
				m.t.Fatalf("%s is deployed, and the output of %s is not there", m.s.TaskName(p.ID), m.s.TaskName(x.ID))
			}
		}
	}
	for id := range m.live {
		if id.Vertex == p.ID.Vertex && id.Subtask == p.ID.Subtask {
			m.t.Fatalf("%s is deployed beside its attempt %d", m.s.TaskName(p.ID), id.Attempt)
		}
	}
	if p.ID.Attempt > 0 {
		m.reruns++
	}
	if p.CommitOnly {
		m.committed[v.ID] = true
	}
	m.live[p.ID] = &simTask{slot: p.Slot, state: TaskDeploying, commitOnly: p.CommitOnly}
}

// advance lets a task do its next step.
func (m *sim) advance(id graph.ExecutionID) {
	x := m.live[id]
	switch {
	case x.cancel:
		delete(m.live, id)
		m.step(TaskChanged{ID: id, State: TaskCanceled})
	case x.state == TaskDeploying:
		x.state = TaskRunning
		m.step(TaskChanged{ID: id, State: TaskRunning})
	case !x.end:
		x.end = true
		m.step(TaskChanged{ID: id, State: TaskRunning, EndOfData: true})
	case x.finish:
		delete(m.live, id)
		m.partitions[id] = x.slot.TaskManager
		whole := true
		for i, t := range m.s.byID[id.Vertex].Tasks {
			_, there := m.partitions[t.ID]
			whole = whole && (there || i == id.Subtask)
		}
		m.finished[id.Vertex] = whole
		m.step(TaskChanged{ID: id, State: TaskFinished})
	}
}

func (m *sim) fault() {
	m.faults++
	switch ids := m.ids(); rapid.IntRange(0, 6).Draw(m.t, "fault") {
	case 0, 1:
		if len(ids) > 0 {
			id := rapid.SampledFrom(ids).Draw(m.t, "failing")
			delete(m.live, id)
			m.step(TaskChanged{ID: id, State: TaskFailed, Failure: &Failure{Message: "failed", Kind: "error"}})
		}
	case 2, 3:
		i := rapid.IntRange(0, len(m.tms)-1).Draw(m.t, "down")
		tm, process := m.tms[i], rapid.Bool().Draw(m.t, "process")
		if !process {
			m.tms[i] = fmt.Sprintf("tm%d", 10+m.faults)
			m.inbox = slices.DeleteFunc(m.inbox, func(e Event) bool { _, ok := e.(Prepared); return ok })
		}
		for id, x := range m.live {
			if x.slot.TaskManager == tm {
				delete(m.live, id)
			}
		}
		for id, at := range m.partitions {
			if at == tm {
				m.drop(id)
			}
		}
		m.step(WorkerDown{TaskManager: tm, Process: process, Failure: Failure{Message: "down", Kind: "worker", Death: true}})
		if !process && m.s.phase == phasePreparing && !slices.ContainsFunc(m.inbox, func(e Event) bool { _, ok := e.(Prepared); return ok }) {
			m.effect(Prepare{Attempt: m.s.attempt, Part: true}) // the shell goes on with other slots
		}
	case 5:
		m.nextMaster()
	case 6:
		m.damage(ids)
	default:
		m.step(Fail{Failure{Message: "the coordinator process ended", Kind: "coordinator", Death: true}})
	}
}

// damage lets a task find that a partition that it reads cannot be read any more.
func (m *sim) damage(ids []graph.ExecutionID) {
	var readers, lost []graph.ExecutionID
	for _, id := range ids {
		for _, in := range m.g.Vertex(id.Vertex).Inputs {
			for _, x := range m.s.byID[in.From].Tasks {
				if _, there := m.partitions[x.ID]; there && !m.live[id].commitOnly {
					readers, lost = append(readers, id), append(lost, x.ID)
				}
			}
		}
	}
	if len(readers) == 0 {
		return
	}
	i := rapid.IntRange(0, len(readers)-1).Draw(m.t, "damaged")
	delete(m.live, readers[i])
	m.drop(lost[i])
	m.step(TaskChanged{ID: readers[i], State: TaskFailed, Failure: &Failure{Message: "cannot be read", Kind: "partition", Lost: lost[i]}})
}

// store is the answer of the store: the progress of now is what the next JobMaster finds.
type store struct{}

func (store) event() {}

// answer takes what is under way.
func (m *sim) answer(ev Event) {
	switch ev.(type) {
	case store:
		m.stored = m.s.Progress()
		for _, id := range m.release {
			m.drop(id)
		}
		m.release = nil
		for i := range m.g.Vertices {
			if v := m.g.Vertices[i].ID; m.stored[v].Committing {
				m.step(CommitsKept{v})
			}
		}
		return
	case Prepared:
		for id, tm := range m.resumed { // first the shell says which partitions have not come along
			if _, there := m.partitions[id]; !there {
				for old := range m.resumed {
					if m.resumed[old] == tm {
						delete(m.resumed, old)
					}
				}
				m.step(WorkerDown{TaskManager: tm, Failure: Failure{Message: "has not come back", Kind: "taskmanager", Death: true}})
			}
		}
		m.resumed = nil
	}
	m.step(ev)
}

// nextMaster lets another JobMaster take over: tasks are cancelled, workers live.
func (m *sim) nextMaster() {
	m.first += 1 << 20
	m.masters++
	s, err := New(Config{Graph: m.g, Strategy: m.s.cfg.Strategy, FirstAttempt: m.first, Resume: m.stored})
	if err != nil {
		m.t.Fatal(err)
	}
	m.s, m.inbox, m.release, m.live = s, nil, nil, map[graph.ExecutionID]*simTask{}
	m.finished, m.resumed = map[graph.VertexID]bool{}, map[graph.ExecutionID]string{}
	for v, d := range m.stored {
		whole := !d.Committing
		for _, t := range d.Tasks {
			_, there := m.partitions[t.ID]
			whole = whole && there
			if !d.Gone {
				m.resumed[t.ID] = t.Slot.TaskManager
			}
		}
		m.finished[v] = whole
	}
	m.step(Start{})
}

func (m *sim) ids() []graph.ExecutionID {
	var ids []graph.ExecutionID
	for id := range m.live {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b graph.ExecutionID) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	return ids
}

func TestBatchModel(t *testing.T) {
	total, masters := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		g := &graph.JobGraph{Name: "job", Mode: graph.Batch}
		n := rapid.IntRange(1, 6).Draw(rt, "vertices")
		for i := range n {
			v := graph.Vertex{ID: graph.VertexID{ID: graph.ID{15: byte(i + 1)}}, Name: fmt.Sprintf("v%d", i), Parallelism: rapid.IntRange(1, 3).Draw(rt, "parallelism")}
			for j := range i {
				if rapid.IntRange(0, 2).Draw(rt, "edge") == 0 && !(len(g.Vertices[j].Operators) > 0) {
					g.Vertices[j].Outputs = append(g.Vertices[j].Outputs, graph.Output{To: v.ID, Exchange: graph.Blocking})
					v.Inputs = append(v.Inputs, graph.Input{From: g.Vertices[j].ID, FromOutput: len(g.Vertices[j].Outputs) - 1, Exchange: graph.Blocking})
				}
			}
			if rapid.Bool().Draw(rt, "sink") {
				v.Operators = []graph.Operator{{Kind: "sink", Stateful: true}}
			}
			g.Vertices = append(g.Vertices, v)
		}
		s, err := New(Config{Graph: g, Strategy: StrategyOf(config.Configuration{"restart-strategy.exponential-delay.attempts-before-reset-backoff": "1000"}, graph.Batch)})
		if err != nil {
			rt.Fatal(err)
		}
		m := &sim{t: rt, s: s, g: g, at: time.Unix(0, 0), tms: []string{"tm1", "tm2"}, live: map[graph.ExecutionID]*simTask{}, partitions: map[graph.ExecutionID]string{},
			enumerator: map[graph.VertexID]int{}, finished: map[graph.VertexID]bool{}, committed: map[graph.VertexID]bool{}}
		m.step(Start{})
		most := rapid.IntRange(0, 8).Draw(rt, "faults")
		for steps := 0; m.ended == ""; steps++ {
			if steps > 2000 {
				rt.Fatalf("no end: job %s, phase %d, %d tasks live, inbox %v", s.State(), s.phase, len(m.live), m.inbox)
			}
			ids := m.ids()
			var movable []graph.ExecutionID
			for _, id := range ids {
				if x := m.live[id]; x.cancel || !x.end || x.finish {
					movable = append(movable, id)
				}
			}
			switch {
			case m.faults < most && rapid.IntRange(0, 9).Draw(rt, "luck") == 0:
				m.fault()
			case len(m.inbox) > 0 && (len(movable) == 0 || rapid.Bool().Draw(rt, "answer")):
				ev := m.inbox[0]
				m.inbox = m.inbox[1:]
				m.answer(ev)
			case len(movable) > 0:
				m.advance(rapid.SampledFrom(movable).Draw(rt, "task"))
			case m.faults < most:
				m.fault()
			default:
				rt.Fatalf("nothing moves: job %s, phase %d, %d tasks live", s.State(), s.phase, len(m.live))
			}
		}
		if m.ended != JobFinished {
			rt.Fatalf("ended %s", m.ended)
		}
		for i := range g.Vertices {
			if v := &g.Vertices[i]; len(v.Operators) > 0 && !m.committed[v.ID] {
				rt.Fatalf("%s was never committed", v.Name)
			}
		}
		if len(m.live) > 0 {
			rt.Fatalf("%d tasks are left", len(m.live))
		}
		total, masters = total+m.reruns, masters+m.masters
	})
	if total == 0 || masters == 0 {
		t.Errorf("%d tasks ran again, %d JobMasters died", total, masters)
	}
}
