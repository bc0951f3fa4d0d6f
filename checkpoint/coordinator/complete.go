package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// finalize is called when all tasks have acknowledged.
func (c *Coordinator) finalize(p *pending) {
	p.content = c.assemble(p)
	sharedFiles, exclusive, err := classify(p.dir, &p.content)
	if err == nil {
		err = c.checkFiles(p, sharedFiles)
	}
	if err != nil {
		c.abort(p, err, true)
		return
	}
	p.shared, p.exclusive = sharedFiles, exclusive
	p.phase = writing
	deadline := p.trigger.Add(c.cfg.Timeout)
	if bound := c.now.Add(savepointPatience); p.savepoint() && bound.Before(deadline) {
		deadline = bound
	}
	c.emit(WriteMetadata{ID: p.id, Dir: p.dir, Checkpoint: p.content, Deadline: deadline})
}

// assemble puts the tasks' reports together by operator.
func (c *Coordinator) assemble(p *pending) metadata.Checkpoint {
	out := metadata.Checkpoint{ID: p.id, Savepoint: p.savepoint(), Canonical: p.canonical, Trigger: p.trigger.UTC().Truncate(time.Millisecond),
		JobID: c.cfg.JobID, JobName: c.cfg.Graph.Name, Product: c.cfg.Product, Config: c.cfg.Conf, Coordinators: p.coord}
	at := map[graph.OperatorID]int{}
	for i := range c.cfg.Graph.Vertices {
		v := &c.cfg.Graph.Vertices[i]
		for _, o := range v.Operators {
			at[o.ID] = len(out.Operators)
			out.Operators = append(out.Operators, metadata.Operator{ID: o.ID, UID: o.UID, Name: o.Name,
				Parallelism: v.Parallelism, MaxParallelism: v.MaxParallelism})
		}
	}
	for e, t := range p.acks {
		for _, o := range t.Operators {
			if len(o.State.Keyed) == 0 && len(o.State.Lists) == 0 {
				continue
			}
			o.State.Index = e.Subtask
			op := &out.Operators[at[o.ID]]
			op.Subtasks = append(op.Subtasks, o.State)
		}
	}
	for i := range out.Operators {
		slices.SortFunc(out.Operators[i].Subtasks, func(a, b metadata.Subtask) int { return a.Index - b.Index })
	}
	out.Exchanges = c.exchanges(p)
	return out
}

// classify lists the files that a checkpoint in dir refers to.
func classify(dir string, cp *metadata.Checkpoint) (sharedFiles, exclusive []string, err error) {
	cp.Refs(func(r *state.FileRef) {
		if r.Name == "" || err != nil {
			return
		}
		base := r.Base
		if base == "" {
			base = dir
		}
		uri, rerr := storage.Resolve(base, r.Name)
		if rerr != nil {
			err = fmt.Errorf("file %q: %w", r.Name, rerr)
			return
		}
		if r.Scope == state.Shared {
			sharedFiles = append(sharedFiles, uri)
		} else {
			exclusive = append(exclusive, uri)
		}
	})
	slices.Sort(sharedFiles)
	slices.Sort(exclusive)
	return slices.Compact(sharedFiles), slices.Compact(exclusive), err
}

// checkFiles refuses a checkpoint that would refer to files that are not there for good: shared ones that no retained checkpoint holds
// and that were not written for this one, and exclusive ones of other checkpoints.
func (c *Coordinator) checkFiles(p *pending, sharedFiles []string) (err error) {
	for _, f := range sharedFiles {
		if n, known := storage.FileCheckpoint(f); known && n != p.id && !c.registry.Has(f) && c.lent[f] == 0 {
			return fmt.Errorf("a task refers to %s of checkpoint %d, which is not retained", f, n)
		}
	}
	p.content.Refs(func(r *state.FileRef) {
		if r.Name == "" || err != nil {
			return
		}
		switch {
		case r.Scope == state.Exclusive && r.Base != "":
			err = fmt.Errorf("a task refers to %s, a file of its own of checkpoint %s", r.Name, r.Base)
		case r.Scope == state.Shared && p.full && !storage.OfCheckpoint(r.Name, p.id):
			err = fmt.Errorf("a task refers to %s of an earlier checkpoint in a full one", r.Name)
		case r.Scope == state.Shared && p.savepoint():
			err = fmt.Errorf("a task refers to the shared file %s in a savepoint, which must hold everything itself", r.Name)
		}
	})
	return err
}

