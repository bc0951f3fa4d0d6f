package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// YARN is the part of yarnrpc/client.Client that is needed here.
type YARN interface {
	Report(ctx context.Context, id yarn.ApplicationID) (*yarnpb.ApplicationReportProto, error)
	Applications(ctx context.Context, f client.Filter) ([]*yarnpb.ApplicationReportProto, error)
}

// Application is an application on YARN.
type Application struct {
	ID          yarn.ApplicationID
	Name        string
	Type        string
	User        string
	Queue       string
	State       string // YARN's: ACCEPTED, RUNNING, FINISHED, ...
	Final       string // SUCCEEDED, FAILED, KILLED, or UNDEFINED
	Diagnostics string
	Session     bool   // takes jobs
	Attempt     int32  // of the master; 0 before the first
	Proxy       string // tracking URL through the ResourceManager
	REST        string // address of the master itself; "" when it has none (yet)
	Start       time.Time
	Finish      time.Time
}

// live are the states of applications that may have a master.
var live = []yarnpb.YarnApplicationStateProto{
	yarnpb.YarnApplicationStateProto_SUBMITTED, yarnpb.YarnApplicationStateProto_ACCEPTED, yarnpb.YarnApplicationStateProto_RUNNING,
}

func applicationOf(r *yarnpb.ApplicationReportProto) Application {
	a := Application{
		ID: yarn.ApplicationIDOf(r.GetApplicationId()), Name: r.GetName(), Type: r.GetApplicationType(), User: r.GetUser(), Queue: r.GetQueue(),
		State: r.GetYarnApplicationState().String(), Final: strings.TrimPrefix(r.GetFinalApplicationStatus().String(), "APP_"),
		Diagnostics: strings.TrimSpace(r.GetDiagnostics()), Proxy: WebURL(r.GetTrackingUrl()), Start: time.UnixMilli(r.GetStartTime()),
	}
	a.Session = sessionTagged(r.GetApplicationTags())
	a.Attempt = max(0, r.GetCurrentApplicationAttemptId().GetAttemptId())
	if r.GetYarnApplicationState() == yarnpb.YarnApplicationStateProto_RUNNING {
		a.REST = WebURL(r.GetOriginalTrackingUrl())
	}
	if f := r.GetFinishTime(); f > 0 {
		a.Finish = time.UnixMilli(f)
	}
	return a
}

// WebURL makes a URL of "host:port"; "" and YARN's "N/A" are none.
func WebURL(s string) string {
	if s == "" || s == "N/A" {
		return ""
	}
	if !strings.Contains(s, "://") {
		return "http://" + s
	}
	return s
}

// Ended reports whether YARN has ended the application.
func (a Application) Ended() bool {
	return a.State == "FINISHED" || a.State == "FAILED" || a.State == "KILLED"
}

// Succeeded reports whether the application ended well.
func (a Application) Succeeded() bool { return a.State == "FINISHED" && a.Final == "SUCCEEDED" }

// Get returns an application.
//
// Errors: yarn.ErrApplicationNotFound among others.
func Get(ctx context.Context, y YARN, id yarn.ApplicationID) (Application, error) {
	r, err := y.Report(ctx, id)
	if err != nil {
		return Application{}, err
	}
	return applicationOf(r), nil
}

// List returns the applications of the type of c (yarn.application.type) that have not ended, oldest first; with all, also those that
// have.
func List(ctx context.Context, y YARN, c config.Configuration, all bool) ([]Application, error) {
	f := client.Filter{Types: []string{config.YarnType.Value(c)}, Name: config.YarnName.Value(c)}
	if !all {
		f.States = live
	}
	return list(ctx, y, f)
}

// list is what a filter finds, oldest first.
func list(ctx context.Context, y YARN, f client.Filter) ([]Application, error) {
	reports, err := y.Applications(ctx, f)
	if err != nil {
		return nil, err
	}
	var out []Application
	for _, r := range reports {
		out = append(out, applicationOf(r))
	}
	slices.SortFunc(out, func(a, b Application) int {
		return cmp.Or(cmp.Compare(a.ID.ClusterTimestamp, b.ID.ClusterTimestamp), cmp.Compare(a.ID.ID, b.ID.ID))
	})
	return out, nil
}

