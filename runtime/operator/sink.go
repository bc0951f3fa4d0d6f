package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
)

const writerState = "sink-writer"

// Sink writes to a connector's sink. With a CommittingSink, what the writer prepared at a barrier is kept in the checkpoint's state and
// committed, in checkpoint order, on a goroutine of its own once the checkpoint is complete; committables that a restored checkpoint
// holds are committed before the writer is made. Source: Flink SinkWriterOperator and CommitterOperator.
func Sink[T any](s connector.Sink[T]) Factory {
	return SinkFactory[T]{s}
}

// SinkFactory is the Factory of a sink; test harnesses put another Sink in its place.
type SinkFactory[T any] struct{ Sink connector.Sink[T] }

// Connector is the sink, of whatever type.
func (f SinkFactory[T]) Connector() any { return f.Sink }

// New implements Factory.
func (f SinkFactory[T]) New(ctx *Context, _ any) (Operator, error) {
	in := &sinkIn[T]{}
	o := &sinkOp{in: Receiver[T](in)}
	in.o, o.ctx = o, ctx
	ctx.layout = graph.LayoutSink
	if cs, ok := f.Sink.(connector.CommittingSink[T]); ok {
		o.makeCommitter = cs.Committer
	}
	o.makeWriter = func(sc connector.SinkContext, restored [][]byte) (err error) {
		if in.writer, err = f.Sink.Writer(sc, restored); err != nil || in.writer == nil {
			return err
		}
		in.batch, _ = in.writer.(connector.BatchWriter[T])
		o.writer = in.writer
		return nil
	}
	return o, nil
}

// Committing is implemented by operators that commit in two phases: in BATCH, what they prepared at the end of the input is kept before it
// is committed.
type Committing interface{ Commits() bool }

// flusher is what the type of records does not matter for in a connector.SinkWriter.
type flusher interface {
	Flush(ctx context.Context, endOfInput bool) error
	Snapshot(checkpointID int64) ([][]byte, error)
	Close() error
}

// sinkIn is the Receiver of a sink, and what of it is compiled for each type of records.
type sinkIn[T any] struct {
	ignore
	o      *sinkOp
	writer connector.SinkWriter[T]
	batch  connector.BatchWriter[T] // writer, when it takes batches
}

type sinkOp struct {
	Base
	ctx        *Context
	in         any // Receiver
	writer     flusher
	committing connector.CommittingWriter
	// Of the connector's sink; makeCommitter is nil for one that does not commit.
	makeWriter    func(connector.SinkContext, [][]byte) error
	makeCommitter func(connector.SinkContext) (connector.Committer, error)
	committer     *commitLoop
	pending       []metadata.Prepared // prepared, not known to be committed; ascending
	records       int64               // since sent was counted
	sent          connector.Counter
}

func (o *sinkOp) Input(int) any { return o.in }
func (o *sinkOp) Commits() bool { return o.committing != nil }

// Publish counts the records written since.
func (o *sinkOp) Publish() {
	o.sent.Add(o.records)
	o.records = 0
}

func (o *sinkOp) Open(ctx context.Context) error {
	sc := connector.SinkContext{
		Context: o.ctx.Services.Context(), Subtask: o.ctx.Subtask, Parallelism: o.ctx.Parallelism, Attempt: o.ctx.Attempt,
		RestoredCheckpoint: o.ctx.RestoredCheckpoint, Logger: o.ctx.Logger, Metrics: o.ctx.Metrics, CheckpointingEnabled: o.ctx.Checkpointing,
		JobID: o.ctx.JobID, OperatorID: o.ctx.ID.String(), Embedded: o.ctx.Embedded, Files: o.ctx.Files,
	}
	o.sent = o.ctx.Metrics.Counter("numRecordsSend")
	if o.makeCommitter != nil {
		if err := o.openCommitter(ctx, &sc); err != nil {
			return err
		}
	}
	if err := o.makeWriter(sc, o.ctx.List(writerState)); err != nil {
		return o.ctx.wrap(err)
	}
	if o.writer == nil {
		return o.violated("writer", "Writer returned nil")
	}
	if o.committer != nil {
		cw, ok := o.writer.(connector.CommittingWriter)
		if !ok {
			return o.violated("committing-writer", "the writer %T of a sink with a Committer cannot prepare commits: it is no connector.CommittingWriter", o.writer)
		}
		o.committing = cw
	}
	return nil
}

