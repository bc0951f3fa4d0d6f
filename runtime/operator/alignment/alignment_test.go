package alignment

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// member is a subtask of a source in the model: it has records left and runs as far as it was allowed to.
type member struct {
	source    string
	subtask   int
	watermark int64
	allowed   int64
	left      int
	idle      bool
}

func (m *member) reports() int64 {
	if m.idle || m.left == 0 {
		return MaxWatermark
	}
	return m.watermark
}

// TestNobodyRunsAheadAndAllGetThere: over random sources, drifts, speeds, idle spells and delays between reports and announcements, once
// reports are true the slowest live subtask and the drift decide, exactly, and all come to their end.
func TestNobodyRunsAheadAndAllGetThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Groups
		var all []*member
		drift := map[string]int64{}
		group := map[string]string{}
		for i := range rapid.IntRange(1, 4).Draw(t, "sources") {
			id := fmt.Sprint("s", i)
			par := rapid.IntRange(1, 3).Draw(t, "parallelism")
			drift[id] = int64(rapid.IntRange(1, 50).Draw(t, "drift"))
			group[id] = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "group")
			g.Add(id, group[id], drift[id], par)
			for sub := range par {
				all = append(all, &member{source: id, subtask: sub, watermark: MinWatermark, allowed: MinWatermark, left: rapid.IntRange(1, 30).Draw(t, "records")})
			}
		}
		least := func(of string) int64 { // of the live members of a group, as they are
			l := MaxWatermark
			for _, m := range all {
				if group[m.source] == of {
					l = min(l, m.reports())
				}
			}
			return l
		}
		const step = 20
		run := func(m *member) {
			if m.left == 0 || m.watermark > m.allowed {
				return
			}
			if m.idle = false; m.watermark == MinWatermark {
				m.watermark = int64(rapid.IntRange(-40, 40).Draw(t, "first"))
			} else {
				m.watermark += int64(rapid.IntRange(0, step).Draw(t, "step"))
			}
			m.left--
		}
		announce := func(id string) {
			a, _ := g.Allowed(id)
			for _, m := range all {
				if m.source == id {
					m.allowed = a
				}
			}
		}
		report := func(m *member) { g.Report(m.source, m.subtask, m.reports()) }
		for range rapid.IntRange(0, 300).Draw(t, "turns") {
			m := rapid.SampledFrom(all).Draw(t, "member")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				run(m)
			case 2:
				report(m)
			case 3:
				announce(m.source)
			case 4:
				if m.watermark <= m.allowed {
					m.idle = true
				}
			}
		}
		// From here on everything happens in time: all have to get to their end.
		for round := 0; ; round++ {
			left := 0
			for _, m := range all {
				m.idle = false
				left += m.left
			}
			if left == 0 {
				break
			}
			if round > 1000 {
				t.Fatalf("%d records are left after 1000 rounds", left)
			}
			for _, m := range all {
				run(m)
				report(m)
			}
			for id := range group {
				announce(id)
			}
			for _, m := range all { // with true reports the bound is exact
				l := least(group[m.source])
				if l == MaxWatermark || l == MinWatermark {
					continue
				}
				if m.allowed != l+drift[m.source] {
					t.Fatalf("%s/%d may go to %d; the least is %d and the drift %d", m.source, m.subtask, m.allowed, l, drift[m.source])
				}
			}
		}
	})
}

func TestBounds(t *testing.T) {
	var g Groups
	g.Add("a", "g", 100, 2)
	g.Add("b", "g", 5, 1)
	g.Add("c", "other", 1, 1)
	want := func(id string, allowed int64, changed bool) {
		t.Helper()
		if a, c := g.Allowed(id); a != allowed || c != changed {
			t.Errorf("%s: %d %v, want %d %v", id, a, c, allowed, changed)
		}
	}
	g.Report("a", 0, 10)
	g.Report("b", 0, 20)
	want("a", MinWatermark, false) // a's second subtask has not reported
	if !g.Report("a", 1, 1000) {
		t.Error("the last report that was missing does not start the group")
	}
	want("a", 110, true)
	want("a", 110, false)
	want("b", 15, true)
	want("c", MinWatermark, false)
	g.Report("a", 0, MaxWatermark) // idle, or at its end
	want("b", 25, true)
	g.Report("b", 0, MaxWatermark)
	want("a", 1100, true)
	g.Report("a", 1, MaxWatermark)
	want("a", MaxWatermark, true)
	g.Report("a", 1, MaxWatermark-50)
	want("a", MaxWatermark, false)
	g.Report("a", 7, 1)
	g.Report("nobody", 0, 1)
	want("nobody", MaxWatermark, false)
	if m := g.Members("a"); len(m) != 2 {
		t.Errorf("members: %v", m)
	}
}

// A source that starts anew holds its group back until it has reported, as at the job's start; the others keep what they have reported. One
// that is taken out holds nobody back.
func TestSourceThatStartsAnew(t *testing.T) {
	var g Groups
	g.Add("a", "group", 10, 1)
	g.Add("b", "group", 10, 1)
	g.Add("c", "another", 5, 1)
	g.Report("a", 0, 100)
	g.Report("b", 0, 50)
	g.Report("c", 0, 7)
	allowed := func(id string, want int64) {
		t.Helper()
		if got, _ := g.Allowed(id); got != want {
			t.Errorf("%s may go to %d, want %d", id, got, want)
		}
	}
	allowed("a", 60)
	g.Remove("b")
	allowed("a", 110)
	g.Add("b", "group", 10, 1)
	allowed("a", MinWatermark)
	if !g.Report("b", 0, 30) {
		t.Error("nobody waited for the report of the source that started anew")
	}
	allowed("a", 40)
	allowed("c", 12)
	if n := len(g.Members("a")); n != 2 {
		t.Errorf("%d members", n)
	}
	g.Remove("nobody")
	g.Remove("a")
	g.Remove("b")
	allowed("c", 12)
}
