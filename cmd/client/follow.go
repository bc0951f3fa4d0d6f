package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// follower stays with an application until it ends.
type follower struct {
	c     *cli
	k     *cluster
	app   yarn.ApplicationID
	job   string
	start time.Time

	rest    *control.REST
	state   string // last one shown
	width   int    // of the live line
	lastIn  int64
	lastAt  time.Time
	printed time.Time
}

const (
	followQuick = 100 * time.Millisecond // until the job runs
	followSlow  = 500 * time.Millisecond
	// plainEvery is the pause between two lines of progress where there is no terminal.
	plainEvery = 10 * time.Second
)

// follow shows the job until the application has ended. Its error is the job's failure, with exit code 1.
func (f *follower) follow(parent context.Context) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	ctx := context.WithoutCancel(parent) // Ctrl-C and SIGTERM are handled here
	defer func() {
		if f.rest != nil {
			f.rest.Close()
		}
	}()
	for {
		app, err := control.Get(ctx, f.k.yarn, f.app)
		if err != nil {
			return err
		}
		if app.Ended() {
			return f.ended(app)
		}
		f.look(ctx, app)
		pause := followSlow
		if f.state != "RUNNING" && time.Since(f.start) < 20*time.Second {
			pause = followQuick
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case s := <-interrupts:
			timer.Stop()
			if done, err := f.interrupted(ctx, s, interrupts); done {
				return err
			}
		}
	}
}

// look asks the master, where there is one, and shows what it says.
func (f *follower) look(ctx context.Context, app control.Application) {
	state := app.State
	if state == "RUNNING" { // of the master; the job's own state is not known yet
		state = "STARTING"
	}
	var line string
	if app.REST != "" {
		if f.rest == nil || f.rest.Base() != strings.TrimSuffix(app.REST, "/") { // another attempt has another address
			if f.rest != nil {
				f.rest.Close()
			}
			f.rest = control.NewREST(app.REST, 5*time.Second)
		}
		if j, err := f.rest.Job(ctx, f.job); err == nil {
			state = j.State
			line = f.line(ctx, j)
		}
	}
	if state != f.state {
		f.state = state
		f.event(state)
	}
	if line != "" {
		f.show(line)
	}
}

// event shows a change of state.
func (f *follower) event(state string) {
	at := time.Since(f.start)
	if f.c.json() {
		_ = f.c.emit(map[string]any{"event": "state", "state": state, "ms": at.Milliseconds()}) // nobody reads it any more
		return
	}
	f.clear()
	f.c.notef("%-12s after %s", state, round(at))
}

// line is the progress of a job in one line: tasks, records into and out of the job, checkpoints.
func (f *follower) line(ctx context.Context, j control.Job) string {
	running, total := 0, 0
	var in, out int64
	producers := map[string]bool{}
	sources := map[string]bool{}
	for _, n := range j.Plan.Nodes {
		sources[n.ID] = len(n.Inputs) == 0
		for _, i := range n.Inputs {
			producers[i.ID] = true
		}
	}
	for _, v := range j.Vertices {
		total += v.Parallelism
		running += v.Tasks["RUNNING"] + v.Tasks["FINISHED"]
		if sources[v.ID] {
			in += max(v.Metrics.ReadRecords, v.Metrics.WriteRecords)
		}
		if !producers[v.ID] {
			out += max(v.Metrics.ReadRecords, v.Metrics.WriteRecords)
		}
	}
	now := time.Now()
	rate := ""
	if d := now.Sub(f.lastAt); !f.lastAt.IsZero() && d > 0 && in >= f.lastIn {
		rate = fmt.Sprintf(" (%s/s)", count(int64(float64(in-f.lastIn)/d.Seconds())))
	}
	if now.Sub(f.lastAt) >= followSlow {
		f.lastIn, f.lastAt = in, now
	}
	text := fmt.Sprintf("%s  %d/%d tasks  in %s%s  out %s", j.State, running, total, count(in), rate, count(out))
	if cp, err := f.rest.Checkpoints(ctx, f.job); err == nil && cp.Counts.Total > 0 {
		if l := cp.Latest.Completed; l != nil {
			text += fmt.Sprintf("  checkpoint %d %s ago (%d ms, %s)", l.ID, time.Since(time.UnixMilli(l.Ack)).Round(time.Second), l.Duration, bytesText(l.Size))
		}
		if cp.Counts.Failed > 0 {
			text += fmt.Sprintf("  %d failed", cp.Counts.Failed)
		}
	}
	return text
}

// count writes a number with separators.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func (f *follower) show(line string) {
	switch {
	case f.c.json():
	case f.c.tty:
		pad := max(0, f.width-len(line))
		_, _ = fmt.Fprintf(f.c.err, "\r%s%s", line, strings.Repeat(" ", pad)) // only shows
		f.width = len(line)
	case time.Since(f.printed) >= plainEvery:
		f.printed = time.Now()
		f.c.notef("%s", line)
	}
}

func (f *follower) clear() {
	if f.c.tty && f.width > 0 {
		_, _ = fmt.Fprintf(f.c.err, "\r%s\r", strings.Repeat(" ", f.width)) // only shows
		f.width = 0
	}
}

func (f *follower) ended(app control.Application) error {
	f.clear()
	if f.c.json() {
		if err := f.c.emit(map[string]any{"event": "ended", "state": app.State, "finalStatus": app.Final, "diagnostics": app.Diagnostics, "ms": time.Since(f.start).Milliseconds()}); err != nil {
			return err
		}
	} else {
		f.c.printf("%s ended: %s after %s\n", app.ID, app.Final, round(time.Since(f.start)))
	}
	if app.Succeeded() {
		return nil
	}
	if f.c.json() {
		return &exitError{code: exitFailed}
	}
	text := app.Diagnostics
	if text == "" {
		text = "no diagnostics; see yarn logs -applicationId " + app.ID.String()
	}
	return &exitError{exitFailed, errors.New(text)}
}

// interrupted asks on a terminal what Ctrl-C means, and leaves the job alone without one. done tells to return err.
func (f *follower) interrupted(ctx context.Context, s os.Signal, again <-chan os.Signal) (done bool, err error) {
	f.clear()
	leave := &exitError{exitInterrupted, fmt.Errorf("interrupted; %s goes on (thalweg cancel -Dyarn.application.id=%s ends it)", f.app, f.app)}
	if s == syscall.SIGTERM || !f.c.tty || f.c.json() || !isatty.IsTerminal(os.Stdin.Fd()) {
		return true, leave
	}
	f.c.notef("\nCancel the job (c), leave it running and go (l), or stay (any other key)? Then Enter; Ctrl-C again leaves.")
	answer := make(chan string, 1)
	go func() { // ends with the process if nobody answers
		s, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(s))
	}()
	select {
	case <-again:
		return true, leave
	case s := <-answer:
		switch s {
		case "l":
			return true, leave
		case "c":
			if f.rest == nil {
				err := f.k.yarn.Kill(ctx, f.app, "cancelled by the user before the job ran")
				return err != nil, err
			}
			if err := f.rest.Cancel(ctx, f.job); err != nil {
				return true, err
			}
		}
	}
	return false, nil
}
