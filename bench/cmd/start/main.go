// Command start measures how long a job takes from the command to its first output record on YARN, side by side with Apache Flink: see
// bench/README.md.
//
//	start [-runs 5] [-tuned=true] [-o text|json] [-save]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/test/rig"
)

const (
	thalweg = "thalweg"
	peer    = "flink"
	tuned   = "flink, tuned"
)

type options struct {
	runs   int
	tuned  bool
	ours   bool
	output string
	save   bool
}

func main() { command.Main("start", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("start", flag.ContinueOnError)
	f.SetOutput(errw)
	f.IntVar(&o.runs, "runs", 5, "starts of each")
	f.BoolVar(&o.tuned, "tuned", true, "also start Flink with heartbeats of 1 s, and of 100 ms while it waits for containers")
	f.BoolVar(&o.ours, "ours", false, "start ours only")
	command.Output(f, &o.output)
	command.Saving(f, &o.save)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.runs < 1:
		return o, errors.New("-runs must be positive")
	}
	return o, nil
}

// bench is one run of the command.
type bench struct {
	options
	root, dir, bin, pipe string
	cluster              *rig.Cluster
	yarn                 *flink.Yarn
	probe                *probe
	out                  io.Writer
	n                    int
}

func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...)) // only shows
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	b := &bench{options: o, out: progress}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.probe.close(), os.RemoveAll(b.dir)) }()
	begin := time.Now()
	rep := &report{Date: begin.UTC().Format(time.RFC3339), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(), Flink: flink.Version, Starts: map[string][]start{}}
	for _, side := range b.sides() { // fills the NodeManagers' caches
		if _, err := b.start(ctx, side); err != nil {
			return fmt.Errorf("warm-up of %s: %w", side, err)
		}
	}
	for range b.runs {
		for _, side := range b.sides() {
			s, err := b.start(ctx, side)
			if err != nil {
				return fmt.Errorf("%s: %w", side, err)
			}
			rep.Starts[side] = append(rep.Starts[side], s)
		}
	}
	rep.Took = time.Since(begin).Round(time.Second).String()
	err = command.Write(out, o.output, rep, rep.text)
	if err == nil && o.save {
		err = command.Save(b.root, "start", rep.Date, rep.markdown(), progress)
	}
	return err
}

func (b *bench) sides() []string {
	switch {
	case b.ours:
		return []string{thalweg}
	case b.tuned:
		return []string{peer, thalweg, tuned}
	}
	return []string{peer, thalweg}
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.root, err = machine.Checkout(); err != nil {
		return err
	}
	b.bin = filepath.Join(b.root, "bin")
	if b.dir, err = os.MkdirTemp("", "thalweg-start-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(b.dir))
		}
	}()
	b.pipe = filepath.Join(b.dir, "pipe")
	if err := machine.Build(ctx, b.root, b.pipe, "./bench/jobs/pipe", b.out); err != nil {
		return err
	}
	if b.cluster, err = rig.Start(ctx, rig.Options{Progress: b.out}); err != nil {
		return err
	}
	if err := flink.Idle(ctx, b.cluster); err != nil {
		return err
	}
	if !b.ours {
		home, err := flink.Install(ctx, b.root, b.out)
		if err != nil {
			return err
		}
		if b.yarn, err = home.OnYARN(ctx, b.cluster, filepath.Join(b.dir, "flink"), map[string]string{
			"taskmanager.memory.process.size": "1728m", "taskmanager.numberOfTaskSlots": "1", "parallelism.default": "1",
		}); err != nil {
			return err
		}
	}
	b.probe, err = listen()
	return err
}
