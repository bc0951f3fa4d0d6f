package scheduler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// elasticJob is a JobMaster's shell over a cluster whose slots come and go.
type elasticJob struct {
	t        *rapid.T
	s        *Scheduler
	at       time.Time
	slots    []Slot // of the cluster
	wanted   int
	keep     []Slot
	leaving  map[string]time.Time // TaskManagers that will be taken away
	declared bool                 // since SlotsReady: the shell tells of the outcome
	had      map[Slot]bool        // what the job had last: what leaves is given to nobody anew
	prep     *Prepare
	restart  *ScheduleRestart
	cancels  []graph.ExecutionID
	save     bool
	former   Requirements // what may hold beside the scheduler's
	deploys  int
	ended    bool
}

// has are the slots that the job has: those that it is to keep first.
func (e *elasticJob) has() []Slot {
	var out []Slot
	add := func(s Slot) {
		for _, o := range out {
			if o == s {
				return
			}
		}
		if _, leaves := e.leaving[s.TaskManager]; len(out) < e.wanted && (!leaves || e.had[s]) {
			out = append(out, s)
		}
	}
	for _, k := range e.keep {
		for _, s := range e.slots {
			if s == k {
				add(s)
			}
		}
	}
	for _, s := range e.slots {
		if e.had[s] {
			add(s)
		}
	}
	for _, s := range e.slots {
		add(s)
	}
	e.had = map[Slot]bool{}
	for _, s := range out {
		e.had[s] = true
	}
	return out
}

func (e *elasticJob) step(ev Event) {
	for _, f := range e.s.Step(e.at, ev) {
		switch f := f.(type) {
		case RequireSlots:
			if f.N != 0 && f.N < slotsOf(e.s.Graph(), e.s.Graph().Parallelism()) {
				e.t.Fatalf("%d slots are wanted for %v", f.N, e.s.Graph().Parallelism())
			}
			e.wanted, e.keep = f.N, f.Keep
			e.has()
			e.declared = true
		case Rescaled:
			p := f.Graph.Parallelism()
			if !e.s.Requirements().holds(p) && !(e.former != nil && e.former.holds(p)) {
				e.t.Fatalf("parallelism %v for %v, before it %v", p, e.s.Requirements(), e.former)
			}
		case Prepare:
			e.prep, e.restart = &f, nil
		case Deploy:
			if len(e.has()) < e.prep.Slots {
				e.t.Fatalf("deployed with %d slots, it needs %d", len(e.has()), e.prep.Slots)
			}
			seen := map[string]bool{}
			for _, x := range f.Tasks {
				at := fmt.Sprint(x.ID.Vertex, x.Slot)
				if seen[at] {
					e.t.Fatalf("two subtasks of a vertex in %v", x.Slot)
				}
				seen[at] = true
			}
			e.prep = nil
			e.deploys++
		case CancelTasks:
			e.cancels = append(e.cancels, f.IDs...)
		case StopCheckpoints:
			e.prep = nil
		case ScheduleRestart:
			e.restart = &f
		case TriggerRescale:
			e.save = true
		case RescaleEnded:
			e.former = nil
		case Ended:
			e.ended = true
		}
	}
}

// work does what the shell does next, one thing at a time; false when there is nothing.
func (e *elasticJob) work() bool {
	e.declared = false
	if e.step(SlotsReady{Slots: e.has(), Leaving: e.leaving}); e.declared {
		return true
	}
	switch {
	case len(e.cancels) > 0:
		ids := e.cancels
		e.cancels = nil
		for _, id := range ids {
			e.step(TaskChanged{ID: id, State: TaskCanceled})
		}
	case e.restart != nil:
		a := e.restart.Attempt
		e.restart = nil
		e.step(RestartDue{a})
	case e.prep != nil && len(e.has()) >= e.prep.Slots:
		e.step(Prepared{e.prep.Attempt, e.has()})
	case e.deploying():
		for _, v := range e.s.Vertices() {
			for _, x := range v.Tasks {
				e.step(TaskChanged{ID: x.ID, State: TaskRunning})
			}
		}
	case e.save:
		e.save = false
		if rapid.IntRange(0, 4).Draw(e.t, "checkpoint") == 0 {
			e.step(RescaleFailed{})
		} else {
			e.step(CheckpointDone{})
		}
	default:
		return false
	}
	return true
}

