package task

import (
	"time"

	"github.com/thalweg/thalweg/runtime/network"
)

// flushCost is about what the hand-over of one channel's buffer costs both ends, over a connection. The pause
// between two flushes of an idle task is flushShare times that for each channel, so that a task which is fed a few records at a time
// spends at most a twentieth of a core on their latency, however wide its outputs are.
const (
	flushCost  = 10 * time.Microsecond
	flushShare = 20
)

// idleFlush hands over what the outputs hold when the task has nothing to do: more records, which would fill the buffers, are not in
// sight. It belongs to the task's goroutine. The zero value never flushes.
type idleFlush struct {
	pause time.Duration // at least, between two flushes
	last  time.Time
}

func newIdleFlush(parts []*network.Partition) idleFlush {
	n := 0
	for _, p := range parts {
		n += p.Channels()
	}
	return idleFlush{pause: time.Duration(n) * flushShare * flushCost}
}

// idle is called before the task waits, and returns how long it may wait at most. It blocks as network.Channel.Put does.
func (f *idleFlush) idle(parts []*network.Partition) (longest time.Duration, err error) {
	const forever = time.Hour
	if f.pause == 0 {
		return forever, nil
	}
	holds := false
	for _, p := range parts {
		holds = holds || p.Holds()
	}
	if !holds {
		return forever, nil
	}
	now := time.Now()
	if left := f.pause - now.Sub(f.last); left > 0 {
		return left, nil
	}
	f.last = now
	for _, p := range parts {
		if err := p.FlushAll(); err != nil {
			return 0, err
		}
	}
	return forever, nil
}
