// Package connector holds the public interfaces of sources and sinks. It is layer L1; connectors live in sub-packages, each with the
// dependencies it brings, and none of them imports stream: a source is connector.Source[T], which stream.Environment.FromSource takes.
//
// A source has two halves (the shape of Flink's FLIP-27). The Enumerator runs once per job in the coordinator process, finds splits
// and assigns them. Readers run in the source's subtasks, on the task's goroutine, and own the position inside of their splits: a
// reader's Snapshot is the only truth about what was read.
//
// Order guarantee: splits assigned before the enumerator's Snapshot of checkpoint n reach the reader before the reader's Snapshot of n;
// splits assigned after it reach the reader after it. So a split is in exactly one of the two at every checkpoint.
package connector

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
)

// NoTimestamp marks a record without an event time. All event times are milliseconds since the Unix epoch.
const NoTimestamp = int64(math.MinInt64)

// Boundedness says whether a source ends by itself.
type Boundedness int

const (
	Unbounded Boundedness = iota
	Bounded
)

// Split is a part of a source: an id that is stable over the life of the job and the source's own encoding of its position.
type Split struct {
	ID    string
	State []byte
}

// Status is what a Poll ended with.
type Status int

const (
	// MoreAvailable: call Poll again at once.
	MoreAvailable Status = iota
	// NothingAvailable: wait for Available.
	NothingAvailable
	// EndOfInput: every split is read to its end and no more will come.
	EndOfInput
)

// Source is a source of T. A Source value holds configuration only and is shared by all subtasks of a process.
type Source[T any] interface {
	Boundedness() Boundedness
	// Enumerator makes the enumerator of a new job (restored nil) or of one restored from a checkpoint; nil for a source whose readers make
	// their splits themselves.
	Enumerator(ctx EnumeratorContext, restored []byte) (Enumerator, error)
	Reader(ctx ReaderContext) (Reader[T], error)
}

// Validator is an optional part of sources and sinks: checks that need no connection, run when the graph is built. All faults at once.
type Validator interface{ Validate() error }

// Owner is an optional part of sinks: what belongs to one sink of a job alone, each as "the prefix ... of ...". A job with two sinks that own the
// same is refused when its graph is built.
type Owner interface{ Owns() []string }

// Preflight is an optional part of sources and sinks: checks against the external system (topic exists, transaction time-out within the
// broker's limit), run once in the coordinator before any task is deployed. An error fails the job without a restart.
type Preflight interface {
	Preflight(ctx context.Context, env PreflightContext) error
}

// PreflightContext tells a Preflight about the job.
type PreflightContext struct {
	Parallelism        int
	CheckpointInterval time.Duration // 0 when checkpoints are off
	CheckpointTimeout  time.Duration
	Logger             zerolog.Logger
	Files              *fs.Registry // the file systems that the job can use
	// Batch: the job runs in BATCH. There are no checkpoints; sinks commit once, at the end of their input.
	Batch bool
}

// Enumerator assigns splits. Its methods are called by one goroutine; none may block for long (use EnumeratorContext.Async).
type Enumerator interface {
	Start(ctx context.Context) error
	// AddReader tells that a subtask's reader is up (again).
	AddReader(subtask int)
	// AddSplitsBack returns splits that were assigned to a failed reader after the last completed checkpoint, which are then free again.
	// Nothing calls it today: when a reader fails, the enumerator is made again, too, from the same checkpoint.
	AddSplitsBack(splits []Split, subtask int)
	// HandleSplitRequest is called when a reader asks for a split (bounded, pull-style sources).
	HandleSplitRequest(subtask int)
	Snapshot(checkpointID int64) ([]byte, error)
	CheckpointComplete(checkpointID int64)
	Close() error
}

// EnumeratorContext is what an Enumerator may do. Its methods are called on the enumerator's goroutine only.
type EnumeratorContext interface {
	Parallelism() int
	// Readers lists the subtasks whose readers are up.
	Readers() []int
	// Assign gives splits to a subtask's reader. A split is that of one reader for as long as the enumerator lives, also when it was released.
	Assign(subtask int, splits ...Split)
	// NoMoreSplits tells a reader that it has all it will ever get.
	NoMoreSplits(subtask int)
	// Async runs work on another goroutine and then done on the enumerator's goroutine; a nil result of period 0 runs once, else
	// each period. It stops with the enumerator.
	Async(period time.Duration, work func(ctx context.Context) (any, error), done func(result any, err error))
	// SendEvent sends to a subtask's reader, which is an EventReader, in order with Assign and NoMoreSplits.
	SendEvent(subtask int, payload []byte)
	// Fail fails the job; err is not nil.
	Fail(err error)
	// Files are the file systems that the job can use.
	Files() *fs.Registry
	Logger() zerolog.Logger
}

