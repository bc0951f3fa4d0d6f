package scheduler

import (
	"slices"

	"github.com/thalweg/thalweg/runtime/graph"
)

// stage is what is deployed, ended and restarted together: a group of graph.Stages. In STREAMING, where no exchange is blocking, these are the
// pipelines that are not connected with each other, Flink's pipelined regions.
type stage struct {
	vertices        []*Vertex
	inputs, outputs []*stage // across blocking exchanges
	commits         bool     // has a sink that commits at the stage's end
	state           stageState
	ending          bool // its tasks are to end, for a restart
	asked           bool // its tasks were told to prepare their commits, or to finish
	kept            bool // committing: what is needed for it will survive this JobMaster
	// gone: it is finished, but its partitions are lost, or released since nobody needed them.
	gone bool
	// done: it was finished before. To finish it again, for partitions that were lost, is no progress of the job.
	done bool
}

type stageState int

const (
	stageWaiting    stageState = iota // not deployed
	stageRunning                      // deployed
	stageCommitting                   // all commits are prepared: it is not run again, only committed
	stageFinished
)

// plan makes the stages.
func (s *Scheduler) plan() {
	g := s.cfg.Graph
	s.batch = g.Mode == graph.Batch
	for _, group := range g.Stages() {
		st := &stage{}
		for _, i := range group {
			v := s.vertices[i]
			v.stage = st
			st.vertices = append(st.vertices, v)
			for _, op := range v.Spec.Operators {
				st.commits = st.commits || op.Kind == "sink" && op.Stateful
			}
		}
		s.stages = append(s.stages, st)
	}
	for _, v := range s.vertices {
		for _, in := range v.Spec.Inputs {
			from := s.byID[in.From]
			if from == nil || from.stage == v.stage {
				continue
			}
			if !slices.Contains(v.stage.inputs, from.stage) {
				v.stage.inputs = append(v.stage.inputs, from.stage)
				from.stage.outputs = append(from.stage.outputs, v.stage)
			}
		}
	}
}

func (st *stage) each(fn func(x *Execution)) {
	for _, v := range st.vertices {
		for _, x := range v.Tasks {
			fn(x)
		}
	}
}

func (st *stage) all(fn func(x *Execution) bool) bool {
	ok := true
	st.each(func(x *Execution) { ok = ok && fn(x) })
	return ok
}

func (st *stage) ids() []graph.ExecutionID {
	var ids []graph.ExecutionID
	st.each(func(x *Execution) { ids = append(ids, x.ID) })
	return ids
}

// deployed: it has tasks at workers, or had.
func (st *stage) deployed() bool { return st.state == stageRunning || st.state == stageCommitting }

// ready: it can be deployed.
func (st *stage) ready() bool {
	if st.ending || st.state == stageRunning || st.state == stageFinished {
		return false
	}
	if st.state == stageCommitting {
		return st.kept && st.all(func(x *Execution) bool { return x.State == TaskCreated || x.State == TaskScheduled })
	}
	return !slices.ContainsFunc(st.inputs, func(in *stage) bool { return in.state != stageFinished || in.gone })
}

// needed: a stage that is not finished reads its partitions, or will.
func (st *stage) needed() bool {
	return slices.ContainsFunc(st.outputs, func(o *stage) bool { return o.state == stageWaiting || o.state == stageRunning })
}

// deployReady deploys the stages that can be: in BATCH, those whose inputs are finished.
func (s *Scheduler) deployReady() {
	d := Deploy{Attempt: s.attempt, Oldest: s.oldest(), Kept: s.kept()}
	for _, st := range s.stages {
		if !st.ready() {
			continue
		}
		commitOnly := st.state == stageCommitting
		if !commitOnly {
			st.state = stageRunning
		}
		for _, v := range slices.Backward(st.vertices) {
			g := s.groups[slices.IndexFunc(s.groups, func(g group) bool { return g.name == v.Spec.SlotSharingGroup })]
			for i, x := range v.Tasks {
				// A vertex with fewer subtasks than its group has slots is spread over them.
				x.Slot = s.placed[g.from+i*g.size/v.Spec.Parallelism]
				s.setTask(x, TaskScheduled)
				s.setTask(x, TaskDeploying)
				d.Tasks = append(d.Tasks, Placement{x.ID, x.Slot, commitOnly})
			}
		}
	}
	if len(d.Tasks) > 0 {
		s.emit(d)
	}
}

// oldest is the least attempt whose tasks and partitions are still of use to somebody.
func (s *Scheduler) oldest() int {
	if s.batch {
		return s.cfg.FirstAttempt
	}
	least := s.attempt
	s.each(func(x *Execution) { least = min(least, x.ID.Attempt) })
	return least
}

// hit marks stages whose tasks are to end; nil is all that run, for failures of the job as a whole.
func (s *Scheduler) hit(stages []*stage) {
	if !s.batch && stages == nil {
		stages = s.stages
	} else if stages == nil {
		for _, st := range s.stages {
			if st.deployed() {
				stages = append(stages, st)
			}
		}
	}
	for _, st := range stages {
		st.ending = true
	}
}

