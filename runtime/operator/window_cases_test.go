package operator

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

func caseFactory(t testing.TB, a WindowAssigner[reading], lateness int64, trigger func() Trigger[reading]) Factory {
	c := refConfig{assigner: a, lateness: lateness}
	f := c.factory(t)
	if trigger == nil {
		return f
	}
	return AggregateWindow(WindowSpec[string, reading]{Key: sensorKey(t), Assigner: a, Lateness: lateness, Trigger: trigger}, func() WindowFunctions[string, reading, int64, string] {
		return WindowFunctions[string, reading, int64, string]{
			Add:   func(acc *int64, r reading, _ bool) { *acc += r.Value },
			Merge: func(a, b int64) int64 { return a + b },
			Emit: func(k string, w Window, acc *int64, out *Collector[string]) error {
				out.Collect(fmt.Sprint(k, w, *acc))
				return nil
			},
		}
	})
}

func tumbling(size, offset int64) WindowAssigner[reading] {
	return WindowAssigner[reading]{EventTime: true, Sliding: Sliding{size, size, offset}}
}

func sessionsOf(gap int64) WindowAssigner[reading] {
	return WindowAssigner[reading]{EventTime: true, Kind: SessionWindows, Session: Session[reading]{Gap: gap}}
}

// A record before 1970 is in the window before it, not after it. Source: FLINK-26334.
func TestNegativeTimesAreInTheirWindow(t *testing.T) {
	h := newHarness[reading, string](t, caseFactory(t, tumbling(7000, 0), 0, nil), "hashmap", 1, sensorHash(t))
	defer h.close()
	h.process(reading{"s", 1}, -8000)
	h.watermark(MaxWatermark)
	if got := h.take(); !slices.Equal(got, []string{"s{-14000 -7000} 1 1"}) {
		t.Fatalf("got %q", got)
	}
}

// A window with an offset fires at its own end. Source: FLINK-36664.
func TestOffsetCountsForTheFiring(t *testing.T) {
	h := newHarness[reading, string](t, caseFactory(t, tumbling(10_000, 4000), 0, nil), "hashmap", 1, sensorHash(t))
	defer h.close()
	h.process(reading{"s", 1}, 5000)
	h.watermark(10_000)
	h.process(reading{"s", 1}, 13_000)
	h.watermark(13_998)
	if got := h.take(); len(got) != 0 {
		t.Fatalf("got %q before the end", got)
	}
	h.watermark(13_999)
	h.watermark(MaxWatermark)
	if got := h.take(); !slices.Equal(got, []string{"s{4000 14000} 2 2"}) {
		t.Fatalf("got %q", got)
	}
}

// A record that overlaps a session that is gone makes one of its own, as long as its own window is not over. Source: Flink; Beam 18677.
func TestSessionAfterAnotherThatIsGone(t *testing.T) {
	h := newHarness[reading, string](t, caseFactory(t, sessionsOf(5), 0, nil), "hashmap", 1, sensorHash(t))
	defer h.close()
	h.process(reading{"s", 1}, 0)
	h.watermark(6)
	h.process(reading{"s", 2}, 3)
	h.watermark(8)
	if got := h.take(); !slices.Equal(got, []string{"s{0 5} 1 1", "s{3 8} 2 1"}) {
		t.Fatalf("got %q", got)
	}
	// Late rows are not put into the next session. Source: hazelcast-jet 747.
	h.process(reading{"s", 3}, 11)
	h.process(reading{"s", 4}, 3)
	h.watermark(MaxWatermark)
	if got := h.take(); !slices.Equal(got, []string{"s{11 16} 3 1"}) {
		t.Fatalf("got %q", got)
	}
	if n := h.counted("numLateRecordsDropped"); n != 1 {
		t.Fatalf("%d late records", n)
	}
}

// misnamed is a window function that opens states.
type misnamed struct {
	open func(*WindowRuntimeContext[string]) error
}

func (m *misnamed) Open(rt *WindowRuntimeContext[string]) error { return m.open(rt) }
func (m *misnamed) Process(*WindowContext[string], iter.Seq[reading], *Collector[string]) error {
	return nil
}
func (m *misnamed) Clear(*WindowContext[string]) error { return nil }
func (m *misnamed) Close() error                       { return nil }

