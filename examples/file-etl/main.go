// Command file-etl reads files of comma-separated lines, cleans them, adds them up and writes files of JSON: a bounded job from files to files,
// run in BATCH.
//
//	thalweg run -t local bin/examples/file-etl -in /data/sales -out /data/totals
//	thalweg run -t yarn-application -p 3 bin/examples/file-etl -in hdfs:///sales -out hdfs:///totals
package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/stream"
)

// Sale is a line of the input: day,shop,cents. More than mostCents is a mistake in the input, and rejected: so totals
// do not overflow before there are 92 million of the largest sales.
type Sale struct {
	Day   string
	Shop  string
	Cents int64
}

// Total is a line of the output.
type Total struct {
	Day   string `json:"day"`
	Shop  string `json:"shop"`
	Sales int64  `json:"sales"`
	Cents int64  `json:"cents"`
}

// key is what totals are of.
type key struct{ Day, Shop string }

// sum is what is kept of a day's sales.
type sum struct{ Sales, Cents int64 }

type summing struct{}

func (summing) Create() sum        { return sum{} }
func (summing) Result(s sum) sum   { return s }
func (summing) Merge(a, b sum) sum { return sum{a.Sales + b.Sales, a.Cents + b.Cents} }
func (summing) Add(s *sum, v Sale) { *s = sum{s.Sales + 1, s.Cents + v.Cents} }

const mostCents = 100_000_000_000

// rejected are the lines that are no sales.
var rejected = stream.NewOutputTag[string]("rejected")

// clean parses lines.
type clean struct{ stream.Plain }

func (clean) ProcessElement(ctx *stream.ProcessContext, line string, out *stream.Collector[Sale]) error {
	f := strings.Split(line, ",")
	if len(f) == 3 {
		_, bad := time.Parse(time.DateOnly, f[0])
		cents, err := strconv.ParseInt(strings.TrimSpace(f[2]), 10, 64)
		if bad == nil && err == nil && cents >= 0 && cents <= mostCents && utf8.ValidString(f[1]) {
			out.Collect(Sale{f[0], strings.ToLower(strings.TrimSpace(f[1])), cents})
			return nil
		}
	}
	ctx.Output(rejected, line)
	return nil
}

// totals is the pipeline: what comes out at the end of the input is one total per day and shop.
func totals(lines stream.DataStream[string]) (out stream.SingleOutputStreamOperator[Total], bad stream.DataStream[string]) {
	sales := lines.Process(func() stream.ProcessFunction[string, Sale] { return clean{} }).Name("clean").UID("clean")
	out = sales.KeyBy(func(s Sale) key { return key{s.Day, s.Shop} }).
		Window(stream.GlobalWindows()).Trigger(stream.EventTimeTrigger[Sale]()). // which is over when the input is
		Aggregate(summing{}, func(k key, _ stream.TimeWindow, s sum) Total { return Total{k.Day, k.Shop, s.Sales, s.Cents} }).
		Name("totals").UID("totals")
	return out, sales.GetSideOutput(rejected)
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("file-etl", flag.ContinueOnError)
	in := f.String("in", "", "folder or file to read, such as /data/sales or hdfs:///sales")
	to := f.String("out", "", "folder to write to")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	if *in == "" || *to == "" {
		return errors.New("-in and -out are required")
	}
	// All input is there, so the job runs stage by stage: sales are cleaned and written to local disks by key, then sorted and added up one
	// key at a time. There are no checkpoints: a stage that fails runs again, and parts appear in the folder when their stage is complete.
	// With -Dexecution.runtime-mode=STREAMING (and execution.checkpointing.interval) the same program has the same results.
	env.SetRuntimeMode(stream.Batch)
	lines := env.FromSource(file.Source(serde.String(), file.Paths(*in)), stream.NoWatermarks[string](), "lines").UID("lines")
	out, bad := totals(lines.DataStream)
	out.SinkTo(file.Sink(serde.JSON[Total](), file.Directory(*to), file.Suffix(".json"))).Name("out").UID("out").SetParallelism(1)
	bad.SinkTo(file.Sink(serde.String(), file.Directory(fmt.Sprintf("%s/rejected", *to)))).Name("rejected").UID("rejected").SetParallelism(1)
	return nil
}

func main() { stream.Main("file-etl", build) }
