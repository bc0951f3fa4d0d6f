// Package coordinator decides when checkpoints are taken and what becomes of them. It is layer L2 (imports checkpoint/{metadata,storage},
// runtime/graph). Coordinator is a pure core: no goroutine, clock, I/O or randomness. The job's main loop feeds it events and carries out
// the effects it returns, in order; Runner does the file work of WriteMetadata, StorePointer, Discard and Sweep.
//
// The life of a checkpoint:
//
//	trigger > SnapshotCoordinators > CoordinatorSnapshot > TriggerTasks > Ack of every task > WriteMetadata > MetadataWritten
//	  > StorePointer > PointerStored > NotifyComplete, Discard of what it subsumes
//
// A savepoint skips StorePointer and NotifyComplete; a stop-with-savepoint does not, and ends with FinishTasks.
//
// Invariants:
//
//  1. NotifyComplete(n) comes only after the metadata of n and the pointer to n are durable.
//  2. At most one checkpoint is pending; numbers grow strictly, over restarts and application attempts (Config.FirstID).
//  3. Every pending checkpoint ends, completed or aborted, exactly once. From StorePointer on it can no longer be aborted.
//  4. A file that a retained checkpoint refers to is never discarded.
//  5. An acknowledgement counts once, from the execution attempt that was triggered, for the pending checkpoint; others are dropped, and
//     the files that they brought are discarded.
package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/checkpoint/storage/shared"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// Errors that Finished carries, wrapped.
var (
	ErrNotRunning = errors.New("not all tasks of the job are running")
	ErrStopping   = errors.New("the job is being stopped with a savepoint")
	ErrExpired    = errors.New("the checkpoint took longer than execution.checkpointing.timeout")
	ErrRestarting = errors.New("the job restarts")
	ErrEnded      = errors.New("the job has ended")
	ErrTooMany    = errors.New("too many requests are waiting")
)

const (
	maxQueued = 1000 // Source: Flink CheckpointRequestDecider.DEFAULT_MAX_QUEUED_REQUESTS
	// sweepDelay is how long after an abort leftovers are looked for: tasks that were writing have noticed by then.
	sweepDelay = 20 * time.Second
	// reserveBatch is how many numbers one ReserveIDs takes, so that a row of failures does not reserve each time.
	reserveBatch = 8
)

type phase int

const (
	snapshotting phase = iota // waiting for CoordinatorSnapshot
	acking                    // waiting for tasks
	writing                   // waiting for MetadataWritten
	pointing                  // waiting for PointerStored; cannot be aborted
)

// pending is the checkpoint in progress.
type pending struct {
	id        int64
	kind      Kind
	requestID string
	dir       string
	canonical bool
	drain     bool
	trigger   time.Time
	phase     phase
	tasks     []Task
	waiting   map[graph.ExecutionID]struct{}
	acks      map[graph.ExecutionID]metadata.Task
	coord     map[graph.OperatorID][]byte
	tasksGone bool // the job restarted while the pointer was being stored
	stats     *Details
	content   metadata.Checkpoint
	shared    []string // URIs
	exclusive []string // URIs
}

func (p *pending) savepoint() bool { return p.kind == Savepoint || p.kind == StopWithSavepoint }

// Coordinator is the pure core. Not safe for concurrent use.
type Coordinator struct {
	cfg      Config
	vertices map[graph.VertexID]*graph.Vertex
	hasCoord bool

	now     time.Time
	effects []Effect

	running      bool
	tasks        []Task
	nextID       int64
	reserved     int64
	reserving    bool
	nextPeriodic time.Time // zero: none scheduled
	lastComplete time.Time
	queue        []Trigger
	pending      *pending
	failures     int
	endOfData    bool
	finalTried   bool // a final checkpoint failed; the next one waits for the interval
	finished     bool // FinishTasks was sent
	stopping     bool // a stop-with-savepoint was accepted and has not failed
	ended        bool
	fenced       bool
	sweepAt      time.Time

	retained []*Completed
	registry shared.Registry
	aborted  map[int64]string  // directories of aborted checkpoints, for late acknowledgements
	doomed   map[int64]Discard // aborted while metadata was being written: discard when the write has ended
	stats    statistics
}

