package meta

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// click and order are the records of the two inputs. At is in milliseconds.
type click struct {
	ID, Key, Value, At int64
	Pad                string
}

type order struct{ ID, Key, At int64 }

// rule is of the broadcast input: clicks of Key % rules with a Value above Limit are told.
type rule struct{ Number, Limit int64 }

const (
	clicks   = 3000
	orders   = 900
	rules    = 3
	keys     = 11
	jitter   = 10 // ms that records are out of order, at most
	tumbling = 100
	size     = 200 // of sliding windows
	slide    = 50
	gap      = 25
	reach    = 15 // of interval joins
	joined   = 50 // window of joins
	begin    = 1_000_000
)

// draw is a number that depends on the seed and on what it is drawn for.
func draw(seed uint64, what, n int64) *rand.Rand {
	return rand.New(rand.NewPCG(seed<<8|uint64(what), uint64(n))) //nolint:gosec // repeatable on purpose
}

func clickOf(seed uint64, n int64, pad int) click {
	r := draw(seed, 1, n)
	return click{ID: n, Key: r.Int64N(keys), Value: r.Int64N(1000), At: begin + 2*n + r.Int64N(jitter), Pad: strings.Repeat("x", r.IntN(pad+1))}
}

func orderOf(seed uint64, n int64) order {
	r := draw(seed, 2, n)
	return order{ID: n, Key: r.Int64N(keys), At: begin + 7*n + r.Int64N(jitter)}
}

func ruleOf(seed uint64, n int64) rule { return rule{n, draw(seed, 3, n).Int64N(1000)} }

var limits = stream.NewMapStateDescriptor[int64, int64]("limits")

// watch tells clicks above their rule's limit. What comes before its rule waits.
type watch struct {
	stream.NoBroadcastTimers[int64, string]
	waiting stream.ListState[click]
}

func (w *watch) Open(rt *stream.RuntimeContext[int64]) (err error) {
	w.waiting, err = rt.ListState[click]("waiting")
	return err
}

func (w *watch) ProcessElement(ctx *stream.KeyedReadOnlyContext[int64], c click, out *stream.Collector[string]) error {
	state, err := ctx.BroadcastState(limits)
	if err != nil {
		return err
	}
	limit, known := state.Get(c.Key % rules)
	if !known {
		return w.waiting.Add(c)
	}
	tell(c, limit, out)
	return nil
}

func (w *watch) ProcessBroadcastElement(ctx *stream.KeyedBroadcastContext[int64], r rule, out *stream.Collector[string]) error {
	state, err := ctx.BroadcastState(limits)
	if err != nil {
		return err
	}
	state.Put(r.Number, r.Limit)
	return ctx.ApplyToKeyedState(w.waiting, func(k int64, waiting stream.ListState[click]) error {
		if k%rules != r.Number {
			return nil
		}
		all, err := waiting.Get()
		if err != nil {
			return err
		}
		for _, c := range all {
			tell(c, r.Limit, out)
		}
		return waiting.Clear()
	})
}

func tell(c click, limit int64, out *stream.Collector[string]) {
	if c.Value > limit {
		out.Collect(fmt.Sprintf("rule|%d", c.ID))
	}
}

// alarms counts the clicks of a key that set the same timer, and tells when it fires.
type alarms struct {
	set stream.MapState[int64, int64]
}

func alarmOf(c click) int64 { return (c.At + 149) / 50 * 50 }

func (a *alarms) Open(rt *stream.RuntimeContext[int64]) (err error) {
	a.set, err = rt.MapState[int64, int64]("set")
	return err
}

func (a *alarms) ProcessElement(ctx *stream.KeyedContext[int64], c click, _ *stream.Collector[string]) error {
	at := alarmOf(c)
	n, _, err := a.set.Get(at)
	if err != nil {
		return err
	}
	if err := a.set.Put(at, n+1); err != nil {
		return err
	}
	return ctx.RegisterEventTimeTimer(time.UnixMilli(at))
}

func (a *alarms) OnTimer(ctx *stream.KeyedContext[int64], t stream.Timer, out *stream.Collector[string]) error {
	n, _, err := a.set.Get(t.At.UnixMilli())
	if err != nil {
		return err
	}
	out.Collect(fmt.Sprintf("alarm|%d|%d|%d", ctx.Key(), t.At.UnixMilli(), n))
	return a.set.Remove(t.At.UnixMilli())
}

