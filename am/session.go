package am

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/folder"
	"github.com/thalweg/thalweg/am/session"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/runtime/rpc"
)

// ProgramsDir is the folder of the jobs' programs in that of a session's application.
const ProgramsDir = "programs"

// endJobs bounds the end of a session's jobs when it is shut down, beyond task.cancellation.timeout.
const endJobs = 20 * time.Second

// makeSession makes what takes the jobs of a session.
func (m *master) makeSession(d *dispatcher.Dispatcher, fetch func(context.Context, dispatcher.Artifact) (string, error)) (err error) {
	m.shutdown = make(chan struct{})
	m.jobs, err = session.New(session.Options{
		Config: m.app.Config, Dir: m.work, Files: m.files, Root: m.app.Staging + "/" + ProgramsDir, Dispatcher: d, Running: d.Artifacts, Fetch: fetch, Logger: m.log, Room: func() error { return m.room(d.Running()) },
		Plan: func(ctx context.Context, path string, r rest.JobRequest, c config.Configuration) (*graph.JobGraph, error) {
			cfg := rpc.ProcessConfig{JobID: r.JobID, Config: c, Args: r.Args, Host: m.c.Host, LogDir: m.c.LogDir}
			return Plan(ctx, PlanRequest{Path: path, Name: r.Program.Name, Dir: m.work, WorkDir: m.c.WorkDir, Config: cfg, Env: m.env, Stderr: os.Stderr})
		},
		User: func(err error) bool {
			var plan *PlanError
			var protocol *container.ProtocolError
			return errors.As(err, &plan) || errors.As(err, &protocol)
		},
		Folder: func(ctx context.Context, key, value string) (string, error) {
			return folder.Target(ctx, key, value, m.app.HadoopConfiguration(), m.files)
		},
	})
	if err != nil {
		return fmt.Errorf("am: %w", err)
	}
	return nil
}

// endSession ends the wait of leadSession. It returns at once.
func (m *master) endSession() {
	m.ending.Do(func() {
		m.jobs.Close()
		close(m.shutdown)
	})
}

// leadSession registers, recovers the jobs of earlier attempts, and takes others until the session is shut down.
func (m *master) leadSession(ctx context.Context, d *dispatcher.Dispatcher) (outcome, error) {
	if err := m.takeOver(ctx); err != nil {
		return outcome{}, err
	}
	if m.epoch > 1 {
		ids, err := d.Recover(ctx, nil)
		if err != nil {
			return outcome{}, fmt.Errorf("am: %w", shared(err))
		}
		m.log.Info().Int("jobs", len(ids)).Msg("jobs of the attempt before go on")
	}
	m.jobs.Ready()
	m.phase("serves")
	select {
	case <-m.shutdown:
	case <-ctx.Done():
		return outcome{}, context.Cause(ctx)
	}
	n := m.cancelJobs(ctx, d)
	text := "the session was shut down"
	if n > 0 {
		text += fmt.Sprintf(", which cancelled %d of its jobs", n)
	}
	return outcome{resourcemanager.StatusSucceeded, text}, nil
}

// cancelJobs cancels all jobs and waits for their ends.
func (m *master) cancelJobs(ctx context.Context, d *dispatcher.Dispatcher) (n int) {
	ctx, cancel := context.WithTimeout(ctx, config.CancellationTimeout.Value(m.app.Config)+endJobs)
	defer cancel()
	ids := d.JobIDs()
	for _, id := range ids {
		if err := d.Cancel(id); err == nil {
			n++
		}
	}
	for _, id := range ids {
		if _, err := d.Wait(ctx, id); err != nil && ctx.Err() != nil {
			m.log.Warn().Stringer("job_id", id).Msg("the job does not end in time")
		}
	}
	return n
}
