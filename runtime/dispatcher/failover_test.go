package dispatcher_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

func TestMain(m *testing.M) {
	if os.Getenv(rpc.EnvRole) == rpc.RoleCoordinator {
		coordinator(os.Args[1])
		return
	}
	goleak.VerifyTestMain(m)
}

// world is what outlives an application master: the store, the TaskManagers with their workers, the job's scripted processes.
type world struct {
	t    *testing.T
	dir  string
	fs   *fs.Registry
	jobs *jobtest.World
	conf config.Configuration
	log  zerolog.Logger
	// onEnd, if set, is called before a job's result is stored, with its pointer.
	onEnd func(ha.Pointer)

	mu     sync.Mutex
	leader *master
	accept sync.WaitGroup
}

// master is one application attempt.
type master struct {
	epoch int64
	store ha.Store
	rm    *resourcemanager.Manager
	d     *dispatcher.Dispatcher
	fatal chan error
	links []rpc.TaskManagerLink
	dead  atomic.Bool // it says nothing any more
}

// mortalLink is the end of a process that may die, and then says nothing.
type mortalLink struct {
	rpc.TaskManagerLink
	dead *atomic.Bool
}

func (l mortalLink) Send(d *pb.TaskManagerDown) error {
	if l.dead.Load() {
		return nil
	}
	return l.TaskManagerLink.Send(d)
}

func (l mortalLink) SendWait(ctx context.Context, d *pb.TaskManagerDown) error {
	if l.dead.Load() {
		return nil
	}
	return l.TaskManagerLink.SendWait(ctx, d)
}

func newWorld(t *testing.T, tms int) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), fs: &fs.Registry{}, jobs: &jobtest.World{}, log: zerolog.New(zerolog.NewTestWriter(t))}
	local.Register(w.fs)
	w.conf = config.Configuration{"execution.checkpointing.dir": "file://" + w.dir + "/ckp", "execution.checkpointing.interval": "1 h", "heartbeat.interval": "50 ms"}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range tms {
		tm, err := taskmanager.New(taskmanager.Options{ID: fmt.Sprintf("container_%d", i+1), Host: "nm1", Slots: 1, MemoryBytes: 1 << 30, Cores: 1, Dirs: []string{filepath.Join(w.dir, "local")},
			Launcher: taskmanager.InProcess{Run: w.jobs.RunWorker}, LookupInterval: 2 * time.Millisecond, Logger: w.log,
			Leader: func(context.Context) (taskmanager.Leader, error) {
				if m := w.current(); m != nil {
					return taskmanager.Leader{Address: "am", Epoch: m.epoch}, nil
				}
				return taskmanager.Leader{}, errors.New("no leader")
			},
			Connect: func(context.Context, taskmanager.Leader) (taskmanager.Connection, error) {
				m := w.current()
				if m == nil {
					return taskmanager.Connection{}, errors.New("connection refused")
				}
				low, high := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
				w.mu.Lock()
				m.links = append(m.links, high)
				w.mu.Unlock()
				w.accept.Go(func() { m.rm.Accept(mortalLink{high, &m.dead}, "pipe") })
				return taskmanager.Connection{Link: low}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := tm.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait(); w.accept.Wait() })
	return w
}

func (w *world) current() *master {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leader
}

func (w *world) lead(m *master) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leader = m
}

// attempt starts an application attempt that leads.
func (w *world) attempt() *master {
	w.t.Helper()
	ctx := context.Background()
	m := &master{fatal: make(chan error, 1), store: endWatch{ha.NewFileStore(local.New(), filepath.Join(w.dir, "ha"), w.log), w.onEnd}}
	var err error
	if m.epoch, err = m.store.AcquireEpoch(ctx, "test"); err != nil {
		w.t.Fatal(err)
	}
	m.rm = resourcemanager.New(resourcemanager.Options{Config: w.conf, Driver: resourcemanager.Standalone{}, Epoch: m.epoch, Spec: resourcemanager.WorkerSpec{Slots: 1}, Logger: w.log,
		OnFatal: func(err error) { m.fatal <- err }})
	if err := m.rm.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	m.d = dispatcher.New(dispatcher.Options{Config: w.conf, Resources: m.rm, Store: m.store, FS: w.fs, Launcher: dispatcher.InProcess{Run: w.jobs.RunCoordinator}, Epoch: m.epoch, Logger: w.log})
	w.t.Cleanup(m.close)
	w.lead(m)
	return m
}

