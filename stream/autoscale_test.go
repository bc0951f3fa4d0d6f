package stream

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/blackhole"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// An operator that takes 5 ms for each record, of which 400 come in a second, gets the subtasks that it needs from what its tasks really report: more than
// two, as it would be busy all the time with those, and not many more.
func TestAutoscalerFollowsTheLoadOfARealJob(t *testing.T) {
	j := startBatch(t, 0, config.Configuration{"execution.runtime-mode": "STREAMING", "parallelism.default": "1", "heartbeat.interval": "50 ms",
		"execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": "file://" + t.TempDir(), "taskmanager.numberOfTaskSlots": "8", "execution.buffer-timeout.interval": "10 ms",
		"job.autoscaler.enabled": "true", "job.autoscaler.stabilization.interval": "1 s", "job.autoscaler.metrics.window": "3 s", "job.autoscaler.catch-up.duration": "0",
		"job.autoscaler.vertex.max-parallelism": "8"},
		func(env *Environment) error {
			src := datagen.Source(func(i int64) int64 { return i }, datagen.Count(math.MaxInt64/2), datagen.RatePerSecond(400))
			env.FromSource(src, NoWatermarks[int64](), "numbers").UID("numbers").Rebalance().
				Map(func(v int64) int64 {
					<-time.After(5 * time.Millisecond)
					return v
				}).UID("slow").SinkTo(blackhole.Sink[int64]()).UID("out")
			return nil
		})
	j.runsWith(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	slow := func() int {
		d := j.details()
		if d.State != scheduler.JobRunning && d.State != scheduler.JobRestarting {
			t.Fatalf("the job is %s: %+v", d.State, d.Root)
		}
		return len(d.Vertices[1].Tasks)
	}
	for slow() < 3 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d subtasks; %+v", slow(), j.details().Load)
		}
	}
	if d := j.details(); len(d.Vertices[0].Tasks) != 1 || slow() > 6 || d.Restarts != 0 {
		t.Errorf("source %d, operator %d, %d restarts; %+v", len(d.Vertices[0].Tasks), slow(), d.Restarts, d.Load)
	}
	if err := j.c.Dispatcher.Cancel(j.c.JobID); err != nil {
		t.Fatal(err)
	}
	j.wait()
}
