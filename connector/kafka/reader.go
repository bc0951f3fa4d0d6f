package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// assigned is a split that is being read. Only the task's goroutine changes it; the atomics are for the metrics.
type assigned[T any] struct {
	split
	out       connector.SplitOutput[T]
	waiting   bool // for what becomes of an offset out of range
	paused    bool
	held      []batch[T] // fetched, and left for when it is not paused any more
	current   atomic.Int64
	committed atomic.Int64
	end       atomic.Int64 // high watermark (last stable offset when read_committed)
}

// batch is the part of a fetch that belongs to one split.
type batch[T any] struct {
	s    *assigned[T]
	recs []*Record
}

// reader reads partitions. See connector.Reader for the threads.
type reader[T any] struct {
	cfg    *sourceConfig
	decode func(rec *Record) (T, error)
	ctx    connector.ReaderContext
	f      *fetcher
	dlq    *deadLetters

	splits  map[TopicPartition]*assigned[T]
	list    atomic.Pointer[[]*assigned[T]] // the same, for the metrics
	noMore  bool
	err     error
	batches []batch[T]
	bi, ri  int // next batch, next record in it
	out     connector.Output[T]

	finished map[TopicPartition]int64            // ends of partitions that were read to their end, until they are committed
	over     []connector.Split                   // had nothing to read when they came; released with the next Poll
	offsets  map[int64]map[TopicPartition]commit // by checkpoint
	done     commits                             // what was committed last

	m       sourceMetrics
	emitLag atomic.Int64
}

type commit struct {
	offset int64
	epoch  int32
}

// commits hands committed offsets from the goroutine that commits to the task's.
type commits struct {
	mu sync.Mutex
	m  map[TopicPartition]commit
}

func (c *commits) put(m map[TopicPartition]commit) {
	c.mu.Lock()
	c.m = m
	c.mu.Unlock()
}

func (c *commits) take() map[TopicPartition]commit {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.m
	c.m = nil
	return m
}

func newReader[T any](cfg *sourceConfig, decode func(*Record) (T, error), ctx connector.ReaderContext) (*reader[T], error) {
	r := &reader[T]{
		cfg: cfg, decode: decode, ctx: ctx,
		splits: map[TopicPartition]*assigned[T]{}, finished: map[TopicPartition]int64{}, offsets: map[int64]map[TopicPartition]commit{},
	}
	r.list.Store(&[]*assigned[T]{})
	r.m = newSourceMetrics(ctx.Metrics)
	r.m.gauge("pendingRecords", r.pending)
	r.m.gauge("currentEmitEventTimeLag", func() float64 { return float64(r.emitLag.Load()) })
	return r, nil
}

