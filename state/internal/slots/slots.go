// Package slots is the open-addressing storage under the state backends: dense pages of entries (hashes, keys and values in arrays of
// their own) with an index beside them, and copy on write by epoch. It is a leaf of layer L1.
//
// A Space holds the entries of one namespace. An entry has an id, which stays while the entry lives: page id>>6, slot id&63. The index
// maps hashes to ids; it is not part of snapshots, since a snapshot walks pages.
//
// Copy on write: a Clock counts epochs. Freeze ends an epoch; the pages that exist then belong to the frozen view. Later, the first
// write to such a page copies it, as long as the view is in use; when no view holds it, the page is taken over as it stands.
//
// What knows the types of keys and values is compiled in each program, for each of its states: it is in functions, of which only those that
// are called are compiled, while a generic type brings all its methods. Heads and IDs are the part that does not know them.
//
// Invariants:
//
//  1. A page whose Epoch is at most Clock.frozen is never written.
//  2. Values with memory behind pointers are shared between a page and its frozen original until the slot's bit in Owned is set.
//  3. A Space and its Pool belong to one goroutine; views are read by others. Only the page of the space appends to Text, which it may share
//     with a frozen original: behind what that one's values refer to.
package slots

import (
	"sync"
	"sync/atomic"
	"unsafe"
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

// Head is what a page holds beside its keys and values. Bit i of Live says that slot i is in use.
type Head struct {
	Epoch   uint64
	Live    uint64
	Owned   uint64 // slots whose values share nothing with a frozen page
	Hot     uint64 // slots used since the bit was cleared; for caches
	Dirty   uint64 // slots changed since they were stored; for caches, set by them
	Gone    uint64 // slots whose entries were deleted, and are so only here yet; for caches, set by them
	Changed uint32 // when a slot changed last, in what the cache counts; for caches, set by them
	Text    []byte // strings of the values, where they are packed (KeepTexts)
	Hash    []uint32
}

// Page holds up to PageLen entries.
type Page[K comparable, V any] struct {
	Head // first: see Heads
	Keys []K
	Vals []V
}

// Heads are the heads of pages.
func Heads[K comparable, V any](pages []*Page[K, V]) []*Head {
	return *(*[]*Head)(unsafe.Pointer(&pages)) //nolint:gosec // a page begins with its head
}

// Pool keeps unused pages and index arrays of the spaces of one table.
type Pool[K comparable, V any] struct {
	Clock   *Clock
	pages   []*Page[K, V]
	indexes indexes
}

// NewPool returns an empty pool.
func NewPool[K comparable, V any](c *Clock) *Pool[K, V] { return &Pool[K, V]{Clock: c} }

const maxPooledPages = 4096

func newPage[K comparable, V any](p *Pool[K, V], size int) *Page[K, V] {
	if n := len(p.pages); size == PageLen && n > 0 {
		pg := p.pages[n-1]
		p.pages = p.pages[:n-1]
		pg.Head = Head{Epoch: p.Clock.Epoch, Hash: pg.Hash}
		return pg
	}
	if size == PageLen {
		f := &fullPage[K, V]{}
		f.Epoch, f.Hash, f.Keys, f.Vals = p.Clock.Epoch, f.hash[:], f.keys[:], f.vals[:]
		return &f.Page
	}
	return &Page[K, V]{Head: Head{Epoch: p.Clock.Epoch, Hash: make([]uint32, size)}, Keys: make([]K, size), Vals: make([]V, size)}
}

// fullPage is a page of PageLen entries, in one allocation.
type fullPage[K comparable, V any] struct {
	Page[K, V]
	hash [PageLen]uint32
	keys [PageLen]K
	vals [PageLen]V
}

// Space is the set of entries of one namespace.
type Space[K comparable, V any] struct {
	IDs   IDs
	Pages []*Page[K, V] // to be read only; it changes with the space: a view keeps a copy
	pool  *Pool[K, V]
}

// NewSpace returns an empty space.
func NewSpace[K comparable, V any](p *Pool[K, V]) *Space[K, V] { return &Space[K, V]{pool: p} }

// Find returns the id of key.
func Find[K comparable, V any](s *Space[K, V], hash uint32, key K) (uint32, bool) {
	if s.IDs.index == nil {
		if len(s.Pages) == 0 {
			return 0, false
		}
		p := s.Pages[0]
		for i, h := range p.Hash {
			if h == hash && p.Live>>i&1 != 0 && p.Keys[i] == key {
				return uint32(i), true
			}
		}
		return 0, false
	}
	for i := hash & s.IDs.mask; ; i = (i + 1) & s.IDs.mask {
		x := s.IDs.index[i]
		if x == 0 {
			return 0, false
		}
		if uint32(x>>32) == hash {
			id := uint32(x) - 1
			if s.Pages[id>>pageShift].Keys[id&pageMask] == key {
				return id, true
			}
		}
	}
}

// At returns the page and slot of an entry, for reading.
func At[K comparable, V any](s *Space[K, V], id uint32) (*Page[K, V], uint32) {
	return s.Pages[id>>pageShift], id & pageMask
}

// Writable is At for writing.
func Writable[K comparable, V any](s *Space[K, V], id uint32) (*Page[K, V], uint32) {
	p := s.Pages[id>>pageShift]
	if p.Epoch != s.pool.Clock.Epoch {
		p = thaw(s, id>>pageShift)
	}
	return p, id & pageMask
}

// thaw makes page i writable in the current epoch.
func thaw[K comparable, V any](s *Space[K, V], i uint32) *Page[K, V] {
	p, c := s.Pages[i], s.pool.Clock
	frozen := c.frozen.Load()
	if p.Epoch > frozen {
		p.Epoch = c.Epoch
		if frozen == 0 {
			p.Owned = ^uint64(0)
		}
		return p
	}
	return replace(s, i, len(p.Hash))
}

// replace puts a copy in the place of page i, of which no slot is owned.
func replace[K comparable, V any](s *Space[K, V], i uint32, size int) *Page[K, V] {
	p, n := s.Pages[i], newPage(s.pool, size)
	n.Live, n.Hot, n.Dirty, n.Gone, n.Text = p.Live, p.Hot, p.Dirty, p.Gone, p.Text
	copy(n.Hash, p.Hash)
	copy(n.Keys, p.Keys)
	copy(n.Vals, p.Vals)
	s.Pages[i] = n
	return n
}

// Insert adds key, which must be absent, with a zero value, and returns its id and place. The space keeps key.
func Insert[K comparable, V any](s *Space[K, V], hash uint32, key K) (uint32, *Page[K, V], uint32) {
	id := s.IDs.take()
	room(s, id)
	p, i := Writable(s, id)
	var zero V
	p.Keys[i], p.Vals[i] = key, zero
	s.IDs.added(&p.Head, i, hash, id)
	switch {
	case s.IDs.index == nil && s.IDs.next > unindexed:
		s.IDs.build(Heads(s.Pages), &s.pool.indexes)
	case s.IDs.index != nil:
		s.IDs.enter(hash, id, &s.pool.indexes)
	}
	return id, p, i
}

// room makes sure that the page of id exists and holds its slot.
func room[K comparable, V any](s *Space[K, V], id uint32) {
	pi, slot := id>>pageShift, int(id&pageMask)
	if int(pi) == len(s.Pages) {
		size := PageLen
		if pi == 0 {
			size = firstPage
		}
		s.Pages = append(s.Pages, newPage(s.pool, size))
		return
	}
	if p := s.Pages[pi]; slot >= len(p.Hash) {
		n := replace(s, pi, min(len(p.Hash)*4, PageLen))
		if p.Epoch > s.pool.Clock.frozen.Load() {
			n.Owned = p.Owned
		}
	}
}

// Delete removes an entry; its id may be used again.
func Delete[K comparable, V any](s *Space[K, V], id uint32) {
	Unlink(s, id)
	s.IDs.Free(id)
}

// Unlink removes an entry and keeps its id reserved until IDs.Free.
func Unlink[K comparable, V any](s *Space[K, V], id uint32) {
	p, i := Writable(s, id)
	var k K
	var v V
	p.Keys[i], p.Vals[i] = k, v
	s.IDs.removed(&p.Head, i, id)
}

// Drop empties the space and hands its memory to the pool, except for pages that a view holds.
func Drop[K comparable, V any](s *Space[K, V]) {
	frozen := s.pool.Clock.frozen.Load()
	for _, p := range s.Pages {
		if len(p.Hash) == PageLen && p.Epoch > frozen && len(s.pool.pages) < maxPooledPages {
			s.pool.pages = append(s.pool.pages, p)
		}
	}
	s.pool.indexes.keep(s.IDs.index)
	*s = Space[K, V]{pool: s.pool}
}
