package am

import (
	"context"
	"errors"
	iofs "io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// waiting is a master whose high-availability data is away.
func waiting(t *testing.T, rm *rmclient.Client) (*master, *fault.FileSystem) {
	t.Helper()
	f := fault.New(mem.New("ha"), fault.When(fault.Any(""), fault.Fail(fs.ErrUnavailable)))
	return &master{
		c: &container.Container{Host: "here"}, app: &container.Application{HA: "hdfs://nn/ha", Config: config.Configuration{"yarn.heartbeat.interval": "10 ms"}},
		log: zerolog.New(zerolog.NewTestWriter(t)), rm: rm, store: ha.NewFileStore(f, "/ha", zerolog.Nop()), gate: &gate{}, webURL: "http://here:1",
	}, f
}

// The NameNode is down when an attempt comes up: it registers, stays alive, says what it waits for, and leads when the NameNode is back;
// the Driver goes on with that registration.
func TestAttemptWaitsForItsData(t *testing.T) {
	r, rm, nodes := newApplication(t)
	m, f := waiting(t, rm)
	m.fail = func(err error) { t.Error(err) }
	acquired := make(chan error, 1)
	go func() { acquired <- m.acquire(t.Context()) }()
	until(t, "beats without an epoch", func() bool { s := r.fake.Stats(r.id); return s.Registers == 1 && s.Beats > 5 })
	w := httptest.NewRecorder()
	m.gate.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/overview", nil))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "waits for hdfs://nn/ha") {
		t.Errorf("REST says %d %s", w.Code, w.Body)
	}
	f.Set()
	if err := <-acquired; err != nil || m.epoch != 1 {
		t.Fatalf("epoch %d, %v", m.epoch, err)
	}
	r.driver = newTestDriver(t, nil, m.scheduler, nodes)
	t.Cleanup(func() { _ = r.driver.Close() })
	if _, err := r.driver.Start(t.Context(), r.events); err != nil {
		t.Fatal(err)
	}
	r.registering().driver.RequestWorkers(spec, 2)
	r.settled(2)
	if s := r.fake.Stats(r.id); s.Registers != 1 {
		t.Errorf("registered %d times", s.Registers)
	}
}

// What no attempt can do better ends the application before there is a Manager, also when the attempt has registered already.
func TestAttemptThatCannotLeadRefuses(t *testing.T) {
	for name, before := range map[string][]fault.Rule{
		"at once":         nil,
		"after an outage": {fault.When(fault.First(1, fault.Any("")), fault.Fail(fs.ErrUnavailable))},
	} {
		t.Run(name, func(t *testing.T) {
			r, rm, _ := newApplication(t)
			m, f := waiting(t, rm)
			m.files, m.fail = &fs.Registry{}, func(err error) { t.Error(err) }
			f.Set(append(before, fault.When(fault.Any(""), fault.Fail(iofs.ErrPermission)))...)
			err := m.acquire(t.Context())
			if err == nil || !final(err) {
				t.Fatalf("%v, want a final error", err)
			}
			if err := m.refuse(t.Context(), err); err != nil {
				t.Fatal(err)
			}
			rep, err := r.rm.Report(t.Context(), r.id)
			if err != nil {
				t.Fatal(err)
			}
			if rep.GetFinalApplicationStatus() != yarnpb.FinalApplicationStatusProto_APP_FAILED || !strings.Contains(rep.GetDiagnostics(), "take an epoch in hdfs://nn/ha") {
				t.Errorf("%s %q", rep.GetFinalApplicationStatus(), rep.GetDiagnostics())
			}
		})
	}
}

// script answers from a list.
type script struct {
	Scheduler
	registers int
	answers   chan rmclient.Answer
	err       error // when answers is closed
}

func (s *script) Register(context.Context, rmclient.Registration) (*yarnpb.RegisterApplicationMasterResponseProto, error) {
	s.registers++
	return &yarnpb.RegisterApplicationMasterResponseProto{}, nil
}

func (s *script) Allocate(ctx context.Context, _ *yarnpb.AllocateRequestProto) (rmclient.Answer, error) {
	select {
	case a, ok := <-s.answers:
		if !ok {
			return rmclient.Answer{}, s.err
		}
		return a, nil
	case <-ctx.Done():
		return rmclient.Answer{}, ctx.Err()
	}
}

// What the ResourceManager tells meanwhile (a TaskManager of the attempt before that ended) reaches the Driver, once.
func TestAnswersWhileWaitingAreNotLost(t *testing.T) {
	s := &script{answers: make(chan rmclient.Answer)}
	e := &early{Scheduler: s}
	stop := e.hold(t.Context(), rmclient.Registration{}, 0, func(err error) { t.Error(err) })
	ended := &yarnpb.AllocateResponseProto{CompletedContainerStatuses: []*yarnpb.ContainerStatusProto{{}}}
	s.answers <- rmclient.Answer{AllocateResponseProto: &yarnpb.AllocateResponseProto{}}
	s.answers <- rmclient.Answer{AllocateResponseProto: ended}
	s.answers <- rmclient.Answer{AllocateResponseProto: &yarnpb.AllocateResponseProto{}}
	stop()
	if _, err := e.Register(t.Context(), rmclient.Registration{}); err != nil || s.registers != 1 {
		t.Errorf("registered %d times, %v", s.registers, err)
	}
	a, err := e.Allocate(t.Context(), nil)
	if err != nil || !a.Deferred || len(a.GetCompletedContainerStatuses()) != 1 {
		t.Errorf("first answer %v, %v", a, err)
	}
	go func() { s.answers <- rmclient.Answer{AllocateResponseProto: &yarnpb.AllocateResponseProto{}} }()
	if a, err = e.Allocate(t.Context(), nil); err != nil || a.Deferred {
		t.Errorf("second answer %v, %v", a, err)
	}
	if _, err := e.Register(t.Context(), rmclient.Registration{}); err != nil || s.registers != 2 { // after a restart of the ResourceManager
		t.Errorf("registered %d times, %v", s.registers, err)
	}
}

// An attempt that waits and is replaced, or killed, ends.
func TestWaitingAttemptThatIsReplacedEnds(t *testing.T) {
	s := &script{answers: make(chan rmclient.Answer), err: rmclient.ErrShutdown}
	failed := make(chan error, 1)
	e := &early{Scheduler: s}
	stop := e.hold(t.Context(), rmclient.Registration{}, 0, func(err error) { failed <- err })
	close(s.answers)
	if err := <-failed; !errors.Is(err, resourcemanager.ErrFenced) {
		t.Errorf("%v, want ErrFenced", err)
	}
	stop()

	// The end of the attempt's context ends the wait, with what it was about.
	_, rm, _ := newApplication(t)
	m, _ := waiting(t, rm)
	ctx, cancel := context.WithCancelCause(t.Context())
	m.fail = func(error) {}
	done := make(chan error, 1)
	go func() { done <- m.acquire(ctx) }()
	until(t, "registration", func() bool { return strings.Contains(m.gate.text(), "waits") })
	cancel(fatalError{resourcemanager.ErrFenced})
	if err := <-done; !errors.Is(err, resourcemanager.ErrFenced) || !strings.Contains(err.Error(), "hdfs://nn/ha") {
		t.Error(err)
	}
}
