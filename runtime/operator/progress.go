package operator

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
)

// Watermarks is a watermark strategy. The zero value emits none but the last (MaxWatermark at the end of a bounded stream).
type Watermarks[T any] struct {
	// Time extracts the event time in milliseconds from a record and the time that it has already; nil keeps that one. TimeOutOfRange and
	// ZeroTime fail the task.
	Time func(v T, ts int64) int64
	// Enabled turns watermarks on: each split's is its highest event time less OutOfOrder and one millisecond, or what Generator says.
	Enabled    bool
	OutOfOrder int64 // milliseconds
	// Generator makes a split's own generator; nil for the above.
	Generator func() Generator[T]
	// Idleness in milliseconds: a split without records for so long does not hold the watermark back; 0 for never. The time that the task
	// is held up by what follows does not count. Source: FLINK-32496.
	Idleness int64
	// Alignment is of sources only; nil for none.
	Alignment *Alignment
}

// Generator makes the watermarks of one split. Source: Flink WatermarkGenerator.
type Generator[T any] interface {
	// OnEvent runs after each record; ts is its event time in milliseconds or NoTimestamp.
	OnEvent(v T, ts int64, out *GeneratorOutput)
	// OnPeriodic runs each pipeline.auto-watermark-interval.
	OnPeriodic(out *GeneratorOutput)
}

// GeneratorOutput takes a generator's watermarks.
type GeneratorOutput struct {
	mark int64
	idle bool
}

// Emit says that event time reached ts (milliseconds); a lower one than before changes nothing. It ends idleness.
func (g *GeneratorOutput) Emit(ts int64) { g.mark, g.idle = max(g.mark, ts), false }

// MarkIdle says that the split holds the watermark back no longer, until the next Emit.
func (g *GeneratorOutput) MarkIdle() { g.idle = true }

// progress is the event time of a stream that is made of splits: their watermarks and idleness, combined. It does not know the type of
// records: see timed.
type progress struct {
	ctx        *Context
	next       advancer
	enabled    bool // the strategy's
	generates  bool
	outOfOrder int64
	idleness   int64
	alignment  *Alignment
	main       *split // records of no split
	splits     map[string]*split
	records    int64
	emitted    int64
	idle       bool
	published  atomic.Int64
	finished   bool
	opened     int64 // clock
	noMore     bool  // no split will come any more
	align      *aligned
	paused     int   // splits that alignment holds back
	failed     error // the first error of what follows; errNotBack while a record is on its way
}

// split is one split's part.
type split struct {
	max    int64 // highest event time
	count  int64 // records since the last look
	active int64 // when the last look found records
	out    GeneratorOutput
	tick   func(*GeneratorOutput) // of its generator
	idle   bool                   // at the last look
	paused bool                   // by alignment
	// released says that the reader gave it up.
	released bool
	output   any // *splitOutput
}

// timed is the part of a stream of splits that is compiled for each type of records.
type timed[T any] struct {
	p         *progress
	time      func(v T, ts int64) int64
	generator func() Generator[T]
	out       Receiver[T]
	batch     BatchReceiver[T] // out, for records that come in batches
	extracted []int64          // room for the event times of a batch
}

func newTimed[T any](p *progress, ctx *Context, wm Watermarks[T], out Receiver[T]) *timed[T] {
	if ctx.Batch { // event times alone: event time goes to its end when the input has
		wm = Watermarks[T]{Time: wm.Time}
	}
	p.ctx, p.next, p.enabled, p.generates, p.outOfOrder, p.idleness, p.alignment = ctx, out, wm.Enabled, wm.Generator != nil, wm.OutOfOrder, wm.Idleness, wm.Alignment
	p.emitted, p.splits = MinWatermark, map[string]*split{}
	p.published.Store(MinWatermark)
	return &timed[T]{p: p, time: wm.Time, generator: wm.Generator, out: out, batch: inBatches(out)}
}

func (p *progress) open() {
	p.opened = p.clock()
	if p.enabled {
		p.schedule(config.WatermarkInterval.Value(p.ctx.Config).Milliseconds())
	}
}

