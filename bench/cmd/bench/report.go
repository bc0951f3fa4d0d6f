package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/stats"
)

// report is what a run of the command came to.
type report struct {
	Suite   string   `json:"suite"`
	Date    string   `json:"date"`
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Go      string   `json:"go"`
	Flink   string   `json:"flink"`
	Pairs   int      `json:"pairs"`
	Scale   float64  `json:"scale"`
	Took    string   `json:"took"`
	Cases   []result `json:"cases"`
	Ratios  []ratio  `json:"ratios"`
	Groups  []*goals `json:"groups,omitempty"`
	errs    []error
}

// goals are what a group of cases came to: over the medians of its cases.
type goals struct {
	Group   string      `json:"group"`
	Median  float64     `json:"goal_median"`
	Least   float64     `json:"goal_least"`
	Ratios  []float64   `json:"ratios"`
	Range   stats.Range `json:"range"`
	Reached bool        `json:"reached"`
}

// ratio is ours over Flink's events per CPU second, pair by pair.
type ratio struct {
	Case    string      `json:"case"`
	CPU     stats.Range `json:"events_per_cpu_second"`
	Wall    stats.Range `json:"events_per_second"`
	Memory  stats.Range `json:"peak_memory"`
	Goal    float64     `json:"goal,omitempty"`
	Reached bool        `json:"reached"`
}

func newReport(ctx context.Context, b *bench) *report {
	return &report{
		Suite: b.suite, Date: b.begin.UTC().Format(time.RFC3339), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(), Go: runtime.Version(), Flink: flink.Version, Pairs: b.pairs, Scale: b.scale,
	}
}

func (r *report) add(res result, g *group, err error) {
	if err != nil {
		res.Error = err.Error()
		r.errs = append(r.errs, err)
	}
	r.Cases = append(r.Cases, res)
	if len(res.Pairs) == 0 || err != nil {
		return
	}
	var cpu, wall, mem []float64
	for _, p := range res.Pairs {
		cpu = append(cpu, p[0].perCPUSecond()/p[1].perCPUSecond())
		wall = append(wall, p[0].perSecond()/p[1].perSecond())
		mem = append(mem, p[0].Peak/p[1].Peak)
	}
	x := ratio{Case: res.Name, CPU: stats.Of(cpu...), Wall: stats.Of(wall...), Memory: stats.Of(mem...), Goal: res.Goal}
	x.Reached = x.CPU.Median >= x.Goal
	r.Ratios = append(r.Ratios, x)
	if g != nil {
		r.grouped(g, x.CPU.Median)
	}
}

func (r *report) grouped(g *group, v float64) {
	i := slices.IndexFunc(r.Groups, func(o *goals) bool { return o.Group == g.name })
	if i < 0 {
		i = len(r.Groups)
		r.Groups = append(r.Groups, &goals{Group: g.name, Median: g.median, Least: g.least})
	}
	o := r.Groups[i]
	o.Ratios = append(o.Ratios, v)
	o.Range = stats.Of(o.Ratios...)
	o.Reached = o.Range.Median >= o.Median && o.Range.Min >= o.Least
}

func (r *report) groups() stats.Table {
	t := stats.Table{Head: []string{"group", "cases", "median of the cases' ratios (smallest-largest)", "goal", ""}}
	for _, g := range r.Groups {
		goal, verdict := fmt.Sprintf("median >= %g", g.Median), "missed"
		if g.Least > 0 {
			goal += fmt.Sprintf(", none < %g", g.Least)
		}
		if g.Reached {
			verdict = "reached"
		}
		t.Add(g.Group, fmt.Sprint(len(g.Ratios)), g.Range.Text(2), goal, verdict)
	}
	return t
}

