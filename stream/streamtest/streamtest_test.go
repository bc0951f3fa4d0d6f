package streamtest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type event struct {
	Key string
	N   int64
}

func keyOf(e event) string { return e.Key }

// counting sums per key, emits each sum, and clears it an hour (processing time) after the last record of the key.
type counting struct {
	sum  stream.ValueState[int64]
	last stream.ValueState[int64]
	seen stream.MapState[int64, bool]
	log  stream.ListState[int64]
}

func newCounting() stream.KeyedProcessFunction[string, event, event] { return &counting{} }

func (c *counting) Open(rt *stream.RuntimeContext[string]) (err error) {
	var errs [4]error
	c.sum, errs[0] = rt.ValueState[int64]("sum")
	c.last, errs[1] = rt.ValueState[int64]("last")
	c.seen, errs[2] = rt.MapState[int64, bool]("seen", stream.WithTTL(stream.StateTTLConfig{TTL: time.Minute}))
	c.log, errs[3] = rt.ListState[int64]("log")
	return errors.Join(errs[:]...)
}

var negative = stream.NewOutputTag[string]("negative")

func (c *counting) ProcessElement(ctx *stream.KeyedContext[string], v event, out *stream.Collector[event]) error {
	if v.N < 0 {
		ctx.Output(negative, fmt.Sprintf("%s %d", v.Key, v.N))
	}
	if v.N == 13 {
		return errors.New("thirteen")
	}
	n, _, err := c.sum.Value()
	if err != nil {
		return err
	}
	if last, found, err := c.last.Value(); err != nil {
		return err
	} else if found {
		if err := ctx.DeleteProcessingTimeTimer(time.UnixMilli(last)); err != nil {
			return err
		}
	}
	at := ctx.ProcessingTime().Add(time.Hour)
	out.Collect(event{v.Key, n + v.N})
	return errors.Join(c.sum.Update(n+v.N), c.last.Update(at.UnixMilli()), c.seen.Put(v.N, true), c.log.Add(v.N),
		ctx.RegisterProcessingTimeTimer(at), ctx.RegisterEventTimeTimer(streamtest.At(time.Minute)))
}

func (c *counting) OnTimer(ctx *stream.KeyedContext[string], timer stream.Timer, out *stream.Collector[event]) error {
	if timer.EventTime {
		out.Collect(event{ctx.Key() + " at " + timer.At.Format("15:04:05"), 0})
		return nil
	}
	out.Collect(event{ctx.Key() + " cleared", ctx.ProcessingTime().Unix() - timer.At.Unix()})
	return errors.Join(c.sum.Clear(), c.last.Clear())
}

func (c *counting) Close() error { return nil }

func TestKeyedProcessFunctionWithStateTimersAndRestarts(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			h := streamtest.KeyedProcess(t, keyOf, newCounting, streamtest.Backend(backend))
			below := h.SideOutput(negative)
			start := h.Now()
			for i := range int64(5) { // over restarts after the pushes 1 and 3
				h.PushAt(streamtest.At(time.Second), event{"a", i}, event{"b", 10 * i})
			}
			h.Push(event{"a", -3})
			h.Expect(event{"a", 0}, event{"b", 0}, event{"a", 1}, event{"b", 10}, event{"a", 3}, event{"b", 30}, event{"a", 6}, event{"b", 60},
				event{"a", 10}, event{"b", 100}, event{"a", 7})
			below.Expect("a -3")

			if n, found := h.Key("a").Value[int64]("sum"); n != 7 || !found {
				t.Errorf("sum of a: %d, %v", n, found)
			}
			if _, found := h.Key("c").Value[int64]("sum"); found {
				t.Error("c has a sum")
			}
			if l := h.Key("b").List[int64]("log"); !slices.Equal(l, []int64{0, 10, 20, 30, 40}) {
				t.Errorf("log of b: %v", l)
			}
			if m := h.Key("b").Map[int64, bool]("seen"); len(m) != 5 {
				t.Errorf("seen of b: %v", m)
			}
			if at := h.Key("a").ProcessingTimeTimers(); len(at) != 1 || !at[0].Equal(start.Add(time.Hour)) {
				t.Errorf("timers of a: %v", at)
			}
			if at := h.Key("a").EventTimeTimers(); len(at) != 1 || !at[0].Equal(streamtest.At(time.Minute)) {
				t.Errorf("event-time timers of a: %v", at)
			}

			h.Watermark(streamtest.At(59 * time.Second))
			h.Expect()
			h.Restart(3)
			h.Watermark(streamtest.At(61 * time.Second))
			h.ExpectInAnyOrder(event{"a at 00:01:00", 0}, event{"b at 00:01:00", 0})

			h.Advance(2 * time.Minute)
			if m := h.Key("b").Map[int64, bool]("seen"); len(m) != 0 {
				t.Errorf("seen of b lives after its time: %v", m)
			}
			h.Advance(time.Hour) // the function sees the time of its timer, not that of the end
			h.ExpectInAnyOrder(event{"a cleared", 0}, event{"b cleared", 0})
			if _, found := h.Key("a").Value[int64]("sum"); found {
				t.Error("a still has a sum")
			}
			h.Push(event{"a", 1}) // its event-time timer is in the past: it fires with the next watermark
			h.Watermark(streamtest.At(62 * time.Second))
			h.Expect(event{"a", 1}, event{"a at 00:01:00", 0})
		})
	}
}