func (r *reader[T]) Start(ctx context.Context) error {
	f, err := newFetcher(ctx, r.cfg, r.ctx.Logger, r.ctx.Subtask)
	if err != nil {
		return err
	}
	r.f = f
	if r.cfg.onDecodeError.kind == decodeDeadLetter {
		if r.dlq, err = newDeadLetters(f.ctx, r.cfg, r.ctx.Logger, r.ctx.Subtask); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader[T]) AddSplits(splits []connector.Split) error {
	var add []split
	for _, cs := range splits {
		s, err := decodeSplit(cs)
		if err != nil {
			return err
		}
		tp := s.tp()
		if r.splits[tp] != nil {
			return fmt.Errorf("kafka: partition %v was assigned to subtask %d twice", tp, r.ctx.Subtask)
		}
		a := &assigned[T]{split: s}
		a.current.Store(s.offset)
		a.committed.Store(noOffset)
		a.end.Store(noOffset)
		if s.stop >= 0 && s.offset >= s.stop {
			r.finished[tp] = s.offset
			r.over = append(r.over, cs)
			continue
		}
		r.splits[tp] = a
		r.m.partition(tp, &a.current, &a.committed)
		add = append(add, s)
	}
	r.publish()
	if len(add) > 0 {
		r.f.add(add)
	}
	r.f.notify()
	return nil
}

func (r *reader[T]) publish() {
	l := make([]*assigned[T], 0, len(r.splits))
	for _, a := range r.splits {
		l = append(l, a)
	}
	r.list.Store(&l)
}

func (r *reader[T]) NoMoreSplits() {
	r.noMore = true
	r.f.notify()
}

func (r *reader[T]) Available() <-chan struct{} { return r.f.wake }

// PauseSplits implements connector.SplitPauser. What was fetched of a paused partition waits in order.
func (r *reader[T]) PauseSplits(pause, resume []string) {
	byID := make(map[string]*assigned[T], len(r.splits))
	for _, a := range r.splits {
		byID[a.id()] = a
	}
	for _, id := range pause {
		if a := byID[id]; a != nil && !a.paused {
			a.paused = true
			r.f.cl.PauseFetchPartitions(map[string][]int32{a.topic: {a.partition}})
		}
	}
	rest := make([]batch[T], 0, len(r.batches)-r.bi)
	for i, b := range r.batches[r.bi:] {
		if i == 0 {
			b.recs = b.recs[r.ri:]
		}
		if b.s.paused {
			b.s.held = append(b.s.held, b)
		} else {
			rest = append(rest, b)
		}
	}
	for _, id := range resume {
		if a := byID[id]; a != nil && a.paused {
			a.paused = false
			rest = append(rest, a.held...)
			a.held = nil
			r.f.cl.ResumeFetchPartitions(map[string][]int32{a.topic: {a.partition}})
		}
	}
	r.batches, r.bi, r.ri = rest, 0, 0
	r.f.notify()
}

// Poll decodes from the fetch in hand. A reader without partitions in an unbounded job stays idle and does not end: its end would
// give the downstream watermark away (an ended input counts as "infinitely late in the future").
func (r *reader[T]) Poll(out connector.Output[T], max int) (connector.Status, error) {
	r.out = out
	for _, s := range r.over {
		out.ReleaseSplit(s.ID)
	}
	r.over = nil
	if r.err != nil {
		return 0, r.err
	}
	for n := 0; n < max; {
		if r.bi == len(r.batches) {
			more, err := r.next()
			if err != nil {
				r.err = err
				return 0, err
			}
			if !more {
				return r.idle()
			}
			continue
		}
		emitted, err := r.emit(max - n)
		if err != nil {
			r.err = err
			return 0, err
		}
		n += emitted
	}
	return connector.MoreAvailable, nil
}

func (r *reader[T]) idle() (connector.Status, error) {
	if !r.cfg.bounded || !r.noMore || len(r.splits) > 0 {
		return connector.NothingAvailable, nil
	}
	if err := r.flushDeadLetters(); err != nil {
		r.err = err
		return 0, err
	}
	return connector.EndOfInput, nil
}

// emit hands at most max records of the current batch on and moves to the next batch at its end.
func (r *reader[T]) emit(max int) (int, error) {
	b := &r.batches[r.bi]
	a := b.s
	recs := b.recs[r.ri:]
	if r.splits[a.tp()] != a {
		recs = nil // finished or dropped meanwhile
	}
	n, used := 0, 0
	last := int64(math.MinInt64)
	for _, rec := range recs {
		if n == max {
			break
		}
		used++
		if rec.Offset < a.offset {
			continue // fetched before a reset
		}
		if a.stop >= 0 && rec.Offset >= a.stop {
			a.offset = a.stop
			break
		}
		a.offset, a.epoch, a.flags = rec.Offset+1, rec.LeaderEpoch, 0
		if rec.Attrs.IsControl() {
			continue
		}
		v, err := r.decode(rec)
		if err != nil {
			if err = r.badRecord(rec, err); err != nil {
				return n, err
			}
			continue
		}
		ts := rec.Timestamp.UnixMilli()
		last = ts
		if err := a.out.Collect(v, ts); err != nil {
			return n, err
		}
		n++
	}
	a.current.Store(a.offset)
	if last != math.MinInt64 {
		r.emitLag.Store(time.Now().UnixMilli() - last)
	}
	if a.stop >= 0 && a.offset >= a.stop {
		r.finish(a)
	}
	r.ri += used
	if r.ri >= len(b.recs) || r.splits[a.tp()] != a {
		*b = batch[T]{}
		r.bi++
		r.ri = 0
	}
	return n, nil
}

func (r *reader[T]) finish(a *assigned[T]) {
	tp := a.tp()
	if r.splits[tp] != a {
		return
	}
	delete(r.splits, tp)
	r.finished[tp] = a.offset
	r.publish()
	r.f.remove(tp)
	if r.out != nil {
		r.out.ReleaseSplit(a.id())
	}
	r.ctx.Logger.Info().Str("topic", a.topic).Int32("partition", a.partition).Int64("offset", a.offset).Msg("partition was read to its end")
}

// next takes the next fetch, if there is one.
func (r *reader[T]) next() (bool, error) {
	if err := r.handleEvents(); err != nil {
		return false, err
	}
	r.batches, r.bi, r.ri = r.batches[:0], 0, 0
	var fs kgo.Fetches
	select {
	case fs = <-r.f.fetches:
	default:
		return false, nil
	}
	for i := range fs {
		for j := range fs[i].Topics {
			t := &fs[i].Topics[j]
			for k := range t.Partitions {
				p := &t.Partitions[k]
				a := r.splits[TopicPartition{t.Topic, p.Partition}]
				if p.Err != nil {
					if err := r.partitionError(t.Topic, p.Partition, a, p.Err); err != nil {
						return false, err
					}
				}
				if a == nil || a.waiting {
					continue
				}
				if differ(a.topicID, t.TopicID) {
					r.recreated(t.Topic)
					continue
				}
				if a.topicID == [16]byte{} {
					a.topicID = t.TopicID
				}
				end := p.HighWatermark
				if r.cfg.readCommitted {
					end = p.LastStableOffset
				}
				a.end.Store(end)
				if len(p.Records) == 0 {
					continue
				}
				if a.out == nil {
					a.out = r.out.Split(a.id())
				}
				if a.paused { // fetched before
					a.held = append(a.held, batch[T]{a, p.Records})
					continue
				}
				r.batches = append(r.batches, batch[T]{a, p.Records})
			}
		}
	}
	return true, nil
}

// recreated asks what became of a topic whose id is not known any more, for all of its partitions at once.
func (r *reader[T]) recreated(topic string) {
	var ss []split
	for tp, a := range r.splits {
		if tp.Topic == topic {
			a.waiting = true
			ss = append(ss, a.split)
		}
	}
	slices.SortFunc(ss, func(a, b split) int { return int(a.partition - b.partition) })
	r.f.unknownTopicID(topic, ss)
}

func (r *reader[T]) partitionError(topic string, partition int32, a *assigned[T], err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		return nil
	case errors.Is(err, kerr.OffsetOutOfRange):
		if a != nil && !a.waiting {
			a.waiting = true
			r.f.outOfRange(a.split, err)
		}
		return nil
	case errors.As(err, &loss):
		// The log was truncated below what was read (unclean leader election). The client goes on at the last common offset.
		if a == nil {
			return nil
		}
		if r.cfg.onOutOfRange == NoReset {
			return &OffsetError{a.tp(), a.offset, noOffset, loss.ResetTo, err}
		}
		a.offset, a.epoch = min(a.offset, loss.ResetTo), -1
		r.m.resets.Add(1)
		r.ctx.Logger.Warn().Err(err).Str("topic", topic).Int32("partition", partition).Int64("offset", a.offset).Msg("the log was truncated; going on, as set")
		return nil
	case errors.Is(err, kerr.UnknownTopicID):
		if a != nil && !a.waiting {
			r.recreated(topic)
		}
		return nil
	case kerr.IsRetriable(err), kgo.IsRetryableBrokerErr(err), errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, context.DeadlineExceeded):
		r.ctx.Logger.Warn().Err(err).Str("topic", topic).Int32("partition", partition).Msg("fetch did not succeed; the client goes on trying")
		return nil
	}
	return fmt.Errorf("kafka: read partition %s-%d: %w", topic, partition, err)
}