// failed joins the cases that are void.
func (r *report) failed() error {
	if len(r.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cases are void: see above", len(r.errs), len(r.Cases))
}

func thousands(v float64) string { return stats.Number(v, 0) }

// sides are the samples of a case by engine.
func (res result) sides() map[string][]sample {
	m := map[string][]sample{}
	for _, p := range res.Pairs {
		for _, s := range p {
			m[s.Engine] = append(m[s.Engine], s)
		}
	}
	for _, s := range res.Ours {
		m[s.Engine] = append(m[s.Engine], s)
	}
	return m
}

func rangeOf(all []sample, f func(sample) float64) stats.Range {
	var v []float64
	for _, s := range all {
		v = append(v, f(s))
	}
	return stats.Of(v...)
}

func (r *report) tables() (figures, ratios stats.Table) {
	figures.Head = []string{"case", "engine", "events", "events/s", "CPU s", "events per CPU s", "peak MiB", "allocs per event", "other CPU s", "broker CPU s", "start CPU s"}
	for _, res := range r.Cases {
		if res.Error != "" {
			figures.Add(res.Name, "void")
			continue
		}
		sides := res.sides()
		for _, side := range []string{thalweg, peer} {
			all := sides[side]
			if len(all) == 0 {
				continue
			}
			optional := func(f func(sample) float64) string {
				if v := rangeOf(all, f); v.Max > 0 {
					return v.Text(1)
				}
				return "-"
			}
			figures.Add(res.Name, side, thousands(float64(all[0].Events)), rangeOf(all, sample.perSecond).Text(0),
				rangeOf(all, func(s sample) float64 { return s.CPU }).Text(1), rangeOf(all, sample.perCPUSecond).Text(0),
				rangeOf(all, func(s sample) float64 { return s.Peak }).Text(0), allocs(all), rangeOf(all, func(s sample) float64 { return s.Other }).Text(1),
				optional(func(s sample) float64 { return s.Broker }), optional(func(s sample) float64 { return s.Start }))
		}
	}
	ratios.Head = []string{"case", "events per CPU s, ours / Flink's", "goal", "", "events/s", "peak memory", "pairs", "disturbed"}
	for _, x := range r.Ratios {
		goal, verdict := "-", ""
		if x.Goal > 0 {
			goal, verdict = fmt.Sprintf(">= %g", x.Goal), "missed"
			if x.Reached {
				verdict = "reached"
			}
		}
		disturbed := 0
		for _, c := range r.Cases {
			if c.Name == x.Case {
				disturbed = c.Disturbed
			}
		}
		ratios.Add(x.Case, x.CPU.Text(2), goal, verdict, x.Wall.Text(2), x.Memory.Text(2), fmt.Sprint(x.CPU.N), fmt.Sprint(disturbed))
	}
	return figures, ratios
}

// allocs is how many allocations an event costs, where that is counted.
func allocs(all []sample) string {
	r := rangeOf(all, func(s sample) float64 { return s.Allocs })
	if r.Max == 0 {
		return "-"
	}
	return stats.Number(r.Median, 4)
}

func (r *report) heading() string {
	return fmt.Sprintf("Thalweg %s (%s) beside Apache Flink %s; %s; %s; took %s", r.Commit, r.Go, r.Flink, r.Machine, r.Date, r.Took)
}

const legend = `Median (smallest-largest). CPU seconds are user + system of every process of the engine; in kafka those from "all tasks run" to the end of the
application, what was used before is in "start CPU s". Peak: the sum of the processes' largest resident memory. "other": everything else on the
machine meanwhile (not the broker and the daemons); a pair with more than 15 % of it is run again, and is "disturbed" if that did not help.
`

func (r *report) text() string {
	figures, ratios := r.tables()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", r.heading())
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "%-32s %s, parallelism %d\n", c.Name, c.Title, c.Parallelism)
	}
	fmt.Fprintf(&b, "\n%s", figures.Text())
	if len(ratios.Rows) > 0 {
		fmt.Fprintf(&b, "\n%s", ratios.Text())
	}
	if g := r.groups(); len(g.Rows) > 0 {
		fmt.Fprintf(&b, "\n%s", g.Text())
	}
	fmt.Fprintf(&b, "\n%s", legend)
	for _, c := range r.Cases {
		if c.Error != "" {
			fmt.Fprintf(&b, "\n%s is void: %s\n", c.Name, c.Error)
		}
	}
	return b.String()
}

// markdown is the report as it is saved.
func (r *report) markdown() string {
	figures, ratios := r.tables()
	var b strings.Builder
	fmt.Fprintf(&b, "# Throughput, %s\n\n%s.\n\n", r.Date[:10], r.heading())
	for _, c := range r.Cases {
		fmt.Fprintf(&b, "- `%s`: %s, parallelism %d\n", c.Name, c.Title, c.Parallelism)
	}
	fmt.Fprintf(&b, "\n%s\n%s\n", figures.Markdown(), ratios.Markdown())
	if g := r.groups(); len(g.Rows) > 0 {
		fmt.Fprintf(&b, "%s\n", g.Markdown())
	}
	b.WriteString(legend)
	for _, c := range r.Cases {
		if c.Error != "" {
			fmt.Fprintf(&b, "\n`%s` is void:\n\n```\n%s\n```\n", c.Name, c.Error)
		}
	}
	return b.String()
}
