package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

const whichJob = `
The application is named by -Dyarn.application.id= or -Dyarn.application.name=; its only job need not be named. A job id alone is looked for
in all applications that run. -m host:port goes to a REST interface directly.`

func (c *cli) listCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the applications that run and their jobs", Args: atMost(),
		Long: "List YARN's applications of type Thalweg (yarn.application.type) of all users, with the state of each and of its jobs; the master of each\n" +
			"is asked. -Dyarn.application.id= shows a single one, also when it has ended, with all that YARN says about its end; -a a line of it for each\n" +
			"that has failed. -t yarn-session shows the sessions with their jobs alone. -m host:port shows the jobs behind a REST interface.",
		Example: "  thalweg list\n  thalweg list -a -o json\n  thalweg list -Dyarn.application.id=application_1700000000000_0001\n  thalweg list -m localhost:8081",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.list(cmd.Context(), all) },
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	cmd.Flags().BoolP("running", "r", false, "those that run (the default)")
	return cmd
}

type listed struct {
	id          yarn.ApplicationID
	Application string                `json:"applicationId,omitempty"`
	Name        string                `json:"name,omitempty"`
	User        string                `json:"user,omitempty"`
	Queue       string                `json:"queue,omitempty"`
	State       string                `json:"state,omitempty"`
	Final       string                `json:"finalStatus,omitempty"`
	Web         string                `json:"webUrl,omitempty"`
	Started     int64                 `json:"started,omitempty"`
	Diagnostics string                `json:"diagnostics,omitempty"`
	Session     bool                  `json:"session,omitempty"`
	Jobs        []control.JobOverview `json:"jobs"`
	Error       string                `json:"error,omitempty"` // why its jobs are not known
}

