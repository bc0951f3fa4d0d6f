package stream

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/taskmanager"
	"github.com/thalweg/thalweg/runtime/worker"
)

// masters are application attempts, one after another, over TaskManagers that live on.
type masters struct {
	t    *testing.T
	dir  string
	p    *graph.Program
	reg  *fs.Registry
	log  zerolog.Logger
	job  graph.JobID
	rm   *resourcemanager.Manager
	disp *dispatcher.Dispatcher

	mu       sync.Mutex
	leader   *resourcemanager.Manager
	epoch    int64
	ends     map[string]context.CancelFunc // of TaskManagers
	accepted sync.WaitGroup
}

func startMasters(t *testing.T, taskManagers int, build func(*Environment) error) *masters {
	t.Helper()
	p, err := twice(t.Name(), build, config.Configuration{"execution.runtime-mode": "BATCH", "parallelism.default": "2", "heartbeat.interval": "50 ms"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &masters{t: t, dir: t.TempDir(), p: p, log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel), ends: map[string]context.CancelFunc{}}
	if m.reg, err = fileSystems(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range taskManagers {
		id := fmt.Sprintf("container_%d", i+1)
		tm, err := taskmanager.New(taskmanager.Options{ID: id, Host: "localhost", Slots: 1, MemoryBytes: 1 << 30, Cores: 1, Dirs: []string{filepath.Join(m.dir, "local")},
			LookupInterval: 2 * time.Millisecond, Logger: m.log, Leader: m.lookUp, Connect: m.connect,
			Launcher: taskmanager.InProcess{Run: func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
				return worker.Run(ctx, link, cfg, p, m.reg, m.log)
			}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		m.ends[id] = cancel
		wg.Go(func() {
			if err := tm.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		for _, end := range m.ends {
			end()
		}
		wg.Wait()
		m.accepted.Wait()
	})
	t.Cleanup(m.die)
	m.attempt()
	if m.job, err = m.disp.Submit(t.Context(), dispatcher.Submission{Graph: p.Graph}); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *masters) lookUp(context.Context) (taskmanager.Leader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader == nil {
		return taskmanager.Leader{}, errors.New("no leader")
	}
	return taskmanager.Leader{Address: "am", Epoch: m.epoch}, nil
}

func (m *masters) connect(context.Context, taskmanager.Leader) (taskmanager.Connection, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader == nil {
		return taskmanager.Connection{}, errors.New("connection refused")
	}
	low, high := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
	rm := m.leader
	m.accepted.Go(func() { rm.Accept(high, "pipe") })
	return taskmanager.Connection{Link: low}, nil
}

// attempt starts an application attempt.
func (m *masters) attempt() {
	m.t.Helper()
	store := ha.NewFileStore(local.New(), filepath.Join(m.dir, "ha"), m.log)
	epoch, err := store.AcquireEpoch(m.t.Context(), "test")
	if err != nil {
		m.t.Fatal(err)
	}
	m.rm = resourcemanager.New(resourcemanager.Options{Config: m.p.Graph.Config, Driver: resourcemanager.Standalone{}, Epoch: epoch, Spec: resourcemanager.WorkerSpec{Slots: 1},
		Logger: m.log, OnFatal: func(err error) { m.t.Error(err) }})
	if err := m.rm.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.disp = dispatcher.New(dispatcher.Options{Config: m.p.Graph.Config, Resources: m.rm, Store: store, FS: m.reg, Epoch: epoch, Logger: m.log,
		Launcher: dispatcher.InProcess{Run: func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error {
			return worker.RunCoordinator(ctx, link, cfg, m.p, m.reg, m.log)
		}}})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leader, m.epoch = m.rm, epoch
}

// die ends the attempt; the TaskManagers live on.
func (m *masters) die() {
	m.mu.Lock()
	m.leader = nil
	m.mu.Unlock()
	m.disp.Close()
	_ = m.rm.Close()
}

// next lets another attempt take over, and waits for the job's end.
func (m *masters) next() {
	m.t.Helper()
	m.attempt()
	if ids, err := m.disp.Recover(m.t.Context(), nil); err != nil || len(ids) != 1 {
		m.t.Fatalf("recovered %v: %v", ids, err)
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	r, err := m.disp.Wait(ctx, m.job)
	if err != nil || r.State != scheduler.JobFinished {
		m.t.Fatalf("%s: %+v, %v", r.State, r.Failure, err)
	}
}

// await waits for a condition of the job, as details show it.
func (m *masters) await(what string, ok func(vertex string, x scheduler.TaskState) bool) {
	m.t.Helper()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-pace.C {
		d, err := m.disp.Details(m.t.Context(), m.job)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, v := range d.Vertices {
			for _, x := range v.Tasks {
				if ok(v.Vertex.Name, x.State) {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// taskManager is one where a task of a vertex was.
func (m *masters) taskManager(vertex string) string {
	m.t.Helper()
	d, err := m.disp.Details(m.t.Context(), m.job)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, v := range d.Vertices {
		if strings.HasSuffix(v.Vertex.Name, vertex) {
			return v.Tasks[0].TaskManager
		}
	}
	m.t.Fatalf("no vertex %s", vertex)
	return ""
}

// The next JobMaster goes on behind what had finished, when the workers that hold it are still there, and runs it again when they are not. What
// had committed is not written again in either case.
func TestNextMasterGoesOnInBatch(t *testing.T) {
	const n = 1000
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("a worker is lost=%t", lost), func(t *testing.T) {
			var wide atomic.Int64
			g := newGate()
			early, late := &committed{}, &committed{}
			taskManagers := 2 // all hold something, and the job needs them
			if lost {
				taskManagers++
			}
			m := startMasters(t, taskManagers, func(env *Environment) error {
				s := counted(numbers(env, n, "numbers"), &wide, "wide")
				s.Filter(func(v int64) bool { return v%2 == 0 }).DisableChaining().SinkTo(early).Name("early").SetParallelism(2)
				s.KeyBy(func(v int64) int64 { return v % 10 }).Reduce(func(a, b int64) int64 { return a + b }).
					Process(func() ProcessFunction[int64, int64] { return &firstWaits{g: g} }).SinkTo(late)
				return nil
			})
			<-g.reached
			m.await("the first sink to have committed", func(v string, x scheduler.TaskState) bool {
				return strings.HasSuffix(v, "Sink: early") && x == scheduler.TaskFinished
			})
			holder := m.taskManager("wide")
			m.die()
			if lost {
				m.ends[holder]()
			}
			close(g.open)
			m.next()
			if runs := wide.Load() / n; runs != map[bool]int64{false: 1, true: 2}[lost] || wide.Load()%n != 0 {
				t.Errorf("the first stage emitted %d records of %d", wide.Load(), n)
			}
			var even, sums []int64
			for v := int64(0); v < n; v += 2 {
				even = append(even, v)
			}
			for k := range int64(10) {
				sums = append(sums, k*n/10+10*(n/10)*(n/10-1)/2)
			}
			if got := early.all(); !slices.Equal(got, even) {
				t.Errorf("the first sink has committed %d records, want %d, each once", len(got), len(even))
			}
			if got := late.all(); !slices.Equal(got, sums) {
				t.Errorf("committed %v, want %v", got, sums)
			}
		})
	}
}

// stuck is a sink whose commits wait, before or after their effect, until the test has seen them.
type stuck struct {
	committed
	g      *gate
	effect bool
}

func (s *stuck) Committer(connector.SinkContext) (connector.Committer, error) {
	return stuckCommitter{s}, nil
}

type stuckCommitter struct{ s *stuck }

func (c stuckCommitter) Close() error { return nil }
func (c stuckCommitter) Commit(ctx context.Context, items [][]byte, retry bool) error {
	inner := committer{&c.s.committed}
	if c.s.effect {
		if err := inner.Commit(ctx, items, retry); err != nil {
			return err
		}
	}
	c.s.g.pass()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.s.effect {
		return nil
	}
	return inner.Commit(ctx, items, retry)
}

// A JobMaster dies when a stage commits: the next one commits the same, and the stage is not run again.
func TestNextMasterCommitsTheSame(t *testing.T) {
	const n = 500
	for _, effect := range []bool{false, true} {
		t.Run(fmt.Sprintf("after the effect=%t", effect), func(t *testing.T) {
			var passed atomic.Int64
			out := &stuck{g: newGate(), effect: effect}
			m := startMasters(t, 2, func(env *Environment) error {
				counted(numbers(env, n, "numbers"), &passed, "count").SinkTo(out)
				return nil
			})
			<-out.g.reached
			m.die()
			close(out.g.open)
			m.next()
			if passed.Load() != n {
				t.Errorf("%d records went to the sink, want %d: the stage ran again", passed.Load(), n)
			}
			var want []int64
			for v := range int64(n) {
				want = append(want, v)
			}
			if got := out.all(); !slices.Equal(got, want) {
				t.Errorf("%d records are committed, want %d, each once", len(got), n)
			}
		})
	}
}
