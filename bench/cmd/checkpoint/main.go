// Command checkpoint measures checkpoints of both engines in turn: see bench/README.md.
//
//	checkpoint [-only thalweg|flink] [-cases 100kb,100mb,500mb,2gb,cost] [-change 0.01] [-checkpoints 6] [-interval 5s] [-o text|json]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/test/rig"
)

type options struct {
	rowjob.Flags
	cases    []string
	change   float64 // part of the keys that an interval changes
	count    int     // checkpoints to measure
	interval time.Duration
	local    bool
}

// sizes are the cases' bytes of state; "cost" and "cost-all" are the throughput with checkpoints and without, "backpressure" unaligned checkpoints of a job that is held up.
var sizes = []string{"100kb", "100mb", "500mb", "2gb"}

const (
	cost         = "cost"
	costAll      = "cost-all"
	backpressure = "backpressure"
)

func isCost(c string) bool { return c == cost || c == costAll }

func main() { command.Main("checkpoint", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("checkpoint", flag.ContinueOnError)
	f.SetOutput(errw)
	o.Add(f, config.Configuration{config.LocalBackup.Key: "true"})
	cases := f.String("cases", strings.Join(append(sizes, cost, costAll, backpressure), ","), "sizes of the state, "+cost+" (the throughput with a checkpoint each second and without; each changes about -change of the state), "+costAll+" (the same, each changes all) and "+backpressure+" (unaligned checkpoints)")
	f.Float64Var(&o.change, "change", 0.01, "part of the keys that are updated between two checkpoints")
	f.IntVar(&o.count, "checkpoints", 6, "how many to measure of each size")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "between two checkpoints")
	f.BoolVar(&o.local, "local", false, "write to a local folder, not to HDFS")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.cases = strings.Split(*cases, ",")
	for _, c := range o.cases {
		if _, err := rows.Keys(c); err != nil && !isCost(c) && c != backpressure {
			return o, fmt.Errorf("-cases %s: want sizes of at least %d bytes, %s, %s or %s", c, rows.Bytes, cost, costAll, backpressure)
		}
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.change <= 0 || o.change > 1 || o.count < 1 || o.interval < 100*time.Millisecond:
		return o, errors.New("-change must be above 0 and at most 1, -checkpoints positive, -interval at least 100ms")
	}
	return o, nil
}

// bench is one run of the command.
type bench struct {
	options
	root, dir string
	flink     *flink.Home
	cluster   *rig.Cluster // nil with -local
	out       io.Writer
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	b := &bench{options: o, out: progress}
	if b.root, err = machine.Checkout(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "thalweg-checkpoint-"); err != nil {
		return err
	}
	defer func() {
		if !o.Keep {
			err = errors.Join(err, os.RemoveAll(b.dir))
		}
	}()
	if o.Only != rowjob.Thalweg {
		if b.flink, err = flink.Install(ctx, b.root, progress); err != nil {
			return err
		}
	}
	if !o.local {
		if b.cluster, err = rig.Start(ctx, rig.Options{Progress: progress}); err != nil {
			return err
		}
		if b.flink != nil {
			b.flink.Hadoop = b.cluster.HadoopJars
		}
	}
	rep := &report{Date: time.Now().Format("2006-01-02 15:04"), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(), Change: o.change, Interval: o.interval.Seconds()}
	var failed error
	for _, c := range o.cases {
		for _, side := range o.Sides() {
			r, err := b.measure(ctx, c, side)
			if err != nil {
				r.Error = err.Error()
				failed = errors.Join(failed, fmt.Errorf("%s, %s: %w", c, side, err))
			}
			rep.Runs = append(rep.Runs, r)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return errors.Join(command.Write(out, o.Output, rep, rep.text), failed)
}

// spec is a run's; remove takes its checkpoints away again.
func (b *bench) spec(c, side string, keys int64) (s *rowjob.Spec, remove func() error, err error) {
	s = &rowjob.Spec{Side: side, Root: b.root, Dir: filepath.Join(b.dir, c+"-"+side), Flink: b.flink, Keys: keys, Interval: b.interval, Memory: 2 << 30, Free: true, Ours: b.Ours, Log: b.out}
	if b.cluster == nil {
		return s, func() error { return nil }, nil
	}
	name := "/bench/" + filepath.Base(s.Dir)
	s.Checkpoints = b.cluster.DefaultFS + name
	if err := b.hdfs("-mkdir", "-p", name); err != nil {
		return nil, nil, err
	}
	if err := b.hdfs("-chmod", "777", name); err != nil { // the engines are other users
		return nil, nil, err
	}
	return s, func() error { return b.hdfs("-rm", "-r", "-f", "-skipTrash", name) }, nil
}

// hdfs calls Hadoop's own client.
func (b *bench) hdfs(args ...string) error {
	out, err := exec.Command(filepath.Join(b.cluster.BinDir, "hdfs"), append([]string{"dfs"}, args...)...).CombinedOutput() //nolint:noctx // seconds, and at the end of a run whatever ended it
	if err != nil {
		return fmt.Errorf("hdfs dfs %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
