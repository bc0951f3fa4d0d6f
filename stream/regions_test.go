package stream

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/serde"
)

// attempts are those of the tasks of one side, without doubles.
func (j *batchJob) attempts(side string) (all []int) {
	for _, v := range j.details().Vertices {
		for _, x := range v.Tasks {
			if strings.Contains(v.Vertex.Name, side) {
				all = append(all, x.ID.Attempt)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Two pipelines of one job that are not connected: one fails, by its code and with its worker, and restarts from the latest checkpoint; the
// tasks of the other one run on. Each result of both is written once.
func TestPipelinesThatAreNotConnectedRestartAlone(t *testing.T) {
	for name, c := range map[string]map[string]string{
		"hashmap": {}, "pebble": {"state.backend.type": "pebble"}, "adaptive": {"jobmanager.scheduler": "adaptive"},
		"unaligned": {"execution.checkpointing.unaligned.enabled": "true"}, "full": {"jobmanager.execution.failover-strategy": "full"},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 30_000
			dir := t.TempDir()
			var failures atomic.Int64
			conf := config.Configuration{"execution.runtime-mode": "STREAMING", "parallelism.default": "2", "execution.checkpointing.interval": "50 ms",
				"execution.checkpointing.dir": "file://" + filepath.Join(dir, "ckp"), "taskmanager.numberOfTaskSlots": "2", "heartbeat.interval": "50 ms"}
			for k, v := range c {
				conf[k] = v
			}
			j := startBatch(t, 0, conf, func(env *Environment) error {
				for _, side := range []string{"left", "right"} {
					src := datagen.Source(func(i int64) int64 { return i }, datagen.Count(n), datagen.Splits(6), datagen.RatePerSecond(10_000))
					env.FromSource(src, MonotonousTimestamps(func(v int64) time.Time { return time.UnixMilli(v) }), side+" numbers").UID(side + "-numbers").SlotSharingGroup(side).
						TryMap(func(v int64) (int64, error) {
							if k := failures.Load(); side == "right" && k < 3 && v >= (k+1)*5000 && failures.CompareAndSwap(k, k+1) {
								return v, fmt.Errorf("on purpose")
							}
							return v, nil
						}).Name(side + " picky").
						KeyBy(func(v int64) int64 { return v % rescaleKeys }).
						Process(func() KeyedProcessFunction[int64, int64, string] { return &tally{} }).Name(side + " tally").UID(side + "-tally").
						Rebalance().SinkTo(file.Sink(serde.String(), file.Directory(filepath.Join(dir, side)), file.RollSize(20_000))).Name(side + " out").UID(side + "-out")
				}
				return nil
			})
			j.runsWith(2)
			for failures.Load() < 3 {
				tick := time.NewTimer(5 * time.Millisecond)
				<-tick.C
			}
			j.runsWith(2)
			j.kill(j.taskManagers("right numbers")[0])
			if r := j.wait(); r.State != scheduler.JobFinished {
				t.Fatalf("%s: %+v", r.State, r.Failure)
			}
			for _, side := range []string{"left", "right"} {
				if got, want := parts(t, filepath.Join(dir, side)), tallied(n); !slices.Equal(got, want) {
					t.Errorf("%s: %d lines, want %d: %s", side, len(got), len(want), differ(got, want))
				}
			}
			d := j.details()
			left, right := j.attempts("left"), j.attempts("right")
			if d.Restarts == 0 || len(right) != 1 || right[0] == 0 { // failures that come together are one restart
				t.Errorf("%d restarts, attempts %v of the side that failed", d.Restarts, right)
			}
			if full := name == "full"; full != slices.Equal(left, right) || !full && !slices.Equal(left, []int{0}) {
				t.Errorf("attempts %v of the side that did not fail, %v of the other", left, right)
			}
			if d.Checkpoints.Counts.Completed == 0 {
				t.Errorf("checkpoints %+v", d.Checkpoints.Counts)
			}
		})
	}
}
