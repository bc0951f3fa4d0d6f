package stream

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
)

// purchase is a record of the second stream of joins: there is one each 100 ms.
type purchase struct {
	Buyer string
	Cents int64
	At    time.Time
}

func purchases(n int64) purchase {
	return purchase{fmt.Sprint("u", n%4), n, time.UnixMilli(n*100 + 25)}
}

func purchaseSource(env *Environment, n int64) DataStreamSource[purchase] {
	return env.FromSource(datagen.Source(purchases, datagen.Count(n), datagen.Splits(2)),
		BoundedOutOfOrderness(100*time.Millisecond, func(p purchase) time.Time { return p.At }), "purchases")
}

// coWindows are the windows of size ms, one each slide ms, with the numbers of their clicks and purchases, by user.
func coWindows(n, size, slide int64) map[span][2][]int64 {
	out := map[span][2][]int64{}
	add := func(user string, at int64, side int, v int64) {
		for _, w := range slidingSpans(size, slide)(click{At: time.UnixMilli(at)}) {
			w.User = user
			b := out[w]
			b[side] = append(b[side], v)
			out[w] = b
		}
	}
	for i := range n {
		c, p := visits(i), purchases(i)
		add(c.User, c.At.UnixMilli(), 0, c.N)
		add(p.Buyer, p.At.UnixMilli(), 1, p.Cents)
	}
	return out
}

