package barrier

import (
	"slices"
	"time"
)

// tracker counts barriers for a task with at-least-once, which stops reading no channel. So a channel can be checkpoints ahead of another
// one, and several are counted at a time. One that all barriers have come of is started; those before it that are not are given up: a
// channel that has delivered its barrier will not deliver theirs.
//
// Source: Flink 2.x CheckpointBarrierTracker.
type tracker struct {
	ended   []bool // by channel
	counts  []count
	latest  int64   // highest id that was started; -1: none
	aborted []int64 // ids above latest
	free    [][]bool
	effects []Effect
}

// count is a checkpoint whose barriers came from some channels and not from others.
type count struct {
	b       Barrier
	since   time.Time
	came    []bool // by channel, or it has ended
	missing int
}

func newTracker(channels int) *tracker {
	return &tracker{ended: make([]bool, channels), latest: -1}
}

// at is the place of a checkpoint in counts, which rise, or the one where it belongs.
func (t *tracker) at(id int64) (i int, ok bool) {
	i = len(t.counts)
	for i > 0 && t.counts[i-1].b.ID >= id {
		i--
	}
	return i, i < len(t.counts) && t.counts[i].b.ID == id
}

func (t *tracker) onBarrier(ch int, b Barrier, now time.Time) []Effect {
	t.effects = t.effects[:0]
	if b.ID <= t.latest || t.ended[ch] || slices.Contains(t.aborted, b.ID) {
		return t.effects
	}
	i, ok := t.at(b.ID)
	if !ok {
		t.counts = slices.Insert(t.counts, i, t.begin(b, now))
	}
	t.counts[i].arrive(ch)
	t.start(now)
	return t.effects
}

func (t *tracker) begin(b Barrier, now time.Time) count {
	c := count{b: b, since: now}
	if n := len(t.free); n > 0 {
		c.came, t.free = t.free[n-1], t.free[:n-1]
	} else {
		c.came = make([]bool, len(t.ended))
	}
	copy(c.came, t.ended)
	for _, came := range c.came {
		if !came {
			c.missing++
		}
	}
	return c
}

func (c *count) arrive(ch int) {
	if !c.came[ch] {
		c.came[ch] = true
		c.missing--
	}
}

func (t *tracker) onEnd(ch int, now time.Time) []Effect {
	t.effects = t.effects[:0]
	if t.ended[ch] {
		return t.effects
	}
	t.ended[ch] = true
	for i := range t.counts {
		t.counts[i].arrive(ch)
	}
	t.start(now)
	return t.effects
}

func (t *tracker) onAbort(id int64, now time.Time) []Effect {
	t.effects = t.effects[:0]
	if id <= t.latest || slices.Contains(t.aborted, id) {
		return t.effects
	}
	t.aborted = append(t.aborted, id)
	if i, ok := t.at(id); ok {
		t.end(i, Effect{Kind: Abort, Reason: Requested}, now)
	}
	return t.effects
}

// start starts, in their order, the checkpoints whose barriers have all come.
func (t *tracker) start(now time.Time) {
	for i := 0; i < len(t.counts); {
		if t.counts[i].missing > 0 {
			i++
			continue
		}
		for ; i > 0; i-- {
			t.end(0, Effect{Kind: Abort, Reason: Subsumed}, now)
		}
		t.latest = t.counts[0].b.ID
		t.end(0, Effect{Kind: Start}, now)
		t.aborted = slices.DeleteFunc(t.aborted, func(id int64) bool { return id <= t.latest })
	}
}

// end forgets a count.
func (t *tracker) end(i int, e Effect, now time.Time) {
	c := t.counts[i]
	e.Barrier, e.Alignment = c.b, now.Sub(c.since)
	t.effects = append(t.effects, e)
	t.counts = slices.Delete(t.counts, i, i+1)
	t.free = append(t.free, c.came)
}
