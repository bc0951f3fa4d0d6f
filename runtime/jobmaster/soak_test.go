package jobmaster

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// obedient is a TaskManager with one slot for each subtask whose worker does at once what it is told.
type obedient struct {
	mu       sync.Mutex
	l        resourcemanager.JobListener
	tasks    []string // of the last deployment
	triggers int
}

const tmID = "container_1"

func (o *obedient) RegisterJob(_ string, l resourcemanager.JobListener) { o.l = l }
func (o *obedient) UnregisterJob(string)                                {}
func (o *obedient) CurrentProblem() string                              { return "" }
func (o *obedient) Returning() int                                      { return 0 }

func (o *obedient) Declare(_ string, n int, _ ...resourcemanager.Slot) {
	slots := make([]resourcemanager.Slot, n)
	for i := range slots {
		slots[i] = resourcemanager.Slot{TaskManager: tmID, Index: i}
	}
	o.l.SlotsChanged(slots)
}

func (o *obedient) up(m *pb.WorkerUp) { o.l.FromWorker(tmID, m) }

func (o *obedient) state(id string, s pb.TaskState, f *pb.Failure) {
	o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{ExecutionId: id, State: s, Failure: f}}})
}

func (o *obedient) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tasks
}

// Send is called by the JobMaster's loop; the answers wait in its queue.
func (o *obedient) Send(_ string, m *pb.TaskManagerDown) error {
	if s := m.GetStartWorker(); s != nil {
		o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: &pb.WorkerHello{Protocol: version.Protocol, Fingerprint: s.GetFingerprint(), DataAddress: "nm:1"}}})
	}
	switch m := m.GetWorker().GetDown().GetMsg().(type) {
	case *pb.WorkerDown_Deploy:
		var ids []string
		metrics := &pb.WorkerMetrics{TimeMs: 1}
		for _, t := range m.Deploy.GetTasks() {
			ids = append(ids, t.GetExecutionId())
			o.state(t.GetExecutionId(), pb.TaskState_INITIALIZING, nil)
			o.state(t.GetExecutionId(), pb.TaskState_RUNNING, nil)
			metrics.Tasks = append(metrics.Tasks, &pb.TaskMetrics{ExecutionId: t.GetExecutionId()})
		}
		o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_Metrics{Metrics: metrics}})
		o.mu.Lock()
		o.tasks = ids
		o.mu.Unlock()
	case *pb.WorkerDown_Cancel:
		metrics := &pb.WorkerMetrics{TimeMs: 2}
		for _, id := range m.Cancel.GetExecutionIds() {
			metrics.Tasks = append(metrics.Tasks, &pb.TaskMetrics{ExecutionId: id})
			o.state(id, pb.TaskState_CANCELED, nil)
		}
		o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_Metrics{Metrics: metrics}}) // a late report
	case *pb.WorkerDown_Trigger:
		o.mu.Lock()
		o.triggers++
		decline := o.triggers%3 == 0
		o.mu.Unlock()
		for _, id := range o.all() {
			if decline {
				o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_Declined{Declined: &pb.CheckpointDeclined{ExecutionId: id, CheckpointId: m.Trigger.GetCheckpointId(), Failure: &pb.Failure{Message: "told to"}}}})
				break
			}
			o.up(&pb.WorkerUp{Msg: &pb.WorkerUp_Ack{Ack: &pb.CheckpointAck{ExecutionId: id, CheckpointId: m.Trigger.GetCheckpointId()}}})
		}
	}
	return nil
}

// opened counts the file systems that are open.
type opened struct {
	fs.FileSystem
	n *atomic.Int64
}

func (o opened) Close() error {
	o.n.Add(-1)
	return nil
}