func (m *master) close() {
	m.d.Close()
	_ = m.rm.Close()
}

// cut breaks the links of an attempt, as a network does that lets the TaskManagers reach another host only.
func (w *world) cut(m *master) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range m.links {
		l.Close(errors.New("cut"))
	}
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("timed out waiting for: %s", what)
		}
		jobtest.Pause()
	}
}

func (w *world) running(m *master, id graph.JobID) *jobmaster.Details {
	w.t.Helper()
	var d *jobmaster.Details
	w.until("all tasks running", func() bool {
		var err error
		if d, err = m.d.Details(context.Background(), id); err != nil {
			w.t.Fatal(err)
		}
		n := 0
		for _, v := range d.Vertices {
			for _, t := range v.Tasks {
				if t.State == scheduler.TaskRunning {
					n++
				}
			}
		}
		return n == 5
	})
	return d
}

func (w *world) submit(m *master) graph.JobID {
	w.t.Helper()
	id, err := m.d.Submit(context.Background(), dispatcher.Submission{Graph: jobtest.Graph(2, 3)})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// failover ends an attempt as a crash does, and starts the next one.
func (w *world) failover(m1 *master, id graph.JobID) *master {
	w.t.Helper()
	w.lead(nil)
	m1.dead.Store(true)
	m1.d.Close() // before it sees the TaskManagers go
	w.cut(m1)    // the TaskManagers and the workers live
	m1.close()
	m2 := w.attempt()
	ids, err := m2.d.Recover(context.Background(), nil)
	if err != nil || len(ids) != 1 || ids[0] != id {
		w.t.Fatalf("recovered %v, %v", ids, err)
	}
	return m2
}

// tasks lists the executions that the workers have.
func (w *world) tasks() (ids []string) {
	for _, k := range w.jobs.Workers() {
		ids = append(ids, k.Tasks()...)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) checkpoint(m *master, id graph.JobID) int64 {
	w.t.Helper()
	ck, err := m.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return ck.ID
}

// The second attempt goes on with the tasks of the first one as they are: no task is deployed, no restart is counted and no failure recorded,
// what was under way is given up, and checkpoints go on with other numbers.
func TestNextAttemptAdoptsTheTasks(t *testing.T) {
	w := newWorld(t, 3)
	var muted atomic.Int64
	w.jobs.Mute = func(id int64) bool { return muted.CompareAndSwap(-1, id) }
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	last := w.checkpoint(m1, id)
	muted.Store(-1) // the next one stays under way
	m1.d.TriggerAsync(id, jobmaster.TriggerRequest{})
	w.until("a checkpoint under way", func() bool { return muted.Load() > last })
	before := w.tasks()
	w.jobs.SetOnDeploy(func(d *pb.TaskDeployment) *pb.Failure {
		t.Errorf("%s is deployed", d.GetExecutionId())
		return nil
	})
	m := m1
	for range 2 {
		m = w.failover(m, id)
		d := w.running(m, id)
		if now := w.tasks(); !slices.Equal(now, before) {
			t.Fatalf("tasks %v, were %v", now, before)
		}
		if d.State != scheduler.JobRunning || d.Restarts != 0 || len(d.History) != 0 || d.Adopted != 5 {
			t.Errorf("job %s, %d restarts, failures %v, %d adopted", d.State, d.Restarts, d.History, d.Adopted)
		}
		starts := w.jobs.Starts()
		start := starts[len(starts)-1]
		if got := string(start.GetStates()[jobtest.Op(1).String()]); got != fmt.Sprintf("enum@%d", last) || start.GetAttempt() != 0 || !start.GetRestored() {
			t.Errorf("enumerators begin with %q for attempt %d", got, start.GetAttempt())
		}
		if under := muted.Load(); under > last {
			w.until("the end of the checkpoint that was under way", func() bool {
				return slices.ContainsFunc(w.jobs.Aborted(), func(n *pb.CheckpointNotice) bool { return n.GetCheckpointId() == under })
			})
		}
		next := w.checkpoint(m, id)
		if next <= last || next <= muted.Load() {
			t.Errorf("checkpoint %d follows %d and %d", next, last, muted.Load())
		}
		last = next
	}
	if got := len(w.jobs.Adopted()); got != 10 {
		t.Errorf("%d tasks were told to go on, want 5 twice", got)
	}
	// A task that fails now restarts the job as any.
	w.jobs.SetOnDeploy(nil)
	for _, k := range w.jobs.Workers() {
		if ids := k.Tasks(); len(ids) > 0 {
			k.Fail(ids[0], &pb.Failure{Message: "boom", Kind: "error"})
			break
		}
	}
	w.until("a restart", func() bool {
		d, err := m.d.Details(context.Background(), id)
		return err == nil && d.Restarts == 1
	})
	d := w.running(m, id)
	if d.History[0].Failure.Message != "boom" {
		t.Errorf("history %+v", d.History)
	}
	// The next attempt tells what its tasks were restored from, since which they count.
	before = w.tasks()
	w.checkpoint(m, id)
	m = w.failover(m, id)
	if d = w.running(m, id); !slices.Equal(w.tasks(), before) || d.Checkpoints.Latest.Restored == nil || d.Checkpoints.Latest.Restored.ID != last || d.Checkpoints.Counts.Restored != 0 {
		t.Errorf("tasks %v, were %v; restored %+v, want checkpoint %d", w.tasks(), before, d.Checkpoints.Latest.Restored, last)
	}
}

// A checkpoint that is complete is told of by the next attempt when the first one could not.
func TestNextAttemptTellsOfACompleteCheckpoint(t *testing.T) {
	w := newWorld(t, 3)
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	last := w.checkpoint(m1, id)
	w.until("the notices", func() bool { return len(w.jobs.Completed()) == 3 })
	w.failover(m1, id)
	w.until("notices again", func() bool { return len(w.jobs.Completed()) == 6 })
	for _, c := range w.jobs.Completed() {
		if c != last {
			t.Errorf("%d is complete, want %d", c, last)
		}
	}
}

// Where the next attempt cannot know that the tasks are whole and agree with the latest checkpoint, the job restarts from that.
func TestNextAttemptRestartsWhatItCannotAdopt(t *testing.T) {
	var muted atomic.Bool
	for name, spoil := range map[string]func(w *world, m *master, id graph.JobID){
		"a split was assigned since": func(w *world, _ *master, _ graph.JobID) {
			payload := []byte(`{"assign":[{"ID":"s"}]}`)
			w.jobs.Coordinator().Event(&pb.OperatorEvent{OperatorId: jobtest.Op(1).String(), Subtask: 1, Payload: payload})
			w.until("the event", func() bool { return slices.Contains(w.jobs.Events(), "event "+string(payload)) })
		},
		"a worker died while nobody led": func(w *world, m *master, _ graph.JobID) {
			w.lead(nil)
			m.close()
			k := w.jobs.Workers()[0]
			k.Kill("killed")
			w.until("its end", func() bool { return len(w.jobs.Workers()) == 2 })
		},
		"a task failed while nobody led": func(w *world, m *master, _ graph.JobID) {
			w.lead(nil)
			m.close()
			k := w.jobs.Workers()[0]
			k.Fail(k.Tasks()[0], &pb.Failure{Message: "boom", Kind: "error"})
		},
		"the job was being stopped": func(w *world, m *master, id graph.JobID) {
			muted.Store(true)
			before := len(w.jobs.Triggers())
			m.d.TriggerAsync(id, jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: "file://" + w.dir + "/sp"})
			w.until("the trigger", func() bool { return len(w.jobs.Triggers()) > before })
		},
		"workers do not answer": func(w *world, _ *master, _ graph.JobID) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			muted.Store(false)
			w.jobs.Mute = func(int64) bool { return muted.Load() }
			w.conf["resourcemanager.previous-worker.recovery.timeout"] = "300 ms"
			w.jobs.Deaf = name == "workers do not answer"
			m1 := w.attempt()
			id := w.submit(m1)
			w.running(m1, id)
			w.checkpoint(m1, id)
			spoil(w, m1, id)
			m2 := w.failover(m1, id)
			d := w.running(m2, id)
			for _, v := range d.Vertices {
				for _, x := range v.Tasks {
					if x.ID.Attempt < 1<<20 {
						t.Errorf("%s is of the first attempt", x.ID)
					}
				}
			}
			w.until("the old tasks' end", func() bool { return w.jobs.Running() == 5 })
			muted.Store(false)
			w.checkpoint(m2, id)
		})
	}
}

