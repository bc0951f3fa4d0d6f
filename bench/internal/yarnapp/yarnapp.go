// Package yarnapp runs a client's command and follows the YARN application that it submits, of either engine. Layer: bench.
package yarnapp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/test/rig"
)

// App is an application whose tasks all run. End or Kill it.
type App struct {
	ID      string
	Began   time.Time     // when all tasks were seen running
	Start   time.Duration // CPU time of its containers until then
	cluster *rig.Cluster
	tracker *proc.Tracker
	cmd     *exec.Cmd
	log     bytes.Buffer
	client  chan error
}

// Launch runs a detached submission and waits until every task of the application of that name runs, or it has ended; limit bounds the wait.
func Launch(ctx context.Context, c *rig.Cluster, cmd *exec.Cmd, name string, limit time.Duration) (_ *App, err error) {
	a := &App{cluster: c, cmd: cmd, client: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { a.client <- cmd.Wait() }() // ends with the command, which ctx ends
	var app flink.Application
	err = flink.Until(ctx, time.Minute, "the application", func(ctx context.Context) (ok bool, err error) {
		app, ok, err = flink.Named(ctx, c, name)
		return ok, err
	})
	if err != nil {
		return nil, errors.Join(err, a.clientEnds())
	}
	a.ID, a.tracker = app.ID, proc.Track(proc.Container(app.ID))
	rest := flink.Proxy(c, app.ID)
	err = flink.Until(ctx, limit, "all tasks running", func(ctx context.Context) (bool, error) {
		app, err := flink.App(ctx, c, a.ID)
		if err == nil && app.Ended() {
			return true, nil // its end is looked at in End
		}
		ids, err := rest.Jobs(ctx)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		j, err := rest.Job(ctx, ids[0])
		return err == nil && j.Runs(), err
	})
	if err != nil {
		return nil, errors.Join(err, a.Kill(ctx))
	}
	a.Began, a.Start = time.Now(), a.CPU()
	return a, nil
}

// CPU is what its containers used so far.
func (a *App) CPU() time.Duration { return a.tracker.Usage().CPU }

// Client is what the client used; after End.
func (a *App) Client() time.Duration {
	return a.cmd.ProcessState.UserTime() + a.cmd.ProcessState.SystemTime()
}

// End waits for the end of a bounded job: that the ResourceManager has it finished, with success, and that its processes are gone.
func (a *App) End(ctx context.Context, limit time.Duration) (app flink.Application, u proc.Usage, err error) {
	err = flink.Until(ctx, limit, "the end of "+a.ID, func(ctx context.Context) (bool, error) {
		app, err = flink.App(ctx, a.cluster, a.ID)
		return err == nil && app.Ended(), err
	})
	if err != nil {
		return app, u, errors.Join(err, a.Kill(ctx))
	}
	err = a.gone(ctx)
	u = a.tracker.Stop()
	if app.FinalStatus != "SUCCEEDED" {
		err = errors.Join(fmt.Errorf("%s ended %s: %.2000s", a.ID, app.FinalStatus, app.Diagnostics), err)
	}
	return app, u, errors.Join(err, a.clientEnds())
}

// Kill ends the application through the ResourceManager, also when ctx has ended, and waits until its processes are gone.
func (a *App) Kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	defer a.tracker.Stop()
	if err := flink.Kill(ctx, a.cluster, a.ID); err != nil {
		return err
	}
	return errors.Join(a.gone(ctx), a.clientEnds())
}

func (a *App) gone(ctx context.Context) error {
	return flink.Until(ctx, 20*time.Second, "the end of the processes of "+a.ID, func(context.Context) (bool, error) { return a.tracker.Usage().Live == 0, nil })
}

func (a *App) clientEnds() error {
	if err := <-a.client; err != nil {
		return fmt.Errorf("client: %w: %.2000s", err, a.log.String())
	}
	return nil
}
