package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/twmb/franz-go/pkg/kgo"
)

// producerOptions are what all producing clients of a sink have: acknowledgement by all replicas, idempotence, no compression (as Kafka's own
// client), 32,768 records or 32 MiB of buffer, 30 tries (about 2 minutes).
func producerOptions(cfg *sinkConfig) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(cfg.linger),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(1 << 15),
		kgo.MaxBufferedBytes(32 << 20),
		// Not RecordDeliveryTimeout: the client counts it from the record's timestamp, which here is the event time.
		kgo.RecordRetries(30),
	}
	if cfg.partition != nil {
		opts = append(opts, kgo.RecordPartitioner(choosePartition{func(r *Record, n int) int {
			if c, ok := r.Context.(interface{ choose(*Record, int) int }); ok {
				return c.choose(r, n)
			}
			return 0
		}}))
	}
	return opts
}

// valueContext carries a record's value to the partitioner.
type valueContext[T any] struct {
	context.Context
	s   *sink[T]
	v   T
	err error // of choose
}

// choose asks the user's function, on a goroutine of the client's. The client fails a record whose partition does not exist.
func (c *valueContext[T]) choose(r *Record, n int) (p int) {
	if c.err = guard.Run(func() error { p = c.s.partition(c.v, r.Key, n); return nil }); c.err != nil {
		return -1
	}
	return p
}

// chosen is why the record has no partition, when that is the user's function; else err.
func (c *valueContext[T]) chosen(err error) error {
	if c.err != nil {
		return fmt.Errorf("kafka.PartitionFunc: %w", c.err)
	}
	return err
}

// cause is why a record was not written.
func cause(r *Record, err error) error {
	if c, ok := r.Context.(interface{ chosen(error) error }); ok {
		return c.chosen(err)
	}
	return err
}

// encoder turns values into records. Records and their buffers are used again once they are acknowledged; there are never more of them than
// the client buffers. (A sync.Pool is emptied by each collection of garbage, which here means new records in the tens of thousands.)
type encoder[T any] struct {
	s    *sink[T]
	ctx  context.Context
	free []*Record // of the task's goroutine
	m    sinkMetrics
	// learn is told of each topic before its first record, and of some again; nil when the sink has one topic.
	learn func(topic string)
	last  string // the topic it was told of last

	mu    sync.Mutex
	acked []*Record // handed back by the client's goroutine
}

// sinkMetrics are a writer's metrics. Records sent are counted by the operator around it, as numRecordsSend.
type sinkMetrics struct {
	failed, bytes connector.Counter
	n, size       int64 // records and bytes not yet added
}

func (m *sinkMetrics) flush() {
	if m.n > 0 {
		m.bytes.Add(m.size)
		m.n, m.size = 0, 0
	}
}

func newEncoder[T any](s *sink[T], ctx connector.SinkContext) *encoder[T] {
	life := ctx.Context
	if life == nil {
		life = context.Background()
	}
	e := &encoder[T]{s: s, ctx: life}
	e.m = sinkMetrics{
		failed: counter(ctx.Metrics, "numRecordsSendErrors"), bytes: counter(ctx.Metrics, "numBytesSend"),
	}
	return e
}

// produce encodes v and gives it to the client. It blocks while the client's buffer is full.
func (e *encoder[T]) produce(cl *kgo.Client, v T, ts int64, done func(*Record, error)) error {
	s := e.s
	rec := e.take()
	buf := rec.Value[:0]
	*rec = Record{Topic: s.cfg.topic}
	if ts != connector.NoTimestamp {
		rec.Timestamp = time.UnixMilli(ts)
	}
	if s.serialize != nil {
		var err error
		if buf, err = s.serialize(buf, v); err != nil {
			return fmt.Errorf("kafka: encode record%s for topic %q: %w", at(ts), s.cfg.topic, err)
		}
	}
	n := len(buf)
	if s.key != nil {
		if k := s.key(v); k != nil {
			buf = append(buf, k...)
			rec.Key = buf[n:len(buf):len(buf)]
			if rec.Key == nil {
				rec.Key = []byte{}
			}
		}
	}
	rec.Value = buf[:n]
	if s.headers != nil {
		rec.Headers = s.headers(v)
	}
	if s.topicOf != nil {
		rec.Topic = s.topicOf(v)
	}
	if s.record != nil {
		if err := s.record(v, rec); err != nil {
			return fmt.Errorf("kafka: fill record%s for topic %q: %w", at(ts), rec.Topic, err)
		}
	}
	if e.learn != nil && rec.Topic != e.last {
		e.last = rec.Topic
		e.learn(rec.Topic)
	}
	e.m.n++
	e.m.size += int64(len(rec.Value) + len(rec.Key))
	if e.m.n >= 1024 {
		e.m.flush()
	}
	ctx := e.ctx
	if s.partition != nil {
		ctx = &valueContext[T]{Context: e.ctx, s: s, v: v}
	}
	cl.Produce(ctx, rec, done)
	return nil
}

