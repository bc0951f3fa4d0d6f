package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
)

// Watermarks is a source's watermark strategy. The zero value emits none but the last (MaxWatermark at the end of a bounded source).
type Watermarks[T any] struct {
	// Time extracts the event time in milliseconds; nil keeps the source's own time.
	Time func(v T, sourceTS int64) int64
	// Enabled turns watermarks on: each split's is its highest event time less OutOfOrder and one millisecond.
	Enabled    bool
	OutOfOrder int64 // milliseconds
	// Idleness in milliseconds: a split without records for so long does not hold the watermark back; 0 for never.
	Idleness int64
}

// SourceHead is the head of a source task: the task calls Poll instead of feeding inputs.
type SourceHead interface {
	Operator
	// Poll emits up to max records.
	Poll(max int) (connector.Status, error)
	Available() <-chan struct{}
	// HandleEvent takes an event from the enumerator.
	HandleEvent(payload []byte) error
	// Finish emits the last watermark; called once at the end of input or when draining.
	Finish() error
	Records() int64
	Watermark() int64
	// Position describes what is being read, for errors; "" when unknown.
	Position() string
}

// SourceEvent is the payload of operator events between an enumerator and its readers.
type SourceEvent struct {
	Assign       []connector.Split `json:"assign,omitempty"`
	NoMoreSplits bool              `json:"noMore,omitempty"`
	Request      bool              `json:"request,omitempty"` // reader to enumerator
}

const splitsState = "source-splits"

// Source reads src with the given watermark strategy.
func Source[T any](src connector.Source[T], wm Watermarks[T]) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[T](out)
		if err != nil {
			return nil, err
		}
		o := &sourceOp[T]{ctx: ctx, src: src, wm: wm, out: r, batch: inBatches(r), emitted: MinWatermark, splits: map[string]*splitOutput[T]{}}
		o.published.Store(MinWatermark)
		return o, nil
	})
}

type sourceOp[T any] struct {
	Base
	ctx       *Context
	src       connector.Source[T]
	reader    connector.Reader[T]
	wm        Watermarks[T]
	out       Receiver[T]
	batch     BatchReceiver[T] // out, for records that come in batches
	extracted []int64          // room for the event times of a batch
	main      *splitOutput[T]  // records of no split
	splits    map[string]*splitOutput[T]
	records   int64
	emitted   int64
	idle      bool
	published atomic.Int64
	finished  bool
	opened    int64 // processing time, ms
	noMore    bool  // the enumerator has assigned all it ever will
}

func (o *sourceOp[T]) Input(int) any    { return nil }
func (o *sourceOp[T]) Records() int64   { return o.records }
func (o *sourceOp[T]) Watermark() int64 { return o.published.Load() }

func (o *sourceOp[T]) Open(ctx context.Context) error {
	rd, err := o.src.Reader(connector.ReaderContext{
		Subtask: o.ctx.Subtask, Parallelism: o.ctx.Parallelism, Logger: o.ctx.Logger, Metrics: o.ctx.Metrics,
		CheckpointingEnabled: o.ctx.Checkpointing,
		RequestSplit:         func() { o.send(SourceEvent{Request: true}) },
	})
	if err != nil {
		return o.ctx.wrap(err)
	}
	o.reader = rd
	if err := rd.Start(ctx); err != nil {
		return o.ctx.wrap(err)
	}
	var restored []connector.Split
	for _, item := range o.ctx.List(splitsState) {
		var s connector.Split
		if err := json.Unmarshal(item, &s); err != nil {
			return o.ctx.undecodable("splits", err)
		}
		restored = append(restored, s)
	}
	o.opened = o.ctx.Now()
	if err := o.addSplits(restored); err != nil {
		return err
	}
	if o.wm.Enabled {
		o.schedule(config.WatermarkInterval.Value(o.ctx.Config).Milliseconds())
	}
	return nil
}

func (o *sourceOp[T]) schedule(interval int64) {
	o.ctx.At(o.ctx.Now()+max(interval, 1), func() error {
		if o.finished {
			return nil
		}
		if err := o.advance(o.ctx.Now()); err != nil {
			return err
		}
		o.schedule(interval)
		return nil
	})
}

func (o *sourceOp[T]) send(e SourceEvent) {
	b, err := json.Marshal(e)
	if err != nil {
		o.ctx.Fail(fmt.Errorf("operator %s: encode source event: %w", o.ctx.Describe(), err))
		return
	}
	o.ctx.SendEvent(o.ctx.ID, b)
}

func (o *sourceOp[T]) HandleEvent(payload []byte) error {
	var e SourceEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return fmt.Errorf("operator %s: decode source event: %w", o.ctx.Describe(), err)
	}
	if err := o.addSplits(e.Assign); err != nil {
		return err
	}
	if e.NoMoreSplits {
		o.noMore = true
		o.reader.NoMoreSplits()
	}
	return nil
}

// addSplits gives splits to the reader; each holds the watermark back from here on, also before its first record.
func (o *sourceOp[T]) addSplits(splits []connector.Split) error {
	if len(splits) == 0 {
		return nil
	}
	for _, s := range splits {
		o.Split(s.ID)
	}
	return o.ctx.wrap(o.reader.AddSplits(splits))
}

func (o *sourceOp[T]) Poll(max int) (connector.Status, error) {
	o.ctx.Enter()
	st, err := o.reader.Poll(o, max)
	if err != nil {
		return st, o.ctx.wrap(err)
	}
	return st, nil
}

func (o *sourceOp[T]) Available() <-chan struct{} { return o.reader.Available() }

