// Command bench measures the throughput of Thalweg side by side with Apache Flink: see bench/README.md.
//
//	bench [-suite throughput|nexmark|memory] [-cases generator,chain,...] [-pairs 3] [-scale 1] [-resume FILE] [-o text|json] [-save]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/bench/internal/command"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

type options struct {
	suite   string
	cases   []testCase
	resume  string
	pairs   int
	scale   float64
	output  string
	save    bool
	repeats int
	keep    bool
	only    string
	match   bool
}

func main() { command.Main("bench", run) }

func parse(args []string, errw io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errw)
	f.StringVar(&o.suite, "suite", "throughput", "throughput, nexmark or memory")
	list := f.String("cases", "", "cases to run, comma separated, with * and ? in their names; default: the suite's headline cases")
	f.StringVar(&o.resume, "resume", "", "file that each case's result is added to; cases that it has already are not run again")
	f.IntVar(&o.pairs, "pairs", 3, "pairs of runs of each case")
	f.Float64Var(&o.scale, "scale", 1, "factor on the numbers of events")
	command.Output(f, &o.output)
	command.Saving(f, &o.save)
	f.IntVar(&o.repeats, "repeats", 2, "how many pairs of a case may be run again because something else used the machine")
	f.BoolVar(&o.keep, "keep", false, "keep the scratch folder (configurations, logs)")
	command.Choice(f, &o.only, "only", "run one engine only (thalweg or flink), without ratios", thalweg, peer)
	f.BoolVar(&o.match, "match", false, "memory: do not look for what ours needs for its own throughput, only for Flink's")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.cases, err = choose(o.suite, *list); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.match && (o.suite != "memory" || o.only != ""):
		return o, errors.New("-match is for -suite memory, with both engines")
	case o.pairs < 1 || o.scale <= 0:
		return o, errors.New("-pairs and -scale must be positive")
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
	if o.suite == "memory" {
		return b.memory(ctx, out)
	}
	rep := newReport(ctx, b)
	done, err := loadResults(o.resume)
	if err != nil {
		return err
	}
	for _, c := range o.cases {
		if res, ok := done[c.name]; ok {
			rep.add(res, c.group, nil)
			continue
		}
		res, err := b.measure(ctx, c)
		rep.add(res, c.group, err)
		if err == nil {
			err = saveResult(o.resume, res)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			b.logf("%s: %v", c.name, err)
		}
	}
	rep.Took = time.Since(b.begin).Round(time.Second).String()
	err = command.Write(out, o.output, rep, rep.text)
	if err == nil && o.save {
		err = command.Save(b.root, rep.Suite, rep.Date, rep.markdown(), progress)
	}
	return errors.Join(err, rep.failed()) // the report has the causes
}

// choose finds the cases of a suite by name.
func choose(suite, list string) ([]testCase, error) {
	var all []testCase
	switch suite {
	case "throughput":
		all = throughputCases()
		if list == "" {
			return all, nil
		}
	case "nexmark":
		all = nexmarkCases()
		if list == "" {
			return headline(all), nil
		}
	case "memory":
		all = memoryCases()
		if list == "" {
			return all, nil
		}
	default:
		return nil, fmt.Errorf("-suite %s: want throughput, nexmark or memory", suite)
	}
	var chosen []testCase
	for p := range strings.SplitSeq(list, ",") {
		n := len(chosen)
		for _, c := range all {
			ok, err := path.Match(p, c.name)
			if err != nil {
				return nil, fmt.Errorf("-cases %s: %w", p, err)
			}
			if ok && !slices.ContainsFunc(chosen, func(o testCase) bool { return o.name == c.name }) {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == n {
			var names []string
			for _, c := range all {
				names = append(names, c.name)
			}
			const some = 12
			if len(names) > some {
				names = append(names[:some], fmt.Sprintf("and %d more", len(names)-some))
			}
			return nil, fmt.Errorf("no case %q that is not chosen already: there are %s", p, strings.Join(names, " "))
		}
	}
	return chosen, nil
}

// loadResults reads the results of an earlier run, one a line.
func loadResults(file string) (map[string]result, error) {
	done := map[string]result{}
	if file == "" {
		return done, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("-resume %s: %w", file, err)
		}
		done[r.Name] = r
	}
	return done, nil
}

// saveResult adds a result.
func saveResult(file string, r result) error {
	if file == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// bench is one run of the command.
type bench struct {
	options
	root     string // the checkout
	dir      string // scratch
	data     string // files that are kept
	bin      string // the product's programs
	programs map[string]string
	flink    *flink.Home
	out      io.Writer
	begin    time.Time
	tallies  map[string]tally.Tally
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
