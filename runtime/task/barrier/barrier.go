// Package barrier decides when a task that reads several channels takes its part of a checkpoint: the alignment of barriers. It is a pure
// core of layer L2, without goroutine, clock or I/O: the task tells the Aligner what arrives and carries out the effects in order, before
// it polls its gates again.
//
// A barrier cuts each channel in two: what is in front belongs to the checkpoint, what is behind does not. With exactly-once the task
// therefore stops reading a channel whose barrier came until the barriers of all others have come too. An unaligned barrier does not wait:
// it overtakes what is under way, the task starts the checkpoint at the first one, and what was overtaken, or still comes in front of the
// barriers of the other channels, is put into the checkpoint too while the task goes on reading.
//
// Invariants:
//
//  1. Each checkpoint is started at most once, and never after it was aborted; ids that are started rise.
//  2. An aligned checkpoint is started when its barrier came from every channel that has not ended, and not before; an unaligned one with
//     the first barrier that is unaligned, or at the timeout (OnTimeout) of an alignment.
//  3. A channel is blocked only while an alignment is pending of which it has delivered the barrier; whenever none is pending no channel is.
//  4. With exactly-once one checkpoint is pending: when several are under way, the barriers of the later ones wait behind those of the first,
//     in channels that are blocked. So a channel that delivers a newer barrier will not deliver the older one: that checkpoint was given up
//     there, and a newer barrier ends it. With at-least-once no channel is blocked, and several checkpoints are counted (tracker.go).
//  5. After the Start of an unaligned checkpoint, exactly one Complete or Abort of it follows. Between the two the input of a channel is
//     the checkpoint's from the Start to the channel's Cut; a channel whose barrier came before the Start has no Cut.
//
// The aligner is a machine of three states, waiting (for a first barrier), collecting (blocked channels wait for the others) and
// recording (the checkpoint runs, unaligned), which act through the narrow set of methods in control.go.
//
// Source: Flink 2.x SingleCheckpointBarrierHandler, BarrierHandlerState, AlternatingCollectingBarriersUnaligned, CheckpointBarrierTracker.
package barrier

import "time"

// Barrier is a checkpoint barrier as it came out of a channel.
type Barrier struct {
	ID        int64  // of the checkpoint; ids rise
	Timestamp int64  // ms since 1970, when the coordinator triggered it
	Options   uint8  // bit flags, passed through
	Extra     []byte // opaque, passed through
	Unaligned bool   // it overtook what was under way
}

// EffectKind says what an Effect asks for.
type EffectKind uint8

const (
	// Block asks not to read Channel until Unblock.
	Block EffectKind = iota + 1
	// Unblock ends Block.
	Unblock
	// Start asks to take the checkpoint of Barrier now: before anything else is read, and before the channels that are unblocked by the
	// effects behind it.
	Start
	// Abort says that the checkpoint ID will not be started here, or, after an unaligned Start, not completed. With Subsumed the
	// coordinator is to be told.
	Abort
	// Cut says that what Channel delivers from here on is behind its barrier: of a checkpoint that was started unaligned.
	Cut
	// Complete says that every channel of a checkpoint that was started unaligned has had its Cut.
	Complete
)

// Reason says why a checkpoint was aborted.
type Reason uint8

const (
	// Subsumed means that a newer barrier came while the alignment was pending.
	Subsumed Reason = iota + 1
	// Requested means that OnAbort ended the alignment.
	Requested
)

// Effect is one thing that the task must do.
type Effect struct {
	Kind    EffectKind
	Channel int     // of Block, Unblock and Cut
	Barrier Barrier // of Start: the first that came; of Abort and Complete: likewise
	// Unaligned, of Start: the input of the channels that are Open belongs to the checkpoint, up to their Cut.
	Unaligned bool
	// Alignment is how long the first channel waited for the last: of an aligned Start, Abort and Complete; of an unaligned Start: so far.
	Alignment time.Duration
	Reason    Reason // of Abort
}

// Aligner aligns the barriers of one task over all channels of all its inputs, which are numbered from 0. Not safe for concurrent use. The
// effects that a method returns are valid until the next call.
type Aligner struct {
	c     control
	state state
	count *tracker // of at-least-once, which needs nothing else
}

// New returns an aligner for the given number of channels. With atLeastOnce it never blocks: it starts a checkpoint when all barriers
// have come and lets records overtake it meanwhile.
func New(channels int, atLeastOnce bool) *Aligner {
	if atLeastOnce {
		return &Aligner{count: newTracker(channels)}
	}
	return &Aligner{c: control{channels: make([]channel, channels), open: channels, latest: -1}, state: waiting{}}
}

// OnBarrier takes a barrier that came out of a channel at the given time. Barriers of checkpoints that were started or aborted, and of older
// ones, have no effect, nor has a barrier of a channel that ended.
func (a *Aligner) OnBarrier(ch int, b Barrier, now time.Time) []Effect {
	if a.count != nil {
		return a.count.onBarrier(ch, b, now)
	}
	a.c.effects = a.c.effects[:0]
	if b.ID > a.c.latest && !a.c.aborted(b.ID) && !a.c.channels[ch].ended {
		a.state = a.state.onBarrier(&a.c, ch, b, now)
	}
	return a.c.effects
}

// OnEndOfPartition takes the end of a channel, which counts as aligned from now on, for the pending checkpoint and for all later ones.
func (a *Aligner) OnEndOfPartition(ch int, now time.Time) []Effect {
	if a.count != nil {
		return a.count.onEnd(ch, now)
	}
	a.c.effects = a.c.effects[:0]
	if c := &a.c.channels[ch]; !c.ended {
		c.ended = true
		a.c.open--
		a.state = a.state.onEnd(&a.c, ch, now)
	}
	return a.c.effects
}

// OnAbort takes the coordinator's word that a checkpoint failed elsewhere: a pending alignment ends, and barriers of this id that come later
// have no effect. Other checkpoints, older ones too, are not touched.
func (a *Aligner) OnAbort(id int64, now time.Time) []Effect {
	if a.count != nil {
		return a.count.onAbort(id, now)
	}
	a.c.effects = a.c.effects[:0]
	if id > a.c.latest && !a.c.aborted(id) {
		a.state = a.state.onAbort(&a.c, id, now)
	}
	return a.c.effects
}

// OnTimeout takes the end of the time that the barriers of a checkpoint may take to align: if it is being aligned, it is started unaligned.
func (a *Aligner) OnTimeout(id int64, now time.Time) []Effect {
	a.c.effects = a.c.effects[:0]
	if _, ok := a.state.(collecting); ok && id == a.c.pending.ID {
		a.state = a.c.overtake(now)
	}
	return a.c.effects
}

// Pending returns the checkpoint that is being aligned, or is started and waits for further barriers, and since when; of several, the first.
func (a *Aligner) Pending() (id int64, since time.Time, ok bool) {
	if a.count != nil {
		if len(a.count.counts) == 0 {
			return 0, time.Time{}, false
		}
		return a.count.counts[0].b.ID, a.count.counts[0].since, true
	}
	if _, idle := a.state.(waiting); idle {
		return 0, time.Time{}, false
	}
	return a.c.pending.ID, a.c.since, true
}

// Open reports whether the pending checkpoint's barrier has not come from a channel, which has not ended.
func (a *Aligner) Open(ch int) bool {
	if a.count != nil {
		return false // nothing overtakes
	}
	_, _, pending := a.Pending()
	return pending && !a.c.channels[ch].arrived && !a.c.channels[ch].ended
}
