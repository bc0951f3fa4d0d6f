package operator

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/state"
)

type (
	keyedJoin  = keyedCoProcessOp[string, reading, odder, string]
	pairOfJoin = intervalJoin[string, reading, odder, string]
)

// Whatever the order of the records and the watermarks, each pair of records that are not late and whose times fit comes out once, with the
// later time; late records go to the side output of their stream or, when there is none that is read, are counted; nothing is kept when no
// partner can come any more. Checkpoints and restores at another parallelism change nothing.
func TestIntervalJoinAgainstModel(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) { rapid.Check(t, func(rt *rapid.T) { checkIntervalJoin(t, rt, backend) }) })
	}
}

// A record costs the same however many of its key and time are kept already: none of them is copied for it.
func TestIntervalJoinOfManyRecordsOfOneTime(t *testing.T) {
	const records = 20_000
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			key := sensorKey(t)
			sum := int64(0)
			f := JoinInterval(key, KeySelector[string, odder]{Fn: func(o odder) string { return o.Of }, Codec: key.Codec}, IntervalJoin[reading, odder]{Lower: 0, Upper: 0},
				func(_ *JoinContext, l reading, _ odder, _ *Collector[string]) error { sum += l.Value; return nil })
			h := newInputHarness[reading, string](t, f, backend, 1, sensorHash(t), nil, inputsOf(splitReading, 0))
			defer h.close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range int64(records) {
				h.process(reading{"s", 2 * i}, 5) // to the left
			}
			runtime.ReadMemStats(&after)
			if got := (after.TotalAlloc - before.TotalAlloc) / records; got > 2000 {
				t.Errorf("%d bytes were allocated for a record", got)
			}
			h.restart(1, backend == "hashmap")
			h.process(reading{"s", records}, 5)
			h.process(reading{"s", 1}, 5) // to the right
			if want := int64(records * records); sum != want {
				t.Errorf("the sum of what was joined is %d, want %d", sum, want)
			}
		})
	}
}

