// Command state is the job of the case whose state is larger than memory: a row per key, first each once, then at random, until the file
// that --stop names exists. thalweg.bench.State does the same.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/thalweg/thalweg/bench/internal/profile"
	"github.com/thalweg/thalweg/bench/internal/rows"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/hybrid"
	"github.com/thalweg/thalweg/stream"
)

// until ends a source when a file exists.
type until struct {
	connector.Source[rows.Event]
	file string
	slow bool
}

func (u until) Reader(ctx connector.ReaderContext) (connector.Reader[rows.Event], error) {
	r, err := u.Source.Reader(ctx)
	if err != nil {
		return r, err
	}
	return &untilReader{Reader: r, file: u.file, slow: u.slow}, nil
}

type untilReader struct {
	connector.Reader[rows.Event]
	file  string
	slow  bool // each poll may be the last for long
	polls int
}

// pollsPerLook is how many polls go between two looks for the file.
const pollsPerLook = 16

func (r *untilReader) Poll(out connector.Output[rows.Event], limit int) (connector.Status, error) {
	if r.polls++; r.slow || r.polls%pollsPerLook == 0 {
		if _, err := os.Stat(r.file); err == nil {
			return connector.EndOfInput, nil
		}
	}
	return r.Reader.Poll(out, limit)
}

// keep updates the rows. What a key has after its first event takes delay each, until the file stop exists.
type keep struct {
	stream.NoTimers[int64, rows.Result]
	row   stream.ValueState[rows.Row]
	delay time.Duration
	stop  string
}

func (f *keep) Open(rt *stream.RuntimeContext[int64]) (err error) {
	f.row, err = rt.ValueState[rows.Row]("row")
	return err
}

func (f *keep) ProcessElement(ctx *stream.KeyedContext[int64], _ rows.Event, out *stream.Collector[rows.Result]) error {
	r, again, err := f.row.Value()
	if err != nil {
		return err
	}
	if again && f.delay > 0 {
		f.hold()
	}
	res := r.Update(ctx.Key())
	if err := f.row.Update(r); err != nil {
		return err
	}
	out.Collect(res)
	return nil
}

// hold takes the time that a slow function would.
func (f *keep) hold() {
	if _, err := os.Stat(f.stop); err == nil {
		f.delay = 0
		return
	}
	time.Sleep(f.delay)
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("state", flag.ContinueOnError)
	keys := f.Int64("keys", 1_000_000, "number of keys")
	hot := f.Int64("hot", 0, "keys that get the events once each key was there, others after a while; 0: all")
	rate := f.Int64("rate", 0, "events a second once each key was there; 0: no limit")
	stop := f.String("stop", "", "file that ends the input")
	delay := f.Int64("delay", 0, "ms that each event takes once its key was there, until the input ends")
	result := f.String("result", "", "folder for the sink's count and checksum, and for its progress")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	if *keys < 1 || *keys > rows.MaxKeys {
		return fmt.Errorf("--keys %d: want 1 to %d", *keys, int64(rows.MaxKeys))
	}
	if *hot < 0 || *hot > *keys {
		return fmt.Errorf("--hot %d: want 0 to %d", *hot, *keys)
	}
	n := *keys
	var src connector.Source[rows.Event] = until{datagen.Fill(func(i int64, e *rows.Event) { e.Key = rows.Key(i, n, *hot) }, datagen.Count(math.MaxInt64/2)), *stop, false}
	if *rate > 0 {
		src = hybrid.Source(datagen.Fill(func(i int64, e *rows.Event) { e.Key = rows.Key(i, n, *hot) }, datagen.Count(n))).
			Then(until{datagen.Fill(func(i int64, e *rows.Event) { e.Key = rows.Key(n+i, n, *hot) }, datagen.Count(math.MaxInt64/2), datagen.RatePerSecond(float64(*rate))), *stop, true})
	}
	env.FromSource(src, stream.NoWatermarks[rows.Event](), "events").UID("events").SetParallelism(1).
		KeyBy(func(e rows.Event) int64 { return e.Key }).
		Process(func() stream.KeyedProcessFunction[int64, rows.Event, rows.Result] {
			return &keep{delay: time.Duration(*delay) * time.Millisecond, stop: *stop}
		}).UID("rows").
		SinkTo(tally.Sink[rows.Result]{Dir: *result, Sum: (*rows.Result).Sum, Progress: true}).UID("out")
	return nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-h" {
		fmt.Fprintln(os.Stderr, "state --keys N --hot N --rate N --delay MS --stop FILE --result DIR")
		os.Exit(0)
	}
	if err := profile.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "state:", err)
		os.Exit(2)
	}
	stream.Main("state", build)
}
