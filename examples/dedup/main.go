// Command dedup lets the first of several equal events pass, and forgets what it saw after a while.
//
//	thalweg run -t local bin/examples/dedup -events 100000
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Event is what a sender that repeats itself sent.
type Event struct {
	ID   string
	Text string
}

func (e Event) String() string { return e.ID + " " + e.Text }

// memory is how long after its last copy an event may come again.
const memory = time.Hour

// first passes on the first event of each id.
type first struct {
	stream.NoTimers[string, Event]
	seen    stream.ValueState[bool]
	dropped connector.Counter
}

func newFirst() stream.KeyedProcessFunction[string, Event, Event] { return &first{} }

func (f *first) Open(rt *stream.RuntimeContext[string]) (err error) {
	f.dropped = rt.Metrics().Counter("duplicates")
	// Reading a value renews its time: an event is remembered from its latest copy on. What has expired is removed in the background.
	f.seen, err = rt.ValueState[bool]("seen", stream.WithTTL(stream.StateTTLConfig{TTL: memory, UpdateType: stream.OnReadAndWrite}))
	return err
}

func (f *first) ProcessElement(_ *stream.KeyedContext[string], e Event, out *stream.Collector[Event]) error {
	_, seen, err := f.seen.Value()
	if err != nil {
		return err
	}
	if seen {
		f.dropped.Add(1)
		return nil
	}
	out.Collect(e)
	return f.seen.Update(true)
}

// event makes each event three times, some while apart.
func event(n int64) Event {
	id := n/300*100 + n%100
	return Event{fmt.Sprintf("e%06d", id), fmt.Sprintf("value %d", id%7)}
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("dedup", flag.ContinueOnError)
	n := f.Int64("events", 3000, "events to make, copies included")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	env.FromSource(datagen.Source(event, datagen.Count(*n)), stream.NoWatermarks[Event](), "events").UID("events").
		KeyBy(func(e Event) string { return e.ID }).Process(newFirst).Name("first").UID("first").
		Print().Name("out").UID("out")
	return nil
}

func main() { stream.Main("dedup", build) }
