package network

import (
	"slices"
	"sync"
)

// fifo is a queue in one slice that does not allocate in steady state.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.head > 0 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) front() *T { return &q.items[q.head] }
func (q *fifo[T]) back() *T  { return &q.items[len(q.items)-1] }

func (q *fifo[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// at returns the i-th entry from the front.
func (q *fifo[T]) at(i int) *T { return &q.items[q.head+i] }

// insert puts v in front of the i-th entry from the front.
func (q *fifo[T]) insert(i int, v T) {
	q.push(v)
	waiting := q.items[q.head:]
	copy(waiting[i+1:], waiting[i:])
	waiting[i] = v
}

// remove takes out the i-th entry from the front.
func (q *fifo[T]) remove(i int) T {
	v := q.items[q.head+i]
	q.items = slices.Delete(q.items, q.head+i, q.head+i+1)
	if q.len() == 0 {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// find returns the place, from the front, of the first entry that fits, or -1.
func (q *fifo[T]) find(fits func(*T) bool) int {
	for i := range q.len() {
		if fits(q.at(i)) {
			return i
		}
	}
	return -1
}

// pool keeps free buffers of the standard size, at most limit of them.
type pool struct {
	size, limit int

	mu   sync.Mutex
	free [][]byte
}

// get returns an empty buffer with at least size bytes of capacity.
func (p *pool) get() []byte {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return b
	}
	p.mu.Unlock()
	return make([]byte, 0, p.size)
}

// put takes b back, which nobody may use any more. Buffers of unusual size are left to the garbage collector.
func (p *pool) put(b []byte) {
	if cap(b) < p.size || cap(b) > 2*p.size {
		return
	}
	p.mu.Lock()
	if len(p.free) < p.limit {
		p.free = append(p.free, b[:0])
	}
	p.mu.Unlock()
}
