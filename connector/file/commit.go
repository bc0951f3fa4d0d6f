package file

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"

	"github.com/thalweg/thalweg/connector"
)

type committer struct {
	cfg *sinkConfig
	ctx connector.SinkContext
	sys systems
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

// Close removes the folders of pending parts if they are empty.
func (c *committer) Close() error {
	f, root, err := c.sys.resolve(c.ctx.Context, c.cfg.dir)
	if err == nil && c.ctx.Context.Err() == nil {
		work := root + "/" + hidden
		if f.Remove(c.ctx.Context, work+"/"+key(c.ctx), false) == nil {
			_ = f.Remove(c.ctx.Context, work, false) // others may use it
		}
	}
	return c.sys.close()
}
