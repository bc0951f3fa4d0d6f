package operator

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// timing is a function that only has timers.
type timing struct {
	record func(ctx *KeyedContext[string], c command) error
	timer  func(ctx *KeyedContext[string], tm Timer) error
}

func (f *timing) Open(*RuntimeContext[string]) error { return nil }
func (f *timing) Close() error                       { return nil }

func (f *timing) ProcessElement(ctx *KeyedContext[string], c command, _ *Collector[string]) error {
	return f.record(ctx, c)
}

func (f *timing) OnTimer(ctx *KeyedContext[string], tm Timer, out *Collector[string]) error {
	out.Collect(tm.At.Format("05.000"))
	if f.timer == nil {
		return nil
	}
	return f.timer(ctx, tm)
}

func newTiming(t *testing.T, f *timing) (*harness[command, string], *bytes.Buffer) {
	t.Helper()
	h := newHarness[command, string](t, KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return f }), "hashmap", 1, commandKey(t).NewHash())
	var log bytes.Buffer
	h.tasks[0].ctx.Logger = zerolog.New(&log)
	return h, &log
}

// A timer in the past fires, as in Flink, and is counted; the first is told with the line of its call, and no other.
func TestTimersInThePastAreTold(t *testing.T) {
	h, log := newTiming(t, &timing{record: func(ctx *KeyedContext[string], c command) error {
		if c.Op == "event" {
			return ctx.RegisterEventTimeTimer(time.UnixMilli(c.V)) // here
		}
		return ctx.RegisterProcessingTimeTimer(time.UnixMilli(c.V))
	}})
	counted := func(want int64, why string) {
		t.Helper()
		if got := h.counted(lateTimersMetric); got != want {
			t.Fatalf("%d timers in the past, want %d: %s", got, want, why)
		}
	}
	h.process(command{"a", "event", "", -40}, 100)
	counted(0, "before the first watermark nothing is over")
	h.watermark(100)
	h.process(command{"a", "event", "", 101}, 100)
	counted(0, "a time to come")
	if log.Len() > 0 {
		t.Fatalf("told: %s", log)
	}
	h.process(command{"a", "event", "", 100}, 100)
	counted(1, "the watermark has reached it")
	h.process(command{"a", "event", "", 99}, 100)
	counted(2, "each call counts")
	h.take()
	h.watermark(101)
	if got := strings.Join(h.take(), " "); got != "00.099 00.100 00.101" {
		t.Errorf("fired %s", got)
	}
	h.advance(5000)
	h.process(command{"a", "proc", "", 4000}, 100)
	counted(2, "a second is as good as now")
	h.process(command{"a", "proc", "", 3999}, 100)
	counted(3, "the clock is far beyond")
	if n, text := strings.Count(log.String(), "\n"), log.String(); n != 1 || !strings.Contains(text, `"at":"timer_watch_test.go:`) || !strings.Contains(text, "RegisterEventTimeTimer got a time that has passed") ||
		!strings.Contains(text, lateTimersMetric) || !strings.Contains(text, `"timer":"1970-01-01T00:00:00.1Z"`) {
		t.Errorf("told: %s", text)
	}
	h.close()
}

// What a timer registers behind its own time is not in the past, however far the watermark or the clock went at once.
func TestTimersThatCatchUp(t *testing.T) {
	h, _ := newTiming(t, &timing{
		record: func(ctx *KeyedContext[string], _ command) error {
			at := time.UnixMilli(1000)
			if err := ctx.RegisterEventTimeTimer(at); err != nil {
				return err
			}
			return ctx.RegisterProcessingTimeTimer(at)
		},
		timer: func(ctx *KeyedContext[string], tm Timer) error {
			next := tm.At.Add(time.Second)
			switch {
			case next.UnixMilli() > 5000:
				return nil
			case tm.EventTime:
				return ctx.RegisterEventTimeTimer(next)
			}
			return ctx.RegisterProcessingTimeTimer(next)
		},
	})
	h.process(command{"a", "", "", 0}, 100)
	h.watermark(60_000)
	h.advance(60_000)
	if got := strings.Join(h.take(), " "); got != "01.000 02.000 03.000 04.000 05.000 01.000 02.000 03.000 04.000 05.000" {
		t.Errorf("fired %s", got)
	}
	if n := h.counted(lateTimersMetric); n != 0 {
		t.Errorf("%d of them are counted as timers in the past", n)
	}
	h.close()
	once := true
	h, _ = newTiming(t, &timing{
		record: func(ctx *KeyedContext[string], _ command) error {
			return ctx.RegisterEventTimeTimer(time.UnixMilli(1000))
		},
		timer: func(ctx *KeyedContext[string], tm Timer) error {
			if once {
				once = false
				return ctx.RegisterEventTimeTimer(tm.At)
			}
			return nil
		},
	})
	h.process(command{"a", "", "", 0}, 100)
	h.watermark(60_000)
	if got, n := strings.Join(h.take(), " "), h.counted(lateTimersMetric); got != "01.000 01.000" || n != 1 {
		t.Errorf("fired %s, %d of them in the past", got, n)
	}
	h.close()
}

