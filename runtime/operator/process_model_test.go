package operator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// order is what the second input of a function over two streams gets of a command.
type order struct {
	V    int64
	Of   string
	What string
}

func splitCommand(c command) (command, order, bool) {
	return c, order{c.V, c.Key, c.Op}, c.Sub == "second"
}

// clockwork keeps a sum per key, which may expire, and timers of both kinds, some of which make others.
type clockwork struct {
	opts []StateOption
	sum  ValueState[int64]
}

func (f *clockwork) Open(rt *RuntimeContext[string]) (err error) {
	f.sum, err = rt.ValueState[int64]("sum", f.opts...)
	return err
}

func (f *clockwork) Close() error { return nil }

func (f *clockwork) ProcessElement(ctx *KeyedContext[string], c command, out *Collector[string]) error {
	return f.do(ctx, c.Op, c.V, out)
}

func (f *clockwork) ProcessFirst(ctx *KeyedContext[string], c command, out *Collector[string]) error {
	return f.do(ctx, c.Op, c.V, out)
}

func (f *clockwork) ProcessSecond(ctx *KeyedContext[string], o order, out *Collector[string]) error {
	if o.Of != ctx.Key() {
		return fmt.Errorf("%+v with key %s", o, ctx.Key())
	}
	return f.do(ctx, o.What, o.V, out)
}

var clockCommands = []string{"add", "add", "clear", "read", "event", "event", "event", "event-", "proc", "proc", "proc-"}

func (f *clockwork) do(ctx *KeyedContext[string], op string, v int64, out *Collector[string]) error {
	sum, found, err := f.sum.Value()
	if err != nil {
		return err
	}
	at, after := time.UnixMilli(v), ctx.ProcessingTime().Add(time.Duration(v)*time.Millisecond)
	switch op {
	case "add":
		err = f.sum.Update(sum + v)
	case "clear":
		err = f.sum.Clear()
	case "read":
		out.Collect(fmt.Sprint(ctx.Key(), " has ", sum, found))
	case "event":
		err = ctx.RegisterEventTimeTimer(at)
	case "event-":
		err = ctx.DeleteEventTimeTimer(at)
	case "proc":
		err = ctx.RegisterProcessingTimeTimer(after)
	case "proc-":
		err = ctx.DeleteProcessingTimeTimer(after)
	}
	return err
}

func (f *clockwork) OnTimer(ctx *KeyedContext[string], tm Timer, out *Collector[string]) error {
	sum, found, err := f.sum.Value()
	if err != nil {
		return err
	}
	at := tm.At.UnixMilli()
	out.Collect(fmt.Sprint(ctx.Key(), " at ", at, tm.EventTime, sum, found))
	switch {
	case tm.EventTime && at%3 == 0:
		return ctx.RegisterEventTimeTimer(tm.At.Add(4 * time.Millisecond))
	case at%5 == 0:
		return ctx.RegisterProcessingTimeTimer(ctx.ProcessingTime().Add(2 * time.Millisecond))
	case at%7 == 0:
		return f.sum.Update(sum + 1000)
	}
	return nil
}

// clockModel is a clockwork without an engine.
type clockModel struct {
	state naive // for its rules of expiry
	sums  map[string]*cell[int64]
	event map[string]map[int64]bool
	proc  map[string]map[int64]bool
	out   []string
}

func (m *clockModel) sum(key string) (int64, bool) {
	c := m.sums[key]
	v, found := look(&m.state, &c)
	if c == nil {
		delete(m.sums, key)
	}
	return v, found
}

func (m *clockModel) put(key string, v int64) { m.sums[key] = &cell[int64]{v, *m.state.now} }

func set(timers map[string]map[int64]bool, key string, at int64, on bool) {
	if timers[key] == nil {
		timers[key] = map[int64]bool{}
	}
	if on {
		timers[key][at] = true
	} else {
		delete(timers[key], at)
	}
}

func (m *clockModel) do(c command) {
	sum, found := m.sum(c.Key)
	switch c.Op {
	case "add":
		m.put(c.Key, sum+c.V)
	case "clear":
		delete(m.sums, c.Key)
	case "read":
		m.out = append(m.out, fmt.Sprint(c.Key, " has ", sum, found))
	case "event", "event-":
		set(m.event, c.Key, c.V, c.Op == "event")
	case "proc", "proc-":
		set(m.proc, c.Key, *m.state.now+c.V, c.Op == "proc")
	}
}

func (m *clockModel) fire(timers map[string]map[int64]bool, until int64, event bool) {
	for key, at := range timers {
		for {
			next := MaxWatermark
			for t := range at {
				next = min(next, t)
			}
			if next > until || len(at) == 0 {
				break
			}
			delete(at, next)
			sum, found := m.sum(key)
			m.out = append(m.out, fmt.Sprint(key, " at ", next, event, sum, found))
			switch {
			case event && next%3 == 0:
				set(m.event, key, next+4, true)
			case next%5 == 0:
				set(m.proc, key, *m.state.now+2, true)
			case next%7 == 0:
				m.put(key, sum+1000)
			}
		}
	}
}

// A function with state that expires and with timers of both kinds, over one stream or two, does what a plain program does: timers fire
// once, in the order of their times, for their key and with its state, those in the past at the next watermark (or at once in processing
// time); over restores at another parallelism, and when the clock is set forward or back.
func TestTimedProcessAgainstModel(t *testing.T) {
	for _, backend := range backends {
		for _, two := range []bool{false, true} {
			t.Run(fmt.Sprint(backend, "/two inputs=", two), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { checkTimedProcess(t, rt, backend, two) })
			})
		}
	}
}

