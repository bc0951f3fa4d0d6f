package streamtest

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
)

// mailbox takes work for the test's goroutine from others.
type mailbox struct {
	mu   sync.Mutex
	work []func() error
	err  error
	wake chan struct{} // capacity 1
}

func (m *mailbox) post(fn func() error) {
	m.mu.Lock()
	m.work = append(m.work, fn)
	m.mu.Unlock()
	m.notify()
}

func (m *mailbox) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() (work []func() error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	work, m.work = m.work, nil
	return work, m.err
}

func (m *mailbox) fail(err error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = err
	}
	m.mu.Unlock()
	m.notify()
}

// clock holds what is to happen at processing times, in the order of times and then of calls.
type clock struct {
	h   timers
	seq int
}

type timer struct {
	at  int64
	seq int
	fn  func() error
}

func (c *clock) add(at int64, fn func() error) {
	c.seq++
	heap.Push(&c.h, timer{at, c.seq, fn})
}

// pop removes the earliest timer that is due at until; fn is nil when there is none.
func (c *clock) pop(until int64) (at int64, fn func() error) {
	if len(c.h) == 0 || c.h[0].at > until {
		return 0, nil
	}
	t := heap.Pop(&c.h).(timer)
	return t.at, t.fn
}

type timers []timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)   { *h = append(*h, x.(timer)) }
func (h *timers) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return x
}

// services are those of one subtask; what comes from one of a former run is dropped.
type services struct {
	j   *engine
	s   *subtask
	ctx context.Context //nolint:containedctx // the subtask's life
}

func (v services) alive() bool { return v.ctx.Err() == nil }

func (v services) Post(fn func() error) {
	v.j.mail.post(func() error {
		if !v.alive() {
			return nil
		}
		v.j.at = v.s
		return fn()
	})
}
func (v services) Now() int64                      { return v.j.now }
func (v services) Uptime() int64                   { return v.j.now }
func (v services) Backpressured() int64            { return 0 }
func (v services) After(ms int64, fn func() error) { v.At(v.j.now+ms, fn) }
func (v services) At(ms int64, fn func() error) {
	v.j.clock.add(ms, func() error {
		if !v.alive() {
			return nil
		}
		v.j.at = v.s
		return fn()
	})
}

func (v services) Fail(err error) {
	if v.alive() {
		v.j.mail.fail(err)
	}
}

func (v services) SendEvent(op graph.OperatorID, payload []byte) {
	v.Post(func() error { return v.j.toEnumerator(op, v.s.index, payload) })
}
func (v services) Wake()                    { v.j.mail.notify() }
func (v services) Context() context.Context { return v.ctx }

// metrics keeps counters; of gauges it keeps the names.
type metrics struct {
	mu       sync.Mutex
	counters map[string]*counter
	gauges   map[string]bool
}

type counter struct{ n atomic.Int64 }

func (c *counter) Add(n int64) { c.n.Add(n) }

func (m *metrics) counter(name string) *counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counters == nil {
		m.counters = map[string]*counter{}
	}
	c := m.counters[name]
	if c == nil {
		c = &counter{}
		m.counters[name] = c
	}
	return c
}

// Counter implements connector.Metrics.
func (m *metrics) Counter(name string) connector.Counter { return m.counter(name) }

// Gauge implements connector.Metrics.
func (m *metrics) Gauge(name string, _ func() float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gauges == nil {
		m.gauges = map[string]bool{}
	}
	m.gauges[name] = true
}

// value is that of a counter that somebody registered.
func (m *metrics) value(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.counters[name]; c != nil {
		return c.n.Load(), nil
	}
	if m.gauges[name] {
		return 0, fmt.Errorf("%q is a gauge, not a counter", name)
	}
	return 0, fmt.Errorf("the job has no counter %q; it has: %s", name, strings.Join(slices.Sorted(maps.Keys(m.counters)), ", "))
}
