package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/hybrid"
	"github.com/thalweg/thalweg/connector/ratelimit"
)

func TestSequence(t *testing.T) {
	for _, p := range []string{"1", "3"} {
		out := &collect[int64]{}
		err := runJob(t, map[string]string{"parallelism.default": p}, func(env *Environment) error {
			env.FromSequence(-2, 7).SinkTo(out)
			return nil
		})
		if got := strings.Join(sorted(out), " "); err != nil || got != "-1 -2 0 1 2 3 4 5 6 7" {
			t.Errorf("parallelism %s: %s, %v", p, got, err)
		}
	}
	env := newEnvironment("t", nil, nil)
	env.FromSequence(1, 0)
	env.FromSequence(-1<<63, 1<<63-1)
	if len(env.wrong) != 2 || !strings.Contains(env.wrong[0].Error(), "sources_test.go:") {
		t.Errorf("%v", env.wrong)
	}
}

// TestAlignedSources: of two sources in one group the fast one is never further ahead of the slow one than its drift and what one look at the
// mailbox reads, and both come to their end.
func TestAlignedSources(t *testing.T) {
	const drift, batch, n = 200, 512, 8000
	var slow, worst atomic.Int64
	out := &collect[int64]{}
	at := func(v int64) time.Time { return time.UnixMilli(v) }
	wm := MonotonousTimestamps(at).WithWatermarkAlignment("g", drift*time.Millisecond, 5*time.Millisecond)
	err := runJob(t, map[string]string{"parallelism.default": "1", "pipeline.auto-watermark-interval": "5 ms"}, func(env *Environment) error {
		number := func(i int64) int64 { return i }
		a := env.FromSource[int64](datagen.Source(number, datagen.Count(n)), wm, "fast").Map(func(v int64) int64 {
			worst.Store(max(worst.Load(), v-slow.Load()))
			return v
		})
		b := env.FromSource[int64](ratelimit.Source(datagen.Source(number, datagen.Count(n)), 2*n), wm, "slow").Map(func(v int64) int64 {
			slow.Store(v)
			return v
		})
		a.Union(b.DataStream).SinkTo(out)
		return nil
	})
	if err != nil || len(out.got) != 2*n {
		t.Fatalf("%d records, %v", len(out.got), err)
	}
	if w := worst.Load(); w > drift+batch+1 {
		t.Errorf("the fast source was %d ms ahead; %d are allowed", w, drift)
	}
}

// The source's share of a group of its own: a subtask alone aligns nothing away, and splits without a pausing reader are refused by name.
func TestAlignmentMistakes(t *testing.T) {
	at := func(v int64) time.Time { return time.UnixMilli(v) }
	src := datagen.Source(func(n int64) int64 { return n }, datagen.Count(1))
	env := newEnvironment("t", nil, nil)
	for _, wm := range []WatermarkStrategy[int64]{
		NoWatermarks[int64]().WithWatermarkAlignment("g", time.Second), MonotonousTimestamps(at).WithWatermarkAlignment("", time.Second),
		MonotonousTimestamps(at).WithWatermarkAlignment("g", 0), MonotonousTimestamps(at).WithWatermarkAlignment("g", time.Second, 0),
		MonotonousTimestamps(at).WithIdleness(0), BoundedOutOfOrderness(-time.Second, at),
	} {
		env.FromSource[int64](src, wm, "numbers")
	}
	env.FromSource[int64](src, NoWatermarks[int64](), "n").AssignTimestampsAndWatermarks(MonotonousTimestamps(at).WithWatermarkAlignment("g", time.Second))
	want := []string{"no watermarks to align", "no name", "the drift is 0s", "update interval", "WithIdleness: 0s", "the delay is -1s", "for sources"}
	if len(env.wrong) != len(want) {
		t.Fatalf("%d mistakes: %v", len(env.wrong), env.wrong)
	}
	for i, w := range want {
		if e := env.wrong[i].Error(); !strings.Contains(e, w) || !strings.Contains(e, "sources_test.go:") {
			t.Errorf("%q is not in %s", w, e)
		}
	}
}

// TestHybridSourceGoesOnAfterFailures: history and what follows it are read once each, at any moment of failure, the switch included.
func TestHybridSourceGoesOnAfterFailures(t *testing.T) {
	const first, last = 4000, 9000
	number := func(from int64) func(int64) int64 { return func(n int64) int64 { return from + n } }
	chain := func() connector.Source[int64] {
		return hybrid.Source(datagen.Source(number(0), datagen.Count(first), datagen.Splits(3))).
			ThenFrom(connector.Bounded, func(context.Context, connector.Enumerator) (int64, error) { return first, nil },
				func(from int64) connector.Source[int64] {
					return datagen.Source(number(from), datagen.Count(last-from), datagen.Splits(2))
				})
	}
	out := &collect[perUser]{}
	var failed atomic.Int64
	conf := map[string]string{"parallelism.default": "2", "execution.checkpointing.interval": "10 ms", "execution.checkpointing.dir": "file://" + t.TempDir(),
		"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "20", "restart-strategy.fixed-delay.delay": "1 ms"}
	err := runJob(t, conf, func(env *Environment) error {
		env.FromSource[int64](ratelimit.Source(chain(), 40_000), MonotonousTimestamps(func(v int64) time.Time { return time.UnixMilli(v) }), "chain").UID("chain").
			TryMap(func(v int64) (int64, error) {
				if at := []int64{first - 900, first - 1, first, last - 1000}; failed.Load() < int64(len(at)) && v == at[failed.Load()] {
					failed.Add(1)
					return 0, errors.New("on purpose")
				}
				return v, nil
			}).UID("may fail").
			KeyBy(func(int64) string { return "all" }).Window(TumblingEventTime(time.Second)).
			Aggregate(Sum(func(v int64) int64 { return v }), func(u string, w TimeWindow, s int64) perUser { return perUser{u, w.Start.UnixMilli(), s} }).UID("sums").
			SinkTo(out).UID("out")
		return nil
	})
	if err != nil || failed.Load() != 4 {
		t.Fatalf("%d failures: %v", failed.Load(), err)
	}
	var want []string
	for w := int64(0); w < last; w += 1000 {
		want = append(want, fmt.Sprint(perUser{"all", w, (w + w + 999) * 500}))
	}
	if got := slices.Compact(sorted(out)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// astray assigns a split to a subtask that there is not.
type astray struct{ connector.Source[int64] }

func (a astray) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	return a.Source.Enumerator(astrayContext{ctx}, restored)
}

type astrayContext struct{ connector.EnumeratorContext }

func (c astrayContext) Assign(sub int, splits ...connector.Split) {
	c.EnumeratorContext.Assign(sub+7, splits...)
}

// TestContractViolationsEndTheJob: with the operator and the rule, and without restarts.
func TestContractViolationsEndTheJob(t *testing.T) {
	err := runJob(t, map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"}, func(env *Environment) error {
		env.FromSource[int64](astray{datagen.Source(func(n int64) int64 { return n }, datagen.Count(9))}, NoWatermarks[int64](), "orders").SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "Source: orders at sources_test.go:") || !strings.Contains(err.Error(), `rule "subtask"`) {
		t.Error(err)
	}
}
