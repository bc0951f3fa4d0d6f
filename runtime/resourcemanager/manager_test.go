package resourcemanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// driver records what it is told.
type driver struct {
	mu         sync.Mutex
	events     resourcemanager.Events
	previous   []resourcemanager.WorkerID
	requests   []int
	released   []resourcemanager.WorkerID
	registered []resourcemanager.WorkerID
	final      resourcemanager.FinalStatus
}

func (d *driver) Start(_ context.Context, e resourcemanager.Events) ([]resourcemanager.WorkerID, error) {
	d.events = e
	return d.previous, nil
}
func (d *driver) RequestWorkers(_ resourcemanager.WorkerSpec, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, n)
}
func (d *driver) ReleaseWorker(id resourcemanager.WorkerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = append(d.released, id)
}
func (d *driver) WorkerRegistered(id resourcemanager.WorkerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered = append(d.registered, id)
}
func (d *driver) Deregister(_ context.Context, s resourcemanager.FinalStatus, _ string) error {
	d.final = s
	return nil
}
func (d *driver) Close() error { return nil }

func (d *driver) asked() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests)
}

func (d *driver) releases() []resourcemanager.WorkerID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.released)
}

// ear is a job that records what it hears, as lines.
type ear struct {
	mu    sync.Mutex
	lines []string
	slots []resourcemanager.Slot
}

func (e *ear) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, fmt.Sprintf(format, args...))
}
func (e *ear) SlotsChanged(s []resourcemanager.Slot) {
	e.mu.Lock()
	e.slots = s
	e.mu.Unlock()
	e.add("slots %d", len(s))
}
func (e *ear) TaskManagerLost(id, reason string) { e.add("lost %s: %s", id, reason) }
func (e *ear) TaskManagerExit(id string, x resourcemanager.Exit) {
	e.add("exit %s: %d %s", id, x.Code, x.Text)
}
func (e *ear) FromWorker(tm string, up *pb.WorkerUp) {
	e.add("worker of %s: %d", tm, up.GetHello().GetPid())
}
func (e *ear) WorkerExited(tm string, x *pb.WorkerExited) {
	e.add("worker of %s exited: %d", tm, x.GetExitCode())
}
func (e *ear) owned() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.slots)
}
func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lines)
}
func (e *ear) heard(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.lines, func(l string) bool { return strings.Contains(l, text) })
}

type rig struct {
	t     *testing.T
	d     *driver
	m     *resourcemanager.Manager
	wg    sync.WaitGroup
	fatal chan error
}

func start(t *testing.T, slots int, conf map[string]string, change ...func(*driver)) *rig {
	t.Helper()
	r := &rig{t: t, d: &driver{}, fatal: make(chan error, 1)}
	for _, f := range change {
		f(r.d)
	}
	c := config.Configuration{"heartbeat.interval": "10 ms", "heartbeat.timeout": "1 min"}
	for k, v := range conf {
		c[k] = v
	}
	r.m = resourcemanager.New(resourcemanager.Options{Config: c, Driver: r.d, Epoch: 5, Spec: resourcemanager.WorkerSpec{Slots: slots}, Logger: zerolog.New(zerolog.NewTestWriter(t)),
		OnFatal: func(err error) { r.fatal <- err }})
	if err := r.m.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.m.Close(); err != nil {
			t.Error(err)
		}
		r.wg.Wait()
	})
	return r
}

// tm registers a TaskManager and returns its link once it has been answered.
func (r *rig) tm(id string, slots int32, change ...func(*pb.RegisterTaskManager)) (rpc.TaskManagerUplink, *pb.TaskManagerDown) {
	r.t.Helper()
	low, high := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
	r.wg.Go(func() { r.m.Accept(high, "10.0.0.1:1"); <-high.Done() })
	r.t.Cleanup(func() { low.Close(nil); <-low.Done() })
	reg := &pb.RegisterTaskManager{Id: id, Host: "nm1", Slots: slots, Protocol: version.Protocol, Version: version.Version}
	for _, f := range change {
		f(reg)
	}
	if err := low.Send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Register{Register: reg}}); err != nil {
		r.t.Fatal(err)
	}
	down, err := low.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.TaskManagers() // takes the lock: the registration is through
	return low, down
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("timed out waiting for: %s (asked %v)", what, r.d.asked())
		}
		jobtest.Pause()
	}
}

