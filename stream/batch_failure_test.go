package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/worker"
)

// batchJob is a job in BATCH on an embedded cluster of several TaskManagers whose workers can be killed.
type batchJob struct {
	t   *testing.T
	c   *minicluster.Cluster
	dir string

	mu      sync.Mutex
	workers map[string]context.CancelCauseFunc // by TaskManager
}

var errKilled = errors.New("killed by the test")

func startBatch(t *testing.T, taskManagers int, conf config.Configuration, build func(*Environment) error) *batchJob {
	t.Helper()
	all := config.Configuration{"execution.runtime-mode": "BATCH", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "20",
		"restart-strategy.fixed-delay.delay": "1 ms"}
	for k, v := range conf {
		all[k] = v
	}
	p, err := twice(t.Name(), build, all, nil)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := fileSystems()
	if err != nil {
		t.Fatal(err)
	}
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.ErrorLevel)
	j := &batchJob{t: t, dir: t.TempDir(), workers: map[string]context.CancelCauseFunc{}}
	j.c, err = minicluster.Start(t.Context(), minicluster.Options{
		Graph: p.Graph, Config: p.Graph.Config, FS: reg, TaskManagers: taskManagers, Dir: j.dir, Logger: log,
		RunWorker: func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			j.mu.Lock()
			j.workers[cfg.TaskManagerID] = cancel
			j.mu.Unlock()
			err := worker.Run(ctx, link, cfg, p, reg, log)
			if errors.Is(context.Cause(ctx), errKilled) {
				return errKilled
			}
			return err
		},
		RunCoordinator: func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error {
			return worker.RunCoordinator(ctx, link, cfg, p, reg, log)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.c.Close)
	return j
}

func (j *batchJob) details() *jobmaster.Details {
	j.t.Helper()
	d, err := j.c.Dispatcher.Details(j.t.Context(), j.c.JobID)
	if err != nil {
		j.t.Fatal(err)
	}
	return d
}

// taskManagers are those that the tasks of a vertex are at, or were.
func (j *batchJob) taskManagers(vertex string) []string {
	var at []string
	for _, v := range j.details().Vertices {
		if strings.Contains(v.Vertex.Name, vertex) {
			for _, x := range v.Tasks {
				at = append(at, x.TaskManager)
			}
		}
	}
	return at
}

func (j *batchJob) kill(tm string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.workers[tm](errKilled)
}

// damage cuts the files of what a vertex wrote.
func (j *batchJob) damage(vertex string) (files int) {
	for _, v := range j.details().Vertices {
		if !strings.Contains(v.Vertex.Name, vertex) {
			continue
		}
		err := filepath.WalkDir(j.dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(p)) == "exchange" && strings.HasPrefix(d.Name(), v.Vertex.ID.String()) {
				files++
				err = os.Truncate(p, 10)
			}
			return err
		})
		if err != nil {
			j.t.Fatal(err)
		}
	}
	return files
}

func (j *batchJob) wait() minicluster.Result {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), 5*time.Minute)
	defer cancel()
	r, err := j.c.Wait(ctx)
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

func (j *batchJob) finish() {
	j.t.Helper()
	if r := j.wait(); r.State != scheduler.JobFinished {
		j.t.Fatalf("%s: %+v", r.State, r.Failure)
	}
}

// counted counts what passes.
func counted(s DataStream[int64], n *atomic.Int64, name string) DataStream[int64] {
	return s.Map(func(v int64) int64 { n.Add(1); return v }).Name(name).DataStream
}

func numbers(env *Environment, n int64, name string) DataStream[int64] {
	return env.FromSource(datagen.Source(func(i int64) int64 { return i }, datagen.Count(n), datagen.Splits(8)), NoWatermarks[int64](), name).DataStream
}

