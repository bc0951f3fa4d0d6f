package scheduler

import (
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

func (s *Scheduler) workerDown(e WorkerDown) {
	f := e.Failure
	f.TaskManager = e.TaskManager
	var first *Execution
	var lost []*Execution
	s.each(func(x *Execution) {
		deployed := x.State == TaskDeploying || x.State == TaskInitializing || x.State == TaskRunning || x.State == TaskCanceling
		if !deployed || x.Slot.TaskManager != e.TaskManager {
			return
		}
		if first == nil {
			first = x
		}
		lost = append(lost, x)
	})
	for _, x := range lost {
		if x.State == TaskCanceling { // what was to be cancelled is gone
			s.setTask(x, TaskCanceled)
			continue
		}
		x.Failure = &f
		s.setTask(x, TaskFailed)
	}
	hit, missing := s.lose(e.TaskManager, lost)
	placed := s.batch && slices.ContainsFunc(s.placed, func(p Slot) bool { return p.TaskManager == e.TaskManager })
	hurt := first != nil || missing || len(hit) > 0
	switch {
	case (hurt || placed) && s.phase == phaseActive:
		s.fail(f, nil, hit...)
	case s.phase == phasePreparing && (hurt || e.Process):
		s.fail(f, nil, hit...) // it died before its first task: a restart that is paced by the strategy
	case hurt && s.state != JobCancelling:
		s.fail(f, nil, hit...) // for the history; often the cause of what was heard first
	}
	s.checkEnd()
}

// fail handles a failure of task x, or of the job when x is nil. What it ends is the stage of x, the stages hit, or, when none is given, all.
func (s *Scheduler) fail(f Failure, x *Execution, hit ...*stage) {
	f.At = s.now
	if x != nil {
		hit = s.loseOne(f.Lost)
		if st := s.byID[x.ID.Vertex].stage; !slices.Contains(hit, st) {
			hit = append(hit, st)
		}
		f.Task, f.Execution = s.TaskName(x.ID), x.ID
		if f.TaskManager == "" {
			f.TaskManager = x.Slot.TaskManager
		}
		x.Failure = &f
	}
	if s.state == JobInitializing {
		s.emit(FailureRecorded{f, true})
		s.setJob(JobFailed)
		s.emit(Ended{JobFailed, &f})
		return
	}
	hit = s.scope(&f, hit)
	root := s.phase == phaseActive || s.phase == phasePreparing
	if !root && f.explains(s.root) {
		s.explained(&f)
		s.spread(&f, hit)
		return
	}
	s.record(f, root)
	if !root {
		if f.Fatal {
			s.giveUp(&f)
		} else {
			s.spread(&f, hit)
		}
		return
	}
	if s.running && s.now.Sub(s.runSince) >= time.Minute {
		s.cfg.Strategy.progress = true
	}
	s.root, s.counted = &f, f.TaskManager
	s.decided = s.cfg.Strategy
	pause, jitter, ok, why := s.cfg.Strategy.onFailure(s.now, &f)
	if ok {
		s.setJob(JobRestarting)
		s.hit(hit)
		s.end("the job restarts: " + f.Message)
		s.pause, s.jitter = pause, jitter
	} else {
		f.Detail = join(f.Detail, "No restart: "+why+".")
		s.setJob(JobFailing)
		s.endAll("the job fails: " + f.Message)
	}
	s.checkEnd()
}

// record tells of a failure. A broken connection as root is held back, and what follows with it: it shows that its other end failed, and
// tasks see it before that failure is known. Its place goes to the cause (explained); when all tasks have ended without one, it is the root.
func (s *Scheduler) record(f Failure, root bool) {
	if root && f.Kind == "connection" || len(s.held) > 0 {
		s.held = append(s.held, FailureRecorded{f, root})
		return
	}
	s.emit(FailureRecorded{f, root})
}

// tell tells of what was held back.
func (s *Scheduler) tell() {
	for _, f := range s.held {
		s.emit(f)
	}
	s.held = nil
}

// cause tells of the root, with what was held back as its company.
func (s *Scheduler) cause(f Failure) {
	s.emit(FailureRecorded{f, true})
	for i := range s.held {
		s.held[i].Root = false
	}
	s.tell()
}

// explained makes f the root in place of the broken connection that it caused, and decides anew: what it says about a restart may be
// something else, such as a pause where the end of a process needs none.
func (s *Scheduler) explained(f *Failure) {
	was := s.root
	s.root, s.counted = f, f.TaskManager
	if s.state != JobRestarting {
		f.Detail = join(f.Detail, was.Detail) // says why there is no restart
		s.cause(*f)
		return
	}
	s.cfg.Strategy = s.decided
	pause, jitter, ok, why := s.cfg.Strategy.onFailure(s.now, f)
	if !ok {
		f.Detail = join(f.Detail, "No restart: "+why+".")
	}
	s.cause(*f)
	if s.pause, s.jitter = pause, jitter; !ok {
		s.giveUp(f)
	}
}

// giveUp ends a job that is restarting: f says that it is no use to go on.
func (s *Scheduler) giveUp(f *Failure) {
	if s.state != JobRestarting {
		return
	}
	s.root = f
	s.setJob(JobFailing)
	if s.spares() {
		s.endAll("the job fails: " + f.Message)
	}
	if s.phase == phaseIdle {
		s.phase = phaseEnding
	}
	s.checkEnd()
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

func (s *Scheduler) cancel() {
	switch s.state {
	case JobInitializing:
		s.setJob(JobCanceled)
		s.emit(Ended{JobCanceled, nil})
		return
	case JobFailing, JobCancelling:
		return
	}
	s.setJob(JobCancelling)
	if s.phase != phaseEnding || s.spares() {
		s.endAll("the job is cancelled")
	}
	s.checkEnd()
}

// endAll begins the end of all tasks.
func (s *Scheduler) endAll(reason string) {
	for _, st := range s.stages {
		st.ending = true
	}
	s.end(reason)
}

// end begins the end of the tasks of stages that are ending.
func (s *Scheduler) end(reason string) {
	s.phase = phaseEnding
	s.emit(StopCheckpoints{Reason: reason, Part: !s.batch && s.goesOn()})
	c := CancelTasks{Attempt: s.attempt}
	s.each(func(x *Execution) {
		if !s.byID[x.ID.Vertex].stage.ending {
			return
		}
		switch x.State {
		case TaskCreated, TaskScheduled:
			s.setTask(x, TaskCanceled)
		case TaskDeploying, TaskInitializing, TaskRunning:
			s.setTask(x, TaskCanceling)
			c.IDs = append(c.IDs, x.ID)
		}
	})
	if len(c.IDs) > 0 {
		s.emit(c)
	}
}

func (s *Scheduler) kill(ids []graph.ExecutionID) {
	var k KillWorkers
	s.each(func(x *Execution) {
		if x.State == TaskCanceling && (ids == nil || slices.Contains(ids, x.ID)) && !slices.Contains(k.TaskManagers, x.Slot.TaskManager) {
			k.TaskManagers = append(k.TaskManagers, x.Slot.TaskManager)
		}
	})
	if len(k.TaskManagers) > 0 {
		s.emit(k)
	}
}

// checkEnd goes on when every task of the attempt has ended.
func (s *Scheduler) checkEnd() {
	if s.state.Terminal() || !s.all(func(x *Execution) bool {
		return x.State.Terminal() || s.state == JobRestarting && !s.byID[x.ID.Vertex].stage.ending
	}) {
		return
	}
	s.tell()
	switch {
	case s.phase == phaseActive && s.state == JobRunning:
		if s.all(func(x *Execution) bool { return x.State == TaskFinished }) {
			s.conclude(JobFinished)
		}
	case s.phase == phaseEnding && s.state == JobCancelling:
		s.conclude(JobCanceled)
	case s.phase == phaseEnding && s.state == JobFailing:
		s.conclude(JobFailed)
	case s.phase == phaseEnding && s.state == JobRestarting:
		s.phase = phaseIdle
		if s.scale.to != nil {
			s.restart()
			return
		}
		s.emit(s.cfg.Strategy.restart(s.attempt, s.pause, s.jitter))
	}
}

func (s *Scheduler) conclude(state JobState) {
	s.setJob(state)
	s.emit(RequireSlots{})
	e := Ended{State: state}
	if state == JobFailed {
		e.Failure = s.root
	}
	s.emit(e)
}
