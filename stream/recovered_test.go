package stream

import (
	"iter"
	"strings"
	"testing"
	"time"
)

// deadLetters is where functions send what they could not handle.
var deadLetters = NewOutputTag[int]("dead letters")

// careful recovers what panics during its calls, as a function does that sends bad records to a side output.
type careful struct{ Plain }

func (careful) ProcessElement(ctx *ProcessContext, v int, out *Collector[int]) error {
	defer func() {
		if r := recover(); r != nil {
			ctx.Output(deadLetters, v)
		}
	}()
	if v == 1 {
		panic("a mistake of its own, which is its own business")
	}
	out.Collect(v)
	return nil
}

// sending does so for what reads its side output.
type sending struct{ Plain }

func (sending) ProcessElement(ctx *ProcessContext, v int, out *Collector[int]) error {
	defer func() { _ = recover() }()
	ctx.Output(deadLetters, v)
	return nil
}

// carefulWindow does so when a window fires.
type carefulWindow struct{ PlainWindow[int] }

func (carefulWindow) Process(_ *WindowContext[int], vs iter.Seq[int], out *Collector[int]) error {
	defer func() { _ = recover() }()
	for v := range vs {
		out.CollectAt(v, 1)
	}
	return nil
}

func brokenBy3(v int) int {
	if v == 3 {
		panic("three")
	}
	return v
}

// A function that recovers panics does not swallow that of an operator behind it: its record would be lost in silence.
func TestRecoveredPanicOfAnotherOperator(t *testing.T) {
	newCareful := func() ProcessFunction[int, int] { return careful{} }
	for name, c := range map[string]struct {
		build func(in DataStream[int])
	}{
		"flatMap": {func(in DataStream[int]) {
			in.FlatMap(func(v int, out *Collector[int]) error {
				defer func() { _ = recover() }()
				out.Collect(v)
				return nil
			}).Map(brokenBy3).Print()
		}},
		"process, which goes on": {func(in DataStream[int]) { in.Process(newCareful).Map(brokenBy3).Print() }},
		"a key function, before the exchange": {func(in DataStream[int]) {
			in.Process(newCareful).KeyBy(brokenBy3).Sum(func(v *int) *int { return v }).Print()
		}},
		"a side output": {func(in DataStream[int]) {
			in.Process(func() ProcessFunction[int, int] { return sending{} }).GetSideOutput(deadLetters).Map(brokenBy3).Print()
		}},
		"a window": {func(in DataStream[int]) {
			in.AssignTimestampsAndWatermarks(MonotonousTimestamps(func(v int) time.Time { return time.UnixMilli(int64(v)) })).
				KeyBy(func(int) int { return 0 }).Window(TumblingEventTime(time.Second)).
				Process(func() ProcessWindowFunction[int, int, int] { return carefulWindow{} }).Map(brokenBy3).Print()
		}},
	} {
		err := runJob(t, nil, func(env *Environment) error { c.build(env.FromCollection(1, 2, 3, 4, 5).DataStream); return nil })
		for _, want := range []string{" at recovered_test.go:", "recovered a panic that came out of Collect or Output", "behind it"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// What a function recovers of its own panics is its own business.
func TestRecoveredPanicOfItsOwn(t *testing.T) {
	out := &collect[int]{}
	if err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection(1, 2).Process(func() ProcessFunction[int, int] { return careful{} })
		s.GetSideOutput(deadLetters).Union(s.DataStream).SinkTo(out)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := sorted(out); len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("got %v", got)
	}
}
