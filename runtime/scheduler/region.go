package scheduler

import (
	"slices"

	"github.com/thalweg/thalweg/runtime/graph"
)

// goesOn reports whether a stage is deployed and not to end, beside whatever else is done.
func (s *Scheduler) goesOn() bool {
	return slices.ContainsFunc(s.stages, func(st *stage) bool { return st.deployed() && !st.ending })
}

// spares reports whether a stage is not to end, deployed or not.
func (s *Scheduler) spares() bool {
	return slices.ContainsFunc(s.stages, func(st *stage) bool { return !st.ending })
}

// scope says which stages a failure ends; nil is all. In STREAMING that is all also when the tasks must stay in step: a savepoint or the final
// checkpoint ends the job for all of them.
// Source: Flink RestartPipelinedRegionFailoverStrategy; the failure of a savepoint that ends the job restarts all tasks there, too.
func (s *Scheduler) scope(f *Failure, hit []*stage) []*stage {
	switch {
	case s.batch:
		return hit
	case len(s.stages) == 1 || s.cfg.Full || s.final != finalNone || s.stopping != stopNone || f.Whole:
		return nil
	case hit == nil && f.Kind == "resources" && s.goesOn():
		return []*stage{} // what waits for slots goes on waiting
	}
	return hit
}

// spread ends the stages that a failure hits while the job restarts already, if they had gone on.
func (s *Scheduler) spread(f *Failure, hit []*stage) {
	if s.state != JobRestarting || hit != nil && !slices.ContainsFunc(hit, func(st *stage) bool { return !st.ending }) || !s.goesOn() {
		return
	}
	s.hit(hit)
	s.end("the job restarts: " + f.Message)
	s.checkEnd()
}

// rerunRegions makes new attempts, in STREAMING, of the stages that ended or wait. It lists their vertices when others go on, else none.
func (s *Scheduler) rerunRegions() (vertices []graph.VertexID) {
	for _, st := range s.stages {
		if !st.ending && st.state != stageWaiting {
			continue
		}
		st.each(func(x *Execution) { s.setTask(x, TaskCanceled) })
		st.ending, st.state = false, stageWaiting
		s.newAttempt(st)
		for _, v := range st.vertices {
			vertices = append(vertices, v.Spec.ID)
		}
	}
	if !s.goesOn() {
		return nil
	}
	return vertices
}

// widen ends what goes on while a part of the job waits for slots that do not come: the job will run with another parallelism as a whole. It
// happens on a Tick alone, see consider.
func (s *Scheduler) widen(tick bool) {
	if !tick {
		s.dueAt(s.now)
		return
	}
	since := s.scale.since
	if !s.setJob(JobRestarting) {
		return
	}
	s.scale.widened = since
	s.again("the job goes on with another parallelism")
}
