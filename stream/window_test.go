package stream

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
)

// visits come in bursts of 20 records, 10 ms apart, with 1 s between bursts; every record is 0 to 30 ms out of order.
func visits(n int64) click {
	at := n/20*1000 + n%20*10 + (n*7)%4*10
	return click{User: fmt.Sprint("u", n%3), At: time.UnixMilli(at), N: n % 11}
}

func visitSource(env *Environment, n int64) DataStreamSource[click] {
	return env.FromSource(datagen.Source(visits, datagen.Count(n), datagen.Splits(2)),
		BoundedOutOfOrderness(100*time.Millisecond, func(c click) time.Time { return c.At }), "visits")
}

type span struct {
	User       string
	Start, End int64
	Sum, Count int64
}

func (s *span) put(c click) { s.Sum, s.Count = s.Sum+c.N, s.Count+1 }

// spans are the windows of n visits, as text.
func spans(n int64, assign func(c click) []span, merge bool) []string {
	var all []*span
	for i := range n {
		c := visits(i)
		for _, w := range assign(c) {
			w.User = c.User
			at := len(all) - 1
			for ; at >= 0 && at > len(all)-100; at-- { // visits are nearly in order: earlier spans are over
				if s := all[at]; s.User == w.User && (s.Start == w.Start && s.End == w.End || merge && s.Start <= w.End && w.Start <= s.End) {
					break
				}
			}
			if at < 0 || at == len(all)-100 {
				all = append(all, &w)
				at = len(all) - 1
			}
			all[at].Start, all[at].End = min(all[at].Start, w.Start), max(all[at].End, w.End)
			all[at].put(c)
		}
	}
	var out []string
	for _, s := range all {
		out = append(out, fmt.Sprint(*s))
	}
	slices.Sort(out)
	return out
}

func slidingSpans(size, slide int64) func(click) []span {
	return func(c click) (out []span) {
		at := c.At.UnixMilli()
		for start := at - at%slide; start > at-size; start -= slide {
			out = append(out, span{Start: start, End: start + size})
		}
		return out
	}
}

type sumCount struct{ Sum, Count int64 }

// sumAndCount is an accumulator that is neither what goes in nor what comes out.
type sumAndCount struct{}

func (sumAndCount) Create() sumCount             { return sumCount{} }
func (sumAndCount) Add(a *sumCount, c click)     { a.Sum, a.Count = a.Sum+c.N, a.Count+1 }
func (sumAndCount) Result(a sumCount) [2]int64   { return [2]int64{a.Sum, a.Count} }
func (sumAndCount) Merge(a, b sumCount) sumCount { return sumCount{a.Sum + b.Sum, a.Count + b.Count} }

func toSpan(u string, w TimeWindow, v [2]int64) span {
	return span{u, w.Start.UnixMilli(), w.End.UnixMilli(), v[0], v[1]}
}

// perWindow gives the spans of a window's records, and of their sums.
type perWindow struct {
	PlainWindow[string]
	seen ValueState[int64]
}

func (p *perWindow) Open(rt *WindowRuntimeContext[string]) (err error) {
	p.seen, err = rt.ValueState[int64]("seen")
	return err
}

func (p *perWindow) Process(ctx *WindowContext[string], elements iter.Seq[click], out *Collector[span]) error {
	s := span{User: ctx.Key(), Start: ctx.Window().Start.UnixMilli(), End: ctx.Window().End.UnixMilli()}
	for c := range elements {
		s.put(c)
	}
	n, _, err := p.seen.Value()
	if err != nil {
		return err
	}
	if w, ok := ctx.Watermark(); !ok || w.Before(ctx.Window().End.Add(-time.Millisecond)) {
		return fmt.Errorf("window %v at watermark %v", ctx.Window(), w)
	}
	out.Collect(s)
	return p.seen.Update(n + s.Count)
}

