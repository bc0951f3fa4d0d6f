package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/config"
)

func (c *cli) rescaleCommand() *cobra.Command {
	var wanted []string
	var wait bool
	cmd := &cobra.Command{
		Use: "rescale [job]", Short: "change the parallelism of a running job", Args: atMost("a job"),
		Long: "Change the parallelism of a running job, of all its tasks (-p 4) or of single ones (-p TASK=4; TASK is the UID of an operator of it, its\n" +
			"name or id, or the beginning of these). The job goes on from a checkpoint that is taken for it, in the containers that it has; more are asked for when slots\n" +
			"are missing, and those left over are given back. When they do not come within slot.request.timeout, the job goes on as before. -p 2-8 are\n" +
			"bounds: at least 2, and up to 8 when there are slots. A job of the adaptive scheduler (jobmanager.scheduler) keeps its lower bounds. A task\n" +
			"that can only have one subtask keeps it." + whichJob,
		Example: "  thalweg rescale -Dyarn.application.name=orders -p 4 --wait\n  thalweg rescale -m localhost:8081 -p \"Source: orders=8\" -p customer-totals=2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(wanted) == 0 {
				return &usageError{errors.New("rescale: give the parallelism: -p 4, or -p TASK=4")}
			}
			return c.onJob(cmd.Context(), args, func(ctx context.Context, t *target) error { return c.rescale(ctx, t, wanted, wait) })
		},
	}
	cmd.Flags().StringArrayVarP(&wanted, "parallelism", "p", nil, "N, MIN-MAX, TASK=N or TASK=MIN-MAX; repeat it for more tasks")
	cmd.Flags().BoolVar(&wait, "wait", false, "until the job runs so, or it turns out that it cannot")
	return cmd
}

// bounds are a parallelism as the user writes it; keep: only the upper one was given.
type bounds struct {
	lower, upper int
	keep         bool
}

func parseBounds(s string) (b bounds, err error) {
	low, high, ranged := strings.Cut(s, "-")
	if !ranged {
		high, b.keep = low, true
	}
	b.lower, err = strconv.Atoi(low)
	if err == nil {
		b.upper, err = strconv.Atoi(high)
	}
	if err != nil || b.lower < 1 || b.upper < b.lower || b.upper > maxParallelism {
		return b, &usageError{fmt.Errorf("-p %s: want a number from 1 to %d, or two as in 2-8", s, maxParallelism)}
	}
	return b, nil
}

