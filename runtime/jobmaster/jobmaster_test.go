package jobmaster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an embedded cluster with scripted job processes.
type rig struct {
	t   *testing.T
	w   *jobtest.World
	c   *minicluster.Cluster
	fs  *fs.Registry
	dir string
}

func start(t *testing.T, w *jobtest.World, conf map[string]string, change ...func(*minicluster.Options)) *rig {
	t.Helper()
	r := &rig{t: t, w: w, fs: &fs.Registry{}, dir: t.TempDir()}
	local.Register(r.fs)
	c := config.Configuration{"restart-strategy.exponential-delay.initial-backoff": "1 ms", "restart-strategy.type": "exponential-delay",
		"execution.checkpointing.dir": "file://" + filepath.Join(r.dir, "ckp"), "heartbeat.interval": "50 ms"}
	for k, v := range conf {
		c[k] = v
	}
	o := minicluster.Options{Graph: jobtest.Graph(2, 3), Config: c, RunWorker: w.RunWorker, RunCoordinator: w.RunCoordinator, FS: r.fs, Dir: filepath.Join(r.dir, "cluster"),
		Logger: zerolog.New(zerolog.NewTestWriter(t)).With().Timestamp().Logger()}
	for _, f := range change {
		f(&o)
	}
	var err error
	if r.c, err = minicluster.Start(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.c.Close)
	return r
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("timed out waiting for: %s; now %+v", what, r.details())
		}
		jobtest.Pause()
	}
}

func (r *rig) details() *jobmaster.Details {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := r.c.Dispatcher.Details(ctx, r.c.JobID)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *rig) running() {
	r.t.Helper()
	r.until("all tasks running", func() bool {
		d := r.details()
		return d.State == scheduler.JobRunning && allTasks(d, scheduler.TaskRunning)
	})
}

func allTasks(d *jobmaster.Details, s scheduler.TaskState) bool {
	n := 0
	for _, v := range d.Vertices {
		for _, t := range v.Tasks {
			if t.State != s {
				return false
			}
			n++
		}
	}
	return n > 0
}

func (r *rig) wait() jobmaster.Result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := r.c.Dispatcher.Wait(ctx, r.c.JobID)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) trigger(req jobmaster.TriggerRequest) (jobmaster.TriggerResult, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.c.Dispatcher.Trigger(ctx, r.c.JobID, req)
}