func checkTimedProcess(t *testing.T, rt *rapid.T, backend string, two bool) {
	var opts []StateOption
	m := &clockModel{sums: map[string]*cell[int64]{}, event: map[string]map[int64]bool{}, proc: map[string]map[int64]bool{}}
	if rapid.Bool().Draw(rt, "expires") {
		c := *drawTTL(rt)
		c.Visibility = NeverReturnExpired
		opts = append(opts, WithTTL(c))
		m.state.ttl, m.state.onRead = c.TTL.Milliseconds(), c.UpdateType == OnReadAndWrite
	}
	key := commandKey(t)
	f := KeyedProcess(key, func() KeyedProcessFunction[string, command, string] { return &clockwork{opts: opts} })
	input := firstInput[command]
	if two {
		f = KeyedCoProcess(key, KeySelector[string, order]{Fn: func(o order) string { return o.Of }, Codec: key.Codec},
			func() KeyedCoProcessFunction[string, command, order, string] { return &clockwork{opts: opts} })
		input = inputsOf(splitCommand, rapid.IntRange(0, 1).Draw(rt, "leading input"))
	}
	h := newInputHarness[command, string](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), key.NewHash(), nil, input)
	defer h.close()
	m.state.now = &h.now
	mark := int64(0)
	check := func(what any) {
		got := h.take()
		slices.Sort(got)
		slices.Sort(m.out)
		if !slices.Equal(got, m.out) {
			rt.Fatalf("%+v: got %q, want %q", what, got, m.out)
		}
		m.out = nil
	}
	watermark := func() {
		h.watermark(mark)
		m.fire(m.event, mark, true)
		check(fmt.Sprint("watermark ", mark))
	}
	advance := func(to int64) {
		h.advance(to)
		m.fire(m.proc, to, false)
		check(fmt.Sprint("processing time ", to))
	}
	watermark()
	for range rapid.IntRange(1, 70).Draw(rt, "steps") {
		switch rapid.IntRange(0, 12).Draw(rt, "what") {
		case 0, 1:
			mark += rapid.Int64Range(1, 15).Draw(rt, "watermark rises")
			watermark()
			advance(h.now)
		case 2, 3:
			advance(h.now + rapid.Int64Range(0, 15).Draw(rt, "time passes"))
		case 12: // somebody sets the clock
			by := []int64{20, 3_600_000, -3_600_000, -20}
			if len(opts) > 0 { // what has expired may be gone, or be there again when the clock is set back
				by = by[:2]
			}
			h.set(rapid.SampledFrom(by).Draw(rt, "the clock is set by"))
			m.fire(m.proc, h.now, false)
			check(fmt.Sprint("the clock is set to ", h.now))
		case 4:
			h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
			watermark() // sources repeat theirs
			advance(h.now)
		default:
			c := command{Key: fmt.Sprint("k", rapid.IntRange(0, 4).Draw(rt, "key")), Op: rapid.SampledFrom(clockCommands).Draw(rt, "op"),
				Sub: rapid.SampledFrom([]string{"first", "second"}).Draw(rt, "input")}
			if c.V = rapid.Int64Range(1, 100).Draw(rt, "v"); c.Op[0] == 'p' {
				c.V = c.V%25 - 5
			}
			h.process(c, NoTimestamp)
			m.do(c)
			check(c)
			advance(h.now)
		}
	}
	mark = MaxWatermark
	watermark()
	advance(h.now + 1000)
	advance(h.now + 100*3_600_000) // those that were set before the clock was set back
}

// Reduce and rolling aggregations keep one value per key, over restores at another parallelism.
func TestRollingAgainstModel(t *testing.T) {
	rolling := Rolling(sensorKey(t), func() RollingFunctions[string, reading, sumCount, reading] {
		return RollingFunctions[string, reading, sumCount, reading]{
			Add: func(a *sumCount, r reading, first bool) {
				if first != (a.Count == 0) {
					panic("first is wrong")
				}
				a.Sum, a.Count, a.Last = a.Sum+r.Value, a.Count+1, r.Sensor
			},
			Result: func(key string, a *sumCount) reading { return reading{a.Last, a.Sum} },
		}
	})
	for name, f := range map[string]Factory{"reduce": Reduce(sensorKey(t), func(a, b reading) reading { a.Value += b.Value; return a }), "rolling": rolling} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) {
					h := newHarness[reading, reading](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), sensorHash(t))
					defer h.close()
					model := map[string]int64{}
					for range rapid.IntRange(1, 40).Draw(rt, "steps") {
						if rapid.IntRange(0, 9).Draw(rt, "what") == 0 {
							h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
							continue
						}
						r := reading{fmt.Sprint("s", rapid.IntRange(0, 5).Draw(rt, "sensor")), rapid.Int64Range(-5, 5).Draw(rt, "value")}
						h.process(r, NoTimestamp)
						model[r.Sensor] += r.Value
						if got := h.take(); len(got) != 1 || got[0] != (reading{r.Sensor, model[r.Sensor]}) {
							rt.Fatalf("got %v, want %v", got, model[r.Sensor])
						}
					}
				})
			})
		}
	}
}
