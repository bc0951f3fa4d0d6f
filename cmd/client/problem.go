package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thalweg/thalweg/am/control"
)

// problems tells what keeps a job from running. Its numbers change all the time: a text that differs in them alone is news again only after
// a while.
type problems struct {
	text string // said last
	at   time.Time
}

// next is what there is to say at a time, "" for nothing.
func (p *problems) next(j *control.Job, now time.Time) string {
	if j.Runs() || control.JobEnded(j.State) {
		*p = problems{}
		return ""
	}
	text := oneLine(j.Problem)
	if text == "" || text == p.text || withoutDigits(text) == withoutDigits(p.text) && now.Sub(p.at) < plainEvery {
		return ""
	}
	p.text, p.at = text, now
	return text
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// notRunning is the coordinator's refusal, as it comes through REST.
const notRunning = "not all tasks of the job are running"

// explained adds to the refusal of an operation because tasks do not run how the job is, why, and what to do.
func (c *cli) explained(ctx context.Context, t *target, err error) error {
	var refused *control.StatusError
	var failed *control.OperationError
	if !errors.As(err, &refused) && !errors.As(err, &failed) || !strings.Contains(err.Error(), notRunning) {
		return err
	}
	j, asked := t.REST.Job(ctx, t.Job.ID)
	if asked != nil {
		return err
	}
	if control.JobEnded(j.State) {
		return fmt.Errorf("%w: it has ended meanwhile: %s", err, j.State)
	}
	how := "it is " + j.State
	if running, total := j.Count(); total > 0 {
		how += fmt.Sprintf(" with %d of %d tasks running", running, total)
	}
	if text := oneLine(j.Problem); text != "" {
		how += "; problem: " + text
	}
	if cause, asked := t.REST.RootCause(ctx, j.ID); asked == nil && cause != "" {
		how += "; last failure: " + oneLine(cause)
	}
	if j.State == "CANCELLING" || j.State == "FAILING" {
		return fmt.Errorf("%w: %s; it is about to end", err, how)
	}
	return fmt.Errorf("%w: %s; wait until it runs and try again, or %s", err, how, c.restartByHand(ctx, t))
}

// restartByHand says how to end the job without a savepoint and to go on from its newest checkpoint.
func (c *cli) restartByHand(ctx context.Context, t *target) string {
	cancel := "thalweg cancel "
	if t.App.ID.IsZero() {
		cancel += "-m " + c.address + " "
	} else {
		cancel += "-Dyarn.application.id=" + t.App.ID.String() + " "
	}
	cancel += t.Job.ID
	if deletes, err := t.REST.DeletesOnCancel(ctx, t.Job.ID); err == nil && deletes {
		return "cancel it (" + cancel + "), which deletes its checkpoints"
	}
	from := "its last checkpoint, if it has one (run -s PATH)"
	if p, err := t.REST.Checkpoints(ctx, t.Job.ID); err == nil {
		if path := p.Newest(); path != "" {
			from = "its last checkpoint (run -s " + path + ")"
		}
	}
	return "cancel it (" + cancel + ") and start it from " + from
}
