package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
)

const sessionHelp = `A session is an application on YARN that takes many jobs, of different programs, one after another and at once. Each job runs in worker processes
of its own; TaskManagers are asked for when slots are missing, and given back after resourcemanager.taskmanager-timeout.

A session is named by -Dyarn.application.id= or -id; the only one of yours that runs need not be named. A job has the session's options below its own:
those that make the session's processes (memory, slots, yarn.*) are set where it starts.`

// sessionForms are the flags of Flink's yarn-session.sh that have several letters after one dash.
var sessionForms = map[string]string{"-id": "--applicationId", "-nm": "--name", "-qu": "--queue", "-jm": "--jobManagerMemory", "-tm": "--taskManagerMemory",
	"-at": "--applicationType", "-nl": "--nodeLabel"}

// sessionFlags are the flags of session start.
type sessionFlags struct {
	id, name, queue, master, worker, kind, label string
	slots                                        int // negative: not given
	detached, query                              bool
	ship                                         []string
}

func (c *cli) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "session start|attach|list|stop", Short: "applications on YARN that take many jobs", Long: sessionHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("session: there is no action %q: start, attach, list or stop (see thalweg session --help)", args[0])}
			}
			return nil
		},
		Example: "  thalweg session start -d\n  thalweg run -t yarn-session ./job\n  thalweg session list\n  thalweg session stop",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{c.sessionStart(), c.sessionAttach(), c.sessionList(), c.sessionStop()} {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			switch {
			case c.address != "":
				return &usageError{fmt.Errorf("session: -m %s: a session is found on YARN: -id APPLICATION", c.address)}
			case c.target != "" && c.target != "yarn-session":
				return &usageError{fmt.Errorf("session: -t %s: -t is --target, and sessions run on YARN (yarn-session); files are not shipped along: a job is one static program", c.target)}
			}
			return run(cmd, args)
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

func (c *cli) sessionStart() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use: "start", Short: "start a session", Args: atMost(),
		Long: `Start a session and, without -d, stay in front of it: what you type is "help", "stop" or "quit", and Ctrl-C shuts the session down, with its jobs, as
in Flink. With -d the command returns when the session takes jobs. A size without unit is in mebibytes.`,
		Example: "  thalweg session start -d\n  thalweg session start -d -nm analytics -qu streaming -jm 1g -tm 2g -s 4 -Dstate.backend.type=pebble\n  thalweg session start -q",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch given := cmd.Flags().Changed("slots"); {
			case !given:
				f.slots = -1
			case f.slots < 1:
				return &usageError{fmt.Errorf("-s %d: want 1 slot at least", f.slots)}
			}
			return c.startSession(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&f.detached, "detached", "d", false, "return when the session takes jobs")
	fl.StringVar(&f.name, "name", "", "name shown by YARN (yarn.application.name); also -nm")
	fl.StringVar(&f.queue, "queue", "", "queue (yarn.application.queue); also -qu")
	fl.StringVar(&f.master, "jobManagerMemory", "", "size of the application master's container (jobmanager.memory.process.size); also -jm")
	fl.StringVar(&f.worker, "taskManagerMemory", "", "size of a TaskManager's container (taskmanager.memory.process.size); also -tm")
	fl.IntVarP(&f.slots, "slots", "s", 0, "slots of a TaskManager (taskmanager.numberOfTaskSlots)")
	fl.StringVar(&f.kind, "applicationType", "", "type shown by YARN (yarn.application.type); also -at")
	fl.StringVar(&f.label, "nodeLabel", "", "node label expression (yarn.application.node-label); also -nl")
	fl.StringArrayVar(&f.ship, "ship", nil, shipUsage)
	fl.StringVar(&f.id, "applicationId", "", "attach to this session instead; also -id")
	fl.BoolVarP(&f.query, "query", "q", false, "show what the cluster has free, and start nothing")
	return cmd
}

// mebibytes is Flink's reading of a size without unit in these flags.
func mebibytes(size string) string {
	if size != "" && strings.Trim(size, "0123456789") == "" {
		return size + "m"
	}
	return size
}