// Row 08: the second attempt takes the surviving TaskManagers and their workers over, and restores the latest checkpoint.
func TestNextAttemptResumesOnTheSameTaskManagers(t *testing.T) {
	w := newWorld(t, 3)
	w.jobs.Deaf = true
	w.conf["resourcemanager.previous-worker.recovery.timeout"] = "100 ms"
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	workers := w.jobs.Workers()
	if len(workers) != 3 {
		t.Fatalf("%d workers", len(workers))
	}
	secret := workers[0].Cfg.DataSecret
	ck, err := m1.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan *pb.TaskDeployment, 16)
	w.jobs.SetOnDeploy(func(d *pb.TaskDeployment) *pb.Failure { seen <- d; return nil })
	m2 := w.failover(m1, id)
	w.running(m2, id)
	for range 5 {
		d := <-seen
		st, err := metadata.DecodeTask(d.GetRestore())
		if err != nil || d.GetRestoredCheckpointId() != ck.ID || len(st.Operators) != 1 || d.GetAttempt() < 1<<20 {
			t.Fatalf("deployed %v (%v), want state of checkpoint %d and an attempt of the second epoch", d, err, ck.ID)
		}
	}
	now := w.jobs.Workers()
	if len(now) != 3 {
		t.Fatalf("%d workers after the failover", len(now))
	}
	for _, k := range now {
		found := false
		for _, old := range workers {
			found = found || old == k
		}
		if !found {
			t.Fatal("a worker was replaced")
		}
		if n := len(k.Tasks()); n > 2 {
			t.Fatalf("a worker has %d tasks: those of the first attempt were not cancelled", n)
		}
	}
	next, err := m2.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil || next.ID <= ck.ID {
		t.Fatalf("next checkpoint %+v, %v", next, err)
	}

	// A worker that is started now and those that lived on know the same secret.
	now[0].Kill("killed")
	w.until("another worker", func() bool { return len(w.jobs.Workers()) == 3 && !slices.Contains(w.jobs.Workers(), now[0]) })
	w.running(m2, id)
	for _, k := range w.jobs.Workers() {
		if !bytes.Equal(k.Cfg.DataSecret, secret) {
			t.Errorf("a worker has another secret than those of the first attempt")
		}
	}
}

