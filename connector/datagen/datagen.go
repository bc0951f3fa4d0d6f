// Package datagen is a source that makes its records: record n is a pure function of n, so a restored job makes the same ones. Layer L1.
//
// The numbers 0, 1, 2, … are dealt to splits: split i of p has i, i+p, i+2p, …; there are as many splits as the source has subtasks when
// the job is new, unless Splits says otherwise. A split's state is the next number. No allocation per record is made here.
//
// Source: Flink's DataGeneratorSource.
package datagen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/connector"
)

// Option configures a source.
type Option func(*options)

type options struct {
	count  int64 // -1 unbounded
	rate   float64
	splits int
	errs   []error
}

// Count makes the source bounded: numbers 0 to n-1, none with 0.
func Count(n int64) Option {
	return func(o *options) {
		if n < 0 {
			o.errs = append(o.errs, fmt.Errorf("datagen: Count is %d: it must not be negative", n))
		}
		o.count = n
	}
}

// RatePerSecond limits the records per second of all subtasks together; without it, and with math.Inf(1), the source is as fast as the job.
func RatePerSecond(r float64) Option {
	return func(o *options) {
		if !(r > 0) {
			o.errs = append(o.errs, fmt.Errorf("datagen: RatePerSecond is %v: it must be positive", r))
		}
		o.rate = r
		if math.IsInf(r, 1) {
			o.rate = 0 // no limit
		}
	}
}

// Splits sets the number of splits, and with it the largest parallelism that a restored job can use to the full.
func Splits(n int) Option {
	return func(o *options) {
		if n <= 0 {
			o.errs = append(o.errs, fmt.Errorf("datagen: Splits is %d: it must be positive", n))
		}
		o.splits = n
	}
}

// Source makes record n with gen, without event times.
func Source[T any](gen func(n int64) T, opts ...Option) connector.Source[T] {
	s := newSource[T](opts)
	if gen == nil {
		s.o.errs = append(s.o.errs, errors.New("datagen: source has no function"))
	}
	s.emit = each(func(_ *reader[T], a *active[T], n int64) error {
		return a.out.Collect(gen(n), connector.NoTimestamp)
	})
	return s
}

// Fill makes record n by filling v in, without event times: the fastest way, since records are made in batches and passed on in place.
// v holds an earlier record; fill sets every field.
func Fill[T any](fill func(n int64, v *T), opts ...Option) connector.Source[T] {
	s := newSource[T](opts)
	if fill == nil {
		s.o.errs = append(s.o.errs, errors.New("datagen: source has no function"))
	}
	s.emit = func(r *reader[T], a *active[T], n int) error {
		if r.made == nil {
			r.made = make([]T, batch)
		}
		for n > 0 {
			vs := r.made[:min(n, batch)]
			for i := range vs {
				fill(a.next, &vs[i])
				a.next += int64(a.step)
			}
			if err := a.collect(vs); err != nil {
				return err
			}
			n -= len(vs)
		}
		return nil
	}
	return s
}

// WithTimestamps makes record n with its event time in milliseconds since the Unix epoch.
func WithTimestamps[T any](gen func(n int64) (T, int64), opts ...Option) connector.Source[T] {
	s := newSource[T](opts)
	if gen == nil {
		s.o.errs = append(s.o.errs, errors.New("datagen: source has no function"))
	}
	s.emit = each(func(_ *reader[T], a *active[T], n int64) error {
		v, ts := gen(n)
		return a.out.Collect(v, ts)
	})
	return s
}

// each makes the next n records of a split one by one.
func each[T any](emit func(r *reader[T], a *active[T], n int64) error) func(*reader[T], *active[T], int) error {
	return func(r *reader[T], a *active[T], n int) error {
		for range n {
			i := a.next
			a.next += int64(a.step)
			if err := emit(r, a, i); err != nil {
				return err
			}
		}
		return nil
	}
}

func newSource[T any](opts []Option) *source[T] {
	s := &source[T]{o: options{count: -1}}
	for _, o := range opts {
		o(&s.o)
	}
	return s
}

type source[T any] struct {
	o    options
	emit func(r *reader[T], a *active[T], n int) error // makes the next n records
}

