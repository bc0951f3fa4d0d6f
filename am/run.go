package am

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/folder"
	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/remote"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// run serves, registers, brings the job up, waits for its end and ends the application. An error means that the attempt failed and
// another one may follow.
func (m *master) run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	work := m.work
	get := func(ctx context.Context, a dispatcher.Artifact) (string, error) {
		return fetch(ctx, m.files, container.File{Name: a.Name, URI: a.URI, SHA256: a.SHA256, Size: a.Size}, work)
	}
	launcher := &dispatcher.ProcessLauncher{Dir: work, LogDir: m.c.LogDir, Env: m.env, Fetch: get}
	d := dispatcher.New(dispatcher.Options{Config: m.app.Config, Resources: m.manager, Store: m.store, FS: m.files, Launcher: launcher, Epoch: m.epoch, Owner: m.rm.Attempt().App.String(), Session: m.app.Session,
		OnEnded:       m.archive,
		OnFenced:      func() { m.fail(resourcemanager.ErrFenced) },
		CancelTimeout: config.CancellationTimeout.Value(m.app.Config), Logger: m.log})
	defer d.Close()
	lead := func(ctx context.Context) (outcome, error) { return m.lead(ctx, d, work) }
	if m.app.Session {
		if err := m.makeSession(d, get); err != nil {
			return err
		}
		launcher.Fetch = m.jobs.Local
		lead = func(ctx context.Context) (outcome, error) { return m.leadSession(ctx, d) }
	}
	stop := m.serve(d)
	defer stop() // after the end: TaskManagers are told by it, and the job's last state can be read until then
	out, err := lead(ctx)
	if fatal := (fatalError{}); err != nil && errors.As(context.Cause(ctx), &fatal) {
		out, err = fatalOutcome(fatal.err)
	}
	if err != nil && final(err) {
		out, err = outcome{resourcemanager.StatusFailed, err.Error()}, nil
	}
	if err != nil {
		d.Close() // suspends the job before its TaskManagers' links break, which would look like their deaths
		return err
	}
	if err := m.end(parent, out); err != nil {
		return err
	}
	linger, endLinger := context.WithTimeout(ctx, readTimeout)
	defer endLinger()
	d.AwaitRead(linger)
	return nil
}

// readTimeout bounds the wait for clients to fetch the outcome of a savepoint, when the application is over.
const readTimeout = 10 * time.Second

// lead registers, brings the job up and waits for its end. What another attempt could not do better is an outcome, all else an error.
func (m *master) lead(ctx context.Context, d *dispatcher.Dispatcher, work string) (outcome, error) {
	// The program is fetched and asked for its graph while the ResourceManager takes the registration.
	prepare, cancel := context.WithCancel(ctx)
	prepared := make(chan preparation, 1)
	go func() { prepared <- m.prepare(prepare, work) }()
	waited := false
	defer func() {
		cancel()
		if !waited {
			<-prepared
		}
	}()
	if err := m.takeOver(ctx); err != nil {
		return outcome{}, err
	}
	var p preparation
	select {
	case p = <-prepared:
		waited = true
	case <-ctx.Done():
		return outcome{}, context.Cause(ctx)
	}
	if p.err != nil {
		return outcome{}, p.err
	}
	if p.ended != nil {
		return endedOutcome(*p.ended), nil
	}
	id, err := m.submit(ctx, d, p)
	if errors.Is(err, ha.ErrEnded) { // an attempt before, that was not dead yet, ended it after we looked
		if r, ok := m.result(ctx); ok {
			return endedOutcome(r), nil
		}
	}
	if err != nil {
		if errors.Is(err, ha.ErrFenced) || ctx.Err() != nil {
			return outcome{}, err
		}
		return outcome{resourcemanager.StatusFailed, err.Error()}, nil
	}
	return m.wait(ctx, d, id)
}

// takeOver registers with the ResourceManager and tells TaskManagers who leads.
func (m *master) takeOver(ctx context.Context) error {
	failpoint.At("master/register/before")
	if err := m.manager.Start(ctx); err != nil {
		return err
	}
	failpoint.At("master/register/after")
	m.phase("registered")
	if err := m.store.PublishLeader(ctx, ha.Leader{Address: m.leader, Web: m.webURL}); err != nil {
		return fmt.Errorf("am: publish the leader: %w", shared(err))
	}
	return nil
}

