package timerset

import "github.com/thalweg/thalweg/state/internal/slots"

type item struct {
	at int64
	id uint32
}

// heap orders the timers of a Space by time. It does not know the type of their keys.
type heap struct {
	items []item
	dead  int
}

func (h *heap) push(at int64, id uint32) {
	h.items = append(h.items, item{at, id})
	h.up(len(h.items) - 1)
}

// next is the earliest timer; dead ones at the top go.
func (h *heap) next(pages []*slots.Head, ids *slots.IDs) (item, bool) {
	for h.dead > 0 && len(h.items) > 0 && !slots.IsLive(pages, h.items[0].id) {
		ids.Free(h.items[0].id)
		h.drop()
		h.dead--
	}
	if len(h.items) == 0 {
		return item{}, false
	}
	return h.items[0], true
}

// drop removes the top.
func (h *heap) drop() {
	n := len(h.items) - 1
	h.items[0] = h.items[n]
	h.items = h.items[:n]
	if n > 0 {
		h.down(0)
	}
}

// died notes that a timer is no more in the space.
func (h *heap) died(pages []*slots.Head, ids *slots.IDs) {
	h.dead++
	if h.dead > 1024 && h.dead > ids.Len() {
		h.rebuild(pages, ids)
	}
}

func (h *heap) rebuild(pages []*slots.Head, ids *slots.IDs) {
	live := h.items[:0]
	for _, it := range h.items {
		if slots.IsLive(pages, it.id) {
			live = append(live, it)
		} else {
			ids.Free(it.id)
		}
	}
	h.items, h.dead = live, 0
	for i := (len(live) - 2) / 4; i >= 0 && len(live) > 1; i-- {
		h.down(i)
	}
}

func (h *heap) up(i int) {
	x := h.items
	it := x[i]
	for i > 0 {
		p := (i - 1) / 4
		if x[p].at <= it.at {
			break
		}
		x[i] = x[p]
		i = p
	}
	x[i] = it
}

func (h *heap) down(i int) {
	x := h.items
	it := x[i]
	for {
		c := 4*i + 1
		if c >= len(x) {
			break
		}
		m := c
		for k := c + 1; k < min(c+4, len(x)); k++ {
			if x[k].at < x[m].at {
				m = k
			}
		}
		if x[m].at >= it.at {
			break
		}
		x[i] = x[m]
		i = m
	}
	x[i] = it
}
