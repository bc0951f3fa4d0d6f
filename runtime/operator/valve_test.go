package operator

import (
	"testing"

	"pgregory.net/rapid"
)

// A channel that ended must not decide while another is merely idle: one partition, two subtasks, the surplus one finishes.
func TestEndedChannelDoesNotDecideWhileOthersAreIdle(t *testing.T) {
	v := NewValve(2)
	v.OnWatermark(0, 1000)
	v.OnWatermark(1, MaxWatermark)
	if got := v.Output(); got != 1000 {
		t.Fatalf("output %d, want 1000", got)
	}
	if out, advanced, idle, changed := v.OnIdle(0, true); advanced || out != 1000 || !idle || !changed {
		t.Fatalf("idle: out %d advanced %v idle %v changed %v", out, advanced, idle, changed)
	}
	v.OnIdle(0, false)
	if out, ok := v.OnWatermark(0, 2000); !ok || out != 2000 {
		t.Fatalf("after idleness: %d %v, want 2000", out, ok)
	}
	if out, ok := v.OnWatermark(0, MaxWatermark); !ok || out != MaxWatermark {
		t.Fatalf("all ended: %d %v", out, ok)
	}
}

// Which channel becomes idle first does not matter: once all are, the highest watermark counts.
func TestOrderOfIdlenessDoesNotMatter(t *testing.T) {
	for _, first := range []int{0, 1} {
		v := NewValve(2)
		v.OnWatermark(0, 1000)
		v.OnIdle(first, true)
		v.OnIdle(1-first, true)
		if got := v.Output(); got != 1000 {
			t.Errorf("channel %d idle first: output %d, want 1000", first, got)
		}
	}
}

// The output equals the least watermark of the channels that are neither idle nor ended, or the highest of the idle ones when there are
// no others, and never falls.
func TestValveAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "channels")
		v := NewValve(n)
		marks, idle := make([]int64, n), make([]bool, n)
		for i := range marks {
			marks[i] = MinWatermark
		}
		want := MinWatermark
		model := func() {
			least, most, live, ended := MaxWatermark, MinWatermark, 0, 0
			for i := range marks {
				switch {
				case marks[i] == MaxWatermark:
					ended++
				case !idle[i]:
					live++
					least = min(least, marks[i])
				default:
					most = max(most, marks[i])
				}
			}
			if live > 0 || ended == n {
				want = max(want, least)
			} else {
				want = max(want, most)
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := rapid.IntRange(0, n-1).Draw(t, "channel")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				marks[c] = MaxWatermark
				v.OnWatermark(c, MaxWatermark)
				model()
			case 1, 2:
				idle[c] = rapid.Bool().Draw(t, "idle")
				out, advanced, _, _ := v.OnIdle(c, idle[c])
				before := want
				model()
				if advanced != (want > before) || out != want {
					t.Fatalf("idle: out %d advanced %v, want %d", out, advanced, want)
				}
			default:
				ts := rapid.Int64Range(-50, 50).Draw(t, "ts")
				marks[c] = max(marks[c], ts)
				v.OnWatermark(c, ts)
				model()
			}
			if v.Output() != want {
				t.Fatalf("output %d, want %d (marks %v idle %v)", v.Output(), want, marks, idle)
			}
		}
	})
}

// Windows are found by floor, also for negative times and offsets: size 7 s, t = -8 s lies in [-14 s, -7 s).
func TestTumblingStart(t *testing.T) {
	if got := (Tumbling{Size: 7000}).Start(-8000); got != -14000 {
		t.Fatalf("start %d, want -14000", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, 1e6).Draw(t, "size")
		w := Tumbling{Size: size, Offset: rapid.Int64Range(-size+1, size-1).Draw(t, "offset")}
		ts := rapid.Int64Range(-1e12, 1e12).Draw(t, "ts")
		start := w.Start(ts)
		if ts < start || ts >= start+size {
			t.Fatalf("%d is not in [%d, %d)", ts, start, start+size)
		}
		if m := ((start-w.Offset)%size + size) % size; m != 0 {
			t.Fatalf("start %d is not aligned to offset %d", start, w.Offset)
		}
	})
}
