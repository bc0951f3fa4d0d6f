package task

import "time"

// pace is how many records a source emits before the task looks up. Where barriers overtake it follows how long they take, and how much room
// the outputs have, since a source cannot be stopped within a Poll.
type pace struct {
	max, now int
}

const slowPoll = 5 * time.Millisecond

// polled follows a Poll that took a time; full: an output is full now; fits: so many records have room above the bounds.
func (p *pace) polled(took time.Duration, full bool, fits int) {
	switch {
	case took > slowPoll || full:
		p.now = max(1, p.now/4)
	default:
		p.now = min(p.max, 2*p.now)
	}
	p.now = max(1, min(p.now, fits))
}

func (i *sourceInput) begin() (start time.Time) {
	if i.t.unaligned != nil {
		start = time.Now()
	}
	return start
}

func (i *sourceInput) end(start time.Time) {
	t := i.t
	if t.unaligned == nil {
		return
	}
	fits := i.pace.max
	if n := i.s.Records(); n > 0 {
		var bytes int64
		for _, p := range t.parts {
			bytes += p.BytesOut()
		}
		if each := bytes / n; each > 0 {
			fits = int(min(int64(fits), t.unaligned.room()/each/2))
		}
	}
	i.pace.polled(time.Since(start), t.full(), fits)
}
