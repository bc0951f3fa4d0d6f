package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/thalweg/thalweg/am/control"
)

// table aligns rows, some of which have lines below them.
type table struct {
	text  bytes.Buffer
	w     *tabwriter.Writer
	below []string // by row; each line is indented
}

func newTable(head ...string) *table {
	t := &table{}
	t.w = tabwriter.NewWriter(&t.text, 0, 4, 2, ' ', 0)
	t.row("", head...)
	return t
}

func (t *table) row(below string, cells ...string) {
	fmt.Fprintln(t.w, strings.Join(cells, "\t")) //nolint:errcheck // to memory
	t.below = append(t.below, below)
}

func (t *table) writeTo(out io.Writer) error {
	if err := t.w.Flush(); err != nil {
		return err
	}
	var text strings.Builder
	i := 0
	for line := range strings.Lines(t.text.String()) {
		text.WriteString(line)
		for more := range strings.Lines(t.below[i]) {
			text.WriteString("    " + strings.TrimRight(more, "\n") + "\n")
		}
		i++
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// writeTable writes a row a job. Below it stands why the job does not run, or why its application failed: in one line, or in whole.
func writeTable(out io.Writer, rows []listed, whole bool) error {
	t := newTable("APPLICATION", "NAME", "STATE", "JOB", "JOB STATE", "SINCE")
	for _, r := range rows {
		state := r.State
		if r.Final != "" && r.Final != "UNDEFINED" {
			state += "/" + r.Final
		}
		if len(r.Jobs) == 0 {
			t.row(r.why(whole), r.Application, r.Name, state, "-", oneLine(r.Error), since(r.Started))
		}
		for _, j := range r.Jobs {
			name := r.Name
			if name == "" || r.Session { // of which there are many
				name = j.Name
			}
			t.row(problemLine(j), r.Application, name, state, j.ID, j.State, since(j.StartTime))
		}
	}
	return t.writeTo(out)
}

// writeJobs writes the jobs behind a REST interface.
func writeJobs(out io.Writer, jobs []control.JobOverview) error {
	t := newTable("NAME", "JOB", "JOB STATE", "SINCE")
	for _, j := range jobs {
		t.row(problemLine(j), j.Name, j.ID, j.State, since(j.StartTime))
	}
	return t.writeTo(out)
}

// problemLine says why a job does not run: its newest failure, and what it waits for.
func problemLine(j control.JobOverview) string {
	var lines []string
	if text := oneLine(j.LastFailure); text != "" {
		lines = append(lines, "why: "+text)
	}
	if text := oneLine(j.Problem); text != "" {
		lines = append(lines, "problem: "+text)
	}
	return strings.Join(lines, "\n")
}

// why is what YARN says about an application that waits for its master, or that has ended otherwise than well.
func (r listed) why(whole bool) string {
	app := control.Application{ID: r.id, State: r.State, Final: r.Final, Diagnostics: r.Diagnostics}
	switch {
	case r.Diagnostics == "" || app.Succeeded() || r.State == "RUNNING":
		return ""
	case !app.Ended():
		return "waits: " + reason(app)
	case whole:
		return "why: " + r.Diagnostics
	}
	return "why: " + oneLine(app.Why())
}

func since(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).Format("2006-01-02 15:04:05")
}
