// Package savepoint finds a savepoint or retained checkpoint, checks it against a job graph before any task runs, and assigns its state
// to subtasks. It is layer L2 (imports checkpoint/{metadata,storage}, runtime/graph, fs).
//
// Main flow: Load, Check (all misfits in one error; the adopted max parallelisms are applied to the graph), Assign.
package savepoint

import (
	"context"
	"errors"
	"slices"
	"syscall"

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

// Unreadable reports whether an error of Load is about what stands there, or that nothing does: no later try succeeds. All else, such as
// a file system that fails over, may pass.
func Unreadable(err error) bool {
	return slices.ContainsFunc([]error{
		metadata.ErrFormat, metadata.ErrTruncated, metadata.ErrCorrupt, metadata.ErrVersion, storage.ErrNoCheckpoint,
		fs.ErrScheme, fs.ErrCorrupt, syscall.EISDIR, syscall.ENOTDIR,
	}, func(e error) bool { return errors.Is(err, e) })
}

// Assignment is the state of every subtask, by vertex: element i belongs to subtask i.
type Assignment map[graph.VertexID][]metadata.Task
