package coordinator

import (
	"errors"
	"fmt"
	"slices"
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
	for _, p := range slices.Clone(c.pending) {
		if p.phase != pointing && !c.now.Before(p.trigger.Add(c.cfg.Timeout)) {
			c.abort(p, fmt.Errorf("%w (%v); %d of %d tasks had answered", ErrExpired, c.cfg.Timeout, len(p.acks), len(p.tasks)), true)
		}
	}
	if !c.sweepAt.IsZero() && !c.now.Before(c.sweepAt) {
		c.sweepAt = time.Time{}
		c.sweep()
	}
	c.point()
	for c.running && !c.finished && !c.reserving {
		t, queued, ok := c.next()
		if !ok {
			return
		}
		if c.nextID > c.reserved {
			// Take the request up again when the numbers are reserved.
			c.reserving = true
			c.emit(ReserveIDs{UpTo: c.nextID + reserveBatch - 1})
			return
		}
		if queued >= 0 {
			c.queue = slices.Delete(c.queue, queued, queued+1)
		}
		c.start(t)
	}
}

// room reports whether a checkpoint of a kind may begin beside those that are pending.
//
// One is triggered at a time. Savepoints do not wait for the others, unless barriers may overtake: then there is one of either, since
// nothing tells apart what two of them find under way. Checkpoints wait for savepoints as for each other. Nothing begins behind a final checkpoint or a stop-with-savepoint, and these begin
// when no savepoint is pending, which the end of the tasks would cut off.
//
// Source: Flink CheckpointRequestDecider; its documentation on unaligned checkpoints, limitations.
func (c *Coordinator) room(k Kind) bool {
	savepoints := 0
	for _, p := range c.pending {
		if p.phase == snapshotting || p.kind == Final || p.kind == StopWithSavepoint {
			return false
		}
		if p.kind == Savepoint {
			savepoints++
		}
	}
	switch {
	case c.nextID > c.reserved && c.pointing() != nil: // one write to the store at a time
		return false
	case c.cfg.Unaligned:
		return len(c.pending) == 0
	case k == Savepoint:
		return true
	case k == StopWithSavepoint:
		return savepoints == 0
	case k == Final && savepoints > 0:
		return false
	}
	return len(c.pending) < c.cfg.MaxConcurrent
}

// periodicKind is what the interval triggers now.
func (c *Coordinator) periodicKind() Kind {
	if c.endOfData {
		return Final
	}
	return Periodic
}

// next picks what to trigger now: requests in their order, which only savepoints need not keep, then the final checkpoint, then the
// periodic one. queued is the request's place in the queue, -1 for none.
func (c *Coordinator) next() (t Trigger, queued int, ok bool) {
	for i, t := range c.queue {
		if (i == 0 || t.Kind == Savepoint) && c.room(t.Kind) {
			return t, i, true
		}
	}
	if len(c.queue) > 0 || c.stopping {
		return Trigger{}, -1, false
	}
	if c.endOfData && c.cfg.Interval <= 0 {
		if len(c.pending) == 0 { // without checkpointing nothing waits for a final one
			c.finished = true
			c.emit(FinishTasks{Tasks: executions(c.tasks)})
		}
		return Trigger{}, -1, false
	}
	due, k := c.periodicAt(), c.periodicKind()
	isDue := !due.IsZero() && !c.now.Before(due)
	if !c.room(k) || !isDue && (k != Final || c.finalTried) {
		return Trigger{}, -1, false
	}
	return Trigger{Kind: k}, -1, true
}

func (c *Coordinator) start(t Trigger) {
	p := &pending{id: c.nextID, kind: t.Kind, requestID: t.RequestID, dir: storage.CheckpointDir(c.cfg.Dir, c.nextID),
		canonical: t.Canonical, drain: t.Drain, full: t.Full, trigger: c.now, tasks: c.tasks,
		waiting: map[graph.ExecutionID]struct{}{}, acks: map[graph.ExecutionID]metadata.Task{}}
	if p.savepoint() {
		p.dir = t.Dir
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
	c.pending = append(c.pending, p)
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
	if n := len(c.retained); n > 0 {
		o.Base = c.retained[n-1].ID
	}
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