// New returns a coordinator that waits for TasksRunning. Errors: a configuration without directory.
func New(cfg Config) (*Coordinator, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	c := &Coordinator{cfg: cfg, vertices: map[graph.VertexID]*graph.Vertex{}, nextID: cfg.FirstID, reserved: cfg.ReservedID,
		aborted: map[int64]string{}, doomed: map[int64]Discard{}}
	for i := range cfg.Graph.Vertices {
		v := &cfg.Graph.Vertices[i]
		c.vertices[v.ID] = v
		for _, o := range v.Operators {
			c.hasCoord = c.hasCoord || o.Coordinate
		}
	}
	c.stats.limit = cfg.History
	for _, e := range cfg.Existing {
		e.Dir = storage.DirOf(e.Dir)
		sharedFiles, exclusive, err := classify(e.Dir, &e.Checkpoint)
		if err != nil {
			return nil, fmt.Errorf("coordinator: checkpoint %d: %w", e.ID, err)
		}
		if e.Owned {
			c.registry.Register(e.ID, sharedFiles)
			e.exclusive = exclusive
		}
		c.retained = append(c.retained, &e) // surplus ones go when the next one completes
	}
	for i := range len(c.retained) - 1 {
		c.retained[i].Checkpoint = metadata.Checkpoint{}
	}
	if len(cfg.Existing) > 0 {
		e := &cfg.Existing[len(cfg.Existing)-1]
		c.stats.restored(e.ID, storage.DirOf(e.Dir), e.savepoint(), time.Time{})
	}
	return c, nil
}

// Step applies ev, which happened at the time at, and returns what the shell must do, in order. It never blocks and reads no clock.
//
// The caller owns the returned slice. Slices and maps inside of events belong to the coordinator from then on; those inside of effects
// are read-only.
// Source: Flink 2.x CheckpointCoordinator, PendingCheckpoint, CheckpointRequestDecider, CheckpointFailureManager.
func (c *Coordinator) Step(at time.Time, ev Event) []Effect {
	if at.After(c.now) {
		c.now = at
	}
	c.effects = nil
	switch ev := ev.(type) {
	case Tick:
	case TasksRunning:
		c.tasksRunning(ev)
	case Trigger:
		c.request(ev)
	case CoordinatorSnapshot:
		c.coordinatorSnapshot(ev)
	case Ack:
		c.ack(ev)
	case Decline:
		c.decline(ev)
	case JobRestarting:
		c.restarting(ev.Reason)
	case RestoredFrom:
		if l, ok := c.Latest(); ok && l.ID == ev.ID {
			c.stats.restored(l.ID, l.Dir, l.savepoint(), c.now)
		}
	case MetadataWritten:
		c.metadataWritten(ev)
	case PointerStored:
		c.pointerStored(ev)
	case IDsReserved:
		c.idsReserved(ev)
	case EndOfData:
		c.endOfData = c.running
	case JobEnded:
		c.jobEnded(ev.State)
	}
	c.advance()
	return c.effects
}

func (c *Coordinator) emit(e Effect) { c.effects = append(c.effects, e) }

// Latest is what a restart restores: the last completed checkpoint or stop-with-savepoint, else what the job was started from; ok is
// false when there is none. Call it only when Settled. The content is read-only.
func (c *Coordinator) Latest() (latest Completed, ok bool) {
	if len(c.retained) == 0 {
		return Completed{}, false
	}
	return *c.retained[len(c.retained)-1], true
}

// Settled is false while the outcome of a StorePointer is open. A restart must wait for it (milliseconds): the pointer may already be
// the new one, and restoring an older checkpoint would then undo what is committed on recovery.
func (c *Coordinator) Settled() bool { return c.pending == nil || c.pending.phase != pointing }

// Retained lists the completed checkpoints that are kept, oldest first.
func (c *Coordinator) Retained() []Completed {
	out := make([]Completed, 0, len(c.retained))
	for _, r := range c.retained {
		out = append(out, *r)
	}
	return out
}

// Stats returns a copy of the statistics.
func (c *Coordinator) Stats() Stats { return c.stats.snapshot() }

// PendingID is the checkpoint in progress, 0 for none.
func (c *Coordinator) PendingID() int64 {
	if c.pending == nil {
		return 0
	}
	return c.pending.id
}

