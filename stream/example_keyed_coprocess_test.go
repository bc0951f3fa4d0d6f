package stream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream"
)

type booking struct {
	ID string
	At int64 // seconds
}

type payment struct {
	Booking string
	At      int64
}

// settled brings bookings and their payments together, whichever comes first. A booking that is not paid after an hour is told as well.
type settled struct {
	booked stream.ValueState[booking]
	paid   stream.ValueState[payment]
}

func (s *settled) Open(rt *stream.RuntimeContext[string]) (err error) {
	if s.booked, err = rt.ValueState[booking]("booked"); err != nil {
		return err
	}
	s.paid, err = rt.ValueState[payment]("paid")
	return err
}

func (*settled) Close() error { return nil }

func due(b booking) time.Time { return time.Unix(b.At, 0).Add(time.Hour) }

func (s *settled) ProcessFirst(ctx *stream.KeyedContext[string], b booking, out *stream.Collector[string]) error {
	if _, paid, err := s.paid.Value(); err != nil {
		return err
	} else if paid {
		out.Collect(b.ID + " is paid")
		return s.paid.Clear()
	}
	if err := s.booked.Update(b); err != nil {
		return err
	}
	return ctx.RegisterEventTimeTimer(due(b))
}

func (s *settled) ProcessSecond(ctx *stream.KeyedContext[string], p payment, out *stream.Collector[string]) error {
	b, booked, err := s.booked.Value()
	if err != nil {
		return err
	}
	if !booked {
		return s.paid.Update(p)
	}
	out.Collect(b.ID + " is paid")
	if err := ctx.DeleteEventTimeTimer(due(b)); err != nil {
		return err
	}
	return s.booked.Clear()
}

func (s *settled) OnTimer(ctx *stream.KeyedContext[string], _ stream.Timer, out *stream.Collector[string]) error {
	out.Collect(ctx.Key() + " is not paid")
	return s.booked.Clear()
}

// Two streams that are keyed alike share the state and the timers of the key.
func ExampleConnectedKeyedStreams_Process() {
	build := func(env *stream.Environment) error {
		bookings := env.FromCollection(booking{"b1", 0}, booking{"b2", 60}, booking{"b3", 120}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(b booking) time.Time { return time.Unix(b.At, 0) }))
		payments := env.FromCollection(payment{"b1", 600}, payment{"b3", 1200}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(p payment) time.Time { return time.Unix(p.At, 0) }))
		bookings.KeyBy(func(b booking) string { return b.ID }).
			Connect(payments.KeyBy(func(p payment) string { return p.Booking })).
			Process(func() stream.KeyedCoProcessFunction[string, booking, payment, string] { return &settled{} }).UID("settled").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "bookings", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// b1 is paid
	// b2 is not paid
	// b3 is paid
}
