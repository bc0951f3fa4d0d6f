package streamtest_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

// ev is the record of all streams of the programs that this file draws.
type ev struct {
	Key string
	V   int64
}

func evKey(e ev) string { return e.Key }

// opSpec is one operator of a drawn program. Streams are numbered: 0 and 1 are the inputs, then those that the operators emit, in their order.
type opSpec struct {
	Kind        string
	In          []int // one or two streams
	N, M        int64 // its numbers: a size and a slide, bounds, a gap
	Late        int64 // allowed lateness
	Part        string
	Chain       string // "", "own" or "head"
	Parallelism int    // 0: the job's
}

func (o opSpec) String() string {
	return fmt.Sprintf("%s%v n=%d m=%d late=%d %s %s p=%d", o.Kind, o.In, o.N, o.M, o.Late, o.Part, o.Chain, o.Parallelism)
}

// outputsOf is how many streams an operator emits.
func (o opSpec) outputs() int {
	switch o.Kind {
	case "split", "tumbling", "sliding", "session", "keepwindow":
		return 2
	case "windowjoin", "cogroup", "intervaljoin":
		return 3
	}
	return 1
}

// traits are what a stream's readers can rely on.
type traits struct {
	several bool // one step of the test may bring several records of a key, in no order that is told
	delayed bool // records come when an asynchronous function answers
	again   bool // timers in the past fire again, so to say, at a restart: their records come before the watermark that they follow
	leaf    bool // its times are no event times: only a sink reads it
	from    int  // the inputs that it comes from, as bits
}

// drawProgram draws operators, each of which reads streams that there are and whose results follow from what was pushed.
func drawProgram(t *rapid.T, kinds []string) []opSpec {
	all := []traits{{from: 1}, {from: 2}}
	var ops []opSpec
	for range rapid.IntRange(1, 6).Draw(t, "operators") {
		pick := func(ok func(traits) bool) int {
			var fit []int
			for i, s := range all {
				if !s.leaf && ok(s) {
					fit = append(fit, i)
				}
			}
			return rapid.SampledFrom(fit).Draw(t, "stream")
		}
		any := func(traits) bool { return true }
		ordered := func(s traits) bool { return !s.several && !s.delayed }
		o := opSpec{Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Part: rapid.SampledFrom(parts).Draw(t, "partitioner"),
			Chain: rapid.SampledFrom([]string{"", "", "", "own", "head"}).Draw(t, "chaining"), N: rapid.Int64Range(1, 20).Draw(t, "n"), M: rapid.Int64Range(1, 20).Draw(t, "m")}
		if rapid.IntRange(0, 3).Draw(t, "parallelism of its own") == 0 {
			o.Parallelism = rapid.IntRange(1, 3).Draw(t, "p")
		}
		var out []traits
		switch o.Kind {
		case "map", "filter", "flatmap", "copies", "split", "cache":
			o.In = []int{pick(any)}
			s := all[o.In[0]]
			s.several = s.several || o.Kind == "flatmap" || o.Kind == "copies"
			out = []traits{s, s}
		case "union", "comap":
			o.In = []int{pick(any), pick(any)}
			a, b := all[o.In[0]], all[o.In[1]]
			out = []traits{{several: a.several || b.several || a.from&b.from != 0, delayed: a.delayed || b.delayed, again: a.again || b.again, from: a.from | b.from}}
		case "async", "asyncordered":
			o.In = []int{pick(any)}
			s := all[o.In[0]]
			s.several, s.delayed = true, true
			out = []traits{s}
		case "tumbling", "sliding", "session", "keepwindow":
			ok := any
			if o.Kind == "session" || rapid.Bool().Draw(t, "lateness allowed") {
				ok = ordered
				o.Late = rapid.Int64Range(0, 15).Draw(t, "lateness")
			}
			o.In = []int{pick(ok)}
			s := all[o.In[0]]
			late := s
			s.several = true
			out = []traits{s, late}
		case "windowjoin", "cogroup":
			o.In = []int{pick(any), pick(any)}
			a, b := all[o.In[0]], all[o.In[1]]
			out = []traits{{several: true, delayed: a.delayed || b.delayed, again: a.again || b.again, from: a.from | b.from}, a, b}
		case "intervaljoin":
			steady := func(s traits) bool { return !s.delayed && !s.again }
			o.In = []int{pick(steady), pick(steady)}
			a, b := all[o.In[0]], all[o.In[1]]
			out = []traits{{several: true, from: a.from | b.from}, a, b}
		case "timers", "cotimers":
			o.In = []int{pick(any)}
			s := all[o.In[0]]
			if o.Kind == "cotimers" {
				o.In = append(o.In, pick(any))
				s.delayed, s.from = s.delayed || all[o.In[1]].delayed, s.from|all[o.In[1]].from
			}
			out = []traits{{several: true, again: true, delayed: s.delayed, from: s.from}}
		case "rolling", "lists":
			o.In = []int{pick(ordered)}
			out = []traits{all[o.In[0]]}
		case "count", "clock":
			o.In = []int{pick(func(s traits) bool { return !s.delayed || o.Kind == "count" })}
			out = []traits{{leaf: true}}
		case "rules", "keyedrules":
			o.In = []int{pick(func(s traits) bool { return !s.delayed && !s.again })}
			out = []traits{all[o.In[0]]}
		}
		ops = append(ops, o)
		all = append(all, out[:o.outputs()]...)
	}
	return ops
}

