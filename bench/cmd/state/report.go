package main

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/bench/internal/rowjob"
)

// report is what the command prints.
type report struct {
	Date     string   `json:"date"`
	Commit   string   `json:"commit"`
	Machine  string   `json:"machine"`
	Keys     int64    `json:"keys"`
	Bytes    int64    `json:"state_bytes"`
	Memory   int64    `json:"memory_bytes"`
	Interval float64  `json:"interval_s"`
	Runs     []result `json:"runs"`
}

func phaseText(p rowjob.Phase) string {
	if p.Wall == 0 {
		return "-"
	}
	s := fmt.Sprintf("%.1f M events in %.1f s: %s/s", float64(p.Events)/1e6, p.Wall, thousands(float64(p.Events)/p.Wall))
	if p.CPU > 0 {
		s += fmt.Sprintf("; %.1f CPU s: %s per CPU s", p.CPU, thousands(float64(p.Events)/p.CPU))
	}
	return s
}

func thousands(x float64) string {
	if x >= 1e6 {
		return fmt.Sprintf("%.2f M", x/1e6)
	}
	return fmt.Sprintf("%.1f k", x/1e3)
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "State larger than memory: %.1f M rows, %s, TaskManager %s, a checkpoint each %gs\n%s, commit %s, %s\n", float64(r.Keys)/1e6, mib(r.Bytes), mib(r.Memory), r.Interval, r.Date, r.Commit, r.Machine)
	for _, x := range r.Runs {
		fmt.Fprintf(&b, "\n%s\n", x.Engine)
		line := func(name, format string, args ...any) {
			fmt.Fprintf(&b, "  %-12s %s\n", name, fmt.Sprintf(format, args...))
		}
		line("fill", "%s", phaseText(x.Fill))
		line("update", "%s", phaseText(x.Update))
		line("", "local files %s, checkpoint folder %s", mib(x.Local), mib(x.Remote))
		if re := x.Restore; re.Running > 0 {
			line("kill -9", "noticed after %.1f s, tasks run after %.1f s (%s, %.1f CPU s), as far as before after %.1f s (%d events again)", re.Noticed, re.Running, mib(re.Bytes), re.CPU, re.Output, re.Repeated)
		}
		line("update", "%s", phaseText(x.Again))
		for _, p := range []string{"fill", "update", "restore", "again"} {
			for _, c := range x.Checkpoints {
				if c.Phase != p {
					continue
				}
				how := fmt.Sprintf("%.1f s, wrote %s of %s", float64(c.Duration)/1000, mib(c.New), mib(c.State))
				if !c.Completed() {
					how = strings.TrimSpace(strings.ToLower(c.Status) + " " + c.Failure)
				}
				line("checkpoint", "%d (%s): %s", c.ID, p, how)
			}
		}
		m := x.Memory
		line("memory", "own %s at most, charged %s at most, read again for want of page cache %s, processes killed for it: %d", mib(m.Anon), mib(m.Peak), mib(m.Again), m.Kills)
		if x.Error != "" {
			line("FAILED", "%s", x.Error)
		} else {
			line("results", "as the plain computation's")
		}
	}
	return b.String()
}
