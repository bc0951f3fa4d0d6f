package worker_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/worker"
)

// A task that finished while its consumers were not there leaves its partition to them. It goes with the next attempt of the job, and a
// worker that lives through many attempts holds those of the last one only.
func TestFinishedPartitionsGoWithTheirAttempt(t *testing.T) {
	const subpartitions = 3
	w := newWorld(10)
	p := program(t, w, subpartitions, -1)
	lower, upper := rpc.Pipe[*pb.WorkerUp, *pb.WorkerDown]()
	var exchange *network.Environment
	observed := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- worker.RunObserved(t.Context(), lower, rpc.ProcessConfig{JobID: graph.NewID().String(), Host: "127.0.0.1", Dirs: []string{t.TempDir()}}, p, &fs.Registry{}, zerolog.Nop(),
			func(e *network.Environment) { exchange = e; close(observed) })
	}()
	<-observed
	source := p.Graph.Vertices[0]
	finish := func(attempt int) {
		id := graph.ExecutionID{Vertex: source.ID, Attempt: attempt}.String()
		send := func(m *pb.WorkerDown) {
			if err := upper.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		send(&pb.WorkerDown{Msg: &pb.WorkerDown_Deploy{Deploy: &pb.Deploy{Tasks: []*pb.TaskDeployment{{ExecutionId: id, VertexId: source.ID.String(), Attempt: int32(attempt),
			Parallelism: 1, MaxParallelism: 128, Outputs: []*pb.PartitionDeployment{{Subpartitions: subpartitions, ConsumerMaxParallelism: 128}}}}}}})
		send(&pb.WorkerDown{Msg: &pb.WorkerDown_Finish{Finish: &pb.FinishTasks{ExecutionIds: []string{id}}}})
		for {
			m, err := upper.Recv()
			if err != nil {
				t.Fatal(err)
			}
			s := m.GetTaskState()
			if s.GetState() == pb.TaskState_FAILED {
				t.Fatal(s)
			}
			if s.GetState() == pb.TaskState_FINISHED && s.GetExecutionId() == id {
				return
			}
		}
	}
	for attempt := range 50 {
		finish(attempt)
		if n := exchange.Partitions(); n != 1 {
			t.Fatalf("%d partitions after attempt %d, want that of the attempt", n, attempt)
		}
	}
	upper.Close(nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-upper.Done()
	<-lower.Done()
}

// A worker that lives through hundreds of restarts holds what it held after the first ones: partitions, goroutines, local folders.
func TestRestartsLeaveNothing(t *testing.T) {
	restarts := 500
	if testing.Short() {
		restarts = 100
	}
	const parallelism = 3
	dir := t.TempDir()
	w := newWorld(20)
	var mu sync.Mutex
	var exchanges []*network.Environment
	c := startCluster(t, dir, program(t, w, parallelism, -1), parallelism, 2, nil, func(c *cluster) {
		c.log = zerolog.Nop()
		c.exchange = func(e *network.Environment) {
			mu.Lock()
			defer mu.Unlock()
			exchanges = append(exchanges, e)
		}
	})
	c.running()
	c.count(w, 1)
	c.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
	restart := func(n int) {
		w.fail.Store(true)
		w.round()
		c.until(fmt.Sprintf("restart %d", n), func() bool { return c.details().Restarts == n })
		c.running()
	}
	held := func() (partitions, folders int) {
		mu.Lock()
		for _, e := range exchanges {
			partitions += e.Partitions()
		}
		mu.Unlock()
		all, err := filepath.Glob(filepath.Join(dir, "local", "*", "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return partitions, len(all)
	}
	for n := 1; n <= 20; n++ {
		restart(n)
	}
	_, folders := held()
	goroutines := runtime.NumGoroutine()
	for n := 21; n <= restarts; n++ {
		restart(n)
	}
	c.until(fmt.Sprintf("one partition, at most %d folders and about %d goroutines", folders, goroutines), func() bool {
		p, f := held()
		return p == 1 && f <= folders && runtime.NumGoroutine() <= goroutines+10
	})
	if len(exchanges) != 2 {
		t.Errorf("%d workers, want the first two", len(exchanges))
	}
	c.count(w, w.rounds.Load()+1) // nothing was lost on the way
}

// Records do not wait for the buffer timeout at a task that has nothing else to do, neither at the source nor behind it.
func TestIdleTasksHoldNothingBack(t *testing.T) {
	w := newWorld(100)
	p := program(t, w, 2, -1)
	c := startCluster(t, t.TempDir(), p, 2, 2, config.Configuration{config.BufferTimeout.Key: "1 h"})
	c.running()
	for n := range int64(20) {
		c.count(w, n+1)
	}
}
