package am

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// events records what the driver tells.
type events struct {
	mu       sync.Mutex
	started  []resourcemanager.WorkerID
	lost     map[resourcemanager.WorkerID]resourcemanager.Exit
	leaving  map[resourcemanager.WorkerID]time.Time
	problems []string
	fatal    error
	register func(id resourcemanager.WorkerID) // when a worker was started; nil: nobody registers
}

func (e *events) WorkerStarted(id resourcemanager.WorkerID, _ resourcemanager.WorkerSpec, _ string) {
	e.mu.Lock()
	e.started = append(e.started, id)
	f := e.register
	e.mu.Unlock()
	if f != nil {
		f(id)
	}
}

func (e *events) WorkerLost(id resourcemanager.WorkerID, exit resourcemanager.Exit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost == nil {
		e.lost = map[resourcemanager.WorkerID]resourcemanager.Exit{}
	}
	e.lost[id] = exit
}

func (e *events) WorkerLeaving(id resourcemanager.WorkerID, until time.Time, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaving == nil {
		e.leaving = map[resourcemanager.WorkerID]time.Time{}
	}
	e.leaving[id] = until
}

func (e *events) WorkerStays(id resourcemanager.WorkerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leaving, id)
}

func (e *events) Problem(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problems = append(e.problems, text)
}

func (e *events) Fatal(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fatal == nil {
		e.fatal = err
	}
}

func (e *events) get(f func(e *events) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return f(e)
}

// rig is an application with a master in this process.
type rig struct {
	t      *testing.T
	fake   *yarnfake.Cluster
	rm     *client.Client
	id     yarn.ApplicationID
	driver *Driver
	events *events
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
}

