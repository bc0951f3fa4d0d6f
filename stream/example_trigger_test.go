package stream_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream"
)

type charge struct {
	Card   string
	Cents  int64
	Second int64
}

// limit emits a window when 500 cents came together since it was emitted last, and at its end.
type limit struct {
	stream.TriggerBase
	spent stream.TriggerReducingState[int64]
}

func (l *limit) Open(rt *stream.TriggerRuntime) (err error) {
	l.spent, err = rt.ReducingState("spent", func(a, b int64) int64 { return a + b })
	return err
}

func (l *limit) OnElement(c charge, _ int64, w stream.Window, ctx *stream.TriggerContext) (stream.TriggerResult, error) {
	if err := ctx.RegisterEventTimeTimer(w.MaxTimestamp()); err != nil {
		return stream.Continue, err
	}
	spent, err := l.spent.Add(c.Cents)
	if err != nil || spent < 500 {
		return stream.Continue, err
	}
	return stream.Fire, l.spent.Clear()
}

func (l *limit) OnEventTime(int64, stream.Window, *stream.TriggerContext) (stream.TriggerResult, error) {
	return stream.Fire, nil
}

func (l *limit) Clear(w stream.Window, ctx *stream.TriggerContext) error {
	return errors.Join(ctx.DeleteEventTimeTimer(w.MaxTimestamp()), l.spent.Clear())
}

// A trigger with state of its own and a timer.
func ExampleCustomTrigger() {
	build := func(env *stream.Environment) error {
		env.FromCollection(charge{"ann", 300, 0}, charge{"ann", 250, 10}, charge{"ann", 100, 20}, charge{"ann", 50, 70}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(c charge) time.Time { return time.Unix(c.Second, 0) })).
			KeyBy(func(c charge) string { return c.Card }).
			Window(stream.TumblingEventTime(time.Minute)).
			Trigger(stream.CustomTrigger(func() stream.Trigger[charge] { return &limit{} })).
			Aggregate(stream.Sum(func(c charge) int64 { return c.Cents }),
				func(card string, w stream.TimeWindow, cents int64) string {
					return fmt.Sprint(card, " ", w.Start.Format("15:04"), " ", cents)
				}).UID("spent").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "charges", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ann 00:00 550
	// ann 00:00 650
	// ann 00:01 50
}
