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
func hash(key uint32, ns state.Namespace, at int64) uint32 {
	x := uint64(key) ^ uint64(ns)*0x9e3779b97f4a7c15 ^ uint64(at)*0xc2b2ae3d27d4eb4f
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return uint32(x >> 32)
}

// Set is a set of timers. It belongs to one goroutine. It has no methods, like what is below it: see package slots.
type Set[K comparable] struct {
	space *slots.Space[Key[K], struct{}]
	heap  heap
}

// New returns an empty set whose pages follow clock.
func New[K comparable](clock *slots.Clock) *Set[K] {
	return &Set[K]{space: slots.NewSpace(slots.NewPool[Key[K], struct{}](clock))}
}

// Len is the number of timers.
func Len[K comparable](s *Set[K]) int { return s.space.IDs.Len() }

// Pages returns the pages of the timers, for views.
func Pages[K comparable](s *Set[K]) []*slots.Page[Key[K], struct{}] { return s.space.Pages }

// Has reports whether the timer is in the set.
func Has[K comparable](s *Set[K], k Key[K]) bool {
	_, ok := slots.Find(s.space, hash(k.Hash, k.NS, k.At), k)
	return ok
}

// Add adds a timer that Has denies; the set keeps k.K.
func Add[K comparable](s *Set[K], k Key[K]) {
	id, _, _ := slots.Insert(s.space, hash(k.Hash, k.NS, k.At), k)
	s.heap.push(k.At, id)
}

// Delete removes a timer and reports whether it was there.
func Delete[K comparable](s *Set[K], k Key[K]) bool {
	id, ok := slots.Find(s.space, hash(k.Hash, k.NS, k.At), k)
	if ok {
		slots.Unlink(s.space, id)
		s.heap.died(slots.Heads(s.space.Pages), &s.space.IDs)
	}
	return ok
}

// Next is the earliest time.
func Next[K comparable](s *Set[K]) (int64, bool) {
	it, ok := s.heap.next(slots.Heads(s.space.Pages), &s.space.IDs)
	return it.at, ok
}

// Pop removes the earliest timer if it is due at until.
func Pop[K comparable](s *Set[K], until int64) (k Key[K], ok bool) {
	it, ok := s.heap.next(slots.Heads(s.space.Pages), &s.space.IDs)
	if !ok || it.at > until {
		return k, false
	}
	s.heap.drop()
	p, i := slots.At(s.space, it.id)
	k = p.Keys[i]
	slots.Delete(s.space, it.id)
	return k, true
}

// Each calls fn for every timer, in no order, until fn returns false.
func Each[K comparable](s *Set[K], fn func(k *Key[K]) bool) {
	for _, p := range s.space.Pages {
		for i := range p.Keys {
			if p.Live>>i&1 != 0 && !fn(&p.Keys[i]) {
				return
			}
		}
	}
}