func startFake(t *testing.T, opts ...yarnfake.Option) *yarnfake.Cluster {
	t.Helper()
	f, err := yarnfake.Start(append([]yarnfake.Option{yarnfake.WithNodes(2, yarn.Resource{MemoryMB: 64 << 10, VCores: 640})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

var quick = ipc.Retry{Initial: time.Millisecond, Max: 10 * time.Millisecond}

func newRig(t *testing.T, conf config.Configuration, opts ...yarnfake.Option) *rig {
	t.Helper()
	r, master, nodes := newApplication(t, opts...)
	r.driver = newTestDriver(t, conf, master, nodes)
	t.Cleanup(func() { _ = r.driver.Close() })
	if _, err := r.driver.Start(t.Context(), r.events); err != nil {
		t.Fatal(err)
	}
	return r
}

// newApplication is a rig without a driver.
func newApplication(t *testing.T, opts ...yarnfake.Option) (*rig, *rmclient.Client, *nm.Client) {
	t.Helper()
	r := &rig{t: t, fake: startFake(t, opts...), events: &events{}}
	var err error
	if r.rm, err = client.New(r.fake.Conf()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.rm.Close() })
	if r.id, _, err = r.rm.NewApplication(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err = r.rm.Submit(t.Context(), &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: r.id.Proto(), Queue: proto.String("default"), UnmanagedAm: proto.Bool(true), AmContainerSpec: yarn.LaunchContext(nil, nil, nil, nil),
	}); err != nil {
		t.Fatal(err)
	}
	rep, err := r.rm.Report(t.Context(), r.id)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := r.fake.Conf().Schedulers()
	if err != nil {
		t.Fatal(err)
	}
	master, err := rmclient.New(addrs, token.FromProto(rep.GetAmRmToken()), rmclient.WithRetry(quick))
	if err != nil {
		t.Fatal(err)
	}
	nodes := nm.New(nm.WithRetry(quick))
	t.Cleanup(func() { _ = master.Close(); _ = nodes.Close() })
	return r, master, nodes
}

var spec = resourcemanager.WorkerSpec{MemoryBytes: 256 << 20, Cores: 2, Slots: 2}

func newTestDriver(t *testing.T, conf config.Configuration, s Scheduler, n Nodes) *Driver {
	t.Helper()
	c := config.Configuration{"yarn.heartbeat.interval": "50 ms", "yarn.heartbeat.container-request-interval": "10 ms"}
	for k, v := range conf {
		c[k] = v
	}
	return NewDriver(DriverOptions{
		Scheduler: s, Nodes: n, Config: c, Spec: spec, Logger: zerolog.New(zerolog.NewTestWriter(t)),
		Registration: rmclient.Registration{Host: "here", RPCPort: -1, TrackingURL: "http://here:1"},
		Launch: func(*yarnpb.ContainerProto, resourcemanager.WorkerSpec) (*yarnpb.ContainerLaunchContextProto, error) {
			return yarn.LaunchContext([]string{"worker"}, nil, nil, nil), nil
		},
	})
}

// registering makes every worker that is started register at once.
func (r *rig) registering() *rig {
	r.events.mu.Lock()
	r.events.register = r.driver.WorkerRegistered
	r.events.mu.Unlock()
	return r
}

func (r *rig) settled(n int) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("%d registered workers", n), func() bool {
		c := r.driver.Counts()
		return c.Registered == n && c.Open == 0 && c.Starting == 0 && c.Releasing == 0 && len(r.fake.Stats(r.id).Live) == n
	})
}

// FLINK-12342: 50 workers from a ResourceManager that grants 5 per beat.
func TestSlowGrantsGiveExactlyWhatIsWanted(t *testing.T) {
	r := newRig(t, nil).registering()
	r.fake.SetGrantsPerBeat(5)
	r.driver.RequestWorkers(spec, 50)
	r.settled(50)
	beats := r.fake.Stats(r.id).Beats
	until(t, "quiet beats", func() bool { return r.fake.Stats(r.id).Beats > beats+5 })
	s := r.fake.Stats(r.id)
	if s.Granted-s.Released != 50 || s.Open != 0 {
		t.Errorf("%+v: want granted - released = 50 and nothing open", s)
	}
	if s.Granted > 55 {
		t.Errorf("%d containers were granted for 50", s.Granted)
	}
}

// FLINK-10848: grants show one vcore for the two that were asked; the number of workers stays after three kills.
func TestGrantsAreMatchedByPriority(t *testing.T) {
	r := newRig(t, nil).registering()
	r.driver.RequestWorkers(spec, 3)
	r.settled(3)
	for range 3 {
		before := r.fake.Stats(r.id)
		if err := r.fake.KillContainer(before.Live[0], 137, "killed"); err != nil {
			t.Fatal(err)
		}
		until(t, "replacement", func() bool { return r.fake.Stats(r.id).Started > before.Started })
		r.settled(3)
	}
	s := r.fake.Stats(r.id)
	if s.Granted-s.Released-3 != 3 || s.Open != 0 {
		t.Errorf("%+v: want 6 containers in all, 3 living", s)
	}
	if !r.events.get(func(e *events) bool { return len(e.lost) == 3 && e.fatal == nil }) {
		t.Errorf("told: %+v", r.events)
	}
}

// FLINK-9190: a container dies before its TaskManager registers; the next call asks for another, nobody waits for a time-out.
func TestDeathBeforeRegistrationIsReplaced(t *testing.T) {
	var mu sync.Mutex
	n := 0
	r := newRig(t, nil, yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		mu.Lock()
		n++
		first := n == 1
		mu.Unlock()
		if first {
			return 1, "boom"
		}
		return yarnfake.Idle(ctx, l)
	}))
	r.driver.RequestWorkers(spec, 1)
	until(t, "second container", func() bool { return r.events.get(func(e *events) bool { return len(e.started) == 2 }) })
	r.driver.WorkerRegistered(r.events.started[1])
	r.settled(1)
	exit := r.events.lost[r.events.started[0]]
	if exit.Code != 1 || !strings.Contains(exit.Text, "exit code 1") || !strings.Contains(exit.Text, "boom") || exit.Preempted {
		t.Errorf("told %+v", exit)
	}
}

