package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
)

func formatFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "type", "canonical", "form of the savepoint, canonical (every backend reads it) or native (quick); also -type")
}

func checkFormat(f string) error {
	if f = strings.ToLower(f); f != "canonical" && f != "native" {
		return &usageError{fmt.Errorf("-type %s: want canonical or native", f)}
	}
	return nil
}

// within bounds the wait for an operation by client.timeout. The operation goes on when the wait ends.
func (c *cli) within(ctx context.Context, what, id string, fn func(context.Context) error) error {
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	limit := config.ClientTimeout.Value(cfg)
	wctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = fn(wctx)
	if err != nil && wctx.Err() != nil && ctx.Err() == nil {
		return &exitError{exitFailed, fmt.Errorf("the %s (trigger %s) is not complete after %s and goes on; wait longer with -Dclient.timeout=10min, or use -detached", what, id, limit)}
	}
	return undecided(what, true, err)
}

// undecided adds to the silence of a master that was asked for an operation, or may have been (asked false), that nobody knows how it went.
func undecided(what string, asked bool, err error) error {
	var gone *control.UnreachableError
	if !errors.As(err, &gone) || !asked && !gone.Sent() {
		return err
	}
	see := "thalweg list shows whether the job still runs"
	if what != "checkpoint" {
		see += ", and its savepoint folder whether there is a new savepoint: a complete one holds a file _metadata"
	}
	return fmt.Errorf("%w; the outcome of the %s is unknown: %s", err, what, see)
}

func (c *cli) savepointCommand() *cobra.Command {
	var s control.SavepointRequest
	var detached bool
	var dispose string
	cmd := &cobra.Command{
		Use: "savepoint [job] [folder]", Short: "take a savepoint of a running job, or remove one",
		Long: "Take a savepoint and print where it is. Without a folder it goes to execution.checkpointing.savepoint-dir. With one argument that\n" +
			"is no job id, the argument is the folder. With --dispose, remove a savepoint and nothing else." + whichJob,
		Example: "  thalweg savepoint -Dyarn.application.name=orders hdfs:///savepoints\n  thalweg savepoint --dispose hdfs:///savepoints/savepoint-1a2b3c-0123456789ab", Args: atMost("a job", "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("dispose") {
				if len(args) > 0 || dispose == "" {
					return &usageError{errors.New("--dispose takes the savepoint alone: thalweg savepoint --dispose PATH")}
				}
				return c.dispose(cmd.Context(), dispose)
			}
			if err := checkFormat(s.Format); err != nil {
				return err
			}
			if len(args) == 1 && !isJobID(args[0]) {
				args = []string{"", args[0]}
			}
			if len(args) == 2 {
				s.Dir = args[1]
			}
			return c.onJob(cmd.Context(), args, func(ctx context.Context, t *target) error {
				if err := c.into(ctx, t, "folder", &s); err != nil {
					return err
				}
				id, err := t.REST.TriggerSavepoint(ctx, t.Job.ID, s)
				if err != nil {
					return noFolder(s, "an argument (thalweg savepoint ... FOLDER)", undecided("savepoint", false, err))
				}
				if detached {
					return c.tell(t, map[string]any{"event": "triggered", "triggerId": id}, "Savepoint triggered: %s\n", id)
				}
				return c.within(ctx, "savepoint", id, func(ctx context.Context) error {
					path, err := t.REST.AwaitSavepoint(ctx, t.Job.ID, id)
					if err != nil {
						return noFolder(s, "an argument (thalweg savepoint ... FOLDER)", err)
					}
					return c.tell(t, map[string]any{"event": "savepoint", "location": path}, "Savepoint completed: %s\n", path)
				})
			})
		},
	}
	formatFlag(cmd, &s.Format)
	cmd.Flags().BoolVar(&detached, "detached", false, "print the trigger's id and return (also -detached)")
	cmd.Flags().StringVarP(&dispose, "dispose", "d", "", "remove this savepoint")
	return cmd
}

// dispose removes a savepoint. A job that was started from it, and copied nothing, is not asked: as in Flink, that is for who disposes.
func (c *cli) dispose(ctx context.Context, uri string) error {
	files := c.snapshotFiles()
	defer files.close()
	reg, uri, err := files.of(uri)
	if err != nil {
		return err
	}
	if err := savepoint.Dispose(ctx, reg, uri); err != nil {
		if savepoint.Unreadable(err) || errors.Is(err, savepoint.ErrNotSavepoint) {
			return &usageError{err}
		}
		return err
	}
	if c.json() {
		return c.emit(map[string]any{"event": "disposed", "location": uri})
	}
	c.printf("Savepoint removed: %s\n", uri)
	return nil
}