func (c *cli) list(ctx context.Context, all bool) error {
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	var rows []listed
	if c.address != "" {
		r := control.NewREST(control.WebURL(c.address), config.ClientConnectTimeout.Value(cfg))
		defer r.Close()
		wait := newPatience(patienceEnds, c.notef)
		wait.began("the REST interface", giveUp(cfg), c.address)
		jobs, err := r.Jobs(ctx)
		wait.close()
		if err != nil {
			return err
		}
		addProblems(ctx, r, jobs)
		rows = []listed{{Web: r.Base(), Jobs: jobs}}
	} else if rows, err = c.listYARN(ctx, cfg, all); err != nil {
		return err
	}
	if c.json() {
		for _, r := range rows {
			if err := c.emit(r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		c.printf("%s\n", noneListed(cfg, all))
		return nil
	}
	if c.address != "" {
		if len(rows[0].Jobs) == 0 {
			c.printf("No job at %s.\n", rows[0].Web)
			return nil
		}
		return writeJobs(c.print, rows[0].Jobs)
	}
	return writeTable(c.print, rows, config.YarnID.IsSet(cfg))
}

// noneListed says that the list is empty, of what, and where to look.
func noneListed(cfg config.Configuration, all bool) string {
	what := "No application of type " + config.YarnType.Value(cfg)
	if name := config.YarnName.Value(cfg); name != "" {
		what += fmt.Sprintf(" named %q", name)
	}
	if all {
		return what + " runs, and YARN knows of none that has ended."
	}
	return what + " runs (thalweg list -a shows those that have ended, too)."
}

// addProblems tells for the jobs that do not run fully why.
func addProblems(ctx context.Context, r *control.REST, jobs []control.JobOverview) {
	for i := range jobs {
		r.AddProblem(ctx, &jobs[i])
	}
}

func (c *cli) listYARN(ctx context.Context, cfg config.Configuration, all bool) ([]listed, error) {
	k, err := c.connect(cfg)
	if err != nil {
		return nil, err
	}
	defer k.close()
	k.wait.began("the applications and their masters", k.limit, "")
	var apps []control.Application
	if config.YarnID.IsSet(cfg) {
		a, err := control.Find(ctx, k.yarn, cfg)
		if err != nil {
			return nil, err
		}
		apps = []control.Application{a}
	} else if c.target == "yarn-session" {
		if apps, err = control.Sessions(ctx, k.yarn, cfg, all); err != nil {
			return nil, err
		}
	} else if apps, err = control.List(ctx, k.yarn, cfg, all); err != nil {
		return nil, err
	}
	rows := []listed{}
	for _, a := range apps {
		r := listed{id: a.ID, Application: a.ID.String(), Name: a.Name, User: a.User, Queue: a.Queue, State: a.State, Final: a.Final, Web: a.Proxy, Started: a.Start.UnixMilli(), Diagnostics: a.Diagnostics, Session: a.Session, Jobs: []control.JobOverview{}}
		if a.REST != "" {
			rest := control.NewREST(a.REST, 5*time.Second)
			jobs, err := rest.Jobs(ctx)
			addProblems(ctx, rest, jobs)
			rest.Close()
			if err != nil {
				r.Error = err.Error()
			}
			r.Jobs = append(r.Jobs, jobs...)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (c *cli) cancelCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cancel [job]", Short: "end a job without a savepoint", Long: "Cancel a job and wait until it has ended. YARN then shows its application as KILLED. An application that still waits for\n" +
			"its master, in ACCEPTED, is killed through YARN." + whichJob,
		Example: "  thalweg cancel -Dyarn.application.name=orders", Args: atMost("a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && c.address == "" && c.target != "yarn-session" {
				if done, err := c.cancelWaiting(cmd.Context()); done || err != nil {
					return err
				}
			}
			return c.onJob(cmd.Context(), args, func(ctx context.Context, t *target) error {
				var gone *control.UnreachableError
				if err := t.REST.Cancel(ctx, t.Job.ID); err != nil && (!errors.As(err, &gone) || !gone.Sent()) { // else it may have been the last that it heard
					return err
				}
				state, err := c.awaitEnd(ctx, t)
				if err != nil {
					return err
				}
				return c.tell(t, map[string]any{"event": "cancelled", "state": state}, "Job %s is %s.\n", t.Job.ID, state)
			})
		},
	}
}

// onJob finds the job and runs fn on it within client.timeout where fn waits.
func (c *cli) onJob(ctx context.Context, args []string, fn func(context.Context, *target) error) error {
	id := ""
	if len(args) > 0 {
		id = args[0]
	}
	t, err := c.job(ctx, id)
	if err != nil {
		return err
	}
	defer t.close()
	return c.explained(ctx, t, fn(ctx, t))
}

// tell writes the outcome in either form.
func (c *cli) tell(t *target, fields map[string]any, format string, args ...any) error {
	if !c.json() {
		c.printf(format, args...)
		return nil
	}
	fields["jobId"] = t.Job.ID
	if !t.App.ID.IsZero() {
		fields["applicationId"] = t.App.ID.String()
	}
	return c.emit(fields)
}

// awaitEnd waits until a job that was cancelled has ended. When its process is gone, YARN tells how the application ended; without YARN, a port
// at which nothing listens any more is the end of the process that accepted the cancellation.
func (c *cli) awaitEnd(ctx context.Context, t *target) (string, error) {
	cfg, err := c.config(nil)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, config.ClientTimeout.Value(cfg))
	defer cancel()
	last, lost := t.Job.State, false
	for {
		j, err := t.REST.Job(ctx, t.Job.ID)
		var gone *control.UnreachableError
		switch {
		case err == nil:
			if last = j.State; control.JobEnded(last) {
				return last, nil
			}
		case errors.As(err, &gone) && t.app != nil:
			a, err := t.app(ctx)
			switch {
			case err != nil:
				return "", err
			case a.Ended():
				return jobState(a.Final), nil
			}
		case errors.As(err, &gone) && gone.Refused():
			return "CANCELED", nil
		case errors.As(err, &gone) && ctx.Err() == nil && !lost: // in the middle of an answer: the next look tells
			lost = true
		case ctx.Err() != nil:
			return "", fmt.Errorf("the job is still %s after %s (client.timeout); it goes on ending", last, config.ClientTimeout.Value(cfg))
		default:
			return "", err
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// jobState is the state of the only job of an application that ended with that final status.
func jobState(final string) string {
	switch final {
	case "SUCCEEDED":
		return "FINISHED"
	case "KILLED":
		return "CANCELED"
	}
	return final
}
