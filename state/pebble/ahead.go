package pebble

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/thalweg/thalweg/state/internal/slots"
)

// A snapshot encodes all changes since the one before while the task waits. To keep that short whatever the interval is, changes go to the store
// ahead of it: each time that so many more entries of a namespace have changed, those are encoded that are in pages where nothing has changed for a
// while, and another goroutine writes them. Entries that change all the time are left for the snapshot: they would only be written more often.

// aheadEvery is how many entries change between two looks, and about how many are written at one.
const aheadEvery = 1024

// resting is how many looks a page must have been left alone.
const resting = 2

// written is a batch of changes on its way to the store.
type written struct {
	done chan struct{}
	err  error // why the changes did not reach the store; set before done is closed
}

// wait returns when the batch is in the store. A nil one is.
func (w *written) wait() error {
	if w == nil {
		return nil
	}
	<-w.done
	return w.err
}

// busyAhead reports whether what was written last is still on its way, so that nothing can be written after it without waiting, or whether the disk
// fails, on which what has changed is better kept in memory.
func (b *Backend) busyAhead() bool {
	if _, flush, compact := b.disk.failure(); flush != nil || compact != nil {
		return true
	}
	if b.pending != nil && !b.pending.done.Load() {
		return true
	}
	if b.ahead == nil {
		return false
	}
	select {
	case <-b.ahead.done:
		return b.ahead.err != nil // for settle to tell
	default:
		return true
	}
}

// writeAhead gives a batch to another goroutine, which closes it. The store must be settled.
func (b *Backend) writeAhead(x *chunks) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return errClosed
	}
	w := &written{done: make(chan struct{})}
	b.ahead, b.largest = w, x.largest
	b.busy.Go(func() {
		defer close(w.done)
		if err := x.apply(); err != nil {
			w.err = fmt.Errorf("pebble: write changes: %w", err)
		}
	})
	return nil
}

// rested takes pages out of a list that nothing has changed in for a while: as many as hold about so many changed entries, or as are found among
// four times as many pages. Pages where entries were deleted stay: that such an entry is stored must not be forgotten before it is not. hand is
// where the search goes on.
func rested(heads []*slots.Head, dirty []uint32, hand int, look uint32, entries int, out []uint32) (left, found []uint32, at int) {
	for n := 4 * entries; n > 0 && entries > 0 && len(dirty) > 0; n-- {
		if hand >= len(dirty) {
			hand = 0
		}
		h := heads[dirty[hand]]
		if look-h.Changed < resting || h.Dirty&h.Gone != 0 {
			hand++
			continue
		}
		if h.Dirty != 0 {
			out = append(out, dirty[hand])
			entries -= bits.OnesCount64(h.Dirty)
		}
		dirty[hand] = dirty[len(dirty)-1]
		dirty = dirty[:len(dirty)-1]
	}
	return dirty, out, hand
}

// ahead writes changes of a namespace ahead of the next snapshot. The page that is just being changed is not among them.
func ahead[K comparable, V any](t *table[K, V], s *nspace[K, V]) {
	s.changes, s.look = 0, s.look+1
	if t.b.busyAhead() {
		return
	}
	s.dirty, t.rested, s.hand = rested(slots.Heads(s.space.Pages), s.dirty, s.hand, s.look, t.b.opts.aheadEvery+t.b.opts.aheadEvery/4, t.rested[:0])
	if len(t.rested) == 0 {
		return
	}
	if err := encodeAhead(t, s); err != nil {
		t.b.ahead = failed(fmt.Errorf("pebble: state %q: write ahead: %w", t.desc.Name, err))
	}
}

// failed is a batch that could not be made.
func failed(err error) *written {
	w := &written{done: make(chan struct{}), err: err}
	close(w.done)
	return w
}

// encodeAhead writes the pages of t.rested.
func encodeAhead[K comparable, V any](t *table[K, V], s *nspace[K, V]) error {
	if err := t.b.settle(); err != nil { // returns at once, and the batch may apply deletions
		return err
	}
	first, err := t.b.batch()
	if err != nil {
		return err
	}
	x := &chunks{b: t.b, cur: first, largest: t.b.largest}
	if err := addPages(t, x, s, t.rested); err != nil {
		return errors.Join(err, x.Close())
	}
	if err := t.b.writeAhead(x); err != nil {
		return errors.Join(err, x.Close())
	}
	return nil
}