// vertexOf finds the vertex that a user means.
func vertexOf(j *control.Job, name string) (*control.Vertex, error) {
	var found, names []*control.Vertex
	for i := range j.Vertices {
		v := &j.Vertices[i]
		if v.ID == name || v.Name == name {
			return v, nil
		}
		for _, o := range v.Operators {
			if o.UID == name && name != "" {
				return v, nil
			}
		}
		if name != "" && (strings.HasPrefix(v.ID, name) || strings.HasPrefix(v.Name, name) || strings.HasPrefix(v.Name, "Source: "+name)) {
			found = append(found, v)
		}
		names = append(names, v)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	what := fmt.Sprintf("there is no task %q", name)
	if len(found) > 1 {
		what, names = fmt.Sprintf("%q begins several tasks", name), found
	}
	var list []string
	for _, v := range names {
		is := v.ID
		for _, o := range v.Operators {
			if o.UID != "" {
				is += ", UID " + o.UID
			}
		}
		list = append(list, fmt.Sprintf("%s (%s)", v.Name, is))
	}
	return nil, &usageError{fmt.Errorf("-p %s=...: %s; the job has %s", name, what, strings.Join(list, ", "))}
}

// requirements are what the job has now, with what the user wants of it.
func requirements(j *control.Job, now control.Requirements, wanted []string) (control.Requirements, error) {
	out := maps.Clone(now)
	set := func(v *control.Vertex, b bounds) {
		r := out[v.ID]
		if elastic := r.Parallelism.Lower < r.Parallelism.Upper; b.keep && elastic {
			b.lower = min(r.Parallelism.Lower, b.upper)
		}
		r.Parallelism.Lower, r.Parallelism.Upper = b.lower, b.upper
		out[v.ID] = r
	}
	for _, single := range []bool{false, true} { // what is said of all is said before what is said of one
		for _, w := range wanted {
			at := strings.LastIndex(w, "=")
			if at >= 0 != single {
				continue
			}
			b, err := parseBounds(w[at+1:])
			if err != nil {
				return nil, err
			}
			if single {
				v, err := vertexOf(j, w[:at])
				if err != nil {
					return nil, err
				}
				set(v, b)
				continue
			}
			for i := range j.Vertices {
				if v := &j.Vertices[i]; v.MaxParallelism != 1 {
					set(v, b)
				}
			}
		}
	}
	return out, nil
}

func (c *cli) rescale(ctx context.Context, t *target, wanted []string, wait bool) error {
	j, err := t.REST.Job(ctx, t.Job.ID)
	if err != nil {
		return err
	}
	if j.Type == "BATCH" {
		return &usageError{fmt.Errorf("job %s runs in BATCH, at the parallelism that it was started with", t.Job.ID)}
	}
	if control.JobEnded(j.State) {
		return &usageError{fmt.Errorf("job %s is %s", t.Job.ID, j.State)}
	}
	now, err := t.REST.Requirements(ctx, t.Job.ID)
	if err != nil {
		return refusedUsage(err)
	}
	next, err := requirements(&j, now, wanted)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.REST.Require(ctx, t.Job.ID, next); err != nil {
		return refusedUsage(err)
	}
	if !wait {
		return c.tell(t, map[string]any{"event": "rescaling", "requirements": next}, "The parallelism of job %s changes; thalweg rescale --wait waits for it, and thalweg list shows its tasks.\n", t.Job.ID)
	}
	if err := c.awaitRescale(ctx, t); err != nil {
		return err
	}
	if j, err = t.REST.Job(ctx, t.Job.ID); err != nil {
		return err
	}
	p, text := map[string]int{}, []string{}
	for _, v := range j.Vertices {
		p[v.ID] = v.Parallelism
		text = append(text, fmt.Sprintf("%s: %d", v.Name, v.Parallelism))
	}
	took := time.Since(began).Round(time.Millisecond)
	return c.tell(t, map[string]any{"event": "rescaled", "parallelism": p, "durationMs": took.Milliseconds()}, "Job %s runs after %s with %s.\n", t.Job.ID, took, strings.Join(text, ", "))
}

// refusedUsage makes a refusal by the job a fault of the command line.
func refusedUsage(err error) error {
	var refused *control.StatusError
	if errors.As(err, &refused) && slices.Contains([]int{400, 404, 409}, refused.Code) {
		return &usageError{err}
	}
	return err
}

// rescalePoll is the pause between two looks at a job whose parallelism changes.
const rescalePoll = 100 * time.Millisecond

// awaitRescale waits for the end of the last request.
func (c *cli) awaitRescale(ctx context.Context, t *target) error {
	cfg, err := c.config(nil)
	if err != nil {
		return err
	}
	limit := config.ClientTimeout.Value(cfg)
	wctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked := ""
	for {
		x, err := askedRescale(wctx, t, asked)
		asked = x.ID
		switch {
		case err != nil && wctx.Err() == nil:
			return err
		case err == nil && x.State == "COMPLETED":
			return nil
		case err == nil && x.State == "IGNORED":
			return &exitError{exitFailed, fmt.Errorf("job %s was asked for another parallelism meanwhile", t.Job.ID)}
		case err == nil && x.State != "":
			return &exitError{exitFailed, fmt.Errorf("job %s goes on with the parallelism of before: %s", t.Job.ID, x.Failure())}
		}
		timer := time.NewTimer(rescalePoll)
		select {
		case <-timer.C:
			continue
		case <-wctx.Done():
			timer.Stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &exitError{exitFailed, fmt.Errorf("job %s does not run so after %s; it goes on trying. Wait longer with -D%s=10min", t.Job.ID, limit, config.ClientTimeout.Key)}
	}
}

// askedRescale is the request with this id, or the last one when it is not known yet.
func askedRescale(ctx context.Context, t *target, id string) (control.Rescale, error) {
	if id != "" {
		return t.REST.Rescale(ctx, t.Job.ID, id)
	}
	all, err := t.REST.Rescales(ctx, t.Job.ID)
	for _, x := range all {
		if x.Cause == "UPDATE_REQUIREMENT" {
			return x, err
		}
	}
	return control.Rescale{}, err
}
