// Package slots is the open-addressing storage under the state backends: dense pages of entries (hashes, keys and values in arrays of
// their own) with an index beside them, and copy on write by epoch. It is a leaf of layer L1.
//
// A Space holds the entries of one namespace. An entry has an id, which stays while the entry lives: page id>>6, slot id&63. The index
// maps hashes to ids; it is not part of snapshots, since a snapshot walks pages.
//
// Copy on write: a Clock counts epochs. Freeze ends an epoch; the pages that exist then belong to the frozen view. Later, the first
// write to such a page copies it, as long as the view is in use; when no view holds it, the page is taken over as it stands.
//
// Invariants:
//
//  1. A page whose Epoch is at most Clock.frozen is never written.
//  2. Values with memory behind pointers are shared between a page and its frozen original until the slot's bit in Owned is set.
//  3. A Space and its Pool belong to one goroutine; views are read by others. Only the page of the space appends to Text, which it may share
//     with a frozen original: behind what that one's values refer to.
package slots

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// PageLen is the number of entries of a full page.
const PageLen = 64

const (
	pageShift = 6
	pageMask  = PageLen - 1
	firstPage = 4 // entries of the first page of a small space
	unindexed = 8 // ids below are found by comparing hashes one by one, as long as there are no others
)

// Clock counts epochs and knows which of them are held by views.
type Clock struct {
	Epoch  uint64
	frozen atomic.Uint64 // the latest epoch that a view holds, 0 when none
	mu     sync.Mutex
	active map[uint64]bool
}

// NewClock starts in epoch 1.
func NewClock() *Clock { return &Clock{Epoch: 1, active: map[uint64]bool{}} }

// Freeze ends the epoch and returns it; the pages of it and of earlier ones stay as they are until Release.
func (c *Clock) Freeze() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.Epoch
	c.Epoch++
	c.active[e] = true
	c.frozen.Store(e)
	return e
}

// Release gives up the view of epoch e. It may be called from any goroutine.
func (c *Clock) Release(e uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, e)
	top := uint64(0)
	for x := range c.active {
		top = max(top, x)
	}
	c.frozen.Store(top)
}

// Page holds up to PageLen entries. Bit i of Live says that slot i is in use.
type Page[K comparable, V any] struct {
	Epoch uint64
	Live  uint64
	Owned uint64 // slots whose values share nothing with a frozen page
	Hot   uint64 // slots used since the bit was cleared; for caches
	Dirty uint64 // slots changed since they were stored; for caches, set by them
	Text  []byte // strings of the values, where the table has Texts
	Hash  []uint32
	Keys  []K
	Vals  []V
}

// Pool keeps unused pages and index arrays of the spaces of one table.
type Pool[K comparable, V any] struct {
	Clock   *Clock
	pages   []*Page[K, V]
	indexes [32][]uint64
}

// NewPool returns an empty pool.
func NewPool[K comparable, V any](c *Clock) *Pool[K, V] { return &Pool[K, V]{Clock: c} }

const maxPooledPages = 4096

func (p *Pool[K, V]) page(size int) *Page[K, V] {
	if n := len(p.pages); size == PageLen && n > 0 {
		pg := p.pages[n-1]
		p.pages = p.pages[:n-1]
		pg.Epoch, pg.Live, pg.Owned, pg.Hot, pg.Dirty, pg.Text = p.Clock.Epoch, 0, 0, 0, 0, nil
		return pg
	}
	if size == PageLen {
		f := &fullPage[K, V]{}
		f.Epoch, f.Hash, f.Keys, f.Vals = p.Clock.Epoch, f.hash[:], f.keys[:], f.vals[:]
		return &f.Page
	}
	return &Page[K, V]{Epoch: p.Clock.Epoch, Hash: make([]uint32, size), Keys: make([]K, size), Vals: make([]V, size)}
}

// fullPage is a page of PageLen entries, in one allocation.
type fullPage[K comparable, V any] struct {
	Page[K, V]
	hash [PageLen]uint32
	keys [PageLen]K
	vals [PageLen]V
}

