// Command pipe is the job of the throughput cases: a generator, then either map -> filter -> discard, or keyBy -> tumbling count ->
// discard, or nothing but discard (the generator's own cost). The Flink job in bench/flink does the same with the same events.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/thalweg/thalweg/connector/blackhole"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Event is one generated record, a pure function of its number.
type Event struct {
	ID    int64
	Key   int64
	Value int64
	At    int64 // event time, milliseconds
	Text  string
}

// Count is the result of a window.
type Count struct {
	Key   int64
	Start int64
	Count int64
}

const (
	texts   = 1024
	perMS   = 100 // events per millisecond of event time
	textLen = 64
)

var table = func() (t [texts]string) {
	for i := range t {
		b := make([]byte, textLen)
		x := uint64(i)
		for j := range b {
			x = mix(x)
			b[j] = 'a' + byte(x%26)
		}
		t[i] = string(b)
	}
	return t
}()

// mix is one step of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func event(n, keys int64) Event {
	r := mix(uint64(n))
	return Event{ID: n, Key: int64(r>>1) % keys, Value: int64(r & 0xffff), At: 1735689600000 + n/perMS, Text: table[r>>54]}
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("pipe", flag.ContinueOnError)
	kind := f.String("case", "chain", "generator, chain or window")
	events := f.Int64("events", 10_000_000, "number of events")
	keys := f.Int64("keys", 10_000, "number of keys")
	window := f.Duration("window", 10*time.Second, "window size")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	src := datagen.Source(func(n int64) Event { return event(n, *keys) }, datagen.Count(*events))
	wm := stream.NoWatermarks[Event]()
	if *kind == "window" {
		wm = stream.MonotonousTimestamps(func(e Event) time.Time { return time.UnixMilli(e.At) })
	}
	in := env.FromSource(src, wm, "events").UID("events")
	switch *kind {
	case "generator":
		in.SinkTo(blackhole.Sink[Event]())
	case "chain":
		in.Map(func(e Event) Event { e.Value = e.Value*908 + 1000; return e }).UID("map").
			Filter(func(e Event) bool { return e.Key%4 != 0 }).UID("filter").
			SinkTo(blackhole.Sink[Event]()).UID("out")
	case "window":
		in.KeyBy(func(e Event) int64 { return e.Key }).
			Window(stream.TumblingEventTime(*window)).
			Aggregate(stream.Count[Event](), func(k int64, w stream.TimeWindow, n int64) Count { return Count{k, w.Start.UnixMilli(), n} }).UID("count").
			SinkTo(blackhole.Sink[Count]()).UID("out")
	default:
		return fmt.Errorf("unknown case %q", *kind)
	}
	return nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "-h" {
		fmt.Fprintln(os.Stderr, "pipe --case generator|chain|window --events N --keys K --window 10s")
		os.Exit(0)
	}
	stream.Main("pipe", build)
}
