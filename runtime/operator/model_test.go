package operator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
)

type reading struct {
	Sensor string
	Value  int64
}

func sensorKey(t testing.TB) KeySelector[string, reading] {
	t.Helper()
	c, err := serde.For[string]()
	if err != nil {
		t.Fatal(err)
	}
	return KeySelector[string, reading]{Fn: func(r reading) string { return r.Sensor }, Codec: c}
}

func sensorHash(t testing.TB) func(reading) uint32 { return sensorKey(t).NewHash() }

var backends = []string{"hashmap", "pebble"}

type windowResult struct {
	Sensor string
	Window Window
	Sum    int64
	Count  int64
}

type sumCount struct {
	Sum, Count int64
	Last       string // a string in state: must not alias the record's buffer
}

func windowFactory(t testing.TB, size, offset int64) Factory {
	return TumblingWindow(sensorKey(t), Tumbling{Size: size, Offset: offset}, WindowFunctions[string, reading, sumCount, windowResult]{
		Add: func(a *sumCount, r reading, first bool) {
			if first != (a.Count == 0) {
				panic("first is wrong")
			}
			a.Sum += r.Value
			a.Count++
			a.Last = r.Sensor
		},
		Emit: func(k string, w Window, a *sumCount, out *Collector[windowResult]) error {
			if a.Last != k {
				return fmt.Errorf("state of %q holds %q", k, a.Last)
			}
			out.Collect(windowResult{k, w, a.Sum, a.Count})
			return nil
		},
	})
}

// Every record that is not late is in exactly one result, whatever the order, the parallelism, the backend and the restarts.
func TestTumblingWindowAgainstModel(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				size := rapid.Int64Range(1, 20).Draw(rt, "size")
				offset := rapid.Int64Range(-size+1, size-1).Draw(rt, "offset")
				h := newHarness[reading, windowResult](t, windowFactory(t, size, offset), backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), sensorHash(t))
				type slot struct {
					sensor string
					start  int64
				}
				model, got := map[slot]sumCount{}, map[slot]sumCount{}
				fired := map[slot]bool{}
				mark := int64(-1000)
				collect := func() {
					for _, r := range h.take() {
						s := slot{r.Sensor, r.Window.Start}
						if fired[s] {
							rt.Fatalf("window %v fired twice", s)
						}
						if r.Window.End-1 > mark {
							rt.Fatalf("window %v fired before its end at watermark %d", s, mark)
						}
						fired[s] = true
						got[s] = sumCount{Sum: r.Sum, Count: r.Count}
					}
				}
				for range rapid.IntRange(1, 60).Draw(rt, "steps") {
					switch rapid.IntRange(0, 9).Draw(rt, "what") {
					case 0, 1:
						mark = max(mark, rapid.Int64Range(-100, 100).Draw(rt, "watermark"))
						h.watermark(mark)
						collect()
					case 2:
						h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
						h.watermark(mark) // sources repeat their watermark
						collect()
					default:
						r := reading{fmt.Sprint("s", rapid.IntRange(0, 5).Draw(rt, "sensor")), rapid.Int64Range(-5, 5).Draw(rt, "value")}
						ts := rapid.Int64Range(-100, 100).Draw(rt, "ts")
						start := Tumbling{size, offset}.Start(ts)
						h.process(r, ts)
						if start+size-1 > mark {
							s := model[slot{r.Sensor, start}]
							s.Sum += r.Value
							s.Count++
							model[slot{r.Sensor, start}] = s
						}
					}
				}
				mark = MaxWatermark
				h.watermark(mark)
				collect()
				if !maps.Equal(model, got) {
					rt.Fatalf("results %v, want %v", got, model)
				}
				h.close()
			})
		})
	}
}

func TestWindowNeedsEventTime(t *testing.T) {
	h := newHarness[reading, windowResult](t, windowFactory(t, 10, 0), "hashmap", 1, sensorHash(t))
	defer h.close()
	if err := h.tasks[0].in.Process(reading{"a", 1}, Meta{TS: NoTimestamp}); err == nil {
		t.Fatal("a record without event time was accepted by an event-time window")
	}
}

// alarm emits a key's count when a timer fires; it sets an event-time timer at the record's value and a processing-time one.
type alarm struct {
	count ValueState[int64]
}

