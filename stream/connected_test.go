package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
)

// split sends the odd numbers to one side output, as text, and the multiples of three to another; all go on.
type split struct {
	Plain
	odd   OutputTag[string]
	three OutputTag[int64]
}

func (s split) ProcessElement(ctx *ProcessContext, v int64, out *Collector[int64]) error {
	if v%2 == 1 {
		ctx.Output(s.odd, fmt.Sprint(v))
	}
	if v%3 == 0 {
		ctx.Output(s.three, v)
	}
	out.Collect(v)
	return nil
}

func TestSideOutputs(t *testing.T) {
	odd, three, unread := NewOutputTag[string]("odd"), NewOutputTag[int64]("three"), NewOutputTag[string]("unread")
	for _, chaining := range []string{"true", "false"} {
		for _, p := range []string{"1", "3"} {
			t.Run("chaining "+chaining+" parallelism "+p, func(t *testing.T) {
				all, odds, again, threes := &collect[int64]{}, &collect[string]{}, &collect[string]{}, &collect[int64]{}
				err := runJob(t, map[string]string{"parallelism.default": p, "pipeline.operator-chaining.enabled": chaining}, func(env *Environment) error {
					s := env.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(30)), NoWatermarks[int64](), "n").
						Process(func() ProcessFunction[int64, int64] { return split{odd: odd, three: three} })
					s.SinkTo(all)
					o := s.GetSideOutput(odd)
					o.SinkTo(odds)
					o.Rebalance().Map(func(s string) string { return "-" + s }).SinkTo(again)
					s.GetSideOutput(three).SinkTo(threes)
					s.GetSideOutput(unread).SinkTo(&collect[string]{})
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if len(all.got) != 30 || len(odds.got) != 15 || len(again.got) != 15 || len(threes.got) != 10 {
					t.Fatalf("main %d, odd %d and %d, three %d records; want 30, 15, 15, 10", len(all.got), len(odds.got), len(again.got), len(threes.got))
				}
				if !slices.Contains(odds.got, "29") || !slices.Contains(again.got, "-29") || !slices.Contains(threes.got, int64(27)) {
					t.Fatalf("side outputs hold %v, %v, %v", odds.got, again.got, threes.got)
				}
			})
		}
	}
}

func TestSideOutputMistakes(t *testing.T) {
	err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection[int64](1).Process(func() ProcessFunction[int64, int64] {
			return split{odd: NewOutputTag[string]("x"), three: NewOutputTag[int64]("y")}
		})
		s.GetSideOutput(NewOutputTag[string]("x"))
		s.GetSideOutput(NewOutputTag[int64]("x"))
		s.GetSideOutput(NewOutputTag[int64](""))
		s.SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || strings.Count(err.Error(), "connected_test.go:") != 2 {
		t.Fatalf("got %v, want two mistakes with their places", err)
	}
	err = runJob(t, nil, func(env *Environment) error { // written as text, read as numbers
		s := env.FromCollection[int64](1).Process(func() ProcessFunction[int64, int64] {
			return split{odd: NewOutputTag[string]("x"), three: NewOutputTag[int64]("y")}
		})
		s.GetSideOutput(NewOutputTag[int64]("x")).SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), `side output "x" is read as another type than string`) {
		t.Fatalf("got %v", err)
	}
}

// where is a map function's subtask; each writer of place notes who wrote what.
type place struct{ collect[string] }

func (c *place) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[int64], error) {
	return placeWriter{collectWriter[string]{&c.collect}, ctx.Subtask}, nil
}

type placeWriter struct {
	collectWriter[string]
	subtask int
}

func (w placeWriter) Write(v int64, ts int64) error {
	return w.collectWriter.Write(fmt.Sprint(v, "@", w.subtask), ts)
}

// TestPartitioning: each way of partitioning loses nothing, doubles only what it says, and sends records where it says.
func TestPartitioning(t *testing.T) {
	const n = 120
	run := func(t *testing.T, from, to int, part func(DataStream[int64]) DataStream[int64]) []string {
		t.Helper()
		out := &place{}
		err := runJob(t, map[string]string{"parallelism.default": fmt.Sprint(from), "taskmanager.numberOfTaskSlots": "8"}, func(env *Environment) error {
			s := env.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(n)), NoWatermarks[int64](), "n")
			part(s.DataStream).SinkTo(out).SetParallelism(to)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(out.got)
		return out.got
	}
	ways := map[string]func(DataStream[int64]) DataStream[int64]{
		"rebalance": DataStream[int64].Rebalance, "rescale": DataStream[int64].Rescale, "shuffle": DataStream[int64].Shuffle,
		"global": DataStream[int64].Global, "broadcast": DataStream[int64].Broadcast,
		"custom": func(s DataStream[int64]) DataStream[int64] {
			return s.PartitionCustom(func(key string, n int) int { return len(key) % n }, func(v int64) string { return fmt.Sprint(v) })
		},
	}
	for name, way := range ways {
		for _, ends := range [][2]int{{1, 3}, {3, 1}, {2, 4}, {4, 2}, {3, 3}, {2, 3}} {
			t.Run(fmt.Sprint(name, ends), func(t *testing.T) {
				got := run(t, ends[0], ends[1], way)
				perSubtask, values := map[string]int{}, map[string]int{}
				for _, s := range got {
					v, at, _ := strings.Cut(s, "@")
					perSubtask[at]++
					values[v]++
					if name == "custom" && fmt.Sprint(len(v)%ends[1]) != at {
						t.Fatalf("%s went to subtask %s", v, at)
					}
				}
				copies := 1
				if name == "broadcast" {
					copies = ends[1]
				}
				if len(values) != n || len(got) != n*copies {
					t.Fatalf("%d values in %d records, want %d in %d", len(values), len(got), n, n*copies)
				}
				switch name {
				case "global":
					if perSubtask["0"] != n {
						t.Fatalf("records per subtask: %v", perSubtask)
					}
				case "rebalance", "broadcast":
					for at, k := range perSubtask {
						if want := n * copies / ends[1]; k < want-ends[0] || k > want+ends[0] {
							t.Fatalf("subtask %s has %d records, want about %d", at, k, want)
						}
					}
				case "rescale", "shuffle":
					if len(perSubtask) != ends[1] {
						t.Fatalf("records per subtask: %v", perSubtask)
					}
				}
			})
		}
	}
}

