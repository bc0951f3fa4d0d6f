package scheduler

import (
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Slot is a place for one subtask of each vertex of a slot sharing group.
type Slot struct {
	TaskManager string
	Index       int
}

// Failure is why a task or the job failed.
type Failure struct {
	Message  string // root cause first, one line
	Detail   string // stack or chain
	Kind     string // as in the protocol: "error", "panic", "connection", "partition", "restore", ...; ours: "worker", "taskmanager", "checkpoint", "resources"
	Fatal    bool   // never followed by a restart
	Operator string
	// Death: a process died, so that waiting before the restart helps nobody.
	Death bool
	// Free: not the job's fault (preemption, decommissioned node): restarts do not count it.
	Free bool
	// Whole: all tasks restart, also those that have nothing to do with it: they will begin with another checkpoint.
	Whole bool
	// Lost is the task whose finished partition could not be read though its worker lives; zero for none. In BATCH its stage runs again.
	Lost graph.ExecutionID
	// Set by the scheduler.
	Task        string // "Map -> Sink (2/4)", "" for the whole job
	Execution   graph.ExecutionID
	TaskManager string
	At          time.Time
}

// explains reports whether f is the cause of root: tasks see a broken connection before the failure at its other end is known, be it the
// end of a process or a failure of the task there.
func (f *Failure) explains(root *Failure) bool {
	return root != nil && root.Kind == "connection" && f.Kind != "connection"
}

// Event is something that happened.
type Event interface{ event() }

// The events.
type (
	// Start begins the job.
	Start struct{}
	// Prepared answers Prepare: slots with live workers, a started coordinator process and the state to restore are all there.
	Prepared struct {
		Attempt int
		Slots   []Slot // at least as many as RequireSlots said
	}
	// TaskChanged is a report of a worker. EndOfData is RUNNING with all input processed. CANCELING with a Failure is of a task that has
	// failed and does not end: user code does not return.
	TaskChanged struct {
		ID        graph.ExecutionID
		State     TaskState
		EndOfData bool
		Failure   *Failure
	}
	// WorkerDown tells that a job's worker, or the TaskManager with it, is gone, and its tasks with it.
	WorkerDown struct {
		TaskManager string
		// Process: the worker's process died, the TaskManager lives.
		Process bool
		Failure Failure
	}
	// Fail is a failure of the job as a whole (coordinator process, checkpoints, resources).
	Fail struct{ Failure Failure }
	// RestartDue answers ScheduleRestart.
	RestartDue struct{ Attempt int }
	// CancelStuck tells that tasks told to cancel did not end in time; nil is all of them.
	CancelStuck struct {
		Attempt int
		IDs     []graph.ExecutionID
	}
	// CancelJob is the user's wish.
	CancelJob struct{}
	// Stop asks for a stop-with-savepoint.
	Stop struct{ Drain bool }
	// StopDone tells how the savepoint of a Stop ended.
	StopDone struct{ OK bool }
	// FinalDone tells how the checkpoint of TriggerFinal ended.
	FinalDone struct{ OK bool }
	// CommitPrepared tells that all tasks of this one's stage have said what they need to commit. It answers PrepareCommit.
	CommitPrepared struct{ ID graph.ExecutionID }
	// CommitsKept tells that what the tasks of a stage need to commit will be found by the next JobMaster. It answers KeepCommits.
	CommitsKept struct{ Vertex graph.VertexID }
	// CheckpointDone tells that a checkpoint was completed: the job makes progress.
	CheckpointDone struct{}
	// Forgive tells that the TaskManager whose loss was the last failure had been taken away by the cluster: it does not count.
	Forgive struct{ TaskManager string }
	// SlotsReady tells which slots with live workers the job has, whenever they change. Leaving are the TaskManagers that will be taken away,
	// with the time of it, zero when nobody knows.
	SlotsReady struct {
		Slots   []Slot
		Leaving map[string]time.Time
	}
	// Require sets what the job needs, which was checked. RescaleEnded answers, in time.
	Require struct{ Requirements Requirements }
	// RescaleFailed tells that the checkpoint of TriggerRescale failed; CheckpointDone tells that it did not.
	RescaleFailed struct{}
	// Tick is the passing of time. Send one at Scheduler.Deadline; more do no harm.
	Tick struct{}
	// Suspend ends this JobMaster's part without touching the tasks: another one leads.
	Suspend struct{ Failure Failure }
)

func (Start) event()          {}
func (Prepared) event()       {}
func (TaskChanged) event()    {}
func (WorkerDown) event()     {}
func (Fail) event()           {}
func (RestartDue) event()     {}
func (CancelStuck) event()    {}
func (CancelJob) event()      {}
func (Stop) event()           {}
func (StopDone) event()       {}
func (FinalDone) event()      {}
func (CommitPrepared) event() {}
func (CommitsKept) event()    {}
func (CheckpointDone) event() {}
func (Forgive) event()        {}
func (SlotsReady) event()     {}
func (Require) event()        {}
func (RescaleFailed) event()  {}
func (Tick) event()           {}
func (Suspend) event()        {}

// Effect is something that the shell must do, in order.
type Effect interface{ effect() }

// The effects.
type (
	// JobChanged reports a change of the job's state.
	JobChanged struct{ From, To JobState }
	// TaskMoved reports a change of a task's state.
	TaskMoved struct {
		ID       graph.ExecutionID
		From, To TaskState
	}
	// RequireSlots sets how many slots the job wants; 0 gives all back. When it has more, those of Keep are to stay. They may be more than the
	// present attempt needs, or fewer than a job wants that can do with less.
	RequireSlots struct {
		N    int
		Keep []Slot
	}
	// Rescaled tells the parallelism of the next attempts; Prepare follows. Planned: the job ran, and restarts for nothing else.
	Rescaled struct {
		Graph   *graph.JobGraph
		Planned bool
	}
	// TriggerRescale takes a checkpoint, from which the job goes on with another parallelism, or in other slots. RescaleFailed answers when there is none.
	TriggerRescale struct{}
	// RescaleEnded answers Require. Failure is why the job stays as it was, "" when it runs as required, Resources
	// that slots were missing; Requirements are what holds.
	RescaleEnded struct {
		Failure      string
		Resources    bool
		Requirements Requirements
	}
	// Prepare asks for everything that Deploy needs; Prepared answers. It replaces an earlier Prepare.
	Prepare struct {
		Attempt int
		Restart bool
		// Part says that only these vertices have new attempts; the others go on, or, in BATCH, are finished.
		Part     bool
		Vertices []graph.VertexID
		// Slots is how many are needed, Patience how long to wait for them before the job fails; negative for ever.
		Slots    int
		Patience time.Duration
	}
	// Deploy sends tasks to their workers: consumers before producers, so that data finds its receiver. It has those that are not deployed. In
	// BATCH one follows each time that stages can run.
	Deploy struct {
		Attempt int
		Tasks   []Placement
		// Oldest is the least attempt whose tasks and partitions are not void, but for the partitions of Kept.
		Oldest int
		Kept   []graph.ExecutionID
	}
	// PrepareCommit lets the tasks of a stage, whose input is all processed, prepare what they have to commit. CommitPrepared answers when
	// all of them have.
	PrepareCommit struct{ IDs []graph.ExecutionID }
	// KeepCommits asks to store the job's progress, with what the tasks of this vertex's stage need to commit, where the next JobMaster
	// finds it. From here on the stage is not run again. CommitsKept answers; nothing is committed before.
	KeepCommits struct{ Vertex graph.VertexID }
	// StageFinished tells that the job's progress is worth storing. Partitions that are released next must not be dropped before.
	StageFinished struct{ Vertices []graph.VertexID }
	// Commit lets them commit.
	Commit struct{ IDs []graph.ExecutionID }
	// ReleasePartitions drops blocking partitions of these producers.
	ReleasePartitions struct{ IDs []graph.ExecutionID }
	// AllRunning tells that every task runs: checkpoints may begin.
	AllRunning struct{ Attempt int }
	// StopCheckpoints tells that tasks are to end: pending checkpoints are void. Part: others run on, and are still to hear of a checkpoint
	// that is complete already.
	StopCheckpoints struct {
		Reason string
		Part   bool
	}
	// CancelTasks cancels tasks; CancelStuck follows if they do not end.
	CancelTasks struct {
		Attempt int
		IDs     []graph.ExecutionID
	}
	// FinishTasks lets tasks end.
	FinishTasks struct{ IDs []graph.ExecutionID }
	// KillWorkers kills the workers of these TaskManagers, whose tasks do not end; WorkerDown follows.
	KillWorkers struct{ TaskManagers []string }
	// TriggerFinal takes the last checkpoint after this pause; FinalDone answers.
	TriggerFinal struct{ After time.Duration }
	// TriggerStop takes the savepoint of a Stop; StopDone answers.
	TriggerStop struct{ Drain bool }
	// ScheduleRestart asks for RestartDue after the pause, lengthened or shortened by a random share of at most Jitter, and not beyond Least
	// and Most (Pause).
	ScheduleRestart struct {
		Attempt     int
		After       time.Duration
		Jitter      float64
		Least, Most time.Duration
	}
	// FailureRecorded is for the exception history; Root is the one that made the job leave RUNNING. A broken connection is told of as root
	// when all tasks have ended and nothing explained it; a second root in a row is the cause of such a first, and takes its place.
	FailureRecorded struct {
		Failure Failure
		Root    bool
	}
	// Ended is the end of the job.
	Ended struct {
		State   JobState
		Failure *Failure // for FAILED
	}
)

func (JobChanged) effect()   {}
func (TaskMoved) effect()    {}
func (RequireSlots) effect() {}
func (Rescaled) effect()     {}
func (Prepare) effect()      {}
func (Deploy) effect()       {}

func (PrepareCommit) effect()     {}
func (KeepCommits) effect()       {}
func (StageFinished) effect()     {}
func (Commit) effect()            {}
func (ReleasePartitions) effect() {}

func (TriggerRescale) effect()  {}
func (RescaleEnded) effect()    {}
func (AllRunning) effect()      {}
func (StopCheckpoints) effect() {}
func (CancelTasks) effect()     {}
func (FinishTasks) effect()     {}
func (KillWorkers) effect()     {}
func (TriggerFinal) effect()    {}
func (TriggerStop) effect()     {}
func (ScheduleRestart) effect() {}
func (FailureRecorded) effect() {}
func (Ended) effect()           {}

// Placement is a task with its slot.
type Placement struct {
	ID   graph.ExecutionID
	Slot Slot
	// CommitOnly: all that is left to do is to commit what an earlier attempt prepared.
	CommitOnly bool
}
