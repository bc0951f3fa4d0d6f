package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// follower stays with an application until it ends. One goroutine asks, YARN first and then the master; follow shows and decides.
type follower struct {
	c     *cli
	k     *cluster
	app   yarn.ApplicationID
	job   string
	start time.Time
	// session: the application goes on after the job.
	session bool

	yarn       followedYARN     // k's when nil
	interrupts <-chan os.Signal // the process's when nil
	quick      time.Duration    // pause until the job runs; followQuick when zero

	last      observation // the newest
	state     string      // last one shown
	restarts  int         // as far as shown
	meter     meter
	waits     waits
	problems  problems
	live      liveLine
	printed   time.Time
	seen      time.Time   // when the master told of the job first
	unheard   time.Time   // since when the master does not answer; zero while it does
	told      bool        // that it does not
	answers   chan string // of the open question; nil when none is open
	cancelled bool        // by the user, here
}

// followedYARN is the part of the client of YARN that is needed here.
type followedYARN interface {
	control.YARN
	Kill(ctx context.Context, id yarn.ApplicationID, diagnostics string) error
}

const (
	followQuick = 100 * time.Millisecond // until the job runs
	followSlow  = 500 * time.Millisecond
	// plainEvery is the pause between two lines of progress where there is no terminal, liveEvery where there is.
	plainEvery = 10 * time.Second
	liveEvery  = time.Second
	// tidyPatience is for a NameNode that is away: a later submission removes the files too.
	tidyPatience = 10 * time.Second
)

// observation is one look at the application.
type observation struct {
	err    error // YARN does not tell; the last observation
	app    control.Application
	rest   string       // address of the master
	job    *control.Job // nil when there is no master, or it does not answer, which missed says then
	missed error
	cause  string // of the job's newest failure, in one line, when it fails or restarts
	sent   int64
	sinks  bool // sent is known
	points *control.Checkpoints
}

// follow shows the job until the application has ended. Its error is the job's failure, with exit code 1.
func (f *follower) follow(parent context.Context) error {
	if f.interrupts == nil {
		ch := make(chan os.Signal, 2)
		signal.Notify(ch, ending...)
		defer signal.Stop(ch)
		f.interrupts = ch
	}
	if f.yarn == nil {
		f.yarn = f.k.yarn
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(parent)) // the signals are handled here
	seen := make(chan observation)
	var asking sync.WaitGroup
	asking.Go(func() { f.observe(ctx, seen) })
	defer asking.Wait()
	defer stop()
	for {
		select {
		case o := <-seen:
			if o.err != nil {
				f.live.clear(f.c)
				return fmt.Errorf("%w; %s goes on without this command", o.err, f.app)
			}
			if o.app.Ended() {
				f.tidy(ctx, o.app)
				return f.ended(o.app)
			}
			f.show(o)
			if done, err := f.jobEnded(ctx, o); done {
				return err
			}
		case s := <-f.interrupts:
			if f.answers != nil || !f.ask(s) {
				return f.leave()
			}
		case a := <-f.answers:
			f.answers = nil
			switch a {
			case "l":
				return f.leave()
			case "c":
				if err := f.cancel(ctx); err != nil {
					return err
				}
			default:
				f.note("The run stays attached, and the job goes on.")
			}
		}
	}
}

