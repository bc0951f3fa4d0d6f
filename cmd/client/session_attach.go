package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/config"
)

func (c *cli) sessionAttach() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "attach [application]", Short: "stay in front of a session", Args: atMost("an application"),
		Long: `Stay in front of a session that runs, and show how it goes. "stop" shuts it down with its jobs, "quit" leaves it running; Ctrl-C leaves it running too,
other than in Flink, since others may use it. echo stop | thalweg session attach works as in Flink.`,
		Example: "  thalweg session attach\n  echo stop | thalweg session attach -id application_1700000000000_0001",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), id, args, func(ctx context.Context, k *cluster, a control.Application) error {
				k.config = k.config.Clone()
				k.config[config.YarnID.Key] = a.ID.String()
				return c.attach(ctx, k, false)
			})
		},
	}
	cmd.Flags().StringVar(&id, "applicationId", "", "the session; also -id")
	return cmd
}

// sessionPoll is the pause between two looks at a session.
const sessionPoll = time.Second

// attach stays in front of the session that k's configuration names until it ends, or somebody says so. owner: an interrupt shuts it down.
func (c *cli) attach(parent context.Context, k *cluster, owner bool) error {
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, ending...)
	defer signal.Stop(interrupts)
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent)) // the signals are handled here
	defer cancel()
	a, err := control.FindSession(ctx, k.yarn, k.config, k.user)
	if err != nil {
		return err
	}
	if owner {
		c.notef(`Attached: "help" tells what can be typed; Ctrl-C shuts the session down with its jobs (thalweg session start -d returns instead).`)
	} else {
		c.notef(`Attached: "help" tells what can be typed; Ctrl-C leaves the session running.`)
	}
	lines := c.lines(ctx)
	tick := time.NewTicker(sessionPoll)
	defer tick.Stop()
	last := ""
	for {
		if text := c.sessionState(ctx, a); text != "" && text != last {
			last = text
			if err := c.event(map[string]any{"event": "session", "applicationId": a.ID.String(), "state": a.State, "text": text}, "%s  %s\n", time.Now().Format("15:04:05"), text); err != nil {
				return err
			}
		}
		if a.Ended() {
			if a.Succeeded() {
				return nil
			}
			return &exitError{exitFailed, fmt.Errorf("session %s has ended: %s", a.ID, a.Why())}
		}
		select {
		case <-tick.C:
			if a, err = control.Get(ctx, k.yarn, a.ID); err != nil {
				return fmt.Errorf("%w; session %s goes on without this command", err, a.ID)
			}
		case <-interrupts:
			if !owner {
				return &exitError{exitInterrupted, fmt.Errorf("interrupted; session %s goes on (thalweg session stop -id %s ends it)", a.ID, a.ID)}
			}
			c.notef("shutting the session down")
			return c.stopSession(ctx, k, a)
		case line, open := <-lines:
			switch {
			case !open:
				lines = nil // nobody types: it goes on
			case line == "stop":
				return c.stopSession(ctx, k, a)
			case line == "quit" || line == "q":
				c.notef("session %s goes on (thalweg session stop -id %s ends it)", a.ID, a.ID)
				return nil
			case line != "":
				c.notef("stop   shut the session down with its jobs\nquit   leave it running and go")
			}
		}
	}
}

// lines are what is typed, or comes through a pipe. The channel is closed at the end of the input.
func (c *cli) lines(ctx context.Context) <-chan string {
	out := make(chan string)
	in := c.in
	go func() { // ends with the process if nobody types
		defer close(out)
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case out <- strings.ToLower(strings.TrimSpace(s.Text())):
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// sessionState is how a session goes, in one line.
func (c *cli) sessionState(ctx context.Context, a control.Application) string {
	if a.REST == "" || a.Ended() {
		text := a.State
		if a.Ended() {
			text += "/" + a.Final
		}
		if why, _, _ := strings.Cut(reason(a), " Details"); why != "" && a.State != "RUNNING" {
			text += ": " + why
		}
		return text
	}
	r := control.NewREST(a.REST, 5*time.Second)
	defer r.Close()
	o, err := r.Overview(ctx)
	var gone *control.UnreachableError
	if errors.As(err, &gone) {
		return "the application master does not answer"
	}
	if err != nil {
		return oneLine(err.Error())
	}
	return fmt.Sprintf("%s: %d jobs run; %d TaskManagers, %d of %d slots free", a.State, o.Running, o.TaskManagers, o.SlotsAvailable, o.SlotsTotal)
}