func (r *rig) wantAsked(want ...int) {
	r.t.Helper()
	if got := r.d.asked(); !slices.Equal(got, want) {
		r.t.Fatalf("the driver was asked for %v workers, want %v", got, want)
	}
}

func TestSlotsAndWorkers(t *testing.T) {
	r := start(t, 2, nil)
	job := &ear{}
	r.m.RegisterJob("j1", job)
	r.m.Declare("j1", 5)
	r.wantAsked(3) // two slots each
	r.m.Declare("j1", 5)
	r.wantAsked(3)
	_, down := r.tm("c1", 2)
	if reg := down.GetRegistered(); reg.GetEpoch() != 5 || reg.GetHeartbeatIntervalMs() != 10 {
		t.Fatalf("answer %v", down)
	}
	r.tm("c2", 2)
	l3, _ := r.tm("c3", 2)
	if job.owned() != 5 {
		t.Fatalf("%d slots", job.owned())
	}
	r.wantAsked(3)
	if got := r.m.TaskManagers(); len(got) != 3 || got[0].FreeSlots+got[1].FreeSlots+got[2].FreeSlots != 1 || r.m.Pending() != 0 {
		t.Fatalf("TaskManagers %+v", got)
	}
	// A second job takes the free slot, and waits for another worker.
	other := &ear{}
	r.m.RegisterJob("j2", other)
	r.m.Declare("j2", 2)
	if other.owned() != 1 {
		t.Fatalf("%d slots", other.owned())
	}
	r.wantAsked(3, 4)
	// A TaskManager is lost: both jobs are told; the number of workers does not change.
	l3.Close(errors.New("cut"))
	r.until("loss", func() bool { return job.heard("lost c3") })
	r.until("slots taken back", func() bool { return job.owned()+other.owned() <= 4 })
	r.wantAsked(3, 4)
	r.tm("c4", 2)
	r.tm("c5", 2)
	r.until("all slots", func() bool { return job.owned() == 5 && other.owned() == 2 })
	r.m.UnregisterJob("j1")
	if got := r.d.asked(); len(got) != 3 || got[2] > 2 { // the slots of j2 are on one TaskManager or on two
		t.Fatalf("asked %v", got)
	}
}

// The replacement of a dead worker may register before the dead one's link is seen to break.
func TestReplacementThatRegistersFirstIsNotDoubled(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 2)
	r.tm("c1", 1)
	l2, _ := r.tm("c2", 1)
	r.tm("c3", 1) // c2's container is dead, the driver replaced it
	l2.Close(errors.New("cut"))
	r.until("loss", func() bool { return job.heard("lost c2") && job.owned() == 2 })
	r.wantAsked(2)
	r.d.events.WorkerLost("c2", resourcemanager.Exit{Code: -100, Text: "node lost"})
	r.until("exit", func() bool { return job.heard("exit c2: -100 node lost") })
	r.wantAsked(2)
}

// Row 03: a container that dies before its TaskManager registers. The driver replaces it by itself, since the number wanted stays.
func TestWorkerLostBeforeItRegisters(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	r.d.events.WorkerLost("c1", resourcemanager.Exit{Code: 1})
	r.wantAsked(1)
	r.tm("c2", 1)
	if job.owned() != 1 {
		t.Fatal("no slot")
	}
	r.wantAsked(1)
}