// A JobMaster that has restarted its job hundreds of times, with completed, failed and requested checkpoints in between, holds what it held
// after the first ones, also when nobody looks at it.
func TestRestartsAndCheckpointsLeaveNothing(t *testing.T) {
	const warm, restarts = 70, 500 // the exception history is full then
	var files atomic.Int64
	reg := &fs.Registry{}
	reg.Register("file", func(context.Context, *url.URL) (fs.FileSystem, error) {
		files.Add(1)
		return opened{local.New(), &files}, nil
	})
	dir := "file://" + filepath.Join(t.TempDir(), "ckp")
	store := ha.NewMemory()
	if _, err := store.AcquireEpoch(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	id := graph.JobID{ID: graph.NewID()}
	if err := store.PutJob(t.Context(), ha.Job{ID: id}); err != nil {
		t.Fatal(err)
	}
	pointer, first, err := store.OpenJob(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	g := jobtest.Graph(2, 3)
	for i := range g.Vertices[0].Operators {
		g.Vertices[0].Operators[i].Coordinate = false
	}
	w := &obedient{}
	j, err := New(Options{JobID: id, Graph: g, Epoch: 1, Pointer: pointer, FirstID: first, Resources: w, Store: store, FS: reg, Logger: zerolog.Nop(),
		Config: config.Configuration{"execution.checkpointing.dir": dir, "execution.checkpointing.interval": "1 h", "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
			"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000000", "restart-strategy.fixed-delay.delay": "0 ms"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Result, 1)
	go func() { ended <- j.Run(ctx) }()

	// ask runs fn in the loop.
	ask := func(fn func() string) string {
		t.Helper()
		out := make(chan string, 1)
		if !j.q.Post(func() { out <- fn() }) {
			t.Fatalf("the job has ended: %+v", <-ended)
		}
		select {
		case s := <-out:
			return s
		case <-time.After(time.Minute):
			t.Fatal("the loop does not answer")
			return ""
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; jobtest.Pause() {
			done := false
			state := ask(func() string {
				done = j.sched != nil && ok()
				if j.sched == nil {
					return "not begun"
				}
				return fmt.Sprintf("%s, %d restarts, %+v", j.sched.State(), j.sched.Restarts(), j.root)
			})
			if done {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("timed out waiting for %s: %s", what, state)
			}
		}
	}
	round := func(n int) {
		until("all tasks to run", func() bool { return j.sched.Restarts() == n && j.sched.Ready() })
		for range 3 {
			res := <-j.Trigger(TriggerRequest{})
			if res.Err != nil && !strings.Contains(res.Err.Error(), "told to") {
				t.Fatal(res.Err)
			}
		}
		w.state(w.all()[0], pb.TaskState_FAILED, &pb.Failure{Message: "told to fail"})
	}
	held := func() string {
		return ask(func() string {
			return fmt.Sprintf("%d timers, %d of the attempt, %d task metrics, %d waiting, %d workers, %d failures, %d checkpoints, %d retained, %d files open",
				len(j.timers), len(j.attemptTimers), len(j.metrics.last), len(j.waiting), len(j.workers), len(j.history), len(j.ckpt.core.Stats().History), len(j.ckpt.core.Retained()), files.Load())
		})
	}
	for n := range warm {
		round(n)
	}
	until("all tasks to run", func() bool { return j.sched.Restarts() == warm && j.sched.Ready() })
	before, goroutines := held(), runtime.NumGoroutine()
	for n := warm; n < restarts; n++ {
		round(n)
	}
	until("all tasks to run", func() bool { return j.sched.Restarts() == restarts && j.sched.Ready() })
	for deadline := time.Now().Add(time.Minute); ; jobtest.Pause() { // the last attempt's clean-up may still be under way
		after, n := held(), runtime.NumGoroutine()
		if after == before && n <= goroutines+5 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("after %d restarts: %s, %d goroutines; after %d: %s, %d goroutines", warm, before, goroutines, restarts, after, n)
			break
		}
	}
	var c coordinator.Counts
	if ask(func() string { c = j.ckpt.core.Stats().Counts; return "" }); c.Completed < restarts || c.Failed < restarts/2 {
		t.Errorf("checkpoints %+v", c)
	}
	if err := j.Cancel(); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.State != scheduler.JobCanceled {
		t.Errorf("%+v", r)
	}
	cancel()
	if n := files.Load(); n != 0 {
		t.Errorf("%d file systems are still open", n)
	}
}

// What was to be done in an attempt is not done in the next one, also when its time had come: a final checkpoint that is tried again, say,
// would end the tasks that began anew.
func TestTimersEndWithTheirAttempt(t *testing.T) {
	j, err := New(Options{Graph: jobtest.Graph(1, 1), Epoch: 1, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	j.inAttempt(0, func() { done["due"] = true })
	<-j.q.wake // it is on its way
	j.inAttempt(time.Hour, func() { done["not due"] = true })
	j.newAttempt()
	j.inAttempt(0, func() { done["next"] = true })
	for deadline := time.Now().Add(time.Minute); !done["next"] && time.Now().Before(deadline); jobtest.Pause() {
		for _, fn := range j.q.take() {
			fn()
		}
	}
	if len(done) != 1 || !done["next"] || len(j.timers) != 0 {
		t.Errorf("%v, %d timers", done, len(j.timers))
	}
}
