// Package savepoint finds a savepoint or retained checkpoint, checks it against a job graph before any task runs, and assigns its state
// to subtasks. It is layer L2 (imports checkpoint/{metadata,storage}, runtime/graph, fs).
//
// Main flow: Load, Check (all misfits in one error; the adopted max parallelisms are applied to the graph), Assign.
package savepoint

import (
	"context"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// ClaimMode says who owns the files of what is restored. Source: Flink's RecoveryClaimMode.
type ClaimMode int

const (
	// NoClaim leaves them to the user: no later checkpoint refers to them.
	NoClaim ClaimMode = iota
	// Claim makes them the job's: they are deleted when a later checkpoint subsumes them.
	Claim
)

// Load reads the savepoint or checkpoint at uri (directory or _metadata file). With NoClaim every file is marked exclusive, so that no
// backend carries it over into an incremental checkpoint. Errors: see storage.ReadMetadata.
func Load(ctx context.Context, reg *fs.Registry, uri string, mode ClaimMode) (metadata.Checkpoint, error) {
	c, err := storage.ReadMetadata(ctx, reg, uri)
	if err != nil {
		return c, err
	}
	if mode == NoClaim {
		c.Refs(func(r *state.FileRef) { r.Scope = state.Exclusive })
	}
	return c, nil
}

// Assignment is the state of every subtask, by vertex: element i belongs to subtask i.
type Assignment map[graph.VertexID][]metadata.Task