// violated is the error of a sink that does not keep its contract.
func (o *sinkOp) violated(rule, detail string, args ...any) error {
	return o.ctx.wrap(&connector.ContractError{Rule: rule, Detail: fmt.Sprintf(detail, args...)})
}

func (o *sinkOp) openCommitter(ctx context.Context, sc *connector.SinkContext) error {
	all, err := metadata.DecodePrepared(o.ctx.List(metadata.PreparedByAll))
	if err != nil {
		return o.ctx.undecodable("committables", err)
	}
	for _, c := range all {
		sc.AllCommittables = append(sc.AllCommittables, c.Items...)
	}
	c, err := o.makeCommitter(*sc)
	if err != nil {
		return o.ctx.wrap(err)
	}
	if c == nil {
		return o.violated("committer", "Committer returned nil: what the writer prepares would never be committed; a sink that commits nothing has no Committer method")
	}
	mine, err := metadata.DecodePrepared(o.ctx.List(metadata.PreparedState))
	if err != nil {
		return o.ctx.undecodable("committables", err)
	}
	for _, m := range mine {
		if err := c.Commit(ctx, m.Items, true); err != nil {
			_ = c.Close() // the first error is the one that counts
			return o.ctx.wrap(fmt.Errorf("commit what checkpoint %d prepared: %w", m.Checkpoint, err))
		}
	}
	o.committer = newCommitLoop(o.ctx.Services, c, o.ctx.wrap, o.committed)
	return nil
}

func (i *sinkIn[T]) Process(v T, m Meta) error {
	o := i.o
	o.ctx.Enter()
	o.records++
	if err := i.writer.Write(v, m.TS); err != nil {
		return o.ctx.wrap(err)
	}
	return nil
}

func (i *sinkIn[T]) ProcessBatch(vs []T, ts []int64) error {
	o := i.o
	o.ctx.Enter()
	o.records += int64(len(vs))
	if i.batch != nil {
		return o.ctx.wrap(i.batch.WriteBatch(vs, ts))
	}
	for n := range vs {
		if err := i.writer.Write(vs[n], timeOf(ts, n)); err != nil {
			return o.ctx.wrap(err)
		}
	}
	return nil
}

func (o *sinkOp) Snapshot(b Barrier) (Snapshot, error) {
	o.ctx.Enter()
	ctx := o.ctx.Services.Context()
	if err := o.writer.Flush(ctx, false); err != nil {
		return Snapshot{}, o.ctx.wrap(err)
	}
	var s Snapshot
	if o.committing != nil {
		items, err := o.committing.PrepareCommit(b.ID)
		if err != nil {
			return Snapshot{}, o.ctx.wrap(err)
		}
		o.pending = append(o.pending, metadata.Prepared{Checkpoint: b.ID, Items: items})
		split := metadata.ListState{Name: metadata.PreparedState, Mode: metadata.Split}
		union := metadata.ListState{Name: metadata.PreparedByAll, Mode: metadata.Union}
		for _, p := range o.pending {
			if len(p.Items) == 0 {
				continue
			}
			item, err := json.Marshal(p)
			if err != nil {
				return Snapshot{}, fmt.Errorf("operator %s: encode committables: %w", o.ctx.Describe(), err)
			}
			split.Items, union.Items = append(split.Items, item), append(union.Items, item)
		}
		s.Lists = append(s.Lists, split, union)
	}
	ws, err := o.writer.Snapshot(b.ID)
	if err != nil {
		return Snapshot{}, o.ctx.wrap(err)
	}
	if len(ws) > 0 {
		s.Lists = append(s.Lists, metadata.ListState{Name: writerState, Mode: metadata.Split, Items: ws})
	}
	return s, nil
}