func (o *sourceOp[T]) Position() string {
	if p, ok := o.reader.(interface{ Position() string }); ok {
		return p.Position()
	}
	return ""
}

// Collect implements connector.Output.
func (o *sourceOp[T]) Collect(v T, ts int64) error {
	if o.main == nil {
		o.main = o.newSplit()
	}
	return o.main.Collect(v, ts)
}

// Split implements connector.Output.
func (o *sourceOp[T]) Split(id string) connector.SplitOutput[T] {
	s, ok := o.splits[id]
	if !ok {
		s = o.newSplit()
		o.splits[id] = s
	}
	return s
}

// ReleaseSplit implements connector.Output.
func (o *sourceOp[T]) ReleaseSplit(id string) { delete(o.splits, id) }

func (o *sourceOp[T]) newSplit() *splitOutput[T] {
	return &splitOutput[T]{o: o, max: MinWatermark, active: o.ctx.Now()}
}

type splitOutput[T any] struct {
	o      *sourceOp[T]
	max    int64 // highest event time
	count  int64 // records since the last look
	active int64 // when the last look found records, ms
}

func (s *splitOutput[T]) Collect(v T, ts int64) error {
	o := s.o
	if o.wm.Time != nil {
		ts = o.wm.Time(v, ts)
	}
	s.max = max(s.max, ts)
	s.count++
	o.records++
	if o.idle {
		if err := o.wake(); err != nil {
			return err
		}
	}
	return o.out.Process(v, Meta{TS: ts})
}

// CollectBatch implements connector.BatchOutput.
func (s *splitOutput[T]) CollectBatch(vs []T, ts []int64) error {
	o := s.o
	if o.wm.Time != nil {
		ts = o.times(vs, ts)
	}
	for _, t := range ts {
		s.max = max(s.max, t)
	}
	s.count += int64(len(vs))
	o.records += int64(len(vs))
	if o.idle {
		if err := o.wake(); err != nil {
			return err
		}
	}
	return o.batch.ProcessBatch(vs, ts)
}

// times extracts the event times of a batch, into ts when there is one.
func (o *sourceOp[T]) times(vs []T, ts []int64) []int64 {
	own := ts != nil
	if !own {
		o.extracted = slices.Grow(o.extracted[:0], len(vs))
		ts = o.extracted[:len(vs)]
	}
	for i := range vs {
		t := NoTimestamp
		if own {
			t = ts[i]
		}
		ts[i] = o.wm.Time(vs[i], t)
	}
	return ts
}

// wake ends the stream's idleness.
func (o *sourceOp[T]) wake() error {
	o.idle = false
	return o.out.Idle(false)
}

// advance combines the splits' watermarks and idleness and emits what changed. A reader without splits holds the watermark back until
// it is idle: after the idleness time, or at once when no split will ever come.
func (o *sourceOp[T]) advance(now int64) error {
	least, most, live := MaxWatermark, MinWatermark, 0
	look := func(s *splitOutput[T]) {
		w := s.max
		if w > MinWatermark+o.wm.OutOfOrder {
			w -= o.wm.OutOfOrder + 1
		} else {
			w = MinWatermark // nothing yet, or a time with no room below it
		}
		most = max(most, w)
		if s.count > 0 {
			s.count, s.active = 0, now
		} else if o.wm.Idleness > 0 && now-s.active >= o.wm.Idleness {
			return
		}
		live++
		least = min(least, w)
	}
	if o.main != nil {
		look(o.main)
	}
	for _, s := range o.splits {
		look(s)
	}
	if live == 0 {
		none := o.main == nil && len(o.splits) == 0
		if o.idle || none && !o.noMore && (o.wm.Idleness == 0 || now-o.opened < o.wm.Idleness) {
			return nil
		}
		o.idle = true
		if most > o.emitted { // nothing holds it back any more, whichever split was idle first
			if err := o.emit(most); err != nil {
				return err
			}
		}
		return o.out.Idle(true)
	}
	if least > o.emitted {
		return o.emit(least)
	}
	return nil
}

func (o *sourceOp[T]) emit(ts int64) error {
	o.emitted = ts
	o.published.Store(ts)
	return o.out.Watermark(ts)
}

func (o *sourceOp[T]) Finish() error {
	if o.finished {
		return nil
	}
	o.finished = true
	return o.emit(MaxWatermark)
}

func (o *sourceOp[T]) Snapshot(b Barrier) (Snapshot, error) {
	splits, err := o.reader.Snapshot(b.ID)
	if err != nil {
		return Snapshot{}, o.ctx.wrap(err)
	}
	l := metadata.ListState{Name: splitsState, Mode: metadata.Split}
	for _, s := range splits {
		item, err := json.Marshal(s)
		if err != nil {
			return Snapshot{}, fmt.Errorf("operator %s: encode split %s: %w", o.ctx.Describe(), s.ID, err)
		}
		l.Items = append(l.Items, item)
	}
	return Snapshot{Lists: []metadata.ListState{l}}, nil
}

func (o *sourceOp[T]) CheckpointComplete(id int64) error {
	ctx, cancel := context.WithTimeout(o.ctx.Services.Context(), time.Minute)
	defer cancel()
	return o.ctx.wrap(o.reader.CheckpointComplete(ctx, id))
}

func (o *sourceOp[T]) CheckpointAborted(id int64) { o.reader.CheckpointAborted(id) }

func (o *sourceOp[T]) Close() error {
	if o.reader == nil {
		return nil
	}
	return o.ctx.wrap(o.reader.Close())
}
