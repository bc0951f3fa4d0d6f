// Package increment keeps track of the files that the snapshots of an incremental backend have in common. It is part of layer L1, and pure.
//
// Main flow: a snapshot is written with the files that are in Known under the names that it gives them, and with others written anew; Sent
// notes all of them. When its checkpoint is complete they are what later snapshots may refer to. Several checkpoints may be under way.
//
// Invariants: Known is what one completed checkpoint holds, so that its files are there as long as that checkpoint, or one that was begun
// while it was the latest, is needed; it never goes back to an earlier one. Source: Flink RocksIncrementalSnapshotStrategy.
package increment

import (
	"sync"

	"github.com/thalweg/thalweg/state"
)

// Tracker is the files of one backend. The zero value knows of none. Safe for concurrent use.
type Tracker struct {
	mu    sync.Mutex
	known map[string]state.FileRef
	sent  map[int64][]state.File // of checkpoints of which nobody knows yet what becomes of them
}

// Restored makes files known that the backend was restored from, by their keys.
func (t *Tracker) Restored(files []state.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replace(files)
}

func (t *Tracker) replace(files []state.File) {
	t.known = map[string]state.FileRef{}
	for _, f := range files {
		t.known[f.Key] = f.Ref
	}
}

// Known are the files of the latest checkpoint that is known to be complete, by their keys. The map is read-only.
func (t *Tracker) Known() map[string]state.FileRef {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known
}

// Sent notes what a checkpoint refers to.
func (t *Tracker) Sent(checkpoint int64, files []state.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sent == nil {
		t.sent = map[int64][]state.File{}
	}
	t.sent[checkpoint] = files
}

// Completed says that a checkpoint is complete, and that none before it will be. One that is not known, or was told of before, changes nothing.
func (t *Tracker) Completed(checkpoint int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	files, ok := t.sent[checkpoint]
	if !ok {
		return
	}
	t.replace(files)
	for id := range t.sent {
		if id <= checkpoint {
			delete(t.sent, id)
		}
	}
}

// Aborted says that a checkpoint will not be complete: its files may be deleted by now.
func (t *Tracker) Aborted(checkpoint int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sent, checkpoint)
}
