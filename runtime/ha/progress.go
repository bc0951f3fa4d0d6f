package ha

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
)

// The progress of a job is a file "chk-<n>" in the job's own directory, and the pointer to "checkpoint" n there: the rename of the token
// decides which one counts, as it does for checkpoints. A number is used once, so an attempt that was taken over cannot change what the
// next one reads.

// progressDir is what a pointer to progress says, whatever the file system's address.
func progressDir(n int64) string { return "progress:/chk-" + strconv.FormatInt(n, 10) }

func (s *FileStore) progressFile(id graph.JobID, n int64) string {
	return path.Join(s.jobDir(id), "chk-"+strconv.FormatInt(n, 10))
}

// StoreProgress implements Store. The number is the first that is not reserved; a repetition may find that its first try succeeded, and takes
// the next.
func (s *FileStore) StoreProgress(ctx context.Context, id graph.JobID, data []byte) error {
	s.mu.Lock()
	o := s.jobs[id]
	s.mu.Unlock()
	if o == nil {
		return fmt.Errorf("ha: store progress of job %s: %w", id, ErrUnknownJob)
	}
	// Not without the token: see StorePointer.
	if err := s.move(ctx, id, func(*token) {}); err != nil {
		return fmt.Errorf("ha: store progress of job %s: %w", id, err)
	}
	n, last := o.token.reserved, o.token.id
	p := s.progressFile(id, n)
	if err := s.replace(ctx, p, data); err != nil {
		return fmt.Errorf("ha: store progress of job %s: %w", id, err)
	}
	if err := s.StorePointer(ctx, id, Pointer{ID: n, Dir: progressDir(n)}); err != nil {
		return err
	}
	if last > 0 {
		if err := s.fs.Remove(ctx, s.progressFile(id, last), false); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			s.log.Debug().Err(err).Msg("progress of before stays until the job's end")
		}
	}
	return nil
}

// Progress implements Store.
func (s *FileStore) Progress(ctx context.Context, id graph.JobID) ([]byte, error) {
	p, err := s.Pointer(ctx, id)
	if err != nil {
		return nil, err
	}
	if p.IsZero() || p.Dir != progressDir(p.ID) {
		return nil, nil
	}
	b, err := fs.ReadFile(ctx, s.fs, s.progressFile(id, p.ID), maxFile)
	if errors.Is(err, iofs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ha: read progress %d of job %s: %w", p.ID, id, err)
	}
	return b, nil
}
