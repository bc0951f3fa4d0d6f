package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// disk is a file system of its own for the job's local files, in memory: it can be full. It takes root.
type disk struct{ dir string }

// diskSize is as much as the processes of a long run leave there: what is of killed ones stays for an hour.
const diskSize = 4 << 30

// mountDisk makes the file system in a new folder, which any user may write to.
func mountDisk() (*disk, error) {
	dir, err := os.MkdirTemp("", "thalweg-faults-disk-")
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	d := &disk{dir}
	if err := syscall.Mount("thalweg-faults", dir, "tmpfs", 0, size(diskSize)+",mode=1777"); err != nil {
		return nil, errors.Join(fmt.Errorf("faults: mount a file system of its own for local files: %w", err), os.Remove(dir))
	}
	return d, nil
}

func size(n int64) string { return fmt.Sprintf("size=%d", n) }

// unmount takes the file system away, from under processes that may still have files open.
func (d *disk) unmount() error {
	return errors.Join(syscall.Unmount(d.dir, syscall.MNT_DETACH), os.Remove(d.dir))
}

// fill leaves no room but what its users free themselves.
func (d *disk) fill() error {
	var err error
	for range 50 { // somebody may write meanwhile, and the size must not be below what is used
		var s syscall.Statfs_t
		if err = syscall.Statfs(d.dir, &s); err != nil {
			break
		}
		used := int64(s.Blocks-s.Bfree) * s.Bsize
		if err = syscall.Mount("thalweg-faults", d.dir, "tmpfs", syscall.MS_REMOUNT, size(max(used, s.Bsize))); err == nil {
			return nil
		}
	}
	return fmt.Errorf("faults: fill %s: %w", d.dir, err)
}

// drain gives the room back.
func (d *disk) drain() error {
	if err := syscall.Mount("thalweg-faults", d.dir, "tmpfs", syscall.MS_REMOUNT, size(diskSize)); err != nil {
		return fmt.Errorf("faults: drain %s: %w", d.dir, err)
	}
	return nil
}

// fullDisk keeps the job's local disk full for d. What its users remove meanwhile is taken too.
func fullDisk(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("local disk full for %v", d), Root: true, Do: func(ctx context.Context, r *run) error {
		end := time.Now().Add(d)
		var err error
		for err == nil && time.Now().Before(end) {
			if err = r.disk.fill(); err == nil {
				err = r.pause(ctx, 200*time.Millisecond)
			}
		}
		return errors.Join(err, r.disk.drain())
	}}
}
