package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/test/eos"
)

// Fault is something that is done to a running job. When Do returns the job must recover: run with all tasks, complete a checkpoint that
// began since, and write output.
type Fault struct {
	Name string
	Do   func(ctx context.Context, r *run) error
	// Master says that the application master dies. YARN counts failures of attempts inside of a window of 10 s, so such faults stand apart.
	Master bool
	// Alone says that it cannot be one of two faults at a time.
	Alone bool
	// Root says that only root can do it.
	Root bool
	// Apart says that it takes NodeManagers on two hosts.
	Apart bool
}

// errNotReached says that a failpoint was armed and nothing came there. In a pair the other fault may be the reason.
var errNotReached = errors.New("nothing came there")

const (
	reachWithin   = time.Minute // for an armed point to be struck
	recoverWithin = 2 * time.Minute
)

// Step is one fault, or two at a time.
type Step []Fault

func (s Step) name() string {
	text := ""
	for i, f := range s {
		if i > 0 {
			text += " + "
		}
		text += f.Name
	}
	return text
}

func (s Step) master() bool {
	return slices.ContainsFunc(s, func(f Fault) bool { return f.Master })
}

// schedule draws n single faults from all, each one once before any comes twice, and as many pairs as are asked for, in the order of the
// run. Steps that kill the application master are kept apart where that is possible.
func schedule(r interface {
	IntN(n int) int
	Perm(n int) []int
}, all []Fault, n, pairs int,
) []Step {
	var steps []Step
	for len(steps) < n {
		for _, i := range r.Perm(len(all)) {
			if len(steps) < n {
				steps = append(steps, Step{all[i]})
			}
		}
	}
	var both []Fault
	for _, f := range all {
		if !f.Alone {
			both = append(both, f)
		}
	}
	for range pairs {
		i, k := r.IntN(len(both)), r.IntN(len(both)-1)
		if k >= i {
			k++
		}
		steps = append(steps, Step{both[i], both[k]})
	}
	for i := 1; i < len(steps); i++ {
		if !steps[i].master() || !steps[i-1].master() {
			continue
		}
		if k := slices.IndexFunc(steps[i:], func(s Step) bool { return !s.master() }); k > 0 {
			steps[i], steps[i+k] = steps[i+k], steps[i]
		}
	}
	return steps
}

// strike injects a step into a healthy job, and waits until the job has recovered. It returns how many faults it injected.
func (r *run) strike(ctx context.Context, i int, s Step) (int, error) {
	if err := r.pause(ctx, time.Duration(r.rng.Int64N(int64(time.Second)))); err != nil {
		return 0, err
	}
	r.note(s.name())
	at := time.Now()
	errs := make([]error, len(s))
	var wg sync.WaitGroup
	for k, f := range s {
		wg.Go(func() { errs[k] = f.Do(ctx, r) })
	}
	wg.Wait()
	injected := len(s)
	for k, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, errNotReached) && len(s) > 1:
			injected--
			r.logf("fault %d: %s: %v, which the other fault may have prevented", i+1, s[k].Name, err)
		default:
			return 0, fmt.Errorf("%s: %w", s[k].Name, err)
		}
	}
	healed := time.Now()
	if err := r.recovered(ctx, healed); err != nil {
		return injected, err
	}
	r.report.Recoveries = append(r.report.Recoveries, Recovery{Kind: Kind(s.name()), Lasted: healed.Sub(at), Output: time.Since(healed)})
	r.logf("fault %d: %s: it lasted %v, recovered after %v", i+1, s.name(), healed.Sub(at).Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
	return injected, nil
}

// note puts a fault into the history.
func (r *run) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injected = append(r.injected, eos.Event{Kind: eos.KindFault, At: time.Now().UTC(), Text: text})
}

// recovered waits until all tasks run, a checkpoint that began after t is complete, and output was written after t.
func (r *run) recovered(ctx context.Context, t time.Time) error {
	return until(ctx, recoverWithin, "a job that has recovered", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		if err != nil || !s.running() {
			return false, errors.Join(err, fmt.Errorf("it is %s", s.State))
		}
		began, err := r.job.latestTrigger(ctx)
		if err != nil {
			return false, err
		}
		if !began.After(t) {
			return false, fmt.Errorf("the latest checkpoint began %v before", t.Sub(began).Round(time.Millisecond))
		}
		return r.raw.last().After(t), errors.New("no output")
	})
}

// pause waits for d.
func (r *run) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// latestTrigger is when the latest completed checkpoint began; zero when there is none.
func (j *job) latestTrigger(ctx context.Context) (time.Time, error) {
	var r struct {
		Latest struct {
			Completed *struct {
				Trigger int64 `json:"trigger_timestamp"`
			} `json:"completed"`
		} `json:"latest"`
	}
	if err := j.get(ctx, "/jobs/"+j.id+"/checkpoints", &r); err != nil || r.Latest.Completed == nil {
		return time.Time{}, err
	}
	return time.UnixMilli(r.Latest.Completed.Trigger), nil
}
