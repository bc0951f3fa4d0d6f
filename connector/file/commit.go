package file

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"time"

	"github.com/thalweg/thalweg/connector"
)

type committer struct {
	cfg *sinkConfig
	ctx connector.SinkContext
	sys systems
	// folders are those of the parts that were committed, URIs.
	folders map[string]bool
}

func (c *committer) Commit(ctx context.Context, committables [][]byte, retry bool) error {
	for _, b := range committables {
		cm, err := decodeCommittable(b)
		if err != nil {
			return err
		}
		there, err := commit(ctx, &c.sys, cm)
		if err != nil {
			return err
		}
		if c.folders == nil {
			c.folders = map[string]bool{}
		}
		c.folders[folderOf(cm.From)] = true
		switch {
		case there:
		case retry: // an earlier attempt had committed it, and somebody has taken it away since
			c.ctx.Logger.Warn().Str("part", cm.To).Msg("a part of the restored checkpoint is neither pending nor in its place; it counts as committed and taken away")
		default:
			return fmt.Errorf("file: commit: neither the pending part %s is there nor %s", cm.From, cm.To)
		}
	}
	return nil
}

// commit puts a part in its place, unless it is there already. there is false when it is neither pending nor there.
func commit(ctx context.Context, sys *systems, c committable) (there bool, err error) {
	f, from, err := sys.resolve(ctx, c.From)
	if err != nil {
		return false, fmt.Errorf("file: commit: %w", err)
	}
	_, to, err := sys.resolve(ctx, c.To)
	if err != nil {
		return false, fmt.Errorf("file: commit: %w", err)
	}
	if _, err := f.Stat(ctx, from); errors.Is(err, iofs.ErrNotExist) {
		if _, err = f.Stat(ctx, to); err == nil || errors.Is(err, iofs.ErrNotExist) {
			return err == nil, nil
		}
		return false, fmt.Errorf("file: commit %s: %w", c.To, err)
	}
	if err := f.Mkdir(ctx, path.Dir(to), 0o755); err != nil {
		return false, fmt.Errorf("file: commit %s: %w", c.To, err)
	}
	if err := f.Rename(ctx, from, to); err != nil {
		return false, fmt.Errorf("file: commit %s: %w", c.To, err)
	}
	return true, nil
}

// Close tidies up, also when the job has failed or was cancelled.
func (c *committer) Close() error {
	ctx, cancel := tidyContext(c.ctx.Context)
	defer cancel()
	for folder := range c.folders {
		tidy(ctx, &c.sys, folder)
	}
	return c.sys.close()
}

// tidyContext is for what is left to do when the context of the attempt has ended.
func tidyContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// tidy removes a folder of pending parts, and the one that all of these are in, if they are empty. Whoever ends last in an attempt succeeds, be
// it a writer or the committer; others, whose folder it takes away, make it again.
func tidy(ctx context.Context, sys *systems, folder string) {
	f, dir, err := sys.resolve(ctx, folder)
	if err == nil && f.Remove(ctx, dir, false) == nil {
		_ = f.Remove(ctx, path.Dir(dir), false) // others may use it
	}
}