func (f sessionFlags) configuration() config.Configuration {
	out := config.Configuration{}
	for key, v := range map[string]string{
		config.YarnName.Key: f.name, config.YarnQueue.Key: f.queue, config.YarnType.Key: f.kind, config.YarnNodeLabel.Key: f.label, config.YarnID.Key: f.id,
		config.JobManagerMemory.Key: mebibytes(f.master), config.TaskManagerMemory.Key: mebibytes(f.worker),
	} {
		if v != "" {
			out[key] = v
		}
	}
	if len(f.ship) > 0 {
		config.YarnShipFiles.Set(out, f.ship)
	}
	if f.slots >= 0 {
		config.TaskSlots.Set(out, f.slots)
	}
	return out
}

func (c *cli) startSession(ctx context.Context, f sessionFlags) error {
	start := time.Now()
	cfg, err := c.config(f.configuration())
	if err != nil {
		return err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	if f.query {
		return c.queryCluster(ctx, k)
	}
	if config.YarnID.IsSet(cfg) {
		if f.detached {
			return &usageError{fmt.Errorf("session start: %s runs already: thalweg session attach stays in front of it", config.YarnID.Value(cfg))}
		}
		return c.attach(ctx, k, true)
	}
	if uri := config.SavepointPath.Value(cfg); uri != "" {
		return &usageError{fmt.Errorf("session start: %s is of a job: give it to thalweg run -t yarn-session -s", config.SavepointPath.Key)}
	}
	files, err := k.files()
	if err != nil {
		return &usageError{err}
	}
	show := &progress{c: c, start: start}
	res, err := submit.Submit(ctx, submit.Request{YARN: k.yarn, FS: files, Hadoop: k.hadoop, Config: k.application(c, cfg), User: k.user, LibDir: c.libDir(), OnPhase: show.phase, Progress: show.upload,
		Tokens: k.tokens, KerberosConf: k.kerberosConf})
	show.done()
	if err != nil {
		return err
	}
	k.submittedFor(c)
	web := k.proxy(res.ID.String())
	if err := c.event(map[string]any{"event": "submitted", "applicationId": res.ID.String(), "name": res.Name, "webUrl": web, "sentBytes": res.Sent, "stagingDirectory": res.Staging,
		"phases": res.Phases, "ms": time.Since(start).Milliseconds()}, "Session      %s (%s)\nWeb          %s\nSubmitted in %s, %s sent\n", res.ID, res.Name, web, round(time.Since(start)), bytesText(res.Sent)); err != nil {
		return err
	}
	k.config = k.config.Clone()
	k.config[config.YarnID.Key] = res.ID.String()
	if !f.detached {
		return c.attach(ctx, k, true)
	}
	_, rest, err := control.AwaitSession(ctx, k.yarn, res.ID, config.ClientConnectTimeout.Value(cfg))
	if err != nil {
		return fmt.Errorf("%w; it stays submitted: thalweg session list shows how it goes, thalweg session stop -id %s ends it", err, res.ID)
	}
	defer rest.Close()
	return c.event(map[string]any{"event": "running", "applicationId": res.ID.String(), "restUrl": rest.Base(), "ms": time.Since(start).Milliseconds()},
		"Takes jobs after %s, REST at %s\nRun a job in it: thalweg run -t yarn-session -Dyarn.application.id=%s ./job\nShut it down:    thalweg session stop -id %s\n", round(time.Since(start)), rest.Base(), res.ID, res.ID)
}

// event writes what happened in either form.
func (c *cli) event(fields map[string]any, format string, args ...any) error {
	if c.json() {
		return c.emit(fields)
	}
	c.printf(format, args...)
	return nil
}

// queryCluster shows the nodes with what they have free, as yarn-session.sh -q does.
func (c *cli) queryCluster(ctx context.Context, k *cluster) error {
	nodes, err := k.yarn.Nodes(ctx, yarnRunning)
	if err != nil {
		return err
	}
	t := newTable("NODE", "MEMORY", "FREE", "VCORES", "FREE", "CONTAINERS")
	var memory, free int64
	var cores, freeCores int32
	for _, n := range nodes {
		all, used := n.GetCapability(), n.GetUsed()
		left, leftCores := all.GetMemory()-used.GetMemory(), all.GetVirtualCores()-used.GetVirtualCores()
		memory, free, cores, freeCores = memory+all.GetMemory(), free+left, cores+all.GetVirtualCores(), freeCores+leftCores
		host := fmt.Sprintf("%s:%d", n.GetNodeId().GetHost(), n.GetNodeId().GetPort())
		if c.json() {
			if err := c.emit(map[string]any{"node": host, "memoryMb": all.GetMemory(), "freeMemoryMb": left, "vcores": all.GetVirtualCores(), "freeVcores": leftCores, "containers": n.GetNumContainers()}); err != nil {
				return err
			}
			continue
		}
		t.row("", host, fmt.Sprintf("%d MiB", all.GetMemory()), fmt.Sprintf("%d MiB", left), fmt.Sprint(all.GetVirtualCores()), fmt.Sprint(leftCores), fmt.Sprint(n.GetNumContainers()))
	}
	if c.json() {
		return nil
	}
	if err := t.writeTo(c.print); err != nil {
		return err
	}
	c.printf("%d nodes: %d MiB, %d free; %d vcores, %d free\n", len(nodes), memory, free, cores, freeCores)
	return nil
}

func (c *cli) sessionStop() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: "stop [application]", Short: "shut a session down, with its jobs", Args: atMost("an application"),
		Long: "Cancel the jobs of a session and end its application. A job that is to go on later is stopped with a savepoint before (thalweg stop).\n" +
			"A session that has no master yet is killed through YARN.",
		Example: "  thalweg session stop\n  thalweg session stop -id application_1700000000000_0001",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withSession(cmd.Context(), id, args, func(ctx context.Context, k *cluster, a control.Application) error { return c.stopSession(ctx, k, a) })
		},
	}
	cmd.Flags().StringVar(&id, "applicationId", "", "the session; also -id")
	return cmd
}

