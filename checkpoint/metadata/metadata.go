// Package metadata is the versioned format of _metadata and of the state reports that tasks send to the checkpoint coordinator. It is
// layer L2 (imports state, runtime/graph). Names of files inside are relative (see state.FileRef), so that a directory can be moved.
package metadata

import (
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// Checkpoint is the content of a _metadata file.
type Checkpoint struct {
	ID        int64
	Savepoint bool
	Canonical bool
	Trigger   time.Time // ms precision
	JobID     graph.JobID
	JobName   string
	Product   string            // version that wrote it
	Config    map[string]string // effective configuration, secrets redacted
	Operators []Operator
	// Coordinators holds the state of operators' halves in the coordinator process.
	Coordinators map[graph.OperatorID][]byte
	// Exchanges is what an unaligned checkpoint found under way between tasks.
	Exchanges []Exchange
}

// Unaligned reports whether the checkpoint holds anything that was under way.
func (c *Checkpoint) Unaligned() bool { return len(c.Exchanges) > 0 }

// Operator is the state of one operator over all subtasks.
type Operator struct {
	ID             graph.OperatorID
	UID, Name      string
	Parallelism    int
	MaxParallelism int
	Subtasks       []Subtask // by subtask index; subtasks without state are absent
}

// Subtask is the state of one operator in one subtask.
type Subtask struct {
	Index int
	Keyed []state.Handle
	// Lists are named operator states, redistributed item by item when the parallelism changes.
	Lists []ListState
}

// Mode says how the items of a ListState are redistributed.
type Mode uint8

const (
	// Split: items are dealt out evenly; each goes to exactly one subtask.
	Split Mode = iota
	// Union: every subtask gets all items.
	Union
)

// ListState is a named list of opaque items. Small lists are stored in the metadata itself.
type ListState struct {
	Name  string
	Mode  Mode
	Items [][]byte
}

// LayoutState is the list state with an operator's layout, in each subtask that has state: what the state is made of, such as "tumbling event-time
// windows of 1h0m0s". Snapshots of versions that knew no layouts have none.
const LayoutState = "layout"

// Task is what one task reports for a checkpoint, or is deployed with: the states of the operators of its chain, and what was under way
// in its channels.
type Task struct {
	Operators []TaskOperator
	InFlight  []InFlight
}

// TaskOperator is one operator's part of a Task.
type TaskOperator struct {
	ID    graph.OperatorID
	State Subtask
}
