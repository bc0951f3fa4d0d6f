package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func (c *Coordinator) coordinatorSnapshot(ev CoordinatorSnapshot) {
	p := c.find(ev.ID)
	if p == nil || p.phase != snapshotting {
		return
	}
	if ev.Err != nil {
		c.abort(p, fmt.Errorf("snapshot of the coordinator process: %w", ev.Err), true)
		return
	}
	p.coord = ev.States
	c.triggerTasks(p)
}

func (c *Coordinator) ack(ev Ack) {
	p := c.find(ev.ID)
	if p == nil || p.phase != acking {
		c.lateAck(ev)
		return
	}
	if _, ok := p.waiting[ev.Execution]; !ok {
		if _, dup := p.acks[ev.Execution]; !dup {
			c.discardAck(ev, p.dir) // of an attempt that was replaced
		}
		return
	}
	v := c.vertices[ev.Execution.Vertex]
	if v == nil {
		c.abort(p, fmt.Errorf("acknowledgement of unknown vertex %s", ev.Execution.Vertex), true)
		return
	}
	for _, o := range ev.State.Operators {
		if !slices.ContainsFunc(v.Operators, func(g graph.Operator) bool { return g.ID == o.ID }) {
			c.abort(p, fmt.Errorf("vertex %q acknowledged state of operator %s, which it does not hold", v.Name, o.ID), true)
			return
		}
	}
	if err := c.checkInFlight(v, ev.State); err != nil {
		c.abort(p, err, true)
		return
	}
	delete(p.waiting, ev.Execution)
	p.acks[ev.Execution] = ev.State
	p.stats.ack(ev, c.now)
	if len(p.waiting) == 0 {
		c.finalize(p)
	}
}

// lateAck drops an acknowledgement of a checkpoint that is not waiting for any, and its files with it unless they are in use.
func (c *Coordinator) lateAck(ev Ack) {
	if c.find(ev.ID) != nil || slices.ContainsFunc(c.retained, func(r *Completed) bool { return r.ID == ev.ID }) {
		return
	}
	if dir, ok := c.aborted[ev.ID]; ok {
		c.discardAck(ev, dir)
	}
}

func (c *Coordinator) discardAck(ev Ack, dir string) {
	d := Discard{Reason: fmt.Sprintf("late acknowledgement of checkpoint %d by %s", ev.ID, ev.Execution)}
	ev.State.Refs(func(r *state.FileRef) {
		if uri, ok := c.ownNewFile(ev.ID, dir, r); ok {
			d.Files = append(d.Files, uri)
		}
	})
	if len(d.Files) > 0 {
		slices.Sort(d.Files)
		d.Files = slices.Compact(d.Files)
		c.emit(d)
	}
}

// ownNewFile resolves a file that was written for checkpoint id and that nothing retained refers to.
func (c *Coordinator) ownNewFile(id int64, dir string, r *state.FileRef) (uri string, ok bool) {
	if r.Name == "" || r.Base != "" {
		return "", false
	}
	uri, err := storage.Resolve(dir, r.Name)
	if err != nil || c.registry.Has(uri) {
		return "", false
	}
	if r.Scope == state.Shared {
		if n, known := storage.FileCheckpoint(r.Name); !known || n != id {
			return "", false
		}
	}
	return uri, true
}

func (c *Coordinator) decline(ev Decline) {
	p := c.find(ev.ID)
	if p == nil || p.phase != acking && p.phase != snapshotting {
		return
	}
	if !slices.ContainsFunc(p.tasks, func(t Task) bool { return t.Execution == ev.Execution }) {
		return
	}
	name := ev.Execution.Vertex.String()
	if v := c.vertices[ev.Execution.Vertex]; v != nil {
		name = fmt.Sprintf("%q", v.Name)
	}
	c.abort(p, fmt.Errorf("declined by task %s, subtask %d: %s", name, ev.Execution.Subtask, ev.Reason), !ev.TaskFailed)
}

