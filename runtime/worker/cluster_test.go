package worker_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/taskmanager"
	"github.com/thalweg/thalweg/runtime/worker"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count is the record of these tests: how often a key was seen.
type count struct{ Key, N int64 }

// world is what the tasks of one run share with the test.
type world struct {
	keys   int64
	rounds atomic.Int64 // how often each key is to be emitted
	fail   atomic.Bool  // the next record fails its task

	mu   sync.Mutex
	bell chan struct{}   // closed at each change of rounds
	seen map[int64]int64 // key -> highest count that reached the sink
}

func newWorld(keys int64) *world {
	return &world{keys: keys, bell: make(chan struct{}), seen: map[int64]int64{}}
}

// round makes the source emit every key once more.
func (w *world) round() {
	w.rounds.Add(1)
	w.mu.Lock()
	close(w.bell)
	w.bell = make(chan struct{})
	w.mu.Unlock()
}

// counted reports whether every key was counted n times.
func (w *world) counted(n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.keys {
		if w.seen[k] != n {
			return false
		}
	}
	return true
}

type ticks struct{ w *world }

func (s ticks) Boundedness() connector.Boundedness { return connector.Unbounded }
func (s ticks) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, nil
}
func (s ticks) Reader(connector.ReaderContext) (connector.Reader[count], error) {
	return &ticksReader{w: s.w}, nil
}

// ticksReader begins with the rounds that are asked for after its start, or after what its restored split says.
type ticksReader struct {
	w    *world
	done int64
}

func (r *ticksReader) Start(context.Context) error { return nil }
func (r *ticksReader) AddSplits(s []connector.Split) error {
	_, err := fmt.Sscan(string(s[0].State), &r.done)
	return err
}
func (r *ticksReader) NoMoreSplits() {}
func (r *ticksReader) Available() <-chan struct{} {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.done < r.w.rounds.Load() {
		c := make(chan struct{})
		close(c)
		return c
	}
	return r.w.bell
}
func (r *ticksReader) Snapshot(int64) ([]connector.Split, error) {
	return []connector.Split{{ID: "ticks", State: fmt.Append(nil, r.done)}}, nil
}
func (r *ticksReader) CheckpointComplete(context.Context, int64) error { return nil }
func (r *ticksReader) CheckpointAborted(int64)                         {}
func (r *ticksReader) Close() error                                    { return nil }
func (r *ticksReader) Poll(out connector.Output[count], _ int) (connector.Status, error) {
	if r.done >= r.w.rounds.Load() {
		return connector.NothingAvailable, nil
	}
	for k := range r.w.keys {
		if err := out.Collect(count{k, 1}, connector.NoTimestamp); err != nil {
			return connector.MoreAvailable, err
		}
	}
	r.done++
	return connector.MoreAvailable, nil
}

type collect struct{ w *world }

func (c collect) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[count], error) {
	return collectWriter(c), nil
}

type collectWriter struct{ w *world }

