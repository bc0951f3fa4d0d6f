package barrier

import (
	"slices"
	"time"
)

// state is one state of the aligner. Each method returns the next one. Barriers and aborts that concern ids at or below control.latest, or
// aborted ones, and second ends of a channel, do not get here.
type state interface {
	onBarrier(c *control, ch int, b Barrier, now time.Time) state
	onEnd(c *control, ch int, now time.Time) state
	onAbort(c *control, id int64, now time.Time) state
}

type channel struct {
	ended   bool
	arrived bool // the pending checkpoint's barrier came
	blocked bool
}

// control is the data of the aligner with the few moves that states make of it.
type control struct {
	channels   []channel
	open       int     // channels that have not ended
	latest     int64   // highest id that was started or given up; -1: none
	abortedIDs []int64 // ids above latest that were aborted before any barrier of theirs was taken
	pending    Barrier // with since, missing: of collecting
	since      time.Time
	missing    int // open channels whose barrier did not come
	effects    []Effect
}

func (c *control) aborted(id int64) bool { return slices.Contains(c.abortedIDs, id) }

func (c *control) emit(e Effect) { c.effects = append(c.effects, e) }

// begin makes b the pending checkpoint.
func (c *control) begin(b Barrier, now time.Time) {
	c.pending, c.since, c.missing = b, now, c.open
	for i := range c.channels {
		c.channels[i].arrived = false
	}
}

// arrive counts the pending checkpoint's barrier of ch. It returns whether it was the last.
func (c *control) arrive(ch int) (last bool) {
	k := &c.channels[ch]
	if k.arrived {
		return false // a second barrier of one checkpoint on one channel says nothing new
	}
	k.arrived = true
	c.missing--
	if c.missing > 0 {
		k.blocked = true
		c.emit(Effect{Kind: Block, Channel: ch})
	}
	return c.missing == 0
}

// start starts the pending checkpoint.
func (c *control) start(now time.Time) state {
	c.emit(Effect{Kind: Start, Barrier: c.pending, Alignment: now.Sub(c.since)})
	return c.settle()
}

// abort gives the pending checkpoint up.
func (c *control) abort(r Reason, now time.Time) state {
	c.emit(Effect{Kind: Abort, Barrier: c.pending, Alignment: now.Sub(c.since), Reason: r})
	return c.settle()
}

// overtake starts the pending checkpoint without the barriers that are missing.
func (c *control) overtake(now time.Time) state {
	c.emit(Effect{Kind: Start, Barrier: c.pending, Unaligned: true, Alignment: now.Sub(c.since)})
	c.unblock()
	return c.recorded(now)
}

// recorded follows a Start that was unaligned, and each Cut after it.
func (c *control) recorded(now time.Time) state {
	if c.missing > 0 {
		return recording{}
	}
	c.emit(Effect{Kind: Complete, Barrier: c.pending, Alignment: now.Sub(c.since)})
	return c.settle()
}

// cut takes the barrier, or the end, of a channel while the checkpoint runs.
func (c *control) cut(ch int, now time.Time) state {
	k := &c.channels[ch]
	if k.arrived {
		return recording{}
	}
	k.arrived = true
	c.missing--
	c.emit(Effect{Kind: Cut, Channel: ch})
	return c.recorded(now)
}

func (c *control) settle() state {
	c.unblock()
	c.latest, c.pending = c.pending.ID, Barrier{}
	c.abortedIDs = slices.DeleteFunc(c.abortedIDs, func(id int64) bool { return id <= c.latest })
	return waiting{}
}

func (c *control) unblock() {
	for i := range c.channels {
		if c.channels[i].blocked {
			c.channels[i].blocked = false
			c.emit(Effect{Kind: Unblock, Channel: i})
		}
	}
}

// waiting: no alignment is pending.
type waiting struct{}

func (waiting) onBarrier(c *control, ch int, b Barrier, now time.Time) state {
	c.begin(b, now)
	if b.Unaligned {
		c.channels[ch].arrived = true
		c.missing--
		return c.overtake(now)
	}
	if c.arrive(ch) {
		return c.start(now)
	}
	return collecting{}
}

func (waiting) onEnd(*control, int, time.Time) state { return waiting{} }

func (waiting) onAbort(c *control, id int64, _ time.Time) state {
	c.abortedIDs = append(c.abortedIDs, id)
	return waiting{}
}

// collecting: the barrier of control.pending came from some of the open channels and not from others.
type collecting struct{}

func (collecting) onBarrier(c *control, ch int, b Barrier, now time.Time) state {
	switch {
	case b.ID < c.pending.ID: // a channel that is behind; its checkpoint cannot be completed any more
		return collecting{}
	case b.ID > c.pending.ID:
		return c.abort(Subsumed, now).onBarrier(c, ch, b, now)
	case b.Unaligned && !c.channels[ch].arrived: // it was turned on its way
		c.channels[ch].arrived = true
		c.missing--
		return c.overtake(now)
	case c.arrive(ch):
		return c.start(now)
	}
	return collecting{}
}

func (collecting) onEnd(c *control, ch int, now time.Time) state {
	k := &c.channels[ch]
	if k.blocked { // it ended behind its barrier: there is nothing left to hold back
		k.blocked = false
		c.emit(Effect{Kind: Unblock, Channel: ch})
	}
	if !k.arrived {
		k.arrived = true
		c.missing--
	}
	if c.missing == 0 {
		return c.start(now)
	}
	return collecting{}
}

func (collecting) onAbort(c *control, id int64, now time.Time) state {
	if id == c.pending.ID {
		return c.abort(Requested, now)
	}
	c.abortedIDs = append(c.abortedIDs, id)
	return collecting{}
}

// recording: the checkpoint of control.pending is started, unaligned, and the barriers of some open channels did not come yet.
type recording struct{}

func (recording) onBarrier(c *control, ch int, b Barrier, now time.Time) state {
	switch {
	case b.ID < c.pending.ID:
		return recording{}
	case b.ID > c.pending.ID:
		return c.abort(Subsumed, now).onBarrier(c, ch, b, now)
	}
	return c.cut(ch, now)
}

func (recording) onEnd(c *control, ch int, now time.Time) state { return c.cut(ch, now) }

func (recording) onAbort(c *control, id int64, now time.Time) state {
	if id == c.pending.ID {
		return c.abort(Requested, now)
	}
	c.abortedIDs = append(c.abortedIDs, id)
	return recording{}
}
