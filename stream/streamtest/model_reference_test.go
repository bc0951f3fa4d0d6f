package streamtest_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/thalweg/thalweg/stream"
)

// The functions of the drawn programs.

// splitter sends odd values aside, and those of a multiple of five nowhere.
type splitter struct {
	stream.Plain
	side stream.OutputTag[ev]
}

func (s *splitter) ProcessElement(ctx *stream.ProcessContext, e ev, out *stream.Collector[ev]) error {
	switch {
	case e.V%5 == 0:
	case e.V%2 != 0:
		ctx.Output(s.side, e)
	default:
		out.Collect(e)
	}
	return nil
}

// alarms adds up per key and tells the sum at timers: in event time at the next multiple of every after each record, or in processing time
// wait after it.
type alarms struct {
	every, wait int64
	sum         stream.ValueState[int64]
}

func (a *alarms) Open(rt *stream.RuntimeContext[string]) (err error) {
	a.sum, err = rt.ValueState[int64]("sum")
	return err
}

func (a *alarms) add(ctx *stream.KeyedContext[string], v int64) error {
	n, _, err := a.sum.Value()
	if err != nil {
		return err
	}
	if err := a.sum.Update(n + v); err != nil {
		return err
	}
	if a.wait > 0 {
		return ctx.RegisterProcessingTimeTimer(ctx.ProcessingTime().Add(dur(a.wait + v&3)))
	}
	ts, ok := ctx.Timestamp()
	if !ok {
		return errors.New("a record without event time")
	}
	return ctx.RegisterEventTimeTimer(ms((ts.UnixMilli()/a.every + 1) * a.every))
}

func (a *alarms) ProcessElement(ctx *stream.KeyedContext[string], e ev, _ *stream.Collector[ev]) error {
	return a.add(ctx, e.V)
}

func (a *alarms) ProcessFirst(ctx *stream.KeyedContext[string], e ev, _ *stream.Collector[ev]) error {
	return a.add(ctx, e.V)
}

func (a *alarms) ProcessSecond(ctx *stream.KeyedContext[string], e ev, _ *stream.Collector[ev]) error {
	return a.add(ctx, -2*e.V)
}

func (a *alarms) OnTimer(ctx *stream.KeyedContext[string], _ stream.Timer, out *stream.Collector[ev]) error {
	n, _, err := a.sum.Value()
	out.Collect(ev{ctx.Key(), n})
	return err
}

func (a *alarms) Close() error { return nil }

// recent emits the sum of the last n values of a key.
type recent struct {
	stream.NoTimers[string, ev]
	n    int
	list stream.ListState[int64]
}

func (r *recent) Open(rt *stream.RuntimeContext[string]) (err error) {
	r.list, err = rt.ListState[int64]("list")
	return err
}

func (r *recent) ProcessElement(_ *stream.KeyedContext[string], e ev, out *stream.Collector[ev]) error {
	l, err := r.list.Get()
	if err != nil {
		return err
	}
	l = append(slices.Clone(l), e.V)
	l = l[max(0, len(l)-r.n):]
	n := int64(0)
	for _, v := range l {
		n += v
	}
	out.Collect(ev{e.Key, n})
	return r.list.Update(l)
}

// keeper keeps what its windows emitted in per-window state of all kinds, and emits a number made of all of it.
type keeper struct {
	value stream.ValueState[int64]
	list  stream.ListState[int64]
	seen  stream.MapState[int64, int64]
	most  stream.ReducingState[int64]
	mean  stream.AggregatingState[int64, int64]
}

type tally struct{ Sum, N int64 }

type meanOf struct{}

func (meanOf) Create() tally         { return tally{} }
func (meanOf) Add(a *tally, v int64) { a.Sum, a.N = a.Sum+v, a.N+1 }
func (meanOf) Result(a tally) int64  { return a.Sum / a.N }

func (k *keeper) Open(rt *stream.WindowRuntimeContext[string]) (err error) {
	var errs [5]error
	k.value, errs[0] = rt.WindowValueState[int64]("value")
	k.list, errs[1] = rt.WindowListState[int64]("list")
	k.seen, errs[2] = rt.WindowMapState[int64, int64]("seen")
	k.most, errs[3] = rt.WindowReducingState("most", func(a, b int64) int64 { return max(a, b) })
	k.mean, errs[4] = rt.WindowAggregatingState("mean", meanOf{})
	return errors.Join(errs[:]...)
}