// CheckpointComplete starts the commits of every checkpoint up to id.
func (o *sinkOp) CheckpointComplete(id int64) error {
	if o.committer != nil {
		for _, p := range o.pending {
			if p.Checkpoint <= id {
				o.committer.enqueue(p)
			}
		}
	}
	return nil
}

// committed runs on the task's goroutine when a checkpoint's committables are committed.
func (o *sinkOp) committed(checkpoint int64) {
	o.ctx.Enter() // it comes by mail
	for len(o.pending) > 0 && o.pending[0].Checkpoint <= checkpoint {
		o.committing.Committed(o.pending[0].Checkpoint)
		o.pending = o.pending[1:]
	}
}

// Drained is true when every commit that was asked for is done.
func (o *sinkOp) Drained() bool { return o.committer == nil || o.committer.idle() }

// EndInput flushes; without checkpoints, which would commit the rest, it also commits.
func (o *sinkOp) EndInput() error {
	o.ctx.Enter()
	ctx := o.ctx.Services.Context()
	if err := o.writer.Flush(ctx, true); err != nil {
		return o.ctx.wrap(err)
	}
	if o.committing == nil || o.ctx.Checkpointing {
		return nil
	}
	items, err := o.committing.PrepareCommit(0)
	if err != nil {
		return o.ctx.wrap(err)
	}
	return o.ctx.wrap(o.committer.c.Commit(ctx, items, false))
}

func (o *sinkOp) Close() error {
	var err error
	if o.writer != nil {
		err = o.ctx.wrap(o.writer.Close())
	}
	if o.committer != nil {
		if cerr := o.committer.close(); err == nil {
			err = o.ctx.wrap(cerr)
		}
	}
	return err
}

// commitLoop runs commits one after another on its own goroutine.
type commitLoop struct {
	svc    Services
	c      connector.Committer
	wrap   func(error) error
	done   func(checkpoint int64)
	work   chan metadata.Prepared
	queued int64 // highest checkpoint enqueued; task's goroutine only
	open   int   // enqueued and not reported done; task's goroutine only
	cancel context.CancelFunc
	ended  chan struct{}
}

func newCommitLoop(svc Services, c connector.Committer, wrap func(error) error, done func(int64)) *commitLoop {
	ctx, cancel := context.WithCancel(svc.Context())
	l := &commitLoop{svc: svc, c: c, wrap: wrap, done: done, work: make(chan metadata.Prepared, 64), cancel: cancel, ended: make(chan struct{})}
	go l.run(ctx)
	return l
}

func (l *commitLoop) idle() bool { return l.open == 0 }

func (l *commitLoop) enqueue(c metadata.Prepared) {
	if c.Checkpoint <= l.queued {
		return
	}
	l.queued = c.Checkpoint
	l.open++
	select {
	case l.work <- c: // 64 checkpoints behind block the task, which is back-pressure
	case <-l.ended: // it failed, or the task ends
	}
}

func (l *commitLoop) run(ctx context.Context) {
	defer close(l.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-l.work:
			if !l.commit(ctx, c) {
				return
			}
			l.svc.Post(func() error {
				l.open--
				l.done(c.Checkpoint)
				return nil
			})
		}
	}
}

// commit reports whether it went well; if not, the task fails.
func (l *commitLoop) commit(ctx context.Context, c metadata.Prepared) (ok bool) {
	if len(c.Items) == 0 {
		return true
	}
	guard.Call(func() error { return l.c.Commit(ctx, c.Items, false) }, func(err error) {
		if ok = err == nil; !ok {
			l.svc.Fail(l.wrap(fmt.Errorf("commit checkpoint %d: %w", c.Checkpoint, err)))
		}
	})
	return ok
}

func (l *commitLoop) close() error {
	l.cancel()
	select {
	case <-l.ended:
	case <-time.After(30 * time.Second):
		return fmt.Errorf("a commit does not end after it was cancelled")
	}
	return l.c.Close()
}
