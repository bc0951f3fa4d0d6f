// Command nexmark is the job of the Nexmark cases: one query over generated or replayed events. The jobs of bench/flink
// (thalweg.bench.nexmark) ask the same of the same events.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/nexmark/query"
	"github.com/thalweg/thalweg/bench/internal/profile"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/stream"
)

// counted is the source; at the end of its input it writes how many allocations the process has made since the first event.
type counted struct {
	nexmark.Source
	path string
}

func (s counted) Reader(ctx connector.ReaderContext) (connector.Reader[nexmark.Event], error) {
	r, err := s.Source.Reader(ctx)
	if err != nil || s.path == "" {
		return r, err
	}
	return &countedReader{Reader: r, path: fmt.Sprintf("%s/allocs-%d", s.path, ctx.Subtask)}, nil
}

type countedReader struct {
	connector.Reader[nexmark.Event]
	path   string
	begun  bool
	before runtime.MemStats
}

func (r *countedReader) Poll(out connector.Output[nexmark.Event], limit int) (connector.Status, error) {
	if !r.begun {
		r.begun = true
		runtime.ReadMemStats(&r.before)
	}
	st, err := r.Reader.Poll(out, limit)
	if err != nil || st != connector.EndOfInput {
		return st, err
	}
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	text := fmt.Appendf(nil, "%d %d %d\n", after.Mallocs-r.before.Mallocs, after.TotalAlloc-r.before.TotalAlloc, after.NumGC-r.before.NumGC)
	return st, os.WriteFile(r.path, text, 0o644)
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("nexmark", flag.ContinueOnError)
	name := f.String("query", "q0", "the query")
	events := f.Int64("events", 10_000_000, "number of events")
	rate := f.Int64("rate", 100_000, "events per second of event time")
	file := f.String("file", "", "file to replay; none to generate the events")
	result := f.String("result", "", "folder that each sink's count and checksum is written to")
	allocs := f.String("allocs", "", "folder for the number of allocations, bytes and collections of each source subtask's life")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	return query.Build(env, *name, counted{nexmark.Source{Events: *events, Rate: *rate, File: *file}, *allocs}, *result)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-h" {
		fmt.Fprintln(os.Stderr, "nexmark --query Q --events N --rate R --file FILE --result DIR --allocs DIR; queries:", nexmark.Names())
		os.Exit(0)
	}
	if err := profile.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "nexmark:", err)
		os.Exit(2)
	}
	stream.Main("nexmark", build)
}