func (e *elasticJob) deploying() bool {
	for _, v := range e.s.Vertices() {
		for _, x := range v.Tasks {
			if x.State == TaskDeploying {
				return true
			}
		}
	}
	return false
}

func (e *elasticJob) wait(d time.Duration) {
	until := e.at.Add(d)
	for n := 0; ; n++ {
		if n > 10_000 {
			e.t.Fatalf("the scheduler asks for ticks without end, at %s", e.at)
		}
		if e.work() {
			continue
		}
		at, ok := e.s.Deadline()
		if !ok || at.After(until) {
			break
		}
		if at.After(e.at) {
			e.at = at
		}
		e.step(Tick{})
	}
	e.at = until
}

// Whatever is asked for and whatever slots come and go, tasks run in slots that the job has, within the bounds that hold; and in the end, with
// slots enough and nothing that fails, the job runs with all that was asked for.
func TestElasticJobsGetWhereTheyAreAskedTo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &graph.JobGraph{}
		for i := range rapid.IntRange(1, 3).Draw(rt, "vertices") {
			v := graph.Vertex{ID: graph.VertexID{ID: graph.ID{15: byte(i + 1)}}, Name: string(rune('a' + i)), MaxParallelism: 8, Parallelism: rapid.IntRange(1, 4).Draw(rt, "parallelism"),
				SlotSharingGroup: rapid.SampledFrom([]string{"", "other"}).Draw(rt, "group")}
			if i > 0 && rapid.IntRange(0, 2).Draw(rt, "forward") == 0 {
				v.Parallelism = g.Vertices[i-1].Parallelism
				v.Inputs = []graph.Input{{From: g.Vertices[i-1].ID, Partitioner: graph.Forward}}
			}
			g.Vertices = append(g.Vertices, v)
		}
		bounds := func() Requirements {
			r := Requirements{}
			for i, v := range g.Vertices {
				lower := rapid.IntRange(1, 4).Draw(rt, "lower")
				r[v.ID] = Bounds{lower, lower + rapid.IntRange(0, 4).Draw(rt, "more")}
				if len(v.Inputs) > 0 {
					r[v.ID] = r[g.Vertices[i-1].ID]
				}
			}
			if err := r.Check(g); err != nil {
				rt.Fatal(err)
			}
			return r
		}
		cfg := Config{Graph: g, Checkpoints: true, Requirements: Fixed(g), Strategy: StrategyOf(config.Configuration{"restart-strategy.type": "exponential-delay"}, graph.Streaming),
			Rescaling: Rescaling{Wait: 5 * time.Minute, Stabilization: 10 * time.Second, Cooldown: 30 * time.Second, ExecutingStabilization: time.Minute, Checkpoint: true,
				MaxDelay: 10 * time.Minute, MaxFailures: 2, Patience: 5 * time.Minute, Restored: true}}
		if rapid.Bool().Draw(rt, "adaptive") {
			cfg.Requirements = Elastic(g)
		}
		s, err := New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		e := &elasticJob{t: rt, s: s, at: time.Unix(0, 0), leaving: map[string]time.Time{}}
		e.step(Start{})
		next := 0
		more := func(n int) {
			for range n {
				e.slots = append(e.slots, Slot{fmt.Sprint("tm", next/2), next % 2})
				next++
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0, 1:
				more(rapid.IntRange(1, 5).Draw(rt, "come"))
			case 2:
				if len(e.slots) > 0 {
					tm := e.slots[rapid.IntRange(0, len(e.slots)-1).Draw(rt, "lost")].TaskManager
					var left []Slot
					for _, s := range e.slots {
						if s.TaskManager != tm {
							left = append(left, s)
						}
					}
					e.slots = left
					e.step(WorkerDown{TaskManager: tm, Failure: Failure{Message: "lost", Death: true}})
				}
			case 3:
				was := s.Requirements()
				if e.former == nil {
					e.former = was
				}
				e.step(Require{bounds()})
			case 6:
				if len(e.slots) == 0 {
					break
				}
				tm := e.slots[rapid.IntRange(0, len(e.slots)-1).Draw(rt, "leaves")].TaskManager
				if _, leaves := e.leaving[tm]; leaves {
					delete(e.leaving, tm)
					break
				}
				e.leaving[tm] = time.Time{}
				if n := rapid.IntRange(0, 600).Draw(rt, "until"); n > 0 {
					e.leaving[tm] = e.at.Add(time.Duration(n) * time.Second)
				}
			case 4:
				e.step(Fail{Failure{Message: "failed", Kind: "error"}})
			}
			if rapid.Bool().Draw(rt, "time") {
				e.wait(time.Duration(rapid.IntRange(0, 400).Draw(rt, "seconds")) * time.Second)
			}
		}
		more(40)
		e.wait(time.Hour)
		if len(e.leaving) > 0 {
			e.leaving = map[string]time.Time{}
			e.wait(time.Hour)
		}
		if got, want := s.Graph().Parallelism(), s.Requirements().Upper(); fmt.Sprint(got) != fmt.Sprint(want) || !s.Ready() || s.Pending() {
			forward := false
			for _, v := range g.Vertices {
				forward = forward || len(v.Inputs) > 0
			}
			rt.Fatalf("%s with %v, asked for %v (forward edges: %t), ready %t, pending %t, %d slots wanted", s.State(), got, want, forward, s.Ready(), s.Pending(), e.wanted)
		}
		for _, v := range s.Vertices() {
			for _, x := range v.Tasks {
				if _, leaves := e.leaving[x.Slot.TaskManager]; leaves {
					rt.Fatalf("a task of %s is still in %v, which leaves", v.Spec.Name, x.Slot)
				}
			}
		}
		if n := e.wanted; n != slotsOf(g, s.Requirements().Upper()) {
			rt.Fatalf("%d slots are wanted in the end, it needs %d", n, slotsOf(g, s.Requirements().Upper()))
		}
		e.step(CancelJob{})
		e.wait(time.Second)
		if !e.ended || e.wanted != 0 {
			rt.Fatalf("not ended: %s, %d slots", s.State(), e.wanted)
		}
	})
}

