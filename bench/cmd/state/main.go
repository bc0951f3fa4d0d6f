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
	"maps"
	"os"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/config"
)

const (
	thalweg = rowjob.Thalweg
	peer    = rowjob.Peer
)

type options struct {
	only     string
	keys     int64
	memory   config.Bytes // of the TaskManager's container
	update   time.Duration
	interval time.Duration
	output   string
	scratch  string
	keep     bool
	extra    config.Configuration // ours
}

func main() { command.Main("state", run) }

func parse(args []string, errw io.Writer) (options, error) {
	o := options{extra: config.Configuration{}}
	f := flag.NewFlagSet("state", flag.ContinueOnError)
	f.SetOutput(errw)
	command.Choice(f, &o.only, "only", "run one engine only (thalweg or flink)", thalweg, peer)
	size := f.String("state", "5gb", "size of the state: keys of "+fmt.Sprint(rows.Bytes)+" bytes each")
	memory := f.String("memory", "1gb", "taskmanager.memory.process.size and the limit of its control group")
	f.DurationVar(&o.update, "update", time.Minute, "how long rows are updated before the TaskManager is killed, and again after")
	f.DurationVar(&o.interval, "interval", 10*time.Second, "between two checkpoints")
	command.Output(f, &o.output)
	f.StringVar(&o.scratch, "dir", "", "folder for a scratch folder; default: the system's")
	f.BoolVar(&o.keep, "keep", false, "keep the scratch folder (logs, checkpoints)")
	f.Func("D", "key=value: a setting of ours", func(s string) error {
		c, err := config.ParseDynamic([]string{s})
		maps.Copy(o.extra, c)
		return err
	})
	if err := f.Parse(args); err != nil {
		return o, err
	}
	bytes, err := config.ParseBytes(*size)
	if err != nil {
		return o, fmt.Errorf("-state: %w", err)
	}
	if o.memory, err = config.ParseBytes(*memory); err != nil {
		return o, fmt.Errorf("-memory: %w", err)
	}
	o.keys = int64(bytes) / rows.Bytes
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.keys < 1 || o.keys > rows.MaxKeys:
		return o, fmt.Errorf("-state %s: it must hold 1 to %d keys", *size, int64(rows.MaxKeys))
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
		if o.keep {
			b.logf("scratch folder: %s", b.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	if o.only != thalweg {
		if b.flink, err = flink.Install(ctx, b.root, progress); err != nil {
			return err
		}
	}
	rep := &report{Date: time.Now().Format("2006-01-02 15:04"), Commit: machine.Commit(ctx, b.root), Machine: machine.Describe(),
		Keys: o.keys, Bytes: o.keys * rows.Bytes, Memory: int64(o.memory), Interval: o.interval.Seconds()}
	var failed error
	for _, side := range []string{thalweg, peer} {
		if o.only != "" && o.only != side {
			continue
		}
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
	err = command.Write(out, o.output, rep, rep.text)
	return errors.Join(err, failed)
}
