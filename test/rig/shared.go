package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Shared returns the cluster in opts.Dir for a test process, starting it when it does not run. Test processes that run side by side use
// the same one; the last of them to call the returned function stops it, unless it was running before Shared was first called (by `make
// cluster-up`), when it is left alone. With THALWEG_RIG=external it is one that others run. The function may be called once; it is not called by itself, so call it from TestMain.
func Shared(ctx context.Context, opts Options) (*Cluster, func(context.Context) error, error) {
	if c, is, err := external(); is || err != nil {
		return c, func(context.Context) error { return nil }, err
	}
	if opts.Dir == "" {
		d, err := DefaultDir()
		if err != nil {
			return nil, nil, err
		}
		opts.Dir = d
	}
	l, err := openLayout(opts.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := l.make(); err != nil {
		return nil, nil, err
	}
	users, err := openUsers(ctx, filepath.Join(l.dir, "users"))
	if err != nil {
		return nil, nil, err
	}
	auto := l.auto()
	up := len(l.strays()) > 0
	if !up {
		if err := writeFile(auto, nil, 0o644); err != nil {
			_ = users.Close()
			return nil, nil, err
		}
	}
	release := func(ctx context.Context) error {
		defer func() { _ = users.Close() }()
		// Only the last user gets the lock for itself.
		err := syscall.Flock(int(users.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("rig: release %s: %w", l.dir, err)
		}
		if _, err := os.Stat(auto); err != nil {
			return nil //nolint:nilerr // it was running before us
		}
		c, err := Attach(l.dir)
		if errors.Is(err, ErrNoCluster) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.Stop(ctx); err != nil {
			return err
		}
		return removeIfThere(auto)
	}
	c, err := start(ctx, opts)
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, nil, errors.Join(err, release(clean))
	}
	return c, release, nil
}

// openUsers takes a share of the lock that says who uses the cluster. It waits while another process stops it.
func openUsers(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("rig: %w", err)
	}
	err = poll(ctx, lockWait, 100*time.Millisecond, func() error {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return &stopPoll{err}
		}
		return err
	})
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("rig: wait for %s: %w", path, err)
	}
	return f, nil
}
