package slots

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
)

type note struct {
	N    int64
	A, B string
}

// TestTextsKeepWhatWasHandedOut changes, deletes and freezes entries at random: neither the table's values, nor those of a frozen view, nor
// strings that were read before may change, whatever becomes of the buffers that they came from.
func TestTextsKeepWhatWasHandedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type view struct {
			pages []*Page[int64, note]
			want  map[int64]note
			epoch uint64
		}
		clock := NewClock()
		s, texts := NewSpace(NewPool[int64, note](clock)), packing(serde.Must[note]())
		want := map[int64]note{}
		var read [][2]string // as handed out, and a copy
		var views []view
		buf := make([]byte, 0, 4<<10)
		text := func(what string) string {
			n := rapid.SampledFrom([]int{0, 1, 7, 100, 1100}).Draw(t, "len")
			return strings.Repeat(what, n/len(what)+1)[:n]
		}
		deep := func(m map[int64]note) map[int64]note {
			c := map[int64]note{}
			for k, v := range m {
				c[k] = v
			}
			return c
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k := rapid.Int64Range(0, 150).Draw(t, "k")
				w := note{rapid.Int64().Draw(t, "n"), text(fmt.Sprint("a", k)), text(fmt.Sprint("b", k))}
				buf = append(append(buf[:0], w.A...), w.B...)
				v := note{w.N, unsafeString(buf[:len(w.A)]), unsafeString(buf[len(w.A):])}
				id, ok := Find(s, uint32(k), k)
				var p *Page[int64, note]
				var i uint32
				if ok {
					p, i = Writable(s, id)
				} else {
					_, p, i = Insert(s, uint32(k), k)
				}
				p.Vals[i] = v
				KeepTexts(texts, &p.Head, p.Vals, i)
				want[k] = w
				read = append(read, [2]string{p.Vals[i].A, strings.Clone(p.Vals[i].A)}, [2]string{p.Vals[i].B, strings.Clone(p.Vals[i].B)})
				for i := range buf { // the buffer is used for something else
					buf[i] = '?'
				}
			},
			"delete": func(t *rapid.T) {
				k := rapid.Int64Range(0, 150).Draw(t, "k")
				if id, ok := Find(s, uint32(k), k); ok {
					Delete(s, id)
					delete(want, k)
				}
			},
			"freeze": func(t *rapid.T) {
				views = append(views, view{append([]*Page[int64, note](nil), s.Pages...), deep(want), clock.Freeze()})
			},
			"release": func(t *rapid.T) {
				if len(views) > 0 {
					clock.Release(views[0].epoch)
					views = views[1:]
				}
			},
			"": func(t *rapid.T) {
				check := func(pages []*Page[int64, note], want map[int64]note) {
					n := 0
					for _, p := range pages {
						for i := range p.Vals {
							if p.Live>>i&1 == 0 {
								continue
							}
							n++
							if got := p.Vals[i]; got != want[p.Keys[i]] {
								t.Fatalf("%d is %.60v, want %.60v", p.Keys[i], got, want[p.Keys[i]])
							}
						}
					}
					if n != len(want) {
						t.Fatalf("%d entries, want %d", n, len(want))
					}
				}
				check(s.Pages, want)
				for _, v := range views {
					check(v.pages, v.want)
				}
				for _, r := range read {
					if r[0] != r[1] {
						t.Fatalf("a string that was read changed from %.60q to %.60q", r[1], r[0])
					}
				}
			},
		})
	})
}

// TestTextsAllocateByThePage: neither new entries nor changed ones cost an allocation each, and what is garbage stays within bounds.
func TestTextsAllocateByThePage(t *testing.T) {
	const entries, rounds = 6400, 20
	s, texts := NewSpace(NewPool[int64, note](NewClock())), packing(serde.Must[note]())
	v := note{1, strings.Repeat("x", 80), strings.Repeat("y", 20)}
	put := func(k int64) {
		id, ok := Find(s, uint32(k), k)
		if !ok {
			id, _, _ = Insert(s, uint32(k), k)
		}
		p, i := Writable(s, id)
		p.Vals[i] = v
		KeepTexts(texts, &p.Head, p.Vals, i)
	}
	fill := func() {
		for k := range int64(entries) {
			put(k)
		}
	}
	if n := testing.AllocsPerRun(1, fill); n > entries/20 { // the first call is not counted: this is a change of each
		t.Errorf("%v allocations for %d changed entries", n, entries)
	}
	for range rounds {
		fill()
	}
	held := 0
	for _, p := range s.Pages {
		held += cap(p.Text)
	}
	if live := entries * 100; held > 2*live+live/4 { // sizes are rounded up
		t.Errorf("blocks of %d bytes hold strings of %d", held, live)
	}
}

func packing(c serde.Codec[note]) serde.Packer[note] {
	p, _ := serde.Packing(c)
	return p
}

// unsafeString is a view of b, as a decoder makes it.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// BenchmarkTexts gives entries new values with strings: in blocks, and as copies of their own.
func BenchmarkTexts(b *testing.B) {
	const entries = 10_000
	v := note{1, strings.Repeat("x", 80), strings.Repeat("y", 20)}
	codec := serde.Must[note]()
	for name, texts := range map[string]serde.Packer[note]{"blocks": packing(codec), "copies": nil} {
		b.Run(name, func(b *testing.B) {
			s := NewSpace(NewPool[int64, note](NewClock()))
			for k := range int64(entries) {
				Insert(s, uint32(k), k)
			}
			b.ReportAllocs()
			k := uint32(0)
			for b.Loop() {
				p, i := Writable(s, k)
				if texts != nil {
					p.Vals[i] = v
					KeepTexts(texts, &p.Head, p.Vals, i)
				} else {
					p.Vals[i] = codec.Clone(v)
				}
				if k += 7919; k >= entries {
					k -= entries
				}
			}
		})
	}
}