func TestWindowKinds(t *testing.T) {
	const n = 600
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, p := range []string{"1", "3"} {
			t.Run(backend+"/"+p, func(t *testing.T) {
				slid, sessions, processed, counted, all := &collect[span]{}, &collect[span]{}, &collect[span]{}, &collect[span]{}, &collect[span]{}
				err := runJob(t, map[string]string{"parallelism.default": p, "state.backend.type": backend}, func(env *Environment) error {
					s := visitSource(env, n)
					k := s.KeyBy(func(c click) string { return c.User })
					k.Window(SlidingEventTime(500*time.Millisecond, 200*time.Millisecond)).Aggregate(sumAndCount{}, toSpan).SinkTo(slid)
					k.Window(EventTimeSession(200*time.Millisecond)).Aggregate(sumAndCount{}, toSpan).SinkTo(sessions)
					k.Window(EventTimeSessionDynamic(func(click) time.Duration { return 200 * time.Millisecond })).
						Process(func() ProcessWindowFunction[string, click, span] { return &perWindow{} }).SinkTo(processed)
					k.CountWindow(50).Apply(func(u string, _ TimeWindow, elements iter.Seq[click], out *Collector[span]) error {
						w := span{User: u}
						for c := range elements {
							w.put(c)
						}
						out.Collect(w)
						return nil
					}).SinkTo(counted)
					s.WindowAll(TumblingEventTime(time.Second)).Aggregate(sumAndCount{}, func(w TimeWindow, v [2]int64) span { return toSpan("", w, v) }).SinkTo(all)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if got, want := sorted(slid), spans(n, slidingSpans(500, 200), false); !slices.Equal(got, want) {
					t.Errorf("sliding windows: got %v, want %v", got, want)
				}
				want := spans(n, func(c click) []span { return []span{{Start: c.At.UnixMilli(), End: c.At.UnixMilli() + 200}} }, true)
				if got := sorted(sessions); !slices.Equal(got, want) {
					t.Errorf("sessions: got %v, want %v", got, want)
				}
				if got := sorted(processed); !slices.Equal(got, want) {
					t.Errorf("processed sessions: got %v, want %v", got, want)
				}
				for _, w := range counted.got {
					if w.Count != 50 {
						t.Errorf("count window of %d", w.Count)
					}
				}
				if len(counted.got) != n/3/50*3 {
					t.Errorf("%d count windows", len(counted.got))
				}
				var total, sum int64
				for _, w := range all.got {
					total, sum = total+w.Count, sum+w.Sum
				}
				if len(all.got) != n/20 || total != n {
					t.Errorf("%d windows over all of %d records", len(all.got), total)
				}
			})
		}
	}
}

// Sessions and sliding windows are right whenever they are emitted, over failures and restarts.
func TestWindowsOverRestarts(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			const n = 40_000
			slid, sessions := &collect[span]{}, &collect[span]{}
			var mu sync.Mutex
			seen, failures := 0, 0
			conf := map[string]string{"parallelism.default": "2", "state.backend.type": backend, "execution.checkpointing.interval": "10 ms",
				"execution.checkpointing.dir": "file://" + t.TempDir(), "restart-strategy.type": "fixed-delay",
				"restart-strategy.fixed-delay.attempts": "10", "restart-strategy.fixed-delay.delay": "1 ms"}
			err := runJob(t, conf, func(env *Environment) error {
				k := visitSource(env, n).TryMap(func(c click) (click, error) {
					mu.Lock()
					defer mu.Unlock()
					if seen++; failures < 3 && seen > (failures+1)*10_000 {
						failures++
						return c, errors.New("on purpose")
					}
					return c, nil
				}).KeyBy(func(c click) string { return c.User })
				k.Window(SlidingEventTime(600*time.Millisecond, 200*time.Millisecond)).Aggregate(sumAndCount{}, toSpan).SinkTo(slid)
				k.Window(EventTimeSession(200*time.Millisecond)).AllowedLateness(time.Second).Aggregate(sumAndCount{}, toSpan).SinkTo(sessions)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := slices.Compact(sorted(slid)), spans(n, slidingSpans(600, 200), false); !slices.Equal(got, want) {
				t.Errorf("got %d sliding windows, want %d", len(got), len(want))
			}
			want := spans(n, func(c click) []span { return []span{{Start: c.At.UnixMilli(), End: c.At.UnixMilli() + 200}} }, true)
			if got := slices.Compact(sorted(sessions)); !slices.Equal(got, want) {
				t.Errorf("got %d sessions, want %d", len(got), len(want))
			}
		})
	}
}

