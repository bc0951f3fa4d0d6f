// Command sessions turns clicks into visits: the clicks of a user with no pause longer than half an hour.
//
//	thalweg run -t local bin/examples/sessions -clicks 100000
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Click is a page that a user looked at.
type Click struct {
	User, Page string
	At         time.Time
}

// Visit is a session of a user.
type Visit struct {
	User        string
	Clicks      int
	Entry, Exit string // the first and the last page
	Start, End  time.Time
}

func (v Visit) String() string {
	return fmt.Sprintf("%s: %d clicks in %v, from %s to %s", v.User, v.Clicks, v.End.Sub(v.Start), v.Entry, v.Exit)
}

const pause = 30 * time.Minute

// trace is what is kept of a session that is open: of neither the input's type nor the result's.
type trace struct {
	Clicks      int
	First, Last Click
}

// tracing folds clicks, in any order, into traces. Sessions that a late click joins are merged.
type tracing struct{}

func (tracing) Create() trace             { return trace{} }
func (tracing) Result(t trace) trace      { return t }
func (g tracing) Add(acc *trace, c Click) { *acc = g.Merge(*acc, trace{1, c, c}) }
func (tracing) Merge(a, b trace) trace {
	switch {
	case a.Clicks == 0:
		return b
	case b.Clicks == 0:
		return a
	}
	if b.First.At.Before(a.First.At) {
		a.First = b.First
	}
	if b.Last.At.After(a.Last.At) {
		a.Last = b.Last
	}
	a.Clicks += b.Clicks
	return a
}

// visits is the pipeline.
func visits(clicks stream.DataStream[Click]) stream.SingleOutputStreamOperator[Visit] {
	return clicks.KeyBy(func(c Click) string { return c.User }).
		Window(stream.EventTimeSession(pause)).
		Aggregate(tracing{}, func(user string, _ stream.TimeWindow, t trace) Visit {
			return Visit{user, t.Clicks, t.First.Page, t.Last.Page, t.First.At, t.Last.At}
		}).Name("visits").UID("visits")
}

// click makes visits of ten clicks, a minute apart, by ten users at a time; the next hundred clicks are an hour later.
func click(n int64) Click {
	minute := n/100*60 + n/10%10
	return Click{fmt.Sprintf("user-%d", n%10), fmt.Sprintf("/page/%d", n/10%10), time.UnixMilli(1_767_225_600_000).UTC().Add(time.Duration(minute) * time.Minute)}
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("sessions", flag.ContinueOnError)
	n := f.Int64("clicks", 1000, "clicks to make")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	clicks := env.FromSource(datagen.Source(click, datagen.Count(*n)),
		stream.BoundedOutOfOrderness(time.Minute, func(c Click) time.Time { return c.At }), "clicks").UID("clicks")
	visits(clicks.DataStream).Print().Name("out").UID("out")
	return nil
}

func main() { stream.Main("sessions", build) }
