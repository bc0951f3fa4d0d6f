package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Rescaling says when a job in STREAMING changes its parallelism. Source: Flink 2.x jobmanager.adaptive-scheduler.*, AdaptiveScheduler and
// DefaultStateTransitionManager. A change that somebody asked for does not wait for the cooldown here.
type Rescaling struct {
	// Wait is how long the job waits for all slots that it wants before it runs with fewer, negative for ever; Stabilization is how long
	// from when there are enough for the lower bounds.
	Wait, Stabilization time.Duration
	// Cooldown is the least time between two changes, ExecutingStabilization how long slots must stay as they are before the job takes them
	// though there are fewer than it wants.
	Cooldown, ExecutingStabilization time.Duration
	// Checkpoint: a checkpoint is taken for the change; else the next one is waited for. After MaxDelay, or MaxFailures failed ones, it
	// goes without.
	Checkpoint  bool
	MaxDelay    time.Duration
	MaxFailures int
	// Patience bounds the wait for slots when fewer than wanted are of no use (slot.request.timeout).
	Patience time.Duration
	// Off: the job takes no checkpoints, so that its parallelism cannot change while it runs.
	Off bool
	// Restored: it was started from a checkpoint or savepoint. A job without any does not go on without one of its own.
	Restored bool
}

// scaling is how the job's parallelism follows what is required and what slots there are.
type scaling struct {
	req     Requirements
	former  Requirements // what holds until the job runs as req says, or it turns out that it cannot; nil when req holds
	asked   time.Time    // when req came
	urgent  bool         // somebody asked: no cooldown
	ready   []Slot
	changed time.Time // of ready or req
	enough  time.Time // while preparing: since when there are slots for the lower bounds; zero when there are not
	since   time.Time // of the preparation
	widened time.Time // since when a preparation waited that was of a part of the job and becomes one of all
	last    time.Time // all tasks of an attempt began to run
	to      graph.Parallelism
	trigger trigger
	safe    bool // there is a checkpoint to go on from
	wanted  int  // slots, as RequireSlots said last
	count   int
	leaving leaving

	deadline time.Time
}

// Requirements are what was asked for last, Rescales counts changes of the parallelism, Pending reports whether one is on its way, and
// Rescaling whether the job is RESTARTING for one.
func (s *Scheduler) Requirements() Requirements { return s.scale.req }
func (s *Scheduler) Rescales() int              { return s.scale.count }
func (s *Scheduler) Pending() bool {
	return s.scale.former != nil || s.scale.to != nil || s.scale.trigger.on
}

func (s *Scheduler) Rescaling() bool { return s.scale.to != nil }

// Graph is the job's graph with the present parallelism. It is read-only.
func (s *Scheduler) Graph() *graph.JobGraph { return s.cfg.Graph }

// Deadline is when a Tick is due; ok is false for never.
func (s *Scheduler) Deadline() (at time.Time, ok bool) {
	return s.scale.deadline, !s.scale.deadline.IsZero()
}

// dueAt asks for a Tick.
func (s *Scheduler) dueAt(t time.Time) {
	if c := &s.scale; c.deadline.IsZero() || t.Before(c.deadline) {
		c.deadline = t
	}
}

// slotsReady notes what slots there are.
func (s *Scheduler) slotsReady(e SlotsReady) {
	if c := &s.scale; !slices.Equal(c.ready, e.Slots) {
		c.ready, c.changed = slices.Clone(e.Slots), s.now
	}
	s.leave(e.Leaving)
}

// require notes what somebody wants.
func (s *Scheduler) require(r Requirements) {
	c := &s.scale
	if s.batch || s.state == JobCancelling || s.state == JobFailing {
		return
	}
	if c.former == nil {
		c.former = c.req
	}
	c.req, c.asked, c.changed, c.urgent, c.trigger = r, s.now, s.now, true, trigger{}
	s.requireSlots(max(slotsOf(s.cfg.Graph, r.Upper()), s.slots))
}

// requireSlots declares how many slots are wanted, beside those that take the place of slots that leave.
func (s *Scheduler) requireSlots(n int) {
	s.scale.leaving.base = n
	s.requireSlotsOf(n + s.moving())
}

// requireSlotsOf declares how many slots are wanted; when that is fewer than there are, those of Keep are to stay.
func (s *Scheduler) requireSlotsOf(n int) {
	c := &s.scale
	if n == c.wanted {
		return
	}
	e := RequireSlots{N: n}
	if n < len(c.ready) {
		e.Keep = s.keep(n)
	}
	c.wanted = n
	s.emit(e)
}

