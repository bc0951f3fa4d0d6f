package operator

import (
	"fmt"

	"github.com/thalweg/thalweg/state/onekey"
)

// In BATCH the input of a keyed operator is sorted by key (sorted.go). While a key's records come, its watermark is the least there is: no
// record is late and nothing fires. When they are over, EndKey brings event time, then processing time, to their ends, and drops the
// key's state, so that one key's state is held at a time. Source: Flink BatchExecutionInternalTimeService.setCurrentKey.

// keyEnd is what one part of an operator does at the end of a key, in BATCH, after the watermark has reached its maximum.
type keyEnd struct {
	fire  func() error // may emit; nil for nothing
	reset func()       // makes ready for the next key; nil for nothing
}

// onKeyEnd registers what is to be done at the end of each key; in STREAMING it does nothing.
func (c *Context) onKeyEnd(fire func() error, reset func()) {
	if c.Batch {
		c.keyEnds = append(c.keyEnds, keyEnd{fire, reset})
	}
}

// EndKey ends the current key of a keyed operator in BATCH. What the operator passes on of watermarks meanwhile must not reach what follows
// (Type.Mute).
func (c *Context) EndKey(op Operator) error {
	w, ok := op.(interface{ Watermark(ts int64) error })
	if !ok {
		return lastingError{fmt.Errorf("operator %s: %T takes no watermarks: it cannot run in BATCH (a bug)", c.Describe(), op)}
	}
	if err := w.Watermark(MaxWatermark); err != nil {
		return err
	}
	for _, e := range c.keyEnds {
		if e.fire != nil {
			if err := e.fire(); err != nil {
				return err
			}
		}
	}
	for _, e := range c.keyEnds {
		if e.reset != nil {
			e.reset()
		}
	}
	if b, ok := c.keyed.(*onekey.Backend); ok {
		b.Clear()
	}
	return nil
}

// muted passes watermarks and idleness on while it is not mute.
type muted struct {
	next advancer
	mute *bool
}

func (m *muted) Watermark(ts int64) error {
	if *m.mute {
		return nil
	}
	return m.next.Watermark(ts)
}

func (m *muted) Idle(idle bool) error {
	if *m.mute {
		return nil
	}
	return m.next.Idle(idle)
}

// Mute implements Type.
func (t *recordType[T]) Mute(out any, mute *bool) (any, error) {
	r, err := receiver[T](out)
	if err != nil {
		return nil, err
	}
	return Receiver[T](&steered[T]{&muted{r, mute}, inBatches(r)}), nil
}
