package stream

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/runtime/graph"
)

// reading is the record of these tests.
type reading struct {
	Sensor string
	At     int64 // ms
	Value  int64
	ID     int64
}

func (r reading) at() time.Time  { return time.UnixMilli(r.At) }
func bySensor(r reading) string  { return r.Sensor }
func total(a, b reading) reading { a.Value += b.Value; return a }

// outputs are the sinks of a program, by name.
type outputs map[string]*collect[string]

func (o outputs) sink(name string) *collect[string] {
	if o[name] == nil { // the program is built twice
		o[name] = &collect[string]{}
	}
	return o[name]
}

func shown[T any](s DataStream[T]) DataStream[string] {
	return s.Map(func(v T) string { return fmt.Sprintf("%+v", v) }).DataStream
}

// sessionsOf emits, when no reading of the sensor came for 70 ms of event time, what it had; state, timers, and a deleted timer.
type sessionsOf struct {
	values ListState[int64]
	due    ValueState[int64]
}

func (s *sessionsOf) Open(rt *RuntimeContext[string]) (err error) {
	if s.values, err = rt.ListState[int64]("values"); err != nil {
		return err
	}
	s.due, err = rt.ValueState[int64]("due")
	return err
}

func (s *sessionsOf) ProcessElement(ctx *KeyedContext[string], v reading, _ *Collector[string]) error {
	old, found, err := s.due.Value()
	if err != nil {
		return err
	}
	due := max(old, v.At+70)
	if found {
		if err := ctx.DeleteEventTimeTimer(time.UnixMilli(old)); err != nil {
			return err
		}
	}
	if err := s.due.Update(due); err != nil {
		return err
	}
	if err := ctx.RegisterEventTimeTimer(time.UnixMilli(due)); err != nil {
		return err
	}
	return s.values.Add(v.Value)
}

func (s *sessionsOf) OnTimer(ctx *KeyedContext[string], t Timer, out *Collector[string]) error {
	values, err := s.values.Get()
	if err != nil {
		return err
	}
	sorted := slices.Sorted(slices.Values(values))
	out.Collect(fmt.Sprint(ctx.Key(), t.At.UnixMilli(), sorted))
	if err := s.due.Clear(); err != nil {
		return err
	}
	return s.values.Clear()
}

func (s *sessionsOf) Close() error { return nil }

// both counts the records of two inputs by key, and emits at the end of the key's event time.
type both struct{ n MapState[string, int64] }

func (b *both) Open(rt *RuntimeContext[string]) (err error) {
	b.n, err = rt.MapState[string, int64]("n")
	return err
}

func (b *both) add(ctx *KeyedContext[string], side string) error {
	n, _, err := b.n.Get(side)
	if err != nil {
		return err
	}
	if err := ctx.RegisterEventTimeTimer(time.UnixMilli(1 << 40)); err != nil {
		return err
	}
	return b.n.Put(side, n+1)
}

func (b *both) ProcessFirst(ctx *KeyedContext[string], _ reading, _ *Collector[string]) error {
	return b.add(ctx, "left")
}

func (b *both) ProcessSecond(ctx *KeyedContext[string], _ reading, _ *Collector[string]) error {
	return b.add(ctx, "right")
}

func (b *both) OnTimer(ctx *KeyedContext[string], _ Timer, out *Collector[string]) error {
	l, _, err := b.n.Get("left")
	if err != nil {
		return err
	}
	r, _, err := b.n.Get("right")
	out.Collect(fmt.Sprint(ctx.Key(), l, r))
	return err
}

func (b *both) Close() error { return nil }

var odd = OutputTag[int64]{ID: "odd"}

// splitting sends odd values aside.
type splitting struct{}

func (splitting) Open(*TaskContext) error { return nil }
func (splitting) ProcessElement(ctx *ProcessContext, v reading, out *Collector[reading]) error {
	if v.Value%2 != 0 {
		ctx.Output(odd, v.Value)
		return nil
	}
	out.Collect(v)
	return nil
}
func (splitting) Close() error { return nil }