// observe looks again and again and hands on what it sees, until the application has ended or ctx has.
func (f *follower) observe(ctx context.Context, seen chan<- observation) {
	var rest *control.REST
	defer func() {
		if rest != nil {
			rest.Close()
		}
	}()
	quick := f.quick
	if quick == 0 {
		quick = followQuick
	}
	var before observation
	for {
		var o observation
		o.app, o.err = control.Get(ctx, f.yarn, f.app)
		if o.err == nil && o.app.REST != "" && !o.app.Ended() {
			if rest == nil || rest.Base() != strings.TrimSuffix(o.app.REST, "/") { // another attempt has another address
				if rest != nil {
					rest.Close()
				}
				rest = control.NewREST(o.app.REST, 5*time.Second)
			}
			f.askMaster(ctx, rest, &o, before)
		}
		select {
		case seen <- o:
		case <-ctx.Done():
			return
		}
		if o.err != nil || o.app.Ended() {
			return
		}
		before = o
		pause := followSlow
		if (o.job == nil || o.job.State != "RUNNING") && time.Since(f.start) < 20*time.Second {
			pause = quick
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// askMaster adds what the master says. Only the state of the job is needed; what else is not known is not shown.
func (f *follower) askMaster(ctx context.Context, rest *control.REST, o *observation, before observation) {
	o.rest = rest.Base()
	j, err := rest.Job(ctx, f.job)
	if err != nil {
		o.missed = err
		return
	}
	o.job = &j
	if j.Rescaling {
		o.cause = "its parallelism changes"
	} else if troubled(j.State) || before.job != nil && j.Restarts > before.job.Restarts {
		if o.cause = before.cause; o.cause == "" || j.State != before.job.State || j.Restarts != before.job.Restarts {
			if text, err := rest.RootCause(ctx, f.job); err == nil {
				o.cause = oneLine(text)
			}
		}
	}
	if n, ok, err := rest.Sent(ctx, f.job); err == nil {
		o.sent, o.sinks = n, ok
	}
	if p, err := rest.Checkpoints(ctx, f.job); err == nil {
		o.points = &p
	}
}

// troubled reports whether a job of that state has a failure to tell of.
func troubled(state string) bool {
	return state == "RESTARTING" || state == "FAILING" || state == "FAILED"
}

// show tells what has changed, and how the job goes.
func (f *follower) show(o observation) {
	f.last = o
	f.heard(o)
	state := o.app.State
	switch {
	case o.job != nil:
		state = o.job.State
	case state == "RUNNING" && f.state != "" && f.state != "ACCEPTED" && f.state != "SUBMITTED":
		state = f.state // its master is away for a moment
	case state == "RUNNING": // of the master; the job's own state is not known yet
		state = "STARTING"
	}
	missed := o.job != nil && o.job.Restarts > f.restarts && f.state == state && !troubled(state) // a restart between two looks
	if o.job != nil {
		f.restarts = o.job.Restarts
	}
	switch {
	case state != f.state:
		f.state = state
		cause := ""
		if troubled(state) {
			cause = o.cause
		}
		f.tell(map[string]any{"event": "state", "state": state}, state, cause)
	case missed:
		f.tell(map[string]any{"event": "restart", "restarts": o.job.Restarts}, "restarted", o.cause)
	}
	if why := f.waits.next(o.app, time.Now()); why != "" {
		f.tell(map[string]any{"event": "waiting", "state": state}, "waits", why)
	}
	if o.job == nil {
		return
	}
	if text := f.problems.next(o.job, time.Now()); text != "" {
		event := map[string]any{"event": "problem", "state": state, "problem": text}
		if f.c.json() {
			text = ""
		}
		f.tell(event, "problem", text)
	}
	f.meter.observe(o)
	every := plainEvery
	if f.c.tty {
		every = liveEvery
	}
	if f.seen.IsZero() {
		f.seen = time.Now()
	}
	if f.c.json() || f.answers != nil || time.Since(f.printed) < every || !begun(o.job) && time.Since(f.seen) < plainEvery {
		return
	}
	f.printed = time.Now()
	line := f.meter.line(o, f.printed)
	if f.c.tty {
		f.live.set(f.c, line)
		return
	}
	f.c.notef("%s", line)
}

// begun reports whether there is something to count: a line of zeros misleads when it is the only one of a short job.
func begun(j *control.Job) bool {
	running, total := j.Count()
	return running > 0 || total == 0 || recordsIn(j) > 0
}

// heard tells when the master has not answered for some seconds, and when it does again.
func (f *follower) heard(o observation) {
	switch {
	case o.missed == nil && f.told:
		f.unheard, f.told = time.Time{}, false
		f.note("the application master answers again")
	case o.missed == nil:
		f.unheard = time.Time{}
	case f.unheard.IsZero():
		f.unheard = time.Now()
	case !f.told && time.Since(f.unheard) >= patienceEnds:
		f.told = true
		f.note("no answer for %s, still trying: %v", round(time.Since(f.unheard).Round(time.Second)), o.missed)
	}
}

// note writes a line for people above the live one.
func (f *follower) note(format string, args ...any) {
	f.live.clear(f.c)
	f.c.notef(format, args...)
	if f.answers != nil {
		f.question()
	}
}

// tell shows what happened to the job, with its reason if there is one.
func (f *follower) tell(event map[string]any, what, cause string) {
	at := time.Since(f.start)
	if f.c.json() {
		event["ms"] = at.Milliseconds()
		if cause != "" {
			event["cause"] = cause
		}
		_ = f.c.emit(event) // the error is kept for the end
		return
	}
	if cause != "" {
		cause = ": " + cause
	}
	f.note("%-12s after %s%s", what, round(at), cause)
}

// tidy removes what a master that died could not: the staged files of its application.
func (f *follower) tidy(ctx context.Context, app control.Application) {
	if f.k == nil || app.State == "FINISHED" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tidyPatience)
	defer cancel()
	if files, err := f.k.files(); err == nil {
		if err := submit.Forget(ctx, files, f.k.config, f.k.hadoop, f.k.user, app.ID); err != nil {
			f.c.notef("%v; a later submission tries again", err)
		}
	}
}

func (f *follower) ended(app control.Application) error {
	f.live.clear(f.c)
	if f.answers != nil {
		f.c.notef("The job has ended; nothing is left to answer.")
	}
	if f.c.json() {
		if err := f.c.emit(map[string]any{"event": "ended", "state": app.State, "finalStatus": app.Final, "diagnostics": app.Diagnostics, "ms": time.Since(f.start).Milliseconds()}); err != nil {
			return err
		}
	} else {
		did := ""
		if app.Succeeded() && app.Diagnostics != "" { // what it read and wrote
			did = ": " + oneLine(app.Diagnostics)
		}
		f.c.printf("%s ended: %s after %s%s\n", app.ID, app.Final, round(time.Since(f.start)), did)
	}
	switch {
	case app.Succeeded():
		return nil
	case f.cancelled && app.Final == "KILLED":
		return &exitError{exitInterrupted, errors.New("cancelled at your request")}
	case f.c.json():
		return &exitError{code: exitFailed}
	}
	text := app.Why()
	if text == "" {
		text = "no diagnostics; see yarn logs -applicationId " + app.ID.String()
	}
	return &exitError{exitFailed, errors.New(text)}
}

// ask opens the question what an interrupt means, on a terminal; false: there is nobody to ask, the job is left alone.
func (f *follower) ask(s os.Signal) bool {
	f.live.clear(f.c)
	if s != os.Interrupt || !f.c.tty || f.c.json() || !f.c.inTTY {
		return false
	}
	f.question()
	answers := make(chan string, 1)
	f.answers = answers
	in := f.c.in
	go func() { // ends with the process if nobody answers
		s, _ := bufio.NewReader(in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(s))
	}()
	return true
}

func (f *follower) question() {
	f.c.notef("\nCancel the job (c), leave it running and go (l), or stay (any other key)? Then Enter; Ctrl-C again leaves.")
}

func (f *follower) leave() error {
	if f.session {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; job %s goes on (thalweg cancel %s ends it)", f.job, f.job)}
	}
	return &exitError{exitInterrupted, fmt.Errorf("interrupted; %s goes on (thalweg cancel -Dyarn.application.id=%s ends it)", f.app, f.app)}
}

// cancel ends the job; follow stays to see it end.
func (f *follower) cancel(ctx context.Context) error {
	f.cancelled = true
	if f.last.rest == "" && f.session {
		return fmt.Errorf("the session has no master at the moment: cancel the job when it is back (thalweg cancel %s)", f.job)
	}
	if f.last.rest == "" {
		return f.yarn.Kill(ctx, f.app, "cancelled by the user before the job ran")
	}
	rest := control.NewREST(f.last.rest, 5*time.Second)
	defer rest.Close()
	return rest.Cancel(ctx, f.job)
}