// at names a record's event time, by which its input can be found.
func at(ts int64) string {
	if ts == connector.NoTimestamp {
		return ""
	}
	return fmt.Sprintf(" with event time %s (%d ms)", time.UnixMilli(ts).UTC().Format(time.RFC3339Nano), ts)
}

// take returns a record whose Value has the buffer to use.
func (e *encoder[T]) take() *Record {
	if len(e.free) == 0 {
		e.mu.Lock()
		e.free, e.acked = e.acked, e.free
		e.mu.Unlock()
	}
	if n := len(e.free); n > 0 {
		rec := e.free[n-1]
		e.free = e.free[:n-1]
		return rec
	}
	return &Record{Value: make([]byte, 0, 256)}
}

// recycle takes back an acknowledged record. Called on the client's goroutine.
func (e *encoder[T]) recycle(r *Record) {
	if cap(r.Value) > 64<<10 {
		return
	}
	e.mu.Lock()
	e.acked = append(e.acked, r)
	e.mu.Unlock()
}

// writer is the writer without transactions.
type writer[T any] struct {
	enc       *encoder[T]
	cl        *kgo.Client
	guarantee DeliveryGuarantee
	done      func(*Record, error)
	err       atomic.Pointer[error]
}

func newWriter[T any](s *sink[T], ctx connector.SinkContext) (*writer[T], error) {
	cl, err := s.cfg.newClient(ctx.Logger, fmt.Sprintf("sink-%d", ctx.Subtask), producerOptions(s.cfg)...)
	if err != nil {
		return nil, err
	}
	w := &writer[T]{enc: newEncoder(s, ctx), cl: cl, guarantee: s.cfg.guarantee}
	w.done = func(r *Record, err error) {
		if err != nil {
			w.enc.m.failed.Add(1)
			first := fmt.Errorf("kafka: write %sto topic %q: %w", called(r), r.Topic, advise(cause(r, err))) // not err: its address would put each call's err on the heap
			w.err.CompareAndSwap(nil, &first)
			return
		}
		w.enc.recycle(r)
	}
	return w, nil
}

// called is how an error names a record: by the beginning of its key.
func called(r *Record) string {
	const most = 40
	switch {
	case len(r.Key) == 0:
		return ""
	case len(r.Key) > most:
		return fmt.Sprintf("the record with the key %q... (%d bytes, value %d bytes) ", r.Key[:most], len(r.Key), len(r.Value))
	}
	return fmt.Sprintf("the record with the key %q (value %d bytes) ", r.Key, len(r.Value))
}

func (w *writer[T]) failure() error {
	if e := w.err.Load(); e != nil {
		return *e
	}
	return nil
}

func (w *writer[T]) Write(v T, ts int64) error {
	if e := w.err.Load(); e != nil {
		return *e
	}
	return w.enc.produce(w.cl, v, ts, w.done)
}

func (w *writer[T]) Flush(ctx context.Context, endOfInput bool) error {
	w.enc.m.flush()
	if w.guarantee == GuaranteeNone && !endOfInput {
		return w.failure()
	}
	if err := w.cl.Flush(ctx); err != nil {
		return errors.Join(w.failure(), fmt.Errorf("kafka: flush topic %q: %w", w.enc.s.cfg.topic, err))
	}
	return w.failure()
}

func (w *writer[T]) Snapshot(int64) ([][]byte, error) { return nil, nil }

func (w *writer[T]) Close() error {
	w.cl.Close()
	return nil
}

// txnWriter is the writer with transactions.
type txnWriter[T any] struct {
	enc  *encoder[T]
	ctx  context.Context
	pool *txnPool
	cur  *slot // the open transaction
	done func(*Record, error)
	// owner is the slot that done reports to. Between transactions everything is flushed, so a change never mixes them up.
	owner atomic.Pointer[slot]
}

const writerStateVersion = 1

