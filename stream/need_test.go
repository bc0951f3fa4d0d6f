package stream

import (
	"iter"
	"math"
	"strings"
	"testing"
	"time"
)

// nothing is a window function that emits nothing.
type nothing[V any] struct{ PlainWindow[int] }

func (nothing[V]) Process(*WindowContext[int], iter.Seq[V], *Collector[int]) error { return nil }

// What is missing in a call is told when the graph is built, as the other mistakes are: nil functions, constructors that make nothing, nil
// pointers in interfaces, zero values of what has constructors.
func TestMissingIsToldWithItsLine(t *testing.T) {
	ints := func(env *Environment) DataStreamSource[int] { return env.FromCollection(1, 2) }
	same := func(i int) int { return i }
	add := func(a, b int) int { return a + b }
	keyed := func(env *Environment) KeyedStream[int, int] { return ints(env).KeyBy(same) }
	windows := func(env *Environment) WindowedStream[int, int] { return keyed(env).Window(TumblingEventTime(1e9)) }
	all := func(env *Environment) AllWindowedStream[int] { return ints(env).WindowAll(TumblingEventTime(1e9)) }
	joined := func(env *Environment) JoinEqualTo[int, int, int] {
		return ints(env).Join(ints(env)).Where(same).EqualTo(same)
	}
	tellMistakes(t, "need_test.go", map[string]mistaken{
		"Map":                  {"Map: the function is nil", func(e *Environment) { ints(e).Map[int](nil) }},                                                                                              // wrong
		"TryMap":               {"TryMap: the function is nil", func(e *Environment) { ints(e).TryMap[int](nil) }},                                                                                        // wrong
		"Filter":               {"Filter: the function is nil", func(e *Environment) { ints(e).Filter(nil) }},                                                                                             // wrong
		"FilterRef":            {"FilterRef: the function is nil", func(e *Environment) { ints(e).FilterRef(nil) }},                                                                                       // wrong
		"FilterMap":            {"FilterMap: the function is nil", func(e *Environment) { ints(e).FilterMap[int](nil) }},                                                                                  // wrong
		"FlatMap":              {"FlatMap: the function is nil", func(e *Environment) { ints(e).FlatMap[int](nil) }},                                                                                      // wrong
		"Update":               {"Update: the function is nil", func(e *Environment) { ints(e).Update(nil) }},                                                                                             // wrong
		"PartitionCustom":      {"PartitionCustom: the partition function is nil", func(e *Environment) { ints(e).PartitionCustom(nil, same) }},                                                           // wrong
		"PartitionCustom, key": {"PartitionCustom: the key function is nil", func(e *Environment) { ints(e).PartitionCustom(func(int, int) int { return 0 }, nil) }},                                      // wrong
		"KeyBy":                {"KeyBy: the key function is nil", func(e *Environment) { ints(e).KeyBy[int](nil) }},                                                                                      // wrong
		"Union":                {"Union: a stream is nil", func(e *Environment) { ints(e).Union(nil) }},                                                                                                   // wrong
		"Union, nil pointer":   {"Union: a stream is nil", func(e *Environment) { ints(e).Union((*DataStream[int])(nil)) }},                                                                               // wrong
		"Connect":              {"Connect: the other stream is nil", func(e *Environment) { ints(e).Connect[int](nil) }},                                                                                  // wrong
		"Process":              {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).Process[int](nil) }},                                        // wrong
		"Process, returned":    {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).Process(func() ProcessFunction[int, int] { return nil }) }}, // wrong
		"Process, returned pointer": {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) {
			keyed(e).Process(func() KeyedProcessFunction[int, int, int] { return (*twiceNamed)(nil) }) // wrong
		}},
		"keyed Process": {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { keyed(e).Process[int](nil) }}, // wrong
		"connected Map": {"Map: the second function is nil", func(e *Environment) { ints(e).Connect(ints(e)).Map(same, nil) }},                               // wrong
		"connected FlatMap": {"FlatMap: the first function is nil", func(e *Environment) {
			ints(e).Connect(ints(e)).FlatMap(nil, func(int, *Collector[int]) error { return nil }) // wrong
		}},
		"connected Process":       {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).Connect(ints(e)).Process[int](nil) }},                            // wrong
		"connected keyed Process": {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { keyed(e).Connect(keyed(e)).Process[int](nil) }},                          // wrong
		"connected KeyBy":         {"KeyBy: the key function is nil", func(e *Environment) { ints(e).Connect(ints(e)).KeyBy(same, nil) }},                                                                         // wrong
		"broadcast Process":       {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).ConnectBroadcast(ints(e).BroadcastState()).Process[int](nil) }},  // wrong
		"keyed broadcast Process": {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { keyed(e).ConnectBroadcast(ints(e).BroadcastState()).Process[int](nil) }}, // wrong
		"BroadcastState":          {"BroadcastState: a state is nil", func(e *Environment) { ints(e).BroadcastState(nil) }},                                                                                       // wrong
		"Reduce":                  {"Reduce: the function is nil", func(e *Environment) { keyed(e).Reduce((func(a, b int) int)(nil)) }},                                                                           // wrong
		"OrderedWait":             {"OrderedWait: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).OrderedWait(nil, AsyncOptions[int]{Timeout: 1}) }},           // wrong
		"UnorderedWait": {"UnorderedWait: the function that makes the instances, or what it returns, is nil", func(e *Environment) {
			ints(e).UnorderedWait(func() AsyncFunction[int, int] { return nil }, AsyncOptions[int]{Timeout: 1}) // wrong
		}},
		"Async":       {"UnorderedWait: the function that makes the instances, or what it returns, is nil", func(e *Environment) { ints(e).UnorderedWait(Async[int, int](nil), AsyncOptions[int]{Timeout: 1}) }}, // wrong
		"keyed Sum":   {"Sum: the field function is nil", func(e *Environment) { keyed(e).Sum((func(*int) *int)(nil)) }},                                                                                         // wrong
		"keyed Min":   {"Min: the field function is nil", func(e *Environment) { keyed(e).Min((func(*int) *int)(nil)) }},                                                                                         // wrong
		"keyed Max":   {"Max: the field function is nil", func(e *Environment) { keyed(e).Max((func(*int) *int)(nil)) }},                                                                                         // wrong
		"keyed MinBy": {"MinBy: the value function is nil", func(e *Environment) { keyed(e).MinBy((func(int) int)(nil)) }},                                                                                       // wrong
		"keyed MaxBy": {"MaxBy: the value function is nil", func(e *Environment) { keyed(e).MaxBy((func(int) int)(nil)) }},                                                                                       // wrong
		"keyed Aggregate": {"Aggregate: the aggregator is nil", func(e *Environment) {
			keyed(e).Aggregate(Aggregator[int, Mean, float64](nil), func(int, float64) int { return 0 }) // wrong
		}},
		"keyed Aggregate, result": {"Aggregate: the result function is nil", func(e *Environment) { keyed(e).Aggregate(Average(same), (func(int, float64) int)(nil)) }},                // wrong
		"keyed Average":           {"Average: the aggregator's function is nil", func(e *Environment) { keyed(e).Average((func(int) int)(nil), func(int, float64) int { return 0 }) }}, // wrong
		"keyed Count":             {"Count: the result function is nil", func(e *Environment) { keyed(e).Count((func(int, int64) int)(nil)) }},                                         // wrong
		"Sum":                     {"Sum: the field function is nil", func(e *Environment) { windows(e).Sum((func(*int) *int)(nil)) }},                                                 // wrong
		"Min":                     {"Min: the field function is nil", func(e *Environment) { windows(e).Min((func(*int) *int)(nil)) }},                                                 // wrong
		"Max":                     {"Max: the field function is nil", func(e *Environment) { windows(e).Max((func(*int) *int)(nil)) }},                                                 // wrong
		"MinBy":                   {"MinBy: the value function is nil", func(e *Environment) { windows(e).MinBy((func(int) int)(nil)) }},                                               // wrong
		"MaxBy":                   {"MaxBy: the value function is nil", func(e *Environment) { windows(e).MaxBy((func(int) int)(nil)) }},                                               // wrong
		"Aggregate": {"Aggregate: the aggregator is nil", func(e *Environment) {
			windows(e).Aggregate(Aggregator[int, Mean, float64](nil), func(int, TimeWindow, float64) int { return 0 }) // wrong
		}},
		"Aggregate, result": {"Aggregate: the result function is nil", func(e *Environment) { windows(e).Aggregate(Average(same), (func(int, TimeWindow, float64) int)(nil)) }}, // wrong
		"Average": {"Average: the aggregator's function is nil", func(e *Environment) {
			windows(e).Average((func(int) int)(nil), func(int, TimeWindow, float64) int { return 0 }) // wrong
		}},
		"Count":     {"Count: the result function is nil", func(e *Environment) { windows(e).Count((func(int, TimeWindow, int64) int)(nil)) }}, // wrong
		"all Sum":   {"Sum: the field function is nil", func(e *Environment) { all(e).Sum((func(*int) *int)(nil)) }},                           // wrong
		"all Min":   {"Min: the field function is nil", func(e *Environment) { all(e).Min((func(*int) *int)(nil)) }},                           // wrong
		"all Max":   {"Max: the field function is nil", func(e *Environment) { all(e).Max((func(*int) *int)(nil)) }},                           // wrong
		"all MinBy": {"MinBy: the value function is nil", func(e *Environment) { all(e).MinBy((func(int) int)(nil)) }},                         // wrong
		"all MaxBy": {"MaxBy: the value function is nil", func(e *Environment) { all(e).MaxBy((func(int) int)(nil)) }},                         // wrong
		"all Aggregate": {"Aggregate: the aggregator is nil", func(e *Environment) {
			all(e).Aggregate(Aggregator[int, Mean, float64](nil), func(TimeWindow, float64) int { return 0 }) // wrong
		}},
		"all Aggregate, result": {"Aggregate: the result function is nil", func(e *Environment) { all(e).Aggregate(Average(same), (func(TimeWindow, float64) int)(nil)) }},                // wrong
		"all Average":           {"Average: the aggregator's function is nil", func(e *Environment) { all(e).Average((func(int) int)(nil), func(TimeWindow, float64) int { return 0 }) }}, // wrong
		"all Count":             {"Count: the result function is nil", func(e *Environment) { all(e).Count((func(TimeWindow, int64) int)(nil)) }},                                         // wrong
		"aggregator Sum":        {"Aggregate: the aggregator's function is nil", func(e *Environment) { keyed(e).Aggregate(Sum((func(int) int)(nil)), func(int, int) int { return 0 }) }}, // wrong
		"aggregator Min":        {"Aggregate: the aggregator's function is nil", func(e *Environment) { keyed(e).Aggregate(Min((func(int) int)(nil)), func(int, int) int { return 0 }) }}, // wrong
		"aggregator Max":        {"Aggregate: the aggregator's function is nil", func(e *Environment) { keyed(e).Aggregate(Max((func(int) int)(nil)), func(int, int) int { return 0 }) }}, // wrong
		"aggregator, nil pointer": {"AggregateProcess: the aggregator is nil", func(e *Environment) {
			windows(e).AggregateProcess(Aggregator[int, int64, int64]((*count[int])(nil)), func() ProcessWindowFunction[int, int64, int] { return nothing[int64]{} }) // wrong
		}},
		"AggregateProcess": {"AggregateProcess: the function that makes the instances, or what it returns, is nil", func(e *Environment) {
			windows(e).AggregateProcess(Count[int](), (func() ProcessWindowFunction[int, int64, int])(nil)) // wrong
		}},
		"window Reduce":       {"Reduce: the function is nil", func(e *Environment) { windows(e).Reduce((func(a, b int) int)(nil)) }},                                   // wrong
		"all Reduce":          {"Reduce: the function is nil", func(e *Environment) { all(e).Reduce((func(a, b int) int)(nil)) }},                                       // wrong
		"ReduceApply":         {"ReduceApply: the function is nil", func(e *Environment) { windows(e).ReduceApply(nil, func(int, TimeWindow, int) int { return 0 }) }},  // wrong
		"ReduceApply, result": {"ReduceApply: the result function is nil", func(e *Environment) { windows(e).ReduceApply(add, (func(int, TimeWindow, int) int)(nil)) }}, // wrong
		"ReduceProcess": {"ReduceProcess: the function is nil", func(e *Environment) {
			windows(e).ReduceProcess(nil, func() ProcessWindowFunction[int, int, int] { return nothing[int]{} }) // wrong
		}},
		"ReduceProcess, function": {"ReduceProcess: the function that makes the instances, or what it returns, is nil", func(e *Environment) { windows(e).ReduceProcess[int](add, nil) }}, // wrong
		"window Process":          {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { windows(e).Process[int](nil) }},                  // wrong
		"all Process":             {"Process: the function that makes the instances, or what it returns, is nil", func(e *Environment) { all(e).Process[int](nil) }},                      // wrong
		"Apply":                   {"Apply: the function is nil", func(e *Environment) { windows(e).Apply[int](nil) }},                                                                    // wrong
		"all Apply":               {"Apply: the function is nil", func(e *Environment) { all(e).Apply[int](nil) }},                                                                        // wrong
		"Where":                   {"Where: the key function is nil", func(e *Environment) { ints(e).Join(ints(e)).Where[int](nil) }},                                                     // wrong
		"EqualTo":                 {"EqualTo: the key function is nil", func(e *Environment) { ints(e).Join(ints(e)).Where(same).EqualTo(nil) }},                                          // wrong
		"coGroup Where":           {"Where: the key function is nil", func(e *Environment) { ints(e).CoGroup(ints(e)).Where[int](nil) }},                                                  // wrong
		"coGroup EqualTo":         {"EqualTo: the key function is nil", func(e *Environment) { ints(e).CoGroup(ints(e)).Where(same).EqualTo(nil) }},                                       // wrong
		"join Apply":              {"Apply: the function is nil", func(e *Environment) { joined(e).Window(TumblingEventTime(1e9)).Apply[int](nil) }},                                      // wrong
		"join FlatApply":          {"FlatApply: the function is nil", func(e *Environment) { joined(e).Window(TumblingEventTime(1e9)).FlatApply[int](nil) }},                              // wrong
		"join Process":            {"Process: the function is nil", func(e *Environment) { joined(e).Window(TumblingEventTime(1e9)).Process[int](nil) }},                                  // wrong
		"coGroup Apply": {"Apply: the function is nil", func(e *Environment) {
			ints(e).CoGroup(ints(e)).Where(same).EqualTo(same).Window(TumblingEventTime(1e9)).Apply[int](nil) // wrong
		}},
		"coGroup Process": {"Process: the function is nil", func(e *Environment) {
			ints(e).CoGroup(ints(e)).Where(same).EqualTo(same).Window(TumblingEventTime(1e9)).Process[int](nil) // wrong
		}},
		"interval join":           {"Process: the function is nil", func(e *Environment) { keyed(e).IntervalJoin(keyed(e)).Between(0, 0).Process[int](nil) }},              // wrong
		"SinkTo":                  {"SinkTo: the sink is nil", func(e *Environment) { ints(e).SinkTo(nil) }},                                                               // wrong
		"SinkTo, nil pointer":     {"SinkTo: the sink is nil", func(e *Environment) { ints(e).SinkTo((*collect[int])(nil)) }},                                              // wrong
		"FromSource":              {"FromSource: the source is nil", func(e *Environment) { e.FromSource(nil, NoWatermarks[int](), "none").Map(same) }},                    // wrong
		"FromSource, nil pointer": {"FromSource: the source is nil", func(e *Environment) { e.FromSource((*collection[int])(nil), NoWatermarks[int](), "none") }},          // wrong
		"strategy of a source":    {"the watermark strategy is a zero value", func(e *Environment) { e.FromSource(&collection[int]{}, WatermarkStrategy[int]{}, "none") }}, // wrong
		"strategy":                {"the watermark strategy is a zero value", func(e *Environment) { ints(e).AssignTimestampsAndWatermarks(WatermarkStrategy[int]{}) }},    // wrong
		"strategy with idleness": {"the watermark strategy is a zero value", func(e *Environment) {
			ints(e).AssignTimestampsAndWatermarks(WatermarkStrategy[int]{}.WithIdleness(time.Second)) // wrong
		}},
		"generator": {"ForGenerator: the function that makes the generators, or what it returns, is nil", func(e *Environment) { ints(e).AssignTimestampsAndWatermarks(ForGenerator[int](nil, nil)) }}, // wrong
		"generator, returned": {"ForGenerator: the function that makes the generators, or what it returns, is nil", func(e *Environment) {
			ints(e).AssignTimestampsAndWatermarks(ForGenerator(func() WatermarkGenerator[int] { return nil }, nil)) // wrong
		}},
		"Window":                  {"the window assigner is a zero value", func(e *Environment) { keyed(e).Window(WindowAssigner{}).Reduce(add) }},                                                    // wrong
		"WindowAll":               {"the window assigner is a zero value", func(e *Environment) { ints(e).WindowAll(WindowAssigner{}) }},                                                              // wrong
		"joined Window":           {"the window assigner is a zero value", func(e *Environment) { joined(e).Window(WindowAssigner{}) }},                                                               // wrong
		"dynamic gap":             {"needs a gap function", func(e *Environment) { keyed(e).Window(EventTimeSessionDynamic[int](nil)) }},                                                              // wrong
		"Trigger":                 {"Trigger needs a trigger", func(e *Environment) { windows(e).Trigger(WindowTrigger[int]{}) }},                                                                     // wrong
		"PurgingTrigger":          {"Trigger needs a trigger", func(e *Environment) { windows(e).Trigger(PurgingTrigger(WindowTrigger[int]{})) }},                                                     // wrong
		"CustomTrigger":           {"CustomTrigger needs a function", func(e *Environment) { windows(e).Trigger(CustomTrigger[int](nil)) }},                                                           // wrong
		"CustomTrigger, returned": {"CustomTrigger: the function that makes the trigger returns nil", func(e *Environment) { windows(e).Trigger(CustomTrigger(func() Trigger[int] { return nil })) }}, // wrong
		"CustomTrigger, purging": {"CustomTrigger: the function that makes the trigger returns nil", func(e *Environment) {
			windows(e).Trigger(PurgingTrigger(CustomTrigger(func() Trigger[int] { return nil }))) // wrong
		}},
		"DeltaTrigger":             {"DeltaTrigger needs a delta function", func(e *Environment) { windows(e).Trigger(DeltaTrigger[int](1, nil)) }},                                 // wrong
		"Evictor":                  {"Evictor needs an evictor", func(e *Environment) { windows(e).Evictor(WindowEvictor[int]{}) }},                                                 // wrong
		"CustomEvictor":            {"CustomEvictor needs an evictor", func(e *Environment) { windows(e).Evictor(CustomEvictor[int](nil)) }},                                        // wrong
		"DeltaEvictor":             {"DeltaEvictor needs a delta function", func(e *Environment) { windows(e).Evictor(DeltaEvictor[int](1, nil)) }},                                 // wrong
		"zero stream":              {"the stream was not made by an Environment", func(e *Environment) { DataStream[int]{}.Map(same) }},                                             // wrong
		"zero stream, sink":        {"the stream was not made by an Environment", func(e *Environment) { DataStream[int]{}.SinkTo(&collect[int]{}) }},                               // wrong
		"zero stream, printed":     {"the stream was not made by an Environment", func(e *Environment) { DataStream[int]{}.Print() }},                                               // wrong
		"zero stream, name":        {"the stream was not made by an Environment", func(e *Environment) { SingleOutputStreamOperator[int]{}.Name("x") }},                             // wrong
		"zero sink":                {"the stream was not made by an Environment", func(e *Environment) { DataStreamSink[int]{}.UID("x") }},                                          // wrong
		"zero stream, side output": {"the stream was not made by an Environment", func(e *Environment) { SingleOutputStreamOperator[int]{}.GetSideOutput(NewOutputTag[int]("x")) }}, // wrong
		"zero stream, other":       {"the stream was not made by an Environment", func(e *Environment) { ints(e).Union(DataStream[int]{}) }},                                        // wrong
		"zero stream, connected":   {"the stream was not made by an Environment", func(e *Environment) { ints(e).Connect(DataStream[int]{}) }},                                      // wrong
		"zero stream, broadcast":   {"the stream was not made by an Environment", func(e *Environment) { ints(e).ConnectBroadcast(BroadcastStream[int]{}) }},                        // wrong
		"zero keyed stream":        {"the stream was not made by an Environment", func(e *Environment) { KeyedStream[int, int]{}.Reduce(add) }},                                     // wrong
		"zero windows":             {"the stream was not made by an Environment", func(e *Environment) { WindowedStream[int, int]{}.Reduce(add) }},                                  // wrong
		"zero all windows":         {"the stream was not made by an Environment", func(e *Environment) { AllWindowedStream[int]{}.Reduce(add) }},                                    // wrong
		"zero join":                {"the stream was not made by an Environment", func(e *Environment) { JoinedStreams[int, int]{}.Where(same) }},                                   // wrong
		"zero interval join": {"the stream was not made by an Environment", func(e *Environment) {
			IntervalJoin[int, int, int]{}.Between(0, 0).Process(func(*JoinContext, int, int, *Collector[int]) error { return nil }) // wrong
		}},
	})
	t.Run("build", func(t *testing.T) {
		if _, err := program("mistakes", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "is nil") {
			t.Errorf("got %v", err)
		}
	})
}

