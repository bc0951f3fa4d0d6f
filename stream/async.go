package stream

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// AsyncFunction answers records by waiting for something else, many at once. newFn makes a new instance at each call; Async makes one of a
// plain function. Its methods: Open(rt *TaskContext) error, Invoke(ctx context.Context, v T) ([]R, error), Close() error. It may also have that of
// AsyncTimeout.
type AsyncFunction[T, R any] = operator.AsyncFunction[T, R]

// AsyncTimeout is what an AsyncFunction may have, too: OnTimeout(v T) ([]R, error) gives the results of a record whose time is up. Without
// it, or when it returns an error, the task fails.
type AsyncTimeout[T, R any] = operator.AsyncTimeout[T, R]

// AsyncRetry says when Invoke is called again for a record; RetryFixed and RetryExponential make one, whose OnResult and OnError may be set.
// Its fields:
//   - MaxAttempts int: in all, the first included; the last one's outcome counts
//   - Delay func(attempts int) time.Duration: before the next attempt, after so many
//   - OnResult func(results []R) bool: whether these results are to be tried again; nil for none
//   - OnError func(err error) bool: whether this error is; nil for every one, or for none when OnResult is set
//   - Err error: a mistake of who made it, told when the graph is built
type AsyncRetry[R any] = operator.AsyncRetry[R]

// AsyncOptions are the settings of OrderedWait and UnorderedWait.
type AsyncOptions[R any] struct {
	// Timeout is how long a record may wait for its results, all attempts together. It is required.
	Timeout time.Duration
	// Capacity is how many records may be in flight in a subtask; 0 for 100. When so many are, the operator takes no more.
	Capacity int
	// Retry calls the function again; see RetryFixed and RetryExponential. The zero value never does.
	Retry AsyncRetry[R]
}

// RetryFixed calls the function up to maxAttempts times in all, delay apart, while it returns an error; set OnResult and OnError for a
// choice.
func RetryFixed[R any](maxAttempts int, delay time.Duration) AsyncRetry[R] {
	r := AsyncRetry[R]{MaxAttempts: maxAttempts, Delay: func(int) time.Duration { return delay }}
	switch {
	case maxAttempts < 1:
		r.Err = fmt.Errorf("RetryFixed: %d attempts: there must be 1 at least", maxAttempts)
	case delay < 0:
		r.Err = fmt.Errorf("RetryFixed: the delay is %v: it must not be negative", delay)
	}
	return r
}

// RetryExponential is RetryFixed with delays that grow from initial by multiplier up to longest.
func RetryExponential[R any](maxAttempts int, initial, longest time.Duration, multiplier float64) AsyncRetry[R] {
	r := AsyncRetry[R]{MaxAttempts: maxAttempts, Delay: func(attempts int) time.Duration {
		d := float64(initial) * math.Pow(multiplier, float64(attempts-1))
		return time.Duration(min(d, float64(longest)))
	}}
	switch {
	case maxAttempts < 1:
		r.Err = fmt.Errorf("RetryExponential: %d attempts: there must be 1 at least", maxAttempts)
	case initial <= 0 || longest < initial:
		r.Err = fmt.Errorf("RetryExponential: delays from %v up to %v: the first must be positive, and not above the longest", initial, longest)
	case !(multiplier >= 1) || math.IsInf(multiplier, 0): // NaN is neither
		r.Err = fmt.Errorf("RetryExponential: the multiplier is %v: it must be 1 at least", multiplier)
	}
	return r
}

// Async makes an AsyncFunction of a function that holds nothing to open or close.
func Async[T, R any](fn func(ctx context.Context, v T) ([]R, error)) func() AsyncFunction[T, R] {
	if fn == nil {
		return nil // OrderedWait and UnorderedWait tell
	}
	return func() AsyncFunction[T, R] { return asyncFunc[T, R]{fn: fn} }
}

type asyncFunc[T, R any] struct {
	Plain
	fn func(context.Context, T) ([]R, error)
}

func (f asyncFunc[T, R]) Invoke(ctx context.Context, v T) ([]R, error) { return f.fn(ctx, v) }

// OrderedWait passes records through an asynchronous function; results keep the order of their records. Records in flight are part of
// checkpoints and asked again after a restore. A record that is not answered in time fails the job, or goes to the function's OnTimeout.
func (s DataStream[T]) OrderedWait[R any](newFn func() AsyncFunction[T, R], opts AsyncOptions[R]) SingleOutputStreamOperator[R] {
	return asyncWait(s, newFn, opts, true)
}

// UnorderedWait is OrderedWait whose results leave as they come; none passes a watermark that came after its record.
func (s DataStream[T]) UnorderedWait[R any](newFn func() AsyncFunction[T, R], opts AsyncOptions[R]) SingleOutputStreamOperator[R] {
	return asyncWait(s, newFn, opts, false)
}

func asyncWait[T, R any](s DataStream[T], newFn func() AsyncFunction[T, R], opts AsyncOptions[R], ordered bool) SingleOutputStreamOperator[R] {
	name := "UnorderedWait"
	if ordered {
		name = "OrderedWait"
	}
	s.f.env().constructor(newFn != nil && s.f.env().made(newFn(), newFn()))
	if opts.Timeout <= 0 {
		s.f.env().mistake("%s: Timeout is %v: it must be positive", name, opts.Timeout)
	}
	if opts.Capacity < 0 {
		s.f.env().mistake("%s: Capacity is %d: it must be positive, or 0 for 100", name, opts.Capacity)
	}
	if opts.Capacity == 0 {
		opts.Capacity = 100
	}
	r := opts.Retry
	if r.Err != nil {
		s.f.env().mistake("%s: %v", name, r.Err)
	} else if r.MaxAttempts < 0 || r.MaxAttempts > 1 && r.Delay == nil {
		s.f.env().mistake("%s: Retry needs MaxAttempts (%d) of at least 1 and a Delay", name, r.MaxAttempts)
	}
	out := next[R](s.f, "async", "Async "+name, operator.AsyncWait(newFn, operator.AsyncOptions[R]{
		Ordered: ordered, Timeout: opts.Timeout, Capacity: opts.Capacity, Retry: r}))
	out.f.node.Stateful = true
	return out
}
