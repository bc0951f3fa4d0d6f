package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// cachedProgram computes numbers once and reads them in many ways.
func cachedProgram(n int64, computed *atomic.Int64, o outputs, failing *atomic.Int64) func(*Environment) error {
	return func(env *Environment) error {
		s := counted(numbers(env, n, "numbers"), computed, "compute").Cache()
		shown(s.Map(func(v int64) int64 { return v + 1 }).DataStream).SinkTo(o.sink("more"))
		shown(s.Filter(func(v int64) bool { return v%2 == 0 }).DataStream).SinkTo(o.sink("even"))
		shown(s.KeyBy(func(v int64) int64 { return v % 7 }).Reduce(func(a, b int64) int64 { return a + b }).DataStream).SinkTo(o.sink("last: sums"))
		shown(s.Rebalance().TryMap(func(v int64) (int64, error) {
			if failing != nil && failing.Add(1) == n/2 {
				return v, errors.New("told to fail")
			}
			return v, nil
		}).KeyBy(func(int64) bool { return true }).Reduce(func(a, b int64) int64 { return a + b }).DataStream).SinkTo(o.sink("last: sum"))
		return nil
	}
}

// What is cached is computed once, in both modes, whoever reads it; and the results are those without it.
func TestCacheIsComputedOnce(t *testing.T) {
	const n = 2000
	want := map[string][]string{}
	for _, mode := range []string{"STREAMING", "BATCH"} {
		for _, chaining := range []string{"true", "false"} {
			var computed atomic.Int64
			o := outputs{}
			conf := map[string]string{"execution.runtime-mode": mode, "parallelism.default": "2", "pipeline.operator-chaining.enabled": chaining}
			if err := runJob(t, conf, cachedProgram(n, &computed, o, nil)); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			if computed.Load() != n {
				t.Errorf("%s: %d records computed of %d", mode, computed.Load(), n)
			}
			for name, c := range o {
				if name == "last: sums" || name == "last: sum" { // in STREAMING the totals are the greatest of the updates
					continue
				}
				got := sorted(c)
				if want[name] == nil {
					want[name] = got
				}
				if len(got) == 0 || !slices.Equal(got, want[name]) {
					t.Errorf("%s: %s: %d results: %s", mode, name, len(got), difference(got, want[name]))
				}
			}
			if got := sorted(o["last: sum"]); mode == "BATCH" && !slices.Equal(got, []string{fmt.Sprint(n * (n - 1) / 2)}) {
				t.Errorf("the sum of all is %v", got)
			}
		}
	}
}

// A reader that fails does not make what is cached computed again: not even one that would be chained to it.
func TestCacheOutlivesItsReaders(t *testing.T) {
	const n = 2000
	var computed, tried atomic.Int64
	plain := &committed{}
	j := startBatch(t, 2, config.Configuration{"parallelism.default": "2"}, func(env *Environment) error {
		s := counted(numbers(env, n, "numbers"), &computed, "compute").Cache()
		s.TryMap(func(v int64) (int64, error) {
			if tried.Add(1) == n/2 {
				return v, errors.New("told to fail")
			}
			return v, nil
		}).SinkTo(plain)
		return nil
	})
	j.finish()
	if computed.Load() != n || tried.Load() <= n {
		t.Errorf("%d records computed and %d read, want %d and more", computed.Load(), tried.Load(), n)
	}
	if got := plain.all(); len(got) != n {
		t.Errorf("%d records committed, want %d", len(got), n)
	}
}

// When a worker dies its part of what is cached is computed again, and its readers go on; when all have finished nothing of it is left.
func TestCacheIsComputedAgainWhenItsWorkerDies(t *testing.T) {
	const n = 2000
	var computed atomic.Int64
	g := newGate()
	out := &committed{}
	j := startBatch(t, 2, config.Configuration{"parallelism.default": "2"}, func(env *Environment) error {
		s := counted(numbers(env, n, "numbers"), &computed, "compute").Cache()
		s.Process(func() ProcessFunction[int64, int64] { return &firstWaits{g: g} }).SinkTo(out)
		s.SinkTo(&collect[int64]{})
		return nil
	})
	<-g.reached
	j.kill(j.taskManagers("compute")[0])
	close(g.open)
	j.finish()
	if computed.Load() != 2*n {
		t.Errorf("%d records computed, want %d twice", computed.Load(), n)
	}
	if got := out.all(); len(got) != n {
		t.Errorf("%d records committed, want %d", len(got), n)
	}
}

// What reads one keyed stream shares one partition, on which each key is at one subtask for all of them; another keyed stream, though its key
// function may be the same, and readers of another parallelism do not.
func TestKeyedReadersShareACache(t *testing.T) {
	const n = 2000
	var computed atomic.Int64
	var all map[string][]string
	for _, mode := range []string{"STREAMING", "BATCH"} {
		o := outputs{}
		build := func(env *Environment) error {
			k := counted(numbers(env, n, "numbers"), &computed, "compute").Cache().KeyBy(func(v int64) int64 { return v % 7 })
			shown(k.MaxBy(func(v int64) int64 { return v }).DataStream).SinkTo(o.sink("max"))
			shown(k.MinBy(func(v int64) int64 { return v }).DataStream).SinkTo(o.sink("min"))
			shown(k.MinBy(func(v int64) int64 { return -v }).SetParallelism(1).DataStream).SinkTo(o.sink("one"))
			return nil
		}
		p, err := program("job", build, config.Configuration{"execution.runtime-mode": mode, "parallelism.default": "3"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Graph.Vertices {
			v, partitions := &p.Graph.Vertices[i], map[int]bool{}
			for i := range v.Outputs {
				partitions[v.Partition(i)] = true
			}
			if want := map[string]int{"STREAMING": 3, "BATCH": 2}[mode]; strings.HasSuffix(v.Name, "Cache") && (len(v.Outputs) != 3 || len(partitions) != want) {
				t.Errorf("%s: %d partitions for %d outputs, want %d", mode, len(partitions), len(v.Outputs), want)
			}
		}
		if err := runJob(t, map[string]string{"execution.runtime-mode": mode, "parallelism.default": "3"}, build); err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for name, c := range o { // in STREAMING each update is emitted; the last of a key is what BATCH emits
			got[name] = sorted(c)
		}
		if all == nil {
			all = got
			continue
		}
		for name, vs := range got {
			if len(vs) != 7 {
				t.Errorf("%s: %d results: %v", name, len(vs), vs)
			}
			for _, v := range vs {
				if !slices.Contains(all[name], v) {
					t.Errorf("%s: %s is not among the results in STREAMING", name, v)
				}
			}
		}
	}
}

// Readers that take the records as they are share one partition; a cached stream is chained to what computes it, and nothing is to it.
func TestPlanOfACache(t *testing.T) {
	var computed atomic.Int64
	p, err := program("job", cachedProgram(10, &computed, outputs{}, nil), config.Configuration{"execution.runtime-mode": "BATCH"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var cache *graph.Vertex
	for i := range p.Graph.Vertices {
		if v := &p.Graph.Vertices[i]; strings.HasSuffix(v.Name, "compute -> Cache") {
			cache = v
		}
	}
	if cache == nil || len(cache.Outputs) != 4 {
		t.Fatalf("%+v", p.Graph.Vertices)
	}
	partitions := map[int]bool{}
	for i := range cache.Outputs {
		partitions[cache.Partition(i)] = true
	}
	if len(partitions) != 3 { // map and filter, hash, rebalance
		t.Errorf("outputs %+v: %d partitions", cache.Outputs, len(partitions))
	}
}
