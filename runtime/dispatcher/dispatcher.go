package dispatcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Errors.
var (
	ErrUnknownJob = errors.New("no such job")
	ErrClosed     = errors.New("the cluster is shutting down")
)

// Options make a Dispatcher.
type Options struct {
	Config    config.Configuration // the cluster's
	Resources *resourcemanager.Manager
	Store     ha.Store
	FS        *fs.Registry
	// Launcher runs coordinator processes; nil for jobs that have none (tests).
	Launcher Launcher
	Epoch    int64
	// Owner is who runs the jobs, for people: an application. It may be empty.
	Owner string
	// Session says that jobs come and go: one that cannot be recovered does not keep the others from it, and ended ones are forgotten
	// (jobstore.expiration-time, jobstore.max-capacity).
	Session bool
	// OnFenced is called, on a goroutine of its own, when a job finds that a newer application attempt has taken over; it may be nil.
	OnFenced func()
	// OnEnded is called when a job has ended for good, before Wait tells it: Details has its last state then. It may be nil.
	OnEnded func(ctx context.Context, id graph.JobID)
	// CancelTimeout is how long tasks may take to end before their worker is killed; 30 s by default.
	CancelTimeout time.Duration
	Logger        zerolog.Logger
}

// Dispatcher is safe for concurrent use.
type Dispatcher struct {
	opts   Options
	log    zerolog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	jobs     map[graph.JobID]*job
	order    []graph.JobID
	closed   bool
	triggers *triggers
}

type job struct {
	id       graph.JobID
	name     string
	artifact string // SHA-256 of its binary
	master   running
	done     chan struct{}
	result   jobmaster.Result // after done
}

// New makes a Dispatcher.
func New(opts Options) *Dispatcher {
	ctx, cancel := context.WithCancel(context.Background())
	return &Dispatcher{opts: opts, log: opts.Logger.With().Str("component", "dispatcher").Logger(), ctx: ctx, cancel: cancel,
		jobs: map[graph.JobID]*job{}, triggers: newTriggers()}
}

// secretSize is the length of a job's data secret, that of the HMAC's key.
const secretSize = 32

// Submit stores a job and starts it. The job's id comes back at once; Wait tells its end.
func (d *Dispatcher) Submit(ctx context.Context, s Submission) (graph.JobID, error) {
	if s.Graph == nil || len(s.Graph.Vertices) == 0 {
		return s.JobID, errors.New("dispatcher: submit: the job graph is empty: add a source and a sink")
	}
	if s.JobID.IsZero() {
		s.JobID = graph.JobID{ID: graph.NewID()}
	}
	if len(s.DataSecret) == 0 {
		s.DataSecret = make([]byte, secretSize)
		_, _ = rand.Read(s.DataSecret) // never fails, crypto/rand's contract
	}
	data, err := json.Marshal(s)
	if err != nil {
		return s.JobID, fmt.Errorf("dispatcher: submit %s: encode: %w", s.JobID, err)
	}
	if err := d.opts.Store.PutJob(ctx, ha.Job{ID: s.JobID, Name: s.Graph.Name, Data: data}); err != nil {
		return s.JobID, fmt.Errorf("dispatcher: submit %s: %w", s.JobID, err)
	}
	d.expire(ctx)
	err = d.run(ctx, s)
	if err != nil && d.opts.Session && !errors.Is(err, ha.ErrFenced) && !errors.Is(err, ha.ErrEnded) && !errors.Is(err, ErrClosed) { // or the next attempt would run what nobody knows of
		if serr := d.opts.Store.EndJob(ctx, s.JobID, ha.Result{State: string(scheduler.JobFailed), Name: s.Graph.Name, Error: err.Error(), End: time.Now()}); serr != nil {
			d.log.Warn().Err(serr).Stringer("job_id", s.JobID).Msg("the end of a job that could not be started is not stored")
		}
	}
	return s.JobID, err
}