// EventEnumerator is an optional part of an Enumerator: it takes what readers send by ReaderContext.SendEvent.
type EventEnumerator interface {
	HandleEvent(subtask int, payload []byte)
}

// ReaderContext is what a Reader gets.
type ReaderContext struct {
	Subtask     int
	Parallelism int
	// Restored is how many splits AddSplits brings right after Start, before any Poll: those of the checkpoint that the job starts from, which may be
	// several where the reader held one, since the parallelism may be another. A reader that asks for splits asks in Start when there are none.
	Restored int
	// RequestSplit asks the enumerator for a split.
	RequestSplit func()
	// SendEvent sends to the enumerator, which is an EventEnumerator, in order with RequestSplit.
	SendEvent func(payload []byte)
	// Files are the file systems that the job can use.
	Files   *fs.Registry
	Logger  zerolog.Logger
	Metrics Metrics
	// CheckpointingEnabled is false when the job takes no checkpoints.
	CheckpointingEnabled bool
}

// Reader reads splits. All methods run on the task's goroutine; Poll must not block (fetching happens elsewhere). A panic there fails the
// task. On a goroutine that a connector starts itself nobody else can recover: what may panic there must, or the process ends.
type Reader[T any] interface {
	Start(ctx context.Context) error
	AddSplits(splits []Split) error
	NoMoreSplits()
	// Poll emits at most max records to out: barriers, timers and the end of the task wait for it to return. (connectortest counts them, a job
	// does not.)
	Poll(out Output[T], max int) (Status, error)
	// Available returns a channel that receives (or is closed) when Poll may have something after NothingAvailable. The same
	// channel may be returned each time; spurious wake-ups are fine. It is for what the reader's own goroutines fetch: after a call of
	// AddSplits, NoMoreSplits or HandleEvent, Poll is called in any case.
	Available() <-chan struct{}
	// Snapshot returns the splits that the reader was given, with their positions, and no others; those that it released are over. One that emits
	// by Output.Collect alone need not release those that it has read to their ends.
	Snapshot(checkpointID int64) ([]Split, error)
	CheckpointComplete(ctx context.Context, checkpointID int64) error
	CheckpointAborted(checkpointID int64)
	Close() error
}

// EventReader is an optional part of a Reader: it takes what the enumerator sends by EnumeratorContext.SendEvent.
type EventReader interface {
	HandleEvent(payload []byte) error
}

// SplitPauser is an optional part of a Reader that can hold back some of its splits. Watermark alignment needs it of a reader with several
// splits. Source: FLIP-217.
type SplitPauser interface {
	// PauseSplits ends the records of the splits in pause, at the latest with the current Poll, and lets those in resume go on. While all of a
	// reader's splits are paused, Poll says NothingAvailable; resuming makes Available fire.
	PauseSplits(pause, resume []string)
}

// Positioner is an optional part of a Reader: where it reads, for errors.
type Positioner interface{ Position() string }

// Output receives a reader's records.
type Output[T any] interface {
	// Collect emits a record that belongs to no particular split. ts is the record's own event time or NoTimestamp.
	Collect(v T, ts int64) error
	// Split returns the output of one split, which has its own watermark; call it once per split and keep it.
	Split(id string) SplitOutput[T]
	// ReleaseSplit ends a split's part in the watermark: a split that is read to its end and not released holds it back.
	ReleaseSplit(id string)
}

// SplitOutput receives the records of one split. An error of Collect is one of what is behind the source: Poll returns it. The task fails
// though Poll does not, or recovers what panicked in Collect.
type SplitOutput[T any] interface {
	Collect(v T, ts int64) error
}

