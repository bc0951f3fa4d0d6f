package pebble

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// On puts the backend's store on a file system.
func (o Options) On(fs vfs.FS) Options {
	o.fs = fs
	return o
}

// SetRetryPause replaces the pause after a fault of the disk.
func (b *Backend) SetRetryPause(d time.Duration) { b.disk.pause = d }
