package rpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A process of a job says that it lives: each heartbeat.interval of the job's configuration it sends a message that is empty. Whoever started
// it watches for that, since a process that is stopped or frozen keeps its connections and would hold the job up for as long as it is.

// Beat calls send at once and in each period until ctx ends.
func Beat(ctx context.Context, period time.Duration, send func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		send()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Watch calls a function once when the other end of a link, which has sent a beat before, has sent nothing for a time-out while it was
// listened to. It counts periods, so that the time in which this process itself was stopped is nobody's silence. Listen and Heard are for the
// goroutine that receives.
type Watch struct {
	listening, beats atomic.Bool
	missed           atomic.Int64
	end              chan struct{}
	done             sync.WaitGroup
}

// NewWatch starts to watch. silent must return soon, and not call Stop.
func NewWatch(period, timeout time.Duration, silent func()) *Watch {
	w := &Watch{end: make(chan struct{})}
	limit := max(2, int64((timeout+period-1)/period))
	w.done.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-w.end:
				return
			}
			if w.beats.Load() && w.listening.Load() && w.missed.Add(1) >= limit {
				silent()
				return
			}
		}
	})
	return w
}

// Listen is called before each Recv.
func (w *Watch) Listen() {
	w.missed.Store(0)
	w.listening.Store(true)
}

// Heard is called after each Recv that returned a message.
func (w *Watch) Heard(beat bool) {
	w.listening.Store(false)
	if beat {
		w.beats.Store(true)
	}
}

// Stop ends the watch. It may be called once.
func (w *Watch) Stop() {
	close(w.end)
	w.done.Wait()
}