func (r *rig) mustTrigger(req jobmaster.TriggerRequest) jobmaster.TriggerResult {
	r.t.Helper()
	res, err := r.trigger(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func TestDeployWiresTheGraph(t *testing.T) {
	tasks := make(chan *pb.TaskDeployment, 16)
	r := start(t, &jobtest.World{OnDeploy: func(d *pb.TaskDeployment) *pb.Failure { tasks <- d; return nil }}, nil, func(o *minicluster.Options) { o.TaskManagers = 3 })
	r.running()
	slots := map[string]bool{}
	for range 5 {
		d := <-tasks
		slots[d.GetExecutionId()] = true
		switch d.GetVertexId() {
		case jobtest.Op(1).String():
			if len(d.GetInputs()) != 0 || len(d.GetOutputs()) != 1 || d.GetOutputs()[0].GetSubpartitions() != 3 {
				t.Errorf("source is deployed as %v", d)
			}
		default:
			if len(d.GetInputs()) != 1 || len(d.GetInputs()[0].GetChannels()) != 2 {
				t.Fatalf("sink is deployed as %v", d)
			}
			for i, c := range d.GetInputs()[0].GetChannels() {
				want := fmt.Sprintf("%s_%d_0", jobtest.Op(1), i)
				if c.GetProducer() != want || c.GetSubpartition() != d.GetSubtask() || !strings.HasPrefix(c.GetAddress(), "data-of-taskmanager-") {
					t.Errorf("channel %d is %v, want producer %s", i, c, want)
				}
			}
		}
		if d.GetParallelism() < 2 || d.GetMaxParallelism() != 128 || len(d.GetRestore()) != 0 {
			t.Errorf("deployed as %v", d)
		}
	}
	if len(slots) != 5 {
		t.Errorf("%d distinct tasks, want 5", len(slots))
	}
}

func TestTaskFailureRestartsFromLatestCheckpoint(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	res := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
	w := r.w.Workers()[0]
	w.Fail(w.Tasks()[0], &pb.Failure{Message: "division by zero", Kind: "panic", Detail: "stack", Operator: "sum"})
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	starts := r.w.Starts()
	if len(starts) != 2 || starts[0].GetRestored() || !starts[1].GetRestored() || string(starts[1].GetStates()[jobtest.Op(1).String()]) != fmt.Sprintf("enum@%d", res.ID) {
		t.Fatalf("enumerators were started with %v", starts)
	}
	d := r.details()
	if d.Root == nil || d.Root.Message != "division by zero" || d.Root.Task == "" || d.Root.TaskManager == "" || d.Root.Operator != "sum" {
		t.Fatalf("root failure %+v", d.Root)
	}
	if d.Checkpoints.Counts.Completed != 1 || d.Checkpoints.Counts.Restored != 1 || d.Checkpoints.Latest.Restored == nil || d.Checkpoints.Latest.Restored.ID != res.ID {
		t.Fatalf("checkpoint statistics %+v", d.Checkpoints)
	}
	if len(r.w.Workers()) != 1 || r.w.Workers()[0] != w {
		t.Fatal("the worker did not stay up")
	}
}

func TestRestoreGivesTasksTheirState(t *testing.T) {
	var got metadata.Task
	seen := make(chan *pb.TaskDeployment, 32)
	r := start(t, &jobtest.World{OnDeploy: func(d *pb.TaskDeployment) *pb.Failure { seen <- d; return nil }}, nil)
	r.running()
	for range 5 {
		<-seen
	}
	res := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
	w := r.w.Workers()[0]
	w.Fail(w.Tasks()[0], &pb.Failure{Message: "x"})
	for range 5 {
		d := <-seen
		var err error
		if got, err = metadata.DecodeTask(d.GetRestore()); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d@%d", d.GetSubtask(), res.ID)
		if len(got.Operators) != 1 || string(got.Operators[0].State.Lists[0].Items[0]) != want || d.GetRestoredCheckpointId() != res.ID || d.GetAttempt() != 1 {
			t.Fatalf("restored %+v in %v, want %s", got, d, want)
		}
	}
}

func TestWorkerDeathIsReplacedAtOnce(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"restart-strategy.exponential-delay.initial-backoff": "1 h"}, func(o *minicluster.Options) { o.TaskManagers = 3 })
	r.running()
	workers := r.w.Workers()
	workers[0].Kill("killed by signal 9")
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	left := 0
	for _, w := range r.w.Workers() {
		if slices.Contains(workers, w) {
			left++
		}
	}
	if left != 2 || len(r.w.Workers()) != 3 {
		t.Fatalf("%d of the other workers stayed up, %d in all", left, len(r.w.Workers()))
	}
	if d := r.details(); !strings.Contains(d.Root.Message, "killed by signal 9") || d.Root.Kind != "worker" {
		t.Fatalf("root failure %+v", d.Root)
	}
	// The next death comes with progress in between, so it costs no pause either.
	r.mustTrigger(jobmaster.TriggerRequest{})
	r.w.Workers()[0].Kill("killed by signal 9")
	r.until("second restart", func() bool { return r.details().Restarts == 2 })
	r.running()
}

func TestTaskManagerDeathIsReplaced(t *testing.T) {
	r := start(t, &jobtest.World{}, nil, func(o *minicluster.Options) { o.TaskManagers = 3 })
	r.running()
	tms := r.c.Resources.TaskManagers()
	r.c.KillTaskManager(tms[1].ID)
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	now := r.c.Resources.TaskManagers()
	if len(now) != 3 || now[0].ID != tms[0].ID || now[1].ID != tms[2].ID {
		t.Fatalf("TaskManagers %v, before %v", now, tms)
	}
	if d := r.details(); d.Root.Kind != "taskmanager" || d.Root.TaskManager != tms[1].ID {
		t.Fatalf("root failure %+v", d.Root)
	}
}

func TestCoordinatorDeathRestartsTheJob(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	r.w.Coordinator().Kill("enumerator panicked")
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	if r.w.Launches() != 2 {
		t.Fatalf("%d coordinator processes", r.w.Launches())
	}
	if d := r.details(); !strings.Contains(d.Root.Message, "enumerator panicked") {
		t.Fatalf("root failure %+v", d.Root)
	}
}