func (k *keeper) Process(ctx *stream.WindowContext[string], sums iter.Seq[ev], out *stream.Collector[ev]) error {
	for e := range sums {
		n, _, err := k.value.Value()
		seen, _, serr := k.seen.Get(e.V % 3)
		if err = errors.Join(err, serr, k.value.Update(n+1), k.seen.Put(e.V%3, seen+1), k.list.Add(e.V), k.most.Add(e.V), k.mean.Add(e.V)); err != nil {
			return err
		}
		list, err := k.list.Get()
		most, _, merr := k.most.Get()
		mean, _, aerr := k.mean.Get()
		if err = errors.Join(err, merr, aerr); err != nil {
			return err
		}
		out.Collect(ev{ctx.Key(), keptOf(n+1, seen+1, list[0], most, mean)})
	}
	return nil
}

func (k *keeper) Clear(*stream.WindowContext[string]) error { return nil }
func (k *keeper) Close() error                              { return nil }

// keptOf is the number: of firings, those with the same rest of the sum, the first sum, the greatest and the mean.
func keptOf(n, same, first, most, mean int64) int64 {
	return n + 10*same + 100*first + 1_000_000*most + 10_000_000_000*mean
}

var ruleOf = stream.NewMapStateDescriptor[string, int64]("rules")

// ruled adds the rule of the record's key.
type ruled struct{ stream.Plain }

func (ruled) ProcessElement(ctx *stream.ReadOnlyContext, e ev, out *stream.Collector[ev]) error {
	rules, err := ctx.BroadcastState(ruleOf)
	if err != nil {
		return err
	}
	n, _ := rules.Get(e.Key)
	out.Collect(ev{e.Key, e.V + n})
	return nil
}

func (ruled) ProcessBroadcastElement(ctx *stream.BroadcastContext, e ev, _ *stream.Collector[ev]) error {
	rules, err := ctx.BroadcastState(ruleOf)
	if err == nil {
		rules.Put(e.Key, e.V)
	}
	return err
}

// keyedRuled is ruled over a keyed stream.
type keyedRuled struct {
	stream.NoTimers[string, ev]
}

func (keyedRuled) Open(*stream.RuntimeContext[string]) error { return nil }
func (keyedRuled) OnTimer(*stream.KeyedReadOnlyContext[string], stream.Timer, *stream.Collector[ev]) error {
	return nil
}

func (keyedRuled) ProcessElement(ctx *stream.KeyedReadOnlyContext[string], e ev, out *stream.Collector[ev]) error {
	rules, err := ctx.BroadcastState(ruleOf)
	if err != nil {
		return err
	}
	n, _ := rules.Get(e.Key)
	out.Collect(ev{ctx.Key(), e.V + n})
	return nil
}

func (keyedRuled) ProcessBroadcastElement(ctx *stream.KeyedBroadcastContext[string], e ev, _ *stream.Collector[ev]) error {
	rules, err := ctx.BroadcastState(ruleOf)
	if err == nil {
		rules.Put(e.Key, e.V)
	}
	return err
}

// The plain interpreter: every record goes through the whole graph before the next, by calls.

const noTime = math.MinInt64

type timed struct {
	ev
	ts int64
}

// flow is a stream of the model: who reads it, and all that it had.
type flow struct {
	name    string
	got     []string
	readers []port
}

type port struct {
	to    *plainOp
	input int
}

func (s *flow) record(e ev, ts int64) {
	at := "-"
	if ts != noTime {
		at = fmt.Sprint(ts)
	}
	s.got = append(s.got, fmt.Sprint(e.Key, e.V, "@", at))
	for _, r := range s.readers {
		r.to.record(r.input, e, ts)
	}
}

func (s *flow) watermark(ts int64) {
	for _, r := range s.readers {
		r.to.watermark(r.input, ts)
	}
}

// plainOp is an operator of the model, with plain state.
type plainOp struct {
	opSpec
	m     *model
	out   []*flow
	marks []int64 // by input
	mark  int64

	rows    [2][]timed         // windows, joins: all that was not late
	fired   map[string]int64   // windows: what was emitted, by key and window
	kept    map[string][]int64 // and all of it
	sums    map[string]int64
	event   map[string]map[int64]bool // timers, by key
	proc    map[string]map[int64]bool
	lists   map[string][]int64
	session map[string][]*plainSession
}

type plainSession struct{ start, end, sum int64 }

type model struct {
	ops     []*plainOp
	streams []*flow
	rules   map[string]int64
	now     int64
	asked   int // records that went through asynchronous functions
}