// Errors of Find and FindJob.
var (
	ErrNotGiven = errors.New("control: which application? give -Dyarn.application.id=..., -Dyarn.application.name=..., or the id of a job")
	ErrNotFound = errors.New("control: no such application runs")
)

// SelectionError says that what was named is no one thing: there is none, or there are several. Its text lists what there is.
type SelectionError struct{ Text string }

func (e *SelectionError) Error() string { return "control: " + e.Text }

func selection(format string, args ...any) error {
	return &SelectionError{fmt.Sprintf(format, args...)}
}

// Find returns the application that c names by yarn.application.id or yarn.application.name.
//
// Errors: ErrNotGiven; ErrNotFound; yarn.ErrMalformed; *SelectionError when the name is not unique.
func Find(ctx context.Context, y YARN, c config.Configuration) (Application, error) {
	if s := config.YarnID.Value(c); s != "" {
		id, err := yarn.ParseApplicationID(s)
		if err != nil {
			return Application{}, fmt.Errorf("control: %s: %w", config.YarnID.Key, err)
		}
		a, err := Get(ctx, y, id)
		if errors.Is(err, yarn.ErrApplicationNotFound) {
			return a, fmt.Errorf("%w: the ResourceManager does not know %s (thalweg list shows what runs)", ErrNotFound, id)
		}
		return a, err
	}
	name := config.YarnName.Value(c)
	if name == "" {
		return Application{}, notGiven(ctx, y, c)
	}
	found, err := List(ctx, y, c, false)
	switch {
	case err != nil:
		return Application{}, err
	case len(found) == 0:
		return Application{}, fmt.Errorf("%w: none is named %q (thalweg list shows what runs)", ErrNotFound, name)
	case len(found) > 1:
		var ids []string
		for _, a := range found {
			ids = append(ids, a.ID.String())
		}
		return Application{}, selection("%d applications are named %q: give -D%s= one of %s", len(found), name, config.YarnID.Key, strings.Join(ids, ", "))
	}
	return found[0], nil
}

// notGiven is ErrNotGiven with what runs.
func notGiven(ctx context.Context, y YARN, c config.Configuration) error {
	found, err := List(ctx, y, c, false)
	switch {
	case err != nil:
		return ErrNotGiven
	case len(found) == 0:
		return fmt.Errorf("%w; none runs", ErrNotGiven)
	case len(found) == 1:
		return fmt.Errorf("%w; one runs, %s: -D%s=%s", ErrNotGiven, found[0].Name, config.YarnID.Key, found[0].ID)
	}
	return fmt.Errorf("%w; %d run (thalweg list shows them and their jobs)", ErrNotGiven, len(found))
}

// Target is an application with a job in it.
type Target struct {
	App  Application
	REST *REST
	Job  JobOverview
}

// withMaster is Find, and waits for the master of an application that YARN is about to start.
func withMaster(ctx context.Context, y YARN, c config.Configuration, limit time.Duration) (Application, error) {
	deadline := time.Now().Add(limit)
	for {
		app, err := Find(ctx, y, c)
		if err != nil || app.REST != "" || app.Ended() || time.Now().After(deadline) {
			return app, err
		}
		if err := ipc.Sleep(ctx, 100*time.Millisecond); err != nil {
			return app, err
		}
	}
}

