package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/test/eos"
)

// judge waits for the results, ends the job and collects the evidence.
func (r *run) judge(ctx context.Context) (*Report, error) {
	want := eos.Results(r.spec)
	wctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	waited := r.watch.WaitFor(wctx, want) // what is missing is for the judge to say
	if err := r.healthy(ctx); err != nil {
		return nil, err
	}
	grown := r.usage.flat()
	ends, err := r.kafka.Ends(ctx, r.in)
	if err != nil {
		return nil, err
	}
	counted, err := r.operators(ctx, ends)
	if err != nil {
		return nil, err
	}
	if err := r.cancel(ctx); err != nil {
		return nil, err
	}
	live, err := r.watch.Stop()
	if err != nil {
		return nil, err
	}
	h, err := r.kafka.Collect(ctx, eos.CollectOptions{Spec: r.spec, Input: r.in, Output: r.out, DeadLetter: r.dead, Prefix: r.prefix, Parallelism: parallelism, Pool: r.pool(), Group: r.group})
	if err != nil {
		return nil, err
	}
	h.Add(live...)
	h.Add(counted...)
	h.Add(r.injected...)
	if err := r.orphans(ctx); err != nil {
		return nil, err
	}
	completed, err := r.checkpoints.stop()
	if err != nil {
		return nil, err
	}
	h.Add(completed...)
	if r.o.History != "" {
		if err := h.AppendFile(r.o.History); err != nil {
			return nil, err
		}
	}
	r.report.History = h
	r.report.Verdict = eos.Judge(h)
	if !r.report.Verdict.OK {
		return &r.report, errors.Join(fmt.Errorf("faults: seed %d: the output is not exactly once", r.o.Seed), waited, grown)
	}
	return &r.report, grown
}

// cleanup makes sure that no application outlives the run.
func (r *run) cleanup() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := r.o.Cluster.YarnCLI(ctx, "application", "-kill", r.job.app); err != nil {
		r.logf("kill %s: %v", r.job.app, err)
	}
}
