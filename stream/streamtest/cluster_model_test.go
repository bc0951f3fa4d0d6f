package streamtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// seen is a sink that keeps what it gets, once each: after a failure results come again, but never other ones.
type seen struct {
	mu  sync.Mutex
	got map[string]bool
}

func (s *seen) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[ev], error) {
	return seenWriter{s}, nil
}

type seenWriter struct{ s *seen }

func (w seenWriter) Write(e ev, ts int64) error {
	w.s.mu.Lock()
	w.s.got[fmt.Sprint(e.Key, e.V, "@", ts)] = true
	w.s.mu.Unlock()
	return nil
}
func (seenWriter) Flush(context.Context, bool) error { return nil }
func (seenWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (seenWriter) Close() error                      { return nil }

// steadyKinds are the operators whose results do not depend on the order of records that are not late.
var steadyKinds = []string{"map", "filter", "flatmap", "copies", "split", "cache", "union", "comap", "async", "asyncordered", "tumbling", "sliding", "session", "keepwindow",
	"windowjoin", "cogroup", "intervaljoin", "count"}

// clustered is a drawn program on a cluster, over two generated inputs.
type clustered struct {
	whole
	n       int64
	keys    int64
	rate    float64 // of records in a second
	sinks   []*seen
	mu      sync.Mutex
	records int
	events  map[int]func() error // what happens at which record, once
}

const disorder = 30 // ms that records are out of order by, at most

// record is record n of an input, with its event time.
func (c *clustered) record(input, n int64) (ev, int64) {
	return ev{fmt.Sprint("k", (n*7919+input)%c.keys), n*2 + input}, n*3 + (n*n+input*5)%disorder
}

func (c *clustered) disturb() error {
	c.mu.Lock()
	c.records++
	fn := c.events[c.records]
	delete(c.events, c.records)
	c.mu.Unlock()
	if fn != nil {
		return fn()
	}
	return nil
}

func (c *clustered) build(env *stream.Environment) error {
	var all []stream.DataStream[ev]
	for i := range int64(2) {
		src := datagen.WithTimestamps(func(n int64) (ev, int64) { return c.record(i, n) }, datagen.Count(c.n), datagen.Splits(3), datagen.RatePerSecond(c.rate))
		wm := stream.BoundedOutOfOrderness[ev](disorder*time.Millisecond, nil)
		all = append(all, env.FromSource(src, wm, fmt.Sprint("in", i)).UID(fmt.Sprint("in", i)).
			TryMap(func(e ev) (ev, error) { return e, c.disturb() }).UID(fmt.Sprint("disturbed", i)).DataStream)
	}
	for i, s := range c.graph(all, stream.BroadcastStream[ev]{}) {
		s.SinkTo(c.sinks[i]).UID(fmt.Sprint("out", i))
	}
	return nil
}

// Whole programs of all operators whose results do not depend on order give, on a cluster with its threads, exchanges and checkpoints, what the
// plain interpreter gives: over failures at any record, and when the job is stopped anywhere and goes on at another parallelism from its last
// checkpoint; on both backends, with aligned and unaligned checkpoints.
func TestProgramsOnAClusterAgainstModel(t *testing.T) {
	var jobs, restored, failures atomic.Int64
	rapid.Check(t, func(rt *rapid.T) { checkCluster(t, rt, &jobs, &restored, &failures) })
	t.Logf("%d jobs, %d of them from a checkpoint, %d failures", jobs.Load(), restored.Load(), failures.Load())
}

func checkCluster(t *testing.T, rt *rapid.T, jobs, restored, failures *atomic.Int64) {
	c := &clustered{whole: whole{ops: drawProgram(rt, steadyKinds), answers: map[int]bool{}}, n: rapid.Int64Range(20, 300).Draw(rt, "records"),
		keys: rapid.Int64Range(1, 20).Draw(rt, "keys"), rate: rapid.SampledFrom([]float64{1000, 1000, 2000, 1e6}).Draw(rt, "rate"), events: map[int]func() error{}}
	for i := range c.ops {
		c.ops[i].Late = 0
	}
	m := newModel(c.ops)
	for range m.streams {
		c.sinks = append(c.sinks, &seen{got: map[string]bool{}})
	}
	for i := range 2 { // nothing is late, nor as near to it that two sessions which touch could be closed one by one
		for n := range c.n {
			e, ts := c.record(int64(i), n)
			m.push(i, e, ts)
		}
	}
	m.watermark(0, math.MaxInt64)
	m.watermark(1, math.MaxInt64)

	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	conf := map[string]string{"execution.checkpointing.interval": "10 ms", "execution.checkpointing.dir": "file://" + dir,
		"state.backend.type":    rapid.SampledFrom([]string{"hashmap", "hashmap", "pebble"}).Draw(rt, "backend"),
		"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "10", "restart-strategy.fixed-delay.delay": "1 ms",
		"execution.checkpointing.unaligned.enabled":          rapid.SampledFrom([]string{"true", "false"}).Draw(rt, "unaligned"),
		"execution.checkpointing.unaligned.forced":           "true", // its partition function depends on the record alone
		"execution.checkpointing.aligned-checkpoint-timeout": rapid.SampledFrom([]string{"0 ms", "3 ms"}).Draw(rt, "aligned timeout"),
		"taskmanager.memory.segment-size":                    rapid.SampledFrom([]string{"64", "4 kb"}).Draw(rt, "segment"),
		"taskmanager.numberOfTaskSlots":                      rapid.SampledFrom([]string{"1", "4"}).Draw(rt, "slots"),
		"execution.buffer-timeout.interval":                  rapid.SampledFrom([]string{"0 ms", "5 ms"}).Draw(rt, "buffer timeout")}
	total := int(2 * c.n)
	for range rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(rt, "failures") {
		c.events[rapid.IntRange(total/4, 2*total).Draw(rt, "failure at")] = func() error { failures.Add(1); return errors.New("on purpose") }
	}
	ran := ""
	stops := rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(rt, "stops")
	if conf["execution.runtime-mode"] = rapid.SampledFrom([]string{"streaming", "streaming", "streaming", "batch"}).Draw(rt, "mode"); conf["execution.runtime-mode"] == "batch" {
		stops = 0
	}
	for run := range stops + 1 {
		before := conf["parallelism.default"]
		conf["parallelism.default"] = fmt.Sprint(rapid.IntRange(1, 4).Draw(rt, "parallelism"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		if run > 0 {
			if all, _ := filepath.Glob(dir + "/*/chk-*/_metadata"); len(all) > 0 {
				latest := slices.MaxFunc(all, func(a, b string) int { return modified(a).Compare(modified(b)) })
				conf["execution.state-recovery.path"] = "file://" + filepath.Dir(latest)
				restored.Add(1)
			}
		}
		var stopped atomic.Bool
		if at := rapid.IntRange(1, total*3/4).Draw(rt, "stop at"); run < stops {
			c.events[c.records+at] = func() error { stopped.Store(true); cancel(); return nil }
		}
		jobs.Add(1)
		ran += fmt.Sprintf("\nrun %d: %v", run, conf)
		err := stream.RunLocal(ctx, "model", c.build, stream.LocalOptions{Config: conf, Logger: zerolog.Nop()})
		if err != nil && strings.Contains(err.Error(), "the job has no exchange between the two") {
			// At this parallelism operators are chained that were not: records under way between them have no place. The former one has.
			conf["parallelism.default"] = before
			ran += " is refused, so parallelism " + before
			err = stream.RunLocal(ctx, "model", c.build, stream.LocalOptions{Config: conf, Logger: zerolog.Nop()})
		}
		cancel()
		if err != nil {
			rt.Fatalf("%v%s\n%v", c.ops, ran, err)
		}
		if !stopped.Load() {
			break
		}
	}
	if t.Context().Err() != nil {
		rt.Fatal(t.Context().Err())
	}
	wrong := ""
	for i, s := range m.streams {
		want := map[string]bool{}
		for _, v := range s.got {
			want[v] = true
		}
		var missing, more []string
		for v := range want {
			if !c.sinks[i].got[v] {
				missing = append(missing, v)
			}
		}
		for v := range c.sinks[i].got {
			if !want[v] {
				more = append(more, v)
			}
		}
		slices.Sort(missing)
		slices.Sort(more)
		if len(missing)+len(more) > 0 {
			wrong += fmt.Sprintf("\nstream %d (%s): missing %q, more %q", i, s.name, missing, more)
		}
	}
	if wrong != "" {
		rt.Fatalf("%d records of %d keys through %v%s%s", c.n, c.keys, c.ops, ran, wrong)
	}
}

func modified(path string) time.Time {
	s, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return s.ModTime()
}
