package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
)

func (c *Coordinator) tasksRunning(ev TasksRunning) {
	if c.ended || c.fenced {
		return
	}
	if c.cfg.FirstID > 1 && c.stats.counts.Total == 0 {
		c.sweepSoon() // what the last attempt had not come to remove
	}
	c.running, c.tasks = true, ev.Tasks
	c.endOfData, c.finalTried, c.finished, c.stopping = false, false, false, false
	if c.cfg.Interval > 0 {
		c.nextPeriodic = c.now.Add(c.cfg.Interval)
	}
}

func (c *Coordinator) request(t Trigger) {
	var err error
	switch {
	case c.ended, c.fenced:
		err = ErrEnded
	case !c.running || c.finished:
		err = ErrNotRunning
	case c.stopping:
		err = ErrStopping
	case len(c.queue) >= maxQueued:
		err = ErrTooMany
	case (t.Kind == Savepoint || t.Kind == StopWithSavepoint) && t.Dir == "":
		err = errors.New("no savepoint directory; give one or set execution.checkpointing.savepoint-dir")
	case t.Kind == Periodic || t.Kind == Final:
		err = errors.New("periodic and final checkpoints are triggered by the coordinator alone")
	}
	if err != nil {
		c.answer(t.RequestID, 0, "", fmt.Errorf("coordinator: trigger: %w", err))
		return
	}
	if t.Kind == StopWithSavepoint {
		c.stopping = true
	}
	c.queue = append(c.queue, t)
}

func (c *Coordinator) answer(request string, id int64, dir string, err error) {
	if request != "" {
		c.emit(Finished{RequestID: request, ID: id, Path: dir, Err: err})
	}
}

// advance does what time and free capacity allow. It runs at the end of every step.
func (c *Coordinator) advance() {
	if c.ended || c.fenced {
		return
	}
	if p := c.pending; p != nil && p.phase != pointing && !c.now.Before(p.trigger.Add(c.cfg.Timeout)) {
		c.abort(fmt.Errorf("%w (%v); %d of %d tasks had answered", ErrExpired, c.cfg.Timeout, len(p.acks), len(p.tasks)), true)
	}
	if !c.sweepAt.IsZero() && !c.now.Before(c.sweepAt) {
		c.sweepAt = time.Time{}
		c.sweep()
	}
	if c.pending != nil || !c.running || c.finished || c.reserving {
		return
	}
	t, ok := c.next()
	if !ok {
		return
	}
	if c.nextID > c.reserved {
		// Take the request up again when the numbers are reserved.
		c.reserving = true
		c.emit(ReserveIDs{UpTo: c.nextID + reserveBatch - 1})
		return
	}
	if len(c.queue) > 0 {
		c.queue = c.queue[1:]
	}
	c.start(t)
}

// next picks what to trigger now: requests in their order, then the final checkpoint, then the periodic one.
func (c *Coordinator) next() (Trigger, bool) {
	if len(c.queue) > 0 {
		return c.queue[0], true
	}
	if c.stopping {
		return Trigger{}, false
	}
	due := c.periodicAt()
	isDue := !due.IsZero() && !c.now.Before(due)
	switch {
	case c.endOfData && c.cfg.Interval <= 0:
		// Without checkpointing nothing waits for a final one.
		c.finished = true
		c.emit(FinishTasks{Tasks: executions(c.tasks)})
		return Trigger{}, false
	case c.endOfData && (!c.finalTried || isDue):
		return Trigger{Kind: Final}, true
	case isDue:
		return Trigger{Kind: Periodic}, true
	}
	return Trigger{}, false
}

func (c *Coordinator) start(t Trigger) {
	p := &pending{id: c.nextID, kind: t.Kind, requestID: t.RequestID, dir: storage.CheckpointDir(c.cfg.Dir, c.nextID),
		canonical: t.Canonical, drain: t.Drain, full: t.Full, trigger: c.now, tasks: c.tasks,
		waiting: map[graph.ExecutionID]struct{}{}, acks: map[graph.ExecutionID]metadata.Task{}}
	if p.savepoint() {
		p.dir, p.canonical = t.Dir, true
	}
	c.nextID++
	if t.Kind == Periodic || t.Kind == Final {
		if c.cfg.Interval > 0 {
			c.nextPeriodic = c.now.Add(c.cfg.Interval)
		}
	}
	for _, t := range c.tasks {
		p.waiting[t.Execution] = struct{}{}
	}
	p.stats = c.stats.begin(p)
	c.pending = p
	if c.hasCoord {
		c.emit(SnapshotCoordinators{ID: p.id})
		return
	}
	c.triggerTasks(p)
}

func (c *Coordinator) triggerTasks(p *pending) {
	p.phase = acking
	var sources []graph.ExecutionID
	for _, t := range p.tasks {
		if t.Source {
			sources = append(sources, t.Execution)
		}
	}
	o := Options{Savepoint: p.savepoint(), Canonical: p.canonical, ExclusiveDir: p.dir, SharedDir: storage.SharedDir(c.cfg.Dir),
		Suspend: p.kind == StopWithSavepoint, Drain: p.kind == StopWithSavepoint && p.drain, Full: p.full}
	if p.savepoint() {
		o.SharedDir = p.dir
	}
	c.emit(TriggerTasks{ID: p.id, Timestamp: p.trigger, Tasks: sources, Options: o})
	if len(p.waiting) == 0 {
		c.finalize(p)
	}
}

func executions(tasks []Task) []graph.ExecutionID {
	out := make([]graph.ExecutionID, len(tasks))
	for i, t := range tasks {
		out[i] = t.Execution
	}
	return out
}
