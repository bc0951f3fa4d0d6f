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
//  2. No checkpoint begins beside Config.MaxConcurrent that are pending; savepoints begin beside any (room says which may). Numbers grow
//     strictly, over restarts and application attempts (Config.FirstID).
//  3. Every pending checkpoint ends, completed or aborted, exactly once. From StorePointer on it can no longer be aborted.
//  4. Checkpoints complete in the order of their numbers: one that completes ends those before it that are pending (subsumed), savepoints
//     excepted, which are the user's. One thing at a time is written to the high-availability store, a pointer or reserved numbers.
//  5. A file that a retained checkpoint refers to is never discarded, nor one that a pending checkpoint may refer to (lent.go).
//  6. An acknowledgement counts once, from the execution attempt that was triggered, for the pending checkpoint; others are dropped, and
//     the files that they brought are discarded.
package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/checkpoint/storage/shared"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Errors that Finished carries, wrapped.
var (
	ErrNotRunning = errors.New("not all tasks of the job are running")
	ErrStopping   = errors.New("the job is being stopped with a savepoint")
	ErrExpired    = errors.New("the checkpoint took longer than execution.checkpointing.timeout")
	ErrRestarting = errors.New("the job restarts")
	ErrEnded      = errors.New("the job has ended")
	ErrTooMany    = errors.New("too many requests are waiting")
	ErrSubsumed   = errors.New("a newer checkpoint completed before it")
)

const (
	maxQueued = 1000 // Source: Flink CheckpointRequestDecider.DEFAULT_MAX_QUEUED_REQUESTS
	// sweepDelay is how long after an abort leftovers are looked for: tasks that were writing have noticed by then.
	sweepDelay = 20 * time.Second
	// savepointPatience is how long the metadata of a savepoint is tried to be written: while its folder, which may be anywhere, cannot be
	// reached, no checkpoint is taken. A name node fails over in less.
	savepointPatience = time.Minute
	// reserveBatch is how many numbers one ReserveIDs takes, so that a row of failures does not reserve each time.
	reserveBatch = 8
)

type phase int

const (
	snapshotting phase = iota // waiting for CoordinatorSnapshot
	acking                    // waiting for tasks
	writing                   // waiting for MetadataWritten
	written                   // waiting until its pointer can be stored
	pointing                  // waiting for PointerStored; cannot be aborted
)

// pending is a checkpoint in progress.
type pending struct {
	id        int64
	kind      Kind
	requestID string
	dir       string
	canonical bool
	drain     bool
	full      bool
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
	pending      []*pending // by rising number
	failures     int
	endOfData    bool
	finalTried   bool // a final checkpoint failed; the next one waits for the interval
	finished     bool // FinishTasks was sent
	stopping     bool // a stop-with-savepoint was accepted and has not failed
	ended        bool
	suspended    bool // it ended here, and another attempt goes on
	fenced       bool
	sweepAt      time.Time

	retained []*Completed
	registry shared.Registry
	lent     map[string]int64  // see lent.go
	aborted  map[int64]string  // directories of aborted checkpoints, for late acknowledgements
	doomed   map[int64]Discard // aborted while metadata was being written: discard when the write has ended
	spoilt   map[int64]string  // directories of aborted savepoints, which the next sweep removes once more
	stats    statistics
}

// New returns a coordinator that waits for TasksRunning. Errors: a configuration without directory.
func New(cfg Config) (*Coordinator, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	c := &Coordinator{cfg: cfg, vertices: map[graph.VertexID]*graph.Vertex{}, nextID: cfg.FirstID, reserved: cfg.ReservedID,
		lent: map[string]int64{}, aborted: map[int64]string{}, doomed: map[int64]Discard{}, spoilt: map[int64]string{}}
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
		c.restarting(ev)
	case Rescaled:
		c.rescaled(ev.Graph)
	case RestoredFrom:
		if l, ok := c.Latest(); ok && l.ID == ev.ID {
			c.stats.restored(l.ID, l.Dir, l.savepoint(), c.now)
		}
	case Adopted:
		c.stats.adopted(ev.Restored, c.retained, c.now)
	case FallBack:
		c.fallBack(ev)
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
func (c *Coordinator) Settled() bool { return c.pointing() == nil }

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

// Pending are the numbers of the checkpoints in progress, rising.
func (c *Coordinator) Pending() (ids []int64) {
	for _, p := range c.pending {
		ids = append(ids, p.id)
	}
	return ids
}

// find returns a checkpoint in progress, nil for others.
func (c *Coordinator) find(id int64) *pending {
	for _, p := range c.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}

// pointing is the checkpoint whose pointer is being stored, nil for none.
func (c *Coordinator) pointing() *pending {
	for _, p := range c.pending {
		if p.phase == pointing {
			return p
		}
	}
	return nil
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
	for _, p := range c.pending {
		if p.phase != pointing {
			earliest(p.trigger.Add(c.cfg.Timeout))
		}
	}
	if c.running && !c.stopping && !c.reserving && !c.finished && len(c.queue) == 0 && c.room(c.periodicKind()) {
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
