package scheduler

import (
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// leaving is what is known of TaskManagers that the cluster will take away: a node that is decommissioned, a container that is preempted. The
// tasks there move before that, by a restart that was planned: as many slots as they use are wanted beside the others, then a checkpoint is
// taken, then the pipelines concerned begin again on the slots that stay. It counts neither as a failure nor as a restart. When the slots do
// not come, an adaptive job goes on with fewer half way to the end, and any other takes a checkpoint then, so that little is processed twice.
type leaving struct {
	until map[string]time.Time // by TaskManager; zero when nobody said when
	since time.Time            // of the last change
	base  int                  // slots that are wanted beside
	saved bool                 // a checkpoint was asked for since no slots came
	fewer bool                 // scaling.to has fewer subtasks, since slots leave
}

// leave notes which TaskManagers leave.
func (s *Scheduler) leave(until map[string]time.Time) {
	l := &s.scale.leaving
	if maps.Equal(l.until, until) {
		return
	}
	l.until, l.since, l.saved = maps.Clone(until), s.now, false
	if s.state == JobRunning || s.state == JobRestarting {
		s.requireSlots(l.base)
	}
}

func (s *Scheduler) leaves(p Slot) bool {
	_, ok := s.scale.leaving.until[p.TaskManager]
	return ok
}

// staying are the slots with live workers that do not leave.
func (s *Scheduler) staying() []Slot {
	if len(s.scale.leaving.until) == 0 {
		return s.scale.ready
	}
	return slices.DeleteFunc(slices.Clone(s.scale.ready), s.leaves)
}

// moving is how many slots are wanted in place of those that leave. A job in BATCH runs again what it loses.
func (s *Scheduler) moving() (n int) {
	slots := s.scale.ready
	if s.phase == phaseActive {
		slots = s.placed
	}
	for _, p := range slots {
		if !s.batch && s.leaves(p) {
			n++
		}
	}
	return n
}

// offered orders slots for a deployment: those that leave are taken only when there are not enough others.
func (s *Scheduler) offered(slots []Slot) []Slot {
	stay := slices.DeleteFunc(slices.Clone(slots), s.leaves)
	if len(stay) >= s.slots {
		return stay
	}
	for _, p := range slots {
		if s.leaves(p) {
			stay = append(stay, p)
		}
	}
	return stay
}

// concerned are the stages with tasks where TaskManagers leave, and the first time at which one will be gone, zero when nobody said.
func (s *Scheduler) concerned() (hit []*stage, until time.Time) {
	s.each(func(x *Execution) {
		if x.State.Terminal() || !s.leaves(x.Slot) {
			return
		}
		if st := s.byID[x.ID.Vertex].stage; !slices.Contains(hit, st) {
			hit = append(hit, st)
		}
		if u := s.scale.leaving.until[x.Slot.TaskManager]; !u.IsZero() && (until.IsZero() || u.Before(until)) {
			until = u
		}
	})
	return hit, until
}

// considerLeave moves tasks off TaskManagers that leave. It reports whether that is under way.
func (s *Scheduler) considerLeave(tick bool) bool {
	c := &s.scale
	if len(c.leaving.until) == 0 || s.cfg.Rescaling.Off {
		return false
	}
	hit, until := s.concerned()
	if len(hit) == 0 {
		return false
	}
	p, fewer := s.cfg.Graph.Parallelism(), false
	if stay := len(s.staying()); stay < s.slots {
		late := c.leaving.since.Add(until.Sub(c.leaving.since) / 2)
		switch {
		case until.IsZero():
			return false
		case s.now.Before(late):
			s.dueAt(late)
			return false
		}
		if p, fewer = c.req.fit(s.cfg.Graph, stay); c.former != nil { // another parallelism was asked for, and the present one holds until it is there
			fewer = false
		}
		if !fewer {
			if !c.leaving.saved && !c.trigger.on {
				c.leaving.saved = true
				s.emit(TriggerRescale{})
			}
			return false
		}
	}
	if !c.trigger.on {
		c.trigger = trigger{on: true, at: s.now}
		s.emit(TriggerRescale{})
	}
	c.trigger.leave = true
	limit := c.trigger.at.Add(s.cfg.Rescaling.MaxDelay)
	if soon := c.trigger.at.Add(until.Sub(c.trigger.at) * 3 / 4); !until.IsZero() && soon.Before(limit) {
		limit = soon
	}
	switch {
	case !s.awaitSave(limit):
	case !c.safe: // the job would begin anew
		c.trigger.at, c.trigger.failures, c.trigger.retry = s.now, 0, s.now.Add(retryPause)
		s.dueAt(c.trigger.retry)
	case !tick:
		s.dueAt(s.now)
	default:
		s.move(hit, p, fewer)
	}
	return true
}

// move ends the tasks of stages, or all when the parallelism changes, for an attempt on the slots that stay.
func (s *Scheduler) move(hit []*stage, p graph.Parallelism, fewer bool) {
	s.scale.trigger, s.scale.deadline = trigger{}, time.Time{}
	if !s.setJob(JobRestarting) {
		return
	}
	s.scale.to, s.scale.leaving.fewer = p, fewer
	if fewer || s.cfg.Full {
		hit = nil
	}
	s.again("tasks move off TaskManagers that will be taken away", hit...)
}

// vacate gives back the slots that leave, behind a deployment that has none of them.
func (s *Scheduler) vacate() {
	l := &s.scale.leaving
	if len(l.until) == 0 || s.batch || s.moving() > 0 {
		return
	}
	if stay := s.staying(); l.base >= len(s.scale.ready) && len(stay) < len(s.scale.ready) && len(stay) >= s.slots {
		s.requireSlotsOf(len(stay)) // more are wanted than there are: give back first, then ask
	}
	s.requireSlotsOf(l.base)
}
