// thalweg-check writes deterministic input for the order-totals pipeline, watches and collects what the job wrote, and judges it. See
// package eos for the checks. Exit codes: 0 all checks hold, 1 a check failed, 2 the checker could not do its work.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/thalweg/thalweg/test/eos"
)

var errFailed = errors.New("a check failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root(os.Stdout).ExecuteContext(ctx); err != nil {
		stop()
		if errors.Is(err, errFailed) {
			os.Exit(1) //nolint:gocritic // stop was called
		}
		fmt.Fprintln(os.Stderr, "thalweg-check:", err)
		os.Exit(2)
	}
}

type flags struct {
	brokers, in, out, dead, history, prefix, group, format, console string
	spec                                                            eos.Spec
	from, to                                                        int64
	rate                                                            float64
	sentinels, create                                               bool
	outPartitions, parallelism, pool                                int
	wait                                                            time.Duration
}

func root(out io.Writer) *cobra.Command {
	f := &flags{spec: eos.DefaultSpec(1, 200_000)}
	cmd := &cobra.Command{Use: "thalweg-check", Short: "write input, collect output, judge exactly-once", SilenceUsage: true, SilenceErrors: true}
	pf := cmd.PersistentFlags()
	pf.StringVar(&f.brokers, "brokers", os.Getenv("THALWEG_KAFKA"), "bootstrap servers, comma separated")
	pf.StringVar(&f.in, "in", "orders", "input topic")
	pf.StringVar(&f.out, "out", "order-totals", "output topic")
	pf.StringVar(&f.history, "history", "history.jsonl", "history file (appended to by watch and collect)")
	pf.StringVarP(&f.format, "output", "o", "text", "text or json")
	pf.Uint64Var(&f.spec.Seed, "seed", f.spec.Seed, "seed of the input")
	pf.Int64Var(&f.spec.Records, "records", f.spec.Records, "records of the input")
	pf.IntVar(&f.spec.Partitions, "partitions", f.spec.Partitions, "partitions of the input")
	pf.IntVar(&f.spec.Customers, "customers", f.spec.Customers, "customers")
	pf.DurationVar(&f.spec.Step, "step", f.spec.Step, "event time between records")
	pf.DurationVar(&f.spec.OutOfOrder, "out-of-orderness", f.spec.OutOfOrder, "largest disorder of event times")
	pf.DurationVar(&f.spec.Window, "window", f.spec.Window, "window size")
	pf.Int64Var(&f.spec.MalformedEvery, "malformed-every", 0, "make each k-th record one that is no JSON")

	gen := &cobra.Command{Use: "generate", Short: "write the input", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return f.generate(cmd.Context(), out) }}
	gen.Flags().Int64Var(&f.from, "from", 0, "first record")
	gen.Flags().Int64Var(&f.to, "to", -1, "record to stop before; -1: all")
	gen.Flags().Float64Var(&f.rate, "rate", 0, "records per second; 0: as fast as it goes")
	gen.Flags().BoolVar(&f.sentinels, "sentinels", true, "close all windows with a late record per partition at the end")
	gen.Flags().BoolVar(&f.create, "create", true, "create the topics when they do not exist")
	gen.Flags().IntVar(&f.outPartitions, "out-partitions", 4, "partitions of the output topic when it is created")

	watch := &cobra.Command{Use: "watch", Short: "read the output with read_committed while the job runs, until interrupted", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return f.watch(cmd.Context(), out) }}
	watch.Flags().StringVar(&f.group, "group", "", "consumer group whose offsets are sampled")
	watch.Flags().DurationVar(&f.wait, "for", 0, "stop after this time; 0: when interrupted")

	collect := &cobra.Command{Use: "collect", Short: "read what the run left behind into the history, and judge it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return f.collect(cmd.Context(), out) }}
	collect.Flags().StringVar(&f.prefix, "txn-prefix", "", "prefix of the transactional ids")
	collect.Flags().IntVar(&f.parallelism, "parallelism", 0, "largest parallelism of the sink in the run")
	collect.Flags().IntVar(&f.pool, "pool", 3, "transactional ids per subtask")
	collect.Flags().StringVar(&f.dead, "dead-letter", "", "topic of dead letters")
	collect.Flags().StringVar(&f.group, "group", "", "consumer group of the source")
	collect.Flags().StringVar(&f.console, "console", "", "file with the output of Kafka's console consumer, to judge in place of an own reader's")

	judge := &cobra.Command{Use: "judge FILE...", Short: "judge histories", Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		h, err := eos.ReadHistoryFiles(args...)
		if err != nil {
			return err
		}
		return f.report(out, eos.Judge(h))
	}}
	self := &cobra.Command{Use: "self-test FILE...", Short: "spoil a good history in each known way and check that it is caught", Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, args []string) error { return f.selfTest(out, args) }}
	cmd.AddCommand(gen, watch, collect, judge, self)
	return cmd
}