// Two states of one name and different types are refused with both places, in window functions and in triggers, too.
func TestWindowStateMistakes(t *testing.T) {
	open := func(spec WindowSpec[string, reading], f func(*WindowRuntimeContext[string]) error) error {
		ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Mark: &Marker{}, Metrics: noMetrics{}}
		spec.Key = sensorKey(t)
		op, err := ProcessWindow(spec, func() ProcessWindowFunction[string, reading, string] { return &misnamed{open: f} }).New(ctx, Receiver[string](&sink[string]{}))
		if err != nil {
			t.Fatal(err)
		}
		err = op.Open(t.Context())
		return cmp.Or(err, op.Close())
	}
	plain := func(*WindowRuntimeContext[string]) error { return nil }
	trigger := func(f func(*TriggerRuntime) error) WindowSpec[string, reading] {
		return WindowSpec[string, reading]{Assigner: tumbling(10, 0), Trigger: func() Trigger[reading] { return opening{NewNeverTrigger[reading](), f} }}
	}
	own := WindowSpec[string, reading]{Assigner: tumbling(10, 0)}
	merging := func(f func(*WindowRuntimeContext[string]) error) error {
		err := open(WindowSpec[string, reading]{Assigner: sessionsOf(10)}, f)
		if err == nil || !strings.Contains(err.Error(), "per-window state is not possible with windows that merge") {
			t.Errorf("got %v for windows that merge", err)
		}
		return err
	}
	for want, err := range map[string]error{
		`state "x" is opened as WindowValueState[int64] at window_cases_test.go:`: open(own, func(rt *WindowRuntimeContext[string]) error {
			return errors.Join(second(rt.WindowValueState[int64]("x")), second(rt.WindowValueState[string]("x")))
		}),
		`state "x", opened at window_cases_test.go:`: open(own, func(rt *WindowRuntimeContext[string]) error { return second(rt.WindowValueState[func()]("x")) }),
		`state "v", opened at window_cases_test.go:`: merging(func(rt *WindowRuntimeContext[string]) error { return second(rt.WindowValueState[int64]("v")) }),
		`state "l", opened at window_cases_test.go:`: merging(func(rt *WindowRuntimeContext[string]) error { return second(rt.WindowListState[int64]("l")) }),
		`state "m", opened at window_cases_test.go:`: merging(func(rt *WindowRuntimeContext[string]) error { return second(rt.WindowMapState[int64, int64]("m")) }),
		`state "r", opened at window_cases_test.go:`: merging(func(rt *WindowRuntimeContext[string]) error {
			return second(rt.WindowReducingState("r", func(a, b int64) int64 { return a + b }))
		}),
		`state "a", opened at window_cases_test.go:`: merging(func(rt *WindowRuntimeContext[string]) error {
			return second(rt.WindowAggregatingState("a", averaging{}))
		}),
		`state "x" is opened as WindowListState[int64] at window_cases_test.go:`: open(own, func(rt *WindowRuntimeContext[string]) error {
			return errors.Join(second(rt.WindowListState[int64]("x")), second(rt.WindowMapState[int64, int64]("x")))
		}),
		`the reduce function is nil`: open(own, func(rt *WindowRuntimeContext[string]) error { return second(rt.WindowReducingState[int64]("x", nil)) }),
		`state "x" is opened as trigger state of string at window_cases_test.go:`: open(trigger(func(rt *TriggerRuntime) error {
			return errors.Join(second(rt.ValueState[string]("x")), second(rt.ValueState[float64]("x")))
		}), plain),
		`a state has no name: trigger state of int64, opened at window_cases_test.go:`: open(trigger(func(rt *TriggerRuntime) error { return second(rt.ValueState[int64]("")) }), plain),
		`trigger state "x", opened at window_cases_test.go:`:                           open(trigger(func(rt *TriggerRuntime) error { return second(rt.ValueState[chan int]("x")) }), plain),
	} {
		var fatal interface{ Fatal() bool }
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &fatal) || !fatal.Fatal() {
			t.Errorf("got %v, want %q, which no restart heals", err, want)
		}
	}
	err := open(own, func(rt *WindowRuntimeContext[string]) error { // a window's state and the key's have names of their own
		return errors.Join(second(rt.WindowValueState[int64]("x")), second(rt.ValueState[string]("x")), second(rt.WindowValueState[int64]("x")))
	})
	if err != nil {
		t.Error(err)
	}
}