// A coordinator process that is stopped keeps its connection; without it no checkpoint can be taken.
func TestSilentCoordinatorIsReplaced(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"heartbeat.timeout": "2 s"})
	r.running()
	if err := r.w.Coordinator().Link.Send(&pb.CoordinatorUp{}); err != nil { // the only beat
		t.Fatal(err)
	}
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	if d := r.details(); !strings.Contains(d.Root.Message, "heartbeat.timeout (2s)") || r.w.Launches() != 2 {
		t.Fatalf("root failure %+v, %d coordinator processes", d.Root, r.w.Launches())
	}
}

func TestPreflightFailureIsFinal(t *testing.T) {
	r := start(t, &jobtest.World{Preflight: &pb.Failure{Message: "topic orders does not exist", Fatal: true, Kind: "preflight"}}, nil)
	res := r.wait()
	if res.State != scheduler.JobFailed || res.Failure.Message != "topic orders does not exist" || r.w.Running() != 0 {
		t.Fatalf("result %+v", res)
	}
}

func TestRestartsRunOut(t *testing.T) {
	r := start(t, &jobtest.World{OnDeploy: func(d *pb.TaskDeployment) *pb.Failure {
		if d.GetVertexId() == jobtest.Op(2).String() && d.GetSubtask() == 1 {
			return &pb.Failure{Message: "always", Kind: "error"}
		}
		return nil
	}}, map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2", "restart-strategy.fixed-delay.delay": "1 ms"})
	res := r.wait()
	if res.State != scheduler.JobFailed || res.Failure.Message != "always" || !strings.Contains(res.Failure.Detail, "restart-strategy.fixed-delay.attempts") || res.Details.Restarts != 2 {
		t.Fatalf("result %+v %+v", res, res.Failure)
	}
	if res.Failure.Task != "Sum -> Sink: out (2/3)" {
		t.Fatalf("failure names task %q", res.Failure.Task)
	}
}

func TestFatalFailureIsNotRetried(t *testing.T) {
	r := start(t, &jobtest.World{OnDeploy: func(*pb.TaskDeployment) *pb.Failure {
		return &pb.Failure{Message: "state does not fit", Kind: "restore", Fatal: true}
	}}, nil)
	if res := r.wait(); res.State != scheduler.JobFailed || res.Details.Restarts != 0 {
		t.Fatalf("result %+v", res)
	}
}

func TestCancel(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"execution.checkpointing.interval": "1 h"})
	r.running()
	if err := r.c.Dispatcher.Cancel(r.c.JobID); err != nil {
		t.Fatal(err)
	}
	if res := r.wait(); res.State != scheduler.JobCanceled || !allTasks(res.Details, scheduler.TaskCanceled) {
		t.Fatalf("result %+v", res)
	}
	r.until("workers gone", func() bool { return len(r.w.Workers()) == 0 })
	if err := r.c.Dispatcher.Cancel(r.c.JobID); err == nil {
		t.Fatal("cancelling an ended job is no error")
	}
}

func TestStopWithSavepoint(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	dir := "file://" + filepath.Join(r.dir, "sp")
	res := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: dir, Drain: true})
	if got := r.wait(); got.State != scheduler.JobFinished {
		t.Fatalf("result %+v", got)
	}
	tr := r.w.Triggers()
	if len(tr) != 1 || !tr[0].GetSuspend() || !tr[0].GetDrain() || !tr[0].GetSavepoint() || len(r.w.Completed()) != 1 {
		t.Fatalf("triggers %v, completed %v", tr, r.w.Completed())
	}
	cp, err := storage.ReadMetadata(context.Background(), r.fs, res.Path)
	if err != nil || !cp.Savepoint || len(cp.Operators) != 2 {
		t.Fatalf("savepoint %+v: %v", cp, err)
	}
}

func TestSavepointDoesNotEndTheJob(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	dir := "file://" + filepath.Join(r.dir, "sp")
	res := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: dir})
	if !strings.HasPrefix(res.Path, dir+"/savepoint-") {
		t.Fatalf("path %s", res.Path)
	}
	if _, err := r.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint}); err == nil || !strings.Contains(err.Error(), "execution.checkpointing.savepoint-dir") {
		t.Fatalf("savepoint without a directory: %v", err)
	}
	if len(r.w.Completed()) != 0 || r.details().State != scheduler.JobRunning {
		t.Fatal("tasks were notified of a savepoint")
	}
	if err := r.c.Dispatcher.DisposeSavepoint(context.Background(), res.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := storage.ReadMetadata(context.Background(), r.fs, res.Path); err == nil {
		t.Fatal("the savepoint is still there")
	}
}