// A stage that fails runs again; those before it, which finished, do not. Nothing is lost or doubled.
func TestFailedStageRunsAlone(t *testing.T) {
	const n = 2000
	var first, second, failures atomic.Int64
	out := &committed{}
	j := startBatch(t, 1, config.Configuration{"parallelism.default": "2"}, func(env *Environment) error {
		in := counted(numbers(env, n, "numbers"), &first, "first")
		sums := in.KeyBy(func(v int64) int64 { return v % 100 }).Reduce(func(a, b int64) int64 { return a + b }).TryMap(func(v int64) (int64, error) {
			if second.Add(1) == 30 && failures.Add(1) == 1 {
				return v, errors.New("told to fail")
			}
			return v, nil
		})
		sums.SinkTo(out)
		return nil
	})
	j.finish()
	if first.Load() != n {
		t.Errorf("the first stage emitted %d records of %d: it ran again", first.Load(), n)
	}
	if failures.Load() == 0 || second.Load() <= 100 {
		t.Errorf("the second stage did not fail: %d results", second.Load())
	}
	var want []int64
	for k := range int64(100) {
		want = append(want, 20*k+100*190) // k, k+100, ..., k+1900
	}
	if got := out.all(); !slices.Equal(got, want) {
		t.Errorf("committed %v, want %v", got, want)
	}
}

// gate holds a stage up until the test opens it.
type gate struct {
	reached, open chan struct{}
	once          sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) pass() {
	g.once.Do(func() { close(g.reached) })
	<-g.open
}

// firstWaits holds its first attempt up at the gate, and never lets it end well: the stage cannot finish before its failure is known.
type firstWaits struct {
	g     *gate
	first bool
}

func (f *firstWaits) Open(rt *TaskContext) error { f.first = rt.Attempt() == 0; return nil }
func (f *firstWaits) Close() error               { return nil }
func (f *firstWaits) ProcessElement(_ *ProcessContext, v int64, out *Collector[int64]) error {
	if f.first {
		f.g.pass()
		return errors.New("the first attempt gives up")
	}
	out.Collect(v)
	return nil
}

// When a worker dies, the stages whose partitions it held run again, and those whose partitions are elsewhere do not.
func TestLostPartitionIsMadeAgain(t *testing.T) {
	const n = 2000
	for _, what := range []string{"worker", "TaskManager"} {
		t.Run(what, func(t *testing.T) {
			var wide, narrow atomic.Int64
			g := newGate()
			out := &committed{}
			j := startBatch(t, 2, config.Configuration{"parallelism.default": "2"}, func(env *Environment) error {
				a := counted(numbers(env, n, "wide"), &wide, "wide")
				one := env.FromCollection(int64(7), int64(8)) // parallelism 1: at one TaskManager
				b := one.Map(func(v int64) int64 { narrow.Add(1); return v }).SetParallelism(1).Name("narrow").DataStream
				a.Union(b).KeyBy(func(v int64) int64 { return v % 10 }).Reduce(func(a, b int64) int64 { return a + b }).
					Process(func() ProcessFunction[int64, int64] { return &firstWaits{g: g} }).SinkTo(out)
				return nil
			})
			<-g.reached
			keep := j.taskManagers("narrow")[0]
			lost := ""
			for _, tm := range j.taskManagers("wide") {
				if tm != keep {
					lost = tm
				}
			}
			if lost == "" {
				t.Fatalf("all is at %s", keep)
			}
			if what == "worker" {
				j.kill(lost)
			} else {
				j.c.KillTaskManager(lost)
			}
			close(g.open)
			j.finish()
			if narrow.Load() != 2 {
				t.Errorf("the stage whose partition is there ran again: %d records of 2", narrow.Load())
			}
			if wide.Load() != 2*n {
				t.Errorf("the stage with a lost partition emitted %d records, want %d twice", wide.Load(), n)
			}
			var want []int64
			for k := range int64(10) {
				sum := int64(0)
				for v := k; v < n; v += 10 {
					sum += v
				}
				if k == 7 || k == 8 {
					sum += k
				}
				want = append(want, sum)
			}
			if got := out.all(); !slices.Equal(got, want) {
				t.Errorf("committed %v, want %v", got, want)
			}
		})
	}
}

