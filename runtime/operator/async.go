package operator

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/serde"
)

// AsyncFunction answers records by waiting for something else: a service, a database. One instance serves one subtask; Invoke runs on
// many goroutines at once. Source: Flink RichAsyncFunction.
type AsyncFunction[T, R any] interface {
	Open(rt *TaskContext) error
	// Invoke returns the results of v. ctx ends at the time-out and with the task.
	Invoke(ctx context.Context, v T) ([]R, error)
	Close() error
}

// AsyncTimeout is an optional part of an AsyncFunction: OnTimeout gives the results of a record whose time is up; without it, or when it
// returns an error, the task fails.
type AsyncTimeout[T, R any] interface {
	OnTimeout(v T) ([]R, error)
}

// AsyncRetry says when Invoke is called again for a record. The zero value never does. The time-out covers all attempts.
type AsyncRetry[R any] struct {
	MaxAttempts int                              // in all; the last one's outcome counts
	Delay       func(attempts int) time.Duration // before the next, after so many
	OnResult    func(results []R) bool           // retry these results; nil for none
	OnError     func(err error) bool             // retry this error; nil for every one, when OnResult is nil too
	Err         error                            // a mistake of who made it, told where it is used
}

func (r *AsyncRetry[R]) again(attempts int, results []R, err error) bool {
	if attempts >= r.MaxAttempts {
		return false
	}
	if err != nil {
		return r.OnError == nil && r.OnResult == nil || r.OnError != nil && r.OnError(err)
	}
	return r.OnResult != nil && r.OnResult(results)
}

// AsyncOptions are the settings of AsyncWait.
type AsyncOptions[R any] struct {
	Ordered  bool          // results in the order of the records; else as they come, but never across a watermark
	Timeout  time.Duration // of a record, all attempts together
	Capacity int           // records in flight; when so many are, the operator waits
	Retry    AsyncRetry[R]
}

// ErrAsyncTimeout is the failure of a record whose function did not answer in time.
var ErrAsyncTimeout = errors.New("the asynchronous function did not answer in time")

const asyncState = "async-in-flight"

// AsyncWait passes records through an AsyncFunction; newFn makes one instance per subtask. Records in flight are part of each checkpoint
// and are asked again after a restore. Results have the event time of their record. Source: Flink AsyncWaitOperator.
func AsyncWait[T, R any](newFn func() AsyncFunction[T, R], opts AsyncOptions[R]) Factory {
	return laid(layoutAsync, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		codec, err := serde.For[T]()
		if err != nil {
			return nil, err
		}
		o := &asyncOp[T, R]{ctx: ctx, fn: newFn(), opts: opts, out: copying(ctx.Config, r), codec: codec, mutable: serde.Mutable(codec), signal: make(chan struct{}, 1), entries: map[*asyncEntry[T, R]]struct{}{}}
		o.onTimeout, _ = o.fn.(AsyncTimeout[T, R])
		o.segments = []*asyncSegment[T, R]{{}}
		return o, nil
	})
}

// asyncEntry is a record in flight.
type asyncEntry[T, R any] struct {
	seq     int64
	v       T
	m       Meta
	segment *asyncSegment[T, R]
	taken   atomic.Bool // the first answer counts: results, failure or time-out
	cancel  context.CancelFunc
	timer   *time.Timer
	// Set by the answer, read by the task's goroutine once the entry is in answered.
	results []R
	err     error
	done    bool // task's goroutine
}

// asyncSegment is what lies between two watermarks (or changes of idleness). A segment's end is passed on when all before it is.
type asyncSegment[T, R any] struct {
	waiting []*asyncEntry[T, R] // in order; of an unordered operator only those that are answered already but may not leave yet
	open    int                 // entries that did not leave yet
	end     func() error        // nil for the last segment
}

type asyncOp[T, R any] struct {
	Base
	ctx       *Context
	fn        AsyncFunction[T, R]
	onTimeout AsyncTimeout[T, R]
	opts      AsyncOptions[R]
	out       Receiver[R]
	codec     serde.Codec[T]
	mutable   bool // whoever sent a record may go on using what it points to
	seq       int64
	entries   map[*asyncEntry[T, R]]struct{}
	segments  []*asyncSegment[T, R]

	life   context.Context
	end    context.CancelFunc
	calls  sync.WaitGroup // goroutines that call the function, and timers
	asked  atomic.Int64   // calls of the function that have not returned
	signal chan struct{}  // something is in answered

	mu       sync.Mutex
	answered []*asyncEntry[T, R]
	posted   bool // drain is in the mailbox
}

