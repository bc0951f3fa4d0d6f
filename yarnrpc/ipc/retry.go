package ipc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry repeats an operation while Classify says that it may help. The zero value is usable: it starts at 100 ms, doubles
// up to 2 s, and goes on until the context ends.
type Retry struct {
	Initial  time.Duration // first pause, 100 ms by default
	Max      time.Duration // longest pause, 2 s by default
	Attempts int           // total number of tries, 0 for no limit but the context's
	// Classify replaces the package's Classify, for protocols with exceptions of their own that pass by waiting.
	Classify func(error) Kind
	// OnRetry, if set, sees each failure that will be retried, before the pause.
	OnRetry func(attempt int, pause time.Duration, err error)
}

// Do runs op until it succeeds, fails with a Final error, the attempts are used up, or ctx ends. attempt counts from 0.
//
// When ctx ends after failures, the error wraps both the last failure and the context's error, so that the user reads
// the cause and not only "deadline exceeded".
func (r Retry) Do(ctx context.Context, op func(ctx context.Context, attempt int) error) error {
	pause, most := r.Initial, r.Max
	if pause <= 0 {
		pause = 100 * time.Millisecond
	}
	if most <= 0 {
		most = 2 * time.Second
	}
	classify := r.Classify
	if classify == nil {
		classify = Classify
	}
	start := time.Now()
	var last error
	for attempt := 0; ; attempt++ {
		err := op(ctx, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			interrupted := errors.Is(err, ctx.Err())
			if interrupted && last == nil {
				return err
			}
			if !interrupted {
				last = err
			}
			return gaveUp(start, attempt+1, last, ctx.Err())
		}
		kind := classify(err)
		if kind == Final {
			return err
		}
		last = err
		if r.Attempts > 0 && attempt+1 >= r.Attempts {
			return fmt.Errorf("gave up after %d attempts: %w", attempt+1, err)
		}
		wait := min(pause, most)
		wait = wait/2 + rand.N(wait/2+1) //nolint:gosec // jitter
		if kind == Standby {
			wait = min(wait, 500*time.Millisecond) // the other server is most likely ready
		}
		if r.OnRetry != nil {
			r.OnRetry(attempt, wait, err)
		}
		if err := Sleep(ctx, wait); err != nil {
			return gaveUp(start, attempt+1, last, err)
		}
		pause = min(pause*2, most)
	}
}

// Sleep waits for d, or for the end of ctx, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func gaveUp(start time.Time, attempts int, last, ctxErr error) error {
	return fmt.Errorf("gave up after %s and %d attempts: %w (%w)", time.Since(start).Round(time.Millisecond), attempts, last, ctxErr)
}