// keep chooses n slots: those in use first, and among them those of the TaskManagers with most, so that others become idle as a whole.
func (s *Scheduler) keep(n int) []Slot {
	used := map[Slot]bool{}
	inUse, all := map[string]int{}, map[string]int{}
	for _, p := range s.placed {
		used[p] = true
		inUse[p.TaskManager]++
	}
	for _, r := range s.scale.ready {
		all[r.TaskManager]++
	}
	slots := slices.Clone(s.scale.ready)
	running := s.phase == phaseActive || s.goesOn()
	slices.SortStableFunc(slots, func(a, b Slot) int {
		first := 0
		if running && used[a] != used[b] {
			first = 1
			if used[a] {
				first = -1
			}
		}
		if first == 0 && s.leaves(a) != s.leaves(b) {
			first = -1
			if s.leaves(a) {
				first = 1
			}
		}
		return cmp.Or(first, cmp.Compare(inUse[b.TaskManager], inUse[a.TaskManager]), cmp.Compare(all[b.TaskManager], all[a.TaskManager]))
	})
	return slots[:min(n, len(slots))]
}

// consider goes on with what concerns the parallelism, after every event. What ends tasks happens on a Tick alone: other events come from
// the midst of the shell's work on checkpoints.
func (s *Scheduler) consider(tick bool) {
	s.scale.deadline = time.Time{}
	if s.batch {
		return
	}
	switch {
	case s.phase == phasePreparing:
		s.considerSlots(tick)
	case s.Ready() && s.state == JobRunning && s.stopping == stopNone && s.final == finalNone:
		s.considerRescale(tick)
	}
}

// considerSlots prepares with fewer slots when those that are missing do not come, or with what was asked for meanwhile.
func (s *Scheduler) considerSlots(tick bool) {
	c := &s.scale
	present := s.cfg.Graph.Parallelism()
	p, ok := c.req.fit(s.cfg.Graph, len(c.ready))
	if ok && !c.req.holds(present) {
		s.prepareWith(p, tick)
		return
	}
	if len(c.ready) >= s.slots {
		c.enough = time.Time{}
		return
	}
	if !ok {
		p, ok = s.inForce().fit(s.cfg.Graph, len(c.ready))
	}
	if !ok {
		c.enough = time.Time{}
		return
	}
	if c.enough.IsZero() {
		c.enough = s.now
	}
	at := c.enough.Add(s.cfg.Rescaling.Stabilization)
	if w := s.cfg.Rescaling.Wait; w >= 0 && c.since.Add(w).Before(at) {
		at = c.since.Add(w)
	}
	if s.now.Before(at) {
		s.dueAt(at)
		return
	}
	s.prepareWith(p, tick)
}

// inForce are the requirements that the present parallelism is after.
func (s *Scheduler) inForce() Requirements {
	if c := &s.scale; c.former != nil && !c.req.holds(s.cfg.Graph.Parallelism()) {
		return c.former
	}
	return s.scale.req
}

// prepareWith begins the preparation anew, with another parallelism. When that was of a part of the job, the others end first.
func (s *Scheduler) prepareWith(p graph.Parallelism, tick bool) {
	if s.goesOn() {
		s.widen(tick)
		return
	}
	s.each(func(x *Execution) { s.setTask(x, TaskCanceled) })
	since := s.scale.since
	s.attempt++
	s.resize(p)
	for _, st := range s.stages {
		s.newAttempt(st)
	}
	s.prepare(true, nil)
	s.scale.since = since
}

// resize changes the parallelism between two attempts.
func (s *Scheduler) resize(p graph.Parallelism) {
	c := &s.scale
	if !maps.Equal(p, s.cfg.Graph.Parallelism()) {
		s.cfg.Graph = s.cfg.Graph.With(p)
		for i := range s.cfg.Graph.Vertices {
			v := &s.cfg.Graph.Vertices[i]
			s.byID[v.ID].Spec = v
		}
		s.groups, s.slots = groupsOf(s.cfg.Graph, func(v *graph.Vertex) int { return v.Parallelism })
		c.count++
		s.emit(Rescaled{s.cfg.Graph, c.to != nil})
	}
	want := max(s.slots, slotsOf(s.cfg.Graph, s.inForce().Upper()))
	if c.former != nil {
		want = max(want, slotsOf(s.cfg.Graph, c.req.Upper()))
	}
	s.requireSlots(want)
}

// next is the parallelism of the next attempt. One that has lost slots waits for them first.
func (s *Scheduler) next() graph.Parallelism {
	c := &s.scale
	present := s.cfg.Graph.Parallelism()
	if c.to != nil && c.leaving.fewer && c.req.holds(c.to) {
		return c.to
	}
	p, ok := c.req.fit(s.cfg.Graph, len(c.ready))
	if ok && (!c.req.holds(present) || least(present, p)) {
		return p
	}
	return present
}

// least reports whether no vertex has fewer subtasks in q than in p.
func least(p, q graph.Parallelism) bool {
	for id, n := range p {
		if q[id] < n {
			return false
		}
	}
	return true
}

// patience is how long a preparation may wait for its slots.
func (s *Scheduler) patience() time.Duration {
	for _, b := range s.inForce() {
		if b.Lower < b.Upper {
			return s.cfg.Rescaling.Wait
		}
	}
	return s.cfg.Rescaling.Patience
}