// lose notes that what a worker held is gone, and returns the stages that cannot go on: those with tasks there that ran, or whose output was
// not complete, and those that read what is lost. missing says that partitions are lost which a stage needs.
func (s *Scheduler) lose(tm string, failed []*Execution) (hit []*stage, missing bool) {
	hit = []*stage{}
	add := func(st *stage) {
		if !slices.Contains(hit, st) {
			hit = append(hit, st)
		}
	}
	for _, x := range failed {
		add(s.byID[x.ID.Vertex].stage)
	}
	if !s.batch {
		return hit, false
	}
	for _, st := range s.stages {
		there := !st.all(func(x *Execution) bool { return x.State != TaskFinished || x.Slot.TaskManager != tm })
		switch {
		case !there:
		case st.state == stageRunning:
			add(st)
		case st.state == stageFinished && len(st.outputs) > 0:
			st.gone, missing = true, missing || st.needed()
			for _, o := range st.outputs {
				if o.state == stageRunning {
					add(o)
				}
			}
		}
	}
	return hit, missing
}

// loseOne notes that a finished partition is gone though its worker lives. Its stage runs again as a whole, so all that read from it cannot go on;
// these are returned.
func (s *Scheduler) loseOne(producer graph.ExecutionID) (hit []*stage) {
	x := s.Execution(producer)
	if !s.batch || x == nil {
		return nil
	}
	st := s.byID[producer.Vertex].stage
	if st.state != stageFinished || st.gone {
		return nil
	}
	st.gone = true
	for _, o := range st.outputs {
		if o.state == stageRunning {
			hit = append(hit, o)
		}
	}
	return hit
}

// rerun makes new attempts of the stages that ended, and of finished ones whose partitions are missing for them.
func (s *Scheduler) rerun() (vertices []graph.VertexID) {
	if !s.batch {
		return s.rerunRegions()
	}
	seen := map[*stage]bool{}
	var need func(st *stage)
	again := func(st *stage) {
		if seen[st] {
			return
		}
		seen[st] = true
		// One that was not deployed keeps its number; one that only commits may hold a source, whose enumerator is made for this attempt.
		if st.state == stageCommitting || !st.all(func(x *Execution) bool { return x.State == TaskCreated }) {
			if st.state == stageFinished {
				s.emit(ReleasePartitions{st.ids()}) // what is left of them
			}
			s.newAttempt(st)
		}
		if st.state != stageCommitting {
			st.state = stageWaiting
		}
		st.ending, st.gone, st.asked = false, false, false
		for _, v := range st.vertices {
			vertices = append(vertices, v.Spec.ID)
		}
		need(st)
	}
	need = func(st *stage) {
		if st.state == stageCommitting || st.state == stageFinished {
			return
		}
		for _, in := range st.inputs {
			if in.state == stageFinished && in.gone || in.ending {
				again(in)
			}
		}
	}
	for _, st := range s.stages {
		if st.ending || st.state == stageWaiting || st.ready() { // or had been prepared, and was not deployed
			again(st)
		}
	}
	for _, st := range s.stages {
		need(st)
	}
	return vertices
}

// stageEnds goes on with a stage whose input is all processed, in BATCH.
func (s *Scheduler) stageEnds(st *stage) {
	if st.ending || st.asked || !st.all(func(x *Execution) bool { return x.EndOfData }) {
		return
	}
	st.asked = true
	if st.commits && st.state == stageRunning {
		s.emit(PrepareCommit{st.ids()})
		return
	}
	s.emit(FinishTasks{st.ids()})
}

// prepared: the tasks' commits are prepared. The stage's output is decided with it, since what is kept next may be what the next JobMaster
// finds; whatever happens to the tasks meanwhile, it is these commits that are done.
func (s *Scheduler) prepared(id graph.ExecutionID) {
	x := s.Execution(id)
	if x == nil {
		return
	}
	st := s.byID[id.Vertex].stage
	if st.ending || st.state != stageRunning || !st.asked {
		return
	}
	st.state, st.kept = stageCommitting, false
	s.emit(KeepCommits{id.Vertex})
}

// commitsKept lets the tasks commit, or those that took the place of ones that failed meanwhile.
func (s *Scheduler) commitsKept(id graph.VertexID) {
	v := s.byID[id]
	if v == nil || v.stage.state != stageCommitting || v.stage.kept {
		return
	}
	st := v.stage
	st.kept = true
	switch {
	case st.ending:
	case st.ready():
		if s.phase == phaseActive {
			s.deployReady()
		}
	default:
		s.emit(Commit{st.ids()})
		s.emit(FinishTasks{st.ids()})
	}
}

// stageFinished gives back what the stage read, if nobody else reads it, and deploys who waited for it.
func (s *Scheduler) stageFinished(st *stage) {
	st.state = stageFinished
	if !st.done {
		st.done, s.cfg.Strategy.progress = true, true
	}
	f := StageFinished{}
	for _, v := range st.vertices {
		f.Vertices = append(f.Vertices, v.Spec.ID)
	}
	s.emit(f)
	for _, in := range st.inputs {
		if !in.needed() && in.state == stageFinished && !in.gone {
			in.gone = true
			s.emit(ReleasePartitions{in.ids()})
		}
	}
	if s.phase == phaseActive {
		s.deployReady()
	}
}
