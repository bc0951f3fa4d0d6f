package operator

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var (
	oddTag  = OutputTag[string]{ID: "odd"}
	lateTag = OutputTag[reading]{ID: "late"}
)

// windowProbe is a process function with a state of the key, all kinds of per-window state, and a side output. V is reading, or sumCount after an
// aggregation.
type windowProbe[V any] struct {
	c      *refConfig
	values func(iter.Seq[V]) (values []int64, sum int64)
	window ValueState[int64]
	list   ListState[int64]
	counts MapState[int64, int64]
	most   ReducingState[int64]
	mean   AggregatingState[int64, float64]
	key    ValueState[int64]
}

type windowMean struct{ Sum, N int64 }

type averaging struct{}

func (averaging) Create() windowMean          { return windowMean{} }
func (averaging) Add(a *windowMean, v int64)  { a.Sum, a.N = a.Sum+v, a.N+1 }
func (averaging) Result(a windowMean) float64 { return float64(a.Sum) / float64(a.N) }

func (p *windowProbe[V]) Open(rt *WindowRuntimeContext[string]) (err error) {
	if p.key, err = rt.ValueState[int64]("fired"); err != nil {
		return err
	}
	var errs [5]error
	p.window, errs[0] = rt.WindowValueState[int64]("fired")
	p.list, errs[1] = rt.WindowListState[int64]("list")
	p.counts, errs[2] = rt.WindowMapState[int64, int64]("counts")
	p.most, errs[3] = rt.WindowReducingState("most", func(a, b int64) int64 { return max(a, b) })
	p.mean, errs[4] = rt.WindowAggregatingState("mean", averaging{})
	if p.c.assigner.Kind != SessionWindows {
		return errors.Join(errs[:]...)
	}
	for _, err := range errs {
		if err == nil {
			return fmt.Errorf("per-window state of windows that merge")
		}
	}
	return nil
}

// keep changes the per-window states by a firing's sum, and returns what they have: what keptOf does with plain values.
func (p *windowProbe[V]) keep(sum int64) (string, error) {
	if p.c.assigner.Kind == SessionWindows {
		return "", nil
	}
	n, _, err := p.window.Value()
	if err = errors.Join(err, p.window.Update(n+1), p.list.Add(sum), p.most.Add(sum), p.mean.Add(sum)); err != nil {
		return "", err
	}
	if sum%3 == 1 {
		err = p.list.Update([]int64{n, sum})
	}
	at := sum & 3
	m, _, gerr := p.counts.Get(at)
	if err = errors.Join(err, gerr, p.counts.Put(at, m+1), p.counts.Remove((sum+n)&3)); err != nil {
		return "", err
	}
	switch sum % 7 {
	case 2:
		err = p.counts.Clear()
	case 3:
		err = p.most.Clear()
	case 4:
		err = p.mean.Clear()
	case 5:
		err = p.list.Clear()
	}
	all := map[int64]int64{}
	list, lerr := p.list.Get()
	most, _, merr := p.most.Get()
	mean, _, aerr := p.mean.Get()
	err = errors.Join(err, lerr, merr, aerr, p.counts.ForEach(func(k, v int64) error { all[k] = v; return nil }))
	return fmt.Sprint(n+1, list, all, most, mean), err
}

func (p *windowProbe[V]) Process(ctx *WindowContext[string], elements iter.Seq[V], out *Collector[string]) error {
	values, sum := p.values(elements)
	k, _, err := p.key.Value()
	if err = errors.Join(err, p.key.Update(k+1)); err != nil {
		return err
	}
	kept, err := p.keep(sum)
	if err != nil {
		return err
	}
	out.Collect(result(ctx.Key(), ctx.w, values, kept, p.c.shownKey(k+1)))
	if sum%2 != 0 {
		ctx.Output(oddTag, fmt.Sprint(ctx.Key(), sum))
	}
	return nil
}

