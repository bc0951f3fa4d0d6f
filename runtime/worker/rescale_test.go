package worker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// A job whose max parallelism nobody set goes on at another parallelism, also where the number that would be derived is another one
// (from 86 on): the state's number holds for the senders, the tasks and what they store, through failures and application attempts.
func TestRestoreAtAnotherParallelism(t *testing.T) {
	const keys = 2000
	for _, c := range []struct {
		from, to int
		backend  string
		retained bool // a retained checkpoint, else a savepoint
	}{{1, 100, "hashmap", false}, {100, 3, "hashmap", true}, {2, 128, "hashmap", true}, {90, 2, "pebble", false}} {
		t.Run(fmt.Sprintf("%d to %d, %s", c.from, c.to, c.backend), func(t *testing.T) {
			dir := t.TempDir()
			conf := config.Configuration{"state.backend.type": c.backend}
			w := newWorld(keys)
			first := startCluster(t, dir, program(t, w, c.from, -1), c.from, 2, conf)
			first.running()
			first.count(w, 1)
			path := ""
			if c.retained {
				path = first.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
			} else {
				path = first.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + filepath.Join(dir, "sp")})
			}
			limit := first.details().Vertices[1].Vertex.MaxParallelism
			first.cancel()

			w = newWorld(keys)
			w.rounds.Store(1)
			conf[config.SavepointPath.Key] = path
			second := startCluster(t, dir, program(t, w, c.to, -1), c.to, 2, conf)
			second.running()
			if got := second.details().Vertices[1].Vertex.MaxParallelism; got != limit {
				t.Fatalf("the restored job has max parallelism %d, the state %d", got, limit)
			}
			second.count(w, 2)
			w.fail.Store(true) // before a checkpoint of its own: back to where it started from
			w.round()
			second.until("a restart", func() bool { return second.details().Restarts == 1 })
			second.until("every key to be counted 3 times", func() bool { return w.counted(3) })
			second.running() // a subtask without keys may still be starting
			second.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
			w.fail.Store(true)
			w.round()
			second.until("a restart", func() bool { return second.details().Restarts == 2 })
			second.until("every key to be counted 4 times", func() bool { return w.counted(4) })
			second.nextAttempt()
			second.running()
			second.count(w, 5)
			if got := second.details().Vertices[1].Vertex.MaxParallelism; got != limit {
				t.Fatalf("the recovered job has max parallelism %d, the state %d", got, limit)
			}
			second.cancel()
		})
	}
}

func TestRestoreAboveTheMaxParallelismOfTheStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(10)
	first := startCluster(t, dir, program(t, w, 1, -1), 1, 1, nil)
	first.running()
	first.count(w, 1)
	path := first.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + filepath.Join(dir, "sp")})
	first.cancel()
	for _, c := range []struct {
		p, limit int
		says     string
	}{{129, -1, "parallelism 129, above the max parallelism of its state, 128; lower the parallelism"}, {1, 256, "has max parallelism 256 in the job, its keyed state was stored with 128; set it to 128"}} {
		second := startCluster(t, dir, program(t, newWorld(10), c.p, c.limit), c.p, 1, config.Configuration{config.SavepointPath.Key: path})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := second.disp.Wait(ctx, second.job)
		cancel()
		if err != nil || r.State != scheduler.JobFailed || !strings.Contains(r.Failure.Message, c.says) || strings.Contains(r.Failure.Message, "\n") {
			t.Errorf("parallelism %d: %+v %+v, %v", c.p, r.State, r.Failure, err)
		}
	}
}