// ids emits what comes from where.
type ids struct{}

func (ids) Open(*TaskContext) error { return nil }
func (ids) ProcessFirst(_ *ProcessContext, r reading, out *Collector[string]) error {
	out.Collect(fmt.Sprint("left", r.ID))
	return nil
}

func (ids) ProcessSecond(_ *ProcessContext, r reading, out *Collector[string]) error {
	out.Collect(fmt.Sprint("right", r.ID))
	return nil
}
func (ids) Close() error { return nil }

// everyOperator is a program with operators of all kinds whose results do not depend on the order of records.
func everyOperator(left, right []reading, o outputs) func(*Environment) error {
	return func(env *Environment) error {
		wm := BoundedOutOfOrderness(time.Hour, reading.at) // nothing is late
		in := env.FromCollection(left...).Rebalance().Filter(func(reading) bool { return true }).AssignTimestampsAndWatermarks(wm).DataStream
		other := env.FromCollection(right...).AssignTimestampsAndWatermarks(wm).DataStream
		keyed := in.KeyBy(bySensor)

		shown(in.FlatMap(func(r reading, out *Collector[int64]) error {
			for i := range r.Value % 3 {
				out.Collect(i)
			}
			return nil
		}).DataStream).SinkTo(o.sink("flat map"))
		shown(in.Union(other).Map(func(r reading) int64 { return r.ID }).DataStream).SinkTo(o.sink("union"))
		parts := in.Process(func() ProcessFunction[reading, reading] { return splitting{} })
		shown(parts.DataStream).SinkTo(o.sink("even"))
		shown(parts.GetSideOutput(odd)).SinkTo(o.sink("odd"))

		shown(keyed.Reduce(func(a, b reading) reading { return reading{Sensor: a.Sensor, Value: a.Value + b.Value} }).DataStream).SinkTo(o.sink("last: reduce"))
		keyed.Aggregate(Average(func(r reading) int64 { return r.Value }), func(k string, mean float64) string { return fmt.Sprint(k, " ", mean) }).SinkTo(o.sink("last: average"))

		span := func(name string, w WindowAssigner) {
			keyed.Window(w).ReduceApply(total, func(k string, w TimeWindow, r reading) string {
				return fmt.Sprint(k, w.Start.UnixMilli(), w.End.UnixMilli(), r.Value)
			}).SinkTo(o.sink(name))
			keyed.Window(w).Apply(func(k string, w TimeWindow, rs iter.Seq[reading], out *Collector[string]) error {
				var ids []int64
				for r := range rs {
					ids = append(ids, r.ID)
				}
				slices.Sort(ids)
				out.Collect(fmt.Sprint(k, w.Start.UnixMilli(), w.End.UnixMilli(), ids))
				return nil
			}).SinkTo(o.sink(name + " process"))
		}
		span("tumbling", TumblingEventTime(50*time.Millisecond))
		span("sliding", SlidingEventTime(60*time.Millisecond, 20*time.Millisecond))
		span("session", EventTimeSession(30*time.Millisecond))
		keyed.Window(TumblingEventTime(50 * time.Millisecond)).AllowedLateness(10 * time.Millisecond).Count(func(k string, w TimeWindow, n int64) string {
			return fmt.Sprint(k, w.Start.UnixMilli(), n)
		}).SinkTo(o.sink("lateness"))
		keyed.CountWindow(3).Aggregate(Count[reading](), func(k string, _ TimeWindow, n int64) string { return fmt.Sprint(k, n) }).SinkTo(o.sink("count window"))
		keyed.Window(TumblingEventTime(50 * time.Millisecond)).Evictor(TimeEvictor[reading](10 * time.Millisecond)).Count(func(k string, w TimeWindow, n int64) string {
			return fmt.Sprint(k, w.Start.UnixMilli(), n)
		}).SinkTo(o.sink("evictor"))
		shown(in.Map(func(r reading) reading { r.Sensor = ""; return r }).WindowAll(TumblingEventTime(100 * time.Millisecond)).Reduce(func(a, b reading) reading {
			return reading{Value: a.Value + b.Value, At: min(a.At, b.At)}
		}).DataStream).SinkTo(o.sink("window of all"))

		keyed.Process(func() KeyedProcessFunction[string, reading, string] { return &sessionsOf{} }).SinkTo(o.sink("timers"))
		keyed.Connect(other.KeyBy(bySensor)).Process(func() KeyedCoProcessFunction[string, reading, reading, string] { return &both{} }).SinkTo(o.sink("two inputs"))
		keyed.IntervalJoin(other.KeyBy(bySensor)).Between(-20*time.Millisecond, 10*time.Millisecond).Process(
			func(_ *JoinContext, l, r reading, out *Collector[string]) error {
				out.Collect(fmt.Sprint(l.ID, r.ID))
				return nil
			}).SinkTo(o.sink("interval join"))
		in.Join(other).Where(bySensor).EqualTo(bySensor).Window(TumblingEventTime(50 * time.Millisecond)).Apply(func(l, r reading) string {
			return fmt.Sprint(l.ID, r.ID)
		}).SinkTo(o.sink("window join"))
		in.CoGroup(other).Where(bySensor).EqualTo(bySensor).Window(EventTimeSession(20 * time.Millisecond)).Process(
			func(ctx *WindowContext[string], ls, rs iter.Seq[reading], out *Collector[string]) error {
				out.Collect(fmt.Sprint(ctx.Key(), ctx.Window().Start.UnixMilli(), len(slices.Collect(ls)), len(slices.Collect(rs))))
				return nil
			}).SinkTo(o.sink("coGroup"))
		in.Connect(other).Process(func() CoProcessFunction[reading, reading, string] { return ids{} }).SinkTo(o.sink("two inputs without keys"))
		keyed.Window(TumblingEventTime(100 * time.Millisecond)).Trigger(PurgingTrigger(EventTimeTrigger[reading]())).Count(func(k string, w TimeWindow, n int64) string {
			return fmt.Sprint(k, w.Start.UnixMilli(), n)
		}).SinkTo(o.sink("trigger"))
		in.OrderedWait(Async(func(_ context.Context, r reading) ([]string, error) { return []string{fmt.Sprint(r.ID)}, nil }),
			AsyncOptions[string]{Timeout: time.Minute}).SinkTo(o.sink("async"))
		// A keyed stage behind another: its event times are those that the first one gave.
		keyed.Window(TumblingEventTime(50*time.Millisecond)).Reduce(total).Map(func(r reading) reading { r.Sensor = r.Sensor[:1]; return r }).
			KeyBy(bySensor).Window(TumblingEventTime(200*time.Millisecond)).ReduceApply(total, func(k string, w TimeWindow, r reading) string {
			return fmt.Sprint(k, w.Start.UnixMilli(), r.Value)
		}).SinkTo(o.sink("stages"))
		return nil
	}
}