func (o *asyncOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *asyncOp[T, R]) Open(context.Context) error {
	o.life, o.end = context.WithCancel(o.ctx.Services.Context())
	o.ctx.Enter()
	if err := o.fn.Open(&TaskContext{o.ctx}); err != nil {
		return o.ctx.wrap(err)
	}
	items := o.ctx.List(asyncState)
	if len(items) == 0 {
		return nil
	}
	o.ctx.Post(func() error { // before any input, when everything downstream is ready
		for _, item := range items {
			if len(item) < 8 {
				return o.ctx.undecodable("records in flight", fmt.Errorf("an item of %d bytes", len(item)))
			}
			v, _, err := o.codec.Decode(item[8:])
			if err != nil {
				return o.ctx.undecodable("records in flight", err)
			}
			if err := o.Process(v, Meta{TS: int64(binary.BigEndian.Uint64(item))}); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

func (o *asyncOp[T, R]) Process(v T, m Meta) error {
	if err := o.waitUntil(func() bool { return len(o.entries) < o.opts.Capacity }); err != nil {
		return err
	}
	o.ctx.Enter() // answers may have left
	if o.mutable {
		v = o.codec.Clone(v)
	}
	s := o.segments[len(o.segments)-1]
	o.seq++
	e := &asyncEntry[T, R]{seq: o.seq, v: v, m: m, segment: s}
	o.entries[e] = struct{}{}
	s.open++
	if o.opts.Ordered {
		s.waiting = append(s.waiting, e)
	}
	ctx, cancel := context.WithTimeout(o.life, o.opts.Timeout)
	e.cancel = cancel
	o.calls.Add(1)
	e.timer = time.AfterFunc(o.opts.Timeout, func() { o.timeout(e) })
	o.asked.Add(1)
	o.calls.Go(func() {
		var results []R
		guard.Call(func() (err error) {
			results, err = o.attempts(ctx, v)
			return err
		}, func(err error) {
			o.asked.Add(-1)
			if ctx.Err() == nil || o.life.Err() != nil { // else the timer answers
				o.answer(e, results, err)
			}
		})
	})
	return nil
}

// attempts calls the function until its outcome counts.
func (o *asyncOp[T, R]) attempts(ctx context.Context, v T) ([]R, error) {
	for n := 1; ; n++ {
		var results []R
		err := guard.Run(func() (err error) {
			results, err = o.fn.Invoke(ctx, v)
			return err
		})
		if ctx.Err() != nil || !o.opts.Retry.again(n, results, err) {
			if err != nil && n > 1 {
				err = fmt.Errorf("after %d attempts: %w", n, err)
			}
			return results, err
		}
		select {
		case <-time.After(o.opts.Retry.Delay(n)):
		case <-ctx.Done():
			return results, err
		}
	}
}

func (o *asyncOp[T, R]) timeout(e *asyncEntry[T, R]) {
	defer o.calls.Done()
	if !e.taken.CompareAndSwap(false, true) {
		return
	}
	if o.onTimeout == nil {
		o.leave(e, nil, fmt.Errorf("%w (%v)", ErrAsyncTimeout, o.opts.Timeout))
		return
	}
	var results []R
	guard.Call(func() (err error) {
		results, err = o.onTimeout.OnTimeout(e.v)
		return err
	}, func(err error) { o.leave(e, results, err) })
}

// answer takes an entry's outcome, if it is the first.
func (o *asyncOp[T, R]) answer(e *asyncEntry[T, R], results []R, err error) {
	if e.taken.CompareAndSwap(false, true) {
		o.leave(e, results, err)
	}
}

// leave lets the task's goroutine know of the outcome of an entry that the caller has taken.
func (o *asyncOp[T, R]) leave(e *asyncEntry[T, R], results []R, err error) {
	e.results, e.err = results, err
	o.mu.Lock()
	o.answered = append(o.answered, e)
	post := !o.posted
	o.posted = true
	o.mu.Unlock()
	select {
	case o.signal <- struct{}{}:
	default:
	}
	if post {
		o.ctx.Post(o.drain)
	}
}

// drain emits what may leave; task's goroutine.
func (o *asyncOp[T, R]) drain() error {
	o.mu.Lock()
	answered := o.answered
	o.answered, o.posted = nil, false
	o.mu.Unlock()
	for _, e := range answered {
		e.done = true
		e.cancel()
		if e.timer.Stop() {
			o.calls.Done()
		}
		if !o.opts.Ordered {
			e.segment.waiting = append(e.segment.waiting, e)
		}
	}
	for {
		s := o.segments[0]
		for len(s.waiting) > 0 && s.waiting[0].done {
			e := s.waiting[0]
			s.waiting = s.waiting[1:]
			s.open--
			if err := o.emit(e); err != nil {
				return err
			}
			delete(o.entries, e)
		}
		if s.open > 0 || s.end == nil {
			return nil
		}
		if err := s.end(); err != nil {
			return err
		}
		o.segments = o.segments[1:]
	}
}

func (o *asyncOp[T, R]) emit(e *asyncEntry[T, R]) error {
	o.ctx.Enter()
	if e.err != nil {
		return o.ctx.wrap(e.err)
	}
	for _, r := range e.results {
		if err := o.out.Process(r, e.m); err != nil {
			return err
		}
	}
	return nil
}

// waitUntil drains until ok.
func (o *asyncOp[T, R]) waitUntil(ok func() bool) error {
	for !ok() {
		if err := o.drain(); err != nil {
			return err
		}
		if ok() {
			return nil
		}
		select {
		case <-o.signal:
		case <-o.life.Done():
			return context.Cause(o.life)
		}
	}
	return nil
}

func (o *asyncOp[T, R]) Watermark(ts int64) error {
	return o.boundary(func() error { return o.out.Watermark(ts) })
}

func (o *asyncOp[T, R]) Idle(idle bool) error {
	return o.boundary(func() error { return o.out.Idle(idle) })
}

// boundary passes end on when everything before it has left.
func (o *asyncOp[T, R]) boundary(end func() error) error {
	if len(o.entries) == 0 && len(o.segments) == 1 {
		return end()
	}
	o.segments[len(o.segments)-1].end = end
	o.segments = append(o.segments, &asyncSegment[T, R]{})
	return o.drain()
}

func (o *asyncOp[T, R]) EndInput() error {
	return o.waitUntil(func() bool { return len(o.entries) == 0 && len(o.segments) == 1 })
}

// Snapshot stores the records in flight in their order, each with its event time.
func (o *asyncOp[T, R]) Snapshot(Barrier) (Snapshot, error) {
	all := make([]*asyncEntry[T, R], 0, len(o.entries))
	for e := range o.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *asyncEntry[T, R]) int { return cmp.Compare(a.seq, b.seq) })
	l := metadata.ListState{Name: asyncState, Mode: metadata.Split}
	for _, e := range all {
		l.Items = append(l.Items, o.codec.Append(binary.BigEndian.AppendUint64(nil, uint64(e.m.TS)), e.v))
	}
	return Snapshot{Lists: append([]metadata.ListState{l}, o.ctx.snapshotLists()...)}, nil
}

func (o *asyncOp[T, R]) Close() error {
	if o.end == nil {
		return nil // not opened
	}
	o.end()
	for e := range o.entries {
		e.cancel()
		if e.timer.Stop() {
			o.calls.Done()
		}
	}
	o.waitForCalls()
	o.ctx.Enter()
	return o.ctx.wrap(o.fn.Close())
}

// lastCalls is how long the operator waits at a clean end for calls whose records were answered by their time-outs. Their ctx has ended.
var lastCalls = 5 * time.Second

// waitForCalls waits for the calls that have not returned. At a clean end it leaves the rest to themselves, as Flink does: they owe nothing,
// and end with the process. A task that failed or was cancelled waits: when that takes too long, its worker is ended with them, so that no
// call of it goes on beside the task that takes its place.
func (o *asyncOp[T, R]) waitForCalls() {
	if o.ctx.Services.Context().Err() != nil {
		o.calls.Wait()
		return
	}
	returned := make(chan struct{})
	go func() { // ends with the last call
		defer close(returned)
		o.calls.Wait()
	}()
	late := time.NewTimer(lastCalls)
	defer late.Stop()
	select {
	case <-returned:
	case <-o.ctx.Services.Context().Done():
		<-returned
	case <-late.C:
		o.ctx.Logger.Warn().Str("operator", o.ctx.Describe()).Int64("calls", o.asked.Load()).
			Msg("calls of the asynchronous function have not returned, though their time is up and their context has ended; they are left to themselves until the process ends")
	}
}