// A savepoint whose target can never work fails at once, in one line, and checkpoints go on.
func TestSavepointThatCannotBeWrittenFailsAtOnce(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"execution.checkpointing.timeout": "1 h"})
	r.running()
	file := filepath.Join(r.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"file://" + file: "not a directory", "file://" + file + "/below": "not a directory", "hfds://nn/sp": "no file system for this scheme",
		"file://elsewhere/sp": "names the host"} {
		_, err := r.trigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: target})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("savepoint to %s: %v, want one line with %q", target, err, want)
		}
		if res := r.mustTrigger(jobmaster.TriggerRequest{}); res.Err != nil {
			t.Errorf("checkpoint after it: %v", res.Err)
		}
	}
	if d := r.details(); d.State != scheduler.JobRunning || d.Restarts != 0 {
		t.Fatalf("the job is %s after %d restarts", d.State, d.Restarts)
	}
}

// The second of two stops is told what happens, and not that the tasks do not run.
func TestStopWhileStopping(t *testing.T) {
	r := start(t, &jobtest.World{Mute: func(int64) bool { return true }}, map[string]string{"execution.checkpointing.interval": "1 h"})
	r.running()
	stop := jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: "file://" + filepath.Join(r.dir, "sp")}
	ctx, cancel := context.WithCancel(context.Background())
	var first sync.WaitGroup
	first.Go(func() { _, _ = r.c.Dispatcher.Trigger(ctx, r.c.JobID, stop) })
	r.until("the first stop is under way", func() bool { return len(r.w.Triggers()) > 0 })
	if _, err := r.trigger(stop); !errors.Is(err, coordinator.ErrStopping) {
		t.Error(err)
	}
	cancel()
	first.Wait()
}

// Row 22: started from a savepoint, fails before the first checkpoint of its own, starts again from the savepoint.
func TestFailureBeforeFirstCheckpointStartsAgainFromSavepoint(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	sp := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: "file://" + filepath.Join(r.dir, "sp")})
	r.wait()

	seen := make(chan *pb.TaskDeployment, 32)
	r2 := start(t, &jobtest.World{OnDeploy: func(d *pb.TaskDeployment) *pb.Failure { seen <- d; return nil }},
		map[string]string{"execution.state-recovery.path": sp.Path, "execution.checkpointing.interval": "1 h"})
	r2.running()
	check := func(attempt int32) {
		for range 5 {
			d := <-seen
			got, err := metadata.DecodeTask(d.GetRestore())
			if err != nil || len(got.Operators) != 1 || d.GetAttempt() != attempt || d.GetRestoredCheckpointId() != sp.ID {
				t.Fatalf("restored %+v (%v) in %v", got, err, d)
			}
		}
	}
	check(0)
	r2.w.Workers()[0].Kill("killed")
	r2.until("restart", func() bool { return r2.details().Restarts == 1 })
	r2.running()
	check(1)
	if s := r2.w.Starts(); len(s) != 2 || string(s[1].GetStates()[jobtest.Op(1).String()]) != fmt.Sprintf("enum@%d", sp.ID) {
		t.Fatalf("enumerators started with %v", s)
	}
}

func TestMisfitIsRefusedBeforeAnyTaskRuns(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.running()
	sp := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: "file://" + filepath.Join(r.dir, "sp")})
	w := &jobtest.World{}
	r2 := start(t, w, map[string]string{"execution.state-recovery.path": sp.Path}, func(o *minicluster.Options) {
		o.Graph.Vertices[1].Operators[0].ID = jobtest.Op(9)
		o.Graph.Vertices[1].Operators[0].UID = "other"
	})
	res := r2.wait()
	if res.State != scheduler.JobFailed || !strings.Contains(res.Failure.Message, "allowNonRestoredState") || w.Launches() != 0 {
		t.Fatalf("result %+v", res.Failure)
	}
}

// The enumerator's event that follows its snapshot must reach the worker after the trigger of that checkpoint.
func TestEventsAfterTheSnapshotFollowTheTrigger(t *testing.T) {
	r := start(t, &jobtest.World{}, nil, func(o *minicluster.Options) { o.TaskManagers = 1 })
	r.running()
	c := r.w.Coordinator()
	ev := func(text string) *pb.OperatorEvent {
		return &pb.OperatorEvent{OperatorId: jobtest.Op(1).String(), Subtask: 1, Attempt: 0, Payload: []byte(text)}
	}
	c.Event(ev("before"))
	c.Event(&pb.OperatorEvent{OperatorId: jobtest.Op(1).String(), Subtask: 1, Attempt: 7, Payload: []byte("of another attempt")})
	c.AfterSnapshot(ev("after"))
	r.mustTrigger(jobmaster.TriggerRequest{})
	r.until("events", func() bool { return len(r.w.Events()) >= 3 })
	if got := r.w.Events(); !slices.Equal(got, []string{"event before", "trigger 1", "event after"}) {
		t.Fatalf("order %v", got)
	}
	if n := len(c.Ready()); n != 2 {
		t.Fatalf("%d subtasks are ready, want 2", n)
	}
}

