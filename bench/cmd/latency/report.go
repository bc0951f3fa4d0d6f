package main

import (
	"fmt"

	"github.com/thalweg/thalweg/bench/internal/stats"
)

// The bounds of the product, at a third of the slower engine's maximum, at least once, with a buffer time-out of 10 ms.
const (
	p99Bound   = 25 // ms
	ratioBound = 0.5
)

type report struct {
	Date        string             `json:"date"`
	Commit      string             `json:"commit"`
	Machine     string             `json:"machine"`
	Flink       string             `json:"flink"`
	Took        string             `json:"took"`
	Guarantee   string             `json:"guarantee"`
	Buffer      string             `json:"buffer_timeout"`
	Watermark   string             `json:"watermark_interval"`
	Checkpoints string             `json:"checkpoint_interval"`
	Seconds     int                `json:"seconds"`
	Most        map[string]float64 `json:"max_events_per_second,omitempty"`
	Cells       []cell             `json:"cells"`
}

// cell is one load.
type cell struct {
	Load    float64  `json:"load"`
	Rate    float64  `json:"events_per_second"`
	Samples []sample `json:"samples"`
}

func (c cell) of(side string, f func(sample) float64) stats.Range {
	var v []float64
	for _, s := range c.Samples {
		if s.Engine == side {
			v = append(v, f(s))
		}
	}
	return stats.Of(v...)
}

func p99(s sample) float64 { return s.P99 }

func (r *report) tables() (figures, goals stats.Table) {
	figures.Head = []string{"load", "events/s", "engine", "results", "p50 ms", "p90", "p99", "p99.9", "max", "cores", "other cores", "load late ms"}
	goals.Head = []string{"load", "bound", "measured", "", ""}
	for _, c := range r.Cells {
		name := fmt.Sprintf("%.0f %%", 100*c.Load)
		for _, side := range []string{thalweg, peer} {
			text := func(decimals int, f func(sample) float64) string { return c.of(side, f).Text(decimals) }
			if c.of(side, p99).N == 0 {
				continue
			}
			figures.Add(name, stats.Number(c.Rate, 0), side, text(0, func(s sample) float64 { return float64(s.Results) }),
				text(1, func(s sample) float64 { return s.P50 }), text(1, func(s sample) float64 { return s.P90 }), text(1, p99),
				text(1, func(s sample) float64 { return s.P999 }), text(1, func(s sample) float64 { return s.Max }),
				text(2, func(s sample) float64 { return s.Cores }), text(2, func(s sample) float64 { return s.Other }), text(1, func(s sample) float64 { return s.Late }))
		}
		verdict := func(ok bool) string {
			if ok {
				return "reached"
			}
			return "missed"
		}
		ours, theirs := c.of(thalweg, p99), c.of(peer, p99)
		if r.Guarantee == "at-least-once" {
			goals.Add(name, "p99, median ms", ours.Text(1), fmt.Sprintf("<= %d", p99Bound), verdict(ours.Median <= p99Bound))
		}
		if theirs.N > 0 {
			x := ours.Median / theirs.Median
			goals.Add(name, "p99, ours / flink", stats.Number(x, 3), fmt.Sprintf("<= %g", ratioBound), verdict(x <= ratioBound))
		}
	}
	return figures, goals
}

func (r *report) heading() string {
	s := fmt.Sprintf("Latency on YARN: Thalweg %s beside Apache Flink %s; %s, buffer time-out %s, watermarks each %s, checkpoints each %s; %d s a run; %s; %s; took %s",
		r.Commit, r.Flink, r.Guarantee, r.Buffer, r.Watermark, r.Checkpoints, r.Seconds, r.Machine, r.Date, r.Took)
	for _, side := range []string{thalweg, peer} {
		if v, ok := r.Most[side]; ok {
			s += fmt.Sprintf("; %s at most %s events/s", side, stats.Number(v, 0))
		}
	}
	return s
}

const legend = `Kafka (2 partitions) -> JSON -> keyed sums (1,000 keys) over windows of 100 ms of event time -> Kafka, parallelism 2. Event time is the moment a
purchase is due, whether or not it could be sent then (open loop); a result's latency is the time from the end of its window until a reader of
committed records has it, by the same clock. Every purchase of the measured windows is in exactly one result, else the run is void.
"load late": the most that a purchase was sent after it was due. Median (smallest-largest) over the runs.
`

func (r *report) text() string {
	figures, goals := r.tables()
	return r.heading() + "\n\n" + figures.Text() + "\n" + goals.Text() + "\n" + legend
}

// markdown is the report as it is saved.
func (r *report) markdown() string {
	figures, goals := r.tables()
	return "# Latency, " + r.Date[:10] + "\n\n" + r.heading() + ".\n\n" + figures.Markdown() + "\n" + goals.Markdown() + "\n" + legend
}