// final are the results that count: all, or the last of each key where a stream is of updates.
func final(name string, c *collect[string]) []string {
	if !strings.HasPrefix(name, "last: ") {
		return sorted(c)
	}
	last := map[string]string{}
	for _, v := range c.got {
		k, _, _ := strings.Cut(strings.TrimPrefix(v, "{Sensor:"), " ")
		last[k] = v
	}
	var out []string
	for _, v := range last {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

// TestSameResultsInBothModes: the same program has the same final results in STREAMING and in BATCH, whatever the operator, the parallelism
// and the memory for the sort. In BATCH the final results are all there is.
func TestSameResultsInBothModes(t *testing.T) {
	for seed := range uint64(8) { // each is two jobs of some hundred tasks
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { sameResults(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func sameResults(t *testing.T, rnd *rand.Rand) {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	sensors := 1 + rnd.IntN(30)
	draw := func(n int) []reading {
		out := []reading{{Sensor: "s0"}}
		for i := range rnd.IntN(n) {
			out = append(out, reading{Sensor: fmt.Sprintf("%c%d", 'a'+rnd.IntN(3), rnd.IntN(sensors)), At: rnd.Int64N(1000), Value: rnd.Int64N(100), ID: int64(i)})
		}
		return out
	}
	left, right := draw(1500), draw(300)
	conf := map[string]string{
		"parallelism.default":                one("1", "2", "3", "4"),
		"execution.sorted-inputs.memory":     one("32 kb", "1 mb"), // the first is too little for most
		"pipeline.operator-chaining.enabled": one("true", "false"),
		"taskmanager.memory.segment-size":    one("4 kb", "32 kb"),
		"taskmanager.numberOfTaskSlots":      one("1", "4"),
		"execution.buffer-timeout.interval":  one("0 ms", "100 ms"),
	}
	t.Log(len(left), len(right), conf)
	run := func(mode string) outputs {
		o := outputs{}
		c := map[string]string{"execution.runtime-mode": mode}
		maps.Copy(c, conf)
		if err := runJob(t, c, everyOperator(left, right, o)); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		return o
	}
	streaming, batch := run("STREAMING"), run("BATCH")
	for name, s := range streaming {
		want, got := final(name, s), final(name, batch[name])
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d results in BATCH, %d in STREAMING; first difference: %s", name, len(got), len(want), difference(got, want))
		}
		if strings.HasPrefix(name, "last: ") && len(batch[name].got) != len(want) {
			t.Errorf("%s: BATCH emitted %d results for %d keys", name, len(batch[name].got), len(want))
		}
	}
}

func difference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "missing " + want[i]
		case i >= len(want):
			return "more: " + got[i]
		case got[i] != want[i]:
			return got[i] + " instead of " + want[i]
		}
	}
	return ""
}

// A source without an end is refused in BATCH when the graph is built, by name and place; AUTOMATIC chooses.
func TestModeOfAJob(t *testing.T) {
	bounded := func(env *Environment) error {
		env.FromCollection(1, 2, 3).SinkTo(&collect[int]{})
		return nil
	}
	unbounded := func(env *Environment) error {
		s := env.FromSource(datagen.Source(func(n int64) int64 { return n }), NoWatermarks[int64](), "clicks")
		s.Union(env.FromCollection[int64](1)).SinkTo(&collect[int64]{})
		return nil
	}
	for _, c := range []struct {
		mode  string
		build func(*Environment) error
		want  graph.Mode
		err   string
	}{
		{"", bounded, graph.Streaming, ""},
		{"STREAMING", bounded, graph.Streaming, ""},
		{"BATCH", bounded, graph.Batch, ""},
		{"AUTOMATIC", bounded, graph.Batch, ""},
		{"automatic", unbounded, graph.Streaming, ""},
		{"BATCH", unbounded, "", "batch_test.go:"},
	} {
		conf := config.Configuration{}
		if c.mode != "" {
			conf["execution.runtime-mode"] = c.mode
		}
		p, err := program("job", c.build, conf, nil)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "Source: clicks: the source is unbounded") {
				t.Errorf("%s: %v", c.mode, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.mode, err)
		case p.Graph.Mode != c.want:
			t.Errorf("%s: the job runs in %s", c.mode, p.Graph.Mode.Name())
		}
	}
	// The program's own choice, and a submitted one, which wins.
	build := func(env *Environment) error {
		env.SetRuntimeMode(Batch)
		return bounded(env)
	}
	for submitted, want := range map[string]graph.Mode{"batch": graph.Batch, "streaming": graph.Streaming} {
		p, err := program("job", build, config.Configuration{"execution.runtime-mode": submitted}, nil)
		if err != nil || p.Graph.Mode != want {
			t.Errorf("%s: %v", submitted, err)
		}
	}
	if p, err := program("job", build, nil, nil); err != nil || p.Graph.Mode != graph.Batch {
		t.Error(err)
	}
	if _, err := program("job", func(env *Environment) error { env.SetRuntimeMode("fast"); return bounded(env) }, nil, nil); err == nil {
		t.Error("an unknown mode was taken")
	}
}

var _ connector.Sink[string] = (*collect[string])(nil)