func (r *reader[T]) handleEvents() error {
	for _, ev := range r.f.takeEvents() {
		if ev.err != nil {
			return ev.err
		}
		a := r.splits[ev.tp]
		if a == nil {
			continue
		}
		a.waiting = false
		switch {
		case ev.drop:
			delete(r.splits, ev.tp)
			r.publish()
			if r.out != nil { // also before its first record: it holds the watermark back from its assignment on
				r.out.ReleaseSplit(a.id())
			}
		case ev.reset:
			a.offset, a.epoch = ev.offset, -1
			if ev.topicID != [16]byte{} {
				a.topicID = ev.topicID
			}
			a.current.Store(a.offset)
			r.m.resets.Add(1)
			if a.stop >= 0 && a.offset >= a.stop {
				r.finish(a)
			}
		}
	}
	return nil
}

// RecordError says which record could not be decoded.
type RecordError struct {
	TopicPartition
	Offset int64
	Cause  error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("kafka: topic %s partition %d offset %d: record cannot be decoded: %v (kafka.OnDecodeError can skip such records or write them to a dead-letter topic)",
		e.Topic, e.Partition, e.Offset, e.Cause)
}

func (e *RecordError) Unwrap() error { return e.Cause }

func (r *reader[T]) badRecord(rec *Record, cause error) error {
	switch r.cfg.onDecodeError.kind {
	case decodeSkip:
		r.m.skipped.Add(1)
		r.ctx.Logger.Debug().Err(cause).Str("topic", rec.Topic).Int32("partition", rec.Partition).Int64("offset", rec.Offset).Msg("record skipped")
		return nil
	case decodeDeadLetter:
		r.m.deadLettered.Add(1)
		return r.dlq.write(rec, cause)
	}
	return &RecordError{TopicPartition{rec.Topic, rec.Partition}, rec.Offset, cause}
}