// waits holds each of its first attempts up at the gate, at its first record.
type waits struct {
	g    *gate
	over bool
}

func (w *waits) Open(rt *TaskContext) error { w.over = rt.Attempt() > 0; return nil }
func (w *waits) Close() error               { return nil }
func (w *waits) ProcessElement(_ *ProcessContext, v int64, out *Collector[int64]) error {
	if !w.over {
		w.over = true
		w.g.pass()
	}
	out.Collect(v)
	return nil
}

// When what a stage wrote cannot be read from its disk any more, though all workers live, that stage runs again and with it those that read
// it. Another one, and one that had read it before, do not. The strategy has a single restart left for it.
func TestDamagedPartitionIsMadeAgain(t *testing.T) {
	const n = 20000
	var wide, narrow, early atomic.Int64
	g := newGate()
	out, other := &committed{}, &committed{}
	j := startBatch(t, 2, config.Configuration{"parallelism.default": "2", "taskmanager.memory.segment-size": "512", "restart-strategy.fixed-delay.attempts": "1"},
		func(env *Environment) error {
			s := counted(numbers(env, n, "wide"), &wide, "wide").Cache()
			b := counted(numbers(env, 10, "narrow"), &narrow, "narrow").Cache()
			counted(s.DataStream, &early, "early").SinkTo(other)
			s.Union(b.DataStream).Process(func() ProcessFunction[int64, int64] { return &waits{g: g} }).SinkTo(out)
			return nil
		})
	<-g.reached
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); len(other.all()) < n; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the other reader does not end")
		}
	}
	if files := j.damage("wide"); files == 0 {
		t.Fatal("there are no files to damage")
	}
	close(g.open)
	j.finish()
	if wide.Load() != 2*n || narrow.Load() != 10 || early.Load() != n {
		t.Errorf("%d records of the damaged stage, %d of another, %d of one that had read it; want %d, 10 and %d", wide.Load(), narrow.Load(), early.Load(), 2*n, n)
	}
	if got := out.all(); len(got) != n+10 {
		t.Errorf("%d records committed, want %d", len(got), n+10)
	}
}

// committed is a sink with two-phase commits: records count when they are committed.
type committed struct {
	mu      sync.Mutex
	batches map[string][]int64 // by transaction; each counts once, however often it is committed
	commits int
	fail    atomic.Int64 // the commit of this number fails, before or after its effect
	late    bool
}

func (c *committed) Writer(sc connector.SinkContext, _ [][]byte) (connector.SinkWriter[int64], error) {
	return &committedWriter{c: c, name: fmt.Sprintf("%d-%d", sc.Subtask, sc.Attempt)}, nil
}

func (c *committed) Committer(connector.SinkContext) (connector.Committer, error) {
	return committer{c}, nil
}

// all are the committed records, sorted.
func (c *committed) all() []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []int64
	for _, b := range c.batches {
		out = append(out, b...)
	}
	slices.Sort(out)
	return out
}

type committedWriter struct {
	c    *committed
	name string
	held []int64
}