// startedJobs lists the jobs, and waits for the first one of a master that is about to start it.
func startedJobs(ctx context.Context, r *REST, limit time.Duration) ([]JobOverview, error) {
	deadline := time.Now().Add(limit)
	for {
		jobs, err := r.Jobs(ctx)
		if err != nil || len(jobs) > 0 || time.Now().After(deadline) {
			return jobs, err
		}
		if err := ipc.Sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// FindJob returns the job to act on. With an application named in c it is the job of that id there, or the only one that has not ended when
// job is ""; without, all applications that run are asked for the job.
//
// Errors: as Find; *StatusError, *UnreachableError and *SelectionError; others of one line.
func FindJob(ctx context.Context, y YARN, c config.Configuration, job string) (*Target, error) {
	timeout := config.ClientConnectTimeout.Value(c)
	if job != "" && config.YarnID.Value(c) == "" && config.YarnName.Value(c) == "" {
		return searchJob(ctx, y, c, job, timeout)
	}
	app, err := withMaster(ctx, y, c, timeout)
	if err != nil {
		return nil, err
	}
	if app.REST == "" {
		if app.Ended() {
			why := ""
			if app.Diagnostics != "" {
				why = " (" + app.Why() + ")"
			}
			return nil, fmt.Errorf("control: %s has ended already: %s%s", app.ID, app.Final, why)
		}
		return nil, fmt.Errorf("control: %s is %s and has no master within %s (client.connection-timeout): try again when it runs, or end it with thalweg cancel -Dyarn.application.id=%s", app.ID, app.State, timeout, app.ID)
	}
	r := NewREST(app.REST, timeout)
	jobs, err := startedJobs(ctx, r, timeout)
	if err != nil {
		r.Close()
		return nil, err
	}
	var open []JobOverview
	var names []string
	for _, j := range jobs {
		if j.ID == job {
			return &Target{app, r, j}, nil
		}
		if !ended(j.State) {
			open = append(open, j)
		}
		names = append(names, j.ID+" ("+j.Name+", "+j.State+")")
	}
	if job == "" && len(open) == 1 {
		return &Target{app, r, open[0]}, nil
	}
	r.Close()
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("control: %s has no job yet", app.ID)
	case job != "":
		return nil, selection("%s has no job %s; it has %s", app.ID, job, strings.Join(names, ", "))
	case len(open) == 0:
		return nil, selection("%s has no running job; it has %s", app.ID, strings.Join(names, ", "))
	}
	return nil, selection("%s has several jobs: give the id of one of %s", app.ID, strings.Join(names, ", "))
}

func searchJob(ctx context.Context, y YARN, c config.Configuration, job string, timeout time.Duration) (*Target, error) {
	apps, err := List(ctx, y, c, false)
	if err != nil {
		return nil, err
	}
	var missed []string
	for _, a := range apps {
		if a.REST == "" {
			continue
		}
		r := NewREST(a.REST, timeout)
		jobs, err := r.Jobs(ctx)
		if err != nil {
			missed = append(missed, a.ID.String())
		}
		for _, j := range jobs {
			if j.ID == job {
				return &Target{a, r, j}, nil
			}
		}
		r.Close()
	}
	if len(missed) > 0 {
		return nil, fmt.Errorf("control: no application that answers has job %s; no answer from %s", job, strings.Join(missed, ", "))
	}
	return nil, selection("none of the %d running applications has job %s (thalweg list shows them)", len(apps), job)
}

func ended(state string) bool {
	return state == "FINISHED" || state == "CANCELED" || state == "FAILED"
}

// JobEnded reports whether a job of that state has ended for good.
func JobEnded(state string) bool { return ended(state) }

// Direct is FindJob for a REST interface at host:port or at a URL, whatever deploys it.
func Direct(ctx context.Context, address string, c config.Configuration, job string) (*Target, error) {
	r := NewREST(WebURL(address), config.ClientConnectTimeout.Value(c))
	jobs, err := r.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	var open []JobOverview
	for _, j := range jobs {
		if j.ID == job {
			return &Target{REST: r, Job: j}, nil
		}
		if !ended(j.State) {
			open = append(open, j)
		}
	}
	if job == "" && len(open) == 1 {
		return &Target{REST: r, Job: open[0]}, nil
	}
	if job == "" {
		return nil, selection("%d jobs run at %s: give the id of one (thalweg list -m %s)", len(open), address, address)
	}
	return nil, selection("there is no job %s at %s", job, address)
}