// Joins pair what is in one window, and coGroups see what has no partner, too, at each parallelism and on each backend.
func TestWindowJoin(t *testing.T) {
	const n = 300
	user := func(c click) string { return c.User }
	buyer := func(p purchase) string { return p.Buyer }
	var join, flat, group []string
	for w, sides := range coWindows(n, 500, 500) {
		slices.Sort(sides[0])
		slices.Sort(sides[1])
		group = append(group, fmt.Sprint(w.User, w.Start, w.End, sides))
		for _, l := range sides[0] {
			for _, r := range sides[1] {
				join = append(join, fmt.Sprint(w.User, l, r))
			}
		}
	}
	for w, sides := range coWindows(n, 600, 200) {
		for _, l := range sides[0] {
			for _, r := range sides[1] {
				if r%2 == 0 {
					flat = append(flat, fmt.Sprint(w.User, w.Start, l, r))
				}
			}
		}
	}
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, p := range []string{"1", "3"} {
			t.Run(backend+"/"+p, func(t *testing.T) {
				joined, flats, groups, odd := &collect[string]{}, &collect[string]{}, &collect[string]{}, &collect[int64]{}
				tag := NewOutputTag[int64]("odd")
				err := runJob(t, map[string]string{"parallelism.default": p, "state.backend.type": backend}, func(env *Environment) error {
					a, b := visitSource(env, n), purchaseSource(env, n)
					a.Join(b).Where(user).EqualTo(buyer).Window(TumblingEventTime(500 * time.Millisecond)).
						Apply(func(c click, p purchase) string { return fmt.Sprint(c.User, c.N, p.Cents) }).UID("join").SinkTo(joined)
					f := a.Join(b).Where(user).EqualTo(buyer).Window(SlidingEventTime(600*time.Millisecond, 200*time.Millisecond)).
						Process(func(ctx *WindowContext[string], c click, p purchase, out *Collector[string]) error {
							if p.Cents%2 != 0 {
								ctx.Output(tag, p.Cents)
								return nil
							}
							out.Collect(fmt.Sprint(ctx.Key(), ctx.Window().Start.UnixMilli(), c.N, p.Cents))
							return nil
						})
					f.SinkTo(flats)
					f.GetSideOutput(tag).SinkTo(odd)
					a.CoGroup(b).Where(user).EqualTo(buyer).Window(TumblingEventTime(500 * time.Millisecond)).
						Process(func(ctx *WindowContext[string], cs iter.Seq[click], ps iter.Seq[purchase], out *Collector[string]) error {
							var sides [2][]int64
							for c := range cs {
								sides[0] = append(sides[0], c.N)
							}
							for p := range ps {
								sides[1] = append(sides[1], p.Cents)
							}
							slices.Sort(sides[0])
							slices.Sort(sides[1])
							w := ctx.Window()
							out.Collect(fmt.Sprint(ctx.Key(), w.Start.UnixMilli(), w.End.UnixMilli(), sides))
							return nil
						}).SinkTo(groups)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				for what, pair := range map[string][2][]string{"join": {sorted(joined), join}, "process": {sorted(flats), flat}, "coGroup": {sorted(groups), group}} {
					slices.Sort(pair[1])
					if len(pair[1]) == 0 || !slices.Equal(pair[0], pair[1]) {
						t.Errorf("%s: got %d results %q, want %d %q", what, len(pair[0]), pair[0], len(pair[1]), pair[1])
					}
				}
				if len(odd.got) == 0 {
					t.Error("nothing in the side output")
				}
			})
		}
	}
}

// Sessions of two streams reach over both; gaps may be of the record, and triggers and evictors see the records of both.
func TestSessionsOfTwoStreams(t *testing.T) {
	out, counted := &collect[string]{}, &collect[string]{}
	err := runJob(t, nil, func(env *Environment) error {
		numbers := func(name string, at ...int64) DataStream[int64] {
			src := datagen.WithTimestamps(func(n int64) (int64, int64) { return at[n], at[n] }, datagen.Count(int64(len(at))))
			return env.FromSource(src, MonotonousTimestamps[int64](nil), name).SetParallelism(1).DataStream
		}
		key := func(int64) string { return "k" }
		a, b := numbers("a", 0, 100, 3000), numbers("b", 60, 150, 9000)
		a.CoGroup(b).Where(key).EqualTo(key).Window(EventTimeSessionDynamic(func(u TaggedUnion[int64, int64]) time.Duration {
			if u.IsTwo() {
				return 50 * time.Millisecond
			}
			return 100 * time.Millisecond
		})).Apply(func(l, r iter.Seq[int64], out *Collector[string]) error {
			out.Collect(fmt.Sprint(slices.Sorted(l), slices.Sorted(r)))
			return nil
		}).SinkTo(out)
		a.CoGroup(b).Where(key).EqualTo(key).Window(GlobalWindows()).Trigger(PurgingTrigger(CountTrigger[TaggedUnion[int64, int64]](6))).
			Evictor(CountEvictor[TaggedUnion[int64, int64]](6)).
			Apply(func(l, r iter.Seq[int64], out *Collector[string]) error {
				out.Collect(fmt.Sprint(slices.Sorted(l), slices.Sorted(r)))
				return nil
			}).SinkTo(counted)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(sorted(out), " "), "[0 100] [60 150] [3000] [] [] [9000]"; got != want {
		t.Errorf("sessions %s, want %s", got, want)
	}
	if got, want := strings.Join(counted.got, " "), "[0 100 3000] [60 150 9000]"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}

// Records that are late are in the side output of their stream, and pairs are made of the others alone.
func TestLateRecordsOfJoins(t *testing.T) {
	for _, kind := range []string{"window", "interval"} {
		t.Run(kind, func(t *testing.T) {
			left, right := NewOutputTag[click]("late-clicks"), NewOutputTag[purchase]("late-purchases")
			on, lateLeft, lateRight := &collect[string]{}, &collect[click]{}, &collect[purchase]{}
			const n = 200
			err := runJob(t, nil, func(env *Environment) error {
				late := func(i int64) time.Time { return time.UnixMilli(i*100 - i%10/9*5000) } // each tenth record is 5 s behind
				a := env.FromSource(datagen.Source(func(i int64) click { return click{User: "u", At: late(i), N: i} }, datagen.Count(n), datagen.RatePerSecond(200)),
					MonotonousTimestamps(func(c click) time.Time { return c.At }), "clicks").SetParallelism(1)
				b := env.FromSource(datagen.Source(func(i int64) purchase { return purchase{"u", i, late(i)} }, datagen.Count(n), datagen.RatePerSecond(200)),
					MonotonousTimestamps(func(p purchase) time.Time { return p.At }), "purchases").SetParallelism(1)
				var s SingleOutputStreamOperator[string]
				if kind == "window" {
					s = a.Join(b).Where(func(c click) string { return c.User }).EqualTo(func(p purchase) string { return p.Buyer }).
						Window(TumblingEventTime(100 * time.Millisecond)).SideOutputLeftLateData(left).SideOutputRightLateData(right).
						Apply(func(c click, p purchase) string { return fmt.Sprint(c.N, p.Cents) })
				} else {
					s = a.KeyBy(func(c click) string { return c.User }).IntervalJoin(b.KeyBy(func(p purchase) string { return p.Buyer })).
						Between(0, 0).SideOutputLeftLateData(left).SideOutputRightLateData(right).
						Process(func(_ *JoinContext, c click, p purchase, out *Collector[string]) error {
							out.Collect(fmt.Sprint(c.N, p.Cents))
							return nil
						})
				}
				s.SinkTo(on)
				s.GetSideOutput(left).SinkTo(lateLeft)
				s.GetSideOutput(right).SinkTo(lateRight)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(lateLeft.got) == 0 || len(lateRight.got) == 0 {
				t.Errorf("%d late clicks, %d late purchases", len(lateLeft.got), len(lateRight.got))
			}
			lost := map[int64]bool{}
			for _, c := range lateLeft.got {
				lost[c.N] = true
			}
			for _, p := range lateRight.got {
				lost[p.Cents] = true
			}
			pairs := map[string]bool{}
			for _, v := range on.got {
				pairs[v] = true
			}
			for i := range int64(n) {
				if lost[i] && i%10 != 9 || pairs[fmt.Sprint(i, i)] == lost[i] {
					t.Errorf("record %d: late %v, joined %v", i, lost[i], pairs[fmt.Sprint(i, i)])
				}
			}
		})
	}
}

func TestWindowJoinMistakes(t *testing.T) {
	clicks := func(w func(JoinEqualTo[string, click, purchase])) func(env *Environment) error {
		return func(env *Environment) error {
			w(env.FromCollection(click{}).Join(env.FromCollection(purchase{})).Where(func(c click) string { return c.User }).EqualTo(func(p purchase) string { return p.Buyer }))
			return nil
		}
	}
	apply := func(j WindowJoin[string, click, purchase]) {
		j.Apply(func(c click, p purchase) string { return "" }).SinkTo(&collect[string]{})
	}
	second := TumblingEventTime(time.Second)
	for want, build := range map[string]func(*Environment) error{
		"window size 0s is not positive": clicks(func(j JoinEqualTo[string, click, purchase]) { apply(j.Window(TumblingEventTime(0))) }),
		"the session's gap function is func(stream.click) time.Duration, the stream's records are operator.TaggedUnion": clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(EventTimeSessionDynamic(func(click) time.Duration { return 1 })))
		}),
		"trigger count 0 is not positive": clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(second).Trigger(CountTrigger[TaggedUnion[click, purchase]](0)))
		}),
		"evictor count -1 is negative": clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(second).Evictor(CountEvictor[TaggedUnion[click, purchase]](-1)))
		}),
		"allowed lateness -1s is negative": clicks(func(j JoinEqualTo[string, click, purchase]) { apply(j.Window(second).AllowedLateness(-time.Second)) }),
		"allowed lateness 1.5ms is not a whole number": clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(second).AllowedLateness(1500 * time.Microsecond))
		}),
		"SideOutputLeftLateData: the tag has no name": clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(second).SideOutputLeftLateData(NewOutputTag[click]("")))
		}),
		`the side outputs of late records share the name "late" and`: clicks(func(j JoinEqualTo[string, click, purchase]) {
			apply(j.Window(second).SideOutputLeftLateData(NewOutputTag[click]("late")).SideOutputRightLateData(NewOutputTag[purchase]("late")))
		}),
		"streams of different environments": func(env *Environment) error {
			other := newEnvironment("other", nil, nil)
			apply(env.FromCollection(click{}).Join(other.FromCollection(purchase{})).Where(func(c click) string { return c.User }).
				EqualTo(func(p purchase) string { return p.Buyer }).Window(second))
			return nil
		},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := program("mistakes", build, config.Configuration{}, nil)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "window_join_test.go:") {
				t.Errorf("got %v", err)
			}
		})
	}
}
