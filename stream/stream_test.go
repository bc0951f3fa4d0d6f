package stream

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
)

// TestMain is also a program, which prints without end.
func TestMain(m *testing.M) {
	if os.Getenv("THALWEG_TEST_PROGRAM") != "" {
		Main("endless", endless)
	}
	goleak.VerifyTestMain(m)
}

func TestMarkerSaysTheProtocol(t *testing.T) {
	if want := fmt.Sprintf("thalweg.sdk.protocol=%d;", version.Protocol); sdkMarker != want {
		t.Errorf("marker %q, want %q", sdkMarker, want)
	}
}

// collect is a sink that keeps what it gets.
type collect[T any] struct {
	mu  sync.Mutex
	got []T
}

func (c *collect[T]) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[T], error) {
	return collectWriter[T]{c}, nil
}

type collectWriter[T any] struct{ c *collect[T] }

func (w collectWriter[T]) Write(v T, _ int64) error {
	w.c.mu.Lock()
	w.c.got = append(w.c.got, v)
	w.c.mu.Unlock()
	return nil
}
func (collectWriter[T]) Flush(context.Context, bool) error { return nil }
func (collectWriter[T]) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (collectWriter[T]) Close() error                      { return nil }

func runJob(t *testing.T, conf map[string]string, build func(*Environment) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if conf == nil {
		conf = map[string]string{}
	}
	if _, ok := conf["restart-strategy.type"]; !ok {
		conf["restart-strategy.type"] = "none"
	}
	return RunLocal(ctx, t.Name(), build, LocalOptions{Config: conf, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)})
}

func sorted[T any](c *collect[T]) []string {
	var out []string
	for _, v := range c.got {
		out = append(out, fmt.Sprint(v))
	}
	slices.Sort(out)
	return out
}

