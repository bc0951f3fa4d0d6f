package main

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/stats"
)

// report is what the command prints.
type report struct {
	Date     string   `json:"date"`
	Commit   string   `json:"commit"`
	Machine  string   `json:"machine"`
	Change   float64  `json:"change"`
	Interval float64  `json:"interval_s"`
	Runs     []result `json:"runs"`
}

// figures are the measured checkpoints of a run: times in ms, sizes in bytes.
func (r *result) figures() (duration, sync, written stats.Range, failed int) {
	var d, s, w []float64
	for _, c := range r.Checkpoints {
		switch {
		case c.Completed():
			d, s, w = append(d, float64(c.Duration)), append(s, float64(c.Sync)), append(w, float64(c.New))
		case c.Status == "FAILED":
			failed++
		}
	}
	return stats.Of(d...), stats.Of(s...), stats.Of(w...), failed
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Checkpoints each %gs, %.3g %% of the keys updated in between; %s, commit %s, %s\nmedian (range); ratios are ours over Flink's\n\n", r.Interval, 100*r.Change, r.Date, r.Commit, r.Machine)
	t := stats.Table{Head: []string{"state", "engine", "end to end ms", "synchronous ms", "written KiB", "failed", "worker killed: first result s", "container killed: first result s"}}
	for _, x := range r.Runs {
		if isCost(x.Case) {
			continue
		}
		d, s, w, failed := x.figures()
		t.Add(x.Case, x.Engine, d.Text(0), s.Text(0), stats.Range{Median: w.Median / 1024, Min: w.Min / 1024, Max: w.Max / 1024, N: w.N}.Text(0), fmt.Sprint(failed), flows(x.Worker), flows(x.Container))
	}
	b.WriteString(t.Text())
	for i := 0; i+1 < len(r.Runs); i++ {
		x, y := r.Runs[i], r.Runs[i+1]
		if x.Case != y.Case || isCost(x.Case) || x.Error != "" || y.Error != "" {
			continue
		}
		dx, _, _, _ := x.figures()
		dy, _, _, _ := y.figures()
		fmt.Fprintf(&b, "%s: end to end %.2f", x.Case, dx.Median/dy.Median)
		if x.Container != nil && y.Container != nil {
			fmt.Fprintf(&b, ", restore after the container's loss %.2f", x.Container.Flows/y.Container.Flows)
		}
		b.WriteByte('\n')
	}
	for _, x := range r.Runs {
		if n := len(x.With); n > 0 && n == len(x.Without) {
			var without, with, less []float64
			for i := range x.With {
				a, c := perSecond(x.Without[i]), perSecond(x.With[i])
				without, with, less = append(without, a/1000), append(with, c/1000), append(less, 100*(1-c/a))
			}
			fmt.Fprintf(&b, "%s, %s: %s k updates/s without checkpoints, %s k with one each second: %s %% less\n", x.Case, x.Engine, stats.Of(without...).Text(0), stats.Of(with...).Text(0), stats.Of(less...).Text(1))
		}
		if x.Error != "" {
			fmt.Fprintf(&b, "%s, %s FAILED: %s\n", x.Case, x.Engine, x.Error)
		}
	}
	return b.String()
}

func perSecond(p rowjob.Phase) float64 { return float64(p.Events) / p.Wall }

func flows(r *rowjob.Restore) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Flows)
}