var _ connector.Validator = (*source[int])(nil)

func (s *source[T]) Validate() error { return errors.Join(s.o.errs...) }

func (s *source[T]) Boundedness() connector.Boundedness {
	if s.o.count >= 0 {
		return connector.Bounded
	}
	return connector.Unbounded
}

// split is a split's state: version u8, index u32, step u32, next i64, big endian.
type split struct {
	index, step uint32
	next        int64
}

func (s split) id() string { return strconv.Itoa(int(s.index)) }

func (s split) encode() connector.Split {
	b := []byte{1}
	b = binary.BigEndian.AppendUint32(b, s.index)
	b = binary.BigEndian.AppendUint32(b, s.step)
	b = binary.BigEndian.AppendUint64(b, uint64(s.next))
	return connector.Split{ID: s.id(), State: b}
}

func decode(cs connector.Split) (split, error) {
	b := cs.State
	if len(b) != 17 || b[0] != 1 {
		return split{}, fmt.Errorf("datagen: state of split %q is not valid", cs.ID)
	}
	s := split{binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:]), int64(binary.BigEndian.Uint64(b[9:]))}
	if s.step == 0 || s.index >= s.step || s.next < 0 {
		return split{}, fmt.Errorf("datagen: state of split %q is not valid", cs.ID)
	}
	return s, nil
}

func (s *source[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	e := &enumerator{ctx: ctx, pending: map[uint32]connector.Split{}}
	if restored != nil {
		if len(restored) == 0 || restored[0] != 1 || (len(restored)-1)%17 != 0 {
			return nil, errors.New("datagen: state of the enumerator is not valid")
		}
		for b := restored[1:]; len(b) > 0; b = b[17:] {
			sp, err := decode(connector.Split{State: b[:17]})
			if err != nil {
				return nil, err
			}
			e.pending[sp.index] = sp.encode()
		}
		return e, nil
	}
	n := s.o.splits
	if n == 0 {
		n = ctx.Parallelism()
	}
	for i := range n {
		sp := split{uint32(i), uint32(n), int64(i)}
		e.pending[sp.index] = sp.encode()
	}
	return e, nil
}

// enumerator hands out the splits once. Its state is those that wait for a reader.
type enumerator struct {
	ctx     connector.EnumeratorContext
	pending map[uint32]connector.Split
}

func (e *enumerator) Start(context.Context) error { return nil }

func (e *enumerator) AddReader(subtask int) {
	var give []connector.Split
	for i, s := range e.pending {
		if int(i)%e.ctx.Parallelism() == subtask {
			give = append(give, s)
			delete(e.pending, i)
		}
	}
	if len(give) > 0 {
		e.ctx.Assign(subtask, give...)
	}
	e.ctx.NoMoreSplits(subtask)
}

func (e *enumerator) AddSplitsBack(splits []connector.Split, _ int) {
	for _, cs := range splits {
		s, err := decode(cs)
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		e.pending[s.index] = cs
	}
}

func (e *enumerator) HandleSplitRequest(int) {}

func (e *enumerator) Snapshot(int64) ([]byte, error) {
	b := []byte{1}
	for _, s := range e.pending {
		b = append(b, s.State...)
	}
	return b, nil
}

func (e *enumerator) CheckpointComplete(int64) {}

func (e *enumerator) Close() error { return nil }

func (s *source[T]) Reader(connector.ReaderContext) (connector.Reader[T], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	count := s.o.count
	if count < 0 {
		count = 1<<63 - 1
	}
	return &reader[T]{s: s, count: count, wake: make(chan struct{}, 1)}, nil
}

type active[T any] struct {
	split
	out   connector.SplitOutput[T]
	batch connector.BatchOutput[T] // out, when it takes batches
	pause bool
}

func (a *active[T]) collect(vs []T) error {
	if a.batch != nil {
		return a.batch.CollectBatch(vs, nil)
	}
	for i := range vs {
		if err := a.out.Collect(vs[i], connector.NoTimestamp); err != nil {
			return err
		}
	}
	return nil
}

type reader[T any] struct {
	s      *source[T]
	count  int64
	splits []active[T]
	cur    int
	noMore bool
	wake   chan struct{}
	timer  *time.Timer
	// The rate: emitted records since started, of this reader's share.
	started time.Time
	emitted int64
	made    []T // of Fill
}

// turn is how many records of one split are made before the next split has its turn.
const turn = 256

// batch is how many records Fill passes on at once: few enough to stay in the first-level cache.
const batch = 128

func (r *reader[T]) Start(context.Context) error { return nil }

func (r *reader[T]) AddSplits(splits []connector.Split) error {
	for _, cs := range splits {
		s, err := decode(cs)
		if err != nil {
			return err
		}
		r.splits = append(r.splits, active[T]{split: s})
	}
	r.started = time.Time{}
	r.notify()
	return nil
}

func (r *reader[T]) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader[T]) NoMoreSplits() {
	r.noMore = true
	r.notify()
}