func (c collectWriter) Write(v count, _ int64) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.seen[v.Key] = max(c.w.seen[v.Key], v.N)
	return nil
}
func (c collectWriter) Flush(context.Context, bool) error { return nil }
func (c collectWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (c collectWriter) Close() error                      { return nil }

// program counts keys: source(1) -> check -> hash -> reduce(p) -> sink(p), with a max parallelism that nobody sets unless limit is positive.
func program(t testing.TB, w *world, p, limit int) *graph.Program {
	t.Helper()
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	key, err := serde.For[int64]()
	if err != nil {
		t.Fatal(err)
	}
	sel := operator.KeySelector[int64, count]{Fn: func(c count) int64 { return c.Key }, Codec: key}
	src := &graph.Node{Kind: "source", Name: "ticks", UID: "ticks", Source: true, Stateful: true, Parallelism: 1, OutImpl: typ,
		Impl: operator.Source(ticks{w}, operator.Watermarks[count]{})}
	check := &graph.Node{Kind: "map", Name: "check", Parallelism: 1, In: []graph.Edge{{From: src}}, OutImpl: typ,
		Impl: operator.TryMap(func(c count) (count, error) {
			if w.fail.CompareAndSwap(true, false) {
				return c, fmt.Errorf("told to fail")
			}
			return c, nil
		})}
	sum := &graph.Node{Kind: "reduce", Name: "sum", UID: "sum", Keyed: true, Stateful: true, In: []graph.Edge{{From: check, Partitioner: graph.Hash, Keyer: sel}}, OutImpl: typ,
		Impl: operator.Reduce(sel, func(acc, v count) count { return count{v.Key, acc.N + v.N} })}
	out := &graph.Node{Kind: "sink", Name: "out", UID: "out", In: []graph.Edge{{From: sum}}, Impl: operator.Sink[count](collect{w})}
	g, err := graph.Translate(&graph.StreamGraph{Name: "counts", Nodes: []*graph.Node{src, check, sum, out}},
		graph.Options{Parallelism: p, MaxParallelism: limit, Chaining: true, Protocol: version.Protocol, SDK: version.Version, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// cluster is an embedded cluster whose application attempts can end without the job's end.
type cluster struct {
	t     *testing.T
	dir   string
	conf  config.Configuration
	store ha.Store
	reg   *fs.Registry
	log   zerolog.Logger

	exchange func(*network.Environment) // sees the exchange of each worker; may be nil
	run      func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error
	slots    int
	res      *resourcemanager.Manager
	disp     *dispatcher.Dispatcher
	accepted sync.WaitGroup
	job      graph.JobID
}

// startCluster runs p on one TaskManager for each n subtasks.
func startCluster(t *testing.T, dir string, p *graph.Program, parallelism, workers int, conf config.Configuration, change ...func(*cluster)) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: dir, store: ha.NewMemory(), reg: &fs.Registry{}, slots: (parallelism + workers - 1) / workers,
		log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	c.conf = config.Configuration{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "600", "restart-strategy.fixed-delay.delay": "1 ms",
		"execution.checkpointing.dir": "file://" + filepath.Join(dir, "ckp"), "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
	for k, v := range conf {
		c.conf[k] = v
	}
	local.Register(c.reg)
	c.run = func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
		return worker.RunObserved(ctx, link, cfg, p, c.reg, c.log, c.exchange)
	}
	for _, f := range change {
		f(c)
	}
	c.attempt()
	t.Cleanup(c.close)
	var err error
	if c.job, err = c.disp.Submit(t.Context(), dispatcher.Submission{Graph: p.Graph, Config: c.conf}); err != nil {
		t.Fatal(err)
	}
	return c
}

// attempt starts an application attempt.
func (c *cluster) attempt() {
	c.t.Helper()
	epoch, err := c.store.AcquireEpoch(c.t.Context(), "test")
	if err != nil {
		c.t.Fatal(err)
	}
	var res *resourcemanager.Manager
	driver := resourcemanager.NewEmbedded(func(ctx context.Context, id resourcemanager.WorkerID, spec resourcemanager.WorkerSpec) error {
		tm, err := taskmanager.New(taskmanager.Options{ID: string(id), Host: "127.0.0.1", Slots: spec.Slots, MemoryBytes: 4 << 30, Cores: 1,
			Dirs: []string{filepath.Join(c.dir, "local")}, Config: c.conf, Logger: c.log, Launcher: taskmanager.InProcess{Run: c.run},
			Leader: func(context.Context) (taskmanager.Leader, error) { return taskmanager.Leader{Address: "embedded"}, nil },
			Connect: func(context.Context, taskmanager.Leader) (taskmanager.Connection, error) {
				lower, upper := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
				c.accepted.Go(func() { res.Accept(upper, "embedded") })
				return taskmanager.Connection{Link: lower}, nil
			}})
		if err != nil {
			return err
		}
		return tm.Run(ctx)
	})
	spec := resourcemanager.SpecOf(c.conf)
	spec.Slots, spec.Cores = c.slots, 1
	res = resourcemanager.New(resourcemanager.Options{Config: c.conf, Driver: driver, Epoch: epoch, Spec: spec, Logger: c.log, OnFatal: func(err error) { c.log.Warn().Err(err).Msg("fatal") }})
	if err := res.Start(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	c.res = res
	c.disp = dispatcher.New(dispatcher.Options{Config: c.conf, Resources: res, Store: c.store, FS: c.reg, Epoch: epoch, Logger: c.log})
}

func (c *cluster) close() {
	c.disp.Close()
	if err := c.res.Close(); err != nil {
		c.t.Error(err)
	}
	c.accepted.Wait()
}

// nextAttempt ends the application attempt, and the TaskManagers with it, and lets another one recover the job.
func (c *cluster) nextAttempt() {
	c.t.Helper()
	c.close()
	c.attempt()
	ids, err := c.disp.Recover(c.t.Context(), nil)
	if err != nil || len(ids) != 1 {
		c.t.Fatalf("recovered %v: %v", ids, err)
	}
}

func (c *cluster) details() *jobmaster.Details {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := c.disp.Details(ctx, c.job)
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

// until waits for a condition.
func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			d := c.details()
			c.t.Fatalf("timed out waiting for %s; the job is %s, root failure %+v", what, d.State, d.Root)
		}
		if d := c.details(); d.State.Terminal() {
			c.t.Fatalf("the job is %s while waiting for %s: %+v", d.State, what, d.Root)
		}
		<-pace.C
	}
}

// ended waits for a condition after the job's end.
func (c *cluster) ended(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("timed out waiting for %s", what)
		}
		<-pace.C
	}
}

func (c *cluster) running() {
	c.t.Helper()
	c.until("all tasks to run", c.allRun)
}

func (c *cluster) allRun() bool {
	d := c.details()
	for _, v := range d.Vertices {
		for _, x := range v.Tasks {
			if x.State != scheduler.TaskRunning {
				return false
			}
		}
	}
	return d.State == scheduler.JobRunning && len(d.Vertices) > 0
}

func (c *cluster) trigger(r jobmaster.TriggerRequest) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := c.disp.Trigger(ctx, c.job, r)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.Path
}

// count lets the source emit one more round, and waits until every key was counted n times.
func (c *cluster) count(w *world, n int64) {
	c.t.Helper()
	w.round()
	c.until(fmt.Sprintf("every key to be counted %d times", n), func() bool { return w.counted(n) })
}

// cancel ends the job.
func (c *cluster) cancel() {
	c.t.Helper()
	if err := c.disp.Cancel(c.job); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if r, err := c.disp.Wait(ctx, c.job); err != nil || r.State != scheduler.JobCanceled {
		c.t.Fatalf("%+v, %v", r, err)
	}
}
