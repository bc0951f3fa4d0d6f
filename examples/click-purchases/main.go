// Command click-purchases joins two streams: each purchase with the clicks on an advertisement that the same user made shortly before.
//
//	thalweg run -t local bin/examples/click-purchases -purchases 1000
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Click is a click of a user on an advertisement.
type Click struct {
	User, Ad string
	At       time.Time
}

// Purchase is what a user bought.
type Purchase struct {
	User  string
	Cents int64
	At    time.Time
}

// Attribution is a purchase and a click before it.
type Attribution struct {
	Ad, User string
	Cents    int64
	After    time.Duration
}

func (a Attribution) String() string {
	return fmt.Sprintf("%s: %s bought for %d cents after %v", a.Ad, a.User, a.Cents, a.After)
}

// reach is how long a click counts.
const reach = 10 * time.Minute

// late are the purchases that came when their clicks were forgotten already.
var late = stream.NewOutputTag[Purchase]("late-purchases")

// attributions is the pipeline. A click at the very time of the purchase counts, one that is reach older does not.
func attributions(purchases stream.DataStream[Purchase], clicks stream.DataStream[Click]) stream.SingleOutputStreamOperator[Attribution] {
	return purchases.KeyBy(func(p Purchase) string { return p.User }).
		IntervalJoin(clicks.KeyBy(func(c Click) string { return c.User })).
		Between(-reach, 0).LowerBoundExclusive().SideOutputLeftLateData(late).
		Process(func(_ *stream.JoinContext, p Purchase, c Click, out *stream.Collector[Attribution]) error {
			out.Collect(Attribution{c.Ad, p.User, p.Cents, p.At.Sub(c.At)})
			return nil
		}).Name("attributions").UID("attributions")
}

func minute(n int64) time.Time {
	return time.UnixMilli(1_767_225_600_000).UTC().Add(time.Duration(n) * time.Minute)
}

// purchase makes one purchase a minute, by five users in turn; click one a minute, by ten: users 5 to 9 never buy.
func purchase(n int64) Purchase { return Purchase{fmt.Sprintf("user-%d", n%5), 1000 + n, minute(n)} }
func click(n int64) Click {
	return Click{fmt.Sprintf("user-%d", n%10), fmt.Sprintf("ad-%d", n%3), minute(n)}
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("click-purchases", flag.ContinueOnError)
	n := f.Int64("purchases", 1000, "purchases to make, and as many clicks")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	purchases := env.FromSource(datagen.Source(purchase, datagen.Count(*n)),
		stream.BoundedOutOfOrderness(time.Minute, func(p Purchase) time.Time { return p.At }).WithIdleness(time.Minute), "purchases").UID("purchases")
	clicks := env.FromSource(datagen.Source(click, datagen.Count(*n)),
		stream.BoundedOutOfOrderness(time.Minute, func(c Click) time.Time { return c.At }).WithIdleness(time.Minute), "clicks").UID("clicks")
	out := attributions(purchases.DataStream, clicks.DataStream)
	out.Print().Name("out").UID("out")
	out.GetSideOutput(late).Print().Name("late").UID("late")
	return nil
}

func main() { stream.Main("click-purchases", build) }
