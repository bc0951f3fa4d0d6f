package slots

import (
	"math/bits"
	"slices"

	"github.com/thalweg/thalweg/serde"
)

// Texts keeps the strings of a table's values in one block per page, so that neither a new value nor one that replaces another costs an
// allocation of its own. What has been appended to a block is never changed: strings that were handed out stay as they are, and keep their
// block. When a block is full, the page's values move to another; at most half of a block is garbage, and it goes with its page.
type Texts[K comparable, V any] struct{ codec serde.Packer[V] }

// maxText is the length from which a value's strings have a block of their own.
const maxText = 1 << 10

// NewTexts returns nil when values of c are not such as to be packed.
func NewTexts[K comparable, V any](c serde.Codec[V]) *Texts[K, V] {
	p, ok := serde.Packing(c)
	if !ok {
		return nil
	}
	return &Texts[K, V]{p}
}

// NewTextsOf is NewTexts with the packer given.
func NewTextsOf[K comparable, V any](p serde.Packer[V]) *Texts[K, V] { return &Texts[K, V]{p} }

// Keep replaces the strings of slot i, which are somebody else's, by copies. The page is writable.
func (t *Texts[K, V]) Keep(p *Page[K, V], i uint32) {
	v := &p.Vals[i]
	n := t.codec.TextLen(v)
	if n > maxText {
		t.codec.Pack(make([]byte, 0, n), v)
		return
	}
	if cap(p.Text)-len(p.Text) < n {
		t.move(p, i, n)
	}
	p.Text = t.codec.Pack(p.Text, v)
}

// move makes a block with room for n bytes of slot i, moves the strings of the page's other values there, and leaves room for what is likely
// to come: as much for each free slot, and as much again as there is when there are few.
func (t *Texts[K, V]) move(p *Page[K, V], i uint32, n int) {
	others, total, live := p.Live&^(1<<i), n, 1
	for l := others; l != 0; l &= l - 1 {
		j := bits.TrailingZeros64(l)
		m := t.codec.TextLen(&p.Vals[j])
		if m > maxText {
			others &^= 1 << j
			continue
		}
		total += m
		live++
	}
	room := 0
	if len(p.Vals) > firstPage || live > 1 { // many namespaces have one entry and no more
		room = max(total/live*(len(p.Vals)-live), total)
	}
	text := slices.Grow([]byte(nil), total+room)
	for l := others; l != 0; l &= l - 1 {
		text = t.codec.Pack(text, &p.Vals[bits.TrailingZeros64(l)])
	}
	p.Text = text
}