// Clear leaves something in each state.
func (p *windowProbe[V]) Clear(*WindowContext[string]) error {
	_, err := p.keep(7)
	return err
}

func (p *windowProbe[V]) Close() error { return nil }

// specOf is the configuration over records of T, each of which stands for a reading.
func specOf[T any](c *refConfig, key KeySelector[string, T], of func(T) reading) WindowSpec[string, T] {
	spec := WindowSpec[string, T]{Key: key, Lateness: c.lateness, Assigner: WindowAssigner[T]{Kind: c.assigner.Kind, EventTime: c.assigner.EventTime, Sliding: c.assigner.Sliding}}
	spec.Assigner.Session.Gap = c.assigner.Session.Gap
	if gap := c.assigner.Session.Dynamic; gap != nil {
		spec.Assigner.Session.Dynamic = func(v T) int64 { return gap(of(v)) }
	}
	delta := func(a, b T) float64 { return absDelta(of(a), of(b)) }
	var trigger func() Trigger[T]
	switch c.trigger {
	case eventTrigger:
		trigger = NewEventTimeTrigger[T]
	case procTrigger:
		trigger = NewProcessingTimeTrigger[T]
	case countingTrigger:
		trigger = func() Trigger[T] { return NewCountTrigger[T](c.n) }
	case continuousEvent, continuousProc:
		trigger = func() Trigger[T] { return NewContinuousTrigger[T](c.n, c.trigger == continuousEvent) }
	case deltaKind:
		trigger = func() Trigger[T] { return NewDeltaTrigger(float64(c.n), delta) }
	}
	spec.Trigger = trigger
	if c.purging {
		spec.Trigger = func() Trigger[T] { return NewPurgingTrigger(trigger()) }
	}
	switch c.evictor {
	case evictCount:
		spec.Evictor = NewCountEvictor[T](int(c.keep), c.after)
	case evictTime:
		spec.Evictor = NewTimeEvictor[T](c.keep, c.after)
	case evictDelta:
		spec.Evictor = NewDeltaEvictor(float64(c.keep), delta, c.after)
	}
	return spec
}

// odder is what the second stream of a join has of a reading with an odd value.
type odder struct {
	N    int64
	Note string // not in the first stream
	Of   string
}

func splitReading(r reading) (reading, odder, bool) {
	return r, odder{r.Value, "odd one of " + r.Sensor, r.Sensor}, r.Value&1 == 1
}

var lateOddTag = OutputTag[odder]{ID: "late-odd"}

// coFactory is a join or a coGroup of the readings with even values and those with odd ones.
func (c *refConfig) coFactory(t testing.TB) Factory {
	key := sensorKey(t)
	spec := CoWindowSpec[string, reading, odder]{One: key, Two: KeySelector[string, odder]{Fn: func(o odder) string { return o.Of }, Codec: key.Codec}}
	spec.Windows = specOf(c, KeySelector[string, TaggedUnion[reading, odder]]{}, func(u TaggedUnion[reading, odder]) reading {
		if u.IsTwo() && !u.IsOne() {
			return reading{u.Two.Of, u.Two.N}
		}
		return u.One
	})
	if c.sideLate {
		spec.LateOne, spec.LateTwo = lateTag, lateOddTag
	}
	check := func(key string, one reading, two odder) error {
		if one.Sensor != key || two != (odder{two.N, "odd one of " + key, key}) {
			return fmt.Errorf("%v and %v of key %s", one, two, key)
		}
		return nil
	}
	if c.fn == coGroupFn {
		return CoGroupWindow(spec, func(ctx *WindowContext[string], one []reading, two []odder, out *Collector[string]) error {
			var l, r []int64
			for _, v := range one {
				l = append(l, v.Value)
			}
			for _, v := range two {
				r = append(r, v.N)
			}
			for i := range min(len(one), len(two)) {
				if err := check(ctx.Key(), one[i], two[i]); err != nil {
					return err
				}
			}
			out.Collect(grouped(ctx.Key(), ctx.w, l, r))
			return nil
		})
	}
	return JoinWindow(spec, func(ctx *WindowContext[string], one reading, two odder, out *Collector[string]) error {
		if err := check(ctx.Key(), one, two); err != nil {
			return err
		}
		out.Collect(fmt.Sprint(ctx.Key(), ctx.w, one.Value, two.N))
		if (one.Value+two.N)%3 == 0 {
			ctx.Output(oddTag, fmt.Sprint(ctx.Key(), one.Value+two.N))
		}
		return nil
	})
}