// into makes the folder of s one that all containers of t see. flag names it in messages.
func (c *cli) into(ctx context.Context, t *target, flag string, s *control.SavepointRequest) error {
	if s.Dir == "" {
		return nil // the job's own, if it has one
	}
	dir, err := t.folder(ctx, flag, s.Dir)
	s.Dir = dir
	return err
}

// noFolder adds what to do to the refusal of a savepoint for which nobody names a folder.
func noFolder(s control.SavepointRequest, what string, err error) error {
	var refused *control.StatusError
	var failed *control.OperationError
	if s.Dir != "" || !errors.As(err, &refused) && !errors.As(err, &failed) || !strings.Contains(err.Error(), config.SavepointDir.Key+" is not set") {
		return err
	}
	return &usageError{fmt.Errorf("no folder for the savepoint: give it with %s, or to the job with -D%s=... when it starts", what, config.SavepointDir.Key)}
}

// isJobID reports whether s has the form of one: 32 hex digits.
func isJobID(s string) bool {
	return len(s) == 32 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

func (c *cli) stopCommand() *cobra.Command {
	var s control.SavepointRequest
	var detached bool
	cmd := &cobra.Command{
		Use: "stop [job]", Short: "end a job with a savepoint",
		Long: "Take a savepoint, after which the sources emit nothing, and end the job: nothing is lost and nothing is written twice when it is\n" +
			"started again from there. --drain first lets event time pass to its end, so that windows fire; do not go on from such a savepoint." + whichJob,
		Example: "  thalweg stop -Dyarn.application.name=orders -p hdfs:///savepoints", Args: atMost("a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.Format); err != nil {
				return err
			}
			return c.onJob(cmd.Context(), args, func(ctx context.Context, t *target) error {
				if err := c.into(ctx, t, "-p/--savepointPath", &s); err != nil {
					return err
				}
				id, err := t.REST.TriggerStop(ctx, t.Job.ID, s)
				if err != nil {
					return noFolder(s, "-p/--savepointPath", undecided("stop", false, err))
				}
				if detached {
					return c.tell(t, map[string]any{"event": "triggered", "triggerId": id}, "Stop triggered: %s\n", id)
				}
				return c.within(ctx, "stop", id, func(ctx context.Context) error {
					path, err := t.REST.AwaitSavepoint(ctx, t.Job.ID, id)
					if err != nil {
						return noFolder(s, "-p/--savepointPath", err)
					}
					return c.tell(t, map[string]any{"event": "stopped", "location": path}, "Savepoint completed: %s\n", path)
				})
			})
		},
	}
	formatFlag(cmd, &s.Format)
	cmd.Flags().StringVarP(&s.Dir, "savepointPath", "p", "", "URI of the folder; execution.checkpointing.savepoint-dir when empty")
	cmd.Flags().BoolVarP(&s.Drain, "drain", "d", false, "emit the maximal watermark before the savepoint")
	cmd.Flags().BoolVar(&detached, "detached", false, "print the trigger's id and return (also -detached)")
	return cmd
}

func (c *cli) checkpointCommand() *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use: "checkpoint [job]", Short: "take a checkpoint of a running job now", Long: "Take a checkpoint of a job that runs, beside those of execution.checkpointing.interval, and print its number when it is complete." + whichJob,
		Example: "  thalweg checkpoint -Dyarn.application.name=orders\n  thalweg checkpoint -m localhost:8081", Args: atMost("a job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.onJob(cmd.Context(), args, func(ctx context.Context, t *target) error {
				id, err := t.REST.TriggerCheckpoint(ctx, t.Job.ID, full)
				if err != nil {
					return undecided("checkpoint", false, err)
				}
				return c.within(ctx, "checkpoint", id, func(ctx context.Context) error {
					n, err := t.REST.AwaitCheckpoint(ctx, t.Job.ID, id)
					if err != nil {
						return err
					}
					return c.tell(t, map[string]any{"event": "checkpoint", "checkpointId": n}, "Checkpoint %d completed\n", n)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "write all files anew: the checkpoint refers to none of earlier ones, as those of the pebble backend do")
	return cmd
}