// opening is a trigger that opens states.
type opening struct {
	Trigger[reading]
	open func(*TriggerRuntime) error
}

func (o opening) Open(rt *TriggerRuntime) error { return o.open(rt) }

func TestSessionGapsMustBePositive(t *testing.T) {
	a := sessionsOf(0)
	a.Session.Dynamic = func(r reading) int64 { return r.Value }
	for _, trigger := range []func() Trigger[reading]{nil, NewEventTimeTrigger[reading]} {
		h := newHarness[reading, string](t, caseFactory(t, a, 0, trigger), "hashmap", 1, sensorHash(t))
		err := h.tasks[0].in.Process(reading{"s", 0}, Meta{TS: 1})
		if err == nil || !strings.Contains(err.Error(), "session gap of 0 ms") {
			t.Errorf("got %v", err)
		}
		err = h.tasks[0].in.Process(reading{"s", 10}, Meta{TS: math.MaxInt64 - 5})
		if err == nil || !strings.Contains(err.Error(), "has no EventTimeSession(dynamic gap) window") {
			t.Errorf("got %v", err)
		}
		if err := h.tasks[0].in.Process(reading{"s", 10}, Meta{TS: NoTimestamp}); err == nil {
			t.Error("a record without event time was accepted")
		}
		h.close()
	}
}

// What no watermark may overtake: allowed lateness as long as time itself.
func TestLatenessWithoutEnd(t *testing.T) {
	for name, a := range map[string]WindowAssigner[reading]{"tumbling": tumbling(10, 0), "session": sessionsOf(10)} {
		for own, trigger := range map[string]func() Trigger[reading]{"own": nil, "set": NewEventTimeTrigger[reading]} {
			t.Run(name+" "+own, func(t *testing.T) {
				h := newHarness[reading, string](t, caseFactory(t, a, math.MaxInt64, trigger), "hashmap", 1, sensorHash(t))
				defer h.close()
				h.process(reading{"s", 1}, 0)
				h.watermark(1 << 40)
				h.process(reading{"s", 1}, 1)
				if got := h.take(); len(got) != 2 {
					t.Fatalf("got %q", got)
				}
			})
		}
	}
}

// A late record that several windows still hold emits them again the latest first, whatever operator runs them. Source: Flink, where the order is that of
// SlidingEventTimeWindows.assignWindows.
func TestLateUpdatesComeLatestWindowFirst(t *testing.T) {
	a := WindowAssigner[reading]{EventTime: true, Sliding: Sliding{Size: 30, Slide: 10}}
	for name, trigger := range map[string]func() Trigger[reading]{"slices": nil, "with a trigger": NewEventTimeTrigger[reading]} {
		t.Run(name, func(t *testing.T) {
			h := newHarness[reading, string](t, caseFactory(t, a, 100, trigger), "hashmap", 1, sensorHash(t))
			defer h.close()
			h.process(reading{"s", 1}, 25)
			h.watermark(49)
			if got, want := windowsOf(h.take()), "s{0 30} s{10 40} s{20 50}"; got != want {
				t.Fatalf("in time: %s, want %s", got, want)
			}
			h.process(reading{"s", 2}, 26)
			if got, want := windowsOf(h.take()), "s{20 50} s{10 40} s{0 30}"; got != want {
				t.Fatalf("late: %s, want %s", got, want)
			}
		})
	}
}

// windowsOf are the keys and windows of results.
func windowsOf(results []string) string {
	for i, r := range results {
		results[i] = r[:strings.Index(r, "}")+1]
	}
	return strings.Join(results, " ")
}

// A job that was drained has seen the end of time; with more input it goes on.
func TestWindowsAfterTheEnd(t *testing.T) {
	for name, a := range map[string]WindowAssigner[reading]{"tumbling": tumbling(10, 0), "session": sessionsOf(10)} {
		t.Run(name, func(t *testing.T) {
			h := newHarness[reading, string](t, caseFactory(t, a, 0, nil), "hashmap", 1, sensorHash(t))
			defer h.close()
			h.process(reading{"s", 1}, 0)
			h.watermark(MaxWatermark)
			h.restart(2, true)
			h.process(reading{"s", 2}, 20)
			h.watermark(MaxWatermark)
			if got := h.take(); !slices.Equal(got, []string{"s{20 30} 2 1"}) {
				t.Fatalf("got %q", got)
			}
		})
	}
}

