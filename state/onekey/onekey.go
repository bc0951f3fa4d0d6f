// Package onekey is the state backend of BATCH: it holds the state of one key at a time, in memory. Keyed operators get their input sorted
// by key there; when a key's records are over, its state is dropped (Clear). It is part of layer L1.
//
// Invariants: there are no checkpoints in BATCH, so nothing is restored and snapshots are refused; what is written belongs to one key until
// Clear, and another key's state reads as absent. Source: Flink BatchExecutionKeyedStateBackend.
package onekey

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/state"
)

// Backend implements state.Backend.
type Backend struct {
	cfg  state.Config
	sets map[string]interface{ clear() }
	all  []interface{ clear() }
}

// New returns an empty backend. Only the key groups of cfg are used.
func New(cfg state.Config) (*Backend, error) {
	if len(cfg.Restore) > 0 {
		return nil, errors.New("onekey: restore: a job in BATCH starts without state")
	}
	return &Backend{cfg: cfg, sets: map[string]interface{ clear() }{}}, nil
}

// Clear drops the state and the timers of the current key.
func (b *Backend) Clear() {
	for _, s := range b.all {
		s.clear()
	}
}

// Range implements state.Backend.
func (b *Backend) Range() state.Range { return b.cfg.Range }

// MaxParallelism implements state.Backend.
func (b *Backend) MaxParallelism() int { return b.cfg.MaxParallelism }

// Opened implements state.Backend: nothing is restored.
func (b *Backend) Opened() ([]state.Unopened, error) { return nil, nil }

// Snapshot implements state.Backend: there is none.
func (b *Backend) Snapshot(int64, bool) (state.Snapshot, error) {
	return nil, errors.New("onekey: snapshot: there are no checkpoints in BATCH")
}

// CheckpointCompleted implements state.Backend.
func (b *Backend) CheckpointCompleted(int64) {}

// CheckpointAborted implements state.Backend.
func (b *Backend) CheckpointAborted(int64) {}

// Size implements state.Backend: one key's state is not measured.
func (b *Backend) Size() int64 { return 0 }

// Close implements state.Backend.
func (b *Backend) Close() error {
	b.sets, b.all = nil, nil
	return nil
}

// open returns the set of a name, or makes it.
func open[S interface{ clear() }](b *Backend, name string, make func() S) (s S, err error) {
	if b.sets == nil {
		return s, fmt.Errorf("onekey: open %q: backend is closed", name)
	}
	if old, ok := b.sets[name]; ok {
		s, ok := old.(S)
		if !ok {
			return s, fmt.Errorf("onekey: open %q: it is open already as another kind or with other types", name)
		}
		return s, nil
	}
	s = make()
	b.sets[name] = s
	b.all = append(b.all, s)
	return s, nil
}

// holder is the key that a set holds something of.
type holder[K comparable] struct{ cur state.Key[K] }

var errTwoKeys = errors.New("onekey: write: the state of another key is still held: the input is not sorted by key, or the key before was not cleared")