func TestEachJobHasASecretOfItsOwn(t *testing.T) {
	w := newWorld(t, 6)
	m := w.attempt()
	w.running(m, w.submit(m))
	w.running(m, w.submit(m))
	jobs := map[string][]byte{}
	for _, k := range w.jobs.Workers() {
		s := k.Cfg.DataSecret
		if len(s) != 32 || bytes.Count(s, []byte{0}) > 16 {
			t.Fatalf("a secret of %d bytes", len(s))
		}
		if old := jobs[k.Cfg.JobID]; old != nil && !bytes.Equal(old, s) {
			t.Error("the workers of a job have different secrets")
		}
		jobs[k.Cfg.JobID] = s
	}
	var all [][]byte
	for _, s := range jobs {
		all = append(all, s)
	}
	if len(all) != 2 || bytes.Equal(all[0], all[1]) {
		t.Errorf("%d jobs, or one secret for both", len(all))
	}
	for p, b := range w.stored() {
		if bytes.Contains(b, []byte(base64.StdEncoding.EncodeToString(all[0]))) && p.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can read %s, which holds a secret: %s", p.Name(), p.Mode())
		}
	}
}

// stored reads all files of the store.
func (w *world) stored() map[iofs.FileInfo][]byte {
	w.t.Helper()
	out := map[iofs.FileInfo][]byte{}
	err := filepath.WalkDir(filepath.Join(w.dir, "ha"), func(p string, d iofs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		out[info] = b
		return err
	})
	if err != nil || len(out) == 0 {
		w.t.Fatalf("%d files: %v", len(out), err)
	}
	return out
}