// Deadline is when the next Tick is due; ok is false when only events can change anything.
func (c *Coordinator) Deadline() (at time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if c.ended || c.fenced {
		return at, ok
	}
	if p := c.pending; p != nil {
		if p.phase != pointing {
			earliest(p.trigger.Add(c.cfg.Timeout))
		}
	} else if c.running && !c.stopping && !c.reserving && !c.finished {
		earliest(c.periodicAt())
	}
	earliest(c.sweepAt)
	return at, ok
}

// periodicAt is when the next periodic checkpoint may begin: at its time, but not before the minimal pause is over.
func (c *Coordinator) periodicAt() time.Time {
	if c.nextPeriodic.IsZero() {
		return time.Time{}
	}
	at := c.nextPeriodic
	if !c.lastComplete.IsZero() && at.Before(c.lastComplete.Add(c.cfg.MinPause)) {
		at = c.lastComplete.Add(c.cfg.MinPause)
	}
	return at
}

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
		c.emit(c.sweep())
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
		canonical: t.Canonical, drain: t.Drain, trigger: c.now, tasks: c.tasks,
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
		Suspend: p.kind == StopWithSavepoint, Drain: p.kind == StopWithSavepoint && p.drain}
	if p.savepoint() {
		o.SharedDir = p.dir
	}
	c.emit(TriggerTasks{ID: p.id, Timestamp: p.trigger, Tasks: sources, Options: o})
	if len(p.waiting) == 0 {
		c.finalize(p)
	}
}

func (c *Coordinator) coordinatorSnapshot(ev CoordinatorSnapshot) {
	p := c.pending
	if p == nil || p.id != ev.ID || p.phase != snapshotting {
		return
	}
	if ev.Err != nil {
		c.abort(fmt.Errorf("snapshot of the coordinator process: %w", ev.Err), true)
		return
	}
	p.coord = ev.States
	c.triggerTasks(p)
}