func (c *Coordinator) metadataWritten(ev MetadataWritten) {
	if d, ok := c.doomed[ev.ID]; ok {
		delete(c.doomed, ev.ID)
		c.emit(d)
		return
	}
	p := c.find(ev.ID)
	if p == nil || p.phase != writing {
		return
	}
	p.phase = written // the write has ended: what is aborted now is discarded at once
	if ev.Err != nil {
		c.abort(p, fmt.Errorf("write metadata: %w", ev.Err), true)
		return
	}
	p.stats.MetadataSize = ev.Size
	if p.kind == Savepoint {
		c.complete(p)
	}
}

// point stores the pointer to the newest checkpoint that is written. It runs at the end of every step; pointers are stored one at a time, so
// that they never go back, and not while numbers are being reserved.
func (c *Coordinator) point() {
	if c.reserving || c.pointing() != nil {
		return
	}
	for _, p := range slices.Backward(c.pending) {
		if p.phase == written {
			p.phase = pointing
			c.emit(StorePointer{ID: p.id, Dir: p.dir})
			return
		}
	}
}

func (c *Coordinator) pointerStored(ev PointerStored) {
	p := c.find(ev.ID)
	if p == nil || p.phase != pointing {
		return
	}
	if ev.Err != nil {
		p.phase = written
		c.fence(fmt.Errorf("store the pointer to checkpoint %d: %w", ev.ID, ev.Err))
		return
	}
	c.reserved = max(c.reserved, p.id+1)
	c.complete(p)
}

func (c *Coordinator) idsReserved(ev IDsReserved) {
	c.reserving = false
	if ev.Err != nil {
		c.fence(fmt.Errorf("reserve checkpoint numbers: %w", ev.Err))
		return
	}
	c.reserved = max(c.reserved, ev.UpTo)
}

// fence stops everything: another application attempt has taken over. Files of what was pending are this attempt's alone.
func (c *Coordinator) fence(err error) {
	c.fenced = true
	for _, p := range slices.Clone(c.pending) {
		c.abort(p, err, false)
	}
	c.dropQueue(err)
	c.emit(FailJob{Reason: err.Error(), Fenced: true})
}

// complete ends a pending checkpoint with success; everything about it is durable.
func (c *Coordinator) complete(p *pending) {
	c.pending = slices.DeleteFunc(c.pending, func(x *pending) bool { return x == p })
	c.lastComplete = c.now
	c.stats.complete(p.stats, c.now, p.dir)
	if p.kind == Savepoint {
		c.answer(p.requestID, p.id, p.dir, nil)
		return
	}
	c.failures = 0
	done := &Completed{ID: p.id, Kind: p.kind, Dir: p.dir, Owned: !p.savepoint(), Checkpoint: p.content.Clone(), exclusive: p.exclusive}
	done.Checkpoint.Refs(func(r *state.FileRef) {
		if r.Name != "" && r.Base == "" {
			r.Base = p.dir
		}
	})
	c.registry.Register(p.id, p.shared)
	if !p.tasksGone {
		c.emit(NotifyComplete{ID: p.id, Tasks: executions(p.tasks)})
	}
	var err error
	if p.tasksGone && p.kind == StopWithSavepoint {
		err = fmt.Errorf("coordinator: the savepoint is complete at %s, but %w before it could be stopped", p.dir, ErrRestarting)
	}
	c.answer(p.requestID, p.id, p.dir, err)
	c.subsume(p)
	if !p.tasksGone && (p.kind == Final || p.kind == StopWithSavepoint) {
		c.finished = true
		c.emit(FinishTasks{Tasks: executions(p.tasks)})
	}
	c.retain(done)
	c.settleLent()
}

// subsume ends the checkpoints that are pending before done, which holds all that they would. Whoever asked for one of them gets done instead,
// unless it was to be a full one.
func (c *Coordinator) subsume(done *pending) {
	for _, p := range slices.Clone(c.pending) {
		if p.id > done.id || p.kind == Savepoint {
			continue
		}
		if !p.full {
			c.answer(p.requestID, done.id, done.dir, nil)
			p.requestID = ""
		}
		c.abort(p, fmt.Errorf("%w: checkpoint %d", ErrSubsumed, done.id), false)
	}
}

// retain adds a completed checkpoint and discards those that it subsumes.
func (c *Coordinator) retain(done *Completed) {
	if n := len(c.retained); n > 0 {
		c.retained[n-1].Checkpoint = metadata.Checkpoint{} // only the latest keeps its content
	}
	c.retained = append(c.retained, done)
	d := Discard{Reason: fmt.Sprintf("subsumed by checkpoint %d", done.ID)}
	for len(c.retained) > c.cfg.Retained {
		c.drop(c.retained[0], &d)
		c.retained = c.retained[1:]
	}
	if len(d.Files)+len(d.Dirs) > 0 {
		c.emit(d)
	}
}

