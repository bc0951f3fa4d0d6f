package stream

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// forgetful registers a timer and has nothing to do when it is due.
type forgetful struct {
	NoTimers[string, string]
	register func(ctx *KeyedContext[string]) error
}

func (*forgetful) Open(*RuntimeContext[string]) error { return nil }

func (f *forgetful) ProcessElement(ctx *KeyedContext[string], _ string, _ *Collector[string]) error {
	return f.register(ctx)
}

// forgetfulBroadcast is forgetful beside a broadcast stream.
type forgetfulBroadcast struct {
	NoBroadcastTimers[string, string]
	register func(ctx *KeyedContext[string]) error
}

func (*forgetfulBroadcast) Open(*RuntimeContext[string]) error { return nil }

func (f *forgetfulBroadcast) ProcessElement(ctx *KeyedReadOnlyContext[string], _ string, _ *Collector[string]) error {
	return f.register(ctx.KeyedContext)
}

func (*forgetfulBroadcast) ProcessBroadcastElement(*KeyedBroadcastContext[string], int, *Collector[string]) error {
	return nil
}

// A timer of a function that embeds NoTimers is not lost in silence: the job fails for good when it is due, and says who registered it.
func TestTimersOfAFunctionWithoutThem(t *testing.T) {
	byTime := func(ctx *KeyedContext[string]) error { return ctx.RegisterEventTimeTimer(time.UnixMilli(5)) }
	byClock := func(ctx *KeyedContext[string]) error { return ctx.RegisterProcessingTimeTimer(ctx.ProcessingTime()) }
	for name, c := range map[string]struct {
		build func(env *Environment)
		want  string
	}{
		"in event time": {func(env *Environment) {
			forget(env, byTime)
		}, "embeds NoTimers, whose OnTimer stands for a function without timers. RegisterEventTimeTimer at timers_test.go:"},
		"in processing time": {func(env *Environment) {
			forget(env, byClock)
		}, "embeds NoTimers, whose OnTimer stands for a function without timers. RegisterProcessingTimeTimer at timers_test.go:"},
		"beside a broadcast stream": {func(env *Environment) {
			rules := env.FromCollection(1).BroadcastState(NewMapStateDescriptor[string, int]("rules"))
			env.FromCollection("a").KeyBy(func(s string) string { return s }).ConnectBroadcast[int](rules).
				Process(func() KeyedBroadcastProcessFunction[string, string, int, string] {
					return &forgetfulBroadcast{register: byTime}
				}).Print()
		}, "embeds NoBroadcastTimers, whose OnTimer stands for a function without timers. RegisterEventTimeTimer at timers_test.go:"},
	} {
		for _, conf := range keyModes {
			err := runJob(t, maps.Clone(conf), func(env *Environment) error { c.build(env); return nil })
			for _, want := range []string{" at timers_test.go:", c.want, "No restart: the failure is not one"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %v: %v, want %q", name, conf, err, want)
				}
			}
		}
	}
}

func forget(env *Environment, register func(ctx *KeyedContext[string]) error) {
	env.FromCollection("a").KeyBy(func(s string) string { return s }).
		Process(func() KeyedProcessFunction[string, string, string] { return &forgetful{register: register} }).Print()
}