// phase logs a step of the start with its time since submission.
func (m *master) phase(name string) {
	m.log.Info().Str("phase", name).Int64("since_submit_ms", time.Now().UnixMilli()-m.app.Submitted).Int64("since_start_ms", time.Since(m.start).Milliseconds()).Msg("start phase")
}

// preparation is what is known about the job before it is brought up.
type preparation struct {
	path   string // of the binary, here
	stored bool   // jobs of an earlier attempt are to be recovered
	ended  *ha.Result
	graph  *graph.JobGraph
	err    error
}

func (m *master) prepare(ctx context.Context, work string) (p preparation) {
	var id graph.JobID
	if id.ID, p.err = graph.ParseID(m.app.JobID); p.err != nil {
		return p
	}
	if m.epoch > 1 {
		var jobs []ha.Job
		if jobs, p.err = m.store.Jobs(ctx); p.err != nil {
			p.err = shared(p.err)
			return p
		}
		p.stored = len(jobs) > 0
		if !p.stored {
			var results map[graph.JobID]ha.Result
			if results, p.err = m.store.Results(ctx); p.err != nil {
				p.err = shared(p.err)
				return p
			}
			if r, ok := results[id]; ok {
				p.ended = &r
				return p
			}
		}
	}
	select {
	case f := <-m.program:
		p.path, p.err = f.path, f.err
	case <-ctx.Done():
		p.err = ctx.Err()
	}
	if p.err != nil || p.stored {
		return p
	}
	m.phase("fetched")
	cfg := rpc.ProcessConfig{JobID: m.app.JobID, JobName: m.app.Name, Config: m.app.Config, Args: m.app.Args, Host: m.c.Host, LogDir: m.c.LogDir}
	p.graph, p.err = Plan(ctx, PlanRequest{Path: p.path, Name: m.app.Artifact.Name, Dir: work, WorkDir: m.c.WorkDir, Config: cfg, Env: m.env, Stderr: os.Stderr})
	m.phase("planned")
	return p
}

// result is the stored result of the application's job.
func (m *master) result(ctx context.Context) (ha.Result, bool) {
	id, err := graph.ParseID(m.app.JobID)
	if err != nil {
		return ha.Result{}, false
	}
	results, err := m.store.Results(ctx)
	if err != nil {
		m.log.Warn().Err(err).Msg("results of jobs cannot be read")
	}
	r, ok := results[graph.JobID{ID: id}]
	return r, ok
}

func endedOutcome(r ha.Result) outcome {
	switch scheduler.JobState(r.State) {
	case scheduler.JobFinished:
		return outcome{resourcemanager.StatusSucceeded, r.Error}
	case scheduler.JobCanceled:
		return outcome{resourcemanager.StatusKilled, "the job was cancelled"}
	default:
		return outcome{resourcemanager.StatusFailed, r.Error}
	}
}

func fatalOutcome(err error) (outcome, error) {
	if errors.Is(err, resourcemanager.ErrFenced) {
		return outcome{}, err
	}
	return outcome{resourcemanager.StatusFailed, err.Error()}, nil
}

// submit brings the job up, or recovers it.
func (m *master) submit(ctx context.Context, d *dispatcher.Dispatcher, p preparation) (graph.JobID, error) {
	if p.stored {
		failpoint.At("master/recover")
		ids, err := d.Recover(ctx, func(dispatcher.Artifact) string { return p.path })
		if err != nil {
			return graph.JobID{}, err
		}
		m.phase("recovered")
		if len(ids) > 0 {
			return ids[0], nil
		}
		return graph.JobID{}, fmt.Errorf("am: the stored job could not be recovered")
	}
	for _, w := range p.graph.Warnings {
		m.log.Warn().Str("warning", w).Msg("job graph")
	}
	id, err := graph.ParseID(m.app.JobID)
	if err != nil {
		return graph.JobID{}, err
	}
	a := m.app.Artifact
	return d.Submit(ctx, dispatcher.Submission{
		JobID: graph.JobID{ID: id}, Graph: p.graph, Args: m.app.Args, Config: m.app.Config,
		Artifact: dispatcher.Artifact{URI: a.URI, SHA256: a.SHA256, Size: a.Size, Name: a.Name, Path: p.path},
	})
}

