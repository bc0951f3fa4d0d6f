// Package timerset keeps timers in memory: a 4-ary heap without pointers, ordered by time, and a copy-on-write Space that finds
// duplicates and that snapshots walk. It is a leaf of layer L1 under the state backends.
//
// A deleted timer leaves the Space at once and the heap when it comes to the top; its id stays reserved until then, so a heap item
// always means the timer it was made for. When dead items are the majority the heap is rebuilt.
package timerset

import (
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// Key identifies a timer. Hash is the key's own hash.
type Key[K comparable] struct {
	K    K
	NS   state.Namespace
	At   int64
	Hash uint32
}

// hash mixes namespace and time into the key's hash.
func (k *Key[K]) hash() uint32 {
	x := uint64(k.Hash) ^ uint64(k.NS)*0x9e3779b97f4a7c15 ^ uint64(k.At)*0xc2b2ae3d27d4eb4f
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return uint32(x >> 32)
}

type item struct {
	at int64
	id uint32
}

// Set is a set of timers. It belongs to one goroutine.
type Set[K comparable] struct {
	pool  *slots.Pool[Key[K], struct{}]
	space *slots.Space[Key[K], struct{}]
	heap  []item
	dead  int
}

// New returns an empty set whose pages follow clock.
func New[K comparable](clock *slots.Clock) *Set[K] {
	p := slots.NewPool[Key[K], struct{}](clock)
	return &Set[K]{pool: p, space: slots.NewSpace(p)}
}

// Len is the number of timers.
func (s *Set[K]) Len() int { return s.space.Len() }

// Pages returns the pages of the timers, for views.
func (s *Set[K]) Pages() []*slots.Page[Key[K], struct{}] { return s.space.Pages() }

// Has reports whether the timer is in the set.
func (s *Set[K]) Has(k Key[K]) bool {
	_, ok := s.space.Find(k.hash(), k)
	return ok
}

// Add adds a timer that Has denies; the set keeps k.K.
func (s *Set[K]) Add(k Key[K]) {
	id, _, _ := s.space.Insert(k.hash(), k)
	s.heap = append(s.heap, item{k.At, id})
	s.up(len(s.heap) - 1)
}

// Delete removes a timer and reports whether it was there.
func (s *Set[K]) Delete(k Key[K]) bool {
	id, ok := s.space.Find(k.hash(), k)
	if !ok {
		return false
	}
	s.space.Unlink(id)
	s.dead++
	if s.dead > 1024 && s.dead > s.space.Len() {
		s.rebuild()
	}
	return true
}

// Next is the earliest time.
func (s *Set[K]) Next() (int64, bool) {
	s.trim()
	if len(s.heap) == 0 {
		return 0, false
	}
	return s.heap[0].at, true
}

// Pop removes the earliest timer if it is due at until.
func (s *Set[K]) Pop(until int64) (Key[K], bool) {
	s.trim()
	if len(s.heap) == 0 || s.heap[0].at > until {
		return Key[K]{}, false
	}
	id := s.heap[0].id
	s.drop()
	p, i := s.space.At(id)
	k := p.Keys[i]
	s.space.Delete(id)
	return k, true
}

// Each calls fn for every timer, in no order, until fn returns false.
func (s *Set[K]) Each(fn func(k *Key[K]) bool) {
	for _, p := range s.space.Pages() {
		for i := range p.Keys {
			if p.Live>>i&1 != 0 && !fn(&p.Keys[i]) {
				return
			}
		}
	}
}

// trim removes dead items from the top.
func (s *Set[K]) trim() {
	for s.dead > 0 && len(s.heap) > 0 && !s.space.IsLive(s.heap[0].id) {
		s.space.Free(s.heap[0].id)
		s.drop()
		s.dead--
	}
}

// drop removes the top.
func (s *Set[K]) drop() {
	n := len(s.heap) - 1
	s.heap[0] = s.heap[n]
	s.heap = s.heap[:n]
	if n > 0 {
		s.down(0)
	}
}

func (s *Set[K]) rebuild() {
	live := s.heap[:0]
	for _, it := range s.heap {
		if s.space.IsLive(it.id) {
			live = append(live, it)
		} else {
			s.space.Free(it.id)
		}
	}
	s.heap, s.dead = live, 0
	for i := (len(live) - 2) / 4; i >= 0 && len(live) > 1; i-- {
		s.down(i)
	}
}

func (s *Set[K]) up(i int) {
	h := s.heap
	it := h[i]
	for i > 0 {
		p := (i - 1) / 4
		if h[p].at <= it.at {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = it
}

func (s *Set[K]) down(i int) {
	h := s.heap
	it := h[i]
	for {
		c := 4*i + 1
		if c >= len(h) {
			break
		}
		m := c
		for k := c + 1; k < min(c+4, len(h)); k++ {
			if h[k].at < h[m].at {
				m = k
			}
		}
		if h[m].at >= it.at {
			break
		}
		h[i] = h[m]
		i = m
	}
	h[i] = it
}