func (p *Pool[K, V]) index(size int) []uint64 {
	b := bits.Len(uint(size))
	if x := p.indexes[b]; len(x) == size {
		p.indexes[b] = nil
		clear(x)
		return x
	}
	return make([]uint64, size)
}

func (p *Pool[K, V]) keepIndex(x []uint64) {
	if len(x) > 0 {
		p.indexes[bits.Len(uint(len(x)))] = x
	}
}

// Space is the set of entries of one namespace.
type Space[K comparable, V any] struct {
	pool  *Pool[K, V]
	pages []*Page[K, V]
	index []uint64 // hash<<32 | id+1, 0 is empty
	mask  uint32
	live  int
	next  uint32 // ids from here on were never used
	free  []uint32
}

// NewSpace returns an empty space.
func NewSpace[K comparable, V any](p *Pool[K, V]) *Space[K, V] { return &Space[K, V]{pool: p} }

// Len is the number of entries.
func (s *Space[K, V]) Len() int { return s.live }

// Pages returns the pages, to be read only. The slice changes with the space; a view keeps a copy.
func (s *Space[K, V]) Pages() []*Page[K, V] { return s.pages }

// Find returns the id of key.
func (s *Space[K, V]) Find(hash uint32, key K) (uint32, bool) {
	if s.index == nil {
		if len(s.pages) == 0 {
			return 0, false
		}
		p := s.pages[0]
		for i, h := range p.Hash {
			if h == hash && p.Live>>i&1 != 0 && p.Keys[i] == key {
				return uint32(i), true
			}
		}
		return 0, false
	}
	for i := hash & s.mask; ; i = (i + 1) & s.mask {
		x := s.index[i]
		if x == 0 {
			return 0, false
		}
		if uint32(x>>32) == hash {
			id := uint32(x) - 1
			if s.pages[id>>pageShift].Keys[id&pageMask] == key {
				return id, true
			}
		}
	}
}

// At returns the page and slot of an entry, for reading.
func (s *Space[K, V]) At(id uint32) (*Page[K, V], uint32) {
	return s.pages[id>>pageShift], id & pageMask
}

// Writable is At for writing.
func (s *Space[K, V]) Writable(id uint32) (*Page[K, V], uint32) {
	p := s.pages[id>>pageShift]
	if p.Epoch != s.pool.Clock.Epoch {
		p = s.thaw(id >> pageShift)
	}
	return p, id & pageMask
}

// thaw makes page i writable in the current epoch.
func (s *Space[K, V]) thaw(i uint32) *Page[K, V] {
	p, c := s.pages[i], s.pool.Clock
	frozen := c.frozen.Load()
	if p.Epoch > frozen {
		p.Epoch = c.Epoch
		if frozen == 0 {
			p.Owned = ^uint64(0)
		}
		return p
	}
	n := s.pool.page(len(p.Hash))
	n.Live, n.Hot, n.Dirty, n.Text = p.Live, p.Hot, p.Dirty, p.Text
	copy(n.Hash, p.Hash)
	copy(n.Keys, p.Keys)
	copy(n.Vals, p.Vals)
	s.pages[i] = n
	return n
}

// Insert adds key, which must be absent, with a zero value, and returns its id and place. The space keeps key.
func (s *Space[K, V]) Insert(hash uint32, key K) (uint32, *Page[K, V], uint32) {
	var id uint32
	if n := len(s.free); n > 0 {
		id = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		id = s.next
		s.next++
	}
	s.room(id)
	p, i := s.Writable(id)
	var zero V
	p.Hash[i], p.Keys[i], p.Vals[i] = hash, key, zero
	p.Live |= 1 << i
	p.Owned |= 1 << i
	p.Hot |= 1 << i
	s.live++
	switch {
	case s.index == nil && s.next > unindexed:
		s.buildIndex()
	case s.index != nil:
		if s.live*4 > len(s.index)*3 {
			s.growIndex()
		}
		s.link(hash, id)
	}
	return id, p, i
}

