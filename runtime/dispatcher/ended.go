package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
)

// running is a job's JobMaster, and after the job's end what is left of it: its last state, so that a session with many ended jobs stays small.
type running struct {
	mu     sync.Mutex
	master *jobmaster.JobMaster
	final  *jobmaster.Details
}

func (r *running) set(m *jobmaster.JobMaster) {
	r.mu.Lock()
	r.master = m
	r.mu.Unlock()
}

func (r *running) archive(res jobmaster.Result) {
	if res.Details == nil {
		return
	}
	r.mu.Lock()
	r.master, r.final = nil, res.Details
	r.mu.Unlock()
}

func (r *running) now() (*jobmaster.JobMaster, *jobmaster.Details) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.master, r.final
}

func (r *running) live(what string) (*jobmaster.JobMaster, error) {
	m, _ := r.now()
	if m == nil {
		return nil, fmt.Errorf("dispatcher: %s: %w", what, jobmaster.ErrEnded)
	}
	return m, nil
}

func (r *running) details(ctx context.Context) (*jobmaster.Details, error) {
	m, final := r.now()
	if m == nil {
		return final, nil
	}
	return m.Details(ctx)
}

func (j *job) trigger(r jobmaster.TriggerRequest) <-chan jobmaster.TriggerResult {
	m, err := j.master.live("checkpoint")
	if err != nil {
		ch := make(chan jobmaster.TriggerResult, 1)
		ch <- jobmaster.TriggerResult{Err: err}
		return ch
	}
	return m.Trigger(r)
}

func (j *job) over() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// Name is the name of a job, and whether it is known.
func (d *Dispatcher) Name(id graph.JobID) (string, bool) {
	d.mu.Lock()
	j := d.jobs[id]
	d.mu.Unlock()
	if j == nil {
		return "", false
	}
	return j.name, true
}

// Artifacts are the hashes of the binaries of the jobs that have not ended.
func (d *Dispatcher) Artifacts() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]bool{}
	for _, j := range d.jobs {
		if !j.over() {
			out[j.artifact] = true
		}
	}
	return out
}

// expire forgets jobs of a session that ended long ago, and the oldest of too many.
//
// Source: Flink's ExecutionGraphInfoStore (jobstore.expiration-time, jobstore.max-capacity).
func (d *Dispatcher) expire(ctx context.Context) {
	if !d.opts.Session {
		return
	}
	age, most := config.JobStoreExpiration.Value(d.opts.Config), config.JobStoreCapacity.Value(d.opts.Config)
	var gone []graph.JobID
	d.mu.Lock()
	var ended []*job
	for _, j := range d.jobs {
		if j.over() {
			ended = append(ended, j)
		}
	}
	slices.SortFunc(ended, func(a, b *job) int { return b.result.End.Compare(a.result.End) })
	for i, j := range ended {
		if i >= most || time.Since(j.result.End) > age {
			delete(d.jobs, j.id)
			gone = append(gone, j.id)
		}
	}
	d.order = slices.DeleteFunc(d.order, func(id graph.JobID) bool { return d.jobs[id] == nil })
	d.mu.Unlock()
	for _, id := range gone {
		if err := d.opts.Store.ForgetResult(ctx, id); err != nil && !errors.Is(err, ha.ErrUnknownJob) {
			d.log.Warn().Err(err).Stringer("job_id", id).Msg("the result of an old job could not be removed")
		}
	}
}
