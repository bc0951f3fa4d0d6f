package pebble

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// On puts the backend's store on a file system.
func (o Options) On(fs vfs.FS) Options {
	o.fs = fs
	return o
}

// Deciding makes the finder decide after so many lookups.
func (o Options) Deciding(lookups int) Options {
	o.lookups = lookups
	return o
}

// Ahead makes the backend look for changes to write ahead of a snapshot after so many.
func (o Options) Ahead(changes int) Options {
	o.aheadEvery = changes
	return o
}

// Pending is how many bytes of changes the last snapshot is to write, those encoded ahead of it included.
func (b *Backend) Pending() int { return b.pending.batch.Len() }

// Early is how many bytes of changes are encoded ahead of the next snapshot and not on their way.
func (b *Backend) Early() int {
	if b.early == nil {
		return 0
	}
	return b.early.Len()
}

// AwaitAhead waits for what is being written ahead.
func (b *Backend) AwaitAhead() { _ = b.ahead.wait() }

// SetRetryPause replaces the pause after a fault of the disk.
func (b *Backend) SetRetryPause(d time.Duration) { b.disk.pause = d }

// Compact brings everything that is in tables to the last level.
func (b *Backend) Compact(ctx context.Context) error {
	return raw(b).Compact(ctx, []byte{0}, []byte{0xff, 0xff, 0xff}, false)
}

// Filtered is how many reads of blocks the filters have saved.
func (b *Backend) Filtered() int64 { return raw(b).Metrics().Filter.Hits }
