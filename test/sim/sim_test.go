package sim

import (
	"flag"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var (
	seeds   = flag.Int("n", 200, "seeds to run")
	first   = flag.Uint64("seed", 1, "the first of them")
	keep    = flag.String("keep", "", "which of the seed's faults strike, by their numbers with commas; none for none")
	records = flag.Int("records", 0, "records of each split, at most")
	shrink  = flag.Bool("shrink", true, "shrink what fails")
	trace   = flag.Bool("trace", false, "print all that happens")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan is that of a seed, as the flags change it.
func plan(t *testing.T, seed uint64) *Plan {
	p := NewPlan(seed)
	faults := make([]int, len(p.Faults))
	for i := range faults {
		faults[i] = i
	}
	if *keep != "" {
		faults = nil
		for text := range strings.SplitSeq(strings.TrimPrefix(*keep, "none"), ",") {
			if text == "" {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("-keep: %v", err)
			}
			faults = append(faults, n)
		}
	}
	return p.Keep(faults, *records)
}

// TestSim runs one plan after another and judges each; see the package comment.
func TestSim(t *testing.T) {
	reached := map[string]int{}
	steps := 0
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		p := plan(t, seed)
		o := Run(p)
		steps += o.Steps
		for k := range o.Reached {
			reached[k]++
		}
		if *trace {
			t.Log(strings.Join(o.Trace, "\n"))
		}
		if o.Violation == "" {
			continue
		}
		again := command(p, make([]int, len(p.Faults)), p.Records)
		t.Errorf("seed %d: %s\nrepeat it with: %s\n%s", seed, o.Violation, again, p)
		if *shrink {
			o, again = Shrink(p)
			t.Errorf("shrunk: %s\nrepeat it with: %s\n%s\nthe last steps (all: TRACE=1):\n%s", o.Violation, again, o.Plan,
				strings.Join(o.Trace[max(0, len(o.Trace)-60):], "\n"))
		}
		return
	}
	t.Logf("%d seeds, %d steps", *seeds, steps)
	for _, k := range slices.Sorted(maps.Keys(Rare)) {
		if *seeds > 1 {
			t.Logf("%6d seeds: %s", reached[k], k)
		}
		if want := Rare[k] * *seeds / 10_000 / 3; reached[k] < want {
			t.Errorf("too rare: in %d of %d seeds, want %d at least: %s", reached[k], *seeds, want, k)
		}
	}
}

// TestSameSeedSameRun holds the simulation to its promise.
func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		a, b := Run(NewPlan(seed)), Run(NewPlan(seed))
		if a.Hash == b.Hash {
			continue
		}
		for i := range a.Trace {
			if i >= len(b.Trace) || a.Trace[i] != b.Trace[i] {
				t.Fatalf("seed %d: step\n%s\nof the first run is not that of the second one", seed, a.Trace[i])
			}
		}
	}
}

// TestPlanRepeats: a plan is its seed's.
func TestPlanRepeats(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		if a, b := NewPlan(seed).String(), NewPlan(seed).String(); a != b {
			t.Fatalf("seed %d makes two plans:\n%s\n%s", seed, a, b)
		}
	}
}