func newModel(ops []opSpec) *model {
	m := &model{rules: map[string]int64{}, streams: []*flow{{name: "in0"}, {name: "in1"}}}
	for i, spec := range ops {
		o := &plainOp{opSpec: spec, m: m, mark: noTime, sums: map[string]int64{}, event: map[string]map[int64]bool{}, proc: map[string]map[int64]bool{},
			lists: map[string][]int64{}, session: map[string][]*plainSession{}, fired: map[string]int64{}, kept: map[string][]int64{}}
		for n, s := range spec.In {
			o.marks = append(o.marks, noTime)
			m.streams[s].readers = append(m.streams[s].readers, port{o, n})
		}
		for n := range spec.outputs() {
			o.out = append(o.out, &flow{name: fmt.Sprint("op", i, " ", spec.Kind, " output ", n)})
		}
		m.ops, m.streams = append(m.ops, o), append(m.streams, o.out...)
	}
	return m
}

func (m *model) push(input int, e ev, ts int64) { m.streams[input].record(e, ts) }
func (m *model) watermark(input int, ts int64)  { m.streams[input].watermark(ts) }
func (m *model) advance(n int64) {
	m.now += n
	for _, o := range m.ops {
		o.fire(o.proc, m.now, false)
	}
}

// restart brings the watermark again, for timers that were registered in the past.
func (m *model) restart() {
	for _, o := range m.ops {
		o.fire(o.event, o.mark, true)
	}
}

func (o *plainOp) emit(e ev, ts int64) { o.out[0].record(e, ts) }

func (o *plainOp) record(input int, e ev, ts int64) {
	switch o.Kind {
	case "map":
		o.emit(ev{e.Key, e.V + o.N}, ts)
	case "filter":
		if e.V%3 != 0 {
			o.emit(e, ts)
		}
	case "flatmap":
		for range o.N % 3 {
			o.emit(e, ts)
		}
	case "copies":
		for range 1 + o.N%3 {
			o.emit(e, ts)
		}
	case "split":
		switch {
		case e.V%5 == 0:
		case e.V%2 != 0:
			o.out[1].record(e, ts)
		default:
			o.emit(e, ts)
		}
	case "cache", "union":
		o.emit(e, ts)
	case "comap":
		o.emit(ev{e.Key, e.V * int64(1-2*input)}, ts)
	case "async", "asyncordered":
		o.m.asked++
		o.emit(ev{e.Key, e.V * 2}, ts)
	case "rolling":
		o.sums[e.Key] += e.V
		o.emit(ev{e.Key, o.sums[e.Key]}, ts)
	case "lists":
		l := append(o.lists[e.Key], e.V)
		o.lists[e.Key] = l
		n := int64(0)
		for _, v := range l[max(0, len(l)-int(1+o.N%3)):] {
			n += v
		}
		o.emit(ev{e.Key, n}, ts)
	case "count":
		if o.sums[e.Key]++; o.sums[e.Key]%(1+o.N%3) == 0 {
			o.emit(ev{e.Key, 1 + o.N%3}, math.MaxInt64)
		}
	case "rules", "keyedrules":
		o.emit(ev{e.Key, e.V + o.m.rules[e.Key]}, ts)
	case "timers", "cotimers":
		o.sums[e.Key] += e.V * int64(1-3*input)
		arm(o.event, e.Key, (ts/o.N+1)*o.N)
	case "clock":
		o.sums[e.Key] += e.V
		arm(o.proc, e.Key, o.m.now+o.N+e.V&3)
	case "tumbling", "sliding", "keepwindow":
		o.window(e, ts)
	case "session":
		o.sessions(e, ts)
	case "windowjoin", "cogroup":
		if late(o.windows(ts), ts, o.mark) {
			o.out[1+input].record(e, ts)
			return
		}
		o.rows[input] = append(o.rows[input], timed{e, ts})
	case "intervaljoin":
		if ts < o.mark {
			o.out[1+input].record(e, ts)
			return
		}
		for _, r := range o.rows[1-input] {
			l, right := timed{e, ts}, r
			if input == 1 {
				l, right = r, l
			}
			if l.Key == right.Key && l.ts-o.N <= right.ts && right.ts <= l.ts+o.M {
				o.emit(sum(l.ev, right.ev), max(l.ts, right.ts))
			}
		}
		o.rows[input] = append(o.rows[input], timed{e, ts})
	}
}

func arm(timers map[string]map[int64]bool, key string, at int64) {
	if timers[key] == nil {
		timers[key] = map[int64]bool{}
	}
	timers[key][at] = true
}

func (o *plainOp) fire(timers map[string]map[int64]bool, until int64, event bool) {
	for key, set := range timers {
		for at := range set {
			if at > until {
				continue
			}
			delete(set, at)
			ts := at
			if !event {
				ts = noTime
			}
			o.emit(ev{key, o.sums[key]}, ts)
		}
	}
}

type bounds struct{ start, end int64 }

