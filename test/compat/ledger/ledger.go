// Package ledger is the program whose savepoints, taken by an earlier build, are kept in test/compat/testdata. It uses what that build has, and does
// not change: its later versions are in the test.
package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// Records is the number of orders, 100 ms of event time apart; Users are who orders, one after another.
const (
	Records = 3000
	Users   = 17
	Begin   = int64(1_767_225_600_000)
)

// Order is order n.
type Order struct {
	User  string
	Cents int32
	Item  string
	At    int64 // ms
}

// Make makes order n.
func Make(n int64) Order {
	return Order{User: fmt.Sprintf("user-%02d", n%Users), Cents: int32(n * 37 % 1000), Item: fmt.Sprintf("item-%d", n/Users%5), At: Begin + 100*n}
}

// Minute is the beginning of a minute of event time.
func Minute(at int64) int64 { return at - at%60_000 }

// Account is what a user has ordered so far.
type Account struct {
	Orders int32
	Cents  int32
	Last   string
}

// Line is a result: of an order (Kind order), of a user's minute by a timer (minute), of a window (window).
type Line struct {
	Kind    string
	User    string
	At      int64 // of the order; the beginning of the minute or window
	Account Account
	Recent  []int32 // cents of the last three orders
	Items   int32   // orders of this item
	Largest int32
	Sum     int64 // of the window, or of the user
}

// Total is an accumulator.
type Total struct {
	N   int32
	Sum int64
}

type totals struct{}

func (totals) Create() Total              { return Total{} }
func (totals) Add(t *Total, cents int32)  { t.N++; t.Sum += int64(cents) }
func (totals) Result(t Total) (sum int64) { return t.Sum }

// Ledger keeps a user's account in each kind of keyed state, with a timer at the end of each minute.
type Ledger struct {
	Account stream.ValueState[Account]
	Minute  stream.ValueState[int64]
	Recent  stream.ListState[int32]
	Items   stream.MapState[string, int32]
	Largest stream.ReducingState[int32]
	Total   stream.AggregatingState[int32, int64]
	Seen    stream.ValueState[string]
}

// NewLedger is the constructor.
func NewLedger() stream.KeyedProcessFunction[string, Order, Line] { return &Ledger{} }

// Open opens the states.
func (l *Ledger) Open(rt *stream.RuntimeContext[string]) error {
	var errs [7]error
	l.Account, errs[0] = rt.ValueState[Account]("account")
	l.Minute, errs[1] = rt.ValueState[int64]("minute")
	l.Recent, errs[2] = rt.ListState[int32]("recent")
	l.Items, errs[3] = rt.MapState[string, int32]("items")
	l.Largest, errs[4] = rt.ReducingState("largest", func(a, b int32) int32 { return max(a, b) })
	l.Total, errs[5] = rt.AggregatingState("total", totals{})
	l.Seen, errs[6] = rt.ValueState[string]("seen", stream.WithTTL(stream.StateTTLConfig{TTL: 100 * 365 * 24 * time.Hour}))
	return errors.Join(errs[:]...)
}

// ProcessElement adds an order.
func (l *Ledger) ProcessElement(ctx *stream.KeyedContext[string], o Order, out *stream.Collector[Line]) error {
	a, _, err1 := l.Account.Value()
	a.Orders, a.Cents, a.Last = a.Orders+1, a.Cents+o.Cents, o.Item
	recent, err2 := l.Recent.Get()
	recent = append(slices.Clone(recent), o.Cents)
	recent = recent[max(len(recent)-3, 0):]
	items, _, err3 := l.Items.Get(o.Item)
	minute, armed, err4 := l.Minute.Value()
	if err := errors.Join(err1, err2, err3, err4, l.Account.Update(a), l.Recent.Update(recent), l.Items.Put(o.Item, items+1), l.Largest.Add(o.Cents), l.Total.Add(o.Cents), l.Seen.Update(o.Item)); err != nil {
		return err
	}
	if m := Minute(o.At); !armed || m != minute {
		if err := errors.Join(l.Minute.Update(m), ctx.RegisterEventTimeTimer(time.UnixMilli(m+59_999))); err != nil {
			return err
		}
	}
	largest, _, err1 := l.Largest.Get()
	sum, _, err2 := l.Total.Get()
	out.Collect(Line{Kind: "order", User: o.User, At: o.At, Account: a, Recent: recent, Items: items + 1, Largest: largest, Sum: sum})
	return errors.Join(err1, err2)
}

// OnTimer tells the end of a minute.
func (l *Ledger) OnTimer(ctx *stream.KeyedContext[string], timer stream.Timer, out *stream.Collector[Line]) error {
	seen, found, err := l.Seen.Value()
	if err == nil && (!found || seen == "") {
		err = errors.New("the state with a time to live has gone")
	}
	out.Collect(Line{Kind: "minute", User: ctx.Key(), At: Minute(timer.At.UnixMilli())})
	return err
}

// Close is part of the function.
func (l *Ledger) Close() error { return nil }

// Build builds the job: orders at a rate (0: as fast as it goes) to the sink.
func Build(env *stream.Environment, rate float64, sink connector.Sink[Line]) {
	opts := []datagen.Option{datagen.Count(Records), datagen.Splits(1)}
	if rate > 0 {
		opts = append(opts, datagen.RatePerSecond(rate))
	}
	orders := env.FromSource(datagen.Source(Make, opts...), stream.MonotonousTimestamps(func(o Order) time.Time { return time.UnixMilli(o.At) }), "orders").UID("orders")
	byUser := orders.KeyBy(func(o Order) string { return o.User })
	byUser.Process(NewLedger).UID("ledger").Map(func(l Line) Line { return l }).UID("pass").SinkTo(sink).UID("lines")
	byUser.Window(stream.TumblingEventTime(time.Minute)).Aggregate(stream.Sum(func(o Order) int64 { return int64(o.Cents) }),
		func(user string, w stream.TimeWindow, sum int64) Line {
			return Line{Kind: "window", User: user, At: w.Start.UnixMilli(), Sum: sum}
		}).UID("windows").SinkTo(sink).UID("sums")
}
