package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

const yarnRunning = yarnpb.NodeStateProto_NS_RUNNING

// listedSession is a session as a line of JSON.
type listedSession struct {
	Application  string `json:"applicationId"`
	Name         string `json:"name"`
	User         string `json:"user"`
	Queue        string `json:"queue"`
	State        string `json:"state"`
	Final        string `json:"finalStatus"`
	Web          string `json:"webUrl,omitempty"`
	REST         string `json:"restUrl,omitempty"`
	Started      int64  `json:"started"`
	Diagnostics  string `json:"diagnostics,omitempty"`
	Jobs         int    `json:"jobsRunning"`
	TaskManagers int    `json:"taskmanagers"`
	Slots        int    `json:"slotsTotal"`
	Free         int    `json:"slotsAvailable"`
	Version      string `json:"version,omitempty"`
	Error        string `json:"error,omitempty"`
}

func (c *cli) sessionList() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list", Short: "list the sessions of all users", Args: atMost(),
		Long:    "List the sessions that run, with their jobs, TaskManagers and slots in numbers. thalweg list -t yarn-session shows the jobs themselves.",
		Example: "  thalweg session list\n  thalweg session list -a -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.listSessions(cmd.Context(), all) },
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	return cmd
}

func (c *cli) listSessions(ctx context.Context, all bool) error {
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	apps, err := control.Sessions(ctx, k.yarn, cfg, all)
	if err != nil {
		return err
	}
	t := newTable("SESSION", "NAME", "USER", "STATE", "JOBS", "TASKMANAGERS", "SLOTS", "SINCE")
	for _, a := range apps {
		s := listedSession{Application: a.ID.String(), Name: a.Name, User: a.User, Queue: a.Queue, State: a.State, Final: a.Final, Web: a.Proxy, REST: a.REST, Started: a.Start.UnixMilli(), Diagnostics: a.Diagnostics}
		numbers := []string{"-", "-", "-"}
		if a.REST != "" {
			r := control.NewREST(a.REST, 5*time.Second)
			o, err := r.Overview(ctx)
			r.Close()
			if err != nil {
				s.Error = err.Error()
			} else {
				s.Jobs, s.TaskManagers, s.Slots, s.Free, s.Version = o.Running, o.TaskManagers, o.SlotsTotal, o.SlotsAvailable, o.Version
				numbers = []string{fmt.Sprint(o.Running), fmt.Sprint(o.TaskManagers), fmt.Sprintf("%d, %d free", o.SlotsTotal, o.SlotsAvailable)}
			}
		}
		if c.json() {
			if err := c.emit(s); err != nil {
				return err
			}
			continue
		}
		state := a.State
		if a.Ended() {
			state += "/" + a.Final
		}
		below := ""
		if s.Error != "" {
			below = "why: " + oneLine(s.Error)
		} else {
			below = listed{id: a.ID, State: a.State, Final: a.Final, Diagnostics: a.Diagnostics}.why(false)
		}
		t.row(below, s.Application, s.Name, s.User, state, numbers[0], numbers[1], numbers[2], since(s.Started))
	}
	if c.json() {
		return nil
	}
	if len(apps) == 0 {
		c.printf("No session runs: thalweg session start -d starts one.\n")
		return nil
	}
	return t.writeTo(c.print)
}
