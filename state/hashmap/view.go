package hashmap

import (
	"context"
	"math/bits"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
	"github.com/thalweg/thalweg/state/internal/timerset"
)

// frozen is one list of pages of a view.
type frozen[K comparable, V any] struct {
	ns    state.Namespace
	pages []*slots.Page[K, V]
}

// refs orders the entries of frozen pages by key group: the entries of group Start+i are order[starts[i]:starts[i+1]], each a part
// (high 32 bits), page and slot (low 32 bits).
type refs struct {
	start  int
	starts []int
	order  []uint64
}

// sortByGroup is a counting sort of the entries of parts. hash gives the key's own hash of an entry, when that is not what it is found by.
func sortByGroup(ctx context.Context, parts [][]*slots.Head, maxParallelism int, rng state.Range, hash func(page, slot int) uint32) (refs, error) {
	r := refs{start: rng.Start, starts: make([]int, rng.End-rng.Start+2)}
	each := func(fn func(group int, ref uint64)) error {
		for pi := range parts {
			for gi, p := range parts[pi] {
				if gi&0xfff == 0 {
					if err := ctx.Err(); err != nil {
						return err
					}
				}
				for l := p.Live; l != 0; l &= l - 1 {
					i := bits.TrailingZeros64(l)
					h := p.Hash[i]
					if hash != nil {
						h = hash(gi, i)
					}
					g := int(state.GroupOf(h, maxParallelism)) - rng.Start
					fn(g, uint64(pi)<<32|uint64(gi*slots.PageLen+i))
				}
			}
		}
		return nil
	}
	n := 0
	if err := each(func(g int, _ uint64) { r.starts[g+2]++; n++ }); err != nil {
		return r, err
	}
	for i := 2; i < len(r.starts); i++ {
		r.starts[i] += r.starts[i-1]
	}
	r.order = make([]uint64, n)
	err := each(func(g int, ref uint64) {
		r.order[r.starts[g+1]] = ref
		r.starts[g+1]++
	})
	return r, err
}

func (r *refs) group(g int) []uint64 {
	i := g - r.start
	return r.order[r.starts[i]:r.starts[i+1]]
}

type tableView[K comparable, V any] struct {
	key   serde.Codec[K]
	value serde.Codec[V]
	parts []frozen[K, V]
	refs  refs
	kb    []byte
	vb    []byte
	live  func(v V, now int64) (V, bool, bool) // nil: nothing expires
	now   int64
}

func (v *tableView[K, V]) prepare(ctx context.Context, maxParallelism int, rng state.Range) (err error) {
	heads := make([][]*slots.Head, len(v.parts))
	for i, p := range v.parts {
		heads[i] = slots.Heads(p.pages)
	}
	v.refs, err = sortByGroup(ctx, heads, maxParallelism, rng, nil)
	return err
}

func (v *tableView[K, V]) write(w *canonical.Writer, index, group int) error {
	for _, ref := range v.refs.group(group) {
		part := &v.parts[ref>>32]
		p, i := part.pages[uint32(ref)/slots.PageLen], uint32(ref)%slots.PageLen
		if v.live == nil {
			v.vb = v.value.Append(v.vb[:0], p.Vals[i])
		} else if left, keep, _ := v.live(p.Vals[i], v.now); keep {
			v.vb = v.value.Append(v.vb[:0], left)
		} else {
			continue
		}
		v.kb = v.key.Append(v.kb[:0], p.Keys[i])
		if err := w.Entry(index, part.ns, v.kb, v.vb); err != nil {
			return err
		}
	}
	return nil
}

type timersView[K comparable] struct {
	key   serde.Codec[K]
	pages []*slots.Page[timerset.Key[K], struct{}]
	refs  refs
	kb    []byte
}

func (v *timersView[K]) prepare(ctx context.Context, maxParallelism int, rng state.Range) (err error) {
	v.refs, err = sortByGroup(ctx, [][]*slots.Head{slots.Heads(v.pages)}, maxParallelism, rng, func(page, slot int) uint32 { return v.pages[page].Keys[slot].Hash })
	return err
}

func (v *timersView[K]) write(w *canonical.Writer, index, group int) error {
	for _, ref := range v.refs.group(group) {
		k := &v.pages[uint32(ref)/slots.PageLen].Keys[uint32(ref)%slots.PageLen]
		v.kb = v.key.Append(v.kb[:0], k.K)
		if err := w.Timer(index, k.NS, k.At, v.kb); err != nil {
			return err
		}
	}
	return nil
}