func (w *committedWriter) Write(v int64, _ int64) error {
	w.held = append(w.held, v)
	return nil
}
func (w *committedWriter) Flush(context.Context, bool) error { return nil }
func (w *committedWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (w *committedWriter) Close() error                      { return nil }
func (w *committedWriter) Committed(int64)                   {}
func (w *committedWriter) PrepareCommit(int64) ([][]byte, error) {
	s := w.name
	for _, v := range w.held {
		s += fmt.Sprintf(" %d", v)
	}
	w.held = nil
	return [][]byte{[]byte(s)}, nil
}

type committer struct{ c *committed }

func (c committer) Commit(_ context.Context, items [][]byte, _ bool) error {
	c.c.mu.Lock()
	defer c.c.mu.Unlock()
	c.c.commits++
	fail := int64(c.c.commits) == c.c.fail.Load()
	for _, item := range items {
		f := strings.Fields(string(item))
		if fail && !c.c.late {
			return errors.New("the commit was told to fail")
		}
		var vs []int64
		for _, s := range f[1:] {
			var v int64
			if _, err := fmt.Sscan(s, &v); err != nil {
				return err
			}
			vs = append(vs, v)
		}
		if c.c.batches == nil {
			c.c.batches = map[string][]int64{}
		}
		c.c.batches[f[0]] = vs
	}
	if fail {
		return errors.New("the commit was told to fail afterwards")
	}
	return nil
}
func (committer) Close() error { return nil }

// Once commits are prepared, a failure repeats the commits alone: the stage, parts of which may be committed, is not run again.
func TestFailedCommitIsRepeated(t *testing.T) {
	const n = 500
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("after its effect=%t", late), func(t *testing.T) {
			var passed atomic.Int64
			out := &committed{late: late}
			out.fail.Store(2)
			j := startBatch(t, 2, config.Configuration{"parallelism.default": "2"}, func(env *Environment) error {
				counted(numbers(env, n, "numbers"), &passed, "count").SinkTo(out)
				return nil
			})
			j.finish()
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
			if d := j.details(); d.Restarts == 0 {
				t.Error("nothing failed")
			}
		})
	}
}

// A stage that always fails ends the job, also when nothing is set.
func TestHopelessStage(t *testing.T) {
	j := startBatch(t, 1, config.Configuration{"restart-strategy.type": "exponential-delay", "restart-strategy.exponential-delay.initial-backoff": "1 ms",
		"restart-strategy.exponential-delay.max-backoff": "2 ms"}, func(env *Environment) error {
		env.FromCollection(1).TryMap(func(v int) (int, error) { return v, errors.New("never") }).SinkTo(&collect[int]{})
		return nil
	})
	if r := j.wait(); r.State != scheduler.JobFailed || r.Failure == nil || !strings.Contains(r.Failure.Message, "never") {
		t.Errorf("%+v", r)
	}
}

