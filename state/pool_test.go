package state

import (
	"testing"

	"pgregory.net/rapid"
)

// Members that obey never hold more than two and a half times the total, and no more than the total once each has said what it uses twice and let go of
// what is too much; one alone gets all of it; and an even part is everyone's.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 1 << 20
		n := rapid.IntRange(1, 6).Draw(t, "members")
		p := NewPool(total, n)
		dropped := 0
		var ms []*PoolMember
		used := make([]int64, n)
		for range n {
			m, shared := p.Join(func() (any, func()) { return "cache", func() { dropped++ } })
			if shared != "cache" {
				t.Fatalf("shared %v", shared)
			}
			ms = append(ms, m)
		}
		sum := func() (s int64) {
			for _, u := range used {
				s += u
			}
			return s
		}
		for range 50 {
			i := rapid.IntRange(0, n-1).Draw(t, "member")
			limit := ms[i].Report(used[i], total)
			if limit < total/int64(n) || limit > total {
				t.Fatalf("limit %d", limit)
			}
			used[i] = rapid.Int64Range(0, limit).Draw(t, "used")
			if sum() > 5*total/2 {
				t.Fatalf("%v", used)
			}
		}
		for range 2 {
			for i := range ms {
				used[i] = min(used[i], ms[i].Report(used[i], total))
				ms[i].Report(used[i], total)
			}
		}
		if sum() > total {
			t.Fatalf("%v after all have said what they use", used)
		}
		for i := range ms { // the others have nothing: one gets everything, in steps
			for j := range ms {
				used[j] = 0
				ms[j].Report(0, total)
			}
			for range 64 {
				used[i] = ms[i].Report(used[i], total)
			}
			if used[i] != total {
				t.Fatalf("one alone gets %d", used[i])
			}
		}
		for _, m := range ms {
			m.Leave()
			m.Leave()
		}
		if dropped != 1 {
			t.Fatalf("dropped %d times", dropped)
		}
	})
}
