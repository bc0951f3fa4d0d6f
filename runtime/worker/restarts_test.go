package worker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
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

// lone is a worker whose TaskManager is the test.
type lone struct {
	t        *testing.T
	p        *graph.Program
	link     rpc.WorkerLink
	exchange *network.Environment
	address  string // of its exchange
}

func startLone(t *testing.T, p *graph.Program, cfg rpc.ProcessConfig) *lone {
	t.Helper()
	lower, upper := rpc.Pipe[*pb.WorkerUp, *pb.WorkerDown]()
	l := &lone{t: t, p: p, link: upper}
	cfg.Host, cfg.Dirs = "127.0.0.1", []string{t.TempDir()}
	observed := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- worker.RunObserved(context.Background(), lower, cfg, p, &fs.Registry{}, zerolog.Nop(), func(e *network.Environment) { l.exchange = e; close(observed) })
	}()
	<-observed
	t.Cleanup(func() {
		upper.Close(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-upper.Done()
		<-lower.Done()
	})
	m, err := upper.Recv()
	if err != nil || m.GetHello() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	l.address = m.GetHello().GetDataAddress()
	return l
}

// finish deploys an attempt of the source alone, and lets it end.
func (l *lone) finish(attempt int) network.PartitionID {
	l.t.Helper()
	source := &l.p.Graph.Vertices[0]
	e := graph.ExecutionID{Vertex: source.ID, Attempt: attempt}
	id := e.String()
	for _, m := range []*pb.WorkerDown{
		{Msg: &pb.WorkerDown_Deploy{Deploy: &pb.Deploy{OldestAttempt: int32(attempt), Tasks: []*pb.TaskDeployment{{ExecutionId: id, VertexId: source.ID.String(), Attempt: int32(attempt),
			Parallelism: 1, MaxParallelism: 128, Outputs: []*pb.PartitionDeployment{{Subpartitions: int32(l.p.Graph.Vertices[1].Parallelism), ConsumerMaxParallelism: 128}}}}}}},
		{Msg: &pb.WorkerDown_Trigger{Trigger: &pb.TriggerCheckpoint{CheckpointId: 1, ExecutionIds: []string{id}, Suspend: true, Drain: true}}},
		{Msg: &pb.WorkerDown_Finish{Finish: &pb.FinishTasks{ExecutionIds: []string{id}}}},
	} {
		if err := l.link.Send(m); err != nil {
			l.t.Fatal(err)
		}
	}
	for {
		m, err := l.link.Recv()
		if err != nil {
			l.t.Fatal(err)
		}
		s := m.GetTaskState()
		if s.GetState() == pb.TaskState_FAILED {
			l.t.Fatal(s)
		}
		if s.GetState() == pb.TaskState_FINISHED && s.GetExecutionId() == id {
			return network.PartitionID{Producer: e}
		}
	}
}

// A task that finished while its consumers were not there leaves its partition to them. It goes with the next attempt of the job, and a
// worker that lives through many attempts holds those of the last one only.
func TestFinishedPartitionsGoWithTheirAttempt(t *testing.T) {
	l := startLone(t, program(t, newWorld(10), 3, -1), rpc.ProcessConfig{JobID: graph.NewID().String()})
	for attempt := range 50 {
		l.finish(attempt)
		if n := l.exchange.Partitions(); n != 1 {
			t.Fatalf("%d partitions after attempt %d, want that of the attempt", n, attempt)
		}
	}
}

// Who knows a job's id, but not its secret, gets none of its records.
func TestStrangersAreRefused(t *testing.T) {
	job, secret := graph.NewID().String(), []byte("a secret of the job, 32 bytes....")
	p := program(t, newWorld(10), 1, -1)
	read := func(address string, from network.PartitionID, token []byte) error {
		env := network.New(network.Config{Token: token}, zerolog.Nop())
		defer func() {
			if err := env.Close(); err != nil {
				t.Error(err)
			}
		}()
		wake := make(chan struct{}, 1)
		g, err := env.NewGate(t.Context(), []network.Source{{Partition: from, Address: address}}, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		for {
			item, ok, err := g.Poll()
			if err != nil || ok && item.Data == nil && item.Event.Kind == network.EndOfPartition {
				return err
			}
			if !ok {
				<-wake
				continue
			}
			g.Release(item)
		}
	}
	for name, given := range map[string][]byte{"secret": secret, "no secret": nil} {
		l := startLone(t, p, rpc.ProcessConfig{JobID: job, DataSecret: given})
		from := l.finish(0)
		for _, token := range [][]byte{nil, []byte(job), secret[:16], append(secret, 'x')} {
			var c *network.ConnectionError
			if err := read(l.address, from, token); !errors.As(err, &c) || c.Kind != network.ConnectFailed || !strings.Contains(err.Error(), "secret") {
				t.Errorf("worker with %s, stranger with token %q: %v", name, token, err)
			}
		}
		if err := read(l.address, from, secret); (err == nil) != (given != nil) {
			t.Errorf("worker with %s, peer with the secret: %v", name, err)
		}
	}
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
