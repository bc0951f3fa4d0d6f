package stream

import (
	"sync/atomic"
	"testing"
	"time"
)

// A constructor that gives all subtasks one instance is told when the graph is built, with its line, whatever the kind of function.
func TestSharedInstanceIsToldWithItsLine(t *testing.T) {
	const same = ": the constructor returns the same instance each time: each subtask needs its own"
	ints := func(env *Environment) DataStreamSource[int] { return env.FromCollection(1, 2) }
	keyed := func(env *Environment) KeyedStream[int, int] { return ints(env).KeyBy(func(i int) int { return i }) }
	windows := func(env *Environment) WindowedStream[int, int] { return keyed(env).Window(TumblingEventTime(1e9)) }
	all := func(env *Environment) AllWindowedStream[int] { return ints(env).WindowAll(TumblingEventTime(1e9)) }
	add := func(a, b int) int { return a + b }
	shared := &struct {
		ProcessFunction[int, int]
	}{}
	async := &struct{ AsyncFunction[int, int] }{}
	trigger := &struct{ Trigger[int] }{}
	win := &struct {
		ProcessWindowFunction[int, int, int]
	}{}
	allWin := &struct {
		ProcessAllWindowFunction[int, int]
	}{}
	gen := &struct{ WatermarkGenerator[int] }{}
	newWin := func() ProcessWindowFunction[int, int, int] { return win }
	newAll := func() ProcessAllWindowFunction[int, int] { return allWin }
	newAsync := func() AsyncFunction[int, int] { return async }
	newTrigger := func() Trigger[int] { return trigger }
	tellMistakes(t, "shared_test.go", map[string]mistaken{
		"process": {"Process" + same, func(e *Environment) {
			ints(e).Process(func() ProcessFunction[int, int] { return shared }) // wrong
		}},
		"keyed process": {"Process" + same, func(e *Environment) {
			f := &struct {
				KeyedProcessFunction[int, int, int]
			}{}
			keyed(e).Process(func() KeyedProcessFunction[int, int, int] { return f }) // wrong
		}},
		"co-process": {"Process" + same, func(e *Environment) {
			f := &struct {
				CoProcessFunction[int, int, int]
			}{}
			ints(e).Connect(ints(e)).Process(func() CoProcessFunction[int, int, int] { return f }) // wrong
		}},
		"keyed co-process": {"Process" + same, func(e *Environment) {
			f := &struct {
				KeyedCoProcessFunction[int, int, int, int]
			}{}
			keyed(e).Connect(keyed(e)).Process(func() KeyedCoProcessFunction[int, int, int, int] { return f }) // wrong
		}},
		"broadcast": {"Process" + same, func(e *Environment) {
			f := &struct {
				BroadcastProcessFunction[int, int, int]
			}{}
			ints(e).ConnectBroadcast(ints(e).BroadcastState()).Process(func() BroadcastProcessFunction[int, int, int] { return f }) // wrong
		}},
		"keyed broadcast": {"Process" + same, func(e *Environment) {
			f := &struct {
				KeyedBroadcastProcessFunction[int, int, int, int]
			}{}
			keyed(e).ConnectBroadcast(ints(e).BroadcastState()).Process(func() KeyedBroadcastProcessFunction[int, int, int, int] { return f }) // wrong
		}},
		"window":           {"Process" + same, func(e *Environment) { windows(e).Process(newWin) }},                              // wrong
		"window reduce":    {"ReduceProcess" + same, func(e *Environment) { windows(e).ReduceProcess(add, newWin) }},             // wrong
		"window aggregate": {"AggregateProcess" + same, func(e *Environment) { windows(e).AggregateProcess(Sum(one1), newWin) }}, // wrong
		"all windows":      {"Process" + same, func(e *Environment) { all(e).Process(newAll) }},                                  // wrong
		"ordered": {"OrderedWait" + same, func(e *Environment) {
			ints(e).OrderedWait(newAsync, AsyncOptions[int]{Timeout: time.Second}) // wrong
		}},
		"unordered": {"UnorderedWait" + same, func(e *Environment) {
			ints(e).UnorderedWait(newAsync, AsyncOptions[int]{Timeout: time.Second}) // wrong
		}},
		"trigger":         {"CustomTrigger" + same, func(e *Environment) { windows(e).Trigger(CustomTrigger(newTrigger)) }},                 // wrong
		"purging trigger": {"CustomTrigger" + same, func(e *Environment) { windows(e).Trigger(PurgingTrigger(CustomTrigger(newTrigger))) }}, // wrong
		"generator": {"ForGenerator: the constructor returns the same instance each time: each split needs its own", func(e *Environment) {
			ints(e).AssignTimestampsAndWatermarks(ForGenerator(func() WatermarkGenerator[int] { return gen }, func(int) time.Time { return time.Unix(0, 0) })) // wrong
		}},
	})
}

func one1(i int) int { return i }

// numbered has a number of its own.
type numbered struct {
	Plain
	n int64
}

func (f *numbered) ProcessElement(_ *ProcessContext, v int, out *Collector[int]) error {
	out.Collect(v)
	return nil
}

// empty holds nothing: two of it may have one address.
type empty struct{ Plain }

func (*empty) ProcessElement(_ *ProcessContext, v int, out *Collector[int]) error {
	out.Collect(v)
	return nil
}

// A constructor may have effects, and what has no size may share its address; a value is a copy each time.
func TestNotSharedInstances(t *testing.T) {
	var made atomic.Int64
	e := &empty{}
	err := runJob(t, map[string]string{"parallelism.default": "2"}, func(env *Environment) error {
		env.FromCollection(1, 2, 3).
			Process(func() ProcessFunction[int, int] { return &numbered{n: made.Add(1)} }).
			Process(func() ProcessFunction[int, int] { return e }).
			Process(func() ProcessFunction[int, int] { return struct{ ProcessFunction[int, int] }{e} }).
			SinkTo(&collect[int]{})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