func TestASnapshotStartsAnotherHarness(t *testing.T) {
	h := streamtest.KeyedProcess(t, keyOf, newCounting)
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		h.Push(event{k, 5})
	}
	b := h.Snapshot()
	h.Push(event{"a", 100})
	again := streamtest.KeyedProcess(t, keyOf, newCounting, streamtest.FromSnapshot(b), streamtest.Parallelism(4), streamtest.Backend("pebble"))
	again.Push(event{"a", 1}, event{"e", 2})
	again.ExpectInAnyOrder(event{"a", 6}, event{"e", 7})
}

// State that no operator claims is told, with the key that leaves it behind.
func TestASnapshotOfWhatIsGone(t *testing.T) {
	program := func(uid string) func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
		return func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
			return in.KeyBy(keyOf).Process(newCounting).UID(uid)
		}
	}
	h := streamtest.New(t, program("one"))
	h.Push(event{"a", 5})
	b := h.Snapshot()
	const key = "execution.state-recovery.ignore-unclaimed-state"
	if err := streamtest.New(t, program("other"), streamtest.FromSnapshot(b)).TryPush(event{"a", 1}); err == nil || !strings.Contains(err.Error(), key+"=true") {
		t.Errorf("got %v, want %s", err, key)
	}
	again := streamtest.New(t, program("other"), streamtest.FromSnapshot(b), streamtest.Config(key, "true"))
	again.Push(event{"a", 1})
	again.Expect(event{"a", 1})
}

func TestAFailureNamesTheOperator(t *testing.T) {
	h := streamtest.KeyedProcess(t, keyOf, newCounting)
	err := h.TryPush(event{"a", 13})
	if err == nil || !strings.Contains(err.Error(), "thirteen") || !strings.Contains(err.Error(), "KeyedProcess") {
		t.Fatalf("error: %v", err)
	}
	if err := h.TryPush(event{"a", 1}); err == nil || !strings.Contains(err.Error(), "failed already") {
		t.Fatalf("a failed job takes records: %v", err)
	}
}

// forgetful keeps its sum in a field.
type forgetful struct {
	stream.NoTimers[string, int64]
	sum int64
}

func (f *forgetful) Open(*stream.RuntimeContext[string]) error { return nil }
func (f *forgetful) ProcessElement(_ *stream.KeyedContext[string], v event, out *stream.Collector[int64]) error {
	f.sum += v.N
	out.Collect(f.sum)
	return nil
}

func TestStateInFieldsIsLost(t *testing.T) {
	newFn := func() stream.KeyedProcessFunction[string, event, int64] { return &forgetful{} }
	h := streamtest.KeyedProcess(t, keyOf, newFn)
	for range 3 {
		h.Push(event{"a", 1})
	}
	h.Expect(1, 1, 2)
	h = streamtest.KeyedProcess(t, keyOf, newFn, streamtest.NoRestarts())
	for range 3 {
		h.Push(event{"a", 1})
	}
	h.Expect(1, 2, 3)
}

// rules keeps events whose number is at least the broadcast minimum of their key.
type rules struct{ stream.Plain }

var minimum = stream.NewMapStateDescriptor[string, int64]("minimum")

func (rules) ProcessElement(ctx *stream.ReadOnlyContext, v event, out *stream.Collector[event]) error {
	s, err := ctx.BroadcastState(minimum)
	if err != nil {
		return err
	}
	if least, found := s.Get(v.Key); !found || v.N < least {
		return nil
	}
	out.Collect(v)
	return nil
}

