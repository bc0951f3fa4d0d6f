package worker_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
)

// Under backpressure the barriers of several checkpoints wait between the tasks. Each checkpoint holds each record once and in the order of
// its key, whichever a failure, a savepoint beside them or the next job goes on from, and whatever became of the others.
func TestSeveralCheckpointsUnderWay(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			dir := t.TempDir()
			conf := config.Configuration{config.StateBackend.Key: backend, config.CheckpointsAtOnce.Key: "4", config.CheckpointInterval.Key: "15 ms",
				config.CheckpointTimeout.Key: "2 min", config.TolerableFailures.Key: "100000", config.MemoryThreshold.Key: "0 b",
				config.NetworkBufferSize.Key: "512 b", config.BufferTimeout.Key: "1 ms"}
			if rnd.IntN(2) == 0 {
				conf[config.FileMerging.Key] = "true"
			}
			var r *river
			p := [5]int{1, 1, 1, 1, 1}
			for round := range 3 {
				for i := range p {
					p[i] = 1 + rnd.IntN(3)
				}
				last := r
				r = newRiver(40, 600, time.Millisecond)
				if last != nil {
					r.restored, r.seen = true, last.seen
				}
				c := startCluster(t, dir, riverProgram(t, r, p), 3, 1+rnd.IntN(2), conf)
				stats := func() coordinator.Stats {
					if d := c.details(); d.Checkpoints != nil {
						return *d.Checkpoints
					}
					return coordinator.Stats{}
				}
				c.running()
				c.until("several checkpoints under way", func() bool {
					open := 0
					s := stats()
					for _, d := range s.History {
						if d.Status == coordinator.InProgress {
							open++
						}
					}
					return open > 1 && open == s.Counts.InProgress
				})
				c.until("a checkpoint", func() bool { return stats().Counts.Completed > 1 })
				r.restored = true
				r.fail.Store(true)
				c.until("a restart", func() bool { return c.details().Restarts == 1 })
				c.running()
				c.until("several checkpoints under way", func() bool { return stats().Counts.InProgress > 1 })
				path := c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + dir})
				r.check(t)
				if round == 2 {
					r.finish(t, c)
				}
				c.cancel()
				if round == 1 {
					path = stats().Latest.Completed.Dir
				}
				conf[config.SavepointPath.Key] = path
			}
		})
	}
}