func (c *Coordinator) restarting(ev JobRestarting) {
	if c.ended {
		return
	}
	err := fmt.Errorf("%w: %s", ErrRestarting, ev.Reason)
	if ev.Reason == "" {
		err = ErrRestarting
	}
	c.running, c.tasks, c.nextPeriodic = false, nil, time.Time{}
	c.endOfData, c.finalTried, c.finished, c.stopping = false, false, false, false
	for _, p := range slices.Clone(c.pending) {
		if p.phase == pointing {
			p.tasksGone = p.tasksGone || !ev.Part
		} else {
			c.abort(p, err, false)
		}
	}
	c.dropQueue(err)
	c.sweepSoon()
}

func (c *Coordinator) dropQueue(err error) {
	for _, t := range c.queue {
		c.answer(t.RequestID, 0, "", fmt.Errorf("coordinator: trigger: %w", err))
	}
	c.queue = nil
}

func (c *Coordinator) sweepSoon() {
	if c.sweepAt.IsZero() {
		c.sweepAt = c.now.Add(sweepDelay)
	}
}

// abort ends a pending checkpoint without result. Counts: it counts as a failure against the tolerable ones.
func (c *Coordinator) abort(p *pending, err error, counts bool) {
	c.pending = slices.DeleteFunc(c.pending, func(x *pending) bool { return x == p })
	c.stats.fail(p.stats, c.now, err)
	c.aborted[p.id] = p.dir
	for id := range c.aborted {
		if id < p.id-100 {
			delete(c.aborted, id)
		}
	}
	if p.kind == StopWithSavepoint {
		c.stopping = false
	}
	if p.kind == Final {
		c.finalTried = true
	}
	c.emit(NotifyAborted{ID: p.id, Reason: err.Error(), Tasks: executions(p.tasks), Resume: p.kind == StopWithSavepoint && p.phase >= acking,
		Restarts: errors.Is(err, ErrRestarting)})
	c.answer(p.requestID, p.id, "", fmt.Errorf("coordinator: checkpoint %d: %w", p.id, err))
	c.discardAborted(p)
	c.sweepSoon()

	if !counts || p.savepoint() {
		return
	}
	c.failures++
	if c.failures > c.cfg.Tolerable {
		c.emit(FailJob{Reason: fmt.Sprintf("checkpoint %d failed, %d in a row, execution.checkpointing.tolerable-failed-checkpoints is %d: %v",
			p.id, c.failures, c.cfg.Tolerable, err)})
		c.failures = 0
		c.running, c.nextPeriodic = false, time.Time{} // until the restart
		c.dropQueue(ErrNotRunning)
	}
}

// discardAborted removes what tasks wrote for a checkpoint that was aborted.
func (c *Coordinator) discardAborted(p *pending) {
	d := Discard{Reason: fmt.Sprintf("checkpoint %d was aborted", p.id)}
	whole := c.own(p.dir) || storage.IsSavepointDir(p.dir) // made for this one: nothing of anybody else is in there
	if whole {
		d.Dirs = []string{p.dir}
	} else {
		d.EmptyDirs = []string{p.dir}
	}
	for _, t := range p.acks {
		t.Refs(func(r *state.FileRef) {
			if uri, ok := c.ownNewFile(p.id, p.dir, r); ok && (!whole || r.Scope == state.Shared) {
				d.Files = append(d.Files, uri)
			}
		})
	}
	slices.Sort(d.Files)
	d.Files = slices.Compact(d.Files)
	if whole && !c.own(p.dir) && p.phase != snapshotting {
		c.spoilt[p.id] = p.dir
	}
	switch {
	case p.phase == snapshotting: // nobody wrote anything
	case p.phase == writing:
		c.doomed[p.id] = d
	case p.phase == pointing && (c.fenced || c.suspended): // what the next attempt restores, if the pointer was stored
	default:
		c.emit(d)
	}
	c.settleLent()
}
