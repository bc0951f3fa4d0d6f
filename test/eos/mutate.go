package eos

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Mutant is a way to spoil a good history.
type Mutant struct {
	Name  string
	spoil func(m *History, rng *rand.Rand) bool // of m, in place; false when there is nothing to spoil in that way
}

// Apply returns a spoiled copy of h; nil when the history has nothing to spoil in that way.
func (mu Mutant) Apply(h *History, rng *rand.Rand) *History {
	m := &History{Events: slices.Clone(h.Events)}
	if !mu.spoil(m, rng) {
		return nil
	}
	return m
}

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

// addBehind shows e, outside of any transaction, behind the last record of its partition.
func addBehind(m *History, e Event) {
	for i := range m.Events {
		if m.Events[i].Partition == e.Partition {
			e.Offset = max(e.Offset, m.Events[i].Offset+1)
		}
	}
	raw := e
	raw.Kind, raw.InTxn = KindRaw, false
	m.Add(e, raw)
}

func encode(t Total) string {
	b, _ := json.Marshal(t)
	return string(b)
}

// Mutants are the faults that the judge must catch, each of them, always.
func Mutants() []Mutant {
	return []Mutant{
		{"drop one", func(m *History, rng *rand.Rand) bool {
			i, _ := realResult(m, rng)
			if i < 0 {
				return false
			}
			dropPlace(m, m.Events[i].place(), KindOut, KindRaw, KindLive)
			return true
		}},
		{"repeat one", func(m *History, rng *rand.Rand) bool {
			i, _ := realResult(m, rng)
			if i < 0 {
				return false
			}
			e := m.Events[i]
			addBehind(m, e)
			return true
		}},
		{"swap two", func(m *History, rng *rand.Rand) bool {
			for range 1000 {
				i, a := realResult(m, rng)
				j, b := realResult(m, rng)
				if i < 0 || i == j || a.Customer != b.Customer || m.Events[i].Partition != m.Events[j].Partition {
					continue
				}
				pi, pj := m.Events[i].place(), m.Events[j].place()
				vi, vj := m.Events[i].Value, m.Events[j].Value
				rewrite(m, pi, a.Customer, vj)
				rewrite(m, pj, b.Customer, vi)
				return true
			}
			return false
		}},
		{"tear a transaction", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindMarker)
			for range 1000 {
				if i < 0 || m.Events[i].Commit {
					break
				}
				i = pick(m, rng, KindMarker)
			}
			if i < 0 || !m.Events[i].Commit {
				return false
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
					part[e.place()] = true
				}
			}
			if len(part) == 0 {
				return false
			}
			m.Events = slices.DeleteFunc(m.Events, func(e Event) bool {
				return (e.Kind == KindOut || e.Kind == KindLive) && part[e.place()]
			})
			return true
		}},
		{"wrong value", func(m *History, rng *rand.Rand) bool {
			i, t := realResult(m, rng)
			if i < 0 {
				return false
			}
			if rng.IntN(2) == 0 {
				t.Cents += 1 + rng.Int64N(5)
			} else {
				t.Count--
			}
			rewrite(m, m.Events[i].place(), t.Customer, encode(t))
			return true
		}},
		{"value without input", func(m *History, rng *rand.Rand) bool {
			i, t := realResult(m, rng)
			if i < 0 {
				return false
			}
			e := m.Events[i]
			t.Customer = "nobody"
			e.Key, e.Value = t.Customer, encode(t)
			addBehind(m, e)
			return true
		}},
		{"garbage", func(m *History, rng *rand.Rand) bool {
			i, t := realResult(m, rng)
			if i < 0 {
				return false
			}
			rewrite(m, m.Events[i].place(), t.Customer, m.Events[i].Value[:len(m.Events[i].Value)/2])
			return true
		}},
		{"retract from the concurrent reader", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindLive)
			if i < 0 {
				return false
			}
			dropPlace(m, m.Events[i].place(), KindOut)
			return true
		}},
		{"repeat to the concurrent reader", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindLive)
			if i < 0 {
				return false
			}
			m.Add(m.Events[i])
			return true
		}},
		{"leave a transaction open", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindEnd)
			if i < 0 {
				return false
			}
			m.Events[i].Stable -= 1 + rng.Int64N(3)
			return true
		}},
		{"show an aborted record", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindOut)
			if i < 0 {
				return false
			}
			for j := range m.Events {
				e := &m.Events[j]
				if e.Kind == KindRaw && e.Partition == m.Events[i].Partition && e.Offset == m.Events[i].Offset {
					if !e.InTxn {
						return false
					}
					e.ProducerID += 1_000_000 // of a transaction that never ended
					return true
				}
			}
			return false
		}},
		{"one id too many", func(m *History, _ *rand.Rand) bool {
			if !m.Has(KindRun) || !m.Has(KindTxn) {
				return false
			}
			for i := range m.Of(KindRun)[0].Parallelism * m.Of(KindRun)[0].Pool {
				m.Add(Event{Kind: KindTxn, ID: "spare-" + strconv.Itoa(i), State: "Empty"})
			}
			return true
		}},
		{"group offset ahead", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindGroup)
			if i < 0 {
				return false
			}
			m.Events[i].Offset += 1 << 40
			return true
		}},
		{"group offset of a checkpoint to come", func(m *History, rng *rand.Rand) bool {
			for range 1000 {
				i := pick(m, rng, KindGroup)
				if i < 0 {
					return false
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
					return true
				}
			}
			return false
		}},
		{"lose the checkpoint before a commit", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindGroup)
			if i < 0 {
				return false
			}
			g := m.Events[i]
			left := len(m.Of(KindCheckpoint))
			m.Events = slices.DeleteFunc(m.Events, func(e Event) bool {
				return e.Kind == KindCheckpoint && !e.At.After(g.At) && e.Offsets[g.Partition] >= g.Offset
			})
			if n := len(m.Of(KindCheckpoint)); n == left || n == 0 {
				return false
			}
			return true
		}},
		{"lose an input record", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindIn)
			if i < 0 {
				return false
			}
			m.Events = slices.Delete(m.Events, i, i+1)
			return true
		}},
		{"lose a record in an operator", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindOperator)
			if i < 0 {
				return false
			}
			m.Events[i].Out--
			return true
		}},
		{"drop a record as late", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindOperator)
			if i < 0 || !m.Has(KindOut) {
				return false
			}
			m.Events[i].Out--
			m.Events[i].Late++
			return true
		}},
		{"drop a record as late, and its count with it", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindOperator)
			k, t := realResult(m, rng)
			if i < 0 || k < 0 {
				return false
			}
			m.Events[i].Out--
			m.Events[i].Late++
			t.Count--
			rewrite(m, m.Events[k].place(), t.Customer, encode(t))
			return true
		}},
		{"lose a dead letter", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindDead)
			if i < 0 {
				return false
			}
			dropPlace(m, m.Events[i].place(), KindDead)
			return m.Has(KindDead)
		}},
		{"put a good record aside", func(m *History, rng *rand.Rand) bool {
			i := pick(m, rng, KindDead)
			for range 1000 {
				k := pick(m, rng, KindIn)
				if i < 0 || k < 0 {
					return false
				}
				e := m.Events[k]
				if json.Unmarshal([]byte(e.Value), new(Purchase)) == nil {
					e.Kind = KindDead
					m.Add(e)
					return true
				}
			}
			return false
		}},
	}
}