func TestPeriodicCheckpoints(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"execution.checkpointing.interval": "10 ms"})
	r.until("three checkpoints", func() bool { d := r.details(); return d.Checkpoints != nil && d.Checkpoints.Counts.Completed >= 3 })
}

// lines collects a log.
type lines struct{ all []map[string]any }

func (l *lines) Write(b []byte) (int, error) {
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return 0, err
	}
	l.all = append(l.all, m)
	return len(b), nil
}

func (l *lines) of(message string) (out []map[string]any) {
	for _, m := range l.all {
		if m["message"] == message {
			out = append(out, m)
		}
	}
	return out
}

func TestCheckpointTimeoutsFailTheJob(t *testing.T) {
	log := &lines{}
	r := start(t, &jobtest.World{Mute: func(int64) bool { return true }}, map[string]string{"execution.checkpointing.interval": "5 ms",
		"execution.checkpointing.timeout": "20 ms", "execution.checkpointing.tolerable-failed-checkpoints": "1", "restart-strategy.type": "none"},
		func(o *minicluster.Options) { o.Logger = zerolog.New(zerolog.SyncWriter(log)) })
	res := r.wait()
	if res.State != scheduler.JobFailed || res.Failure.Kind != "checkpoint" {
		t.Fatalf("result %+v %+v", res, res.Failure)
	}
	if len(r.w.Aborted()) < 2 {
		t.Fatalf("%d checkpoints aborted", len(r.w.Aborted()))
	}
	r.c.Close()
	// Each abort is told once, with its reason.
	told := map[float64]int{}
	for _, l := range log.of("checkpoint aborted") {
		told[l["checkpoint_id"].(float64)]++
		if reason, _ := l["reason"].(string); l["level"] != "warn" || !strings.Contains(reason, "0 of 5 tasks had answered") {
			t.Errorf("%v", l)
		}
	}
	if len(told) < 2 {
		t.Errorf("told %v", told)
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("checkpoint %v: told %d times", id, n)
		}
	}
}

func TestGraphMismatchIsFatal(t *testing.T) {
	w := &jobtest.World{}
	r := start(t, w, nil, func(o *minicluster.Options) {
		run := o.RunWorker
		o.RunWorker = func(ctx context.Context, link workerLink, cfg processConfig) error {
			cfg.Fingerprint = "another"
			return run(ctx, link, cfg)
		}
	})
	res := r.wait()
	if res.State != scheduler.JobFailed || res.Failure.Kind != "graph" || !strings.Contains(res.Failure.Message, "another") {
		t.Fatalf("result %+v", res.Failure)
	}
}

func TestWorkerThatNeverComesUpIsPacedByTheStrategy(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "3", "restart-strategy.fixed-delay.delay": "1 ms"},
		func(o *minicluster.Options) {
			o.RunWorker = func(context.Context, workerLink, processConfig) error { return fmt.Errorf("missing shared library") }
		})
	res := r.wait()
	if res.State != scheduler.JobFailed || !strings.Contains(res.Failure.Message, "missing shared library") || res.Details.Restarts != 3 {
		t.Fatalf("result %+v %+v", res, res.Failure)
	}
}

func TestStuckTasksLoseTheirWorker(t *testing.T) {
	w := &jobtest.World{}
	r := start(t, w, nil, func(o *minicluster.Options) { o.TaskManagers, o.CancelTimeout = 3, 50*time.Millisecond })
	r.running()
	workers := w.Workers()
	w.SetStuck(workers[1])
	workers[0].Fail(workers[0].Tasks()[0], &pb.Failure{Message: "x"})
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	now := w.Workers()
	if slices.Contains(now, workers[1]) || !slices.Contains(now, workers[0]) || !slices.Contains(now, workers[2]) {
		t.Fatal("the worker with the stuck task, and no other, was to be replaced")
	}
}
