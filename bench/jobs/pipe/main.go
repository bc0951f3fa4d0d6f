// Command pipe is the job of the throughput cases: a generator, then either map -> filter -> discard, or keyBy -> tumbling count ->
// discard, or nothing but discard (the generator's own cost); and of the start-up case: a slow generator, keyBy, a running sum, and a
// sink that reports the first record. The Flink job in bench/flink does the same with the same events.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/thalweg/thalweg/bench/internal/gen"
	"github.com/thalweg/thalweg/bench/internal/profile"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("pipe", flag.ContinueOnError)
	kind := f.String("case", "chain", "generator, chain, window or start")
	events := f.Int64("events", 10_000_000, "number of events")
	keys := f.Int64("keys", 10_000, "number of keys")
	window := f.Duration("window", 10*time.Second, "window size")
	result := f.String("result", "", "folder that each sink's count and checksum is written to")
	addr := f.String("probe", "", "address that the start case sends its datagram to")
	rate := f.Float64("rate", 100, "events per second of the start case")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	bound := datagen.Count(*events)
	if *kind == "start" {
		bound = datagen.RatePerSecond(*rate)
	}
	src := datagen.Fill(func(n int64, e *gen.Event) { gen.Fill(n, *keys, e) }, bound)
	wm := stream.NoWatermarks[gen.Event]()
	if *kind == "window" {
		wm = stream.MonotonousTimestamps(func(e gen.Event) time.Time { return time.UnixMilli(e.At) })
	}
	in := env.FromSource(src, wm, "events").UID("events")
	switch *kind {
	case "generator":
		in.SinkTo(tally.Sink[gen.Event]{Dir: *result, Sum: (*gen.Event).Sum}).UID("out")
	case "chain":
		in.Update(gen.Map).UID("map").FilterRef(gen.Keep).UID("filter").
			SinkTo(tally.Sink[gen.Event]{Dir: *result, Sum: (*gen.Event).Sum}).UID("out")
	case "window":
		in.KeyBy(func(e gen.Event) int64 { return e.Key }).
			Window(stream.TumblingEventTime(*window)).
			Aggregate(stream.Count[gen.Event](), func(k int64, w stream.TimeWindow, n int64) gen.Count {
				return gen.Count{Key: k, Start: w.Start.UnixMilli(), Count: n}
			}).UID("count").
			SinkTo(tally.Sink[gen.Count]{Dir: *result, Sum: (*gen.Count).Sum}).UID("out")
	case "start":
		in.KeyBy(func(e gen.Event) int64 { return e.Key }).
			Reduce(func(a, b gen.Event) gen.Event { b.Value += a.Value; return b }).UID("sum").
			SinkTo(probe[gen.Event]{*addr}).UID("out")
	default:
		return fmt.Errorf("unknown case %q", *kind)
	}
	return nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-h" {
		fmt.Fprintln(os.Stderr, "pipe --case generator|chain|window|start --events N --keys K --window 10s --result DIR --probe HOST:PORT --rate R")
		os.Exit(0)
	}
	if err := profile.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "pipe:", err)
		os.Exit(2)
	}
	stream.Main("pipe", build)
}
