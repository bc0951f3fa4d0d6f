package stream_test

import (
	"time"

	"github.com/thalweg/thalweg/stream"
)

// early emits a session also whenever ten more charges are in it, of all sessions that became one.
type early struct {
	stream.TriggerBase
	charges stream.TriggerReducingState[int64]
}

func (e *early) Open(rt *stream.TriggerRuntime) (err error) {
	e.charges, err = rt.ReducingState[int64]("charges", func(a, b int64) int64 { return a + b })
	return err
}

func (e *early) OnElement(_ charge, _ int64, w stream.Window, ctx *stream.TriggerContext) (stream.TriggerResult, error) {
	if err := ctx.RegisterEventTimeTimer(w.MaxTimestamp()); err != nil {
		return stream.Continue, err
	}
	n, err := e.charges.Add(1)
	if err != nil || n < 10 {
		return stream.Continue, err
	}
	return stream.Fire, e.charges.Clear()
}

func (e *early) OnEventTime(at int64, w stream.Window, _ *stream.TriggerContext) (stream.TriggerResult, error) {
	if at == w.MaxTimestamp() {
		return stream.Fire, nil
	}
	return stream.Continue, nil
}

func (e *early) CanMerge() bool { return true }

func (e *early) OnMerge(w stream.Window, ctx *stream.MergeContext) error {
	if err := ctx.MergeState(e.charges); err != nil {
		return err
	}
	return ctx.RegisterEventTimeTimer(w.MaxTimestamp())
}

func (e *early) Clear(w stream.Window, ctx *stream.TriggerContext) error {
	if err := ctx.DeleteEventTimeTimer(w.MaxTimestamp()); err != nil {
		return err
	}
	return e.charges.Clear()
}

// A trigger for windows that merge: its CanMerge returns true, and its OnMerge puts the states of the merged windows together.
func ExampleCustomTrigger_sessions() {
	stream.Main("sessions", func(env *stream.Environment) error {
		env.FromCollection(charge{"ann", 300, 0}, charge{"ann", 250, 10}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(c charge) time.Time { return time.Unix(c.Second, 0) })).
			KeyBy(func(c charge) string { return c.Card }).
			Window(stream.EventTimeSession(time.Minute)).
			Trigger(stream.CustomTrigger(func() stream.Trigger[charge] { return &early{} })).
			Sum(func(c *charge) *int64 { return &c.Cents }).UID("spent").
			Print()
		return nil
	})
}