// drop adds what may be deleted with r to d. Savepoints and what belongs to the user stay.
func (c *Coordinator) drop(r *Completed, d *Discard) {
	unused := c.registry.Unregister(r.ID)
	if !r.Owned {
		return
	}
	c.stats.discarded(r.ID)
	d.Files = append(d.Files, c.lend(c.spared(unused))...)
	if c.own(r.Dir) {
		d.Dirs = append(d.Dirs, r.Dir)
		return
	}
	// A claimed directory that the user named: only what the checkpoint consists of.
	d.Files = append(d.Files, r.exclusive...)
	d.Files = append(d.Files, r.Dir+"/"+storage.MetadataName)
	for _, m := range c.cfg.Marks {
		if strings.HasPrefix(m, r.Dir+"/") {
			d.Files = append(d.Files, m)
		}
	}
	d.EmptyDirs = append(d.EmptyDirs, r.Dir)
}

// own reports whether dir is a directory of this job.
func (c *Coordinator) own(dir string) bool {
	name, ok := strings.CutPrefix(dir, c.cfg.Dir+"/")
	return ok && !strings.Contains(name, "/")
}

// sweep looks for leftovers; not while there is a checkpoint that could not be restored, and that somebody may mend.
func (c *Coordinator) sweep() {
	c.discardSpoilt()
	if c.cfg.Spare > 0 {
		return
	}
	s := Sweep{Below: c.nextID}
	if len(c.pending) > 0 {
		s.Below = c.pending[0].id
	}
	for id := range c.doomed {
		s.Below = min(s.Below, id)
	}
	for _, r := range c.retained {
		s.Keep.Dirs = append(s.Keep.Dirs, r.Dir)
	}
	s.Keep.Files = append(c.registry.Files(), slices.Sorted(maps.Keys(c.lent))...)
	c.emit(s)
}

// discardSpoilt removes what tasks wrote for aborted savepoints after their directories were removed: they had not heard of the abort yet. A sweep
// looks below the job's directory alone.
func (c *Coordinator) discardSpoilt() {
	d := Discard{Reason: "what aborted savepoints left"}
	for _, id := range slices.Sorted(maps.Keys(c.spoilt)) {
		if _, ok := c.doomed[id]; ok {
			continue // its metadata is still being written
		}
		d.Dirs = append(d.Dirs, c.spoilt[id])
		delete(c.spoilt, id)
	}
	if len(d.Dirs) > 0 {
		c.emit(d)
	}
}

// giveUpWrites ends the writes of metadata that were left to end by themselves: nobody will hear of it any more.
func (c *Coordinator) giveUpWrites() {
	for _, id := range slices.Sorted(maps.Keys(c.doomed)) {
		d := c.doomed[id]
		d.Written = id
		delete(c.doomed, id)
		c.emit(d)
	}
}

func (c *Coordinator) jobEnded(st EndState) {
	if c.ended {
		return
	}
	c.suspended = st == Suspended
	for _, p := range slices.Clone(c.pending) {
		c.abort(p, ErrEnded, false)
	}
	c.dropQueue(ErrEnded)
	c.ended, c.running = true, false
	if c.fenced || c.suspended {
		return
	}
	c.giveUpWrites()
	keep := false
	switch st {
	case Canceled:
		keep = c.cfg.Retention == RetainOnCancellation
	case Failed:
		keep = c.cfg.Retention != NoRetention
	}
	if keep && len(c.retained) > 0 {
		c.sweep()
		d := Discard{Reason: "the job has ended", Files: c.cfg.Marks}
		if !slices.ContainsFunc(c.retained, func(r *Completed) bool { return c.own(r.Dir) }) { // it started from elsewhere, and took none itself
			d.EmptyDirs = []string{storage.SharedDir(c.cfg.Dir), c.cfg.Dir}
		}
		if len(d.Files)+len(d.EmptyDirs) > 0 {
			c.emit(d)
		}
		return
	}
	c.discardSpoilt()
	d := Discard{Reason: "the job has ended"}
	for _, r := range c.retained {
		c.drop(r, &d)
	}
	c.retained = nil
	d.Dirs = append(slices.DeleteFunc(d.Dirs, c.own), c.cfg.Dir)
	d.Files = slices.DeleteFunc(append(d.Files, c.cfg.Marks...), func(f string) bool { return strings.HasPrefix(f, c.cfg.Dir+"/") })
	c.emit(d)
}
