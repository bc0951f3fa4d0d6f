package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Outcome is what came of a plan.
type Outcome struct {
	Plan      *Plan
	Violation string // "" for none
	Trace     []string
	Hash      uint64 // of the trace
	Steps     int
	Reached   map[string]int
}

// Run runs a plan to its end.
func Run(p *Plan) Outcome {
	w := newWorld(p)
	w.run()
	return Outcome{p, w.violation, w.lines, w.hash, w.step, w.reached}
}

// Keep returns the plan with these of its faults only, and at most the given number of records in a split (0: as many as it has).
func (p *Plan) Keep(faults []int, records int) *Plan {
	q := *p
	q.Faults, q.kept = nil, nil
	for i, f := range p.Faults {
		if slices.Contains(faults, i) {
			q.Faults = append(q.Faults, f)
			q.kept = append(q.kept, i)
		}
	}
	if records > 0 {
		q.Records = min(q.Records, records)
	}
	return &q
}

// Shrink looks for a smaller plan that fails, too: with fewer faults, and then with fewer records. It returns its outcome and the command
// that repeats it.
func Shrink(p *Plan) (Outcome, string) {
	faults := make([]int, len(p.Faults))
	for i := range faults {
		faults[i] = i
	}
	records := p.Records
	best := Run(p)
	fails := func(faults []int, records int) bool {
		o := Run(p.Keep(faults, records))
		if o.Violation == "" {
			return false
		}
		best = o
		return true
	}
	for n := len(faults); n > 0; n /= 2 { // ever smaller pieces
		for from := 0; from < len(faults); {
			if less := slices.Delete(slices.Clone(faults), from, min(from+n, len(faults))); fails(less, records) {
				faults = less
			} else {
				from += n
			}
		}
	}
	for step := records / 2; step > 0; step /= 2 {
		for records-step > 0 && fails(faults, records-step) {
			records -= step
		}
	}
	return best, command(p, faults, records)
}

// command repeats a run.
func command(p *Plan, faults []int, records int) string {
	c := fmt.Sprintf("make sim SEED=%d", p.Seed)
	if len(faults) < len(p.Faults) {
		c += " KEEP=" + cmp.Or(strings.Join(texts(faults), ","), "none")
	}
	if records < p.Records {
		c += fmt.Sprintf(" RECORDS=%d", records)
	}
	return c
}

func texts(ns []int) (out []string) {
	for _, n := range ns {
		out = append(out, strconv.Itoa(n))
	}
	return out
}
