package resourcemanager

import (
	"context"
	"fmt"
	"sync"
)

// Standalone is the Driver of a cluster whose TaskManagers are started by others: it asks for nothing and releases nothing.
type Standalone struct{}

// Start implements Driver.
func (Standalone) Start(context.Context, Events) ([]WorkerID, error) { return nil, nil }

// RequestWorkers implements Driver.
func (Standalone) RequestWorkers(WorkerSpec, int) {}

// ReleaseWorker implements Driver.
func (Standalone) ReleaseWorker(WorkerID) {}

// WorkerRegistered implements Driver.
func (Standalone) WorkerRegistered(WorkerID) {}

// Deregister implements Driver.
func (Standalone) Deregister(context.Context, FinalStatus, string) error { return nil }

// Close implements Driver.
func (Standalone) Close() error { return nil }

// Embedded is the Driver of a cluster in one process: its workers are goroutines. When several in a row end with an error before they
// register, the cluster fails with it: in one process the next one would meet the same.
type Embedded struct {
	run func(ctx context.Context, id WorkerID, spec WorkerSpec) error

	mu      sync.Mutex
	events  Events
	wanted  map[WorkerSpec]int
	workers map[WorkerID]embeddedWorker
	limit   int // workers at most, 0 for as many as are wanted
	next    int
	failed  int // workers in a row that ended before they registered
	closed  bool
	wg      sync.WaitGroup
}

type embeddedWorker struct {
	spec       WorkerSpec
	cancel     context.CancelFunc
	registered bool
}

// maxFailedStarts is how many workers in a row may end before they register.
const maxFailedStarts = 3

// NewEmbedded makes an Embedded; run is a TaskManager's life, which ends with its context.
func NewEmbedded(run func(ctx context.Context, id WorkerID, spec WorkerSpec) error) *Embedded {
	return &Embedded{run: run, wanted: map[WorkerSpec]int{}, workers: map[WorkerID]embeddedWorker{}}
}

// Start implements Driver.
func (e *Embedded) Start(_ context.Context, events Events) ([]WorkerID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = events
	return nil, nil
}

// RequestWorkers implements Driver.
func (e *Embedded) RequestWorkers(spec WorkerSpec, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wanted[spec] = n
	e.fill(spec)
}

func (e *Embedded) fill(spec WorkerSpec) {
	if e.closed {
		return
	}
	have := 0
	for _, w := range e.workers {
		if w.spec == spec {
			have++
		}
	}
	for ; have < e.wanted[spec] && (e.limit == 0 || len(e.workers) < e.limit); have++ {
		e.next++
		id := WorkerID(fmt.Sprintf("taskmanager-%d", e.next))
		ctx, cancel := context.WithCancel(context.Background())
		e.workers[id] = embeddedWorker{spec: spec, cancel: cancel}
		e.wg.Go(func() { e.live(ctx, cancel, id, spec) })
	}
}

func (e *Embedded) live(ctx context.Context, cancel context.CancelFunc, id WorkerID, spec WorkerSpec) {
	defer cancel()
	e.events.WorkerStarted(id, spec, "localhost")
	exit := Exit{}
	if err := e.run(ctx, id, spec); err != nil {
		exit = Exit{Code: 1, Text: err.Error()}
	}
	e.mu.Lock()
	w, ours := e.workers[id] // a worker that was told to end is not among them
	delete(e.workers, id)
	if ours && !w.registered && exit.Code != 0 {
		e.failed++
	}
	failed := e.failed >= maxFailedStarts
	if !failed {
		e.fill(spec)
	}
	e.mu.Unlock()
	if failed {
		e.events.Fatal(fmt.Errorf("resourcemanager: %d TaskManagers in a row did not start; the last: %s", maxFailedStarts, exit.Text))
	}
	e.events.WorkerLost(id, exit)
}

// Limit bounds the number of workers, as a full cluster does; 0 lifts the bound. Workers that run are left alone.
func (e *Embedded) Limit(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limit = n
	for spec := range e.wanted {
		e.fill(spec)
	}
}

// ReleaseWorker implements Driver.
func (e *Embedded) ReleaseWorker(id WorkerID) { e.Kill(id) }

// Kill ends a worker as if it had died: it is replaced while it is wanted.
func (e *Embedded) Kill(id WorkerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w, ok := e.workers[id]
	if !ok {
		return
	}
	delete(e.workers, id)
	w.cancel()
	e.fill(w.spec)
}

// WorkerRegistered implements Driver.
func (e *Embedded) WorkerRegistered(id WorkerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.workers[id]; ok {
		w.registered = true
		e.workers[id], e.failed = w, 0
	}
}

// Deregister implements Driver.
func (e *Embedded) Deregister(context.Context, FinalStatus, string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// Close ends the workers and waits for them.
func (e *Embedded) Close() error {
	e.mu.Lock()
	e.closed = true
	for _, w := range e.workers {
		w.cancel()
	}
	e.mu.Unlock()
	e.wg.Wait()
	return nil
}