// The end of a job that failed with its TaskManager waits for the deployment to say why the container ended.
func TestAwaitExit(t *testing.T) {
	r := start(t, 1, nil)
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	l, _ := r.tm("c1", 1)
	l.Close(errors.New("cut"))
	got := make(chan resourcemanager.Exit, 1)
	go func() {
		e, _ := r.m.AwaitExit(t.Context(), "c1")
		got <- e
	}()
	r.d.events.WorkerStarted("c2", resourcemanager.WorkerSpec{}, "nm1")
	r.d.events.WorkerLost("c2", resourcemanager.Exit{Code: 1, Text: "another one"})
	r.d.events.WorkerLost("c1", resourcemanager.Exit{Code: -104, Text: "too much memory"})
	if e := <-got; e.Code != -104 || e.Text != "too much memory" {
		t.Fatalf("exit %+v", e)
	}
	if e, ok := r.m.AwaitExit(t.Context(), "c2"); !ok || e.Code != 1 {
		t.Fatalf("known exit %+v, %t", e, ok)
	}
	if e, ok := r.m.AwaitExit(t.Context(), "nosuch"); ok {
		t.Fatalf("exit of an unknown worker %+v", e)
	}
	r.d.events.WorkerStarted("c3", resourcemanager.WorkerSpec{}, "nm1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, ok := r.m.AwaitExit(ctx, "c3"); ok {
		t.Fatalf("exit of a live worker %+v", e)
	}
}

func TestWorkerThatDoesNotRegisterIsReleased(t *testing.T) {
	r := start(t, 1, map[string]string{"resourcemanager.taskmanager-registration.timeout": "20 ms"})
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	r.until("release", func() bool { return slices.Contains(r.d.releases(), "c1") })
	if _, down := r.tm("c1", 1); !down.GetRefused().GetFinal() {
		t.Fatalf("a released worker was answered %v", down)
	}
}

// Row 08: workers of the attempt before are expected back; those that do not come are replaced.
func TestPreviousWorkers(t *testing.T) {
	synctest.Test(t, previousWorkers) // a survivor registers before the time-out, however slow the machine is
}

func previousWorkers(t *testing.T) {
	r := start(t, 1, map[string]string{"resourcemanager.previous-worker.recovery.timeout": "50 ms"},
		func(d *driver) { d.previous = []resourcemanager.WorkerID{"c1", "c2"} })
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 2)
	r.wantAsked(2) // the driver counts the two that exist
	if _, down := r.tm("c1", 1, func(reg *pb.RegisterTaskManager) { reg.LastEpoch = 4; reg.Jobs = []string{"j"} }); down.GetRegistered() == nil {
		t.Fatalf("a survivor was answered %v", down)
	}
	r.until("release of the other", func() bool { return slices.Equal(r.d.releases(), []resourcemanager.WorkerID{"c2"}) })
	r.wantAsked(2)
}

func TestIdleTaskManagerIsGivenBack(t *testing.T) {
	r := start(t, 1, map[string]string{"resourcemanager.taskmanager-timeout": "30 ms"})
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	link, _ := r.tm("c1", 1)
	r.m.UnregisterJob("j")
	for {
		down, err := link.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if down.GetShutdown() != nil {
			break
		}
	}
	r.until("release", func() bool { return slices.Contains(r.d.releases(), "c1") })
	r.wantAsked(1, 0)
}

func TestSilentTaskManagerIsDropped(t *testing.T) {
	r := start(t, 1, map[string]string{"heartbeat.timeout": "50 ms"})
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.tm("c1", 1)
	r.until("loss", func() bool { return job.heard("no heartbeat") })
}

// A hung TaskManager costs heartbeat.timeout once: its container is given back, and so replaced, with the same look at the clock that
// drops it. Without that the driver would count the container as living until a second time-out.
func TestSilentTaskManagerIsReplacedAtOnce(t *testing.T) {
	r := start(t, 1, map[string]string{"heartbeat.timeout": "200 ms"})
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	link, _ := r.tm("c1", 1)
	r.until("loss", func() bool { return job.heard("no heartbeat") })
	r.m.TaskManagers() // takes the lock: the look at the clock is over
	if !slices.Contains(r.d.releases(), "c1") {
		t.Error("the container of the hung TaskManager is still waited for")
	}
	// It wakes up and tries to come back: its place is taken.
	for {
		if _, err := link.Recv(); err != nil {
			break
		}
	}
	if _, down := r.tm("c1", 1); !down.GetRefused().GetFinal() {
		t.Errorf("answer %v, want a final refusal", down)
	}
}

