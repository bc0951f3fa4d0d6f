// Command fraud-bursts raises an alert when a card pays several times within a few seconds.
//
//	thalweg run -t local bin/examples/fraud-bursts -payments 100000
package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Payment is a payment by card.
type Payment struct {
	Card  string
	Cents int64
	At    time.Time
}

// Alert says that a card paid often in a short time.
type Alert struct {
	Card        string
	Payments    int
	Cents       int64
	First, Last time.Time
}

func (a Alert) String() string {
	return fmt.Sprintf("%s: %d payments of %d cents in %v", a.Card, a.Payments, a.Cents, a.Last.Sub(a.First))
}

// A burst is this many payments within this time.
const (
	many   = 4
	window = 30 * time.Second
)

// bursts keeps the payments of a card that may still become a part of a burst. Payments come in any order.
type bursts struct{ recent stream.ListState[Payment] }

func newBursts() stream.KeyedProcessFunction[string, Payment, Alert] { return &bursts{} }

func (b *bursts) Open(rt *stream.RuntimeContext[string]) (err error) {
	b.recent, err = rt.ListState[Payment]("recent")
	return err
}

func (b *bursts) ProcessElement(ctx *stream.KeyedContext[string], p Payment, out *stream.Collector[Alert]) error {
	recent, err := b.recent.Get()
	if err != nil {
		return err
	}
	recent = append(slices.Clone(recent), p)
	slices.SortFunc(recent, func(x, y Payment) int { return x.At.Compare(y.At) })
	for i := 0; i+many <= len(recent); i++ {
		burst := recent[i : i+many]
		if first, last := burst[0].At, burst[many-1].At; last.Sub(first) <= window {
			a := Alert{Card: p.Card, Payments: many, First: first, Last: last}
			for _, q := range burst {
				a.Cents += q.Cents
			}
			out.Collect(a)
			return b.recent.Clear() // the next alert is about other payments
		}
	}
	return errors.Join(b.recent.Update(recent), ctx.RegisterEventTimeTimer(p.At.Add(window)))
}

// OnTimer forgets what is too old for a burst.
func (b *bursts) OnTimer(_ *stream.KeyedContext[string], timer stream.Timer, _ *stream.Collector[Alert]) error {
	recent, err := b.recent.Get()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(recent), func(p Payment) bool { return !p.At.After(timer.At.Add(-window)) })
	if len(left) == 0 {
		return b.recent.Clear()
	}
	return b.recent.Update(left)
}

func (b *bursts) Close() error { return nil }

// payment makes payments of 97 cards that pay every 48.5 seconds, and now and then a burst on another.
func payment(n int64) Payment {
	p := Payment{Card: fmt.Sprintf("card-%02d", n%97), Cents: 100 + n%5000, At: time.UnixMilli(1_767_225_600_000 + 500*n).UTC()}
	if n%1000 < many {
		p.Card = fmt.Sprintf("stolen-%d", n/1000)
	}
	return p
}

func build(env *stream.Environment) error {
	f := flag.NewFlagSet("fraud-bursts", flag.ContinueOnError)
	n := f.Int64("payments", 10_000, "payments to make")
	if err := f.Parse(env.Args()); err != nil {
		return err
	}
	env.FromSource(datagen.Source(payment, datagen.Count(*n)),
		stream.BoundedOutOfOrderness(10*time.Second, func(p Payment) time.Time { return p.At }), "payments").UID("payments").
		KeyBy(func(p Payment) string { return p.Card }).Process(newBursts).Name("bursts").UID("bursts").
		Print().Name("alerts").UID("alerts")
	return nil
}

func main() { stream.Main("fraud-bursts", build) }
