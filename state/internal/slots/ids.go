package slots

import "math/bits"

// IDs are the ids of a Space: which are in use, and the index that finds them.
type IDs struct {
	index []uint64 // hash<<32 | id+1, 0 is empty
	mask  uint32
	live  int
	next  uint32 // ids from here on were never used
	free  []uint32
}

// Len is the number of entries.
func (x *IDs) Len() int { return x.live }

// Free gives up an id after Unlink.
func (x *IDs) Free(id uint32) { x.free = append(x.free, id) }

// IsLive reports whether id names an entry of pages with these heads.
func IsLive(pages []*Head, id uint32) bool {
	return pages[id>>pageShift].Live>>(id&pageMask)&1 != 0
}

func (x *IDs) take() uint32 {
	if n := len(x.free); n > 0 {
		id := x.free[n-1]
		x.free = x.free[:n-1]
		return id
	}
	x.next++
	return x.next - 1
}

// added notes an entry; what indexes it follows.
func (x *IDs) added(p *Head, i, hash, id uint32) {
	p.Hash[i] = hash
	p.Live |= 1 << i
	p.Owned |= 1 << i
	p.Hot |= 1 << i
	p.Gone &^= 1 << i
	x.live++
}

// removed forgets an entry.
func (x *IDs) removed(p *Head, i, id uint32) {
	if x.index != nil {
		x.unlink(p.Hash[i], id)
	}
	p.Live &^= 1 << i
	p.Hot &^= 1 << i
	p.Dirty &^= 1 << i
	p.Gone &^= 1 << i
	x.live--
}

func (x *IDs) link(hash, id uint32) {
	i := hash & x.mask
	for x.index[i] != 0 {
		i = (i + 1) & x.mask
	}
	x.index[i] = uint64(hash)<<32 | uint64(id+1)
}

// enter puts an entry into the index.
func (x *IDs) enter(hash, id uint32, pool *indexes) {
	if x.live*4 > len(x.index)*3 {
		x.grow(pool)
	}
	x.link(hash, id)
}

// build makes the first index, of all entries.
func (x *IDs) build(pages []*Head, pool *indexes) {
	x.index = pool.get(4 * unindexed)
	x.mask = uint32(len(x.index) - 1)
	for pi, p := range pages {
		for l := p.Live; l != 0; l &= l - 1 {
			i := bits.TrailingZeros64(l)
			x.link(p.Hash[i], uint32(pi<<pageShift+i))
		}
	}
}

// grow doubles the index.
func (x *IDs) grow(pool *indexes) {
	old := x.index
	x.index = pool.get(2 * len(old))
	x.mask = uint32(len(x.index) - 1)
	for _, e := range old {
		if e != 0 {
			x.link(uint32(e>>32), uint32(e)-1)
		}
	}
	pool.keep(old)
}

// unlink removes id and moves later entries of its run forward, so that no marks of deleted entries remain.
func (x *IDs) unlink(hash, id uint32) {
	i := hash & x.mask
	for uint32(x.index[i]) != id+1 {
		i = (i + 1) & x.mask
	}
	for j := i; ; {
		j = (j + 1) & x.mask
		e := x.index[j]
		if e == 0 {
			break
		}
		home := uint32(e>>32) & x.mask
		if (j-home)&x.mask >= (j-i)&x.mask {
			x.index[i] = e
			i = j
		}
	}
	x.index[i] = 0
}

// indexes keeps unused index arrays, by the length of their size in bits.
type indexes [32][]uint64

func (p *indexes) get(size int) []uint64 {
	b := bits.Len(uint(size))
	if x := p[b]; len(x) == size {
		p[b] = nil
		clear(x)
		return x
	}
	return make([]uint64, size)
}

func (p *indexes) keep(x []uint64) {
	if len(x) > 0 {
		p[bits.Len(uint(len(x)))] = x
	}
}