// A fit uses no more slots than there are, stays within the bounds, and leaves no slot that a vertex could use.
func TestFitIsTheMostThatThereAreSlotsFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, r := &graph.JobGraph{}, Requirements{}
		for i := range rapid.IntRange(1, 5).Draw(rt, "vertices") {
			v := graph.Vertex{ID: graph.VertexID{ID: graph.ID{15: byte(i + 1)}}, SlotSharingGroup: rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "group")}
			lower := rapid.IntRange(1, 5).Draw(rt, "lower")
			r[v.ID] = Bounds{lower, lower + rapid.IntRange(0, 5).Draw(rt, "more")}
			g.Vertices = append(g.Vertices, v)
		}
		n := rapid.IntRange(0, 40).Draw(rt, "slots")
		least := graph.Parallelism{}
		for id, b := range r {
			least[id] = b.Lower
		}
		p, ok := r.fit(g, n)
		if ok != (slotsOf(g, least) <= n) {
			rt.Fatalf("fit %t with %d slots, %d are needed at least", ok, n, slotsOf(g, least))
		}
		if !ok {
			return
		}
		if !r.holds(p) || slotsOf(g, p) > n {
			rt.Fatalf("%v for %v with %d slots", p, r, n)
		}
		for id := range p {
			p[id]++
			if r.holds(p) && slotsOf(g, p) <= n {
				rt.Fatalf("%s could have %d", id, p[id])
			}
			p[id]--
		}
	})
}
