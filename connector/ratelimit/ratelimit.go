// Package ratelimit slows any source down to a number of records per second. Layer L1.
//
// Each subtask may emit its share, the rate divided by the parallelism, whether others use theirs or not. A source that was behind makes
// up for a tenth of a second at most.
//
// Source: Flink's RateLimiterStrategy.perSecond (FLIP-238).
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/thalweg/thalweg/connector"
)

// Source is src with at most perSecond records per second, of all subtasks together; math.Inf(1) is no limit.
func Source[T any](src connector.Source[T], perSecond float64) connector.Source[T] {
	return &source[T]{src, perSecond}
}

type source[T any] struct {
	connector.Source[T]
	rate float64
}

// Validate implements connector.Validator.
func (s *source[T]) Validate() error {
	var errs []error
	if !(s.rate > 0) {
		errs = append(errs, fmt.Errorf("ratelimit: the rate is %v records per second: it must be positive", s.rate))
	}
	if s.Source == nil {
		return errors.Join(append(errs, errors.New("ratelimit: there is no source"))...)
	}
	if v, ok := s.Source.(connector.Validator); ok {
		errs = append(errs, v.Validate())
	}
	return errors.Join(errs...)
}

// Preflight implements connector.Preflight.
func (s *source[T]) Preflight(ctx context.Context, env connector.PreflightContext) error {
	if p, ok := s.Source.(connector.Preflight); ok {
		return p.Preflight(ctx, env)
	}
	return nil
}

// Boundedness implements connector.Source.
func (s *source[T]) Boundedness() connector.Boundedness {
	if s.Source == nil {
		return connector.Bounded
	}
	return s.Source.Boundedness()
}

func (s *source[T]) Reader(ctx connector.ReaderContext) (connector.Reader[T], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	in, err := s.Source.Reader(ctx)
	if err != nil || in == nil || math.IsInf(s.rate, 1) {
		return in, err
	}
	r := &reader[T]{Reader: in, rate: s.rate / float64(ctx.Parallelism), wake: make(chan struct{}, 1)}
	if p, ok := in.(connector.SplitPauser); ok {
		return &pausable[T]{r, p}, nil
	}
	return r, nil
}

// longestWait bounds a wait for the next record: a rate may be one record in more time than a Duration can say.
const longestWait = time.Hour

type reader[T any] struct {
	connector.Reader[T]
	rate    float64
	started time.Time
	spent   int64 // records since started
	waits   bool  // for the rate
	wake    chan struct{}
	timer   *time.Timer
	out     output[T]
}

// pausable is a reader that can pause splits.
type pausable[T any] struct {
	*reader[T]
	connector.SplitPauser
}

func (r *reader[T]) Poll(out connector.Output[T], limit int) (connector.Status, error) {
	now := time.Now()
	if r.started.IsZero() {
		r.started = now
	}
	due := whole(now.Sub(r.started).Seconds()*r.rate) - r.spent
	if most := whole(r.rate/10) + 1; due > most {
		due = most
		r.started, r.spent = now.Add(-time.Duration(float64(most)/r.rate*float64(time.Second))), 0
	}
	if due <= 0 {
		r.waits = true
		wait := max(time.Millisecond, time.Duration(min(float64(time.Second)*float64(r.spent+1)/r.rate, float64(longestWait)))-now.Sub(r.started))
		if r.timer == nil {
			r.timer = time.AfterFunc(wait, r.notify)
		} else {
			r.timer.Reset(wait)
		}
		return connector.NothingAvailable, nil
	}
	r.waits = false
	r.out.out, r.out.n = out, 0
	st, err := r.Reader.Poll(&r.out, int(min(int64(limit), due)))
	r.spent += r.out.n
	return st, err
}

// whole is x as a number of records. Rates may be larger than any such number.
func whole(x float64) int64 { return int64(min(x, 1<<62)) }

func (r *reader[T]) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader[T]) Available() <-chan struct{} {
	if r.waits {
		return r.wake
	}
	return r.Reader.Available()
}

// HandleEvent implements connector.EventReader.
func (r *reader[T]) HandleEvent(payload []byte) error {
	if h, ok := r.Reader.(connector.EventReader); ok {
		return h.HandleEvent(payload)
	}
	return fmt.Errorf("ratelimit: the source's reader (%T) takes no events", r.Reader)
}

// Position implements connector.Positioner.
func (r *reader[T]) Position() string {
	if p, ok := r.Reader.(connector.Positioner); ok {
		return p.Position()
	}
	return ""
}

func (r *reader[T]) Close() error {
	if r.timer != nil {
		r.timer.Stop()
	}
	return r.Reader.Close()
}

// output counts.
type output[T any] struct {
	out connector.Output[T]
	n   int64
}

func (o *output[T]) Collect(v T, ts int64) error {
	o.n++
	return o.out.Collect(v, ts)
}

func (o *output[T]) Split(id string) connector.SplitOutput[T] {
	s := &splitOutput[T]{o: o, out: o.out.Split(id)}
	s.batch, _ = s.out.(connector.BatchOutput[T])
	return s
}

func (o *output[T]) ReleaseSplit(id string) { o.out.ReleaseSplit(id) }

type splitOutput[T any] struct {
	o     *output[T]
	out   connector.SplitOutput[T]
	batch connector.BatchOutput[T]
}

func (s *splitOutput[T]) Collect(v T, ts int64) error {
	s.o.n++
	return s.out.Collect(v, ts)
}

// CollectBatch implements connector.BatchOutput.
func (s *splitOutput[T]) CollectBatch(vs []T, ts []int64) error {
	if s.batch != nil {
		s.o.n += int64(len(vs))
		return s.batch.CollectBatch(vs, ts)
	}
	for i := range vs {
		at := connector.NoTimestamp
		if ts != nil {
			at = ts[i]
		}
		if err := s.Collect(vs[i], at); err != nil {
			return err
		}
	}
	return nil
}