// Checkpoints of the next attempt tell the parallelism that was asked of the one before, which is not that of the submitted graph. State
// that is said to be of another parallelism than its subtasks is dealt out wrongly, or not at all. Found by test/sim.
func TestNextAttemptsCheckpointsTellTheParallelismThatWasAskedFor(t *testing.T) {
	w := newWorld(t, 3)
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	required := scheduler.Requirements{}
	for _, v := range jobtest.Graph(2, 3).Vertices {
		required[v.ID] = scheduler.Bounds{Lower: 5 - v.Parallelism, Upper: 5 - v.Parallelism} // 3 and 2
	}
	if err := m1.d.Require(context.Background(), id, required); err != nil {
		t.Fatal(err)
	}
	w.lead(nil)
	m1.close()
	m2 := w.attempt()
	if _, err := m2.d.Recover(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	w.running(m2, id)
	ck, err := m2.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := storage.ReadMetadata(context.Background(), w.fs, ck.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.Operators {
		if want := required[graph.VertexID(o.ID)].Upper; o.Parallelism != want || len(o.Subtasks) != want {
			t.Errorf("operator %s is said to have the parallelism %d, and %d subtasks; it has %d", o.Name, o.Parallelism, len(o.Subtasks), want)
		}
	}
}

// An attempt that was superseded, and ends the job as it sees it, removes nothing that the next one goes on with: what it has no right to
// end is not its own any more. Found by test/sim.
func TestStaleAttemptThatEndsTheJobRemovesNoCheckpoint(t *testing.T) {
	w := newWorld(t, 3)
	w.conf["execution.checkpointing.externalized-checkpoint-retention"] = "delete_on_cancellation"
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	ck, err := m1.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	m2 := w.attempt() // leads now; the first one does not know
	if _, _, err := m2.store.OpenJob(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	if err := m1.d.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if _, err := m1.d.Wait(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	p, err := m2.store.Pointer(context.Background(), id)
	if err != nil || p.ID != ck.ID {
		t.Fatalf("pointer %+v, %v; want checkpoint %d", p, err, ck.ID)
	}
	if _, err := storage.ReadMetadata(context.Background(), w.fs, p.Dir); err != nil {
		t.Errorf("the next attempt has nothing to go on with: %v", err)
	}
}

// The store knows that a job has ended before its checkpoints go: an attempt that dies in between leaves no job that cannot be restored.
// Found by test/sim.
func TestResultIsStoredBeforeCheckpointsAreRemoved(t *testing.T) {
	w := newWorld(t, 3)
	w.conf["execution.checkpointing.externalized-checkpoint-retention"] = "delete_on_cancellation"
	seen := make(chan error, 1)
	w.onEnd = func(p ha.Pointer) {
		_, err := storage.ReadMetadata(context.Background(), w.fs, p.Dir)
		seen <- err
	}
	m := w.attempt()
	id := w.submit(m)
	w.running(m, id)
	ck, err := m.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.d.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if _, err := m.d.Wait(context.Background(), id); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Errorf("when the result is stored, the checkpoint is gone already: %v", err)
	}
	if _, err := storage.ReadMetadata(context.Background(), w.fs, ck.Path); !errors.Is(err, storage.ErrNoCheckpoint) {
		t.Errorf("the checkpoint of the cancelled job is still there: %v", err)
	}
}

// endWatch is a store that tells of the pointer that a job has when it is about to end.
type endWatch struct {
	ha.Store
	onEnd func(ha.Pointer)
}

func (s endWatch) EndJob(ctx context.Context, id graph.JobID, r ha.Result) error {
	if p, err := s.Pointer(ctx, id); err == nil && s.onEnd != nil {
		s.onEnd(p)
	}
	return s.Store.EndJob(ctx, id, r)
}

// A stale attempt that still runs can neither complete a checkpoint nor get its TaskManagers back.
func TestStaleAttemptIsFenced(t *testing.T) {
	w := newWorld(t, 3)
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)

	m2 := w.attempt() // leads now; the first one does not know
	w.cut(m1)
	if _, err := m2.d.Recover(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	w.running(m2, id)

	// TaskManagers do not serve the first attempt, even when they are led to it.
	w.lead(m1)
	w.cut(m2)
	select {
	case err := <-m1.fatal:
		if !errors.Is(err, resourcemanager.ErrFenced) {
			t.Fatalf("fatal: %v", err)
		}
	case <-time.After(100 * time.Millisecond):
		// They do not even dial an address whose epoch is known to be lower.
	}
	w.lead(m2)
	w.until("the restart", func() bool { d, err := m2.d.Details(context.Background(), id); return err == nil && d.Restarts > 0 }) // it knows of the cut
	w.running(m2, id)
	if n := len(m1.rm.TaskManagers()); n != 0 {
		t.Fatalf("the stale attempt has %d TaskManagers", n)
	}
	if _, err := m2.d.Trigger(context.Background(), id, jobmaster.TriggerRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := m1.store.CheckEpoch(context.Background()); !errors.Is(err, ha.ErrFenced) {
		t.Fatalf("the stale attempt's store: %v", err)
	}
}

func TestResultIsStoredAndJobIsNotRunAgain(t *testing.T) {
	w := newWorld(t, 3)
	m1 := w.attempt()
	id := w.submit(m1)
	w.running(m1, id)
	if err := m1.d.Cancel(id); err != nil {
		t.Fatal(err)
	}
	r, err := m1.d.Wait(context.Background(), id)
	if err != nil || r.State != scheduler.JobCanceled {
		t.Fatalf("%+v, %v", r, err)
	}
	if st, text := dispatcher.FinalStatus(r); st != resourcemanager.StatusKilled || text == "" {
		t.Errorf("final status %s %q", st, text)
	}
	w.lead(nil)
	m1.close()
	m2 := w.attempt()
	if ids, err := m2.d.Recover(context.Background(), nil); err != nil || len(ids) != 0 {
		t.Fatalf("recovered %v, %v", ids, err)
	}
	res, err := m2.store.Results(context.Background())
	if err != nil || res[id].State != "CANCELED" {
		t.Fatalf("results %v, %v", res, err)
	}
}

func TestSubmitErrors(t *testing.T) {
	w := newWorld(t, 1)
	m := w.attempt()
	if _, err := m.d.Submit(context.Background(), dispatcher.Submission{}); err == nil {
		t.Error("a job without a graph was taken")
	}
	if _, err := m.d.Details(context.Background(), graph.JobID{}); !errors.Is(err, dispatcher.ErrUnknownJob) {
		t.Errorf("unknown job: %v", err)
	}
	m.d.Close()
	if _, err := m.d.Submit(context.Background(), dispatcher.Submission{Graph: jobtest.Graph(1, 1)}); !errors.Is(err, dispatcher.ErrClosed) {
		t.Errorf("submit after Close: %v", err)
	}
}