// A time that no timer can have is an error of the call, with its line; deleting such a timer changes nothing.
func TestTimesThatNoTimerHas(t *testing.T) {
	for what, at := range map[string]time.Time{
		"the zero time.Time":   {},
		"the time is out of r": time.Unix(1<<60, 0),
		"out of range (more t": time.Unix(-1<<60, 0),
	} {
		h, _ := newTiming(t, &timing{record: func(ctx *KeyedContext[string], _ command) error {
			for method, register := range map[string]func(time.Time) error{"RegisterEventTimeTimer": ctx.RegisterEventTimeTimer, "RegisterProcessingTimeTimer": ctx.RegisterProcessingTimeTimer} {
				if err := register(at); err == nil || !strings.HasPrefix(err.Error(), method+" at timer_watch_test.go:") || !strings.Contains(err.Error(), what) {
					t.Errorf("%v: %v", at, err)
				}
			}
			if err := ctx.DeleteEventTimeTimer(at); err != nil {
				return err
			}
			return ctx.RegisterEventTimeTimer(time.UnixMilli(math.MaxInt64)) // at the end of all input
		}})
		h.process(command{"a", "", "", 0}, 100)
		h.watermark(math.MaxInt64)
		if got := h.take(); len(got) != 1 {
			t.Errorf("fired %q", got)
		}
		h.close()
	}
}

// bell is a trigger that registers a timer at what the record says.
type bell struct{ TriggerBase }

func (bell) OnElement(r reading, _ int64, _ Window, ctx *TriggerContext) (TriggerResult, error) {
	return Continue, ctx.RegisterEventTimeTimer(r.Value)
}

func (bell) OnEventTime(int64, Window, *TriggerContext) (TriggerResult, error) { return Fire, nil }

// Triggers' timers are looked at as well. The triggers that come with windows know the past, and are not counted.
func TestTimersOfTriggersInThePast(t *testing.T) {
	for name, c := range map[string]struct {
		trigger func() Trigger[reading]
		want    int64
	}{
		"own":        {func() Trigger[reading] { return bell{} }, 1},
		"continuous": {func() Trigger[reading] { return NewContinuousTrigger[reading](10, true) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			spec := WindowSpec[string, reading]{Key: sensorKey(t), Assigner: WindowAssigner[reading]{Kind: GlobalWindows}, Trigger: c.trigger}
			f := AggregateWindow(spec, func() WindowFunctions[string, reading, int64, int64] {
				return WindowFunctions[string, reading, int64, int64]{
					Add:  func(acc *int64, _ reading, _ bool) { *acc++ },
					Emit: func(_ string, _ Window, acc *int64, out *Collector[int64]) error { out.Collect(*acc); return nil },
				}
			})
			h := newHarness[reading, int64](t, f, "hashmap", 1, sensorKey(t).NewHash())
			h.watermark(100)
			h.process(reading{Sensor: "a", Value: 50}, 50)
			h.process(reading{Sensor: "a", Value: 500}, 500)
			if n := h.counted(lateTimersMetric); n != c.want {
				t.Errorf("%d timers in the past, want %d", n, c.want)
			}
			if c.want > 0 {
				err := h.tasks[0].in.Process(reading{Sensor: "a", Value: math.MinInt64}, Meta{TS: 50, Hash: h.hash(reading{Sensor: "a"})})
				if err == nil || !strings.Contains(err.Error(), "RegisterEventTimeTimer at timer_watch_test.go:") {
					t.Errorf("got %v", err)
				}
			}
			h.close()
		})
	}
}

// A function without timers drops those that a former version of it left in the state; one that it registers itself is an error when it is due.
func TestTimersOfAFormerVersion(t *testing.T) {
	h, _ := newTiming(t, &timing{
		record: func(ctx *KeyedContext[string], c command) error {
			return ctx.RegisterEventTimeTimer(time.UnixMilli(c.V))
		},
		timer: func(ctx *KeyedContext[string], tm Timer) error { return Unhandled(ctx, tm, "NoTimers") },
	})
	h.process(command{"a", "", "", 100}, 1)
	h.restart(1, false)
	h.watermark(100)
	if got := strings.Join(h.take(), " "); got != "00.100" {
		t.Errorf("fired %s", got)
	}
	h.process(command{"a", "", "", 200}, 101)
	err := h.tasks[0].in.Watermark(200)
	if err == nil || !strings.Contains(err.Error(), "operator op, subtask 1/1: a timer for 1970-01-01T00:00:00.2Z came due") || !strings.Contains(err.Error(), "RegisterEventTimeTimer at timer_watch_test.go:") {
		t.Errorf("got %v", err)
	}
	h.close()
}
