package slots

import (
	"math/bits"
	"slices"

	"github.com/thalweg/thalweg/serde"
)

// maxText is the length from which a value's strings have a block of their own.
const maxText = 1 << 10

// KeepTexts replaces the strings of slot i of a page that is writable, which are somebody else's, by copies. It keeps those of a page's values in
// one block, so that neither a new value nor one that replaces another costs an allocation of its own. What has been appended to a block is
// never changed: strings that were handed out stay as they are, and keep their block. When a block is full, the page's values move to another;
// at most half of a block is garbage, and it goes with its page.
func KeepTexts[V any](c serde.Packer[V], p *Head, vals []V, i uint32) {
	v := &vals[i]
	n := c.TextLen(v)
	if n > maxText {
		c.Pack(make([]byte, 0, n), v)
		return
	}
	if cap(p.Text)-len(p.Text) < n {
		moveTexts(c, p, vals, i, n)
	}
	p.Text = c.Pack(p.Text, v)
}

// moveTexts makes a block with room for n bytes of slot i, moves the strings of the page's other values there, and leaves room for what is likely
// to come: as much for each free slot, and as much again as there is when there are few.
func moveTexts[V any](c serde.Packer[V], p *Head, vals []V, i uint32, n int) {
	others, total, live := p.Live&^(1<<i), n, 1
	for l := others; l != 0; l &= l - 1 {
		j := bits.TrailingZeros64(l)
		m := c.TextLen(&vals[j])
		if m > maxText {
			others &^= 1 << j
			continue
		}
		total += m
		live++
	}
	room := 0
	if len(vals) > firstPage || live > 1 { // many namespaces have one entry and no more
		room = max(total/live*(len(vals)-live), total)
	}
	text := slices.Grow([]byte(nil), total+room)
	for l := others; l != 0; l &= l - 1 {
		text = c.Pack(text, &vals[bits.TrailingZeros64(l)])
	}
	p.Text = text
}
