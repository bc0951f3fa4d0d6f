package faults

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// readOnly takes the right to write to the folder of the job's checkpoints away, for d.
func readOnly(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("checkpoint folder read-only for %v", d), Alone: true, Do: func(ctx context.Context, r *run) error {
		f, dir := r.checkpoints.fs, r.checkpoints.dir
		if err := f.Chmod(ctx, dir, 0o500); err != nil {
			return err
		}
		return errors.Join(r.pause(ctx, d), f.Chmod(context.WithoutCancel(ctx), dir, 0o700))
	}}
}

// renamedAway moves the folder of the job's checkpoints to another name, for d. What the job has written meanwhile into a new folder of the old name is put
// into the one that comes back.
func renamedAway(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("checkpoint folder renamed away for %v", d), Alone: true, Do: func(ctx context.Context, r *run) error {
		f, dir := r.checkpoints.fs, r.checkpoints.dir
		away, aside := dir+".away", dir+".aside"
		before, err := r.job.completed(ctx)
		if err != nil {
			return err
		}
		if err := f.Rename(ctx, dir, away); err != nil {
			return err
		}
		moved := time.Now()
		err = r.pause(ctx, d)
		ctx = context.WithoutCancel(ctx)
		after, cerr := answered(ctx, "the latest checkpoint", r.job.completed)
		if err = errors.Join(err, cerr); err == nil && after > before+1 { // one may have been about to complete
			err = fmt.Errorf("faults: checkpoints %d to %d completed without the folder, and refer to files that are not there", before+1, after)
		}
		back := until(ctx, time.Minute, "the folder's return", func(ctx context.Context) (bool, error) {
			if err := f.Rename(ctx, dir, fmt.Sprintf("%s-%d", aside, time.Now().UnixNano())); err != nil && !errors.Is(err, iofs.ErrNotExist) {
				return false, err
			}
			err := f.Rename(ctx, away, dir)
			return err == nil, err // somebody has made the folder anew in between
		})
		r.logf("the folder was away for %v", time.Since(moved).Round(time.Millisecond))
		return errors.Join(err, back, r.putBack(ctx, f, dir, aside))
	}}
}

// putBack moves the files below the folders aside-N into dir, and removes these.
func (r *run) putBack(ctx context.Context, f fs.FileSystem, dir, aside string) error {
	list, err := f.List(ctx, path.Dir(dir))
	if err != nil {
		return err
	}
	for _, e := range list {
		if len(e.Path) <= len(aside) || e.Path[:len(aside)] != aside {
			continue
		}
		all, err := files(ctx, f, e.Path)
		if err != nil {
			return err
		}
		for _, p := range all {
			to := dir + p[len(e.Path):]
			if err := f.Mkdir(ctx, path.Dir(to), 0o777); err != nil {
				return err
			}
			if err := f.Rename(ctx, p, to); err != nil {
				return err
			}
		}
		if err := f.Remove(ctx, e.Path, true); err != nil {
			return err
		}
	}
	return nil
}