func (f *flags) cluster() (eos.Cluster, error) {
	if f.brokers == "" {
		return eos.Cluster{}, errors.New("no brokers: set --brokers or THALWEG_KAFKA")
	}
	return eos.Cluster{Brokers: strings.Split(f.brokers, ",")}, nil
}

func (f *flags) generate(ctx context.Context, out io.Writer) error {
	c, err := f.cluster()
	if err != nil {
		return err
	}
	if err := f.spec.Validate(); err != nil {
		return err
	}
	if f.create {
		if err := c.CreateTopics(ctx, f.spec.Partitions, f.in); err != nil {
			return err
		}
		if err := c.CreateTopics(ctx, f.outPartitions, f.out); err != nil {
			return err
		}
	}
	to := f.to
	if to < 0 {
		to = f.spec.Records
	}
	if err := c.Write(ctx, f.in, f.spec, f.from, to, f.rate); err != nil {
		return err
	}
	if f.sentinels && to == f.spec.Records {
		if err := c.WriteSentinels(ctx, f.in, f.spec); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "wrote records %d to %d of seed %d to %s\n", f.from, to-1, f.spec.Seed, f.in)
	return err
}

func (f *flags) watch(ctx context.Context, out io.Writer) error {
	c, err := f.cluster()
	if err != nil {
		return err
	}
	w, err := c.Watch(context.WithoutCancel(ctx), f.out, f.in, f.group)
	if err != nil {
		return err
	}
	if f.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	<-ctx.Done()
	evs, err := w.Stop()
	h := &eos.History{Events: evs}
	if err := errors.Join(err, h.AppendFile(f.history)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "saw %d records of %s\n", len(h.Of(eos.KindLive)), f.out)
	return err
}

func (f *flags) collect(ctx context.Context, out io.Writer) error {
	c, err := f.cluster()
	if err != nil {
		return err
	}
	o := eos.CollectOptions{Spec: f.spec, Input: f.in, Output: f.out, DeadLetter: f.dead, Prefix: f.prefix, Parallelism: f.parallelism, Pool: f.pool, Group: f.group}
	if f.console != "" {
		file, err := os.Open(f.console)
		if err != nil {
			return err
		}
		defer file.Close()
		o.Console = file
	}
	h, err := c.Collect(ctx, o)
	if err != nil {
		return err
	}
	all := &eos.History{}
	if _, err := os.Stat(f.history); err == nil { // what watch put there
		if all, err = eos.ReadHistoryFiles(f.history); err != nil {
			return err
		}
	}
	if err := h.AppendFile(f.history); err != nil {
		return err
	}
	all.Add(h.Events...)
	return f.report(out, eos.Judge(all))
}

func (f *flags) report(out io.Writer, v *eos.Verdict) error {
	if f.format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			return err
		}
	} else if err := v.Text(out); err != nil {
		return err
	}
	if !v.OK {
		return errFailed
	}
	return nil
}

func (f *flags) selfTest(out io.Writer, files []string) error {
	h, err := eos.ReadHistoryFiles(files...)
	if err != nil {
		return err
	}
	if v := eos.Judge(h); !v.OK {
		return errors.Join(f.report(out, v), errors.New("the history to spoil is not a good one"))
	}
	missed := 0
	for _, m := range eos.Mutants() {
		tried, caught := 0, 0
		for seed := range uint64(10) {
			bad := m.Apply(h, rand.New(rand.NewPCG(seed, f.spec.Seed)))
			if bad == nil {
				continue
			}
			tried++
			if !eos.Judge(bad).OK {
				caught++
			}
		}
		missed += tried - caught
		if _, err := fmt.Fprintf(out, "%-36s caught %d of %d\n", m.Name, caught, tried); err != nil {
			return err
		}
	}
	if missed > 0 {
		return errFailed
	}
	return nil
}
