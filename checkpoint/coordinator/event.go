package coordinator

import (
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Kind says what a checkpoint is for.
type Kind int

const (
	// Periodic checkpoints are triggered by the interval.
	Periodic Kind = iota
	// Manual checkpoints are asked for; they are retained and subsumed like periodic ones.
	Manual
	// Savepoint belongs to the user: self-contained, never subsumed, never restored from automatically, and tasks are not notified
	// of it (side effects stay uncommitted until the next checkpoint). Source: Flink FLIP-203.
	Savepoint
	// StopWithSavepoint suspends the sources, commits side effects and ends the job.
	StopWithSavepoint
	// Final is the checkpoint that commits what bounded input left, once all tasks are at their end of data.
	Final
)

// Event is something that happened outside of the coordinator.
type Event interface{ event() }

type (
	// Tick is the passing of time. Send one at Coordinator.Deadline; more do no harm.
	Tick struct{}

	// TasksRunning tells that all tasks of the job run (after start and after every restart); checkpoints may begin.
	TasksRunning struct{ Tasks []Task }

	// Trigger asks for a checkpoint. The answer is one Finished with the same RequestID (none when it is empty).
	Trigger struct {
		RequestID string
		Kind      Kind
		// Dir is the URI of the savepoint's own directory (storage.NewSavepointDir); empty for checkpoints.
		Dir string
		// Canonical asks for the form that every backend reads, else it is the backend's own.
		Canonical bool
		// Drain, with StopWithSavepoint: emit the maximal watermark first, so that all windows and timers fire.
		Drain bool
		// Full, of a checkpoint: every file is written anew, and none of an earlier checkpoint is referred to.
		Full bool
	}

	// CoordinatorSnapshot answers SnapshotCoordinators. States is by operator.
	CoordinatorSnapshot struct {
		ID     int64
		States map[graph.OperatorID][]byte
		Err    error
	}

	// Ack is a task's report. State's files stand below the directories of the trigger.
	Ack struct {
		ID        int64
		Execution graph.ExecutionID
		State     metadata.Task
		Stats     TaskStats
	}

	// Decline says that a task cannot take part. TaskFailed: because the task itself is failing, which does not count against
	// execution.checkpointing.tolerable-failed-checkpoints.
	Decline struct {
		ID         int64
		Execution  graph.ExecutionID
		Reason     string
		TaskFailed bool
	}

	// JobRestarting tells that tasks fail or are being cancelled: whatever is pending is aborted. Wait for Settled before reading
	// Latest for the restore. Part: other tasks run on, and are notified if what is pending can no longer be aborted.
	JobRestarting struct {
		Reason string
		Part   bool
	}

	// RestoredFrom tells that a restart restores this checkpoint (statistics only).
	RestoredFrom struct{ ID int64 }

	// Adopted tells which checkpoint the tasks that an earlier JobMaster deployed were last restored from, kept or not (statistics only).
	Adopted struct{ Restored int64 }

	// MetadataWritten answers WriteMetadata.
	MetadataWritten struct {
		ID   int64
		Path string // URI of _metadata
		Size int64
		Err  error
	}

	// PointerStored answers StorePointer. Err means that the pointer was certainly not stored (superseded); an uncertain outcome is
	// retried by the shell until it is certain.
	PointerStored struct {
		ID  int64
		Err error
	}

	// IDsReserved answers ReserveIDs. Err as in PointerStored.
	IDsReserved struct {
		UpTo int64
		Err  error
	}

	// EndOfData tells that every task has processed all of its input.
	EndOfData struct{}

	// JobEnded tells the job's final state; stored checkpoints are kept or discarded by the retention policy. Send it only after
	// ha.Store.EndJob succeeded (except Suspended), so that a superseded attempt deletes nothing.
	JobEnded struct{ State EndState }
)

func (Tick) event()                {}
func (TasksRunning) event()        {}
func (Trigger) event()             {}
func (CoordinatorSnapshot) event() {}
func (Ack) event()                 {}
func (Decline) event()             {}
func (JobRestarting) event()       {}
func (RestoredFrom) event()        {}
func (Adopted) event()             {}
func (MetadataWritten) event()     {}
func (PointerStored) event()       {}
func (IDsReserved) event()         {}
func (EndOfData) event()           {}
func (JobEnded) event()            {}

// EndState is how a job ended.
type EndState int

const (
	FinishedOK EndState = iota
	Canceled
	Failed
	// Suspended: this application attempt ends, another one goes on with the job. Nothing is discarded.
	Suspended
)

// Task is a running task as the coordinator sees it.
type Task struct {
	Execution graph.ExecutionID
	// Source tasks get the trigger; the others get the barrier in band.
	Source bool
}

// TaskStats comes with an acknowledgement.
type TaskStats struct {
	Sync, Async, Alignment, StartDelay time.Duration
	Size, New                          int64 // bytes of state in all; bytes written for this checkpoint
	// Processed is how many bytes were read between the first barrier and the last, Persisted how many were under way and are in the
	// checkpoint, since barriers overtook them (Unaligned).
	Processed, Persisted int64
	Unaligned            bool
}

// Effect is something that the shell must do.
type Effect interface{ effect() }

type (
	// SnapshotCoordinators: ask the coordinator process for the state of operators' halves; answer with CoordinatorSnapshot.
	SnapshotCoordinators struct{ ID int64 }

	// TriggerTasks: send the trigger to the source tasks.
	TriggerTasks struct {
		ID        int64
		Timestamp time.Time
		Tasks     []graph.ExecutionID
		Options   Options
	}

	// WriteMetadata: store Checkpoint as Dir/_metadata; answer with MetadataWritten.
	WriteMetadata struct {
		ID         int64
		Dir        string
		Checkpoint metadata.Checkpoint
		Deadline   time.Time // no retry after it
	}

	// StorePointer: make the checkpoint the one that a new application attempt restores; answer with PointerStored.
	StorePointer struct {
		ID  int64
		Dir string // URI of the checkpoint's directory
	}

	// ReserveIDs: reserve checkpoint numbers durably (ha.Store.ReserveIDs); answer with IDsReserved. Happens after checkpoints were
	// aborted or savepoints taken, not in the normal course.
	ReserveIDs struct{ UpTo int64 }

	// NotifyComplete: tell all tasks and the coordinator process.
	NotifyComplete struct {
		ID    int64
		Tasks []graph.ExecutionID
	}

	// NotifyAborted: tell all tasks and the coordinator process. Resume: the aborted stop-with-savepoint had suspended the sources.
	// Restarts: only because the tasks fail or are being cancelled, which is told elsewhere.
	NotifyAborted struct {
		ID       int64
		Reason   string
		Tasks    []graph.ExecutionID
		Resume   bool
		Restarts bool
	}

	// FinishTasks: let all tasks end (after the notice of a final checkpoint or stop-with-savepoint).
	FinishTasks struct{ Tasks []graph.ExecutionID }

	// Discard: remove directories, then files. Failures are logged, not reported; Sweep finds what stays behind.
	Discard struct {
		Reason string
		Files  []string // URIs
		Dirs   []string // URIs, with everything below
		// EmptyDirs are removed only when nothing is left in them (directories that the user named).
		EmptyDirs []string
		// Written is a checkpoint whose metadata may still be being written there, 0 for none: that is given up, and has ended, before.
		Written int64
	}

	// Sweep: below the job's directory, remove what checkpoints with numbers below Below left and nothing retained refers to.
	Sweep struct {
		Below int64
		Keep  Keep
	}

	// FailJob: the job must fail (and restart by its strategy). Fenced: another application attempt has taken over; stop instead.
	FailJob struct {
		Reason string
		Fenced bool
	}

	// Finished answers a Trigger.
	Finished struct {
		RequestID string
		ID        int64
		Path      string // URI of the directory
		Err       error
	}
)

func (SnapshotCoordinators) effect() {}
func (TriggerTasks) effect()         {}
func (WriteMetadata) effect()        {}
func (StorePointer) effect()         {}
func (ReserveIDs) effect()           {}
func (NotifyComplete) effect()       {}
func (NotifyAborted) effect()        {}
func (FinishTasks) effect()          {}
func (Discard) effect()              {}
func (Sweep) effect()                {}
func (FailJob) effect()              {}
func (Finished) effect()             {}

// Options travel with the trigger to the tasks (pb.TriggerCheckpoint).
type Options struct {
	Savepoint    bool
	Canonical    bool
	ExclusiveDir string // URI
	SharedDir    string // URI; for a savepoint the same as ExclusiveDir
	Suspend      bool
	Drain        bool
	Full         bool
	// Base is the number of the latest completed checkpoint, 0 for none. A task may not have heard yet that it is complete.
	Base int64
}

// Keep names what a Sweep must leave alone, URIs.
type Keep struct {
	Dirs  []string
	Files []string
}
