package sim

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// Services of operators.

// Post implements operator.Services.
func (t *Task) Post(fn func() error) {
	t.mu.Lock()
	t.posts = append(t.posts, fn)
	t.commits.cond.Broadcast()
	t.mu.Unlock()
}

// Fail implements operator.Services.
func (t *Task) Fail(err error) {
	t.mu.Lock()
	if t.err == nil {
		t.err = err
	}
	t.commits.cond.Broadcast()
	t.mu.Unlock()
}

// Now implements operator.Services.
func (t *Task) Now() int64 { return t.w.now + t.worker.skew }

// Uptime implements operator.Services.
func (t *Task) Uptime() int64 { return t.w.now }

// Backpressured implements operator.Services.
func (t *Task) Backpressured() int64 { return 0 }

// At implements operator.Services.
func (t *Task) At(ms int64, fn func() error) {
	t.timers.add(ms-t.worker.skew, func() error {
		if t.Now() < ms { // the clock was set back
			t.At(ms, fn)
			return nil
		}
		return fn()
	})
}

// After implements operator.Services.
func (t *Task) After(ms int64, fn func() error) { t.timers.add(t.w.now+ms, fn) }

// SendEvent implements operator.Services.
func (t *Task) SendEvent(op graph.OperatorID, payload []byte) {
	t.takeover.Sent(payload)
	t.worker.report(eventReport{id: t.d.id, op: op, payload: payload})
}

// Wake implements operator.Services.
func (t *Task) Wake() {}

// Context implements operator.Services.
func (t *Task) Context() context.Context { return t.ctx }

// commitDesk stands between the goroutine on which an operator commits and the simulation: the former waits until the scheduler lets the
// broker act, and then until it lets the answer through.
type commitDesk struct {
	t     *Task
	cond  sync.Cond
	asked *commitRequest
}

type commitRequest struct {
	t       *Task
	items   []committable
	known   bool // to the scheduler
	applied bool // by the broker
	err     error
	answer  chan error
}

// ask runs on the operator's goroutine.
func (d *commitDesk) ask(ctx context.Context, items []committable) error {
	r := &commitRequest{t: d.t, items: items, answer: make(chan error, 1)}
	d.t.mu.Lock()
	d.asked = r
	d.cond.Broadcast()
	d.t.mu.Unlock()
	select {
	case err := <-r.answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle waits until the operator's goroutine waits for us or has nothing to do, so that what it does is always between the same two steps.
func (d *commitDesk) settle() {
	t := d.t
	for {
		if t.drainPosts() != nil {
			return
		}
		idle := true
		for _, o := range t.ops {
			idle = idle && (o == nil || o.Drained())
		}
		if idle {
			return
		}
		t.mu.Lock()
		for d.asked == nil && len(t.posts) == 0 && t.err == nil {
			d.cond.Wait()
		}
		waits := d.asked != nil && len(t.posts) == 0
		r := d.asked
		t.mu.Unlock()
		if waits {
			if !r.known {
				r.known = true
				t.w.commits = append(t.w.commits, r)
			}
			return
		}
	}
}

func (r *commitRequest) done(err error) {
	r.t.mu.Lock()
	r.t.commits.asked = nil
	r.t.mu.Unlock()
	r.answer <- err
	r.t.run(func() error { return nil })
}

// nop is a metrics registry.
type nop struct{}

func (nop) Add(int64)                          {}
func (n nop) Counter(string) connector.Counter { return n }
func (nop) Gauge(string, func() float64)       {}

func (t *Task) context(c *graph.ChainNode, restored metadata.Subtask) *operator.Context {
	return &operator.Context{
		Services: t, ID: c.ID, Name: c.Node.Name, UID: c.Node.UID, Index: c.Index, JobID: t.w.phase.job.String(), JobName: "sim", Files: t.w.reg,
		Subtask: t.d.id.Subtask, Parallelism: t.d.parallelism, MaxParallelism: t.d.vertex.MaxParallelism, Attempt: t.d.id.Attempt,
		Config: t.w.conf, Logger: zerolog.Nop(), Metrics: nop{}, Mark: &t.mark, RestoredCheckpoint: t.d.checkpoint, State: restored,
		StateSource: storage.NewSource(t.w.reg), StateMemory: 1 << 20, Checkpointing: true,
	}
}

func (w *World) time() time.Time { return time.UnixMilli(w.now) }
