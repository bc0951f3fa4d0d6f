package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/thalweg/thalweg/am/control"
)

// meter makes the line that says how a job goes: its tasks, the records that its sources read and that its sinks were given to write since
// the last start, each with its rate, the restarts and the checkpoints.
type meter struct {
	shown []sample // newest last
}

// sample is what a line showed.
type sample struct {
	at      time.Time
	in, out int64
}

// rateWindow is what a rate is taken over, at least: the workers report once a second, so that less would jump. Lines that stand further
// apart have the rate since the line before.
const rateWindow = 5 * time.Second

func recordsIn(j *control.Job) int64 {
	fed := map[string]bool{}
	for _, n := range j.Plan.Nodes {
		fed[n.ID] = len(n.Inputs) > 0
	}
	var n int64
	for _, v := range j.Vertices {
		if !fed[v.ID] {
			n += v.Metrics.ReadRecords
		}
	}
	return n
}

// observe forgets what was shown when the job has started again, with its counters.
func (m *meter) observe(o observation) {
	if n := len(m.shown); n > 0 && (recordsIn(o.job) < m.shown[n-1].in || o.sinks && o.sent < m.shown[n-1].out) {
		m.shown = nil
	}
}

// line is the line at a time.
func (m *meter) line(o observation, now time.Time) string {
	for len(m.shown) > 1 && now.Sub(m.shown[1].at) >= rateWindow {
		m.shown = m.shown[1:]
	}
	j := o.job
	running, total := j.Count()
	s := sample{now, recordsIn(j), o.sent}
	text := fmt.Sprintf("%s  %d/%d tasks  in %s%s", j.State, running, total, count(s.in), m.rate(s, func(s sample) int64 { return s.in }))
	if o.sinks {
		text += fmt.Sprintf("  out %s%s", count(s.out), m.rate(s, func(s sample) int64 { return s.out }))
	}
	switch {
	case j.Restarts == 1:
		text += "  1 restart"
	case j.Restarts > 1:
		text += fmt.Sprintf("  %s restarts", count(int64(j.Restarts)))
	}
	m.shown = append(m.shown, s)
	if o.points == nil || o.points.Counts.Total == 0 {
		return text
	}
	if l := o.points.Latest.Completed; l != nil {
		text += fmt.Sprintf("  checkpoint %d %s ago (%d ms, %s)", l.ID, now.Sub(time.UnixMilli(l.Ack)).Round(time.Second), l.Duration, bytesText(l.Size))
	}
	if n := o.points.Counts.Failed; n > 0 {
		text += fmt.Sprintf("  %d failed", n)
	}
	return text
}

// rate is since the oldest line of the window.
func (m *meter) rate(s sample, of func(sample) int64) string {
	if len(m.shown) == 0 {
		return ""
	}
	from := m.shown[0]
	d := s.at.Sub(from.at)
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%s/s)", count(int64(float64(of(s)-of(from))/d.Seconds())))
}

// count writes a number with separators.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// liveLine is the last line of a terminal, written over and over.
type liveLine struct{ width int }

func (l *liveLine) set(c *cli, text string) {
	if f, ok := c.err.(interface{ Fd() uintptr }); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 1 && len(text) >= w { // a line that breaks cannot be written over
			text = text[:w-1]
		}
	}
	pad := max(0, l.width-len(text))
	_, _ = fmt.Fprintf(c.err, "\r%s%s", text, strings.Repeat(" ", pad)) // only shows
	l.width = len(text)
}

func (l *liveLine) clear(c *cli) {
	if l.width > 0 {
		_, _ = fmt.Fprintf(c.err, "\r%s\r", strings.Repeat(" ", l.width)) // only shows
		l.width = 0
	}
}
