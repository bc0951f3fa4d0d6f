package main

import (
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/bench/internal/stats"
)

type report struct {
	Date    string             `json:"date"`
	Commit  string             `json:"commit"`
	Machine string             `json:"machine"`
	Flink   string             `json:"flink"`
	Took    string             `json:"took"`
	Starts  map[string][]start `json:"starts"`
}

// The bounds of the product.
const (
	firstBound = 5000 // ms, median
	ratioBound = 0.25
	amBound    = 64 // MiB
	tmBound    = 96
)

func of(all []start, f func(start) float64) stats.Range {
	var v []float64
	for _, s := range all {
		v = append(v, f(s))
	}
	return stats.Of(v...)
}

func worker(s start) float64 { return s.Resident["TaskManager"] + s.Resident["worker"] }

func (r *report) figures() stats.Table {
	sides := r.sides()
	t := stats.Table{Head: append([]string{"from the start of the command"}, sides...)}
	row := func(name string, decimals int, f func(start) float64) {
		cells := []string{name}
		for _, side := range sides {
			cells = append(cells, of(r.Starts[side], f).Text(decimals))
		}
		t.Add(cells...)
	}
	row("first record out, ms", 0, func(s start) float64 { return s.First })
	row("client exits, ms", 0, func(s start) float64 { return s.Client })
	row("CPU s of all parts until the first record", 2, func(s start) float64 { return s.CPU })
	row("CPU s of all parts 5 s later", 2, func(s start) float64 { return s.SettledCPU })
	row("of it the client", 2, func(s start) float64 { return s.ClientCPU })
	row("client peak, MiB", 0, func(s start) float64 { return s.ClientPeak })
	row("AM resident, MiB", 0, func(s start) float64 { return s.Resident["AM"] })
	row("coordinator resident, MiB", 0, func(s start) float64 { return s.Resident["coordinator"] })
	row("TaskManager with worker resident, MiB", 0, worker)
	return t
}

func (r *report) sides() []string {
	var all []string
	for _, s := range []string{thalweg, peer, tuned} {
		if len(r.Starts[s]) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// goals compares with the bounds.
func (r *report) goals() stats.Table {
	t := stats.Table{Head: []string{"bound", "measured", "", ""}}
	add := func(name, got, want string, ok bool) {
		verdict := "missed"
		if ok {
			verdict = "reached"
		}
		t.Add(name, got, want, verdict)
	}
	us := r.Starts[thalweg]
	first := of(us, func(s start) float64 { return s.First })
	add("first record, median ms", first.Text(0), fmt.Sprintf("<= %d", firstBound), first.Median <= firstBound)
	for _, side := range []string{peer, tuned} {
		them := r.Starts[side]
		if len(them) == 0 {
			continue
		}
		var v []float64
		for i := range min(len(us), len(them)) {
			v = append(v, us[i].First/them[i].First)
		}
		x := stats.Of(v...)
		add("first record, ours / "+side+", pair by pair", x.Text(3), fmt.Sprintf("<= %g", ratioBound), x.Median <= ratioBound)
	}
	am := of(us, func(s start) float64 { return s.Resident["AM"] })
	add("AM resident, MiB", am.Text(0), fmt.Sprintf("<= %d", amBound), am.Max <= amBound)
	tm := of(us, worker)
	add("idle TaskManager with its worker, MiB", tm.Text(0), fmt.Sprintf("<= %d", tmBound), tm.Max <= tmBound)
	sent := of(us, func(s start) float64 { return float64(s.Sent) })
	add("bytes sent by a second submission", sent.Text(0), "0", sent.Max == 0)
	return t
}

// account is where the time of a side's starts goes: each moment, and how long after the one before.
func (r *report) account(side string) stats.Table {
	t := stats.Table{Head: []string{side + ": moment", "ms from the start of the command", "ms since the line above"}}
	at := map[string][]float64{}
	var names []string
	for _, s := range r.Starts[side] {
		for _, p := range s.Phases {
			if len(at[p.Name]) == 0 {
				names = append(names, p.Name)
			}
			at[p.Name] = append(at[p.Name], p.At)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return int(stats.Of(at[a]...).Median - stats.Of(at[b]...).Median)
	})
	last := 0.0
	for _, n := range names {
		x := stats.Of(at[n]...)
		t.Add(n, x.Text(0), stats.Number(x.Median-last, 0))
		last = x.Median
	}
	return t
}

func (r *report) heading() string {
	return fmt.Sprintf("Start on YARN: Thalweg %s beside Apache Flink %s (provided libraries, warmed); %s; %s; took %s", r.Commit, r.Flink, r.Machine, r.Date, r.Took)
}

const legend = `Median (smallest-largest). The job: a generator of 100 events/s, keyBy, a running sum, a sink that sends a datagram with its first record.
Same cluster, NodeManager heartbeat 1 s. "tuned": yarn.heartbeat.interval 1 s, container-request-interval 100 ms. Flink's client is started without
its shell scripts, which saves it a JVM. Resident memory: 5 s after the first record.
`

func (r *report) text() string {
	figures, goals := r.figures(), r.goals()
	s := r.heading() + "\n\n" + figures.Text() + "\n" + goals.Text()
	for _, side := range r.sides() {
		t := r.account(side)
		s += "\n" + t.Text()
	}
	return s + "\n" + legend
}

// markdown is the report as it is saved.
func (r *report) markdown() string {
	figures, goals := r.figures(), r.goals()
	s := "# Start, " + r.Date[:10] + "\n\n" + r.heading() + ".\n\n" + figures.Markdown() + "\n" + goals.Markdown()
	for _, side := range r.sides() {
		t := r.account(side)
		s += "\n" + t.Markdown()
	}
	return s + "\n" + legend
}