// BatchOutput is an optional part of a SplitOutput that takes several records of the split at once, in place: the way for wide records
// (more than four fields or 32 bytes, which Go copies through memory at each call), and the fastest for any. ts holds the records' own
// event times; nil when none has one. Both slices may be changed during the call and belong to the reader again afterwards.
type BatchOutput[T any] interface {
	CollectBatch(vs []T, ts []int64) error
}

// BatchWriter is an optional part of a SinkWriter, likewise; ts is nil when no record has an event time. The writer keeps neither slice.
type BatchWriter[T any] interface {
	WriteBatch(vs []T, ts []int64) error
}

// Sink is a sink of T. A Sink value holds configuration only.
type Sink[T any] interface {
	// Writer makes the writer of a subtask. restored are the writer states of this operator from the checkpoint, redistributed
	// (nil in a new job; each state goes to exactly one subtask).
	Writer(ctx SinkContext, restored [][]byte) (SinkWriter[T], error)
}

// SinkContext is what a SinkWriter gets.
type SinkContext struct {
	Context     context.Context // the task's life
	Subtask     int
	Parallelism int
	Attempt     int // how many times the task was started in this job
	// RestoredCheckpoint is the id of the checkpoint that the job was restored from, 0 for none.
	RestoredCheckpoint int64
	// AllCommittables are the restored committables of all subtasks, so that a subtask that cleans up what a former run left
	// open can leave alone what a sibling is about to commit.
	AllCommittables [][]byte
	// JobID and OperatorID tell apart the sinks that write to one place. A job restored from a savepoint has another JobID.
	JobID, OperatorID string
	// Embedded says that the whole cluster runs in this process: the job ends with it.
	Embedded bool
	// Files are the file systems that the job can use.
	Files   *fs.Registry
	Logger  zerolog.Logger
	Metrics Metrics
	// CheckpointingEnabled is false when the job takes no checkpoints.
	CheckpointingEnabled bool
}

// SinkWriter writes records. All methods run on the task's goroutine.
type SinkWriter[T any] interface {
	// Write takes a record; ts is its event time in milliseconds, or NoTimestamp. Strings and byte slices inside may be views: they stay valid as
	// long as the writer holds them, and hold a whole network buffer.
	Write(v T, ts int64) error
	// Flush makes sure that everything written so far reached the external system; called at each checkpoint's barrier and at the
	// end of input.
	Flush(ctx context.Context, endOfInput bool) error
	// Snapshot returns the writer's state of a checkpoint; called after Flush (and after PrepareCommit).
	Snapshot(checkpointID int64) ([][]byte, error)
	Close() error
}

// CommittingSink is a Sink with a two-phase commit: what PrepareCommit returns is stored with the checkpoint and given to the
// Committer when the checkpoint is complete, or when the job is restored from it. Commit must be idempotent.
type CommittingSink[T any] interface {
	Sink[T]
	// Committer makes the committer of a subtask, never nil. It is made, and restored committables are committed, before Writer is called.
	Committer(ctx SinkContext) (Committer, error)
}

// CommittingWriter is the SinkWriter of a CommittingSink.
type CommittingWriter interface {
	// PrepareCommit ends the current transaction's input and returns what must be committed; called after Flush.
	PrepareCommit(checkpointID int64) ([][]byte, error)
	// Committed tells that the committables of a checkpoint were committed (their resources may be used again).
	Committed(checkpointID int64)
}

// Committer commits. Commit runs on a goroutine of its own, one call at a time, in checkpoint order.
type Committer interface {
	// Commit commits all of committables or returns an error that fails the task. retry says that they were restored: they may
	// have been committed before.
	Commit(ctx context.Context, committables [][]byte, retry bool) error
	Close() error
}

// ContractError says that a connector does not do what this package asks of it. No restart heals it.
type ContractError struct {
	Rule   string // its short name
	Detail string
}

func (e *ContractError) Error() string {
	return fmt.Sprintf("the connector violates its contract (rule %q): %s", e.Rule, e.Detail)
}

// Fatal tells the engine not to restart the job.
func (e *ContractError) Fatal() bool { return true }

// Metrics registers a connector's metrics under the operator's scope.
type Metrics interface {
	Counter(name string) Counter
	// Gauge registers a function that is called when metrics are collected, on another goroutine.
	Gauge(name string, fn func() float64)
}

// Counter is a monotonic count. Safe for concurrent use.
type Counter interface {
	Add(n int64)
}