// clock is the time that has passed less what the task was held up by what follows, in milliseconds. It is not that of the day: event time
// goes on when that is set back, and nothing is idle because it is set forward. Source: Flink RelativeClock.
func (p *progress) clock() int64 { return p.ctx.Uptime() - p.ctx.Backpressured() }

func (p *progress) schedule(interval int64) {
	p.ctx.After(max(interval, 1), func() error {
		if p.finished {
			return nil
		}
		p.tick()
		if err := p.advance(p.clock()); err != nil {
			return err
		}
		p.schedule(interval)
		return nil
	})
}

// tick lets generators emit what they do periodically.
func (p *progress) tick() {
	if p.generates {
		p.ctx.Enter()
		p.each(func(s *split) { s.tick(&s.out) })
	}
}

func (p *progress) each(fn func(*split)) {
	if p.main != nil {
		fn(p.main)
	}
	for _, s := range p.splits {
		fn(s)
	}
}

func (t *timed[T]) newSplit() *splitOutput[T] {
	s := &splitOutput[T]{t: t}
	if t.generator != nil {
		s.gen = t.generator()
		s.tick = s.gen.OnPeriodic
	}
	s.max, s.active, s.out.mark, s.output = MinWatermark, t.p.clock(), MinWatermark, s
	return s
}

// splitOutput takes the records of a split.
type splitOutput[T any] struct {
	split
	t   *timed[T]
	gen Generator[T]
}

var errReleased = &connector.ContractError{Rule: "split-released", Detail: "a record for a split after its release"}

// Collect implements connector.SplitOutput.
func (s *splitOutput[T]) Collect(v T, ts int64) error {
	t, p := s.t, s.t.p
	if p.failed != nil {
		return p.failed
	}
	if s.released {
		return p.fail(errReleased)
	}
	p.failed = errNotBack
	if t.time != nil {
		if ts = t.time(v, ts); isNoTime(ts) {
			return p.fail(p.noTime(ts))
		}
	}
	s.max = max(s.max, ts)
	s.count++
	p.records++
	if p.idle {
		if err := p.wake(); err != nil {
			return p.fail(err)
		}
	}
	if s.gen != nil {
		return p.fail(s.generated(v, ts))
	}
	p.failed = t.out.Process(v, Meta{TS: ts})
	p.ctx.Enter() // the reader goes on
	return p.failed
}

// generated passes a record on and shows it to the split's generator, whose watermark counts at once.
func (s *splitOutput[T]) generated(v T, ts int64) error {
	if err := s.t.out.Process(v, Meta{TS: ts}); err != nil {
		return err
	}
	p := s.t.p
	p.ctx.Enter()
	before := s.out.mark
	if s.gen.OnEvent(v, ts, &s.out); s.out.mark > before {
		err := p.advance(p.clock())
		p.ctx.Enter()
		return err
	}
	return nil
}

// CollectBatch implements connector.BatchOutput.
func (s *splitOutput[T]) CollectBatch(vs []T, ts []int64) error {
	t, p := s.t, s.t.p
	if p.failed != nil {
		return p.failed
	}
	if s.released {
		return p.fail(errReleased)
	}
	if s.gen != nil {
		for i := range vs {
			if err := s.Collect(vs[i], timeOf(ts, i)); err != nil {
				return err
			}
		}
		return nil
	}
	p.failed = errNotBack
	if t.time != nil {
		var ok bool
		if ts, ok = t.times(vs, ts); !ok {
			return p.fail(p.noTime(ts[0]))
		}
	}
	for _, at := range ts {
		s.max = max(s.max, at)
	}
	s.count += int64(len(vs))
	p.records += int64(len(vs))
	if p.idle {
		if err := p.wake(); err != nil {
			return p.fail(err)
		}
	}
	p.failed = t.batch.ProcessBatch(vs, ts)
	p.ctx.Enter()
	return p.failed
}

// isNoTime reports whether a timestamp function returned TimeOutOfRange or ZeroTime.
func isNoTime(ts int64) bool { return ts == TimeOutOfRange || ts == ZeroTime }

// noTime fails the task for a record's time that is not one.
func (p *progress) noTime(ts int64) error {
	if ts == ZeroTime {
		return p.ctx.wrap(errZeroTime)
	}
	return p.ctx.wrap(errOutOfRange)
}