func (r *reader[T]) Available() <-chan struct{} { return r.wake }

func (r *reader[T]) Poll(out connector.Output[T], limit int) (connector.Status, error) {
	if r.s.o.rate > 0 && len(r.splits) > 0 {
		if limit = r.allowed(limit); limit == 0 {
			return connector.NothingAvailable, nil
		}
	}
	for skipped := 0; limit > 0 && len(r.splits) > 0; {
		if r.cur >= len(r.splits) {
			r.cur = 0
		}
		a := &r.splits[r.cur]
		if a.pause {
			r.cur++
			if skipped++; skipped >= len(r.splits) {
				return connector.NothingAvailable, nil
			}
			continue
		}
		skipped = 0
		if a.out == nil {
			a.out = out.Split(a.id())
			a.batch, _ = a.out.(connector.BatchOutput[T])
		}
		step := int64(a.step)
		n := min(int64(limit), turn, left(a.next, r.count, step))
		if err := r.s.emit(r, a, int(n)); err != nil {
			return 0, err // fails the task: positions are those of the last checkpoint
		}
		limit -= int(n)
		r.emitted += n
		if a.next >= r.count {
			out.ReleaseSplit(a.id())
			r.splits = append(r.splits[:r.cur], r.splits[r.cur+1:]...)
			r.started = time.Time{}
			continue
		}
		r.cur++
	}
	if len(r.splits) > 0 {
		return connector.MoreAvailable, nil
	}
	if r.noMore && r.s.o.count >= 0 {
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

// PauseSplits implements connector.SplitPauser.
func (r *reader[T]) PauseSplits(pause, resume []string) {
	for i := range r.splits {
		a := &r.splits[i]
		a.pause = (a.pause || slices.Contains(pause, a.id())) && !slices.Contains(resume, a.id())
	}
	r.notify()
}

// left is how many of next, next+step, ... are below count, which may be the largest there is.
func left(next, count, step int64) int64 {
	if next >= count {
		return 0
	}
	return (count-next-1)/step + 1
}

// longestWait bounds a wait for the next record: a rate may be one record in more time than a Duration can say.
const longestWait = time.Hour

// allowed is how many of limit records the rate allows now; when none, the next moment is set to wake the task.
func (r *reader[T]) allowed(limit int) int {
	now := time.Now()
	if r.started.IsZero() {
		r.started, r.emitted = now, 0
	}
	rate := r.s.o.rate * float64(len(r.splits)) / float64(r.splits[0].step)
	due := int64(min(now.Sub(r.started).Seconds()*rate, 1<<62)) - r.emitted // a rate may be larger than any number of records
	if due > 0 {
		return int(min(int64(limit), due))
	}
	wait := max(time.Millisecond, time.Duration(min(float64(time.Second)*float64(r.emitted+1)/rate, float64(longestWait)))-now.Sub(r.started))
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.notify)
	} else {
		r.timer.Reset(wait)
	}
	return 0
}

func (r *reader[T]) Snapshot(int64) ([]connector.Split, error) {
	out := make([]connector.Split, len(r.splits))
	for i, a := range r.splits {
		out[i] = a.encode()
	}
	return out, nil
}

func (r *reader[T]) CheckpointComplete(context.Context, int64) error { return nil }

func (r *reader[T]) CheckpointAborted(int64) {}

func (r *reader[T]) Close() error {
	if r.timer != nil {
		r.timer.Stop()
	}
	return nil
}