// eachClick emits a watermark behind every record: what is late does not depend on a clock.
type eachClick struct{}

func (eachClick) OnEvent(_ click, at time.Time, out WatermarkOutput) {
	out.EmitWatermark(at.Add(-time.Millisecond))
}
func (eachClick) OnPeriodicEmit(WatermarkOutput) {}

// Records that are late are in the side output, each once, and windows have the others.
func TestLateRecordsGoToTheSideOutput(t *testing.T) {
	tag := NewOutputTag[click]("late")
	on, late := &collect[int64]{}, &collect[click]{}
	strategy := ForGenerator(func() WatermarkGenerator[click] { return eachClick{} }, func(c click) time.Time { return c.At })
	err := runJob(t, nil, func(env *Environment) error {
		src := datagen.Source(func(n int64) click { // each tenth record is 5 s behind
			return click{User: "u", At: time.UnixMilli(n*100 - n%10/9*5000), N: n}
		}, datagen.Count(500))
		w := env.FromSource(src, strategy, "clicks").SetParallelism(1).
			KeyBy(func(c click) string { return c.User }).Window(TumblingEventTime(time.Second)).
			AllowedLateness(100 * time.Millisecond).SideOutputLateData(tag).
			Count(func(_ string, _ TimeWindow, n int64) int64 { return n })
		w.SinkTo(on)
		w.GetSideOutput(tag).SinkTo(late)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, c := range on.got {
		n += c
	}
	if n != 450 || len(late.got) != 50 {
		t.Errorf("%d records in windows, %d late, of 450 and 50", n, len(late.got))
	}
	for _, c := range late.got {
		if c.N%10 != 9 {
			t.Errorf("record %d is not late", c.N)
		}
	}
}

func TestSimpleAggregations(t *testing.T) {
	type row struct {
		User string
		A    int64
		B    float64
	}
	key := func(r row) string { return r.User }
	rows := []row{{"x", 3, 1}, {"x", 1, 2}, {"y", 5, 0}, {"x", 2, 3}, {"x", 1, 4}}
	field := func(r *row) *int64 { return &r.A }
	value := func(r row) int64 { return r.A }
	for name, c := range map[string]struct {
		rolling  func(KeyedStream[string, row]) SingleOutputStreamOperator[row]
		windowed func(WindowedStream[string, row]) SingleOutputStreamOperator[row]
		all      func(AllWindowedStream[row]) SingleOutputStreamOperator[row]
		want     []row // of x, record by record
		of       row   // of the window of four
	}{
		"sum": {func(s KeyedStream[string, row]) SingleOutputStreamOperator[row] { return s.Sum(field) },
			func(w WindowedStream[string, row]) SingleOutputStreamOperator[row] { return w.Sum(field) },
			func(w AllWindowedStream[row]) SingleOutputStreamOperator[row] { return w.Sum(field) },
			[]row{{"x", 3, 1}, {"x", 4, 1}, {"x", 6, 1}, {"x", 7, 1}}, row{"x", 11, 1}},
		"min": {func(s KeyedStream[string, row]) SingleOutputStreamOperator[row] { return s.Min(field) },
			func(w WindowedStream[string, row]) SingleOutputStreamOperator[row] { return w.Min(field) },
			func(w AllWindowedStream[row]) SingleOutputStreamOperator[row] { return w.Min(field) },
			[]row{{"x", 3, 1}, {"x", 1, 1}, {"x", 1, 1}, {"x", 1, 1}}, row{"x", 1, 1}},
		"max": {func(s KeyedStream[string, row]) SingleOutputStreamOperator[row] { return s.Max(field) },
			func(w WindowedStream[string, row]) SingleOutputStreamOperator[row] { return w.Max(field) },
			func(w AllWindowedStream[row]) SingleOutputStreamOperator[row] { return w.Max(field) },
			[]row{{"x", 3, 1}, {"x", 3, 1}, {"x", 3, 1}, {"x", 3, 1}}, row{"x", 5, 1}},
		"minBy": {func(s KeyedStream[string, row]) SingleOutputStreamOperator[row] { return s.MinBy(value) },
			func(w WindowedStream[string, row]) SingleOutputStreamOperator[row] { return w.MinBy(value) },
			func(w AllWindowedStream[row]) SingleOutputStreamOperator[row] { return w.MinBy(value) },
			[]row{{"x", 3, 1}, {"x", 1, 2}, {"x", 1, 2}, {"x", 1, 2}}, row{"x", 1, 2}},
		"maxBy": {func(s KeyedStream[string, row]) SingleOutputStreamOperator[row] { return s.MaxBy(value) },
			func(w WindowedStream[string, row]) SingleOutputStreamOperator[row] { return w.MaxBy(value) },
			func(w AllWindowedStream[row]) SingleOutputStreamOperator[row] { return w.MaxBy(value) },
			[]row{{"x", 3, 1}, {"x", 3, 1}, {"x", 3, 1}, {"x", 3, 1}}, row{"y", 5, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			each, four, all := &collect[row]{}, &collect[row]{}, &collect[row]{}
			err := runJob(t, nil, func(env *Environment) error {
				s := env.FromCollection(rows...)
				k := s.KeyBy(key)
				c.rolling(k).Filter(func(r row) bool { return r.User == "x" }).SinkTo(each)
				c.windowed(k.CountWindow(4)).SinkTo(four)
				c.all(s.CountWindowAll(4)).SinkTo(all)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(each.got, c.want) {
				t.Errorf("rolling: got %v, want %v", each.got, c.want)
			}
			if len(four.got) != 1 || four.got[0] != c.want[3] {
				t.Errorf("window: got %v, want %v", four.got, c.want[3])
			}
			of := c.of
			if len(all.got) != 1 || all.got[0].User != of.User || all.got[0] != of {
				t.Errorf("window over all: got %v, want %v", all.got, of)
			}
		})
	}
	counts, means, mean := &collect[int64]{}, &collect[float64]{}, &collect[float64]{}
	err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection(rows...)
		k := s.KeyBy(key)
		k.Count(func(u string, n int64) int64 { return n * int64(len(u)) }).SinkTo(counts)
		k.Average(value, func(_ string, m float64) float64 { return m }).SinkTo(means)
		k.CountWindow(4).Average(value, func(_ string, _ TimeWindow, m float64) float64 { return m }).SinkTo(mean)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(counts.got)
	slices.Sort(means.got)
	if !slices.Equal(counts.got, []int64{1, 1, 2, 3, 4}) || !slices.Equal(means.got, []float64{1.75, 2, 2, 3, 5}) || !slices.Equal(mean.got, []float64{1.75}) {
		t.Errorf("counts %v, means %v and %v", counts.got, means.got, mean.got)
	}
}

func TestWindowMistakes(t *testing.T) {
	key := func(c click) string { return c.User }
	reduce := func(w WindowedStream[string, click]) {
		w.Reduce(func(a, _ click) click { return a }).SinkTo(&collect[click]{})
	}
	for want, use := range map[string]func(KeyedStream[string, click]){
		"window size 0s is not positive":          func(k KeyedStream[string, click]) { reduce(k.Window(TumblingEventTime(0))) },
		"window size -1s is not positive":         func(k KeyedStream[string, click]) { reduce(k.Window(TumblingProcessingTime(-time.Second))) },
		"window size 1µs is below a millisecond":  func(k KeyedStream[string, click]) { reduce(k.Window(TumblingEventTime(time.Microsecond))) },
		"window size 1.5ms is not a whole number": func(k KeyedStream[string, click]) { reduce(k.Window(TumblingEventTime(1500 * time.Microsecond))) },
		"window slide 0s is not positive":         func(k KeyedStream[string, click]) { reduce(k.Window(SlidingEventTime(time.Second, 0))) },
		"window slide -1ns is not positive":       func(k KeyedStream[string, click]) { reduce(k.Window(SlidingProcessingTime(time.Second, -1))) },
		"window offset 1s must be less than the size 1s": func(k KeyedStream[string, click]) {
			reduce(k.Window(TumblingEventTimeOffset(time.Second, time.Second)))
		},
		"window offset -2s must be less than the slide 1s": func(k KeyedStream[string, click]) {
			reduce(k.Window(SlidingEventTimeOffset(10*time.Second, time.Second, -2*time.Second)))
		},
		"session gap 0s is not positive": func(k KeyedStream[string, click]) { reduce(k.Window(EventTimeSession(0))) },
		"the session's gap function is func(int) time.Duration, the stream's records are stream.click": func(k KeyedStream[string, click]) {
			reduce(k.Window(EventTimeSessionDynamic(func(int) time.Duration { return 1 })))
		},
		"allowed lateness -1s is negative": func(k KeyedStream[string, click]) {
			reduce(k.Window(TumblingEventTime(time.Second)).AllowedLateness(-time.Second))
		},
		"sessions merge, and the trigger cannot": func(k KeyedStream[string, click]) {
			reduce(k.Window(EventTimeSession(time.Second)).Trigger(DeltaTrigger(1, func(a, b click) float64 { return 0 })))
		},
		"trigger count 0 is not positive": func(k KeyedStream[string, click]) {
			reduce(k.Window(GlobalWindows()).Trigger(PurgingTrigger(CountTrigger[click](0))))
		},
		"trigger interval 0s is not positive": func(k KeyedStream[string, click]) {
			reduce(k.Window(GlobalWindows()).Trigger(ContinuousEventTimeTrigger[click](0)))
		},
		"evictor count -1 is negative":    func(k KeyedStream[string, click]) { reduce(k.Window(GlobalWindows()).Evictor(CountEvictor[click](-1))) },
		"window size 0 is not positive":   func(k KeyedStream[string, click]) { reduce(k.CountWindow(0)) },
		"window slide -3 is not positive": func(k KeyedStream[string, click]) { reduce(k.CountWindowSliding(2, -3)) },
		"SideOutputLateData: the tag has no name": func(k KeyedStream[string, click]) {
			reduce(k.Window(TumblingEventTime(time.Second)).SideOutputLateData(NewOutputTag[click]("")))
		},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := program("mistakes", func(env *Environment) error {
				use(env.FromCollection(click{}).KeyBy(key))
				return nil
			}, config.Configuration{}, nil)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "window_test.go:") {
				t.Errorf("got %v", err)
			}
		})
	}
	_, err := program("parallel", func(env *Environment) error {
		env.FromCollection(click{}).WindowAll(GlobalWindows()).Reduce(func(a, _ click) click { return a }).SetParallelism(2).SinkTo(&collect[click]{})
		return nil
	}, config.Configuration{}, nil)
	if err == nil || !strings.Contains(err.Error(), "window_test.go:") || !strings.Contains(err.Error(), "their parallelism is always 1") {
		t.Errorf("got %v", err)
	}
}
