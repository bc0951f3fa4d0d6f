// Command rig starts, stops and describes a real Hadoop and Kafka cluster on this machine; see package rig.
//
//	rig up [flags] [daemon...]  start the cluster (or these daemons of it) and wait until it serves; rig up --help
//	rig down [-purge]        stop everything, containers included; with -purge remove all its files but the jars
//	rig env                  print export lines for a shell
//	rig status               one line per daemon; exit code 1 when one does not serve
//	rig restart <daemon>...  stop and start single daemons (also: start, stop, kill)
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/thalweg/thalweg/test/rig"
)

const usage = "usage: rig up [flags] [daemon...] (rig up --help) | down [-purge] | env | status | restart|start|stop|kill <daemon>..."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch cmd, rest := args[0], args[1:]; cmd {
	case "up":
		return up(ctx, rest, out, progress)
	case "down":
		return down(ctx, rest, progress)
	case "env":
		return env(ctx, out)
	case "status":
		return status(ctx, out)
	case "restart", "start", "stop", "kill":
		return control(ctx, cmd, rest, progress)
	default:
		return fmt.Errorf("rig: no command %q; %s", cmd, usage)
	}
}

func down(ctx context.Context, args []string, progress io.Writer) error {
	purge := len(args) == 1 && args[0] == "-purge"
	if len(args) > 0 && !purge {
		return errors.New(usage)
	}
	c, err := rig.Attach("")
	if errors.Is(err, rig.ErrNoCluster) {
		_, _ = fmt.Fprintln(progress, "rig: nothing to stop: no cluster was started here")
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if purge {
		if err := c.Purge(ctx); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(progress, "rig: cluster in %s is down\n", c.Dir)
	return nil
}

func env(_ context.Context, out io.Writer) error {
	c, err := rig.Attach("")
	if err != nil {
		return err
	}
	for _, kv := range c.Env() {
		k, v, _ := strings.Cut(kv, "=")
		if _, err := fmt.Fprintf(out, "export %s='%s'\n", k, v); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "export PATH='%s':\"$PATH\"\n", c.BinDir)
	return err
}

func status(ctx context.Context, out io.Writer) error {
	c, err := rig.Attach("")
	if err != nil {
		return err
	}
	bad := 0
	for _, s := range c.Status(ctx) {
		text := "ready"
		if s.Ready != nil {
			text = s.Ready.Error()
			bad++
		}
		if _, err := fmt.Fprintf(out, "%-16s pid %-8d %s (%s)\n", s.Daemon, s.PID, text, s.Log); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(out, "%s: HDFS %s  YARN %s (web %s)  Kafka %s\n", c.Variant, c.DefaultFS, c.ResourceManager, c.ResourceManagerWeb, c.KafkaBootstrap); err != nil {
		return err
	}
	for _, d := range []string{rig.NameNode, rig.ResourceManager} {
		if active, err := c.Active(ctx, d); err == nil && (c.Variant.NNHA || c.Variant.RMHA) {
			_, _ = fmt.Fprintf(out, "active: %s\n", active)
		}
	}
	if bad > 0 {
		return fmt.Errorf("rig: %d of the daemons do not serve", bad)
	}
	return nil
}

func control(ctx context.Context, cmd string, names []string, progress io.Writer) error {
	if len(names) == 0 {
		return errors.New(usage)
	}
	c, err := rig.Attach("")
	if err != nil {
		return err
	}
	act := map[string]func(context.Context, string) error{
		"restart": c.Restart, "start": c.StartDaemon, "stop": c.StopDaemon, "kill": c.Kill9,
	}[cmd]
	for _, n := range names {
		if err := act(ctx, n); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(progress, "rig: %s %s: done\n", cmd, n)
	}
	return nil
}