// spending is a trigger of a user: it fires and purges when the sum since the last firing reaches a limit, or when no record came for a
// while in processing time. It remembers who spent last.
type spending struct {
	TriggerBase
	limit, wait int64
	sum         TriggerReducingState[int64]
	due         TriggerReducingState[int64]
	last        TriggerValueState[string]
}

func (s *spending) Open(rt *TriggerRuntime) (err error) {
	if s.sum, err = rt.ReducingState("sum", func(a, b int64) int64 { return a + b }); err != nil {
		return err
	}
	if s.due, err = rt.ReducingState("due", func(a, b int64) int64 { return max(a, b) }); err != nil {
		return err
	}
	s.last, err = rt.ValueState[string]("last")
	return err
}

func (s *spending) OnElement(v reading, _ int64, _ Window, ctx *TriggerContext) (TriggerResult, error) {
	if last, found, err := s.last.Value(); err != nil || found && last != v.Sensor {
		return Continue, fmt.Errorf("last %q, now %q: %w", last, v.Sensor, err)
	}
	if err := s.last.Update(v.Sensor); err != nil {
		return Continue, err
	}
	if sum, err := s.sum.Add(v.Value); err != nil || sum >= s.limit {
		return FireAndPurge, s.sum.Clear()
	}
	at, err := s.due.Add(ctx.ProcessingTime() + s.wait)
	if err == nil {
		err = ctx.RegisterProcessingTimeTimer(at)
	}
	return Continue, err
}

func (s *spending) OnProcessingTime(at int64, _ Window, _ *TriggerContext) (TriggerResult, error) {
	due, found, err := s.due.Get()
	if err != nil || !found || due != at {
		return Continue, err
	}
	return FireAndPurge, s.sum.Clear()
}

func (s *spending) OnMerge(_ Window, ctx *MergeContext) error {
	if err := ctx.MergeState(s.sum); err != nil {
		return err
	}
	return ctx.MergeState(s.due)
}

func (s *spending) CanMerge() bool { return true }

func (s *spending) Clear(Window, *TriggerContext) error {
	if err := s.last.Clear(); err != nil {
		return err
	}
	if err := s.due.Clear(); err != nil {
		return err
	}
	return s.sum.Clear()
}

// A user's trigger has state of its own per key and window, timers, and both over restarts and merges.
func TestCustomTrigger(t *testing.T) {
	for _, backend := range backends {
		for name, a := range map[string]WindowAssigner[reading]{"tumbling": tumbling(1000, 0), "session": sessionsOf(500)} {
			t.Run(backend+" "+name, func(t *testing.T) {
				f := caseFactory(t, a, 0, func() Trigger[reading] { return &spending{limit: 10, wait: 50} })
				h := newHarness[reading, string](t, f, backend, 2, sensorHash(t))
				defer h.close()
				want := func(step string, sums ...int64) {
					t.Helper()
					var got []int64
					for _, s := range h.take() {
						var n int64
						if _, err := fmt.Sscan(s[strings.LastIndexByte(s, '}')+1:], &n); err != nil {
							t.Fatal(err)
						}
						got = append(got, n)
					}
					slices.Sort(got)
					if !slices.Equal(got, sums) {
						t.Fatalf("%s: got %v, want %v", step, got, sums)
					}
				}
				h.advance(100)
				h.process(reading{"a", 4}, 10)
				h.process(reading{"b", 5}, 20)
				h.restart(3, false)
				h.process(reading{"a", 5}, 400)
				want("below the limit")
				h.process(reading{"a", 1}, 700)
				want("at the limit", 10)
				h.advance(149)
				want("before the wait is over")
				h.restart(1, true)
				h.advance(150)
				want("after it", 5)
				h.process(reading{"a", 3}, 800)
				h.advance(1000)
				want("again", 3)
				h.watermark(MaxWatermark)
				want("the end is not this trigger's business")
			})
		}
	}
}

