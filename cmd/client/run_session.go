package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rest"
)

// checkSessionKeys refuses options of a whole session that were given for a job in it. Those of config.yaml are for sessions that start, and stay here.
func (c *cli) checkSessionKeys() error {
	dyn, err := config.ParseDynamic(c.dynamic)
	if err != nil {
		return &usageError{err}
	}
	if keys := dyn.ClusterKeys(); len(keys) > 0 {
		return &usageError{errors.New(config.SessionKeys(keys))}
	}
	return nil
}

// runInSession sends the program to a session, where it is not there yet, and starts it as a job.
func (c *cli) runInSession(ctx context.Context, f runFlags, cfg config.Configuration, path string, args []string, start time.Time, built int64) error {
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	show := &progress{c: c, start: start}
	var phases []submit.Phase
	last := start
	phase := func(name string) {
		now := time.Now()
		p := submit.Phase{Name: name, Took: now.Sub(last), Ms: float64(now.Sub(last).Microseconds()) / 1000}
		last, phases = now, append(phases, p)
		show.phase(p)
	}
	k.wait.began("the session and its master", k.limit, "")
	app, err := control.FindSession(ctx, k.yarn, cfg, k.user)
	if err != nil {
		return err
	}
	if err := control.CheckUser(app, k.user); err != nil {
		return err
	}
	app, r, err := control.AwaitSession(ctx, k.yarn, app.ID, config.ClientConnectTimeout.Value(cfg))
	if err != nil {
		return err
	}
	defer r.Close()
	k.wait.close()
	if err := r.CheckProtocol(ctx); err != nil {
		return err
	}
	phase("find")
	program, err := control.ProgramOf(path)
	if err != nil {
		return err
	}
	sent, err := r.Upload(ctx, path, program, func(there, total int64) { show.upload(program.Name, there, total) })
	show.done()
	if err != nil {
		return sessionRefuses(err)
	}
	phase("send")
	job, err := r.SubmitJob(ctx, rest.JobRequest{JobID: graph.NewID().String(), Program: program, Args: args, Config: cfg.ExecutionLevel()})
	if err != nil {
		if hint := misplaced(args); hint != "" {
			err = fmt.Errorf("%w (%s)", err, hint)
		}
		return sessionRefuses(err)
	}
	phase("submit")
	web := k.proxy(app.ID.String())
	if err := c.event(map[string]any{
		"event": "submitted", "applicationId": app.ID.String(), "jobId": job.JobID, "name": job.Name, "webUrl": web, "sentBytes": sent, "phases": phases,
		"ms": time.Since(start).Milliseconds(), "buildMs": built, "warnings": job.Warnings,
	}, "Session      %s (%s)\nJob          %s (%s)\nWeb          %s\nSubmitted in %s, %s sent\n", app.ID, app.Name, job.JobID, job.Name, web, round(time.Since(start)), bytesText(sent)); err != nil {
		return err
	}
	if f.detached {
		if !c.json() {
			c.printf("How it goes:              thalweg list -Dyarn.application.id=%s\nStop it with a savepoint: thalweg stop %s\nCancel it:                thalweg cancel %s\n", app.ID, job.JobID, job.JobID)
		}
		return nil
	}
	return (&follower{c: c, k: k, app: app.ID, job: job.JobID, session: true, start: start}).follow(ctx)
}

// sessionRefuses tells what the caller has to mend in the session's own words.
func sessionRefuses(err error) error {
	var status *control.StatusError
	if !errors.As(err, &status) {
		return err
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusConflict, http.StatusGone, http.StatusForbidden:
		return &usageError{fmt.Errorf("the session refuses the job: %w", messageError{err, status.Message})}
	}
	return err
}

// messageError is an error whose text is the server's alone.
type messageError struct {
	err  error
	text string
}

func (e messageError) Error() string { return e.text }
func (e messageError) Unwrap() error { return e.err }

// inSession is cfg with the session that -t yarn-session means where neither an application nor a job is named.
func (c *cli) inSession(ctx context.Context, k *cluster, cfg config.Configuration, job string) (config.Configuration, error) {
	if c.target != "yarn-session" || config.YarnID.IsSet(cfg) || job != "" {
		return cfg, nil
	}
	a, err := control.FindSession(ctx, k.yarn, cfg, k.user)
	if err != nil {
		return nil, err
	}
	cfg = cfg.Clone()
	cfg[config.YarnID.Key] = a.ID.String()
	return cfg, nil
}