// room makes sure that the page of id exists and holds its slot.
func (s *Space[K, V]) room(id uint32) {
	pi, slot := id>>pageShift, int(id&pageMask)
	if int(pi) == len(s.pages) {
		size := PageLen
		if pi == 0 {
			size = firstPage
		}
		s.pages = append(s.pages, s.pool.page(size))
		return
	}
	if p := s.pages[pi]; slot >= len(p.Hash) {
		size := min(len(p.Hash)*4, PageLen)
		n := s.pool.page(size)
		frozen := p.Epoch <= s.pool.Clock.frozen.Load()
		n.Live, n.Hot, n.Dirty, n.Text = p.Live, p.Hot, p.Dirty, p.Text
		if !frozen {
			n.Owned = p.Owned
		}
		copy(n.Hash, p.Hash)
		copy(n.Keys, p.Keys)
		copy(n.Vals, p.Vals)
		s.pages[pi] = n
	}
}

func (s *Space[K, V]) link(hash, id uint32) {
	i := hash & s.mask
	for s.index[i] != 0 {
		i = (i + 1) & s.mask
	}
	s.index[i] = uint64(hash)<<32 | uint64(id+1)
}

// buildIndex makes the first index, of all entries.
func (s *Space[K, V]) buildIndex() {
	s.index = s.pool.index(4 * unindexed)
	s.mask = uint32(len(s.index) - 1)
	for pi, p := range s.pages {
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			s.link(p.Hash[i], uint32(pi<<pageShift+i))
		}
	}
}

// growIndex doubles the index.
func (s *Space[K, V]) growIndex() {
	old := s.index
	s.index = s.pool.index(2 * len(old))
	s.mask = uint32(len(s.index) - 1)
	for _, x := range old {
		if x != 0 {
			s.link(uint32(x>>32), uint32(x)-1)
		}
	}
	s.pool.keepIndex(old)
}

// Delete removes an entry; its id may be used again.
func (s *Space[K, V]) Delete(id uint32) {
	s.Unlink(id)
	s.free = append(s.free, id)
}

// Unlink removes an entry and keeps its id reserved until Free.
func (s *Space[K, V]) Unlink(id uint32) {
	p, i := s.Writable(id)
	if s.index != nil {
		s.unlinkIndex(p.Hash[i], id)
	}
	var k K
	var v V
	p.Keys[i], p.Vals[i] = k, v
	p.Live &^= 1 << i
	p.Hot &^= 1 << i
	p.Dirty &^= 1 << i
	s.live--
}

// Free gives up an id after Unlink.
func (s *Space[K, V]) Free(id uint32) { s.free = append(s.free, id) }

// IsLive reports whether id names an entry.
func (s *Space[K, V]) IsLive(id uint32) bool {
	return s.pages[id>>pageShift].Live>>(id&pageMask)&1 != 0
}

// unlinkIndex removes id and moves later entries of its run forward, so that no marks of deleted entries remain.
func (s *Space[K, V]) unlinkIndex(hash, id uint32) {
	i := hash & s.mask
	for uint32(s.index[i]) != id+1 {
		i = (i + 1) & s.mask
	}
	for j := i; ; {
		j = (j + 1) & s.mask
		x := s.index[j]
		if x == 0 {
			break
		}
		home := uint32(x>>32) & s.mask
		if (j-home)&s.mask >= (j-i)&s.mask {
			s.index[i] = x
			i = j
		}
	}
	s.index[i] = 0
}

// Drop empties the space and hands its memory to the pool, except for pages that a view holds.
func (s *Space[K, V]) Drop() {
	frozen := s.pool.Clock.frozen.Load()
	for _, p := range s.pages {
		if len(p.Hash) == PageLen && p.Epoch > frozen && len(s.pool.pages) < maxPooledPages {
			s.pool.pages = append(s.pool.pages, p)
		}
	}
	s.pool.keepIndex(s.index)
	*s = Space[K, V]{pool: s.pool}
}
