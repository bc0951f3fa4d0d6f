package slots

// Chains finds the entries of a Space that belong to the same owner, a hash; owners may share one, so the reader compares keys. Like
// the index it is no part of snapshots. The zero value is empty.
type Chains struct {
	heads map[uint32]uint32 // owner -> id+1
	links []link            // by id
}

type link struct{ owner, next, prev uint32 } // ids+1

// Add notes a new entry.
func (c *Chains) Add(owner, id uint32) {
	if c.heads == nil {
		c.heads = map[uint32]uint32{}
	}
	for int(id) >= len(c.links) {
		c.links = append(c.links, link{})
	}
	next := c.heads[owner]
	c.links[id] = link{owner: owner, next: next}
	if next != 0 {
		c.links[next-1].prev = id + 1
	}
	c.heads[owner] = id + 1
}

// Remove forgets an entry.
func (c *Chains) Remove(id uint32) {
	l := c.links[id]
	switch {
	case l.prev != 0:
		c.links[l.prev-1].next = l.next
	case l.next == 0:
		delete(c.heads, l.owner)
	default:
		c.heads[l.owner] = l.next
	}
	if l.next != 0 {
		c.links[l.next-1].prev = l.prev
	}
	c.links[id] = link{}
}

// First is the first entry of an owner, Next the one after id; ok is false at the end.
func (c *Chains) First(owner uint32) (id uint32, ok bool) {
	x := c.heads[owner]
	return x - 1, x != 0
}

// Next is the entry after id.
func (c *Chains) Next(id uint32) (uint32, bool) {
	x := c.links[id].next
	return x - 1, x != 0
}