func (rules) ProcessBroadcastElement(ctx *stream.BroadcastContext, v event, _ *stream.Collector[event]) error {
	s, err := ctx.BroadcastState(minimum)
	if err != nil {
		return err
	}
	s.Put(v.Key, v.N)
	return nil
}

func TestTwoInputs(t *testing.T) {
	h := streamtest.BroadcastProcess(t, []stream.StateDescriptor{minimum}, func() stream.BroadcastProcessFunction[event, event, event] { return rules{} }, streamtest.Parallelism(2))
	h.First.Push(event{"a", 5})
	h.Second.Push(event{"a", 3})
	h.First.Push(event{"a", 2}, event{"a", 3}, event{"b", 9})
	h.Expect(event{"a", 3})
	h.Restart(3)
	h.First.Push(event{"a", 2}, event{"a", 4})
	h.Expect(event{"a", 4})
}

func TestWindowsOfAPiece(t *testing.T) {
	late := stream.NewOutputTag[event]("late")
	h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
		return in.Filter(func(e event) bool { return e.N > 0 }).KeyBy(keyOf).Window(stream.TumblingEventTime(time.Minute)).SideOutputLateData(late).
			Reduce(func(a, b event) event { return event{a.Key, a.N + b.N} })
	}, streamtest.Parallelism(2))
	dropped := h.SideOutput(late)
	at := func(s int) time.Time { return streamtest.At(time.Duration(s) * time.Second) }
	h.PushAt(at(1), event{"a", 1}, event{"b", 2}, event{"a", -9})
	h.PushAt(at(50), event{"a", 3})
	h.PushAt(at(61), event{"a", 4})
	h.Watermark(at(59))
	h.Expect()
	h.Watermark(at(60))
	h.ExpectInAnyOrder(event{"a", 4}, event{"b", 2})
	h.PushAt(at(2), event{"b", 7})
	dropped.Expect(event{"b", 7})
	h.End()
	if r := h.Out.Records(); len(r) != 1 || r[0].Value != (event{"a", 4}) || !r[0].At.Equal(at(120).Add(-time.Millisecond)) {
		t.Errorf("the last window: %v", r)
	}
}

// reported keeps what its windows emitted, by window, and the number of all windows of the key.
type reported struct {
	stream.PlainWindow[string]
	sums stream.ListState[int64]
	ends stream.MapState[int64, bool]
	most stream.ReducingState[int64]
	all  stream.ValueState[int64]
}

func (f *reported) Open(rt *stream.WindowRuntimeContext[string]) (err error) {
	var errs [4]error
	f.sums, errs[0] = rt.WindowListState[int64]("sums")
	f.ends, errs[1] = rt.WindowMapState[int64, bool]("ends")
	f.most, errs[2] = rt.WindowReducingState("most", func(a, b int64) int64 { return max(a, b) })
	f.all, errs[3] = rt.ValueState[int64]("all")
	return errors.Join(errs[:]...)
}

func (f *reported) Process(ctx *stream.WindowContext[string], sums iter.Seq[event], out *stream.Collector[event]) error {
	n, _, err := f.all.Value()
	for e := range sums {
		err = errors.Join(err, f.sums.Add(e.N), f.most.Add(e.N), f.ends.Put(e.N, true), f.all.Update(n+1))
		out.Collect(e)
	}
	return err
}

// The harness shows the state of each window, until it is gone.
func TestPerWindowStateOfAPiece(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[event] {
			return in.KeyBy(keyOf).Window(stream.TumblingEventTime(time.Minute)).AllowedLateness(time.Minute).
				ReduceProcess(func(a, b event) event { return event{a.Key, a.N + b.N} },
					func() stream.ProcessWindowFunction[string, event, event] { return &reported{} }).UID("totals")
		}, streamtest.Parallelism(2), streamtest.Backend(backend))
		at := func(s int) time.Time { return streamtest.At(time.Duration(s) * time.Second) }
		key := streamtest.Key(h.Job, "totals", "a")
		first, second := key.Window(at(0)), key.Window(at(60))
		h.PushAt(at(1), event{"a", 5})
		h.Watermark(at(60))
		h.PushAt(at(2), event{"a", -3})
		h.PushAt(at(61), event{"a", 4})
		h.Watermark(at(119))
		h.Expect(event{"a", 5}, event{"a", 2})
		if got := first.List[int64]("sums"); !slices.Equal(got, []int64{5, 2}) {
			t.Errorf("sums of the first window: %v", got)
		}
		if most, found := first.Reducing[int64]("most"); most != 5 || !found {
			t.Errorf("most of the first window: %v %v", most, found)
		}
		if got := first.Map[int64, bool]("ends"); len(got) != 2 || len(second.Map[int64, bool]("ends")) != 0 {
			t.Errorf("ends of the first window: %v", got)
		}
		h.Watermark(at(120))
		h.Expect(event{"a", 4})
		if got := len(first.List[int64]("sums")) + len(first.Map[int64, bool]("ends")); got != 0 {
			t.Errorf("the first window is gone and has %d entries", got)
		}
		if got := second.List[int64]("sums"); !slices.Equal(got, []int64{4}) {
			t.Errorf("sums of the second window: %v", got)
		}
		if n, _ := key.Value[int64]("all"); n != 3 {
			t.Errorf("all windows: %d", n)
		}
	}
}

