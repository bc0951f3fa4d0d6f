package pebble

import (
	"fmt"
	"math/bits"

	"github.com/thalweg/thalweg/state/internal/slots"
)

// A snapshot encodes all changes since the one before while the task waits. To keep that short whatever the interval is, changes are encoded
// ahead of it: each time that so many more entries of a namespace have changed, those are that are in pages where nothing has changed for a while.
// Another goroutine writes what has come together. Entries that change all the time are left for the snapshot: they would only be written more often.

// aheadEvery is how many entries change between two looks, and about how many are encoded at one.
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

// over reports whether wait would return at once, without an error.
func (w *written) over() bool {
	if w == nil {
		return true
	}
	select {
	case <-w.done:
		return w.err == nil
	default:
		return false
	}
}

// together is how much comes together before it is written: a memtable, since small tables of level 0 are compacted more often. An eviction takes
// along what there is.
func (b *Backend) together() int { return int(b.opts.MemTableBytes) }

// roomAhead reports whether more can be encoded: not when what came together cannot be written yet, nor when the disk fails, on which changes are
// better kept in the cache.
func (b *Backend) roomAhead() bool {
	if _, flush, compact := b.disk.failure(); flush != nil || compact != nil {
		return false
	}
	return b.mayWrite() || len(b.drops) == 0 && (b.early == nil || b.early.Len() < b.together())
}

// mayWrite reports whether everything before is in the store.
func (b *Backend) mayWrite() bool {
	return (b.pending == nil || b.pending.done.Load() && b.pending.lost == nil) && b.ahead.over()
}

// writeEarly gives what was encoded ahead to another goroutine.
func (b *Backend) writeEarly() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return errClosed
	}
	x, w := b.early, &written{done: make(chan struct{})}
	b.early, b.ahead, b.largest = nil, w, x.largest
	b.busy.Go(func() {
		defer close(w.done)
		if err := x.apply(); err != nil {
			w.err = fmt.Errorf("pebble: write changes: %w", err)
		}
	})
	return nil
}

// settleAhead makes sure that what was encoded ahead is in the store. Of an error the backend does not recover: the task's state is not what it
// believes.
func (b *Backend) settleAhead() error {
	if err := b.ahead.wait(); err != nil {
		return err
	}
	b.ahead = nil
	if b.early == nil {
		return nil
	}
	x := b.early
	b.early, b.largest = nil, x.largest
	if err := x.apply(); err != nil {
		b.ahead = failed(fmt.Errorf("pebble: write changes: %w", err))
	}
	return b.ahead.wait()
}

// alongAhead returns a batch for what is to be written now: what was encoded ahead is in it, or in the store already.
func (b *Backend) alongAhead() (batch, error) {
	if err := b.settlePending(); err != nil {
		return nil, err
	}
	if err := b.ahead.wait(); err != nil {
		return nil, err
	}
	if b.early == nil || len(b.drops) > 0 {
		if err := b.settleAhead(); err != nil {
			return nil, err
		}
		return b.batch()
	}
	x := b.early
	b.early, b.ahead, b.largest = nil, nil, x.largest
	return x, nil
}

// failed is a batch that did not get to the store.
func failed(err error) *written {
	w := &written{done: make(chan struct{}), err: err}
	close(w.done)
	return w
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

// ahead encodes changes of a namespace ahead of the next snapshot. The page that is just being changed is not among them.
func ahead[K comparable, V any](t *table[K, V], s *nspace[K, V]) {
	s.changes, s.look = 0, s.look+1
	if !t.b.roomAhead() {
		return
	}
	s.dirty, t.rested, s.hand = rested(slots.Heads(s.space.Pages), s.dirty, s.hand, s.look, t.b.opts.aheadEvery+t.b.opts.aheadEvery/4, t.rested[:0])
	if len(t.rested) == 0 {
		return
	}
	x, err := t.b.aheadBatch()
	if err == nil {
		if err = addPages(t, x, s, t.rested); err == nil && x.Len() >= t.b.together() && t.b.mayWrite() {
			err = t.b.writeEarly()
		}
	}
	if err != nil {
		t.b.ahead = failed(fmt.Errorf("pebble: state %q: write ahead: %w", t.desc.Name, err))
	}
}

// aheadBatch is where to encode changes to.
func (b *Backend) aheadBatch() (*chunks, error) {
	if len(b.drops) > 0 { // which come after what was encoded before
		if err := b.settle(); err != nil {
			return nil, err
		}
		first, err := b.batch()
		if err != nil {
			return nil, err
		}
		b.early = &chunks{b: b, piece: 2 * b.together(), cur: first, largest: b.largest}
	}
	if b.early == nil {
		b.early = &chunks{b: b, piece: 2 * b.together(), cur: b.db.newBatch(), largest: b.largest}
	}
	return b.early, nil
}
