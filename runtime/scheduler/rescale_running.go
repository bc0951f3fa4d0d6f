package scheduler

import (
	"fmt"
	"maps"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// trigger is the wait for a checkpoint to change the parallelism from.
type trigger struct {
	on, saved bool
	leave     bool      // tasks move off what leaves
	at        time.Time // when it began
	retry     time.Time // zero: a checkpoint is being taken
	failures  int
}

// retryPause is the pause after a failed checkpoint.
const retryPause = time.Second

// considerRescale changes the parallelism of a running job.
func (s *Scheduler) considerRescale(tick bool) {
	c := &s.scale
	present := s.cfg.Graph.Parallelism()
	holds := c.req.holds(present)
	p, ok := c.req.fit(s.cfg.Graph, len(s.staying()))
	switch {
	case !ok || s.cfg.Rescaling.Off || holds && (maps.Equal(p, present) || !least(present, p)):
		if s.considerLeave(tick) {
			return
		}
		c.trigger = trigger{}
		switch until := c.changed.Add(s.cfg.Rescaling.ExecutingStabilization); {
		case c.former == nil:
		case !holds:
			s.considerPatience()
		case maps.Equal(present, c.req.Upper()) || !s.now.Before(until):
			s.reached()
		default: // it may run so; more slots may come
			s.dueAt(until)
		}
		return
	}
	if !c.trigger.on {
		at := s.now
		if !maps.Equal(p, c.req.Upper()) {
			at = c.changed.Add(s.cfg.Rescaling.ExecutingStabilization)
		}
		if cool := c.last.Add(s.cfg.Rescaling.Cooldown); !c.urgent && cool.After(at) {
			at = cool
		}
		if s.now.Before(at) {
			s.dueAt(at)
			return
		}
		c.trigger = trigger{on: true, at: s.now}
		s.save()
	}
	switch {
	case !s.awaitSave(c.trigger.at.Add(s.cfg.Rescaling.MaxDelay)):
	case !c.safe:
		s.unsafe()
	default:
		s.dueAt(s.now)
		if tick {
			s.rescale(p)
		}
	}
}

// awaitSave reports whether the wait of the trigger is over: its checkpoint was taken, or there is none to be had before the limit.
func (s *Scheduler) awaitSave(limit time.Time) bool {
	switch t := &s.scale.trigger; {
	case t.saved || t.failures >= s.cfg.Rescaling.MaxFailures || !s.now.Before(limit):
		return true
	case !t.retry.IsZero() && !s.now.Before(t.retry):
		t.retry = time.Time{}
		s.save()
	case !t.retry.IsZero():
		s.dueAt(t.retry)
	}
	s.dueAt(limit)
	return false
}

func (s *Scheduler) save() {
	if s.cfg.Rescaling.Checkpoint || s.scale.trigger.leave {
		s.emit(TriggerRescale{})
	}
}

// saved notes how the checkpoint of a TriggerRescale ended.
func (s *Scheduler) saved(ok bool) {
	t := &s.scale.trigger
	s.scale.safe = s.scale.safe || ok
	switch {
	case !t.on:
	case ok:
		t.saved = true
	default:
		t.failures++
		t.retry = s.now.Add(retryPause)
	}
}

// considerPatience gives up what was asked for when its slots do not come: the job goes on as before.
func (s *Scheduler) considerPatience() {
	c := &s.scale
	until := c.asked.Add(s.cfg.Rescaling.Patience)
	if s.now.Before(until) {
		s.dueAt(until)
		return
	}
	least, _ := groupsOf(s.cfg.Graph, func(v *graph.Vertex) int { return c.req[v.ID].Lower })
	need := 0
	for _, g := range least {
		need += g.size
	}
	s.withdraw(fmt.Sprintf("%d of %d slots within %s (slot.request.timeout)", len(c.ready), need, s.cfg.Rescaling.Patience), true)
}

// withdraw goes back to what was required before.
func (s *Scheduler) withdraw(why string, resources bool) {
	c := &s.scale
	c.req, c.former, c.urgent, c.changed, c.trigger = c.former, nil, false, s.now, trigger{}
	s.requireSlots(max(s.slots, slotsOf(s.cfg.Graph, c.req.Upper())))
	s.emit(RescaleEnded{Failure: why, Resources: resources, Requirements: c.req})
}

// unsafe: there is no checkpoint for a change of the parallelism, and none of before. The job would begin anew.
func (s *Scheduler) unsafe() {
	c := &s.scale
	if c.former != nil {
		s.withdraw("no checkpoint could be taken for it, and there is none of before", false)
		return
	}
	c.trigger, c.last = trigger{}, s.now // again after the cooldown
	s.dueAt(s.now.Add(s.cfg.Rescaling.Cooldown))
}

// reached: the job runs as was asked.
func (s *Scheduler) reached() {
	s.scale.former, s.scale.urgent = nil, false
	s.emit(RescaleEnded{Requirements: s.scale.req})
}

// rescale ends all tasks, for an attempt of another parallelism.
func (s *Scheduler) rescale(p graph.Parallelism) {
	s.scale.trigger = trigger{}
	s.scale.deadline = time.Time{}
	if !s.setJob(JobRestarting) {
		return
	}
	s.scale.to = p
	s.again("the job changes its parallelism")
}

// again ends the tasks of stages, or of all when none is given, of a job that restarts at once, without a failure.
func (s *Scheduler) again(reason string, stages ...*stage) {
	s.root, s.pause, s.jitter = nil, 0, 0
	s.hit(stages)
	s.end(reason)
	s.checkEnd()
}

// ran: all tasks of an attempt run.
func (s *Scheduler) ran() {
	c := &s.scale
	c.last, c.trigger = s.now, trigger{}
	if c.former != nil && maps.Equal(s.cfg.Graph.Parallelism(), c.req.Upper()) {
		s.reached()
	}
}
