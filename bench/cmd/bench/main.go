// Command bench measures the throughput of Thalweg side by side with Apache Flink: see bench/README.md.
//
//	bench [-cases generator,chain,window-hashmap,window-disk,kafka] [-pairs 3] [-scale 1] [-o text|json] [-save]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/gen"
)

type options struct {
	cases   []string
	pairs   int
	scale   float64
	output  string
	save    bool
	repeats int
	keep    bool
	only    string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errw)
	names := strings.Join(caseNames(), ",")
	list := f.String("cases", names, "cases to run, comma separated")
	f.IntVar(&o.pairs, "pairs", 3, "pairs of runs of each case")
	f.Float64Var(&o.scale, "scale", 1, "factor on the numbers of events")
	f.StringVar(&o.output, "o", "text", "text or json")
	f.BoolVar(&o.save, "save", false, "write a dated Markdown file to bench/results")
	f.IntVar(&o.repeats, "repeats", 2, "how many pairs of a case may be run again because something else used the machine")
	f.BoolVar(&o.keep, "keep", false, "keep the scratch folder (configurations, logs)")
	f.StringVar(&o.only, "only", "", "run one engine only (thalweg or flink), without ratios")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.cases = strings.Split(*list, ",")
	for _, c := range o.cases {
		if !slices.Contains(caseNames(), c) {
			return o, fmt.Errorf("no case %q: want some of %s", c, names)
		}
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.pairs < 1 || o.scale <= 0:
		return o, errors.New("-pairs and -scale must be positive")
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("-o %s: want text or json", o.output)
	case o.only != "" && o.only != thalweg && o.only != peer:
		return o, fmt.Errorf("-only %s: want %s or %s", o.only, thalweg, peer)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	b, err := prepare(ctx, o, progress)
	if err != nil {
		return err
	}
	defer b.close()
	rep := newReport(ctx, b)
	for _, c := range cases() {
		if !slices.Contains(o.cases, c.name) {
			continue
		}
		res, err := b.measure(ctx, c)
		rep.add(res, err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			b.logf("%s: %v", c.name, err)
		}
	}
	rep.Took = time.Since(b.begin).Round(time.Second).String()
	if o.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(rep)
	} else {
		_, err = io.WriteString(out, rep.text())
	}
	if err == nil && o.save {
		err = rep.save(filepath.Join(b.root, "bench", "results"), progress)
	}
	return errors.Join(err, rep.failed()) // the report has the causes
}

// bench is one run of the command.
type bench struct {
	options
	root    string // the checkout
	dir     string // scratch
	bin     string // the product's programs
	pipe    string // the job of the local cases
	flink   *flink.Home
	out     io.Writer
	begin   time.Time
	tallies map[string]gen.Tally
}

func (b *bench) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...)) // only shows
}

// close removes what the run has left; the errors change nothing about its figures.
func (b *bench) close() {
	if b.keep {
		b.logf("scratch folder: %s", b.dir)
		return
	}
	if err := os.RemoveAll(b.dir); err != nil {
		b.logf("%v", err)
	}
}
