package jobmaster

import (
	"context"
	"sync"
)

// maxQueued is how many events may wait before peers' messages are held back at their links.
const maxQueued = 4096

// queue is the loop's inbox. Post never waits (timers, slots, results: there are few of them); PostWait holds the sender back while the
// queue is long, which slows the sender's link down.
type queue struct {
	mu     sync.Mutex
	items  []func()
	wake   chan struct{} // holds one token when items is not empty
	room   chan struct{} // closed and replaced when the queue got shorter
	closed bool
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), room: make(chan struct{})}
}

// Post adds an event; after close it is dropped and the result is false.
func (q *queue) Post(fn func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(fn)
}

func (q *queue) add(fn func()) bool {
	if q.closed {
		return false
	}
	q.items = append(q.items, fn)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// PostWait is Post for messages of peers.
func (q *queue) PostWait(ctx context.Context, fn func()) bool {
	for {
		q.mu.Lock()
		if q.closed || len(q.items) < maxQueued {
			ok := q.add(fn)
			q.mu.Unlock()
			return ok
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// take returns what waits, and empties the queue.
func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	close(q.room)
	q.room = make(chan struct{})
	return items
}

// close drops what waits and what comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.room)
		q.room = make(chan struct{})
	}
}