// After a cut link the TaskManager may come back until heartbeat.timeout after its last word.
func TestTaskManagerComesBackAfterACutLink(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	link, _ := r.tm("c1", 1)
	link.Close(errors.New("cut"))
	r.until("loss", func() bool { return job.heard("lost c1") })
	if _, down := r.tm("c1", 1); down.GetRegistered() == nil {
		t.Errorf("answer %v, want a registration", down)
	}
	if got := r.d.releases(); len(got) != 0 {
		t.Errorf("released %v", got)
	}
}

func TestMessagesGoToTheirJob(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	link, _ := r.tm("c1", 1)
	send := func(up *pb.TaskManagerUp) {
		t.Helper()
		if err := link.Send(up); err != nil {
			t.Fatal(err)
		}
	}
	worker := func(job string) *pb.TaskManagerUp {
		return &pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Worker{Worker: &pb.WorkerEnvelopeUp{JobId: job, Up: &pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: &pb.WorkerHello{Pid: 7}}}}}}
	}
	send(worker("nobody"))
	send(worker("j"))
	send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_WorkerExited{WorkerExited: &pb.WorkerExited{JobId: "j", ExitCode: 3}}})
	send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Heartbeat{Heartbeat: &pb.Heartbeat{RssBytes: 99}}})
	r.until("heartbeat", func() bool { return r.m.TaskManagers()[0].RSSBytes == 99 })
	if !job.heard("worker of c1: 7") || !job.heard("worker of c1 exited: 3") {
		t.Fatalf("heard %v", job.all())
	}
	if err := r.m.Send("c1", &pb.TaskManagerDown{}); err != nil {
		t.Error(err)
	}
	if err := r.m.Send("c9", &pb.TaskManagerDown{}); err == nil {
		t.Error("a message to an unknown TaskManager is no error")
	}
}

func TestRefusals(t *testing.T) {
	r := start(t, 1, nil)
	for _, c := range []struct {
		change func(*pb.RegisterTaskManager)
		want   string
		final  bool
	}{
		{func(g *pb.RegisterTaskManager) { g.Protocol = 99 }, "protocol 99", true},
		{func(g *pb.RegisterTaskManager) { g.Slots = 0 }, "0 slots", true},
		{func(g *pb.RegisterTaskManager) { g.Id = "" }, `id ""`, true},
		{func(g *pb.RegisterTaskManager) { g.LastEpoch = 6 }, "stale", false},
	} {
		_, down := r.tm("c1", 1, c.change)
		if ref := down.GetRefused(); ref == nil || !strings.Contains(ref.GetReason(), c.want) || ref.GetFinal() != c.final {
			t.Errorf("answered %v, want a refusal with %q", down, c.want)
		}
	}
	if err := <-r.fatal; !errors.Is(err, resourcemanager.ErrFenced) {
		t.Errorf("fatal %v: a TaskManager that served a newer epoch proves that this one is stale", err)
	}
}

func TestSecondRegistrationReplacesTheFirst(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.tm("c1", 1)
	r.tm("c1", 1)
	if !job.heard("lost c1") || job.owned() != 1 || len(r.m.TaskManagers()) != 1 {
		t.Fatalf("heard %v", job.all())
	}
	r.wantAsked(1)
}

func TestDeregister(t *testing.T) {
	r := start(t, 1, nil)
	link, _ := r.tm("c1", 1)
	if err := r.m.Deregister(context.Background(), resourcemanager.StatusSucceeded, ""); err != nil || r.d.final != resourcemanager.StatusSucceeded {
		t.Fatalf("%v, %v", r.d.final, err)
	}
	for {
		down, err := link.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if down.GetShutdown() != nil {
			return
		}
	}
}
