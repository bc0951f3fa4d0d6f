package stream

import (
	"context"
	"errors"
	"iter"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
)

type stopwatch struct {
	User string
	At   time.Time
}

// Every mistake in a program is told before anything runs, with the file and the line of the call that is wrong.
func TestMistakesAreToldWithTheirLine(t *testing.T) {
	ints := func(env *Environment) DataStreamSource[int] { return env.FromCollection(1, 2) }
	keyed := func(env *Environment) KeyedStream[int, int] {
		return ints(env).KeyBy(func(i int) int { return i })
	}
	add := func(a, b int) int { return a + b }
	first := func(a, _ click) click { return a }
	same := func(i int) int { return i }
	watches := func(env *Environment) DataStreamSource[stopwatch] { return env.FromCollection(stopwatch{}) }
	echo := Async(func(_ context.Context, v int) ([]int, error) { return []int{v}, nil })
	joined := func(env *Environment) JoinEqualTo[int, int, int] {
		return ints(env).Join(ints(env)).Where(same).EqualTo(same)
	}
	tellMistakes(t, "mistakes_test.go", map[string]mistaken{
		"window of size zero":               {"window size 0s is not positive", func(e *Environment) { keyed(e).Window(TumblingEventTime(0)) }},                    // wrong
		"window of negative size":           {"window size -1s is not positive", func(e *Environment) { keyed(e).Window(SlidingEventTime(-time.Second, 1)) }},      // wrong
		"window of negative size, over all": {"window size -1s is not positive", func(e *Environment) { ints(e).WindowAll(TumblingProcessingTime(-time.Second)) }}, // wrong
		"joined window of negative size":    {"window size -1s is not positive", func(e *Environment) { joined(e).Window(TumblingEventTime(-time.Second)) }},       // wrong
		"slide of zero":                     {"window slide 0s is not positive", func(e *Environment) { keyed(e).Window(SlidingEventTime(time.Second, 0)) }},       // wrong
		"offset beyond the size": {"window offset 2s must be less than the size 1s", func(e *Environment) {
			keyed(e).Window(TumblingEventTimeOffset(time.Second, 2*time.Second)) // wrong
		}},
		"offset below the size": {"window offset -1s must be less than the size 1s", func(e *Environment) {
			keyed(e).Window(TumblingEventTimeOffset(time.Second, -time.Second)) // wrong
		}},
		"offset beyond the slide": {"window offset 1s must be less than the slide 1s", func(e *Environment) {
			keyed(e).Window(SlidingEventTimeOffset(2*time.Second, time.Second, time.Second)) // wrong
		}},
		"gap of zero": {"session gap 0s is not positive", func(e *Environment) { keyed(e).Window(ProcessingTimeSession(0)) }}, // wrong
		"gap of another type": {"gap function is func(string)", func(e *Environment) {
			keyed(e).Window(EventTimeSessionDynamic(func(string) time.Duration { return 1 })) // wrong
		}},
		"count of zero": {"window size 0 is not positive", func(e *Environment) { keyed(e).CountWindow(0) }}, // wrong
		"trigger that does not merge": {"sessions merge, and the trigger cannot: DeltaTrigger; take another one", func(e *Environment) {
			keyed(e).Window(EventTimeSession(1e9)).Trigger(DeltaTrigger(1, func(a, b int) float64 { return 0 })) // wrong
		}},
		"trigger that cannot be": {"trigger count 0 is not positive", func(e *Environment) {
			joined(e).Window(GlobalWindows()).Trigger(CountTrigger[TaggedUnion[int, int]](0)) // wrong
		}},
		"evictor's threshold": {"evictor threshold is not a number", func(e *Environment) {
			keyed(e).Window(GlobalWindows()).Evictor(DeltaEvictor(math.NaN(), func(int, int) float64 { return 0 })) // wrong
		}},
		"checkpointing mode":    {`checkpointing mode "best_effort": give stream.ExactlyOnce or stream.AtLeastOnce`, func(e *Environment) { e.EnableCheckpointing(time.Second, "best_effort") }}, // wrong
		"no checkpointing mode": {`checkpointing mode ""`, func(e *Environment) { e.EnableCheckpointing(time.Second, "") }},                                                                      // wrong
		"no attempts": {"OrderedWait: RetryFixed: 0 attempts: there must be 1 at least", func(e *Environment) {
			ints(e).OrderedWait(echo, AsyncOptions[int]{Timeout: 1e9, Retry: RetryFixed[int](0, 1)}) // wrong
		}},
		"negative delay": {"UnorderedWait: RetryFixed: the delay is -1ns", func(e *Environment) {
			ints(e).UnorderedWait(echo, AsyncOptions[int]{Timeout: 1e9, Retry: RetryFixed[int](2, -1)}) // wrong
		}},
		"delays without growth": {"RetryExponential: the multiplier is NaN", func(e *Environment) {
			ints(e).OrderedWait(echo, AsyncOptions[int]{Timeout: 1e9, Retry: RetryExponential[int](2, 1, 2, math.NaN())}) // wrong
		}},
		"delays that shrink": {"RetryExponential: delays from 2s up to 1s", func(e *Environment) {
			ints(e).OrderedWait(echo, AsyncOptions[int]{Timeout: 1e9, Retry: RetryExponential[int](2, 2*time.Second, time.Second, 2)}) // wrong
		}},
		"source with two faults": {`source "numbers": datagen: Splits is 0`, func(e *Environment) {
			e.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(-1), datagen.Splits(0)), NoWatermarks[int64](), "numbers") // wrong
		}},
		"negative lateness": {"allowed lateness -1s is negative", func(e *Environment) {
			keyed(e).Window(TumblingEventTime(1e9)).AllowedLateness(-time.Second) // wrong
		}},
		"lateness between milliseconds": {"allowed lateness 1ns is not a whole number", func(e *Environment) { keyed(e).Window(TumblingEventTime(1e9)).AllowedLateness(1) }}, // wrong
		"lateness of processing time": {"allowed lateness 1s has no effect: only event-time windows", func(e *Environment) {
			keyed(e).Window(TumblingProcessingTime(1e9)).AllowedLateness(time.Second) // wrong
		}},
		"lateness of counts": {"allowed lateness 1s has no effect", func(e *Environment) {
			keyed(e).CountWindow(2).AllowedLateness(0).AllowedLateness(time.Second) // wrong
		}},
		"lateness of a global window, joined": {"allowed lateness 1s has no effect", func(e *Environment) {
			joined(e).Window(GlobalWindows()).AllowedLateness(time.Second) // wrong
		}},
		"late output without a name": {"SideOutputLateData: the tag has no name", func(e *Environment) {
			keyed(e).Window(TumblingEventTime(1e9)).SideOutputLateData(OutputTag[int]{}) // wrong
		}},
		"join's late output without a name": {"SideOutputRightLateData: the tag has no name", func(e *Environment) {
			joined(e).Window(TumblingEventTime(1e9)).SideOutputRightLateData(OutputTag[int]{}) // wrong
		}},
		"interval's bounds":             {"lower bound 1s is above the upper bound 0s", func(e *Environment) { keyed(e).IntervalJoin(keyed(e)).Between(time.Second, 0) }}, // wrong
		"interval between milliseconds": {"upper bound 1ns is not a whole number", func(e *Environment) { keyed(e).IntervalJoin(keyed(e)).Between(0, 1) }},                // wrong
		"interval's late output, no name": {"SideOutputLeftLateData: the tag has no name", func(e *Environment) {
			keyed(e).IntervalJoin(keyed(e)).Between(0, 0).SideOutputLeftLateData(OutputTag[int]{}) // wrong
		}},
		"key that cannot be encoded":    {"chan int", func(e *Environment) { ints(e).KeyBy(func(int) chan int { return nil }) }},                                // wrong
		"key of an interface":           {"cannot be encoded", func(e *Environment) { ints(e).KeyBy(func(i int) any { return i }) }},                            // wrong
		"key that compares by address":  {"a pointer cannot be a key", func(e *Environment) { ints(e).KeyBy(func(i int) *int { return &i }) }},                  // wrong
		"key with a time inside":        {"At: time.Time cannot be a key", func(e *Environment) { watches(e).KeyBy(func(s stopwatch) stopwatch { return s }) }}, // wrong
		"record that cannot be encoded": {"func()", func(e *Environment) { ints(e).Map(func(int) func() { return nil }) }},                                      // wrong
		"UID used twice": {`UID "same" is already used at mistakes_test.go:`, func(e *Environment) {
			s := ints(e).UID("same")
			s.Map(same).UID("same").SinkTo(&collect[int]{}) // wrong
		}},
		"parallelism of zero":     {"parallelism 0 is not positive", func(e *Environment) { ints(e).Map(same).SetParallelism(0) }},                   // wrong
		"job's parallelism":       {"parallelism -1 is not positive", func(e *Environment) { e.SetParallelism(-1) }},                                 // wrong
		"max parallelism of zero": {"max parallelism 0 is not between 1 and 32768", func(e *Environment) { ints(e).Map(same).SetMaxParallelism(0) }}, // wrong
		"job's max parallelism":   {"max parallelism 0 is not between 1 and 32768", func(e *Environment) { e.SetMaxParallelism(0) }},                 // wrong
		"max parallelism below parallelism": {"max parallelism 2 must be between the parallelism (4)", func(e *Environment) {
			keyed(e).Reduce(add).SetParallelism(4).SetMaxParallelism(2).SinkTo(&collect[int]{}) // wrong
		}},
		"max parallelism that is too great": {"max parallelism 40000 is not between", func(e *Environment) {
			ints(e).Map(same).SetMaxParallelism(40000).SinkTo(&collect[int]{}) // wrong
		}},
		"windows over all in parallel": {"SetParallelism(2): windows over all records (WindowAll, CountWindowAll) run in one subtask", func(e *Environment) {
			e.FromCollection(click{}).WindowAll(GlobalWindows()).Reduce(first).SetParallelism(2).SinkTo(&collect[click]{}) // wrong
		}},
		"windows over all with several key groups": {"SetMaxParallelism(2): windows over all records", func(e *Environment) {
			e.FromCollection(click{}).WindowAll(GlobalWindows()).Reduce(first).SetMaxParallelism(2).SinkTo(&collect[click]{}) // wrong
		}},
		"side output of a source": {`GetSideOutput("x"): Source: Collection Source (mistakes_test.go:`, func(e *Environment) {
			ints(e).GetSideOutput(NewOutputTag[int]("x")).SinkTo(&collect[int]{}) // wrong
		}},
		"side output of a map": {`has no side outputs: nothing can be written there`, func(e *Environment) {
			ints(e).Map(same).GetSideOutput(NewOutputTag[int]("x")).SinkTo(&collect[int]{}) // wrong
		}},
		"trigger of one's own that does not merge": {"stubborn; let its CanMerge return true", func(e *Environment) {
			keyed(e).Window(EventTimeSession(1e9)).Trigger(CustomTrigger(func() Trigger[int] { return &stubborn{} })) // wrong
		}},
		"forward to another parallelism": {"forward needs the same parallelism at both ends, Source: Collection Source has 1 and this 2", func(e *Environment) {
			ints(e).Forward().Map(same).SetParallelism(2).SinkTo(&collect[int]{}) // wrong
		}},
		"side output of two types": {`the tag is already read as`, func(e *Environment) {
			s := keyed(e).Reduce(add)
			s.GetSideOutput(NewOutputTag[int]("x"))
			s.GetSideOutput(NewOutputTag[string]("x")) // wrong
		}},
		"job's parallelism above all": {"parallelism 32769 is above 32768", func(e *Environment) { e.SetParallelism(32769) }},                           // wrong
		"parallelism above all":       {"parallelism 40000 is above 32768", func(e *Environment) { ints(e).SetParallelism(40000) }},                     // wrong
		"interval beyond a century":   {"execution.checkpointing.interval", func(e *Environment) { e.EnableCheckpointing(math.MaxInt64, ExactlyOnce) }}, // wrong
		"time-out beyond a century":   {"execution.buffer-timeout.interval", func(e *Environment) { e.SetBufferTimeout(math.MaxInt64) }},                // wrong
		"uid that is empty":           {"UID: the uid is empty", func(e *Environment) { ints(e).UID("") }},                                              // wrong
		"sink's uid that is empty":    {"UID: the uid is empty", func(e *Environment) { ints(e).SinkTo(&collect[int]{}).UID("") }},                      // wrong
		"name that is empty":          {"Name: the name is empty", func(e *Environment) { ints(e).Name("") }},                                           // wrong
		"sink's name that is empty":   {"Name: the name is empty", func(e *Environment) { ints(e).SinkTo(&collect[int]{}).Name("") }},                   // wrong
		"source without a name": {"FromSource: the name is empty", func(e *Environment) {
			e.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(1)), NoWatermarks[int64](), "") // wrong
		}},
		"late records of another type": {`GetSideOutput("late"): the operator at mistakes_test.go:`, func(e *Environment) {
			w := keyed(e).Window(TumblingEventTime(1e9)).SideOutputLateData(NewOutputTag[int]("late")).AllowedLateness(1e9).Reduce(add) // wrong
			w.GetSideOutput(NewOutputTag[string]("late"))                                                                               // wrong
		}},
		"late records of another type, over all": {`sends late records there, which are int`, func(e *Environment) {
			ints(e).WindowAll(EventTimeSession(1e9)).SideOutputLateData(NewOutputTag[int]("late")).Reduce(add).GetSideOutput(NewOutputTag[string]("late")) // wrong
		}},
		"late records of another type, joined": {`GetSideOutput("late2"): the operator at mistakes_test.go:`, func(e *Environment) {
			j := joined(e).Window(TumblingEventTime(1e9)).SideOutputLeftLateData(NewOutputTag[int]("late1")).SideOutputRightLateData(NewOutputTag[int]("late2")).Apply(add) // wrong
			j.GetSideOutput(NewOutputTag[string]("late2"))                                                                                                                  // wrong
		}},
		"late records of another type, interval": {`GetSideOutput("late1"): the operator at mistakes_test.go:`, func(e *Environment) {
			j := keyed(e).IntervalJoin(keyed(e)).Between(0, 0).SideOutputLeftLateData(NewOutputTag[int]("late1")).
				Process(func(*JoinContext, int, int, *Collector[int]) error { return nil })
			j.GetSideOutput(NewOutputTag[int64]("late1")) // wrong
		}},
		"sum of what is outside":     {"Sum: the field function returns a pointer to what is no part of the record", func(e *Environment) { keyed(e).Sum(func(*int) *int { return &outside }) }}, // wrong
		"minimum of what is outside": {"Min: the field function returns a pointer", func(e *Environment) { keyed(e).Min(func(*int) *int { return new(int) }) }},                                  // wrong
		"maximum of what is outside": {"Max: the field function returns a pointer", func(e *Environment) {
			ints(e).WindowAll(TumblingEventTime(1e9)).Max(func(i int) func(*int) *int { return func(*int) *int { return &i } }(3)) // wrong
		}},
		"sum of a copy's field": {"Sum: the field function returns a pointer", func(e *Environment) {
			keyed(e).Window(TumblingEventTime(1e9)).Sum(func(v *int) *int { c := *v; return &c }) // wrong
		}},
		"streams of different environments": {"different environments", func(e *Environment) { ints(e).CoGroup(ints(newEnvironment("other", nil, nil))) }}, // wrong
	})
}

