// Command latency measures how long a result takes from the end of its window to a reader of committed records, at a fixed load, side by
// side with Apache Flink: see bench/README.md.
//
//	latency [-loads 0.33] [-guarantee at-least-once] [-buffer 10ms] [-seconds 60] [-runs 1] [-o text|json] [-save]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/test/eos"
	"github.com/thalweg/thalweg/test/rig"
)

const (
	thalweg = "thalweg"
	peer    = "flink"
)

type options struct {
	loads     []float64
	most      float64
	guarantee string
	buffer    time.Duration
	watermark time.Duration
	interval  time.Duration
	seconds   int
	warm      int
	runs      int
	ours      bool
	output    string
	save      bool
}

func main() { command.Main("latency", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("latency", flag.ContinueOnError)
	f.SetOutput(errw)
	loads := f.String("loads", "0.33", "loads as parts of the slower engine's maximum, comma separated")
	f.Float64Var(&o.most, "max", 0, "that maximum, events/s; 0 measures it first")
	o.guarantee = "at-least-once"
	command.Choice(f, &o.guarantee, "guarantee", "at-least-once or exactly-once", "at-least-once", "exactly-once")
	f.DurationVar(&o.buffer, "buffer", 10*time.Millisecond, "buffer time-out of both engines")
	f.DurationVar(&o.watermark, "watermark", 5*time.Millisecond, "watermark interval of both engines")
	f.DurationVar(&o.interval, "checkpoints", time.Second, "checkpoint interval of both engines")
	f.IntVar(&o.seconds, "seconds", 60, "how long to measure")
	f.IntVar(&o.warm, "warm-up", 10, "seconds of load before")
	f.IntVar(&o.runs, "runs", 1, "runs of each load and engine")
	f.BoolVar(&o.ours, "ours", false, "measure ours only; needs -max")
	command.Output(f, &o.output)
	command.Saving(f, &o.save)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	for l := range strings.SplitSeq(*loads, ",") {
		v, err := strconv.ParseFloat(l, 64)
		if err != nil || v <= 0 || v > 1 {
			return o, fmt.Errorf("-loads %s: want numbers above 0 and at most 1", *loads)
		}
		o.loads = append(o.loads, v)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.runs < 1 || o.seconds < 1 || o.warm < 1:
		return o, errors.New("-runs, -seconds and -warm-up must be positive")
	case o.ours && o.most <= 0:
		return o, errors.New("-ours needs -max")
	}
	return o, nil
}

// bench is one run of the command.
type bench struct {
	options
	root, dir, bin string
	cluster        *rig.Cluster
	kafka          eos.Cluster
	yarn           *flink.Yarn
	out            io.Writer
	n              int
}

func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...)) // only shows
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	debug.SetGCPercent(2000) // the load must not stop for its own garbage
	b := &bench{options: o, out: progress}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	begin := time.Now()
	rep := &report{Date: begin.UTC().Format(time.RFC3339), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(), Flink: flink.Version,
		Guarantee: o.guarantee, Buffer: o.buffer.String(), Watermark: o.watermark.String(), Checkpoints: o.interval.String(), Seconds: o.seconds}
	most := o.most
	if most == 0 {
		if rep.Most, err = b.calibrate(ctx); err != nil {
			return err
		}
		most = min(rep.Most[thalweg], rep.Most[peer])
	}
	for _, load := range o.loads {
		c := cell{Load: load, Rate: most * load}
		for range o.runs {
			for _, side := range b.sides() {
				s, err := b.measure(ctx, side, c.Rate)
				if err != nil {
					return fmt.Errorf("%s at %.0f events/s: %w", side, c.Rate, err)
				}
				c.Samples = append(c.Samples, s)
			}
		}
		rep.Cells = append(rep.Cells, c)
	}
	rep.Took = time.Since(begin).Round(time.Second).String()
	err = command.Write(out, o.output, rep, rep.text)
	if err == nil && o.save {
		err = command.Save(b.root, "latency", rep.Date, rep.markdown(), progress)
	}
	return err
}

func (b *bench) sides() []string {
	if b.ours {
		return []string{thalweg}
	}
	return []string{thalweg, peer}
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.root, err = machine.Checkout(); err != nil {
		return err
	}
	b.bin = filepath.Join(b.root, "bin")
	if b.dir, err = os.MkdirTemp("", "thalweg-latency-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(b.dir))
		}
	}()
	if b.cluster, err = rig.Start(ctx, rig.Options{Progress: b.out}); err != nil {
		return err
	}
	b.kafka = eos.Cluster{Brokers: []string{b.cluster.KafkaBootstrap}}
	if err := flink.Idle(ctx, b.cluster); err != nil {
		return err
	}
	if b.ours {
		return nil
	}
	home, err := flink.Install(ctx, b.root, b.out)
	if err != nil {
		return err
	}
	b.yarn, err = home.OnYARN(ctx, b.cluster, filepath.Join(b.dir, "flink"), map[string]string{
		"taskmanager.memory.process.size": "3072m", "taskmanager.memory.managed.fraction": "0.1", "taskmanager.numberOfTaskSlots": strconv.Itoa(parallelism),
		"execution.checkpointing.dir": b.cluster.DefaultFS + "/bench/flink-checkpoints", "state.backend.type": "hashmap", "parallelism.default": strconv.Itoa(parallelism),
	})
	return err
}
