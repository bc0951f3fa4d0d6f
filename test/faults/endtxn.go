package faults

import (
	"context"
	"fmt"
	"time"
)

// lateEndTxn breaks the connection of a commit, and delivers the request to the broker when the job has gone on since.
func lateEndTxn(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("EndTxn is delivered %v late", d), Do: func(ctx context.Context, r *run) error {
		n := r.proxy.Delivered() + 1
		r.proxy.HoldEndTxn(d)
		wctx, cancel := context.WithTimeout(ctx, reachWithin+d)
		defer cancel()
		late, err := r.proxy.AwaitLate(wctx, n)
		if err != nil {
			return fmt.Errorf("%w: %w", errNotReached, err)
		}
		l := late[n-1]
		r.logf("EndTxn (version %d, commit %v) of %s delivered %v late: error code %d %v", l.Version, l.Commit, l.ID, d, l.Code, l.Err)
		r.note(fmt.Sprintf("EndTxn of %s delivered late, version %d, answer %d", l.ID, l.Version, l.Code))
		return l.Err
	}}
}

// lateBatch is how many EndTxn a fault of make test-endtxn delivers late.
const lateBatch = 50

// lateEndTxns delivers every third EndTxn late, until so many were, each by another time up to most: some before the job has repeated the
// request, some when the transactional id is in use again. A victim may die meanwhile, so that restored commits are late too.
func lateEndTxns(name string, most time.Duration, victim Kind) Fault {
	return Fault{Name: fmt.Sprintf("%d EndTxn are delivered up to %v late%s", lateBatch, most, name), Master: victim == ApplicationMaster, Alone: true, Do: func(ctx context.Context, r *run) error {
		var ds []time.Duration
		r.mu.Lock()
		for i := range lateBatch {
			least, below := 10*time.Millisecond, time.Second
			if i%2 == 0 { // the transactional id has a transaction again by then
				least, below = time.Second, most
			}
			ds = append(ds, 0, 0, least+time.Duration(r.rng.Int64N(int64(below-least))))
		}
		r.rng.Shuffle(len(ds), func(i, k int) { ds[i], ds[k] = ds[k], ds[i] })
		r.mu.Unlock()
		before := r.proxy.Delivered()
		r.proxy.HoldEndTxn(ds...)
		if victim != "" {
			if err := r.pause(ctx, 2*time.Second); err != nil {
				return err
			}
			if err := r.kill(victim); err != nil {
				return err
			}
		}
		wctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		late, err := r.proxy.AwaitLate(wctx, before+lateBatch)
		if err != nil {
			return err
		}
		codes := map[string]int{}
		for _, l := range late[before:] {
			key := fmt.Sprintf("version %d, answer %d", l.Version, l.Code)
			codes[key]++
			if l.Err != nil {
				return fmt.Errorf("faults: EndTxn of %s that is delivered late: %w", l.ID, l.Err)
			}
		}
		r.logf("EndTxn delivered late: %v", codes)
		r.note(fmt.Sprintf("EndTxn delivered late: %v", codes))
		return nil
	}}
}

// endTxnFaults are those of make test-endtxn alone.
func endTxnFaults() []Fault {
	return []Fault{
		lateEndTxns("", 10*time.Second, ""), lateEndTxns(" while a worker dies", 10*time.Second, Worker),
		lateEndTxns(" while the application master dies", 10*time.Second, ApplicationMaster),
	}
}