// windows are those of a time.
func (o *plainOp) windows(ts int64) (out []bounds) {
	size, slide, offset := o.N, o.N, int64(0)
	switch o.Kind {
	case "tumbling":
		offset = o.M % o.N
	case "sliding", "keepwindow", "windowjoin":
		slide = o.M
	}
	for start := offset - 100*slide; start <= ts; start += slide {
		if ts < start+size {
			out = append(out, bounds{start, start + size})
		}
	}
	return out
}

// late reports whether all of a record's windows are over, and its time, too.
func late(ws []bounds, ts, mark int64) bool {
	for _, w := range ws {
		if w.end-1 > mark {
			return false
		}
	}
	return ts <= mark
}

func (o *plainOp) window(e ev, ts int64) {
	skipped := true
	for _, w := range o.windows(ts) {
		if o.mark != noTime && w.end-1+o.Late <= o.mark {
			continue
		}
		skipped = false
		k := fmt.Sprint(e.Key, w)
		o.fired[k] += e.V
		if w.end-1 <= o.mark {
			o.emit(ev{e.Key, o.windowResult(k)}, w.end-1)
		} else {
			arm(o.event, fmt.Sprint(w.start, " ", w.end, " ", e.Key), w.end-1)
		}
	}
	if skipped && o.mark != noTime && ts+o.Late <= o.mark {
		o.out[1].record(e, ts)
	}
}

// windowResult is what a key's window emits now.
func (o *plainOp) windowResult(k string) int64 {
	sum := o.fired[k]
	if o.Kind != "keepwindow" {
		return sum
	}
	all := append(o.kept[k], sum)
	o.kept[k] = all
	same, total := int64(0), int64(0)
	for _, v := range all {
		if total += v; v%3 == sum%3 {
			same++
		}
	}
	return keptOf(int64(len(all)), same, all[0], slices.Max(all), total/int64(len(all)))
}

func (o *plainOp) sessions(e ev, ts int64) {
	all := &plainSession{ts, ts + o.N, e.V}
	var rest []*plainSession
	for _, s := range o.session[e.Key] {
		if s.start <= all.end && all.start <= s.end {
			all = &plainSession{min(all.start, s.start), max(all.end, s.end), all.sum + s.sum}
		} else {
			rest = append(rest, s)
		}
	}
	if o.mark != noTime && all.end-1+o.Late <= o.mark {
		if ts+o.Late <= o.mark {
			o.out[1].record(e, ts)
		}
		return
	}
	o.session[e.Key] = append(rest, all)
	if all.end-1 <= o.mark {
		o.emit(ev{e.Key, all.sum}, all.end-1)
	}
}

func (o *plainOp) watermark(input int, ts int64) {
	o.marks[input] = ts
	old := o.mark
	if o.mark = slices.Min(o.marks); o.mark == old {
		return
	}
	switch o.Kind {
	case "timers", "cotimers":
		o.fire(o.event, o.mark, true)
	case "tumbling", "sliding", "keepwindow":
		for k, set := range o.event {
			for at := range set {
				if at <= o.mark {
					delete(set, at)
					var start, end int64
					var key string
					if _, err := fmt.Sscan(k, &start, &end, &key); err != nil {
						panic(err)
					}
					o.emit(ev{key, o.windowResult(fmt.Sprint(key, bounds{start, end}))}, at)
				}
			}
		}
	case "session":
		for key, l := range o.session {
			var rest []*plainSession
			for _, s := range l {
				if s.end-1 <= o.mark && s.end-1 > old {
					o.emit(ev{key, s.sum}, s.end-1)
				}
				if s.end-1+o.Late > o.mark {
					rest = append(rest, s)
				}
			}
			o.session[key] = rest
		}
	case "windowjoin", "cogroup":
		o.join(old)
	}
	for _, s := range o.out {
		s.watermark(o.mark)
	}
}

// join emits the windows whose end the watermark has passed now.
func (o *plainOp) join(old int64) {
	type slot struct {
		bounds
		key string
	}
	due := map[slot][2][]ev{}
	for side, rows := range o.rows {
		for _, r := range rows {
			for _, w := range o.windows(r.ts) {
				if w.end-1 <= o.mark && w.end-1 > old {
					s := due[slot{w, r.Key}]
					s[side] = append(s[side], r.ev)
					due[slot{w, r.Key}] = s
				}
			}
		}
	}
	for w, sides := range due {
		if o.Kind == "windowjoin" {
			for _, l := range sides[0] {
				for _, r := range sides[1] {
					o.emit(sum(l, r), w.end-1)
				}
			}
			continue
		}
		n := int64(0)
		for _, l := range sides[0] {
			n += 3 * l.V
		}
		for _, r := range sides[1] {
			n -= r.V
		}
		o.emit(ev{w.key, n}, w.end-1)
	}
}