func (c *Coordinator) ack(ev Ack) {
	p := c.pending
	if p == nil || p.id != ev.ID || p.phase != acking {
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
		c.abort(fmt.Errorf("acknowledgement of unknown vertex %s", ev.Execution.Vertex), true)
		return
	}
	for _, o := range ev.State.Operators {
		if !slices.ContainsFunc(v.Operators, func(g graph.Operator) bool { return g.ID == o.ID }) {
			c.abort(fmt.Errorf("vertex %q acknowledged state of operator %s, which it does not hold", v.Name, o.ID), true)
			return
		}
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
	if c.pending != nil && c.pending.id == ev.ID || slices.ContainsFunc(c.retained, func(r *Completed) bool { return r.ID == ev.ID }) {
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
	p := c.pending
	if p == nil || p.id != ev.ID || p.phase != acking && p.phase != snapshotting {
		return
	}
	if !slices.ContainsFunc(p.tasks, func(t Task) bool { return t.Execution == ev.Execution }) {
		return
	}
	name := ev.Execution.Vertex.String()
	if v := c.vertices[ev.Execution.Vertex]; v != nil {
		name = fmt.Sprintf("%q", v.Name)
	}
	c.abort(fmt.Errorf("declined by task %s, subtask %d: %s", name, ev.Execution.Subtask, ev.Reason), !ev.TaskFailed)
}

func (c *Coordinator) restarting(reason string) {
	if c.ended {
		return
	}
	err := fmt.Errorf("%w: %s", ErrRestarting, reason)
	if reason == "" {
		err = ErrRestarting
	}
	c.running, c.tasks, c.nextPeriodic = false, nil, time.Time{}
	c.endOfData, c.finalTried, c.finished, c.stopping = false, false, false, false
	if p := c.pending; p != nil {
		if p.phase == pointing {
			p.tasksGone = true
		} else {
			c.abort(err, false)
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

// abort ends the pending checkpoint without result. Counts: it counts as a failure against the tolerable ones.
func (c *Coordinator) abort(err error, counts bool) {
	p := c.pending
	c.pending = nil
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
	c.emit(NotifyAborted{ID: p.id, Tasks: executions(p.tasks), Resume: p.kind == StopWithSavepoint && p.phase >= acking})
	c.answer(p.requestID, p.id, "", fmt.Errorf("coordinator: checkpoint %d: %w", p.id, err))

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
	switch p.phase {
	case snapshotting: // nobody wrote anything
	case writing:
		c.doomed[p.id] = d
	default:
		c.emit(d)
	}
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

// finalize is called when all tasks have acknowledged.
func (c *Coordinator) finalize(p *pending) {
	p.content = c.assemble(p)
	sharedFiles, exclusive, err := classify(p.dir, &p.content)
	if err == nil {
		err = c.checkFiles(p, sharedFiles)
	}
	if err != nil {
		c.abort(err, true)
		return
	}
	p.shared, p.exclusive = sharedFiles, exclusive
	p.phase = writing
	c.emit(WriteMetadata{ID: p.id, Dir: p.dir, Checkpoint: p.content, Deadline: p.trigger.Add(c.cfg.Timeout)})
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
		if n, known := storage.FileCheckpoint(f); known && n != p.id && !c.registry.Has(f) {
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
	p := c.pending
	if p == nil || p.id != ev.ID || p.phase != writing {
		return
	}
	if ev.Err != nil {
		p.phase = acking // the write has ended: discard at once
		c.abort(fmt.Errorf("write metadata: %w", ev.Err), true)
		return
	}
	p.stats.MetadataSize = ev.Size
	if p.kind == Savepoint {
		c.complete(p)
		return
	}
	p.phase = pointing
	c.emit(StorePointer{ID: p.id, Dir: p.dir})
}

func (c *Coordinator) pointerStored(ev PointerStored) {
	p := c.pending
	if p == nil || p.id != ev.ID || p.phase != pointing {
		return
	}
	if ev.Err != nil {
		p.phase = acking
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
	if c.pending != nil {
		c.abort(err, false)
	}
	c.dropQueue(err)
	c.emit(FailJob{Reason: err.Error(), Fenced: true})
}

// complete ends the pending checkpoint with success; everything about it is durable.
func (c *Coordinator) complete(p *pending) {
	c.pending = nil
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
	if !p.tasksGone && (p.kind == Final || p.kind == StopWithSavepoint) {
		c.finished = true
		c.emit(FinishTasks{Tasks: executions(p.tasks)})
	}
	c.retain(done)
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
	d.Files = append(d.Files, unused...)
	if c.own(r.Dir) {
		d.Dirs = append(d.Dirs, r.Dir)
		return
	}
	// A claimed directory that the user named: only what the checkpoint consists of.
	d.Files = append(d.Files, r.exclusive...)
	d.Files = append(d.Files, r.Dir+"/"+storage.MetadataName)
	d.EmptyDirs = append(d.EmptyDirs, r.Dir)
}

// own reports whether dir is a directory of this job.
func (c *Coordinator) own(dir string) bool {
	name, ok := strings.CutPrefix(dir, c.cfg.Dir+"/")
	return ok && !strings.Contains(name, "/")
}

func (c *Coordinator) sweep() Sweep {
	s := Sweep{Below: c.nextID}
	if c.pending != nil {
		s.Below = c.pending.id
	}
	for id := range c.doomed {
		s.Below = min(s.Below, id)
	}
	for _, r := range c.retained {
		s.Keep.Dirs = append(s.Keep.Dirs, r.Dir)
	}
	s.Keep.Files = c.registry.Files()
	return s
}

func (c *Coordinator) jobEnded(st EndState) {
	if c.ended {
		return
	}
	if c.pending != nil {
		c.abort(ErrEnded, false)
	}
	c.dropQueue(ErrEnded)
	c.ended, c.running = true, false
	if c.fenced || st == Suspended {
		return
	}
	keep := false
	switch st {
	case Canceled:
		keep = c.cfg.Retention == RetainOnCancellation
	case Failed:
		keep = c.cfg.Retention != NoRetention
	}
	if keep && len(c.retained) > 0 {
		c.emit(c.sweep())
		return
	}
	d := Discard{Reason: "the job has ended"}
	for _, r := range c.retained {
		c.drop(r, &d)
	}
	c.retained = nil
	d.Dirs = append(slices.DeleteFunc(d.Dirs, c.own), c.cfg.Dir)
	d.Files = slices.DeleteFunc(d.Files, func(f string) bool { return strings.HasPrefix(f, c.cfg.Dir+"/") })
	c.emit(d)
}

func executions(tasks []Task) []graph.ExecutionID {
	out := make([]graph.ExecutionID, len(tasks))
	for i, t := range tasks {
		out[i] = t.Execution
	}
	return out
}
