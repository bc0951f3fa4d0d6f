package task

import (
	"container/heap"
	"sync"
	"sync/atomic"
)

// mailbox holds functions that run on the task's goroutine.
type mailbox struct {
	pending atomic.Int32
	look    *atomic.Bool  // set with each mail: the task is to look up from its work
	wake    chan struct{} // capacity 1
	mu      sync.Mutex
	mails   []func() error
	closed  bool
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1), look: &atomic.Bool{}} }

func (m *mailbox) post(fn func() error) {
	m.mu.Lock()
	if !m.closed {
		m.mails = append(m.mails, fn)
		m.pending.Store(int32(len(m.mails)))
	}
	m.mu.Unlock()
	m.interrupt()
}

// interrupt wakes the task, and lets it look up between two records.
func (m *mailbox) interrupt() {
	m.look.Store(true)
	m.notify()
}

func (m *mailbox) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run runs all mails in order, also those that mails post, and stops at the first error.
func (m *mailbox) run() error {
	for m.pending.Load() != 0 {
		m.mu.Lock()
		batch := m.mails
		m.mails = nil
		m.pending.Store(0)
		m.mu.Unlock()
		for _, fn := range batch {
			if err := fn(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *mailbox) close() {
	m.mu.Lock()
	m.closed, m.mails = true, nil
	m.pending.Store(0)
	m.mu.Unlock()
}

// clockTimers are the timers of a task by one of its clocks, owned by its goroutine.
type clockTimers struct {
	h   timerHeap
	seq int64
}

type clockTimer struct {
	at, seq int64
	fn      func() error
}

func (c *clockTimers) add(at int64, fn func() error) {
	c.seq++
	heap.Push(&c.h, clockTimer{at, c.seq, fn})
}

// next is the earliest time; ok is false when there is none.
func (c *clockTimers) next() (at int64, ok bool) {
	if len(c.h) == 0 {
		return 0, false
	}
	return c.h[0].at, true
}

// run runs what is due at now, in time order; timers that these add for now or earlier wait for the next call.
func (c *clockTimers) run(now int64) error {
	last := c.seq
	for len(c.h) > 0 && c.h[0].at <= now && c.h[0].seq <= last {
		t := heap.Pop(&c.h).(clockTimer)
		if err := t.fn(); err != nil {
			return err
		}
	}
	return nil
}

type timerHeap []clockTimer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)   { *h = append(*h, x.(clockTimer)) }
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = clockTimer{}
	*h = old[:len(old)-1]
	return x
}
