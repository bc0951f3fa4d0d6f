package task

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// Takeover is what another JobMaster must know of a task to go on with it when the one that deployed it is gone. Checkpoints and the words of the
// enumerator are noted when they come to the task, which is in the order in which the task will see them: what it has not seen yet counts. Safe for
// concurrent use.
type Takeover struct {
	mu        sync.Mutex
	restored  int64
	taken     []int64 // rising
	completed int64
	assigned  int64 // see pb.SurvivingTask
	custom    bool
	suspended map[int64]bool // by stops after which it was not told to go on
	finishing bool
	state     pb.TaskState
}

// NewTakeover is of a task that was restored from a checkpoint, 0 for none.
func NewTakeover(restored int64) *Takeover {
	return &Takeover{restored: restored, completed: restored, assigned: -1, suspended: map[int64]bool{}}
}

// Triggered notes a checkpoint that a source is to take.
func (t *Takeover) Triggered(id int64, suspend bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = append(t.taken, id)
	if suspend {
		t.suspended[id] = true
	}
}

// Completed notes that a checkpoint is complete: those before it are of no interest any more.
func (t *Takeover) Completed(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.completed = max(t.completed, id)
	t.taken = slices.DeleteFunc(t.taken, func(x int64) bool { return x < t.completed })
}

// Aborted notes that a checkpoint was given up. A task that it had suspended stays so, and cannot be gone on with, unless resume says otherwise.
func (t *Takeover) Aborted(id int64, resume bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = slices.DeleteFunc(t.taken, func(x int64) bool { return x == id && x != t.completed })
	if resume {
		delete(t.suspended, id)
	}
}

// Received notes an event of the enumerator. One about alignment changes nothing that has to be known.
func (t *Takeover) Received(payload []byte) {
	var e operator.SourceEvent
	if json.Unmarshal(payload, &e) == nil && len(e.Assign) == 0 && !e.NoMoreSplits && e.Custom == nil { // what cannot be read fails the task
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.assigned = t.restored
	if n := len(t.taken); n > 0 {
		t.assigned = t.taken[n-1]
	} else {
		t.assigned = max(t.assigned, t.completed)
	}
}

// Sent notes an event to the enumerator.
func (t *Takeover) Sent(payload []byte) {
	var e operator.SourceEvent
	if json.Unmarshal(payload, &e) == nil && e.Custom == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.custom = true
}

// Finishing notes that the task was told to end.
func (t *Takeover) Finishing() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finishing = true
}

// Moved notes the task's state.
func (t *Takeover) Moved(s pb.TaskState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = s
}

// Fill puts all of it into a report.
func (t *Takeover) Fill(m *pb.SurvivingTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.State, m.RestoredCheckpointId, m.Taken, m.Assigned = t.state, t.restored, slices.Clone(t.taken), t.assigned
	m.Custom, m.Suspended, m.Finishing = t.custom, len(t.suspended) > 0, t.finishing
}