func newTxnWriter[T any](s *sink[T], ctx connector.SinkContext, pool *txnPool, restored [][]byte) (*txnWriter[T], error) {
	w := &txnWriter[T]{enc: newEncoder(s, ctx), pool: pool}
	w.ctx = w.enc.ctx
	if s.topicOf != nil || s.record != nil {
		w.enc.learn = func(topic string) { pool.learn(w.ctx, topic) }
	}
	w.done = func(r *Record, err error) {
		owner := w.owner.Load()
		if err != nil {
			w.enc.m.failed.Add(1)
			owner.failed(fmt.Errorf("kafka: write %sto topic %q in transaction %q: %w", called(r), r.Topic, owner.id, s.cfg.blame(cause(r, err))))
			return
		}
		owner.acked(r)
		w.enc.recycle(r)
	}
	failpoint.At("kafka/clean-up")
	mine := func(subtask int, id string) bool { return subtask%ctx.Parallelism == ctx.Subtask && !pool.excluded[id] }
	if err := pool.admin.cleanUp(w.ctx, s.cfg.prefix, mine); err != nil {
		return nil, err
	}
	// Prefixes that the job used before: nobody uses them now, so each subtask that hears of one cleans it all.
	seen := map[string]bool{s.cfg.prefix: true}
	for _, b := range restored {
		d := decoder{b: b}
		if len(b) == 0 || b[0] != writerStateVersion {
			return nil, fmt.Errorf("kafka: state of the sink's writer has a version that this build does not know")
		}
		d.b = b[1:]
		prefix := d.string()
		if d.bad || len(d.b) != 0 {
			return nil, fmt.Errorf("kafka: state of the sink's writer is not valid")
		}
		if seen[prefix] {
			continue
		}
		seen[prefix] = true
		if err := pool.admin.cleanUp(w.ctx, prefix, func(_ int, id string) bool { return !pool.excluded[id] }); err != nil {
			return nil, err
		}
	}
	if s.cfg.topic != "" {
		pool.learn(w.ctx, s.cfg.topic)
	}
	// The first id is initialised now: missing rights fail the start and not the first record.
	sl, err := pool.take(w.ctx)
	if err != nil {
		return nil, err
	}
	pool.giveBack(sl)
	return w, nil
}

func (w *txnWriter[T]) Write(v T, ts int64) error {
	if w.cur == nil {
		s, err := w.pool.take(w.ctx)
		if err != nil {
			return err
		}
		w.owner.Store(s)
		w.cur = s
		if err := s.begin(); err != nil {
			return err
		}
	}
	if err := w.enc.produce(w.cur.cl, v, ts, w.done); err != nil {
		return err
	}
	if w.enc.m.n == 0 { // each 1024 records
		return w.cur.failure()
	}
	return nil
}

func (w *txnWriter[T]) Flush(ctx context.Context, _ bool) error {
	w.enc.m.flush()
	if w.cur == nil {
		return nil
	}
	if err := failpoint.Error("kafka/flush"); err != nil {
		return err
	}
	if err := w.cur.cl.Flush(ctx); err != nil {
		return errors.Join(w.cur.failure(), fmt.Errorf("kafka: flush transaction %q: %w", w.cur.id, err))
	}
	return w.cur.failure()
}

// PrepareCommit implements connector.CommittingWriter. An interval without records has no transaction.
func (w *txnWriter[T]) PrepareCommit(checkpointID int64) ([][]byte, error) {
	w.pool.barrier(checkpointID)
	if err := w.pool.overdue(); err != nil {
		return nil, err
	}
	if w.cur == nil {
		return nil, nil
	}
	if err := w.cur.failure(); err != nil {
		return nil, err
	}
	failpoint.At("kafka/prepare")
	c, err := w.cur.prepare(w.ctx, checkpointID)
	if err != nil {
		return nil, err
	}
	w.cur = nil
	return [][]byte{c.encode()}, nil
}

// Committed implements connector.CommittingWriter.
func (w *txnWriter[T]) Committed(checkpointID int64) { w.pool.committed(checkpointID) }

// Snapshot stores the prefix, so that a job that is restored with another one still cleans up.
func (w *txnWriter[T]) Snapshot(int64) ([][]byte, error) {
	return [][]byte{appendString([]byte{writerStateVersion}, w.enc.s.cfg.prefix)}, nil
}

func (w *txnWriter[T]) Close() error {
	if w.cur != nil && w.cur.cl != nil {
		w.cur.abortOpen()
		w.cur = nil
	}
	w.pool.release()
	return nil
}
