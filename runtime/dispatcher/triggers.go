package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/state"
)

// Bounds of the store of asynchronous operations. Source: Flink rest.async.store-duration, 5 minutes.
const (
	keepTriggers = 5 * time.Minute
	maxTriggers  = 10_000
)

// ErrUnknownTrigger says that there is no operation of this id, or that it ended too long ago.
var ErrUnknownTrigger = errors.New("no such operation")

// Operation is an asynchronous request of REST.
type Operation struct {
	Done   bool
	Result jobmaster.TriggerResult // when done
}

// triggers remembers operations by job and id.
type triggers struct {
	mu sync.Mutex
	m  map[string]*operation
}

type operation struct {
	Operation
	ended time.Time
	read  bool // the outcome was asked for
}

func newTriggers() *triggers { return &triggers{m: map[string]*operation{}} }

// begin reports false for an id that is known already: asking again is the same request.
func (t *triggers) begin(key string) (fresh bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, o := range t.m {
		if o.Done && time.Since(o.ended) > keepTriggers {
			delete(t.m, k)
		}
	}
	if t.m[key] != nil {
		return false, nil
	}
	if len(t.m) >= maxTriggers {
		return false, errors.New("dispatcher: too many operations are waiting; try again later")
	}
	t.m[key] = &operation{}
	return true, nil
}

func (t *triggers) end(key string, r jobmaster.TriggerResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.m[key]; o != nil {
		o.Done, o.Result, o.ended = true, r, time.Now()
	}
}

func (t *triggers) get(key string) (Operation, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.m[key]
	if o == nil {
		return Operation{}, fmt.Errorf("dispatcher: operation %s: %w", key, ErrUnknownTrigger)
	}
	o.read = o.read || o.Done
	return o.Operation, nil
}

// unread reports whether an operation's outcome was not asked for yet.
func (t *triggers) unread() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.m {
		if !o.read {
			return true
		}
	}
	return false
}

// StartTrigger starts an operation on a job under the caller's id ("" makes one) and returns the id; Operation tells its outcome. The
// same id again does nothing, so that a caller may repeat its request.
func (d *Dispatcher) StartTrigger(id graph.JobID, trigger string, r jobmaster.TriggerRequest) (string, error) {
	j, err := d.job(id)
	if err != nil {
		return "", err
	}
	if trigger == "" {
		trigger = graph.NewID().String()
	}
	key := id.String() + "/" + trigger
	fresh, err := d.triggers.begin(key)
	if err != nil || !fresh {
		return trigger, err
	}
	d.beside(func(ctx context.Context) {
		select {
		case res := <-j.trigger(r):
			if r.Kind == jobmaster.TriggerStop && res.Err == nil {
				res.Err = j.stopped(ctx, res.Path)
			}
			d.triggers.end(key, res)
		case <-ctx.Done():
			d.triggers.end(key, jobmaster.TriggerResult{Err: ErrClosed})
		}
	})
	return trigger, nil
}

// beside runs fn until Close; after Close it runs with an ended context.
func (d *Dispatcher) beside(fn func(ctx context.Context)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.wg.Go(func() { fn(d.ctx) })
}

// Operation returns the state of an operation on a job.
func (d *Dispatcher) Operation(id graph.JobID, trigger string) (Operation, error) {
	return d.triggers.get(id.String() + "/" + trigger)
}

// AwaitRead waits until the outcome of every operation was asked for, or ctx ends: whoever stopped a job with a savepoint has to learn where
// it is before the job's master goes. Source: Flink CompletedOperationCache.closeAsync.
func (d *Dispatcher) AwaitRead(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for d.triggers.unread() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopPoll is how often a job that was stopped is looked at.
const stopPoll = 50 * time.Millisecond

// stopped waits until a job whose savepoint is complete has ended for good: whoever goes on from the savepoint earlier could run beside
// it, since a failure up to then, or the end of this attempt, makes it run again.
func (j *job) stopped(ctx context.Context, path string) error {
	failpoint.At("stop/savepoint-complete")
	attempt, first := 0, true
	t := time.NewTicker(stopPoll)
	defer t.Stop()
	for {
		det, err := j.master.details(ctx)
		switch {
		case err != nil: // it ended
		case first:
			attempt, first = det.Attempt, false
		case det.Attempt != attempt:
			return fmt.Errorf("dispatcher: stop: the savepoint %s is complete, but the job failed before it had ended and runs again; stop it again", path)
		}
		select {
		case <-j.done:
			if j.result.State != scheduler.JobFinished {
				return fmt.Errorf("dispatcher: stop: the savepoint %s is complete; the job is %s", path, j.result.State)
			}
			return nil
		case <-t.C:
		case <-ctx.Done():
			return ErrClosed
		}
	}
}

// StartDisposal removes a savepoint beside the caller; Disposal tells the outcome.
func (d *Dispatcher) StartDisposal(trigger, uri string) (string, error) {
	if trigger == "" {
		trigger = graph.NewID().String()
	}
	key := "disposal/" + trigger
	fresh, err := d.triggers.begin(key)
	if err != nil || !fresh {
		return trigger, err
	}
	d.beside(func(ctx context.Context) {
		d.triggers.end(key, jobmaster.TriggerResult{Path: uri, Err: d.DisposeSavepoint(ctx, uri)})
	})
	return trigger, nil
}

// Disposal returns the state of a disposal.
func (d *Dispatcher) Disposal(trigger string) (Operation, error) {
	return d.triggers.get("disposal/" + trigger)
}

// DisposeSavepoint removes the files that a savepoint's metadata names, then the metadata, then the directory if nothing else is in it. It refuses
// what is not a savepoint: the checkpoints of a job belong to the job.
func (d *Dispatcher) DisposeSavepoint(ctx context.Context, uri string) error {
	cp, err := storage.ReadMetadata(ctx, d.opts.FS, uri)
	if err != nil {
		return fmt.Errorf("dispatcher: dispose: %w", err)
	}
	if !cp.Savepoint {
		return fmt.Errorf("dispatcher: dispose %s: it is a checkpoint of job %s, not a savepoint", uri, cp.JobID)
	}
	f, p, err := d.opts.FS.Resolve(ctx, uri)
	if err != nil {
		return fmt.Errorf("dispatcher: dispose %s: %w", uri, err)
	}
	defer func() { _ = f.Close() }() // what was to be done was done, or is the error
	if path.Base(p) == storage.MetadataName {
		p = path.Dir(p)
	}
	names := savepointFiles(&cp)
	for _, n := range append(names, storage.MetadataName) {
		if err := f.Remove(ctx, path.Join(p, path.Base(n)), false); err != nil {
			return fmt.Errorf("dispatcher: dispose %s: %w", uri, err)
		}
	}
	if left, err := f.List(ctx, p); err == nil && len(left) == 0 {
		if err := f.Remove(ctx, p, true); err != nil {
			return fmt.Errorf("dispatcher: dispose %s: %w", uri, err)
		}
	}
	return nil
}

func savepointFiles(cp *metadata.Checkpoint) []string {
	var names []string
	cp.Refs(func(r *state.FileRef) {
		// A savepoint is self-contained: what lies elsewhere is not its own.
		if r.Name != "" && path.Base(r.Name) == r.Name {
			names = append(names, r.Name)
		}
	})
	return names
}