// withSession finds the session that flags, arguments and options name.
func (c *cli) withSession(ctx context.Context, id string, args []string, fn func(context.Context, *cluster, control.Application) error) error {
	if len(args) > 0 {
		if id != "" && id != args[0] {
			return &usageError{errors.New("give the session once, as -id or as the argument")}
		}
		id = args[0]
	}
	flags := config.Configuration{}
	if id != "" {
		flags[config.YarnID.Key] = id
	}
	cfg, err := c.config(flags)
	if err != nil {
		return err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return err
	}
	defer k.close()
	a, err := control.FindSession(ctx, k.yarn, cfg, k.user)
	if err != nil {
		return err
	}
	return fn(ctx, k, a)
}

func (c *cli) stopSession(ctx context.Context, k *cluster, a control.Application) error {
	if err := control.CheckUser(a, k.user); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, config.ClientTimeout.Value(k.config))
	defer cancel()
	if a.REST == "" && a.Attempt <= 1 {
		if err := k.yarn.Kill(ctx, a.ID, "the session was stopped while it waited for its master"); err != nil {
			return err
		}
	} else {
		_, rest, err := control.AwaitSession(ctx, k.yarn, a.ID, config.ClientConnectTimeout.Value(k.config))
		if err != nil {
			return fmt.Errorf("%w (yarn application -kill %s ends it in any case)", err, a.ID)
		}
		err = rest.ShutDown(ctx)
		rest.Close()
		var gone *control.UnreachableError
		if err != nil && (!errors.As(err, &gone) || !gone.Sent()) {
			return err
		}
	}
	for !a.Ended() {
		if err := pause(ctx, followQuick); err != nil {
			return fmt.Errorf("session %s has not ended after %s (client.timeout); it goes on ending", a.ID, config.ClientTimeout.Value(k.config))
		}
		var err error
		if a, err = control.Get(ctx, k.yarn, a.ID); err != nil {
			return err
		}
	}
	return c.event(map[string]any{"event": "stopped", "applicationId": a.ID.String(), "state": a.State, "finalStatus": a.Final, "diagnostics": a.Diagnostics}, "Session %s has ended: %s\n", a.ID, oneLine(a.Diagnostics))
}

// pause waits for d, or returns the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