func codecOf[V any](t testing.TB) serde.Codec[V] {
	t.Helper()
	c, err := serde.For[V]()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func stateKey(t testing.TB) func(int64) state.Key[int64] {
	h := state.NewHasher(codecOf[int64](t))
	return func(k int64) state.Key[int64] { return state.KeyOf(h, k, 128) }
}

// The scratch table of a firing finds each key once, however it grows.
func TestGatherGrows(t *testing.T) {
	var g gather[int64, int64]
	key := stateKey(t)
	for range 2 {
		g.reset()
		for pass := range 3 {
			for i := range int64(5000) {
				p, found := g.at(key(i))
				if found != (pass > 0) {
					t.Fatalf("key %d in pass %d: found %v", i, pass, found)
				}
				*p += i
			}
		}
		for _, e := range g.entries {
			if e.c != 3*e.k.Key {
				t.Fatalf("key %d has %d", e.k.Key, e.c)
			}
		}
		if len(g.entries) != 5000 {
			t.Fatalf("%d keys", len(g.entries))
		}
	}
}

// Records go into windows without a single allocation.
func TestWindowsDoNotAllocate(t *testing.T) {
	for name, a := range windowBenchmarks {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				b := newWindowBench(t, a, backend)
				defer b.close()
				for range 30_000 {
					b.step()
				}
				if n := testing.AllocsPerRun(20_000, b.step); n > 0.05 {
					t.Errorf("%.3f allocations per record", n)
				}
			})
		}
	}
}

var windowBenchmarks = map[string]WindowAssigner[event]{
	"tumbling":   {EventTime: true, Sliding: Sliding{1000, 1000, 0}},
	"sliding-5":  {EventTime: true, Sliding: Sliding{10_000, 2000, 0}},
	"sliding-60": {EventTime: true, Sliding: Sliding{60_000, 1000, 0}},
	"session":    {EventTime: true, Kind: SessionWindows, Session: Session[event]{Gap: 1000}},
	"processing": {Sliding: Sliding{1000, 1000, 0}},
}

type event struct{ Key, Value int64 }

// windowBench counts records of 1000 keys, 10,000 in a second of event time; watermarks come each 100 ms.
type windowBench struct {
	h    *harness[event, int64]
	in   Receiver[event]
	out  *sink[int64]
	n    int64
	hash []uint32
	t    testing.TB
}

func newWindowBench(t testing.TB, a WindowAssigner[event], backend string) *windowBench {
	t.Helper()
	sel := KeySelector[int64, event]{Fn: func(e event) int64 { return e.Key }, Codec: codecOf[int64](t)}
	f := AggregateWindow(WindowSpec[int64, event]{Key: sel, Assigner: a}, func() WindowFunctions[int64, event, int64, int64] {
		return WindowFunctions[int64, event, int64, int64]{
			Add:   func(n *int64, _ event, _ bool) { *n++ },
			Merge: func(a, b int64) int64 { return a + b },
			Emit: func(_ int64, _ Window, n *int64, out *Collector[int64]) error {
				out.Collect(*n)
				return nil
			},
		}
	})
	h := newHarness[event, int64](t, f, backend, 1, sel.NewHash())
	b := &windowBench{h: h, in: h.tasks[0].in, out: h.tasks[0].out, t: t}
	b.out.got = make([]element[int64], 0, 1<<16)
	hash := sel.NewHash()
	for k := range int64(1000) {
		b.hash = append(b.hash, hash(event{Key: k}))
	}
	return b
}

func (b *windowBench) close() { b.h.close() }

func (b *windowBench) step() {
	n := b.n
	b.n++
	// Keys are active for two seconds, then pause as long.
	k := n*7919%500 + n/20_000%2*500
	ts := n / 10
	if n%1000 == 0 {
		b.h.advance(ts)
		if err := b.in.Watermark(ts - 200); err != nil {
			b.t.Fatal(err)
		}
		b.out.got = b.out.got[:0]
	}
	if err := b.in.Process(event{k, 1}, Meta{TS: ts, Hash: b.hash[k]}); err != nil {
		b.t.Fatal(err)
	}
}

// BenchmarkWindows is records into windows, with the firing of them, without an exchange.
func BenchmarkWindows(b *testing.B) {
	for _, name := range []string{"tumbling", "sliding-5", "sliding-60", "session", "processing"} {
		for _, backend := range backends {
			b.Run(name+"/"+backend, func(b *testing.B) {
				w := newWindowBench(b, windowBenchmarks[name], backend)
				defer w.close()
				b.ReportAllocs()
				for b.Loop() {
					w.step()
				}
			})
		}
	}
}