// There are no checkpoints and savepoints in BATCH: requests for them, and a job that is to start from one, say so.
func TestNoSavepointsInBatch(t *testing.T) {
	g := newGate()
	build := func(env *Environment) error {
		env.EnableCheckpointing(time.Second, ExactlyOnce) // of no effect
		env.FromCollection(1).Map(func(v int) int { g.pass(); return v }).SinkTo(&collect[int]{})
		return nil
	}
	j := startBatch(t, 1, nil, build)
	<-g.reached
	for _, kind := range []jobmaster.TriggerKind{jobmaster.TriggerCheckpoint, jobmaster.TriggerSavepoint, jobmaster.TriggerStop} {
		_, err := j.c.Dispatcher.Trigger(t.Context(), j.c.JobID, jobmaster.TriggerRequest{Kind: kind, Directory: "file://" + t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "BATCH") {
			t.Errorf("%v: %v", kind, err)
		}
	}
	close(g.open)
	j.finish()
	from := startBatch(t, 1, config.Configuration{config.SavepointPath.Key: "file://" + filepath.Join(t.TempDir(), "sp")}, build)
	if r := from.wait(); r.State != scheduler.JobFailed || !strings.Contains(r.Failure.Message, "BATCH") {
		t.Errorf("%+v", r)
	}
}

// knows joins numbers with broadcast ones.
type knows struct{}

var known = NewMapStateDescriptor[int64, int64]("known")

func (knows) Open(*TaskContext) error { return nil }
func (knows) Close() error            { return nil }
func (knows) ProcessElement(ctx *ReadOnlyContext, v int64, out *Collector[bool]) error {
	s, err := ctx.BroadcastState(known)
	if err == nil {
		_, ok := s.Get(v)
		out.Collect(ok)
	}
	return err
}
func (knows) ProcessBroadcastElement(ctx *BroadcastContext, v int64, _ *Collector[bool]) error {
	s, err := ctx.BroadcastState(known)
	if err == nil {
		s.Put(v, v)
	}
	return err
}

type keyedKnows struct{ n ValueState[int64] }

func (k *keyedKnows) Open(rt *RuntimeContext[int64]) (err error) {
	k.n, err = rt.ValueState[int64]("n")
	return err
}
func (k *keyedKnows) Close() error                                                        { return nil }
func (k *keyedKnows) OnTimer(*KeyedReadOnlyContext[int64], Timer, *Collector[bool]) error { return nil }
func (k *keyedKnows) ProcessElement(ctx *KeyedReadOnlyContext[int64], v int64, out *Collector[bool]) error {
	s, err := ctx.BroadcastState(known)
	if err != nil {
		return err
	}
	_, ok := s.Get(v)
	out.Collect(ok)
	return k.n.Update(v)
}
func (k *keyedKnows) ProcessBroadcastElement(ctx *KeyedBroadcastContext[int64], v int64, _ *Collector[bool]) error {
	s, err := ctx.BroadcastState(known)
	if err == nil {
		s.Put(v, v)
	}
	return err
}

// The broadcast side is read as a whole before the other one, keyed or not.
func TestBroadcastComesFirst(t *testing.T) {
	const n = 3000
	plain, keyed := &collect[bool]{}, &collect[bool]{}
	j := startBatch(t, 1, config.Configuration{"parallelism.default": "3", "taskmanager.memory.segment-size": "4 kb"}, func(env *Environment) error {
		in := numbers(env, n, "numbers")
		rules := numbers(env, n, "rules").Map(func(v int64) int64 { return v }).DataStream.BroadcastState(known)
		in.ConnectBroadcast(rules).Process(func() BroadcastProcessFunction[int64, int64, bool] { return knows{} }).SinkTo(plain)
		in.KeyBy(func(v int64) int64 { return v }).ConnectBroadcast(rules).Process(func() KeyedBroadcastProcessFunction[int64, int64, int64, bool] { return &keyedKnows{} }).SinkTo(keyed)
		return nil
	})
	j.finish()
	for name, c := range map[string]*collect[bool]{"plain": plain, "keyed": keyed} {
		if len(c.got) != n || slices.Contains(c.got, false) {
			t.Errorf("%s: %d results, some of numbers that were not known yet: %t", name, len(c.got), slices.Contains(c.got, false))
		}
	}
}

// Processing-time timers fire when the key's records are over; one that registers itself again does not hold the job up for ever.
type restless struct{}

func (restless) Open(*RuntimeContext[int64]) error { return nil }
func (restless) Close() error                      { return nil }
func (restless) ProcessElement(ctx *KeyedContext[int64], _ int64, _ *Collector[string]) error {
	return ctx.RegisterProcessingTimeTimer(time.Now().Add(time.Hour))
}
func (restless) OnTimer(ctx *KeyedContext[int64], timer Timer, out *Collector[string]) error {
	out.Collect(fmt.Sprint(ctx.Key(), timer.EventTime))
	return ctx.RegisterProcessingTimeTimer(timer.At.Add(time.Minute))
}

func TestProcessingTimersInBatch(t *testing.T) {
	out := &collect[string]{}
	err := runJob(t, map[string]string{"execution.runtime-mode": "BATCH"}, func(env *Environment) error {
		env.FromCollection[int64](1, 2).KeyBy(func(n int64) int64 { return n }).
			Process(func() KeyedProcessFunction[int64, int64, string] { return restless{} }).SinkTo(out)
		return nil
	})
	if got := sorted(out); err != nil || !slices.Equal(got, []string{"1 false", "2 false"}) {
		t.Errorf("%v %v", got, err)
	}
}