func (a *alarms) Close() error { return nil }

// failing fails when so many records have passed, once for each number.
type failing struct {
	passed atomic.Int64
	at     []int64
}

func (f *failing) pass() {
	if n := f.passed.Add(1); len(f.at) > 0 {
		for _, at := range f.at {
			if n == at {
				panic("the failure that was planned")
			}
		}
	}
}

func at(ms int64) time.Time { return time.UnixMilli(ms) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// build is the job. rate is the clicks per second, 0 for as fast as can be.
func build(seed uint64, c *Case, out *box, fail *failing) func(*stream.Environment) error {
	return func(env *stream.Environment) error {
		of := func(n int64) []datagen.Option {
			o := []datagen.Option{datagen.Count(n), datagen.Splits(c.Splits)}
			if c.Rate > 0 {
				o = append(o, datagen.RatePerSecond(c.Rate*float64(n)/clicks))
			}
			return o
		}
		in := env.FromSource(datagen.Source(func(n int64) click { return clickOf(seed, n, c.Pad) }, of(clicks)...),
			stream.BoundedOutOfOrderness(ms(jitter), func(c click) time.Time { return at(c.At) }), "clicks").UID("clicks").
			Map(func(c click) click { fail.pass(); return c }).UID("passed")
		bought := env.FromSource(datagen.Source(func(n int64) order { return orderOf(seed, n) }, of(orders)...),
			stream.BoundedOutOfOrderness(ms(jitter), func(o order) time.Time { return at(o.At) }), "orders").UID("orders")
		ruling := env.FromSource(datagen.Source(func(n int64) rule { return ruleOf(seed, n) }, datagen.Count(rules), datagen.Splits(1)),
			stream.NoWatermarks[rule](), "rules").UID("rules").BroadcastState(limits)
		byKey := in.KeyBy(func(c click) int64 { return c.Key })
		orderByKey := bought.KeyBy(func(o order) int64 { return o.Key })

		tum := byKey.Window(stream.TumblingEventTime(ms(tumbling))).
			Aggregate(stream.Sum(func(c click) int64 { return c.Value }), func(k int64, w stream.TimeWindow, sum int64) string {
				return fmt.Sprintf("tumbling|%d|%d|%d", k, w.Start.UnixMilli(), sum)
			}).UID("tumbling")
		sli := byKey.Window(stream.SlidingEventTime(ms(size), ms(slide))).Count(func(k int64, w stream.TimeWindow, n int64) string {
			return fmt.Sprintf("sliding|%d|%d|%d", k, w.Start.UnixMilli(), n)
		}).UID("sliding")
		ses := byKey.Window(stream.EventTimeSession(ms(gap))).Count(func(k int64, w stream.TimeWindow, n int64) string {
			return fmt.Sprintf("session|%d|%d|%d|%d", k, w.Start.UnixMilli(), w.End.UnixMilli(), n)
		}).UID("session")
		near := byKey.IntervalJoin(orderByKey).Between(-ms(reach), ms(reach)).
			Process(func(_ *stream.JoinContext, c click, o order, out *stream.Collector[string]) error {
				out.Collect(fmt.Sprintf("near|%d|%d", c.ID, o.ID))
				return nil
			}).UID("near")
		join := in.Join(bought).Where(func(c click) int64 { return c.Key }).EqualTo(func(o order) int64 { return o.Key }).
			Window(stream.TumblingEventTime(ms(joined))).
			Apply(func(c click, o order) string { return fmt.Sprintf("join|%d|%d", c.ID, o.ID) }).UID("join")
		rul := byKey.ConnectBroadcast(ruling).
			Process(func() stream.KeyedBroadcastProcessFunction[int64, click, rule, string] { return &watch{} }).UID("rule")
		ala := byKey.Process(func() stream.KeyedProcessFunction[int64, click, string] { return &alarms{} }).UID("alarm")
		tum.Union(sli, ses, near, join, rul, ala).SinkTo(out).UID("out")
		return nil
	}
}