func (c *refConfig) factory(t testing.TB) Factory {
	if c.fn >= joinFn {
		return c.coFactory(t)
	}
	spec := specOf(c, sensorKey(t), func(r reading) reading { return r })
	spec.Late = LateTag[reading]{Tag: lateTag, Set: c.sideLate}
	aggregate := func() WindowFunctions[string, reading, sumCount, string] {
		return WindowFunctions[string, reading, sumCount, string]{
			Create: func() sumCount { return sumCount{} },
			Add: func(a *sumCount, r reading, first bool) {
				if first != (a.Count == 0) || !first && a.Last != r.Sensor {
					panic(fmt.Sprintf("%+v of %+v, first %v", r, a, first))
				}
				a.Sum, a.Count, a.Last = a.Sum+r.Value, a.Count+1, r.Sensor
			},
			Merge: func(a, b sumCount) sumCount { return sumCount{a.Sum + b.Sum, a.Count + b.Count, b.Last} },
			Emit: func(k string, w Window, a *sumCount, out *Collector[string]) error {
				out.Collect(fmt.Sprint(k, w, a.Sum, a.Count))
				return nil
			},
		}
	}
	switch c.fn {
	case aggregateFn:
		return AggregateWindow(spec, aggregate)
	case reduceFn:
		add := func(a, b reading) reading { return reading{b.Sensor, a.Value + b.Value} }
		return AggregateWindow(spec, func() WindowFunctions[string, reading, reading, string] {
			return WindowFunctions[string, reading, reading, string]{
				Add: func(a *reading, r reading, first bool) {
					if !first {
						r = add(*a, r)
					}
					*a = r
				},
				Merge: add,
				Emit: func(k string, _ Window, a *reading, out *Collector[string]) error {
					out.Collect(fmt.Sprint(a.Sensor, a.Value))
					return nil
				},
			}
		})
	case processFn:
		return ProcessWindow(spec, func() ProcessWindowFunction[string, reading, string] {
			return &windowProbe[reading]{c: c, values: func(s iter.Seq[reading]) (out []int64, sum int64) {
				for r := range s {
					out = append(out, r.Value)
					sum += r.Value
				}
				return out, sum
			}}
		})
	default:
		return AggregateProcessWindow(spec, aggregate, func(a *sumCount) sumCount { return *a }, func() ProcessWindowFunction[string, sumCount, string] {
			return &windowProbe[sumCount]{c: c, values: func(s iter.Seq[sumCount]) (out []int64, sum int64) {
				for a := range s {
					return []int64{a.Sum, a.Count}, a.Sum
				}
				return nil, 0
			}}
		})
	}
}

// drawAssigner draws an assigner of a class; all have small sizes.
func drawAssigner(t *rapid.T, class string) WindowAssigner[reading] {
	a := WindowAssigner[reading]{EventTime: class[0] == 'e'}
	switch class[2:] {
	case "tumbling":
		size := rapid.Int64Range(1, 20).Draw(t, "size")
		a.Sliding = Sliding{size, size, rapid.Int64Range(-size+1, size-1).Draw(t, "offset")}
	case "sliding":
		slide := rapid.Int64Range(1, 12).Draw(t, "slide")
		size := rapid.Int64Range(1, 12).Draw(t, "size")
		if rapid.Bool().Draw(t, "multiple") {
			size = slide * rapid.Int64Range(1, 5).Draw(t, "slides")
		}
		a.Sliding = Sliding{size, slide, rapid.Int64Range(-slide+1, slide-1).Draw(t, "offset")}
	case "session":
		a.Kind = SessionWindows
		a.Session.Gap = rapid.Int64Range(1, 15).Draw(t, "gap")
		if rapid.Bool().Draw(t, "dynamic") {
			gap := a.Session.Gap
			a.Session.Dynamic = func(r reading) int64 { return gap + max(r.Value, 0) }
		}
	default:
		a.Kind, a.EventTime = GlobalWindows, false
	}
	return a
}

