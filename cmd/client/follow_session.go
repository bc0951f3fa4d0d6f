package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/thalweg/thalweg/am/control"
)

// forgotten is how long a session may say that it does not know a job that it took, before that is believed: a master that has just started
// learns of its jobs.
const forgotten = 10 * time.Second

// jobEnded reports whether the job of a session has ended, and tells how. Its error is the job's failure, with exit code 1.
func (f *follower) jobEnded(ctx context.Context, o observation) (bool, error) {
	if !f.session {
		return false, nil
	}
	var status *control.StatusError
	if errors.As(o.missed, &status) && status.Code == http.StatusNotFound && time.Since(f.unheard) > forgotten {
		f.live.clear(f.c)
		return true, &exitError{exitFailed, fmt.Errorf("session %s does not know job %s any more", f.app, f.job)}
	}
	if o.job == nil || !control.JobEnded(o.job.State) {
		return false, nil
	}
	f.live.clear(f.c)
	cause := ""
	if o.job.State == "FAILED" {
		if cause = o.cause; cause == "" {
			r := control.NewREST(o.rest, 5*time.Second)
			if text, err := r.RootCause(ctx, f.job); err == nil {
				cause = oneLine(text)
			}
			r.Close()
		}
	}
	if err := f.c.event(map[string]any{"event": "ended", "state": o.job.State, "diagnostics": cause, "ms": time.Since(f.start).Milliseconds()}, "Job %s ended: %s after %s\n", f.job, o.job.State, round(time.Since(f.start))); err != nil {
		return true, err
	}
	switch {
	case o.job.State == "FINISHED":
		return true, nil
	case o.job.State == "CANCELED" && f.cancelled:
		return true, &exitError{exitInterrupted, errors.New("cancelled at your request")}
	case f.c.json():
		return true, &exitError{code: exitFailed}
	case o.job.State == "CANCELED":
		return true, &exitError{exitFailed, errors.New("the job was cancelled")}
	}
	return true, &exitError{exitFailed, errors.New(cause)}
}