// effective is the job's configuration: the graph's wins over the submission's, which wins over the cluster's.
func (d *Dispatcher) effective(s Submission) config.Configuration {
	c := config.Configuration{}
	maps.Copy(c, d.opts.Config)
	maps.Copy(c, s.Config)
	maps.Copy(c, s.Graph.Config)
	return c
}

func (d *Dispatcher) run(ctx context.Context, s Submission) error {
	pointer, first, err := d.opts.Store.OpenJob(ctx, s.JobID)
	if err != nil {
		return fmt.Errorf("dispatcher: open job %s: %w", s.JobID, err)
	}
	opts := jobmaster.Options{JobID: s.JobID, Graph: s.Graph, Args: s.Args, Config: d.effective(s), Epoch: d.opts.Epoch, Owner: d.opts.Owner, Pointer: pointer, FirstID: first,
		DataSecret: s.DataSecret,
		Artifact:   &pb.Artifact{Uri: s.Artifact.URI, Sha256: s.Artifact.SHA256, Size: s.Artifact.Size, Name: s.Artifact.Name},
		Resources:  d.opts.Resources, Store: d.opts.Store, FS: d.opts.FS, CancelTimeout: d.opts.CancelTimeout, Logger: d.opts.Logger,
		OnEnd: func(r jobmaster.Result) error { return d.storeResult(s.JobID, s.Graph.Name, r) }}
	if d.opts.Launcher != nil {
		opts.LaunchCoordinator = func(ctx context.Context, cfg rpc.ProcessConfig) (rpc.CoordinatorLink, func() string, error) {
			return d.opts.Launcher.LaunchCoordinator(ctx, cfg, s.Artifact)
		}
	}
	master, err := jobmaster.New(opts)
	if err != nil {
		return err
	}
	j := &job{id: s.JobID, name: s.Graph.Name, artifact: s.Artifact.SHA256, done: make(chan struct{})}
	j.master.set(master)
	if err := d.add(j); err != nil {
		return fmt.Errorf("dispatcher: run job %s: %w", s.JobID, err)
	}
	d.wg.Go(func() {
		r := master.Run(d.ctx)
		d.ended(j, r)
	})
	return nil
}

func (d *Dispatcher) add(j *job) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if d.jobs[j.id] != nil {
		return errors.New("it runs already")
	}
	d.jobs[j.id] = j
	d.order = append(d.order, j.id)
	return nil
}

// ended tells that a job has ended, for this attempt at least.
func (d *Dispatcher) ended(j *job, r jobmaster.Result) {
	log := d.log.With().Str("job_id", j.id.String()).Logger()
	ev := log.Info()
	if r.Failure != nil { // the JobMaster has told it
		ev = log.Warn()
	}
	ev.Str("state", string(r.State)).Dur("dur", r.End.Sub(r.Start)).Msg("job ended")
	j.result = r
	j.master.archive(r)
	if d.opts.OnEnded != nil && r.State.Terminal() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), endedTimeout)
		d.opts.OnEnded(ctx, j.id)
		cancel()
	}
	close(j.done)
	if r.Fenced && d.opts.OnFenced != nil {
		go d.opts.OnFenced() // it ends this attempt, and so may wait for us
	}
}

// endedTimeout bounds what is done at the end of a job, for which its application waits.
const endedTimeout = 20 * time.Second

// storeResult repeats until the store has the result of a job that ended for good; a job without one would be run again by the next
// attempt.
func (d *Dispatcher) storeResult(id graph.JobID, name string, result jobmaster.Result) error {
	r := ha.Result{State: string(result.State), Name: name, Start: result.Start, End: result.End}
	if result.Failure != nil {
		r.Error = result.Failure.Message
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), 30*time.Second)
	defer cancel()
	for {
		err := d.opts.Store.EndJob(ctx, id, r)
		if err == nil || errors.Is(err, ha.ErrFenced) {
			return err
		}
		d.log.Warn().Err(err).Str("job_id", id.String()).Msg("the job's result could not be stored; trying again")
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

func (d *Dispatcher) job(id graph.JobID) (*job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	if j == nil {
		return nil, fmt.Errorf("dispatcher: job %s: %w", id, ErrUnknownJob)
	}
	return j, nil
}

// Wait waits for a job's end.
func (d *Dispatcher) Wait(ctx context.Context, id graph.JobID) (jobmaster.Result, error) {
	j, err := d.job(id)
	if err != nil {
		return jobmaster.Result{}, err
	}
	select {
	case <-j.done:
		return j.result, nil
	case <-ctx.Done():
		return jobmaster.Result{}, context.Cause(ctx)
	}
}

// JobIDs lists the jobs in the order of their submission.
func (d *Dispatcher) JobIDs() []graph.JobID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.order)
}

