package am

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/ha"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// acquire takes the next epoch. While the file system of the high-availability data is away the attempt registers and stays, for as long
// as that takes: the next one would meet the same, if it could be launched at all, since its files come from there too.
func (m *master) acquire(ctx context.Context) (err error) {
	owner := m.rm.Attempt().String() + " on " + m.c.Host
	m.scheduler = m.rm
	if m.epoch, err = m.store.AcquireEpoch(ctx, owner); errors.Is(err, fs.ErrUnavailable) && ctx.Err() == nil {
		m.log.Warn().Err(err).Str("dir", m.app.HA).Msg("the high-availability data cannot be reached; the attempt registers and waits for it")
		m.gate.wait(fmt.Sprintf("the application master waits for %s, which cannot be reached", m.app.HA))
		early := &early{Scheduler: m.rm}
		m.scheduler = early
		stop := early.hold(ctx, rmclient.Registration{Host: m.c.Host, RPCPort: -1, TrackingURL: m.webURL}, config.YarnHeartbeat.Value(m.app.Config), m.fail)
		m.epoch, err = ha.Patient(m.store, m.log).AcquireEpoch(ctx, owner)
		stop()
	}
	if err != nil {
		return fmt.Errorf("am: take an epoch in %s: %w", m.app.HA, shared(err))
	}
	m.store = ha.Patient(m.store, m.log)
	return nil
}

// early is the Scheduler of an attempt that had to register before there was a Driver: hold registers and beats, so that the attempt is not
// taken for dead; the Driver's first calls then get the answers that came meanwhile.
type early struct {
	Scheduler
	mu         sync.Mutex
	registered *yarnpb.RegisterApplicationMasterResponseProto // not handed over yet
	answers    []rmclient.Answer                              // those that say something, not handed over yet
}

// hold beats until stop, which waits for the end: for the answer of a call under way, too, since the ResourceManager would take the next
// request for a repetition of one whose answer was not seen, and ignore what it asks for. What ends it before (ErrShutdown) goes to fail.
func (e *early) hold(ctx context.Context, r rmclient.Registration, interval time.Duration, fail func(error)) (stop func()) {
	pause, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.beat(ctx, pause, r, max(interval, 10*time.Millisecond)); err != nil && ctx.Err() == nil {
			fail(fencedIf(err))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// beat calls with ctx, until pause ends.
func (e *early) beat(ctx, pause context.Context, r rmclient.Registration, interval time.Duration) error {
	register := func() error {
		resp, err := e.Scheduler.Register(ctx, r)
		if err != nil {
			return fmt.Errorf("am: register with the ResourceManager: %w", err)
		}
		e.mu.Lock()
		e.registered = resp
		e.mu.Unlock()
		return nil
	}
	if err := register(); err != nil {
		return err
	}
	for ipc.Sleep(pause, interval) == nil {
		ans, err := e.Scheduler.Allocate(ctx, &yarnpb.AllocateRequestProto{})
		switch {
		case errors.Is(err, rmclient.ErrResync):
			if err := register(); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("am: allocate: %w", err)
		case tells(ans):
			ans.Deferred = true // the request that gets it is not sent
			e.mu.Lock()
			e.answers = append(e.answers, ans)
			e.mu.Unlock()
		}
	}
	return nil
}

// tells reports whether an answer to an empty request must not be lost.
func tells(a rmclient.Answer) bool {
	return len(a.GetNmTokens())+len(a.GetContainersFromPreviousAttempts())+len(a.GetCompletedContainerStatuses())+len(a.GetAllocatedContainers()) > 0
}

// Register implements Scheduler.
func (e *early) Register(ctx context.Context, r rmclient.Registration) (*yarnpb.RegisterApplicationMasterResponseProto, error) {
	e.mu.Lock()
	resp := e.registered
	e.registered = nil
	e.mu.Unlock()
	if resp != nil {
		return resp, nil
	}
	return e.Scheduler.Register(ctx, r)
}

// Allocate implements Scheduler.
func (e *early) Allocate(ctx context.Context, req *yarnpb.AllocateRequestProto) (rmclient.Answer, error) {
	e.mu.Lock()
	if len(e.answers) > 0 {
		a := e.answers[0]
		e.answers = e.answers[1:]
		e.mu.Unlock()
		return a, nil
	}
	e.mu.Unlock()
	return e.Scheduler.Allocate(ctx, req)
}

// gate is the REST handler from the first moment on: until there is something to serve it says what is waited for.
type gate struct {
	handler atomic.Pointer[http.Handler]
	reason  atomic.Pointer[string]
}

func (g *gate) open(h http.Handler) { g.handler.Store(&h) }
func (g *gate) wait(reason string)  { g.reason.Store(&reason) }
func (g *gate) text() string {
	if r := g.reason.Load(); r != nil {
		return *r
	}
	return "the application master starts"
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := g.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string][]string{"errors": {g.text()}}) // the client is gone, or reads it
}
