package pebble

import (
	"errors"
	"fmt"
	"time"
)

const (
	maxMemTables = 4  // more wait for a flush
	maxSublevels = 24 // more of level 0 wait for a compaction
	// stallPoll bounds the wait for an event that another thread of Pebble tells before its effect shows.
	stallPoll = 100 * time.Millisecond
)

// apply writes a batch to the store. It waits while flushes or compactions lag behind, as Pebble itself would do, but not for those that fail.
//
// Errors: why they do; the batch was not written then.
func (b *Backend) apply(x batch) error {
	n := int64(x.Len())
	if _, flush, compact := b.disk.failure(); flush == nil && compact == nil && b.unchecked+n < b.opts.MemTableBytes {
		b.unchecked += n
		return b.db.write(x)
	}
	for {
		changed, flush, compact := b.disk.failure()
		m := raw(b).Metrics()
		tables, levels := int64(m.MemTable.Size) <= maxMemTables*b.opts.MemTableBytes, int(m.Levels[0].Sublevels) < maxSublevels
		switch {
		case tables && levels:
			b.unchecked = n
			return b.db.write(x)
		case !tables && flush != nil:
			return fmt.Errorf("no room in memory, and none can be made: %w", b.disk.explain(flush))
		case !levels && compact != nil:
			return fmt.Errorf("too many files, and they cannot be merged: %w", b.disk.explain(compact))
		}
		t := time.NewTimer(stallPoll)
		select {
		case <-changed:
		case <-t.C:
		case <-b.ctx.Done():
			t.Stop()
			return errClosed
		}
		t.Stop()
	}
}

// flush writes everything in memory to tables, and gives up when that fails: Pebble goes on trying.
func (b *Backend) flush() error {
	_, err, _ := b.disk.failure()
	if err != nil { // one is being tried already; another memtable would only take memory
		return fmt.Errorf("pebble: flush: %w", b.disk.explain(err))
	}
	done, err := raw(b).AsyncFlush()
	if err != nil {
		return fmt.Errorf("pebble: flush: %w", err)
	}
	for {
		changed, err, _ := b.disk.failure()
		if err != nil {
			return fmt.Errorf("pebble: flush: %w", b.disk.explain(err))
		}
		select {
		case <-done:
			return nil
		case <-changed:
		case <-b.ctx.Done():
			return errClosed
		}
	}
}

// link makes hard links to the tables in dir, and copies of the other files.
func (b *Backend) link(dir string) error {
	before, err := b.disk.settled()
	if err != nil {
		return err
	}
	if err := raw(b).Checkpoint(dir); err != nil {
		return err
	}
	after, err := b.disk.settled()
	if err == nil && after != before {
		err = errors.New("the list of files could not be written meanwhile")
	}
	return err
}