var (
	opKinds = []string{"map", "filter", "flatmap", "copies", "split", "cache", "union", "comap", "async", "asyncordered", "tumbling", "sliding", "session", "keepwindow",
		"windowjoin", "cogroup", "intervaljoin", "timers", "cotimers", "rolling", "lists", "count", "clock", "rules", "keyedrules"}
	parts = []string{"", "", "rebalance", "rescale", "shuffle", "global", "custom"}
)

// whole runs a drawn program.
type whole struct {
	ops     []opSpec
	in      [2]streamtest.Input[ev]
	rules   streamtest.Input[ev]
	out     []*streamtest.Output[ev]
	told    streamtest.Output[ev] // the rules
	answers map[int]bool          // streams of asynchronous functions
}

func ms(n int64) time.Time      { return streamtest.At(time.Duration(n) * time.Millisecond) }
func dur(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
func sum(a, b ev) ev            { return ev{a.Key, a.V + b.V} }
func tag(op, n int) stream.OutputTag[ev] {
	return stream.NewOutputTag[ev](fmt.Sprint("side", op, "-", n))
}

func (w *whole) build(env *stream.Environment) error {
	all := []stream.DataStream[ev]{w.in[0].Stream(env).UID("in0").DataStream, w.in[1].Stream(env).UID("in1").DataStream}
	told := w.rules.Stream(env).UID("rules")
	told.SinkTo(w.told.Sink()).UID("told")
	for i, s := range w.graph(all, told.BroadcastState(ruleOf)) {
		s.SinkTo(w.out[i].Sink()).UID(fmt.Sprint("out", i))
	}
	return nil
}

// graph adds the operators to the inputs, and returns all streams.
func (w *whole) graph(all []stream.DataStream[ev], rules stream.BroadcastStream[ev]) []stream.DataStream[ev] {
	for i, o := range w.ops {
		op := w.operator(i, o, all, rules)
		op = op.UID(fmt.Sprint("op", i))
		if o.Parallelism > 0 && o.Kind != "copies" && o.Kind != "cache" {
			op = op.SetParallelism(o.Parallelism)
		}
		switch o.Chain {
		case "own":
			op = op.DisableChaining()
		case "head":
			op = op.StartNewChain()
		}
		if o.Kind == "async" || o.Kind == "asyncordered" {
			w.answers[len(all)] = true
		}
		all = append(all, op.DataStream)
		for n := 1; n < o.outputs(); n++ {
			all = append(all, op.GetSideOutput(tag(i, n)))
		}
	}
	return all
}

// operator adds operator i.
func (w *whole) operator(i int, o opSpec, all []stream.DataStream[ev], rules stream.BroadcastStream[ev]) stream.SingleOutputStreamOperator[ev] {
	in := all[o.In[0]]
	var second stream.DataStream[ev]
	if len(o.In) > 1 {
		second = all[o.In[1]]
	}
	switch o.Part {
	case "rebalance":
		in = in.Rebalance()
	case "rescale":
		in = in.Rescale()
	case "shuffle":
		in = in.Shuffle()
	case "global":
		in = in.Global()
	case "custom":
		in = in.PartitionCustom(func(v int64, n int) int { return int(v&0xff) % n }, func(e ev) int64 { return e.V })
	}
	key := in.KeyBy(evKey)
	side := func(n int) stream.OutputTag[ev] { return tag(i, n) }
	windowed := func(a stream.WindowAssigner) stream.SingleOutputStreamOperator[ev] {
		return key.Window(a).AllowedLateness(dur(o.Late)).SideOutputLateData(side(1)).Reduce(sum)
	}
	switch o.Kind {
	case "map":
		return in.Map(func(e ev) ev { return ev{e.Key, e.V + o.N} })
	case "filter":
		return in.Filter(func(e ev) bool { return e.V%3 != 0 })
	case "flatmap":
		return in.FlatMap(func(e ev, out *stream.Collector[ev]) error {
			for range o.N % 3 {
				out.Collect(e)
			}
			return nil
		})
	case "copies":
		return all[o.In[0]].Broadcast().Map(func(e ev) ev { return e }).SetParallelism(int(1 + o.N%3))
	case "split":
		return in.Process(func() stream.ProcessFunction[ev, ev] { return &splitter{side: side(1)} })
	case "cache":
		return all[o.In[0]].Cache()
	case "union":
		return in.Union(second).Map(func(e ev) ev { return e })
	case "comap":
		return in.Connect(second).Map(func(e ev) ev { return e }, func(e ev) ev { return ev{e.Key, -e.V} })
	case "async", "asyncordered":
		ask := stream.Async(func(ctx context.Context, e ev) ([]ev, error) {
			if e.V%4 == 0 { // answers overtake each other, and some are under way when the job stops
				select {
				case <-time.After(time.Duration(e.V%7) * time.Millisecond):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return []ev{{e.Key, e.V * 2}}, nil
		})
		opts := stream.AsyncOptions[ev]{Timeout: time.Minute, Capacity: int(1 + o.N%4)}
		if o.Kind == "async" {
			return in.UnorderedWait(ask, opts)
		}
		return in.OrderedWait(ask, opts)
	case "tumbling":
		return windowed(stream.TumblingEventTimeOffset(dur(o.N), dur(o.M%o.N)))
	case "sliding":
		return windowed(stream.SlidingEventTime(dur(o.N), dur(o.M)))
	case "session":
		return windowed(stream.EventTimeSession(dur(o.N)))
	case "keepwindow":
		return key.Window(stream.SlidingEventTime(dur(o.N), dur(o.M))).AllowedLateness(dur(o.Late)).SideOutputLateData(side(1)).
			ReduceProcess(sum, func() stream.ProcessWindowFunction[string, ev, ev] { return &keeper{} })
	case "windowjoin":
		return in.Join(second).Where(evKey).EqualTo(evKey).Window(stream.SlidingEventTime(dur(o.N), dur(o.M))).
			SideOutputLeftLateData(side(1)).SideOutputRightLateData(side(2)).Apply(sum)
	case "cogroup":
		return in.CoGroup(second).Where(evKey).EqualTo(evKey).Window(stream.TumblingEventTime(dur(o.N))).
			SideOutputLeftLateData(side(1)).SideOutputRightLateData(side(2)).Process(
			func(ctx *stream.WindowContext[string], l, r iter.Seq[ev], out *stream.Collector[ev]) error {
				n := int64(0)
				for e := range l {
					n += 3 * e.V
				}
				for e := range r {
					n -= e.V
				}
				out.Collect(ev{ctx.Key(), n})
				return nil
			})
	case "intervaljoin":
		return key.IntervalJoin(second.KeyBy(evKey)).Between(dur(-o.N), dur(o.M)).SideOutputLeftLateData(side(1)).SideOutputRightLateData(side(2)).Process(
			func(_ *stream.JoinContext, l, r ev, out *stream.Collector[ev]) error {
				out.Collect(sum(l, r))
				return nil
			})
	case "timers":
		return key.Process(func() stream.KeyedProcessFunction[string, ev, ev] { return &alarms{every: o.N} })
	case "cotimers":
		return key.Connect(second.KeyBy(evKey)).Process(func() stream.KeyedCoProcessFunction[string, ev, ev, ev] { return &alarms{every: o.N} })
	case "clock":
		return key.Process(func() stream.KeyedProcessFunction[string, ev, ev] { return &alarms{wait: o.N} })
	case "rolling":
		return key.Reduce(sum)
	case "lists":
		return key.Process(func() stream.KeyedProcessFunction[string, ev, ev] { return &recent{n: int(1 + o.N%3)} })
	case "count":
		return key.CountWindow(1 + o.N%3).Count(func(k string, _ stream.TimeWindow, n int64) ev { return ev{k, n} })
	case "rules":
		return in.ConnectBroadcast(rules).Process(func() stream.BroadcastProcessFunction[ev, ev, ev] { return ruled{} })
	case "keyedrules":
		return key.ConnectBroadcast(rules).Process(func() stream.KeyedBroadcastProcessFunction[string, ev, ev, ev] { return &keyedRuled{} })
	}
	panic(o.Kind)
}

// quiet is a test that collects what its jobs leave to clean up.
type quiet struct {
	testing.TB
	rt   *rapid.T
	tidy []func()
}

func (q *quiet) Helper()                      {}
func (q *quiet) Log(args ...any)              { q.rt.Log(args...) }
func (q *quiet) Logf(f string, args ...any)   { q.rt.Logf(f, args...) }
func (q *quiet) Fatal(args ...any)            { q.rt.Fatal(args...) }
func (q *quiet) Fatalf(f string, args ...any) { q.rt.Fatalf(f, args...) }
func (q *quiet) Errorf(f string, args ...any) { q.rt.Errorf(f, args...) }
func (q *quiet) Cleanup(fn func())            { q.tidy = append(q.tidy, fn) }
func (q *quiet) TempDir() string {
	dir, err := os.MkdirTemp("", "streamtest")
	if err != nil {
		q.rt.Fatal(err)
	}
	q.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (q *quiet) close() {
	for _, fn := range slices.Backward(q.tidy) {
		fn()
	}
}

// Whole programs of all operators, in any graph, give what a plain interpreter of them gives: over any order of records and watermarks of their
// inputs, late records included, at parallelism 1 to 4, on both backends, chained or not, with restarts at another parallelism at any time.
func TestProgramsAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { checkProgram(t, rt) })
}

func checkProgram(t *testing.T, rt *rapid.T) {
	w := &whole{ops: drawProgram(rt, opKinds), answers: map[int]bool{}}
	m := newModel(w.ops)
	for range m.streams {
		w.out = append(w.out, &streamtest.Output[ev]{})
	}
	backend := "hashmap"
	if rapid.IntRange(0, 4).Draw(rt, "backend") == 0 {
		backend = "pebble"
	}
	q := &quiet{TB: t, rt: rt}
	defer q.close()
	j := streamtest.Start(q, w.build, streamtest.Backend(backend), streamtest.Parallelism(rapid.IntRange(1, 4).Draw(rt, "parallelism")), streamtest.NoRestarts(),
		streamtest.StartTime(ms(0)))
	var history []string
	settled := func() {
		j.Await(func() bool {
			n := 0
			for i := range w.answers {
				n += len(w.out[i].Records())
			}
			return n >= m.asked
		})
	}
	w.rules.Watermark(ms(1 << 40)) // the rules hold nothing back
	check := func() {
		settled()
		for i, s := range m.streams {
			var got []string
			for _, r := range w.out[i].Records() {
				at := "-"
				if r.HasAt {
					at = fmt.Sprint(r.At.UnixMilli())
				}
				got = append(got, fmt.Sprint(r.Value.Key, r.Value.V, "@", at))
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(s.got))
			if !slices.Equal(got, want) {
				rt.Fatalf("%v\nafter %q\nstream %d (%s):\n got %q\nwant %q", w.ops, history, i, s.name, got, want)
			}
		}
	}
	did := func(format string, args ...any) { history = append(history, fmt.Sprintf(format, args...)) }
	marks := [2]int64{-1, -1}
	for range rapid.IntRange(1, 50).Draw(rt, "steps") {
		side := rapid.IntRange(0, 1).Draw(rt, "input")
		switch rapid.IntRange(0, 13).Draw(rt, "what") {
		case 0, 1, 2:
			marks[side] += rapid.Int64Range(1, 15).Draw(rt, "watermark rises")
			did("watermark %d of %d", marks[side], side)
			settled()
			w.in[side].Watermark(ms(marks[side]))
			m.watermark(side, marks[side])
			check()
		case 3:
			p := rapid.IntRange(1, 4).Draw(rt, "to")
			did("restart at %d", p)
			j.Restart(p) // with records in flight, which hold back the watermark that comes again
			m.restart()
			settled()
		case 4:
			n := rapid.Int64Range(1, 15).Draw(rt, "time passes")
			did("%d ms pass", n)
			settled()
			j.Advance(dur(n))
			m.advance(n)
			check()
		case 5:
			r := ev{fmt.Sprint("k", rapid.IntRange(0, 2).Draw(rt, "rule")), rapid.Int64Range(0, 9).Draw(rt, "v")}
			did("rule %v", r)
			w.rules.Push(r)
			m.rules[r.Key] = r.V
		default:
			e := ev{fmt.Sprint("k", max(0, rapid.IntRange(-2, 2).Draw(rt, "key"))), rapid.Int64Range(0, 99).Draw(rt, "v")}
			ts := rapid.Int64Range(0, 60).Draw(rt, "ts")
			did("%v at %d to %d", e, ts, side)
			w.in[side].PushAt(ms(ts), e)
			m.push(side, e, ts)
		}
	}
	for side := range w.in { // one by one: an operator that reads both may else hear of them in any order
		did("end of %d", side)
		settled()
		w.in[side].End()
		m.watermark(side, math.MaxInt64)
		check()
	}
	j.End()
	check()
}