// Details returns a job's present, or final, state.
func (d *Dispatcher) Details(ctx context.Context, id graph.JobID) (*jobmaster.Details, error) {
	j, err := d.job(id)
	if err != nil {
		return nil, err
	}
	return j.master.details(ctx)
}

// Jobs returns the details of all jobs, newest first.
func (d *Dispatcher) Jobs(ctx context.Context) ([]*jobmaster.Details, error) {
	var out []*jobmaster.Details
	for _, id := range d.JobIDs() {
		det, err := d.Details(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, det)
	}
	slices.SortStableFunc(out, func(a, b *jobmaster.Details) int { return cmp.Compare(b.Start.UnixNano(), a.Start.UnixNano()) })
	return out, nil
}

// Cancel asks for the end of a job.
func (d *Dispatcher) Cancel(id graph.JobID) error {
	j, err := d.job(id)
	if err != nil {
		return err
	}
	m, err := j.master.live("cancel")
	if err != nil {
		return err
	}
	return m.Cancel()
}

// Require sets what a job's parallelism must be; see jobmaster.JobMaster.Require.
func (d *Dispatcher) Require(ctx context.Context, id graph.JobID, r scheduler.Requirements) error {
	j, err := d.job(id)
	if err != nil {
		return err
	}
	m, err := j.master.live("rescale")
	if err != nil {
		return err
	}
	return m.Require(ctx, r)
}

// Trigger takes a checkpoint or savepoint, or stops the job with one, and waits for the outcome.
func (d *Dispatcher) Trigger(ctx context.Context, id graph.JobID, r jobmaster.TriggerRequest) (jobmaster.TriggerResult, error) {
	j, err := d.job(id)
	if err != nil {
		return jobmaster.TriggerResult{}, err
	}
	select {
	case res := <-j.trigger(r):
		return res, res.Err
	case <-ctx.Done():
		return jobmaster.TriggerResult{}, context.Cause(ctx)
	}
}

// TriggerAsync is Trigger without the wait.
func (d *Dispatcher) TriggerAsync(id graph.JobID, r jobmaster.TriggerRequest) <-chan jobmaster.TriggerResult {
	j, err := d.job(id)
	if err != nil {
		ch := make(chan jobmaster.TriggerResult, 1)
		ch <- jobmaster.TriggerResult{Err: err}
		return ch
	}
	return j.trigger(r)
}

// Running counts jobs that have not ended.
func (d *Dispatcher) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, j := range d.jobs {
		select {
		case <-j.done:
		default:
			n++
		}
	}
	return n
}

// Close suspends the jobs that still run, waits for their JobMasters and for what runs beside. Their tasks are left to whoever ends the TaskManagers.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
}

// FinalStatus maps a job's end to what the deployment shows.
func FinalStatus(r jobmaster.Result) (resourcemanager.FinalStatus, string) {
	diag := ""
	if r.Failure != nil {
		diag = r.Failure.Message
		if r.Failure.Task != "" {
			diag = r.Failure.Task + ": " + diag
		}
	}
	switch r.State {
	case scheduler.JobFinished:
		return resourcemanager.StatusSucceeded, diag
	case scheduler.JobCanceled:
		return resourcemanager.StatusKilled, "the job was cancelled"
	case scheduler.JobFailed:
		return resourcemanager.StatusFailed, diag
	default:
		return resourcemanager.StatusUndefined, diag
	}
}