func TestTransformations(t *testing.T) {
	for _, p := range []string{"1", "3"} {
		t.Run(p, func(t *testing.T) {
			out := &collect[string]{}
			err := runJob(t, map[string]string{"parallelism.default": p}, func(env *Environment) error {
				a := env.FromCollection(1, 2, 3, 4).Filter(func(i int) bool { return i != 3 }).Map(func(i int) int64 { return int64(i) * 10 })
				b := env.FromCollection("7", "8").TryMap(func(s string) (int64, error) { return int64(len(s)), nil })
				a.Union(b).FlatMap(func(i int64, out *Collector[string]) error {
					out.Collect(fmt.Sprint(i))
					out.Collect(fmt.Sprint(-i))
					return nil
				}).SinkTo(out)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"-1", "-1", "-10", "-20", "-40", "1", "1", "10", "20", "40"}
			if got := sorted(out); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

type click struct {
	User string
	At   time.Time
	N    int64
}

type perUser struct {
	User  string
	Start int64
	Sum   int64
}

func clicks(n int64) click {
	return click{User: fmt.Sprint("u", n%7), At: time.UnixMilli(n * 10), N: n}
}

func windows(out *collect[perUser], n int64, fail func(click) error) func(*Environment) error {
	return func(env *Environment) error {
		env.FromSource(datagen.Source(clicks, datagen.Count(n), datagen.Splits(4)), MonotonousTimestamps(func(c click) time.Time { return c.At }), "clicks").UID("clicks").
			TryMap(func(c click) (click, error) { return c, fail(c) }).UID("may fail").
			KeyBy(func(c click) string { return c.User }).
			Window(TumblingEventTime(time.Second)).
			Aggregate(Sum(func(c click) int64 { return c.N }), func(u string, w TimeWindow, s int64) perUser { return perUser{u, w.Start.UnixMilli(), s} }).UID("sums").
			SinkTo(out).UID("out")
		return nil
	}
}

func wantWindows(n int64) []string {
	sums := map[perUser]int64{}
	for i := range n {
		c := clicks(i)
		sums[perUser{User: c.User, Start: c.At.UnixMilli() / 1000 * 1000}] += c.N
	}
	var out []string
	for w, s := range sums {
		out = append(out, fmt.Sprint(perUser{w.User, w.Start, s}))
	}
	slices.Sort(out)
	return out
}

func TestWindowsAtEachParallelismAndBackend(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, p := range []string{"1", "2", "5"} {
			t.Run(backend+"/"+p, func(t *testing.T) {
				out := &collect[perUser]{}
				conf := map[string]string{"parallelism.default": p, "state.backend.type": backend, "execution.checkpointing.interval": "20 ms",
					"execution.checkpointing.dir": "file://" + t.TempDir(), "taskmanager.memory.segment-size": "64"}
				if err := runJob(t, conf, windows(out, 5000, func(click) error { return nil })); err != nil {
					t.Fatal(err)
				}
				if got, want := sorted(out), wantWindows(5000); !slices.Equal(got, want) {
					t.Errorf("got %d results, want %d", len(got), len(want))
				}
			})
		}
	}
}

// After a failure the job goes on from its last checkpoint; state and positions agree, so each window is right whenever it is emitted.
func TestRestartFromCheckpoint(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			out := &collect[perUser]{}
			var mu sync.Mutex
			failures := 0
			conf := map[string]string{"parallelism.default": "2", "state.backend.type": backend, "execution.checkpointing.interval": "10 ms",
				"execution.checkpointing.dir": "file://" + t.TempDir(), "restart-strategy.type": "fixed-delay",
				"restart-strategy.fixed-delay.attempts": "10", "restart-strategy.fixed-delay.delay": "1 ms"}
			err := runJob(t, conf, windows(out, 60_000, func(c click) error {
				mu.Lock()
				defer mu.Unlock()
				if failures < 4 && c.N == int64(failures+1)*10_000 {
					failures++
					if failures%2 == 0 {
						panic("on purpose")
					}
					return errors.New("on purpose")
				}
				return nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			if failures != 4 {
				t.Fatalf("%d failures happened", failures)
			}
			got := sorted(out)
			if got = slices.Compact(got); !slices.Equal(got, wantWindows(60_000)) { // the sink is not transactional: a window may come twice, never differently
				t.Errorf("got %d different results, want %d", len(got), len(wantWindows(60_000)))
			}
		})
	}
}

func TestFailureNamesOperatorAndCause(t *testing.T) {
	err := runJob(t, nil, func(env *Environment) error {
		env.FromCollection(1, 2, 3).Map(func(i int) int {
			if i == 2 {
				panic("two is bad")
			}
			return i
		}).Name("picky").UID("picky-uid").SinkTo(&collect[int]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "picky (uid picky-uid)") || !strings.Contains(err.Error(), "two is bad") {
		t.Errorf("error %v", err)
	}
}

func TestMistakesComeTogetherWithTheirPlaces(t *testing.T) {
	_, err := program("mistakes", func(env *Environment) error {
		s := env.FromCollection(1)
		s.Map(func(int) chan int { return nil })
		s.UID("same").SetParallelism(0)
		s.Map(func(i int) int { return i }).UID("same").SinkTo(&collect[int]{})
		return nil
	}, config.Configuration{}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"stream_test.go:", "chan int", "parallelism 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	_, err = program("uids", func(env *Environment) error {
		s := env.FromCollection(1).UID("same")
		s.Map(func(i int) int { return i }).UID("same").SinkTo(&collect[int]{})
		return nil
	}, config.Configuration{}, nil)
	if err == nil || !strings.Contains(err.Error(), `UID "same" is already used at stream_test.go:`) {
		t.Errorf("error %v", err)
	}
}

func TestBuildMustBeDeterministic(t *testing.T) {
	n := 0
	_, err := twice("random", func(env *Environment) error {
		n++
		env.FromCollection(1).Map(func(i int) int { return i }).UID(fmt.Sprint("id", n)).SinkTo(&collect[int]{})
		return nil
	}, config.Configuration{}, nil)
	if err == nil || !strings.Contains(err.Error(), "not deterministic") || !strings.Contains(err.Error(), `uid "id1"`) {
		t.Errorf("error %v", err)
	}
}

func TestSubmittedConfigurationWins(t *testing.T) {
	p, err := program("conf", func(env *Environment) error {
		env.EnableCheckpointing(time.Minute, ExactlyOnce).SetParallelism(2)
		env.FromCollection(1).Map(func(i int) int { return i }).SinkTo(&collect[int]{})
		return nil
	}, config.Configuration{"execution.checkpointing.interval": "3 s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.CheckpointInterval.Value(p.Graph.Config); got != 3*time.Second {
		t.Errorf("interval %v", got)
	}
	if v := p.Graph.Vertices[len(p.Graph.Vertices)-1]; v.Parallelism != 2 {
		t.Errorf("parallelism %d", v.Parallelism)
	}
}

func TestOperatorIDsFollowUIDs(t *testing.T) {
	build := func(extra bool) *graph.Program {
		p, err := program("ids", func(env *Environment) error {
			s := env.FromCollection(1).UID("src").Map(func(i int) int { return i })
			if extra {
				s = s.Filter(func(int) bool { return true })
			}
			s.KeyBy(func(i int) int { return i }).Reduce(func(a, b int) int { return a + b }).UID("sum").SinkTo(&collect[int]{})
			return nil
		}, config.Configuration{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	find := func(p *graph.Program, uid string) (id graph.OperatorID) {
		for k, n := range p.Nodes {
			if n.UID == uid {
				id = k
			}
		}
		return id
	}
	if a, b := find(build(false), "sum"), find(build(true), "sum"); a != b || a.IsZero() {
		t.Errorf("ids %v and %v", a, b)
	}
}

func TestUnknownRoleIsRefused(t *testing.T) {
	t.Setenv("THALWEG_ROLE", "king")
	if code := run("x", func(*Environment) error { return nil }); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}

// A program that was asked for its help has shown it: that is no failure, in the role in which it runs here and in that of its plan.
func TestHelpIsNoFailure(t *testing.T) {
	for _, role := range []string{"", "plan"} {
		t.Setenv("THALWEG_ROLE", role)
		if code := run("x", func(*Environment) error { return fmt.Errorf("parse: %w", flag.ErrHelp) }); code != 0 {
			t.Errorf("role %q: exit code %d", role, code)
		}
	}
}

type wide struct {
	A, B, C, D, E int64
	Text          string
}

// Records that travel by reference are their receivers' own: two branches, an exchange and a by-value operator each see the right one.
func TestUpdateInPlace(t *testing.T) {
	plain, updated := &collect[string]{}, &collect[string]{}
	err := runJob(t, map[string]string{"parallelism.default": "2"}, func(env *Environment) error {
		src := env.FromSource(datagen.Fill(func(n int64, v *wide) { *v = wide{A: n, Text: fmt.Sprint(n)} }, datagen.Count(100)), NoWatermarks[wide](), "wide")
		src.Map(func(w wide) string { return fmt.Sprint(w.A, w.B, w.Text) }).SinkTo(plain)
		src.Update(func(w *wide) { w.B = w.A * 2 }).FilterRef(func(w *wide) bool { return w.A%2 == 0 }).
			Rebalance().Update(func(w *wide) { w.B++ }).Map(func(w wide) string { return fmt.Sprint(w.A, w.B, w.Text) }).SinkTo(updated)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var wantPlain, wantUpdated []string
	for n := range 100 {
		wantPlain = append(wantPlain, fmt.Sprint(n, 0, strconv.Itoa(n)))
		if n%2 == 0 {
			wantUpdated = append(wantUpdated, fmt.Sprint(n, n*2+1, strconv.Itoa(n)))
		}
	}
	slices.Sort(wantPlain)
	slices.Sort(wantUpdated)
	if got := sorted(plain); !slices.Equal(got, wantPlain) {
		t.Errorf("plain: got %v", got)
	}
	if got := sorted(updated); !slices.Equal(got, wantUpdated) {
		t.Errorf("updated: got %v", got)
	}
}

// A chain may be long: what is done for each of its operators does not grow with their number.
func TestAChainOfThousands(t *testing.T) {
	out := &collect[int]{}
	const n = 5000
	if err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection(1, 2, 3).Map(func(v int) int { return v })
		for range n {
			s = s.Map(func(v int) int { return v + 1 })
		}
		s.SinkTo(out)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{fmt.Sprint(n + 1), fmt.Sprint(n + 2), fmt.Sprint(n + 3)}; !slices.Equal(sorted(out), want) {
		t.Errorf("got %v, want %v", out.got, want)
	}
}
