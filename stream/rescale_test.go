package stream

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/serde"
)

const (
	rescaleKeys   = 37
	rescaleBucket = 500 // ms of event time
)

// tally emits each record with its number among those of its key, and, by timers, how many records each interval had.
type tally struct {
	count   ValueState[int64]
	pending MapState[int64, int64]
}

func (f *tally) Open(rt *RuntimeContext[int64]) (err error) {
	if f.count, err = rt.ValueState[int64]("count"); err != nil {
		return err
	}
	f.pending, err = rt.MapState[int64, int64]("pending")
	return err
}

func (f *tally) ProcessElement(ctx *KeyedContext[int64], n int64, out *Collector[string]) error {
	c, _, err := f.count.Value()
	if err != nil {
		return err
	}
	if err := f.count.Update(c + 1); err != nil {
		return err
	}
	out.Collect(fmt.Sprintf("record %d %d", ctx.Key(), c+1))
	bucket := n / rescaleBucket
	if err := ctx.RegisterEventTimeTimer(time.UnixMilli((bucket + 1) * rescaleBucket)); err != nil {
		return err
	}
	p, _, err := f.pending.Get(bucket)
	if err != nil {
		return err
	}
	return f.pending.Put(bucket, p+1)
}

func (f *tally) OnTimer(ctx *KeyedContext[int64], t Timer, out *Collector[string]) error {
	bucket := t.At.UnixMilli()/rescaleBucket - 1
	p, _, err := f.pending.Get(bucket)
	if err != nil {
		return err
	}
	out.Collect(fmt.Sprintf("bucket %d %d %d", ctx.Key(), bucket, p))
	return f.pending.Remove(bucket)
}

func (f *tally) Close() error { return nil }

// tallied is the output for records 0 to n-1.
func tallied(n int64) (want []string) {
	counts, buckets := map[int64]int64{}, map[[2]int64]int64{}
	for i := range n {
		k := i % rescaleKeys
		counts[k]++
		want = append(want, fmt.Sprintf("record %d %d", k, counts[k]))
		buckets[[2]int64{k, i / rescaleBucket}]++
	}
	for b, c := range buckets {
		want = append(want, fmt.Sprintf("bucket %d %d %d", b[0], b[1], c))
	}
	slices.Sort(want)
	return want
}

// require asks for a parallelism of all vertices, and waits until the job runs so, or has ended.
func (j *batchJob) require(lower, upper int) {
	j.t.Helper()
	d := j.details()
	r := scheduler.Requirements{}
	for _, v := range d.Vertices {
		r[v.Vertex.ID] = scheduler.Bounds{Lower: lower, Upper: upper}
	}
	if err := j.c.Dispatcher.Require(j.t.Context(), j.c.JobID, r); err != nil {
		j.t.Fatal(err)
	}
	j.runsWith(upper)
}

// runsWith waits until all tasks run, p of each vertex.
func (j *batchJob) runsWith(p int) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		d := j.details()
		running := d.State == scheduler.JobRunning && len(d.Vertices) > 0
		for _, v := range d.Vertices {
			running = running && len(v.Tasks) == p
			for _, t := range v.Tasks {
				running = running && t.State == scheduler.TaskRunning
			}
		}
		if running {
			return
		}
		if d.State.Terminal() {
			j.t.Fatalf("the job is %s: %+v", d.State, d.Root)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			j.t.Fatalf("the job does not run with %d: %s, %+v", p, d.State, d)
		}
	}
}

// A job that changes its parallelism while records flow writes each result once: keyed state and timers go to the subtasks that the keys go
// to, splits to the readers there are, and what the sink had prepared is committed, on either backend.
func TestRescaleIsExactlyOnce(t *testing.T) {
	for name, c := range map[string]struct{ backend, chaining string }{"hashmap": {"hashmap", "true"}, "pebble": {"pebble", "true"}, "forward edges": {"hashmap", "false"}} {
		t.Run(name, func(t *testing.T) {
			const n = 40_000
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			j := startBatch(t, 0, config.Configuration{"execution.runtime-mode": "STREAMING", "state.backend.type": c.backend, "pipeline.operator-chaining.enabled": c.chaining, "parallelism.default": "2",
				"execution.checkpointing.interval": "150 ms", "execution.checkpointing.dir": "file://" + filepath.Join(dir, "ckp"), "heartbeat.interval": "50 ms",
				"taskmanager.numberOfTaskSlots": "2", "resourcemanager.taskmanager-timeout": "100 ms"},
				func(env *Environment) error {
					src := datagen.Source(func(i int64) int64 { return i }, datagen.Count(n), datagen.Splits(6), datagen.RatePerSecond(10_000))
					env.FromSource(src, MonotonousTimestamps(func(v int64) time.Time { return time.UnixMilli(v) }), "numbers").UID("numbers").
						KeyBy(func(v int64) int64 { return v % rescaleKeys }).
						Process(func() KeyedProcessFunction[int64, int64, string] { return &tally{} }).UID("tally").
						Rebalance().SinkTo(file.Sink(serde.String(), file.Directory(out), file.RollSize(20_000))).UID("out")
					return nil
				})
			j.runsWith(2)
			for _, p := range []int{4, 1, 3} {
				j.require(p, p)
			}
			if r := j.wait(); r.State != scheduler.JobFinished {
				t.Fatalf("%s: %+v", r.State, r.Failure)
			}
			if d := j.details(); d.Rescales != 3 || d.Restarts != 0 {
				t.Errorf("%d changes of the parallelism, %d restarts", d.Rescales, d.Restarts)
			}
			if got, want := parts(t, out), tallied(n); !slices.Equal(got, want) {
				t.Errorf("%d lines, want %d: %s", len(got), len(want), differ(got, want))
			}
		})
	}
}

// differ names the first lines that are not the same.
func differ(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("line %d is %q, want %q", i, got[i], want[i])
		}
	}
	return "one is the beginning of the other"
}