type rung struct {
	Sensor string
	At     int64
	Event  bool
	Count  int64
}

func (a *alarm) Open(rt *RuntimeContext[string]) (err error) {
	a.count, err = rt.ValueState[int64]("count")
	return err
}

func (a *alarm) ProcessElement(ctx *KeyedContext[string], r reading, _ *Collector[rung]) error {
	n, _, err := a.count.Value()
	if err != nil {
		return err
	}
	if err := a.count.Update(n + 1); err != nil {
		return err
	}
	at := time.UnixMilli(max(r.Value, -r.Value))
	switch {
	case r.Value >= 0:
		return ctx.RegisterEventTimeTimer(at)
	case r.Value > -1000:
		return ctx.RegisterProcessingTimeTimer(at)
	default:
		return ctx.DeleteEventTimeTimer(at.Add(-1000 * time.Millisecond))
	}
}

func (a *alarm) OnTimer(ctx *KeyedContext[string], tm Timer, out *Collector[rung]) error {
	n, _, err := a.count.Value()
	if err != nil {
		return err
	}
	out.Collect(rung{ctx.Key(), tm.At.UnixMilli(), tm.EventTime, n})
	return nil
}

func (a *alarm) Close() error { return nil }

// Timers fire once, in time order, for their own key, with its state, also after restores at another parallelism.
func TestTimersAgainstModel(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				f := KeyedProcess(sensorKey(t), func() KeyedProcessFunction[string, reading, rung] { return &alarm{} })
				h := newHarness[reading, rung](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), sensorHash(t))
				type timer struct {
					key string
					at  int64
				}
				event, proc := map[timer]bool{}, map[timer]bool{}
				count := map[string]int64{}
				mark, now := int64(-1), int64(0)
				expect := func(set map[timer]bool, until int64, isEvent bool) {
					want := map[rung]int{}
					for tm := range set {
						if tm.at <= until {
							want[rung{tm.key, tm.at, isEvent, count[tm.key]}]++
							delete(set, tm)
						}
					}
					got := map[rung]int{}
					for _, r := range h.take() {
						got[r]++
					}
					if !maps.Equal(want, got) {
						rt.Fatalf("until %d fired %v, want %v", until, got, want)
					}
				}
				for range rapid.IntRange(1, 50).Draw(rt, "steps") {
					key := fmt.Sprint("s", rapid.IntRange(0, 3).Draw(rt, "sensor"))
					at := rapid.Int64Range(1, 100).Draw(rt, "at")
					switch rapid.IntRange(0, 7).Draw(rt, "what") {
					case 0:
						mark = max(mark, at)
						h.watermark(mark)
						expect(event, mark, true)
					case 1:
						now = max(now, at)
						h.advance(now)
						expect(proc, now, false)
					case 2:
						h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
						h.watermark(mark)
						h.advance(now)
						expect(event, mark, true)
						expect(proc, now, false)
					case 3:
						h.process(reading{key, -1000 - at}, NoTimestamp)
						count[key]++
						delete(event, timer{key, at})
					case 4:
						h.process(reading{key, -at}, NoTimestamp)
						count[key]++
						proc[timer{key, at}] = true
						h.advance(now)
						expect(proc, now, false)
					default:
						h.process(reading{key, at}, NoTimestamp)
						count[key]++
						event[timer{key, at}] = true
					}
				}
				mark = MaxWatermark
				h.watermark(mark)
				expect(event, mark, true)
				h.close()
			})
		})
	}
}

func TestTimersFireInTimeOrder(t *testing.T) {
	f := KeyedProcess(sensorKey(t), func() KeyedProcessFunction[string, reading, rung] { return &alarm{} })
	h := newHarness[reading, rung](t, f, "hashmap", 1, sensorHash(t))
	defer h.close()
	for _, at := range []int64{30, 10, 20, 10} {
		h.process(reading{"s", at}, NoTimestamp)
	}
	h.watermark(100)
	var at []int64
	for _, r := range h.take() {
		at = append(at, r.At)
	}
	if !slices.Equal(at, []int64{10, 20, 30}) {
		t.Fatalf("fired at %v", at)
	}
}