// times extracts the event times of a batch, into ts when there is one; !ok when one of them is none, which is then the first in out.
func (t *timed[T]) times(vs []T, ts []int64) (out []int64, ok bool) {
	own := ts != nil
	if !own {
		t.extracted = slices.Grow(t.extracted[:0], len(vs))
		ts = t.extracted[:len(vs)]
	}
	for i := range vs {
		at := NoTimestamp
		if own {
			at = ts[i]
		}
		if ts[i] = t.time(vs[i], at); isNoTime(ts[i]) {
			return ts[i : i+1], false
		}
	}
	return ts, true
}

// mark is a split's own watermark.
func (p *progress) mark(s *split) int64 {
	if p.generates {
		return s.out.mark
	}
	if s.max <= MinWatermark+p.outOfOrder { // nothing yet, or a time with no room below it
		return MinWatermark
	}
	return s.max - p.outOfOrder - 1
}

// wake ends the stream's idleness.
func (p *progress) wake() error {
	p.idle = false
	return p.next.Idle(false)
}

// advance combines the splits' watermarks and idleness and emits what changed. A stream without splits holds the watermark back until
// it is idle: after the idleness time, or at once when no split will ever come.
func (p *progress) advance(now int64) error {
	least, most, live := MaxWatermark, MinWatermark, 0
	look := func(s *split) {
		w := p.mark(s)
		most = max(most, w)
		if s.count > 0 || s.paused || p.align != nil && p.align.held { // what is held back is not idle
			s.count, s.active, s.idle = 0, now, false
		} else if p.idleness > 0 && now-s.active >= p.idleness {
			s.idle = true
			return
		}
		if s.out.idle {
			return
		}
		live++
		least = min(least, w)
	}
	p.each(look)
	if live == 0 {
		none := p.main == nil && len(p.splits) == 0
		if p.idle || none && !p.noMore && (p.idleness == 0 || now-p.opened < p.idleness) {
			return nil
		}
		p.idle = true
		if most > p.emitted { // nothing holds it back any more, whichever split was idle first
			if err := p.emit(most); err != nil {
				return err
			}
		}
		return p.next.Idle(true)
	}
	if least > p.emitted {
		return p.emit(least)
	}
	return nil
}

func (p *progress) emit(ts int64) error {
	p.emitted = ts
	p.published.Store(ts)
	return p.next.Watermark(ts)
}

// finish emits the last watermark, once.
func (p *progress) finish() error {
	if p.finished {
		return nil
	}
	p.finished = true
	return p.emit(MaxWatermark)
}

// AssignWatermarks gives the records of a stream new event times and the stream new watermarks, in place of those it has: of these only
// the last counts. Source: Flink TimestampsAndWatermarksOperator.
func AssignWatermarks[T any](wm Watermarks[T]) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[T](out)
		if err != nil {
			return nil, err
		}
		o := &assignOp{}
		in := &assignIn[T]{atEnd: atEnd{&o.progress}, t: newTimed(&o.progress, ctx, wm, r)}
		o.in = Receiver[T](in)
		o.start = func() {
			in.main = in.t.newSplit()
			o.main = &in.main.split
		}
		return o, nil
	})
}

type assignOp struct {
	Base
	progress
	in    any // Receiver
	start func()
}

func (o *assignOp) Input(int) any { return o.in }

func (o *assignOp) Open(context.Context) error {
	o.start()
	o.open()
	return nil
}

// atEnd takes the last watermark alone.
type atEnd struct{ p *progress }

func (e *atEnd) Idle(bool) error { return nil }
func (e *atEnd) Watermark(ts int64) error {
	if ts == MaxWatermark {
		return e.p.finish()
	}
	return nil
}

type assignIn[T any] struct {
	atEnd
	t    *timed[T]
	main *splitOutput[T]
}

func (i *assignIn[T]) Process(v T, m Meta) error {
	i.p.ctx.Enter()
	return i.main.Collect(v, m.TS)
}

func (i *assignIn[T]) ProcessBatch(vs []T, ts []int64) error {
	i.p.ctx.Enter()
	return i.main.CollectBatch(vs, ts)
}
