package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Recover starts the jobs that an earlier application attempt left; artifact says where a job's binary is on this machine ("" when it
// must be fetched). It returns their ids. In a session a job that cannot be recovered is shown as FAILED, and those that ended before are shown
// with how they ended.
func (d *Dispatcher) Recover(ctx context.Context, artifact func(Artifact) string) ([]graph.JobID, error) {
	stored, err := d.opts.Store.Jobs(ctx)
	if err != nil && !(d.opts.Session && errors.Is(err, ha.ErrDamaged)) {
		return nil, fmt.Errorf("dispatcher: recover jobs: %w", err)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("stored jobs are lost; the others go on")
	}
	var ids []graph.JobID
	for _, j := range stored {
		switch err := d.recoverJob(ctx, j, artifact); {
		case err == nil:
			ids = append(ids, j.ID)
		case errors.Is(err, ha.ErrEnded):
		case !d.opts.Session || errors.Is(err, ha.ErrFenced) || ctx.Err() != nil:
			return ids, err
		default:
			d.log.Error().Err(err).Stringer("job_id", j.ID).Msg("the job could not be recovered; the others go on")
			d.show(j.ID, j.Name, ha.Result{State: string(scheduler.JobFailed), Error: err.Error(), End: time.Now()})
			if err := d.opts.Store.EndJob(ctx, j.ID, ha.Result{State: string(scheduler.JobFailed), Error: err.Error(), End: time.Now()}); err != nil {
				d.log.Warn().Err(err).Stringer("job_id", j.ID).Msg("its end is not stored")
			}
		}
	}
	return ids, d.recoverResults(ctx)
}

func (d *Dispatcher) recoverJob(ctx context.Context, j ha.Job, artifact func(Artifact) string) error {
	var s Submission
	if err := json.Unmarshal(j.Data, &s); err != nil {
		return fmt.Errorf("dispatcher: recover job %s (%s): %w", j.ID, j.Name, err)
	}
	if artifact != nil {
		s.Artifact.Path = artifact(s.Artifact)
	}
	return d.run(ctx, s)
}

// recoverResults shows the jobs that ended in earlier attempts: whoever follows one learns how it ended.
func (d *Dispatcher) recoverResults(ctx context.Context) error {
	if !d.opts.Session {
		return nil
	}
	results, err := d.opts.Store.Results(ctx)
	if err != nil {
		if errors.Is(err, ha.ErrFenced) || ctx.Err() != nil {
			return err
		}
		d.log.Warn().Err(err).Msg("how jobs ended before is not known")
		return nil
	}
	for id, r := range results {
		d.show(id, r.Name, r)
	}
	return nil
}

// show adds a job that has ended, of which nothing but its end is known.
func (d *Dispatcher) show(id graph.JobID, name string, r ha.Result) {
	state := scheduler.JobState(r.State)
	j := &job{id: id, name: name, done: make(chan struct{})}
	det := &jobmaster.Details{JobID: id, Name: name, Graph: &graph.JobGraph{Name: name}, State: state, Start: r.Start, End: r.End,
		Since: map[scheduler.JobState]time.Time{state: r.End}}
	j.result = jobmaster.Result{State: state, Start: r.Start, End: r.End}
	if r.Error != "" {
		f := &scheduler.Failure{Message: r.Error, At: r.End, Fatal: true}
		det.Root, j.result.Failure = f, f
		det.History = []jobmaster.Recorded{{Failure: *f, Root: true}}
	}
	j.master.final = det
	close(j.done)
	_ = d.add(j) // it is known already, or nobody looks any more
}