// FLINK-10868: launches that always fail end the application, with exit code and words.
func TestEndlessLaunchFailuresEndTheApplication(t *testing.T) {
	r := newRig(t, config.Configuration{
		"resourcemanager.start-worker.max-failures": "6", "resourcemanager.start-worker.max-failure-rate": "3", "resourcemanager.start-worker.retry-interval": "100 ms",
	}, yarnfake.WithRunner(func(context.Context, yarnfake.Launch) (int32, string) {
		return 126, "Exception from container-launch.\nExit code: 126\n./thalweg-taskmanager: Permission denied"
	}))
	start := time.Now()
	r.driver.RequestWorkers(spec, 1)
	until(t, "failure", func() bool { return r.events.get(func(e *events) bool { return e.fatal != nil }) })
	text := r.events.fatal.Error()
	for _, want := range []string{"6 TaskManagers in a row", "resourcemanager.start-worker.max-failures", "exit code 126", "Permission denied"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if strings.Contains(text, "\n") {
		t.Errorf("more than one line: %q", text)
	}
	if time.Since(start) < 200*time.Millisecond {
		t.Error("launches were not slowed down")
	}
	if s := r.fake.Stats(r.id); s.Granted > 8 {
		t.Errorf("%d launches", s.Granted)
	}
}

func TestRefusedStartIsReplaced(t *testing.T) {
	r := newRig(t, nil).registering()
	var mu sync.Mutex
	refusals := 2
	r.fake.SetLaunchCheck(func(yarnfake.Launch) error {
		mu.Lock()
		defer mu.Unlock()
		if refusals > 0 {
			refusals--
			return errors.New("disk full")
		}
		return nil
	})
	r.driver.RequestWorkers(spec, 2)
	r.settled(2)
}

func TestLostAnswersChangeNothing(t *testing.T) {
	r := newRig(t, nil).registering()
	r.fake.DropAnswers("allocate", 3)
	r.fake.DropAnswers("startContainers", 1)
	r.driver.RequestWorkers(spec, 4)
	r.settled(4)
	if s := r.fake.Stats(r.id); s.Granted-s.Released != 4 {
		t.Errorf("%+v", s)
	}
}

// The ResourceManager restarts while asks are open: they are sent again, living workers are not disturbed.
func TestResourceManagerRestart(t *testing.T) {
	r := newRig(t, nil).registering()
	r.driver.RequestWorkers(spec, 2)
	r.settled(2)
	r.fake.SetGrantDelay(time.Hour)
	r.driver.RequestWorkers(spec, 5)
	until(t, "open asks", func() bool { return r.fake.Stats(r.id).Open == 3 })
	registers := r.fake.Stats(r.id).Registers
	if err := r.fake.RestartResourceManager(); err != nil {
		t.Fatal(err)
	}
	until(t, "registration", func() bool { return r.fake.Stats(r.id).Registers > registers })
	until(t, "asks again", func() bool { return r.fake.Stats(r.id).Open == 3 })
	r.fake.SetGrantDelay(0)
	r.settled(5)
	if !r.events.get(func(e *events) bool { return len(e.lost) == 0 && e.fatal == nil }) {
		t.Errorf("workers were disturbed: %+v", r.events.lost)
	}
}

func TestPreemptionIsNoFailure(t *testing.T) {
	r := newRig(t, config.Configuration{"resourcemanager.start-worker.max-failures": "1"})
	r.driver.RequestWorkers(spec, 1)
	until(t, "start", func() bool { return r.events.get(func(e *events) bool { return len(e.started) == 1 }) })
	id := r.fake.Stats(r.id).Live[0]
	r.fake.Preempt(id)
	if err := r.fake.KillContainer(id, yarn.ExitPreempted, "Container preempted by scheduler"); err != nil {
		t.Fatal(err)
	}
	until(t, "replacement", func() bool { return r.events.get(func(e *events) bool { return len(e.started) == 2 }) })
	if exit := r.events.lost[workerID(id)]; !exit.Preempted || r.events.fatal != nil {
		t.Errorf("told %+v, %v", exit, r.events.fatal)
	}
}

func TestLostNode(t *testing.T) {
	r := newRig(t, nil).registering()
	r.driver.RequestWorkers(spec, 4)
	r.settled(4)
	r.fake.StopNode(0)
	r.settled(4)
	for id, exit := range r.events.lost {
		if !exit.Preempted || !strings.Contains(exit.Text, "node lost") {
			t.Errorf("%s: %+v", id, exit)
		}
	}
}

// A broken connection makes the driver look at the node itself, before the ResourceManager tells.
func TestSuspectIsAskedFor(t *testing.T) {
	r := newRig(t, config.Configuration{"yarn.heartbeat.interval": "1 h", "yarn.heartbeat.container-request-interval": "10 ms"}).registering()
	r.driver.RequestWorkers(spec, 1)
	r.settled(1)
	id := r.fake.Stats(r.id).Live[0]
	if err := r.fake.KillContainer(id, 137, ""); err != nil {
		t.Fatal(err)
	}
	r.driver.Suspect(workerID(id))
	until(t, "replacement", func() bool { return r.fake.Stats(r.id).Started == 2 })
	r.settled(1)
	if exit := r.events.lost[workerID(id)]; exit.Code != 137 {
		t.Errorf("told %+v", exit)
	}
	r.driver.Suspect("no id at all") // is nobody
}

func TestReleasedWorkersEndAndAreNotReplaced(t *testing.T) {
	r := newRig(t, nil).registering()
	r.driver.RequestWorkers(spec, 3)
	r.settled(3)
	id := r.fake.Stats(r.id).Live[1]
	r.driver.RequestWorkers(spec, 2)
	r.driver.ReleaseWorker(workerID(id))
	r.driver.ReleaseWorker("container_of_nobody")
	r.settled(2)
	until(t, "word of the end", func() bool {
		return r.events.get(func(e *events) bool { _, ok := e.lost[workerID(id)]; return ok })
	})
}

func TestTooLargeWorkerIsFatal(t *testing.T) {
	r := newRig(t, nil, yarnfake.WithLargest(yarn.Resource{MemoryMB: 128, VCores: 4}))
	r.driver.RequestWorkers(spec, 1)
	until(t, "failure", func() bool { return r.events.get(func(e *events) bool { return e.fatal != nil }) })
	if text := r.events.fatal.Error(); !strings.Contains(text, "taskmanager.memory.process.size") || !strings.Contains(text, "128 MiB") {
		t.Errorf("%q", text)
	}
}

func TestFinalStatusAndDiagnostics(t *testing.T) {
	for status, want := range map[resourcemanager.FinalStatus]yarnpb.FinalApplicationStatusProto{
		resourcemanager.StatusSucceeded: yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED,
		resourcemanager.StatusFailed:    yarnpb.FinalApplicationStatusProto_APP_FAILED,
		resourcemanager.StatusKilled:    yarnpb.FinalApplicationStatusProto_APP_KILLED,
	} {
		r := newRig(t, config.Configuration{"kafka.sasl.password": "hunter22"}).registering()
		r.driver.RequestWorkers(spec, 2)
		r.settled(2)
		if err := r.driver.Deregister(t.Context(), status, "Map (2/3): login with hunter22 failed"); err != nil {
			t.Fatal(err)
		}
		rep, err := r.rm.Report(t.Context(), r.id)
		if err != nil {
			t.Fatal(err)
		}
		if rep.GetFinalApplicationStatus() != want || !strings.Contains(rep.GetDiagnostics(), "Map (2/3)") || strings.Contains(rep.GetDiagnostics(), "hunter22") {
			t.Errorf("%s: %s %q", status, rep.GetFinalApplicationStatus(), rep.GetDiagnostics())
		}
	}
}

// Unregistering while the ResourceManager comes back from a restart registers once more first.
func TestDeregisterAfterRestart(t *testing.T) {
	r := newRig(t, config.Configuration{"yarn.heartbeat.interval": "1 h"})
	until(t, "first call", func() bool { return r.fake.Stats(r.id).Beats > 0 })
	if err := r.fake.RestartResourceManager(); err != nil {
		t.Fatal(err)
	}
	if err := r.driver.Deregister(t.Context(), resourcemanager.StatusSucceeded, ""); err != nil {
		t.Fatal(err)
	}
}

func TestWorkersAreAskedForWithTheFirstCall(t *testing.T) {
	f := startFake(t)
	s := &scriptedScheduler{t: t, fake: f, requests: make(chan *yarnpb.AllocateRequestProto, 10)}
	d := newTestDriver(t, nil, s, nm.New())
	d.o.Prestart = 3
	defer d.Close() //nolint:errcheck // end of the test
	if _, err := d.Start(t.Context(), &events{}); err != nil {
		t.Fatal(err)
	}
	first := <-s.requests
	if len(first.GetAsk()) != 1 || first.GetAsk()[0].GetNumContainers() != 3 {
		t.Errorf("the first allocate asks for %v", first.GetAsk())
	}
	d.RequestWorkers(spec, 1) // what the job really needs
	for req := range s.requests {
		if len(req.GetAsk()) > 0 {
			if n := req.GetAsk()[0].GetNumContainers(); n != 1 {
				t.Errorf("then for %d", n)
			}
			break
		}
	}
}

// scriptedScheduler answers nothing and records.
type scriptedScheduler struct {
	t        *testing.T
	fake     *yarnfake.Cluster
	requests chan *yarnpb.AllocateRequestProto
}

func (s *scriptedScheduler) Register(context.Context, rmclient.Registration) (*yarnpb.RegisterApplicationMasterResponseProto, error) {
	return &yarnpb.RegisterApplicationMasterResponseProto{MaximumCapability: yarn.Resource{MemoryMB: 4096, VCores: 4}.Proto()}, nil
}

func (s *scriptedScheduler) Allocate(ctx context.Context, req *yarnpb.AllocateRequestProto) (rmclient.Answer, error) {
	select {
	case s.requests <- req:
	case <-ctx.Done():
		return rmclient.Answer{}, ctx.Err()
	}
	return rmclient.Answer{AllocateResponseProto: &yarnpb.AllocateResponseProto{}}, nil
}

func (s *scriptedScheduler) Finish(context.Context, yarnpb.FinalApplicationStatusProto, string, string) error {
	return nil
}
