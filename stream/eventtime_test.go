package stream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
)

// atTimes is a source of records with the given event times, in milliseconds, each of which moves the watermark.
func atTimes(env *Environment, name string, at ...int64) DataStream[int64] {
	src := datagen.WithTimestamps(func(n int64) (int64, int64) { return at[n], at[n] }, datagen.Count(int64(len(at))))
	return env.FromSource(src, MonotonousTimestamps[int64](nil), name).SetParallelism(1).DataStream
}

func bounds(_ string, w TimeWindow, n int64) string {
	return fmt.Sprint(w.Start.UnixMilli(), "..", w.End.UnixMilli(), ": ", n)
}

// Times before 1970 are in the window before them, whatever the sign of the offset; a window with an offset is emitted at its own end, once,
// with all of its records. Source: FLINK-26334, FLINK-6214, FLINK-36664.
func TestWindowsBefore1970AndWithOffsets(t *testing.T) {
	const s = time.Second
	key := func(int64) string { return "k" }
	for _, c := range []struct {
		a    WindowAssigner
		at   []int64
		want string
	}{
		{TumblingEventTime(7 * s), []int64{-8000}, "-14000..-7000: 1"},
		{TumblingEventTimeOffset(7*s, -s), []int64{-8000, -7999, -1001}, "-8000..-1000: 3"},
		{TumblingEventTimeOffset(7*s, -3*s), []int64{-8000, 0, 3999, 4000}, "-10000..-3000: 1 -3000..4000: 2 4000..11000: 1"},
		{TumblingEventTimeOffset(10*s, 4*s), []int64{5000, 13_000}, "4000..14000: 2"},
		{TumblingEventTimeOffset(10*s, 4*s), []int64{5000, 10_000, 13_000, 13_999, 14_000}, "4000..14000: 4 14000..24000: 1"},
		{SlidingEventTimeOffset(6*s, 3*s, -s), []int64{-2500}, "-7000..-1000: 1 -4000..2000: 1"},
		{EventTimeSession(2 * s), []int64{-9000, -7500, -1000, 500}, "-9000..-5500: 2 -1000..2500: 2"},
	} {
		out, joined := &collect[string]{}, &collect[string]{}
		err := runJob(t, nil, func(env *Environment) error {
			a := atTimes(env, "a", c.at...)
			a.KeyBy(key).Window(c.a).Count(bounds).SinkTo(out)
			a.Join(atTimes(env, "b", c.at[0])).Where(key).EqualTo(key).Window(c.a).
				Process(func(ctx *WindowContext[string], l, r int64, out *Collector[string]) error {
					if l == r {
						out.Collect(bounds("", ctx.Window(), 1))
					}
					return nil
				}).SinkTo(joined)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(out.got, " "); got != c.want {
			t.Errorf("%v of %v: got %s, want %s", c.a.name, c.at, got, c.want)
		}
		first, _, _ := strings.Cut(c.want, ":")
		if len(joined.got) == 0 || !strings.HasPrefix(joined.got[0], first+":") {
			t.Errorf("%v of %v: joined %v", c.a.name, c.at, joined.got)
		}
	}
}

// More subtasks than splits: those without one finish at once and must not decide the watermark while the rest is merely idle. Source:
// FLINK-38477, FLINK-5479.
func TestFinishedSubtasksDoNotDecideTheWatermark(t *testing.T) {
	out := &collect[string]{}
	err := runJob(t, map[string]string{"parallelism.default": "2", "pipeline.auto-watermark-interval": "10 ms"}, func(env *Environment) error {
		src := datagen.WithTimestamps(func(n int64) (int64, int64) { return n, 1000 + n*1000 }, datagen.Count(2), datagen.Splits(1), datagen.RatePerSecond(4))
		env.FromSource(src, MonotonousTimestamps[int64](nil).WithIdleness(50*time.Millisecond), "one split").
			KeyBy(func(int64) string { return "k" }).Window(TumblingEventTime(10 * time.Second)).Count(bounds).SinkTo(out)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(out.got, " "); got != "0..10000: 2" {
		t.Errorf("got %s", got)
	}
}