func (r *reader[T]) flushDeadLetters() error {
	if r.dlq == nil {
		return nil
	}
	return r.dlq.flush()
}

func (r *reader[T]) Snapshot(checkpointID int64) ([]connector.Split, error) {
	if err := r.flushDeadLetters(); err != nil {
		return nil, err
	}
	out := make([]connector.Split, 0, len(r.splits))
	commits := make(map[TopicPartition]commit, len(r.splits)+len(r.finished))
	for tp, c := range r.done.take() {
		if o, ok := r.finished[tp]; ok && c.offset == o {
			delete(r.finished, tp)
		}
	}
	for tp, o := range r.finished {
		commits[tp] = commit{o, -1}
	}
	out = append(out, r.over...)
	for tp, a := range r.splits {
		out = append(out, a.encode())
		commits[tp] = commit{a.offset, a.epoch}
	}
	slices.SortFunc(out, func(a, b connector.Split) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	if r.cfg.groupID != "" && r.ctx.CheckpointingEnabled {
		r.offsets[checkpointID] = commits
	}
	return out, nil
}

// CheckpointComplete commits the checkpoint's offsets to the group in the background; only the newest waits.
func (r *reader[T]) CheckpointComplete(_ context.Context, checkpointID int64) error {
	commits := r.offsets[checkpointID]
	for id := range r.offsets {
		if id <= checkpointID {
			delete(r.offsets, id)
		}
	}
	if len(commits) == 0 {
		return nil
	}
	byTP := r.list.Load()
	os := kadm.Offsets{}
	for tp, c := range commits {
		os.Add(kadm.Offset{Topic: tp.Topic, Partition: tp.Partition, At: c.offset, LeaderEpoch: c.epoch})
	}
	r.f.commits.replace(func() {
		ctx, cancel := context.WithTimeout(r.f.commitCtx, r.cfg.connectTimeout)
		defer cancel()
		resp, err := r.f.adm.CommitOffsets(ctx, r.cfg.groupID, os)
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			r.m.commitsFailed.Add(1)
			r.ctx.Logger.Warn().Err(err).Int64("checkpoint_id", checkpointID).Msg("offsets were not committed to the group; the next checkpoint commits newer ones")
			return
		}
		r.done.put(commits)
		r.m.commitsSucceeded.Add(1)
		for _, a := range *byTP {
			if c, ok := commits[a.tp()]; ok {
				a.committed.Store(c.offset)
			}
		}
	})
	return nil
}

func (r *reader[T]) CheckpointAborted(checkpointID int64) { delete(r.offsets, checkpointID) }

func (r *reader[T]) Close() error {
	if r.f == nil {
		return nil
	}
	if r.dlq != nil {
		r.dlq.close()
	}
	r.f.close()
	return nil
}

func (r *reader[T]) pending() float64 {
	var n int64
	for _, a := range *r.list.Load() {
		if end := a.end.Load(); end >= 0 {
			n += max(end-a.current.Load(), 0)
		}
	}
	return float64(n)
}
