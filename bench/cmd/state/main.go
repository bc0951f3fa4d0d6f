// Command state measures a job whose state is larger than its container's memory, in a control group of that size: see bench/README.md.
//
//	state [-only thalweg|flink] [-state 5gb] [-memory 1gb] [-update 60s] [-interval 10s] [-o text|json]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/config"
)

type options struct {
	rowjob.Flags
	keys     int64
	memory   config.Bytes // of the TaskManager's container
	update   time.Duration
	interval time.Duration
	scratch  string
}

func main() { command.Main("state", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("state", flag.ContinueOnError)
	f.SetOutput(errw)
	o.Add(f, nil)
	size := f.String("state", "5gb", "size of the state: keys of "+fmt.Sprint(rows.Bytes)+" bytes each")
	memory := f.String("memory", "1gb", "taskmanager.memory.process.size and the limit of its control group")
	f.DurationVar(&o.update, "update", time.Minute, "how long rows are updated before the TaskManager is killed, and again after")
	f.DurationVar(&o.interval, "interval", 10*time.Second, "between two checkpoints")
	f.StringVar(&o.scratch, "dir", "", "folder for a scratch folder; default: the system's")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.keys, err = rows.Keys(*size); err != nil {
		return o, fmt.Errorf("-state: %w", err)
	}
	if o.memory, err = config.ParseBytes(*memory); err != nil {
		return o, fmt.Errorf("-memory: %w", err)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.update <= 0 || o.interval <= 0:
		return o, errors.New("-update and -interval must be positive")
	}
	return o, nil
}

// bench is one run of the command.
type bench struct {
	options
	root, dir string // the checkout; scratch
	flink     *flink.Home
	out       io.Writer
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
	if b.root, err = machine.Checkout(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp(o.scratch, "thalweg-state-"); err != nil {
		return err
	}
	defer func() {
		if o.Keep {
			b.logf("scratch folder: %s", b.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	if o.Only != rowjob.Thalweg {
		if b.flink, err = flink.Install(ctx, b.root, progress); err != nil {
			return err
		}
	}
	rep := &report{Date: time.Now().Format("2006-01-02 15:04"), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(),
		Keys: o.keys, Bytes: o.keys * rows.Bytes, Memory: int64(o.memory), Interval: o.interval.Seconds()}
	var failed error
	for _, side := range o.Sides() {
		r, err := b.measure(ctx, side)
		if err != nil {
			r.Error = err.Error()
			failed = errors.Join(failed, fmt.Errorf("%s: %w", side, err))
		}
		rep.Runs = append(rep.Runs, r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	err = command.Write(out, o.Output, rep, rep.text)
	return errors.Join(err, failed)
}