// Windows give what the reference gives, element by element: all assigners with all kinds of functions, triggers and evictors, any order of
// records and watermarks, any parallelism, both backends, with checkpoints, restores, changes of parallelism and triggers given or taken away in between.
func TestWindowsAgainstReference(t *testing.T) { eachWindowClass(t, false) }

// So do joins and coGroups in windows of all kinds.
func TestWindowJoinsAgainstReference(t *testing.T) { eachWindowClass(t, true) }

func eachWindowClass(t *testing.T, joins bool) {
	for _, class := range []string{"e-tumbling", "e-sliding", "e-session", "p-tumbling", "p-sliding", "p-session", "-global"} {
		for _, plain := range []bool{true, false} {
			if plain && class == "-global" {
				continue
			}
			name := class
			if plain {
				name += "-own-trigger"
			}
			t.Run(name, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { checkWindows(t, rt, class, plain, joins) })
			})
		}
	}
}

func checkWindows(t *testing.T, rt *rapid.T, class string, plain, joins bool) {
	if class == "-global" {
		class = "p-global"
	}
	c := refConfig{assigner: drawAssigner(rt, class), sideLate: rapid.Bool().Draw(rt, "side output for late ones")}
	if joins {
		c.fn = rapid.SampledFrom([]functionKind{joinFn, coGroupFn}).Draw(rt, "function")
	} else {
		c.fn = functionKind(rapid.IntRange(0, int(functionKinds)-1).Draw(rt, "function"))
	}
	if c.assigner.EventTime && rapid.Bool().Draw(rt, "lateness allowed") {
		c.lateness = rapid.Int64Range(1, 30).Draw(rt, "lateness")
	}
	if !plain {
		c.trigger = triggerKind(rapid.IntRange(0, int(triggerKinds)-1).Draw(rt, "trigger"))
		if c.trigger == deltaKind && c.assigner.Kind == SessionWindows {
			c.trigger = countingTrigger
		}
		c.purging = c.trigger != ownTrigger && rapid.Bool().Draw(rt, "purging")
		c.n = rapid.Int64Range(1, 6).Draw(rt, "trigger's number")
		c.evictor = evictorKind(rapid.IntRange(0, int(evictorKinds)-1).Draw(rt, "evictor"))
		c.after = c.evictor != noEvictor && rapid.Bool().Draw(rt, "evict after")
		c.keep = rapid.Int64Range(0, 6).Draw(rt, "evictor's number")
	}
	backend := "hashmap"
	if rapid.IntRange(0, 4).Draw(rt, "backend") == 0 {
		backend = "pebble"
	}
	defer func(n int) { gatherLimit = n }(gatherLimit)
	gatherLimit = rapid.SampledFrom([]int{1, 5, gatherLimit}).Draw(rt, "keys gathered at a time")
	odd, late, lateOdd := &sink[string]{}, &sink[reading]{}, &sink[odder]{}
	input := firstInput[reading]
	if joins {
		input = inputsOf(splitReading, rapid.IntRange(0, 1).Draw(rt, "leading input"))
	}
	h := newInputHarness[reading, string](t, c.factory(t), backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), sensorHash(t), func() map[string]any {
		return map[string]any{"odd": Receiver[string](odd), "late": Receiver[reading](late), "late-odd": Receiver[odder](lateOdd)}
	}, input)
	defer h.close()
	// The same windows with a trigger that says what they do without, where that is of one layout.
	programs := []Factory{h.f}
	if plain && c.assigner.EventTime {
		with := c
		with.trigger = eventTrigger
		if f := with.factory(t); f.(laidOut).layout == h.f.(laidOut).layout {
			programs = append(programs, f)
		}
	}
	m := newReference(c)
	check := func(after string) {
		var got, wantLate []string
		for _, i := range h.tasks {
			for _, e := range i.out.got {
				if !e.mark {
					got = append(got, fmt.Sprint(e.v, "@", e.ts))
				}
			}
			i.out.got = nil
		}
		var gotLate []string
		for _, e := range late.got {
			gotLate = append(gotLate, fmt.Sprint(e.v, e.ts))
		}
		for _, e := range lateOdd.got {
			gotLate = append(gotLate, fmt.Sprint(reading{e.v.Of, e.v.N}, e.ts))
		}
		wantLate = m.late
		if !c.sideLate {
			if n := h.counted("numLateRecordsDropped"); n != int64(len(m.late)) || len(gotLate) > 0 {
				rt.Fatalf("%+v\nafter %s: %d late records, want %v", c, after, n, m.late)
			}
			gotLate = m.late
		}
		for what, pair := range map[string][2][]string{"results": {got, m.out}, "side output": {odd.take(), m.odd}, "late records": {gotLate, wantLate}} {
			slices.Sort(pair[0])
			slices.Sort(pair[1])
			if !slices.Equal(pair[0], pair[1]) {
				rt.Fatalf("%+v\nafter %s: %s\n got %q\nwant %q", c, after, what, pair[0], pair[1])
			}
		}
		m.out, m.odd = nil, nil
	}
	kept := func(before string) {
		want := m.kept()
		got := h.entries(windowPrefix + "fired")
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v\nbefore %s: windows with state\n got %q\nwant %q", c, before, got, want)
		}
	}
	mark, now := int64(-1000), int64(0)
	h.advance(now)
	m.advance(now)
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		switch what := rapid.IntRange(0, 11).Draw(rt, "what"); what {
		case 0, 1:
			mark = max(mark, rapid.Int64Range(-100, 100).Draw(rt, "watermark"))
			h.watermark(mark)
			m.watermark(mark)
			check(fmt.Sprint("watermark ", mark))
		case 2:
			now += rapid.Int64Range(0, 20).Draw(rt, "time passes")
			h.advance(now)
			m.advance(now)
			check(fmt.Sprint("processing time ", now))
		case 3:
			h.f = rapid.SampledFrom(programs).Draw(rt, "program")
			canonical := rapid.Bool().Draw(rt, "canonical")
			if canonical {
				kept("a restart")
				h.conf["state.backend.type"] = rapid.SampledFrom([]string{backend, backend, "hashmap", "pebble"}).Draw(rt, "next backend")
			}
			h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), canonical)
			m.restarted = true
			check("restart")
			if rapid.Bool().Draw(rt, "watermark again") {
				h.watermark(mark)
				m.watermark(mark)
				check("the first watermark after a restart")
			}
		default:
			r := reading{fmt.Sprint("s", rapid.IntRange(0, 2).Draw(rt, "sensor")), rapid.Int64Range(-5, 5).Draw(rt, "value")}
			ts := rapid.Int64Range(-60, 100).Draw(rt, "ts")
			h.process(r, ts)
			m.process(r, ts)
			check(fmt.Sprint("record ", r, " at ", ts))
		}
	}
	now += 1000
	h.advance(now)
	m.advance(now)
	check("the end of processing time")
	h.watermark(MaxWatermark)
	m.watermark(MaxWatermark)
	check("the end")
	kept("the end")
	if c.assigner.Kind == GlobalWindows {
		return
	}
	for _, name := range []string{"list", "counts", "most", "mean"} {
		if left := h.entries(windowPrefix + name); len(left) > 0 {
			rt.Fatalf("%+v\n%s of windows that are gone: %q", c, name, left)
		}
	}
}