func TestWhatIsAnsweredBetweenASnapshotAndTheRestartIsCountedOnce(t *testing.T) {
	for range 50 {
		h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[int64] {
			return in.UnorderedWait(stream.Async(func(_ context.Context, e event) ([]int64, error) {
				return []int64{e.N}, nil
			}), stream.AsyncOptions[int64]{Timeout: time.Minute})
		})
		var want []int64
		for n := range int64(40) {
			h.Push(event{"a", n})
			want = append(want, n)
			if n%8 == 0 {
				h.Restart(1 + int(n/8)%4)
			}
		}
		h.End()
		h.ExpectInAnyOrder(want...)
	}
}

func TestAsynchronousFunctions(t *testing.T) {
	answer := make(chan int64)
	h := streamtest.New(t, func(in stream.DataStream[event]) stream.SingleOutputStreamOperator[int64] {
		return in.OrderedWait(stream.Async(func(ctx context.Context, e event) ([]int64, error) {
			select {
			case n := <-answer:
				return []int64{e.N * n}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), stream.AsyncOptions[int64]{Timeout: time.Minute})
	})
	h.Push(event{"a", 1}, event{"b", 2}) // in flight over a restart
	h.Expect()
	answer <- 10
	answer <- 10
	h.Await(func() bool { return len(h.Out.Records()) == 2 })
	h.Expect(10, 20)
	h.Push(event{"c", 3})
	go func() { answer <- 10 }()
	h.End()
	h.Expect(30)
}

// totals is a whole program.
func totals(env *stream.Environment) error {
	least := int64(0)
	if len(env.Args()) > 0 {
		least = int64(len(env.Args()[0]))
	}
	env.FromCollection(event{"a", 1}, event{"b", 2}, event{"a", 3}).
		Filter(func(e event) bool { return e.N >= least }).
		KeyBy(keyOf).Reduce(func(a, b event) event { return event{a.Key, a.N + b.N} }).UID("sums").
		SinkTo(nowhere{}).Name("out").UID("sums-out")
	return nil
}

func TestAWholeProgram(t *testing.T) {
	var out streamtest.Output[event]
	j := streamtest.Start(t, totals, streamtest.Sink("sums-out", &out), streamtest.Args("xx"))
	j.End()
	out.ExpectInAnyOrder(event{"b", 2}, event{"a", 3})
}

// A program for BATCH runs as it would in STREAMING: its stages need not wait for each other.
func TestAProgramForBatch(t *testing.T) {
	var numbers streamtest.Input[int]
	var more, less streamtest.Output[int]
	j := streamtest.Start(t, func(env *stream.Environment) error {
		env.SetRuntimeMode(stream.Batch)
		s := env.FromCollection(0).UID("numbers").Map(func(n int) int { return 10 * n }).Cache()
		s.Map(func(n int) int { return n + 1 }).DisableChaining().SinkTo(more.Sink())
		s.Map(func(n int) int { return n - 1 }).DisableChaining().SinkTo(less.Sink())
		return nil
	}, streamtest.Source("numbers", &numbers))
	numbers.Push(1)
	more.Expect(11)
	less.Expect(9)
	numbers.Push(2)
	j.End()
	more.Expect(21)
	less.Expect(19)
}

func TestInputsInPlaceOfSources(t *testing.T) {
	build := func(env *stream.Environment) error {
		env.FromSource(endless[event]{}, stream.BoundedOutOfOrderness(10*time.Second, func(e event) time.Time { return streamtest.At(time.Duration(e.N) * time.Second) }), "events").
			KeyBy(keyOf).Window(stream.TumblingEventTime(time.Minute)).Count(func(k string, _ stream.TimeWindow, n int64) event { return event{k, n} }).
			SinkTo(nowhere{}).Name("counts")
		return nil
	}
	var in streamtest.Input[event]
	var out streamtest.Output[event]
	streamtest.Start(t, build, streamtest.Source("events", &in), streamtest.Sink("counts", &out))
	for i := range int64(70) { // many restarts, at parallelism 1 to 4
		in.Push(event{"a", i})
	}
	out.Expect() // the watermark is at 58.999
	in.Push(event{"b", 71})
	out.Expect(event{"a", 60})
	in.Push(event{"a", 59}) // too late
	in.End()
	out.ExpectInAnyOrder(event{"a", 10}, event{"b", 1})
}

// failing stands in for a test that fails.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(f)
}
func (f *failing) Errorf(format string, args ...any) { f.said = fmt.Sprintf(format, args...) }

func said(t *testing.T, fn func(t testing.TB)) string {
	f := &failing{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		fn(f)
	}()
	return f.said
}

func TestMistakesAreTold(t *testing.T) {
	endlessProgram := func(env *stream.Environment) error {
		env.FromSource(endless[event]{}, stream.NoWatermarks[event](), "events").SinkTo(nowhere{}).Name("out")
		return nil
	}
	for want, fn := range map[string]func(t testing.TB){
		`put an Input in its place, with streamtest.Source("events"`: func(t testing.TB) { streamtest.Start(t, endlessProgram) },
		`no sink with the UID or name "nowhere"`: func(t testing.TB) {
			streamtest.Start(t, totals, streamtest.Sink("nowhere", &streamtest.Output[event]{}))
		},
		"its records are not string": func(t testing.TB) {
			streamtest.Start(t, totals, streamtest.Sink("sums-out", &streamtest.Output[string]{}))
		},
		"it has: last, log, seen, sum": func(t testing.TB) {
			h := streamtest.KeyedProcess(t, keyOf, newCounting)
			h.Push(event{"a", 1})
			h.Key("a").Value[int64]("Sum")
		},
		"restarted after push 1, push 3 (": func(t testing.TB) {
			h := streamtest.KeyedProcess(t, keyOf, func() stream.KeyedProcessFunction[string, event, int64] { return &forgetful{} })
			for range 4 {
				h.Push(event{"a", 1})
			}
			h.Expect(1, 2, 3, 4)
		},
		"\n    {Key:a N:1}\n  - {Key:a N:3}\n  + {Key:a N:2}": func(t testing.TB) {
			h := streamtest.KeyedProcess(t, keyOf, newCounting)
			h.Push(event{"a", 1}, event{"a", 1})
			h.Expect(event{"a", 1}, event{"a", 3})
		},
	} {
		if got := said(t, fn); !strings.Contains(got, want) {
			t.Errorf("said %q, not %q", got, want)
		}
	}
}

// A program's own bounded sources stay at their end after each restart: the job ends, and what waits for their watermark goes on.
func TestBoundedSourcesEndAgainAfterRestarts(t *testing.T) {
	sources := map[string]func(env *stream.Environment) stream.DataStreamSource[int64]{
		"collection": func(env *stream.Environment) stream.DataStreamSource[int64] {
			return env.FromCollection[int64](100, 200)
		},
		"sequence": func(env *stream.Environment) stream.DataStreamSource[int64] { return env.FromSequence(100, 101) },
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			var in streamtest.Input[int64]
			var out streamtest.Output[int64]
			strategy := stream.MonotonousTimestamps(func(int64) time.Time { return time.UnixMilli(0) })
			j := streamtest.Start(t, func(env *stream.Environment) error {
				bounded := source(env).AssignTimestampsAndWatermarks(strategy)
				in.Stream(env).Union(bounded).KeyBy(func(int64) int { return 0 }).
					Window(stream.TumblingEventTime(10 * time.Second)).Count(func(_ int, _ stream.TimeWindow, n int64) int64 { return n }).
					SinkTo(out.Sink())
				return nil
			})
			in.PushAt(time.UnixMilli(1000), 1)
			j.Restart(3)
			j.Restart(1)
			in.Watermark(time.UnixMilli(20_000))
			if got := out.Take(); !slices.Equal(got, []int64{3}) {
				t.Errorf("when the watermark passed: %v, want [3]", got)
			}
			j.End()
		})
	}
}