// A stream that belongs to another environment can be put together with none of this one's, whichever of them the call begins with: both
// programs are refused.
func TestStreamsOfDifferentEnvironments(t *testing.T) {
	same := func(i int) int { return i }
	nothing := func(*JoinContext, int, int, *Collector[int]) error { return nil }
	for name, put := range map[string]func(a, b DataStream[int]){
		"union":              func(a, b DataStream[int]) { a.Union(b).SinkTo(&collect[int]{}) },
		"connect":            func(a, b DataStream[int]) { a.Connect(b).Map(same, same).SinkTo(&collect[int]{}) },
		"connect, keyed":     func(a, b DataStream[int]) { a.KeyBy(same).Connect(b.KeyBy(same)) },
		"join":               func(a, b DataStream[int]) { a.Join(b) },
		"coGroup":            func(a, b DataStream[int]) { a.CoGroup(b) },
		"interval join":      func(a, b DataStream[int]) { a.KeyBy(same).IntervalJoin(b.KeyBy(same)).Between(0, 0).Process(nothing) },
		"broadcast":          func(a, b DataStream[int]) { a.ConnectBroadcast(b.BroadcastState()) },
		"broadcast to keyed": func(a, b DataStream[int]) { a.KeyBy(same).ConnectBroadcast(b.BroadcastState()) },
	} {
		envs := []*Environment{newEnvironment("one", nil, nil), newEnvironment("two", nil, nil)}
		put(envs[0].FromCollection(1).DataStream, envs[1].FromCollection(2).Cache().DataStream)
		for i, e := range envs {
			if _, err := e.translate(); err == nil || !strings.Contains(err.Error(), "different environments") || !strings.Contains(err.Error(), "mistakes_test.go:") {
				t.Errorf("%s, environment %d: %v", name, i, err)
			}
		}
	}
}

