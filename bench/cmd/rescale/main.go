// Command rescale measures how long a job's output stops while its parallelism changes, of both engines in turn: see bench/README.md.
//
//	rescale [-only thalweg|flink] [-cases 1mb,100mb] [-rounds 3] [-interval 5s] [-o text|json]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/rowjob"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/bench/internal/stats"
)

type options struct {
	rowjob.Flags
	cases    []string
	rounds   int
	interval time.Duration
}

func main() { command.Main("rescale", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("rescale", flag.ContinueOnError)
	f.SetOutput(errw)
	o.Add(f, nil)
	cases := f.String("cases", "1mb,100mb", "sizes of the state")
	f.IntVar(&o.rounds, "rounds", 3, "how often the parallelism goes from 2 to 4 and back")
	f.DurationVar(&o.interval, "interval", 5*time.Second, "between two checkpoints")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.cases = strings.Split(*cases, ",")
	for _, c := range o.cases {
		if _, err := rows.Keys(c); err != nil {
			return o, fmt.Errorf("-cases %s: want sizes of at least %d bytes", c, rows.Bytes)
		}
	}
	if f.NArg() > 0 || o.rounds < 1 || o.interval < 100*time.Millisecond {
		return o, errors.New("-rounds must be positive, -interval at least 100ms, and there are no other arguments")
	}
	return o, nil
}

// result is what one engine did in one case.
type result struct {
	Case   string            `json:"case"`
	Engine string            `json:"engine"`
	Rounds []rowjob.Rescaled `json:"rounds"`
	Error  string            `json:"error,omitempty"`
}

// report is what the command prints.
type report struct {
	Date     string   `json:"date"`
	Commit   string   `json:"commit"`
	Machine  string   `json:"machine"`
	Interval float64  `json:"interval_s"`
	Runs     []result `json:"runs"`
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	root, err := machine.Checkout()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "thalweg-rescale-")
	if err != nil {
		return err
	}
	defer func() {
		if !o.Keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	var peer *flink.Home
	if o.Only != rowjob.Thalweg {
		if peer, err = flink.Install(ctx, root, progress); err != nil {
			return err
		}
	}
	rep := &report{Date: time.Now().Format("2006-01-02 15:04"), Commit: machine.Commit(ctx, root), Machine: machine.Describe(), Interval: o.interval.Seconds()}
	var failed error
	for _, c := range o.cases {
		for _, side := range o.Sides() {
			keys, err := rows.Keys(c)
			if err != nil {
				return err
			}
			r := result{Case: c, Engine: side}
			s := &rowjob.Spec{Side: side, Root: root, Dir: filepath.Join(dir, c+"-"+side), Flink: peer, Keys: keys, Rate: 10_000, Interval: o.interval, Parallelism: 2, Slots: 4,
				Memory: 2 << 30, Free: true, Ours: o.Ours, Theirs: map[string]string{"jobmanager.scheduler": "adaptive"}, Log: progress}
			if err := o.measure(ctx, s, &r); err != nil {
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

// measure changes the parallelism of a job whose keys have all come, again and again, and compares its results in the end.
func (o *options) measure(ctx context.Context, s *rowjob.Spec, r *result) error {
	return rowjob.Run(ctx, s, func(w *rowjob.Watcher) error {
		if _, err := w.Span(ctx, "fill", func(n int64, _ time.Duration) bool { return n >= s.Keys*2/5 }); err != nil { // of one of two sinks
			return err
		}
		settled := func(int64, time.Duration) bool { return w.Completed() >= 2 }
		for range o.rounds {
			for _, to := range []int{4, 2} {
				if _, err := w.Span(ctx, fmt.Sprintf("before %d, round %d", to, len(r.Rounds)/2+1), settled); err != nil {
					return err
				}
				x, err := w.Rescale(ctx, to)
				if err != nil {
					return err
				}
				r.Rounds = append(r.Rounds, x)
			}
		}
		return nil
	})
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Changes of the parallelism while 10,000 updates a second come, checkpoints each %gs; %s, commit %s, %s\nmedian (range), seconds\n\n", r.Interval, r.Date, r.Commit, r.Machine)
	t := stats.Table{Head: []string{"state", "engine", "change", "longest time without a result", "from the request until all run"}}
	for _, x := range r.Runs {
		for _, from := range []int{2, 4} {
			var gap, running []float64
			to := 0
			for _, y := range x.Rounds {
				if y.From == from {
					gap, running, to = append(gap, y.Gap), append(running, y.Running), y.To
				}
			}
			if to > 0 {
				t.Add(x.Case, x.Engine, fmt.Sprintf("%d -> %d", from, to), stats.Of(gap...).Text(2), stats.Of(running...).Text(2))
			}
		}
	}
	b.WriteString(t.Text())
	for _, x := range r.Runs {
		if x.Error != "" {
			fmt.Fprintf(&b, "%s, %s FAILED: %s\n", x.Case, x.Engine, x.Error)
		}
	}
	return b.String()
}
