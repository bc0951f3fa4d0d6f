package eos

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Mutant is a way to spoil a good history. Apply returns nil when the history has nothing to spoil in that way.
type Mutant struct {
	Name  string
	Apply func(h *History, rng *rand.Rand) *History
}

func clone(h *History) *History { return &History{Events: slices.Clone(h.Events)} }

func pick(h *History, rng *rand.Rand, k Kind) int {
	var at []int
	for i := range h.Events {
		if h.Events[i].Kind == k {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return -1
	}
	return at[rng.IntN(len(at))]
}

// dropPlace removes a record from everything that readers and the log show.
func dropPlace(h *History, p place, kinds ...Kind) {
	h.Events = slices.DeleteFunc(h.Events, func(e Event) bool {
		return slices.Contains(kinds, e.Kind) && e.Partition == p.partition && e.Offset == p.offset
	})
}

func realResult(h *History, rng *rand.Rand) (int, Total) {
	for range 1000 {
		i := pick(h, rng, KindOut)
		if i < 0 {
			break
		}
		if t, err := parseTotal(&h.Events[i]); err == nil && len(t.Customer) > 0 && t.Customer[0] != sentinelPrefix[0] {
			return i, t
		}
	}
	return -1, Total{}
}

// rewrite changes a record everywhere it is shown, so that only its value is at fault.
func rewrite(h *History, p place, key, value string) {
	for i := range h.Events {
		e := &h.Events[i]
		if (e.Kind == KindOut || e.Kind == KindRaw || e.Kind == KindLive) && e.Partition == p.partition && e.Offset == p.offset {
			e.Key, e.Value = key, value
		}
	}
}

func encode(t Total) string {
	b, _ := json.Marshal(t)
	return string(b)
}

// Mutants are the faults that the judge must catch, each of them, always.
func Mutants() []Mutant {
	return []Mutant{
		{"drop one", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i, _ := realResult(m, rng)
			if i < 0 {
				return nil
			}
			e := m.Events[i]
			dropPlace(m, place{e.Partition, e.Offset}, KindOut, KindRaw, KindLive)
			return m
		}},
		{"repeat one", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i, _ := realResult(m, rng)
			if i < 0 {
				return nil
			}
			e := m.Events[i]
			for j := range m.Events {
				if m.Events[j].Partition == e.Partition {
					e.Offset = max(e.Offset, m.Events[j].Offset+1)
				}
			}
			raw := e
			raw.Kind, raw.InTxn = KindRaw, false
			m.Add(e, raw)
			return m
		}},
		{"swap two", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			for range 1000 {
				i, a := realResult(m, rng)
				j, b := realResult(m, rng)
				if i < 0 || i == j || a.Customer != b.Customer || m.Events[i].Partition != m.Events[j].Partition {
					continue
				}
				pi, pj := place{m.Events[i].Partition, m.Events[i].Offset}, place{m.Events[j].Partition, m.Events[j].Offset}
				vi, vj := m.Events[i].Value, m.Events[j].Value
				rewrite(m, pi, a.Customer, vj)
				rewrite(m, pj, b.Customer, vi)
				return m
			}
			return nil
		}},
		{"tear a transaction", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindMarker)
			for range 1000 {
				if i < 0 || m.Events[i].Commit {
					break
				}
				i = pick(m, rng, KindMarker)
			}
			if i < 0 || !m.Events[i].Commit {
				return nil
			}
			mark := m.Events[i]
			m.Events[i].Commit = false
			// Readers no longer see this partition's part of it.
			from := int64(-1)
			for _, e := range m.Events {
				if e.Kind == KindMarker && e.Partition == mark.Partition && e.ProducerID == mark.ProducerID && e.Offset < mark.Offset {
					from = max(from, e.Offset)
				}
			}
			part := map[place]bool{}
			for _, e := range m.Events {
				if e.Kind == KindRaw && e.InTxn && e.Partition == mark.Partition && e.ProducerID == mark.ProducerID && e.Offset > from && e.Offset < mark.Offset {
					part[place{e.Partition, e.Offset}] = true
				}
			}
			if len(part) == 0 {
				return nil
			}
			m.Events = slices.DeleteFunc(m.Events, func(e Event) bool {
				return (e.Kind == KindOut || e.Kind == KindLive) && part[place{e.Partition, e.Offset}]
			})
			return m
		}},
		{"wrong value", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i, t := realResult(m, rng)
			if i < 0 {
				return nil
			}
			if rng.IntN(2) == 0 {
				t.Cents += 1 + rng.Int64N(5)
			} else {
				t.Count--
			}
			rewrite(m, place{m.Events[i].Partition, m.Events[i].Offset}, t.Customer, encode(t))
			return m
		}},
		{"value without input", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i, t := realResult(m, rng)
			if i < 0 {
				return nil
			}
			e := m.Events[i]
			t.Customer = "nobody"
			e.Key, e.Value = t.Customer, encode(t)
			for j := range m.Events {
				if m.Events[j].Partition == e.Partition {
					e.Offset = max(e.Offset, m.Events[j].Offset+1)
				}
			}
			raw := e
			raw.Kind, raw.InTxn = KindRaw, false
			m.Add(e, raw)
			return m
		}},
		{"garbage", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i, t := realResult(m, rng)
			if i < 0 {
				return nil
			}
			rewrite(m, place{m.Events[i].Partition, m.Events[i].Offset}, t.Customer, m.Events[i].Value[:len(m.Events[i].Value)/2])
			return m
		}},
		{"retract from the concurrent reader", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindLive)
			if i < 0 {
				return nil
			}
			e := m.Events[i]
			dropPlace(m, place{e.Partition, e.Offset}, KindOut)
			return m
		}},
		{"repeat to the concurrent reader", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindLive)
			if i < 0 {
				return nil
			}
			m.Add(m.Events[i])
			return m
		}},
		{"leave a transaction open", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindEnd)
			if i < 0 {
				return nil
			}
			m.Events[i].Stable -= 1 + rng.Int64N(3)
			return m
		}},
		{"show an aborted record", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindOut)
			if i < 0 {
				return nil
			}
			for j := range m.Events {
				e := &m.Events[j]
				if e.Kind == KindRaw && e.Partition == m.Events[i].Partition && e.Offset == m.Events[i].Offset {
					if !e.InTxn {
						return nil
					}
					e.ProducerID += 1_000_000 // of a transaction that never ended
					return m
				}
			}
			return nil
		}},
		{"one id too many", func(h *History, _ *rand.Rand) *History {
			m := clone(h)
			if !m.Has(KindRun) || !m.Has(KindTxn) {
				return nil
			}
			for i := range m.Of(KindRun)[0].Parallelism * m.Of(KindRun)[0].Pool {
				m.Add(Event{Kind: KindTxn, ID: "spare-" + strconv.Itoa(i), State: "Empty"})
			}
			return m
		}},
		{"group offset ahead", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindGroup)
			if i < 0 {
				return nil
			}
			m.Events[i].Offset += 1 << 40
			return m
		}},
		{"group offset of a checkpoint to come", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			for range 1000 {
				i := pick(m, rng, KindGroup)
				if i < 0 {
					return nil
				}
				g := &m.Events[i]
				covered, next := int64(-1), int64(-1)
				for _, cp := range m.Of(KindCheckpoint) {
					switch o, ok := cp.Offsets[g.Partition]; {
					case ok && !cp.At.After(g.At):
						covered = max(covered, o)
					case ok && (next < 0 || o < next):
						next = o
					}
				}
				if next > covered {
					g.Offset = covered + 1 + rng.Int64N(next-covered)
					return m
				}
			}
			return nil
		}},
		{"lose the checkpoint before a commit", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindGroup)
			if i < 0 {
				return nil
			}
			g := m.Events[i]
			left := len(m.Of(KindCheckpoint))
			m.Events = slices.DeleteFunc(m.Events, func(e Event) bool {
				return e.Kind == KindCheckpoint && !e.At.After(g.At) && e.Offsets[g.Partition] >= g.Offset
			})
			if n := len(m.Of(KindCheckpoint)); n == left || n == 0 {
				return nil
			}
			return m
		}},
		{"lose an input record", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindIn)
			if i < 0 {
				return nil
			}
			m.Events = slices.Delete(m.Events, i, i+1)
			return m
		}},
		{"lose a record in an operator", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindOperator)
			if i < 0 {
				return nil
			}
			m.Events[i].Out--
			return m
		}},
		{"drop a record as late", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindOperator)
			if i < 0 || !m.Has(KindOut) {
				return nil
			}
			m.Events[i].Out--
			m.Events[i].Late++
			return m
		}},
		{"drop a record as late, and its count with it", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindOperator)
			k, t := realResult(m, rng)
			if i < 0 || k < 0 {
				return nil
			}
			m.Events[i].Out--
			m.Events[i].Late++
			t.Count--
			rewrite(m, place{m.Events[k].Partition, m.Events[k].Offset}, t.Customer, encode(t))
			return m
		}},
		{"lose a dead letter", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindDead)
			if i < 0 {
				return nil
			}
			dropPlace(m, place{m.Events[i].Partition, m.Events[i].Offset}, KindDead)
			if !m.Has(KindDead) {
				return nil
			}
			return m
		}},
		{"put a good record aside", func(h *History, rng *rand.Rand) *History {
			m := clone(h)
			i := pick(m, rng, KindDead)
			for range 1000 {
				k := pick(m, rng, KindIn)
				if i < 0 || k < 0 {
					return nil
				}
				e := m.Events[k]
				if json.Unmarshal([]byte(e.Value), new(Purchase)) == nil {
					e.Kind = KindDead
					m.Add(e)
					return m
				}
			}
			return nil
		}},
	}
}
