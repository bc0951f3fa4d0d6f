package barrier

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is the rule without the machine: the whole history is kept and asked each time.
type naive struct {
	channels int
	ended    map[int]bool
	aborted  map[int64]bool
	got      map[int64]map[int]bool // barriers of checkpoints that are not over
	first    map[int64]time.Time    // when the first of them came
	over     int64                  // highest id that is started or given up
}

// step returns the ids that are started and given up by an event.
func (m *naive) step(kind string, ch int, id int64, now time.Time) (started, given []int64) {
	switch kind {
	case "barrier":
		if m.ended[ch] || id <= m.over || m.aborted[id] {
			return nil, nil
		}
		for other := range m.got {
			if other > id {
				return nil, nil
			}
		}
		for other := range m.got {
			if other < id {
				given = append(given, other)
				delete(m.got, other)
				m.over = max(m.over, other)
			}
		}
		if m.got[id] == nil {
			m.got[id], m.first[id] = map[int]bool{}, now
		}
		m.got[id][ch] = true
	case "end":
		m.ended[ch] = true
	case "abort":
		if m.got[id] != nil {
			given = append(given, id)
			delete(m.got, id)
			m.over = max(m.over, id)
		}
		m.aborted[id] = true
	}
	for id, got := range m.got {
		all := true
		for c := range m.channels {
			all = all && (got[c] || m.ended[c])
		}
		if all {
			started = append(started, id)
			delete(m.got, id)
			m.over = max(m.over, id)
		}
	}
	return started, given
}

// TestAgainstNaiveModel compares the aligner with the naive rule under any sequence of events, and checks what must hold of the blocked channels.
func TestAgainstNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "channels")
		a := New(n, false)
		m := &naive{channels: n, ended: map[int]bool{}, aborted: map[int64]bool{}, got: map[int64]map[int]bool{}, first: map[int64]time.Time{}, over: -1}
		blocked := map[int]bool{}
		now := time.Unix(0, 0)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "ms")) * time.Millisecond)
			kind := rapid.SampledFrom([]string{"barrier", "barrier", "barrier", "barrier", "barrier", "abort", "end"}).Draw(t, "kind")
			ch := rapid.IntRange(0, n-1).Draw(t, "channel")
			id := m.over + int64(rapid.IntRange(-1, 3).Draw(t, "id"))
			if (kind == "barrier" && blocked[ch]) || (kind == "end" && rapid.IntRange(0, 3).Draw(t, "rarely") > 0) {
				continue // nothing comes out of a blocked channel
			}
			started, given := m.step(kind, ch, id, now)
			var effects []Effect
			switch kind {
			case "barrier":
				effects = a.OnBarrier(ch, Barrier{ID: id}, now)
			case "end":
				effects = a.OnEndOfPartition(ch, now)
			case "abort":
				effects = a.OnAbort(id, now)
			}
			var gotStarted, gotGiven []int64
			for _, e := range effects {
				switch e.Kind {
				case Start:
					gotStarted = append(gotStarted, e.Barrier.ID)
					if want := now.Sub(m.first[e.Barrier.ID]); e.Alignment != want {
						t.Fatalf("alignment of %d took %s, want %s", e.Barrier.ID, e.Alignment, want)
					}
				case Abort:
					gotGiven = append(gotGiven, e.Barrier.ID)
				case Block, Unblock:
					if blocked[e.Channel] == (e.Kind == Block) {
						t.Fatalf("%s, but it was so already", e)
					}
					blocked[e.Channel] = e.Kind == Block
				}
			}
			if !slices.Equal(gotStarted, started) || !slices.Equal(gotGiven, given) {
				t.Fatalf("%s ch=%d id=%d: started %v, gave up %v; want %v, %v", kind, ch, id, gotStarted, gotGiven, started, given)
			}
			pending, _, ok := a.Pending()
			if ok != (len(m.got) > 0) {
				t.Fatalf("pending %d %t, want %v", pending, ok, m.got)
			}
			for c := range n {
				want := ok && m.got[pending][c] && !m.ended[c]
				if blocked[c] != want {
					t.Fatalf("channel %d blocked=%t, want %t (pending %s)", c, blocked[c], want, fmt.Sprint(m.got))
				}
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	a := New(4, false)
	now := time.Unix(0, 0)
	id := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		id++
		for ch := range 4 {
			a.OnBarrier(ch, Barrier{ID: id}, now)
		}
	}); n > 0 {
		t.Errorf("%v allocations per checkpoint, want none", n)
	}
}