func checkIntervalJoin(t *testing.T, rt *rapid.T, backend string) {
	lower := rapid.Int64Range(-10, 10).Draw(rt, "lower")
	j := IntervalJoin[reading, odder]{Lower: lower, Upper: lower + rapid.Int64Range(0, 10).Draw(rt, "width")}
	var told [2]bool // late ones of a side go to a side output
	side := map[string]any{}
	leftLate, rightLate := &sink[reading]{}, &sink[odder]{}
	switch rapid.IntRange(0, 2).Draw(rt, "late left ones") {
	case 0:
		j.LeftLate = "left" // nobody reads it
	case 1:
		j.LeftLate, told[0], side["left"] = "left", true, Receiver[reading](leftLate)
	}
	if rapid.Bool().Draw(rt, "late right ones") {
		j.RightLate, told[1], side["right"] = "right", true, Receiver[odder](rightLate)
	}
	key := sensorKey(t)
	f := JoinInterval(key, KeySelector[string, odder]{Fn: func(o odder) string { return o.Of }, Codec: key.Codec}, j,
		func(ctx *JoinContext, l reading, r odder, out *Collector[string]) error {
			if l.Sensor != r.Of || ctx.Time() != ctx.LeftTime() && ctx.Time() != ctx.RightTime() {
				return fmt.Errorf("%v and %v at %v", l, r, ctx.Time())
			}
			out.Collect(fmt.Sprint(l.Value, "-", r.N, ctx.LeftTime().UnixMilli(), ctx.RightTime().UnixMilli()))
			return nil
		})
	h := newInputHarness[reading, string](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), sensorHash(t),
		func() map[string]any { return side }, inputsOf(splitReading, rapid.IntRange(0, 1).Draw(rt, "leading input")))
	defer h.close()
	type row struct {
		reading
		ts int64
	}
	var rows [2][]row
	var want, got []element[string]
	var wantLate, late []string
	dropped, mark := int64(0), MinWatermark
	take := func() {
		for _, i := range h.tasks {
			for _, e := range i.out.got {
				if !e.mark {
					got = append(got, e)
				}
			}
			i.out.got = nil
		}
		for _, e := range leftLate.got {
			late = append(late, fmt.Sprint(e.v, e.ts))
		}
		for _, e := range rightLate.got {
			late = append(late, fmt.Sprint(reading{e.v.Of, e.v.N}, e.ts))
		}
		leftLate.got, rightLate.got = nil, nil
	}
	for id := range rapid.Int64Range(1, 40).Draw(rt, "steps") {
		switch rapid.IntRange(0, 9).Draw(rt, "step") {
		case 0:
			mark = max(mark, 0) + rapid.Int64Range(0, 15).Draw(rt, "watermark")
			h.watermark(mark)
		case 1:
			take()
			h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
			if mark != MinWatermark { // sources repeat their watermark
				h.watermark(mark)
			}
		default:
			s := rapid.IntRange(0, 1).Draw(rt, "side")
			r := row{reading{fmt.Sprint("s", rapid.IntRange(0, 2).Draw(rt, "sensor")), 2*id + int64(s)}, rapid.Int64Range(0, 60).Draw(rt, "ts")}
			h.process(r.reading, r.ts)
			if r.ts < mark {
				if told[s] {
					wantLate = append(wantLate, fmt.Sprint(r.reading, r.ts))
				} else {
					dropped++
				}
				continue
			}
			for _, o := range rows[1-s] {
				l, rr := r, o
				if s == 1 {
					l, rr = o, r
				}
				if l.Sensor == rr.Sensor && l.ts+j.Lower <= rr.ts && rr.ts <= l.ts+j.Upper {
					want = append(want, element[string]{v: fmt.Sprint(l.Value, "-", rr.Value, l.ts, rr.ts), ts: max(l.ts, rr.ts)})
				}
			}
			rows[s] = append(rows[s], r)
		}
	}
	h.watermark(MaxWatermark - 1)
	take()
	by := func(a, b element[string]) int { return slices.Compare([]byte(a.v), []byte(b.v)) }
	slices.SortFunc(got, by)
	slices.SortFunc(want, by)
	if !slices.Equal(got, want) {
		rt.Fatalf("pairs %v, want %v", got, want)
	}
	slices.Sort(late)
	slices.Sort(wantLate)
	if n := h.counted("numLateRecordsDropped"); !slices.Equal(late, wantLate) || n != dropped {
		rt.Fatalf("late %v, want %v; %d were counted, want %d", late, wantLate, n, dropped)
	}
	for k := range 3 {
		hash := h.hash(reading{Sensor: fmt.Sprint("s", k)})
		group := state.GroupOf(hash, h.max)
		op := h.tasks[state.SubtaskOf(h.max, len(h.tasks), group)].op.(*keyedJoin)
		op.kc.cur = state.Key[string]{Key: fmt.Sprint("s", k), Hash: hash, Group: group}
		fn := op.fn.(*pairOfJoin)
		left, err := fn.left.IsEmpty()
		right, rerr := fn.right.IsEmpty()
		if err != nil || rerr != nil || !left || !right {
			rt.Fatalf("key s%d keeps records for ever (%v, %v)", k, err, rerr)
		}
	}
}

// An input of a join that ended does not decide while the other is merely idle: its next records are not late. Source: FLINK-38477.
func TestEndedInputOfAJoinDoesNotDecide(t *testing.T) {
	c := refConfig{assigner: tumbling(10_000, 0), fn: joinFn}
	key := sensorKey(t)
	interval := JoinInterval(key, KeySelector[string, odder]{Fn: func(o odder) string { return o.Of }, Codec: key.Codec}, IntervalJoin[reading, odder]{Lower: -10_000, Upper: 10_000},
		func(_ *JoinContext, l reading, r odder, out *Collector[string]) error {
			out.Collect(fmt.Sprint(l.Value, "-", r.N))
			return nil
		})
	for name, f := range map[string]Factory{"window": c.factory(t), "interval": interval} {
		t.Run(name, func(t *testing.T) {
			h := newInputHarness[reading, string](t, f, "hashmap", 1, sensorHash(t), nil, inputsOf(splitReading, 0))
			defer h.close()
			in := h.tasks[0].in.(*twoInputs[reading, reading, odder])
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			h.process(reading{"s", 1}, 1000)
			do(in.two.Watermark(MaxWatermark))
			h.process(reading{"s", 2}, 1000)
			do(in.one.Watermark(1000))
			do(in.one.Idle(true))
			do(in.one.Idle(false))
			h.process(reading{"s", 4}, 2000)
			do(in.one.Watermark(MaxWatermark))
			if got := h.take(); len(got) != 2 {
				t.Fatalf("got %q", got)
			}
			if n := h.counted("numLateRecordsDropped"); n != 0 {
				t.Fatalf("%d records were late", n)
			}
		})
	}
}
