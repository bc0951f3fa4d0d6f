package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// ticks registers a timer for each record, and in each timer the next one, a minute later, so many times.
type ticks struct {
	times int
	fired *int
	each  func() // runs in each timer; nil for nothing
}

func (ticks) Open(*RuntimeContext[int64]) error { return nil }
func (ticks) Close() error                      { return nil }
func (ticks) ProcessElement(ctx *KeyedContext[int64], _ tagged, _ *Collector[tagged]) error {
	return ctx.RegisterEventTimeTimer(time.UnixMilli(1000))
}

func (f ticks) OnTimer(ctx *KeyedContext[int64], t Timer, _ *Collector[tagged]) error {
	if *f.fired++; f.each != nil {
		f.each()
	}
	if t.At.UnixMilli() > 1000+int64(f.times)*60_000 {
		return nil
	}
	return ctx.RegisterEventTimeTimer(t.At.Add(time.Minute))
}

// endlessTrigger is ticks without an end as a trigger.
type endlessTrigger struct{ Trigger[tagged] }

func (endlessTrigger) OnElement(_ tagged, _ int64, _ Window, ctx *TriggerContext) (TriggerResult, error) {
	return Continue, ctx.RegisterEventTimeTimer(1000)
}

func (endlessTrigger) OnEventTime(at int64, _ Window, ctx *TriggerContext) (TriggerResult, error) {
	return Continue, ctx.RegisterEventTimeTimer(at + 1000)
}

// At the end of the input a function, or a trigger, that always registers another timer fails its job, with the line; one that registers many
// and comes to an end does not.
func TestTimersWithoutEndAtTheEnd(t *testing.T) {
	defer func(n, r int) { endlessTimers, endlessRounds = n, r }(endlessTimers, endlessRounds)
	endlessTimers, endlessRounds = 3000, 500
	fired := 0
	processes := func(times int) Factory {
		return KeyedProcess(taggedKey(), func() KeyedProcessFunction[int64, tagged, tagged] { return ticks{times: times, fired: &fired} })
	}
	triggered := ProcessWindow(WindowSpec[int64, tagged]{Key: taggedKey(), Assigner: WindowAssigner[tagged]{Kind: GlobalWindows},
		Trigger: func() Trigger[tagged] { return endlessTrigger{NewNeverTrigger[tagged]()} }},
		func() ProcessWindowFunction[int64, tagged, tagged] { return elements{} })
	for name, c := range map[string]struct {
		f    Factory
		keys int64
		ends bool
	}{
		"function":               {processes(1 << 30), 1, false},
		"function of some keys":  {processes(1 << 30), 3, false},
		"trigger":                {triggered, 1, false},
		"many timers of a key":   {processes(2000), 1, true},
		"few timers of each key": {processes(20), 300, true},
	} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := newHarness[tagged, tagged](t, c.f, backend, 1, taggedKey().NewHash())
				defer h.close()
				for k := range c.keys {
					h.process(tagged{k, []int64{1}}, 0)
				}
				h.watermark(100_000) // before the end nothing is wrong with it
				err := h.tasks[0].in.Watermark(MaxWatermark)
				if c.ends {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var fatal interface{ Fatal() bool }
				if err == nil || !strings.Contains(err.Error(), "without end, at RegisterEventTimeTimer at timer_run_test.go:") || !errors.As(err, &fatal) || !fatal.Fatal() {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// A task that is to end does not wait for timers that register others, at the end of the input or before.
func TestTimersWithoutEndAreCancelled(t *testing.T) {
	for name, until := range map[string]int64{"at the end": MaxWatermark, "before": MaxWatermark - 1} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				life, cancel := context.WithCancelCause(t.Context())
				stopped, fired := errors.New("stopped"), 0
				h := newHarness[tagged, tagged](t, KeyedProcess(taggedKey(), func() KeyedProcessFunction[int64, tagged, tagged] {
					return ticks{1 << 40, &fired, func() { cancel(stopped) }}
				}), backend, 1, taggedKey().NewHash())
				defer h.close()
				h.tasks[0].svc.life = life
				h.process(tagged{1, []int64{1}}, 0)
				if err := h.tasks[0].in.Watermark(until); !errors.Is(err, stopped) || fired > 2000 {
					t.Errorf("got %v after %d timers", err, fired)
				}
			})
		}
	}
}
