package stream

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// keyModes are all ways to keep the state of keys.
var keyModes = []map[string]string{
	{"execution.runtime-mode": "STREAMING", "state.backend.type": "hashmap"},
	{"execution.runtime-mode": "STREAMING", "state.backend.type": "pebble"},
	{"execution.runtime-mode": "BATCH"},
}

type point struct {
	Name string
	At   [2]float32
}

// countKeys counts in map states by what it gets.
type countKeys struct {
	NoTimers[string, string]
	opts   []StateOption
	counts MapState[float64, int]
	points MapState[point, int]
}

func (f *countKeys) Open(rt *RuntimeContext[string]) (err error) {
	if f.counts, err = rt.MapState[float64, int]("counts", f.opts...); err != nil {
		return err
	}
	f.points, err = rt.MapState[point, int]("points", f.opts...)
	return err
}

func (f *countKeys) ProcessElement(_ *KeyedContext[string], v float64, out *Collector[string]) error {
	n, _, err := f.counts.Get(v)
	if err != nil {
		return err
	}
	p := point{"p", [2]float32{1, float32(v)}}
	m, _, err := f.points.Get(p)
	if err != nil {
		return err
	}
	if err := f.counts.Put(v, n+1); err != nil {
		return err
	}
	if err := f.points.Put(p, m+1); err != nil {
		return err
	}
	keys, err := f.counts.Keys()
	out.Collect(fmt.Sprint(n+1, m+1, len(keys)))
	return err
}

// 0 and -0 are one key, whatever keeps the state, in KeyBy and in map states.
func TestZeroIsOneKey(t *testing.T) {
	minus := math.Copysign(0, -1)
	for _, conf := range keyModes {
		for name, opts := range map[string][]StateOption{"": nil, " with a time to live": {WithTTL(StateTTLConfig{TTL: time.Hour})}} {
			var states collect[string]
			var sums collect[float64]
			if err := runJob(t, maps.Clone(conf), func(env *Environment) error {
				s := env.FromCollection(0, minus, 0, minus)
				s.KeyBy(func(float64) string { return "" }).Process(func() KeyedProcessFunction[string, float64, string] { return &countKeys{opts: opts} }).SinkTo(&states)
				s.KeyBy(func(v float64) [2]float64 { return [2]float64{v, 1} }).Count(func(_ [2]float64, n int64) float64 { return float64(n) }).SinkTo(&sums)
				return nil
			}); err != nil {
				t.Fatalf("%v%s: %v", conf, name, err)
			}
			if want := []string{"1 1 1", "2 2 1", "3 3 1", "4 4 1"}; !slices.Equal(sorted(&states), want) {
				t.Errorf("%v%s: states: %v", conf, name, states.got)
			}
			if got := sums.got; slices.Max(got) != 4 {
				t.Errorf("%v: counts of KeyBy: %v", conf, got)
			}
		}
	}
}

// A NaN is no key: the job fails at once, also where it would be tried again.
func TestNaNIsNoKey(t *testing.T) {
	for _, conf := range keyModes {
		for want, build := range map[string]func(s DataStream[float64]){
			"KeyBy at keyrule_test.go:": func(s DataStream[float64]) {
				s.KeyBy(func(v float64) float64 { return v }).Reduce(func(a, _ float64) float64 { return a }).Print()
			},
			`state "counts"`: func(s DataStream[float64]) {
				s.KeyBy(func(float64) string { return "" }).Process(func() KeyedProcessFunction[string, float64, string] { return &countKeys{} }).Print()
			},
		} {
			var tries atomic.Int32
			conf := maps.Clone(conf)
			conf["restart-strategy.type"], conf["restart-strategy.fixed-delay.delay"], conf["restart-strategy.fixed-delay.attempts"] = "fixed-delay", "1 ms", "3"
			err := runJob(t, conf, func(env *Environment) error {
				build(env.FromCollection(1, math.NaN()).Map(func(v float64) float64 {
					if v != v {
						tries.Add(1)
					}
					return v
				}).DataStream)
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NaN") || tries.Load() != 1 {
				t.Errorf("%v: %d tries: %v, want %q", conf, tries.Load(), err, want)
			}
		}
	}
}

// tallies counts broadcast records in a broadcast state.
type tallies struct {
	d MapStateDescriptor[float64, int]
}

func (tallies) Open(*TaskContext) error { return nil }
func (tallies) Close() error            { return nil }

func (tallies) ProcessElement(*ReadOnlyContext, float64, *Collector[string]) error { return nil }

func (f tallies) ProcessBroadcastElement(ctx *BroadcastContext, v float64, out *Collector[string]) error {
	s, err := ctx.BroadcastState(f.d)
	if err != nil {
		return err
	}
	n, _ := s.Get(v)
	s.Put(v, n+1)
	out.Collect(fmt.Sprint(n+1, s.Len()))
	return nil
}

// The keys of broadcast states keep to the same rule.
func TestKeysOfBroadcastState(t *testing.T) {
	d := MapStateDescriptor[float64, int]{Name: "tally"}
	run := func(vs ...float64) (out *collect[string], err error) {
		out = &collect[string]{}
		err = runJob(t, nil, func(env *Environment) error {
			env.FromCollection[float64]().ConnectBroadcast(env.FromCollection(vs...).BroadcastState(d)).Process(func() BroadcastProcessFunction[float64, float64, string] { return tallies{d} }).SinkTo(out)
			return nil
		})
		return out, err
	}
	if out, err := run(0, math.Copysign(0, -1)); err != nil || !slices.Equal(out.got, []string{"1 1", "2 1"}) {
		t.Errorf("zeros: %v %v", out.got, err)
	}
	if _, err := run(math.NaN()); err == nil || !strings.Contains(err.Error(), `broadcast state "tally"`) {
		t.Errorf("NaN: %v", err)
	}
}

// partKey is a key whose encoding leaves a field out.
type partKey struct {
	ID    int64
	extra string
}

func (k partKey) MarshalBinary() ([]byte, error) { return strconv.AppendInt(nil, k.ID, 10), nil }

func (k *partKey) UnmarshalBinary(b []byte) (err error) {
	k.ID, err = strconv.ParseInt(string(b), 10, 64)
	return err
}

// A key that loses something in its encoding fails the job at the first record, in each mode, with its type and the KeyBy.
func TestKeysComeBack(t *testing.T) {
	for _, conf := range keyModes {
		err := runJob(t, maps.Clone(conf), func(env *Environment) error {
			env.FromCollection[int64](1, 1, 2).KeyBy(func(v int64) partKey { return partKey{v, "x"} }).Reduce(func(a, b int64) int64 { return a + b }).Print()
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "KeyBy at keyrule_test.go:") || !strings.Contains(err.Error(), "stream.partKey") || !strings.Contains(err.Error(), "No restart: the failure is not one") {
			t.Errorf("%v: %v", conf, err)
		}
	}
	if err := runJob(t, nil, func(env *Environment) error {
		env.FromCollection[int64](1, 1, 2).KeyBy(func(v int64) partKey { return partKey{ID: v} }).Reduce(func(a, b int64) int64 { return a + b }).Print()
		return nil
	}); err != nil {
		t.Errorf("keys that lose nothing: %v", err)
	}
}
