package stream

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
)

func TestIntervalJoin(t *testing.T) {
	numbers := func(env *Environment, name string, n int64) DataStreamSource[int64] {
		return env.FromSource(datagen.WithTimestamps(func(n int64) (int64, int64) { return n, n * 1000 }, datagen.Count(n)), MonotonousTimestamps[int64](nil), name)
	}
	parity := func(v int64) int64 { return v % 2 }
	for _, c := range []struct {
		p    string
		make func(IntervalJoin[int64, int64, int64]) IntervalJoined[int64, int64, int64]
		want string
	}{
		{"1", func(j IntervalJoin[int64, int64, int64]) IntervalJoined[int64, int64, int64] {
			return j.Between(-2*time.Second, 2*time.Second)
		}, "0-0 0-2 1-1 1-3 2-0 2-2 2-4 3-1 3-3 4-2 4-4"},
		{"2", func(j IntervalJoin[int64, int64, int64]) IntervalJoined[int64, int64, int64] {
			return j.Between(-2*time.Second, 2*time.Second).LowerBoundExclusive()
		}, "0-0 0-2 1-1 1-3 2-2 2-4 3-3 4-4"},
		{"3", func(j IntervalJoin[int64, int64, int64]) IntervalJoined[int64, int64, int64] {
			return j.Between(0, 2*time.Second).UpperBoundExclusive()
		}, "0-0 1-1 2-2 3-3 4-4"},
	} {
		out := &collect[string]{}
		err := runJob(t, map[string]string{"parallelism.default": c.p}, func(env *Environment) error {
			a, b := numbers(env, "a", 5), numbers(env, "b", 5)
			c.make(a.KeyBy(parity).IntervalJoin(b.KeyBy(parity))).Process(func(ctx *JoinContext, l, r int64, out *Collector[string]) error {
				if ctx.Time().UnixMilli() != max(l, r)*1000 {
					return fmt.Errorf("pair %d-%d has time %v", l, r, ctx.Time())
				}
				out.Collect(fmt.Sprint(l, "-", r))
				return nil
			}).UID("join").SinkTo(out)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(sorted(out), " "); got != c.want {
			t.Errorf("pairs %s, want %s", got, c.want)
		}
	}
}

func TestIntervalJoinMistakes(t *testing.T) {
	err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection[int64](1).KeyBy(func(v int64) int64 { return v })
		join := func(_ *JoinContext, l, r int64, out *Collector[int64]) error { return nil }
		s.IntervalJoin(s).Between(time.Second, 0).Process(join).SinkTo(&collect[int64]{})
		s.IntervalJoin(s).Between(0, 0).LowerBoundExclusive().Process(join).SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "the lower bound 1s is above the upper bound 0s") || !strings.Contains(err.Error(), "the interval is empty") {
		t.Fatalf("got %v", err)
	}
}
