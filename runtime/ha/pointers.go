package ha

import (
	"context"
	"errors"

	"github.com/thalweg/thalweg/runtime/graph"
)

// JobPointers is a Store narrowed to one opened job, as checkpoint/coordinator.Runner wants it.
type JobPointers struct {
	Store Store
	Job   graph.JobID
}

// StorePointer stores the pointer to checkpoint id in dir.
func (j JobPointers) StorePointer(ctx context.Context, id int64, dir string) error {
	return j.Store.StorePointer(ctx, j.Job, Pointer{ID: id, Dir: dir})
}

// ReserveIDs reserves checkpoint numbers.
func (j JobPointers) ReserveIDs(ctx context.Context, upTo int64) error {
	return j.Store.ReserveIDs(ctx, j.Job, upTo)
}

// Superseded reports whether the job is no longer this attempt's.
func (j JobPointers) Superseded(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrUnknownJob) || errors.Is(err, ErrEnded)
}