// wait waits for the job's end, or for what ends it.
func (m *master) wait(ctx context.Context, d *dispatcher.Dispatcher, id graph.JobID) (outcome, error) {
	m.phase("submitted")
	r, err := d.Wait(ctx, id)
	if err != nil {
		return outcome{}, fmt.Errorf("am: the attempt ends before the job: %w", err)
	}
	if r.Fenced {
		return outcome{}, fmt.Errorf("am: job %s: %w", id, resourcemanager.ErrFenced)
	}
	status, diagnostics := dispatcher.FinalStatus(r)
	if f := r.Failure; status == resourcemanager.StatusFailed && f != nil && f.Kind == "taskmanager" && m.manager != nil {
		diagnostics += m.exitOf(ctx, f.TaskManager)
	}
	if status == resourcemanager.StatusSucceeded && diagnostics == "" { // YARN keeps it, and the client shows it: nobody can ask this master any more
		if det, err := d.Details(ctx, id); err == nil {
			diagnostics = det.Totals()
		}
	}
	if status == resourcemanager.StatusUndefined {
		return outcome{}, fmt.Errorf("am: job %s was suspended: %s", id, diagnostics)
	}
	return outcome{status, diagnostics}, nil
}

// exitOf says why the container of a TaskManager that is gone ended, which YARN tells with one of its next heartbeats.
func (m *master) exitOf(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	if e, ok := m.manager.AwaitExit(ctx, id); ok && e.Text != "" {
		return "; " + e.Text
	}
	return ""
}

// exitWait covers a NodeManager's and our own heartbeat, and the time that YARN takes to end what is left of a container.
const exitWait = 5 * time.Second

// fatalError is the cause with which the attempt's context ends when the driver cannot go on.
type fatalError struct{ err error }

func (e fatalError) Error() string { return e.err.Error() }
func (e fatalError) Unwrap() error { return e.err }

// serve starts the control plane and opens REST; stop ends them and waits for them.
func (m *master) serve(d *dispatcher.Dispatcher) (stop func()) {
	opts := rest.Options{
		Dispatcher: d, TaskManagers: m.manager, Config: m.app.Config, LogDir: m.c.LogDir, ApplicationID: m.app.ID, Started: m.start, Logger: m.log,
		CheckFolder: func(ctx context.Context, field, uri string) (string, error) {
			return folder.Target(ctx, field, uri, m.app.HadoopConfiguration(), m.files)
		},
		TryFolder: func(ctx context.Context, uri string) error { return coordinator.TryFolder(ctx, m.files, uri) },
		Shutdown: func() {
			for _, id := range d.JobIDs() {
				if err := d.Cancel(id); err != nil {
					m.log.Warn().Err(err).Stringer("job_id", id).Msg("shutdown: the job cannot be cancelled")
				}
			}
		},
	}
	if m.app.Session {
		opts.Session, opts.Shutdown = m.jobs, m.endSession
	}
	m.handler = rest.New(opts)
	m.gate.open(m.handler)
	control := remote.NewServer(remote.Options{Token: m.app.Token}, remote.Handlers{TaskManager: m.accept})
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := control.Serve(m.listener); err != nil {
			m.log.Warn().Err(err).Msg("control plane ended")
		}
	}()
	return func() {
		m.web.Close()
		control.Close()
		<-served
	}
}

// listenREST binds one of the ports of rest.bind-port: a number, a range "8081-8090", or a comma list of both, as in Flink.
func (m *master) listenREST(ctx context.Context, h http.Handler) (*rest.Server, error) {
	ports := config.RestBindPort.Value(m.app.Config)
	var errs []error
	for p := range portsOf(ports) {
		s, err := rest.Listen(ctx, ":"+strconv.Itoa(p), h, m.log)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("am: no port of %s = %q can be bound: %w", config.RestBindPort.Key, ports, errors.Join(errs...))
}