func TestPartitionerOutOfRangeIsAnError(t *testing.T) {
	err := runJob(t, nil, func(env *Environment) error {
		env.FromCollection[int64](1).PartitionCustom(func(k int64, n int) int { return n }, func(v int64) int64 { return v }).SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "the partition function returned subtask 1; there are 0 to 0") {
		t.Fatalf("got %v", err)
	}
}

func TestConnectedStreams(t *testing.T) {
	for _, p := range []string{"1", "2"} {
		t.Run(p, func(t *testing.T) {
			mapped, flat := &collect[string]{}, &collect[string]{}
			err := runJob(t, map[string]string{"parallelism.default": p}, func(env *Environment) error {
				c := env.FromCollection[int64](1, 2).Connect(env.FromCollection("a", "b"))
				c.Map(func(v int64) string { return fmt.Sprint("n", v) }, func(v string) string { return "s" + v }).SinkTo(mapped)
				c.FlatMap(func(v int64, out *Collector[string]) error {
					for range v {
						out.Collect(fmt.Sprint(v))
					}
					return nil
				}, func(string, *Collector[string]) error { return nil }).SinkTo(flat)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(sorted(mapped), " "); got != "n1 n2 sa sb" {
				t.Errorf("Map made %s", got)
			}
			if got := strings.Join(sorted(flat), " "); got != "1 2 2" {
				t.Errorf("FlatMap made %s", got)
			}
		})
	}
}

type visit struct {
	User string
	At   int64
}

// match counts a user's clicks and purchases, and reports both when event time passes 100 ms.
type match struct {
	clicks, buys ValueState[int64]
}

func (m *match) Open(rt *RuntimeContext[string]) (err error) {
	if m.clicks, err = rt.ValueState[int64]("clicks"); err != nil {
		return err
	}
	m.buys, err = rt.ValueState[int64]("buys")
	return err
}

func (m *match) count(ctx *KeyedContext[string], s ValueState[int64]) error {
	n, _, err := s.Value()
	if err != nil {
		return err
	}
	if err := s.Update(n + 1); err != nil {
		return err
	}
	return ctx.RegisterEventTimeTimer(time.UnixMilli(100))
}

func (m *match) ProcessFirst(ctx *KeyedContext[string], _ visit, _ *Collector[string]) error {
	return m.count(ctx, m.clicks)
}

func (m *match) ProcessSecond(ctx *KeyedContext[string], _ string, _ *Collector[string]) error {
	return m.count(ctx, m.buys)
}

func (m *match) OnTimer(ctx *KeyedContext[string], _ Timer, out *Collector[string]) error {
	c, _, err := m.clicks.Value()
	if err != nil {
		return err
	}
	b, _, err := m.buys.Value()
	out.Collect(fmt.Sprintf("%s %d %d", ctx.Key(), c, b))
	return err
}

func (m *match) Close() error { return nil }

func TestKeyedCoProcess(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, p := range []string{"1", "3"} {
			t.Run(backend+p, func(t *testing.T) {
				out := &collect[string]{}
				err := runJob(t, map[string]string{"parallelism.default": p, "state.backend.type": backend}, func(env *Environment) error {
					clicks := env.FromSource(datagen.WithTimestamps(func(n int64) (visit, int64) { return visit{fmt.Sprint("u", n%3), n}, n }, datagen.Count(90)), MonotonousTimestamps[visit](nil), "clicks")
					buys := env.FromCollection("u0", "u2", "u2")
					clicks.Connect(buys.DataStream).KeyBy(func(c visit) string { return c.User }, func(s string) string { return s }).
						Process(func() KeyedCoProcessFunction[string, visit, string, string] { return &match{} }).UID("match").SinkTo(out)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(sorted(out), ", "); got != "u0 30 1, u1 30 0, u2 30 2" {
					t.Fatalf("got %s", got)
				}
			})
		}
	}
}
