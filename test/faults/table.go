package faults

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// table prints each fault of a long run with how long it lasted and how long the job took then, and what they come to.
func (rep *Report) table(w io.Writer) {
	if len(rep.Recoveries) == 0 {
		return
	}
	took := make([]time.Duration, 0, len(rep.Recoveries))
	fmt.Fprintf(w, "\n%8s %10s  %s\n", "lasted", "recovered", "fault")
	for _, r := range rep.Recoveries {
		took = append(took, r.Output)
		fmt.Fprintf(w, "%7.1fs %9.1fs  %s\n", r.Lasted.Seconds(), r.Output.Seconds(), r.Kind)
	}
	slices.Sort(took)
	p := func(q int) time.Duration { return took[min(len(took)-1, len(took)*q/100)].Round(10 * time.Millisecond) }
	fmt.Fprintf(w, "recovered after %v (median), %v (p90), %v (p99), %v (most)\n", p(50), p(90), p(99), p(100))
	if rep.Of > 0 {
		fmt.Fprintf(w, "output in %d of %d seconds (%d %%)\n", rep.Flowed, rep.Of, 100*rep.Flowed/rep.Of)
	}
}