// An event time that milliseconds cannot say fails the job with that reason, at the source and in mid-stream, not with a wrong time.
func TestEventTimeOutOfRange(t *testing.T) {
	for name, at := range map[string]time.Time{
		"no time": time.Unix(1<<60, 0), "wraps": time.Unix(1<<60+1, 0), "past": time.Unix(-1<<60, 0), "by a millisecond": time.UnixMilli(math.MaxInt64).Add(time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			wm := MonotonousTimestamps(func(int) time.Time { return at })
			for place, build := range map[string]func(*Environment) DataStream[int]{
				"source": func(e *Environment) DataStream[int] {
					return e.FromSource(&collection[int]{elements: []int{1}}, wm, "n").DataStream
				},
				"midstream": func(e *Environment) DataStream[int] {
					return e.FromCollection(1).AssignTimestampsAndWatermarks(wm).DataStream
				},
			} {
				err := runJob(t, map[string]string{"restart-strategy.type": "none"}, func(env *Environment) error {
					build(env).KeyBy(func(i int) int { return i }).Window(TumblingEventTime(time.Second)).Reduce(func(a, b int) int { return a + b }).SinkTo(&collect[int]{})
					return nil
				})
				if err == nil || !strings.Contains(err.Error(), "out of range") || strings.Contains(err.Error(), "no event time") {
					t.Errorf("%s: got %v", place, err)
				}
			}
		})
	}
}

// Without a timestamp function records keep the event time that they have.
func TestNoTimestampFunction(t *testing.T) {
	out := &collect[int]{}
	err := runJob(t, nil, func(env *Environment) error {
		first := MonotonousTimestamps(func(v int) time.Time { return time.UnixMilli(int64(v) * 1000) })
		env.FromCollection(1, 2, 3).AssignTimestampsAndWatermarks(first).AssignTimestampsAndWatermarks(MonotonousTimestamps[int](nil)).
			KeyBy(func(int) int { return 0 }).Window(TumblingEventTime(2 * time.Second)).Reduce(func(a, b int) int { return a + b }).SinkTo(out)
		return nil
	})
	if got := strings.Join(sorted(out), " "); err != nil || got != "1 5" {
		t.Errorf("got %s, %v", got, err)
	}
}