// A stream of a program that is built already, kept in a variable, would lead into a graph that nobody runs.
func TestStreamOfABuiltProgram(t *testing.T) {
	var kept DataStream[int]
	build := func(e *Environment) error {
		kept = e.FromCollection(1, 2).DataStream
		kept.SinkTo(&collect[int]{})
		return nil
	}
	if _, err := program("first", build, config.Configuration{}, nil); err != nil {
		t.Fatal(err)
	}
	for name, use := range map[string]func(){
		"sink":    func() { kept.SinkTo(&collect[int]{}) },
		"map":     func() { kept.Map(func(i int) int { return i }) },
		"setting": func() { SingleOutputStreamOperator[int]{kept}.UID("late") },
	} {
		_, err := program("second", func(e *Environment) error {
			e.FromCollection(1).SinkTo(&collect[int]{})
			use()
			return nil
		}, config.Configuration{}, nil)
		if err == nil || !strings.Contains(err.Error(), "whose program is built already") || !strings.Contains(err.Error(), "mistakes_test.go:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// outside is no part of any record.
var outside int

// A field function of which a trial on a zero value can tell nothing is no mistake.
func TestFieldsBehindPointers(t *testing.T) {
	type wide struct {
		K int
		P *int
		L []int
	}
	for name, field := range map[string]func(*wide) *int{
		"itself":  func(w *wide) *int { return &w.K },
		"pointer": func(w *wide) *int { return w.P },
		"element": func(w *wide) *int { return &w.L[0] },
		"made if nil": func(w *wide) *int {
			if w.P == nil {
				w.P = new(int)
			}
			return w.P
		},
	} {
		e := newEnvironment("fields", nil, nil)
		k := e.FromCollection(wide{}).KeyBy(func(w wide) int { return w.K })
		k.Sum(field)
		k.Min(field)
		k.Window(TumblingEventTime(1e9)).Max(field)
		if err := e.mistakes(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// mistaken is a program with a mistake, and what is to be said of it.
type mistaken struct {
	want  string
	build func(*Environment)
}

// tellMistakes builds each program: it is refused with what is wanted, in one line each, at lines of file that end in "// wrong".
func tellMistakes(t *testing.T, file string, programs map[string]mistaken) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	places := regexp.MustCompile(`(?m)^ *` + regexp.QuoteMeta(file) + `:(\d+): `)
	for name, c := range programs {
		t.Run(name, func(t *testing.T) {
			_, err := program("mistakes", func(env *Environment) error {
				c.build(env)
				return nil
			}, config.Configuration{}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for _, at := range places.FindAllStringSubmatch(err.Error(), -1) {
				if n, _ := strconv.Atoi(at[1]); !strings.HasSuffix(lines[n-1], "// wrong") {
					t.Errorf("%v: line %d is %q", err, n, lines[n-1])
				}
			}
			if !places.MatchString(err.Error()) {
				t.Errorf("no line in %v", err)
			}
		})
	}
}

// twiceNamed opens two states of one name and different types.
type twiceNamed struct{ NoTimers[int, int] }

func (twiceNamed) Open(rt *RuntimeContext[int]) error {
	opened.Add(1)
	_, err := rt.ValueState[int64]("total")
	if err != nil {
		return err
	}
	_, err = rt.MapState[string, int64]("total")
	return err
}

func (twiceNamed) ProcessElement(*KeyedContext[int], int, *Collector[int]) error {
	return errors.New("a record was processed")
}

// keepsPerWindow keeps something of each window.
type keepsPerWindow struct{ PlainWindow[int] }

func (keepsPerWindow) Open(rt *WindowRuntimeContext[int]) error {
	opened.Add(1)
	_, err := rt.WindowValueState[int64]("seen")
	return err
}

func (keepsPerWindow) Process(*WindowContext[int], iter.Seq[int], *Collector[int]) error { return nil }

// opened counts the functions that were opened.
var opened atomic.Int64

// opens opens a state as a test says.
type opens struct {
	NoTimers[int, int]
	state func(rt *RuntimeContext[int]) error
}

func (o *opens) Open(rt *RuntimeContext[int]) error {
	opened.Add(1)
	return o.state(rt)
}

func (*opens) ProcessElement(*KeyedContext[int], int, *Collector[int]) error {
	return errors.New("a record was processed")
}

func opening(s KeyedStream[int, int], state func(rt *RuntimeContext[int]) error) DataStream[int] {
	return s.Process(func() KeyedProcessFunction[int, int, int] { return &opens{state: state} }).DataStream
}

// What only Open can tell fails the job before the first record, with the lines of the calls, and at once: a restart would meet it again.
func TestMistakesInOpen(t *testing.T) {
	for want, build := range map[string]func(s KeyedStream[int, int]) DataStream[int]{
		`state "total" is opened as ValueState[int64] at mistakes_test.go:`: func(s KeyedStream[int, int]) DataStream[int] {
			return s.Process(func() KeyedProcessFunction[int, int, int] { return twiceNamed{} }).DataStream
		},
		`state "seen", opened at mistakes_test.go:`: func(s KeyedStream[int, int]) DataStream[int] {
			return s.Window(ProcessingTimeSession(time.Second)).Process(func() ProcessWindowFunction[int, int, int] { return keepsPerWindow{} }).DataStream
		},
		`state "sum", opened at mistakes_test.go:`: func(s KeyedStream[int, int]) DataStream[int] {
			return opening(s, func(rt *RuntimeContext[int]) error { _, err := rt.ReducingState[int]("sum", nil); return err })
		},
		`the reduce function is nil`: func(s KeyedStream[int, int]) DataStream[int] {
			return opening(s, func(rt *RuntimeContext[int]) error { _, err := rt.ReducingState[int]("sum", nil); return err })
		},
		`the aggregator is nil`: func(s KeyedStream[int, int]) DataStream[int] {
			return opening(s, func(rt *RuntimeContext[int]) error {
				_, err := rt.AggregatingState[int, int64, int64]("sum", nil)
				return err
			})
		},
		`per-window state is not possible with windows that merge`: func(s KeyedStream[int, int]) DataStream[int] {
			return s.Window(EventTimeSession(time.Second)).AggregateProcess(Sum(func(i int) int { return i }),
				func() ProcessWindowFunction[int, int, int] { return keepsPerWindow{} }).DataStream
		},
	} {
		opened.Store(0)
		err := runJob(t, map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100", "restart-strategy.fixed-delay.delay": "1 ms"},
			func(env *Environment) error {
				build(env.FromCollection(1, 2).KeyBy(func(i int) int { return i })).SinkTo(&collect[int]{})
				return nil
			})
		if n := opened.Load(); err == nil || !strings.Contains(err.Error(), want) || n > 1 {
			t.Errorf("opened %d times: got %v, want %q", n, err, want)
		}
	}
}

// nameless emits to a side output that has no name.
type nameless struct{ Plain }

func (nameless) ProcessElement(ctx *ProcessContext, v float64, _ *Collector[float64]) error {
	ctx.Output(OutputTag[float64]{}, v)
	return nil
}

// What only a record can tell fails the job, with the operator and the line of the call that made it.
func TestFailuresNameTheCall(t *testing.T) {
	never := Async(func(ctx context.Context, _ float64) ([]float64, error) { <-ctx.Done(); return nil, ctx.Err() })
	add := func(a, b float64) float64 { return a + b }
	self := func(v float64) float64 { return v }
	for want, build := range map[string]func(s DataStreamSource[float64]) DataStream[float64]{
		"operator Async OrderedWait at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.OrderedWait(never, AsyncOptions[float64]{Timeout: 20 * time.Millisecond}).DataStream
		},
		"operator TumblingEventTimeWindows (uid sums) at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.KeyBy(func(float64) int { return 1 }).Window(TumblingEventTime(time.Second)).Reduce(add).UID("sums").DataStream
		},
		"timestamp function at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.AssignTimestampsAndWatermarks(BoundedOutOfOrderness[float64](0, nil)).Map(self).KeyBy(func(float64) int { return 1 }).Window(TumblingEventTime(time.Second)).Reduce(add).DataStream
		},
		"the timestamp function returned the zero time.Time": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.AssignTimestampsAndWatermarks(MonotonousTimestamps(func(float64) time.Time { return time.Time{} })).DataStream
		},
		"PartitionCustom at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.PartitionCustom(func(float64, int) int { return 7 }, self).Map(self).DataStream
		},
		"the field function returned nil for a record": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.KeyBy(func(float64) int { return 1 }).Sum(func(v *float64) *float64 { return nil }).DataStream
		},
		"operator Keyed Min at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.KeyBy(func(float64) int { return 1 }).Min(func(v *float64) *float64 { return nil }).DataStream
		},
		"operator Process at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.Process(func() ProcessFunction[float64, float64] { return nameless{} }).DataStream
		},
		"Output: the tag has no name": func(s DataStreamSource[float64]) DataStream[float64] {
			return s.Process(func() ProcessFunction[float64, float64] { return nameless{} }).DataStream
		},
		"KeyBy at mistakes_test.go:": func(s DataStreamSource[float64]) DataStream[float64] { // two of them would be two keys, and neither found again
			return s.KeyBy(func(v float64) [2]float64 { return [2]float64{v, math.NaN()} }).Reduce(add).DataStream
		},
	} {
		err := runJob(t, nil, func(env *Environment) error {
			build(env.FromCollection(1.0, 2.0)).SinkTo(&collect[float64]{})
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Mistakes of single calls and of the graph as a whole are told together, and a type once.
func TestMistakesAreToldAtOnce(t *testing.T) {
	type unfit struct{ u int }
	_, err := program("test", func(env *Environment) error {
		env.EnableCheckpointing(-1, "sometimes")
		in := env.FromCollection(1, 2).UID("x")
		in.KeyBy(func(i int) int { return i }).Window(TumblingEventTime(0)).Count(func(k int, _ TimeWindow, _ int64) int { return k }).UID("x").Print()
		in.Map(func(i int) int { return i }).SetParallelism(4).SetMaxParallelism(2).Forward().Map(func(i int) int { return i }).SetParallelism(3).Print()
		u := in.Map(func(i int) unfit { return unfit{i} })
		u = u.Filter(func(unfit) bool { return true })
		u.Map(func(v unfit) unfit { return v }).Print()
		in.KeyBy(func(i int) int { return i }).IntervalJoin(in.KeyBy(func(i int) int { return i })).Between(time.Second, -time.Second).
			Process(func(*JoinContext, int, int, *Collector[int]) error { return nil }).Print()
		return nil
	}, config.Configuration{}, nil)
	if err == nil {
		t.Fatal("no mistakes")
	}
	for _, want := range []string{"checkpoint interval -1ns", `checkpointing mode "sometimes"`, "window size 0s", `UID "x" is already used`, "max parallelism 2 must be", "forward needs the same parallelism",
		"unexported field", "the lower bound 1s is above"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is told %d times in\n%v", want, n, err)
		}
	}
	if !strings.Contains(err.Error(), "(also at mistakes_test.go:") || strings.Contains(err.Error(), "exclusive bounds") {
		t.Errorf("got %v", err)
	}
}

// stubborn is a trigger that does not merge.
type stubborn struct {
	Trigger[int]
	_ int // each is another one
}

func (*stubborn) CanMerge() bool { return false }

// TestForgottenWindowsAreToldOf: windows without a function are nothing, which nobody would notice beside another sink.
func TestForgottenWindowsAreToldOf(t *testing.T) {
	p, err := program("test", func(e *Environment) error {
		k := e.FromCollection(1, 2).KeyBy(func(v int) int { return v })
		k.Window(GlobalWindows()).Trigger(CountTrigger[int](2))
		k.CountWindow(2).Reduce(func(a, b int) int { return a + b }).SinkTo(&collect[int]{})
		return nil
	}, config.Configuration{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := slices.DeleteFunc(slices.Clone(p.Graph.Warnings), func(w string) bool { return !strings.Contains(w, "given no function") })
	if len(told) != 1 || !strings.HasPrefix(told[0], "mistakes_test.go:") {
		t.Errorf("%q", p.Graph.Warnings)
	}
	_, err = program("test", func(e *Environment) error {
		e.FromCollection(1, 2).KeyBy(func(v int) int { return v }).CountWindow(2)
		return nil
	}, config.Configuration{}, nil)
	if err == nil || !strings.Contains(err.Error(), "no sink") || !strings.Contains(err.Error(), "made at mistakes_test.go:") || !strings.Contains(err.Error(), "given no function") {
		t.Error(err)
	}
}
