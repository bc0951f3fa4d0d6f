package connectortest

import (
	"context"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
)

// SinkCheckpoint is a checkpoint of a sink: what a job would store.
type SinkCheckpoint struct {
	ID           int64
	Writers      [][]byte
	Committables [][]byte // not yet committed ones of earlier checkpoints included
}

// SinkRun is one attempt of a job that consists of a sink.
type SinkRun[T any] struct {
	tb         testing.TB
	par        int
	ctx        context.Context
	cancel     context.CancelFunc
	writers    []connector.SinkWriter[T]
	committers []connector.Committer
	pending    []map[int64][][]byte // per subtask: prepared and not committed, by checkpoint
	nextID     int64
	Metrics    []*Metrics
}

// SinkOptions vary an attempt.
type SinkOptions struct {
	Attempt int
	// Descending makes the committers of all subtasks run after all writers are made where the contract allows it: subtasks start in
	// descending order, each committer directly before its writer.
	Descending bool
	// JobID is the job's, "connectortest" when it is empty; a job that is restored from another one's checkpoint has another.
	JobID string
	// Embedded is that of connector.SinkContext.
	Embedded bool
}

// StartSink starts an attempt; from is the checkpoint to restore, or nil. An error of any subtask is returned.
func StartSink[T any](tb testing.TB, s connector.Sink[T], parallelism int, from *SinkCheckpoint, opts SinkOptions) (*SinkRun[T], error) {
	tb.Helper()
	r := &SinkRun[T]{
		tb: tb, par: parallelism, nextID: 1, writers: make([]connector.SinkWriter[T], parallelism),
		committers: make([]connector.Committer, parallelism), pending: make([]map[int64][][]byte, parallelism), Metrics: make([]*Metrics, parallelism),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	tb.Cleanup(r.Kill)
	perC, perW := make([][][]byte, parallelism), make([][][]byte, parallelism)
	ctx := connector.SinkContext{Context: r.ctx, Parallelism: parallelism, Attempt: opts.Attempt, Logger: Logger(tb), CheckpointingEnabled: true,
		JobID: "connectortest", OperatorID: "sink", Files: files(), Embedded: opts.Embedded}
	if opts.JobID != "" {
		ctx.JobID = opts.JobID
	}
	if from != nil {
		ctx.RestoredCheckpoint, r.nextID = from.ID, from.ID+1
		ctx.AllCommittables = from.Committables
		for i, c := range from.Committables {
			sub := (len(from.Committables) - 1 - i) % parallelism // not where it came from
			perC[sub] = append(perC[sub], c)
		}
		for i, w := range from.Writers {
			perW[i%parallelism] = append(perW[i%parallelism], w)
		}
	}
	for i := range parallelism {
		sub := i
		if opts.Descending {
			sub = parallelism - 1 - i
		}
		ctx := ctx
		ctx.Subtask = sub
		r.Metrics[sub] = &Metrics{}
		ctx.Metrics = r.Metrics[sub]
		r.pending[sub] = map[int64][][]byte{}
		if cs, ok := s.(connector.CommittingSink[T]); ok {
			c, err := cs.Committer(ctx)
			if err != nil {
				return r, err
			}
			if c == nil {
				return r, &connector.ContractError{Rule: "committer", Detail: "Committer returned nil"}
			}
			r.committers[sub] = c
			if len(perC[sub]) > 0 {
				if err := c.Commit(r.ctx, perC[sub], true); err != nil {
					return r, err
				}
			}
		}
		w, err := s.Writer(ctx, perW[sub])
		if err != nil {
			return r, err
		}
		if w == nil {
			return r, &connector.ContractError{Rule: "writer", Detail: "Writer returned nil"}
		}
		r.writers[sub] = w
	}
	return r, nil
}

// MustStartSink is StartSink that fails the test.
func MustStartSink[T any](tb testing.TB, s connector.Sink[T], parallelism int, from *SinkCheckpoint, opts SinkOptions) *SinkRun[T] {
	tb.Helper()
	r, err := StartSink(tb, s, parallelism, from, opts)
	if err != nil {
		tb.Fatalf("start sink: %v", err)
	}
	return r
}

// Write writes to a subtask.
func (r *SinkRun[T]) Write(sub int, vs ...T) {
	r.tb.Helper()
	for _, v := range vs {
		if err := r.writers[sub].Write(v, connector.NoTimestamp); err != nil {
			r.tb.Fatalf("write to subtask %d: %v", sub, err)
		}
	}
}

// Writer is the writer of a subtask.
func (r *SinkRun[T]) Writer(sub int) connector.SinkWriter[T] { return r.writers[sub] }

// Committer is the committer of a subtask, nil when the sink has none.
func (r *SinkRun[T]) Committer(sub int) connector.Committer { return r.committers[sub] }

// TryCheckpoint plays the barrier in all subtasks.
func (r *SinkRun[T]) TryCheckpoint(endOfInput bool) (*SinkCheckpoint, error) {
	cp := &SinkCheckpoint{ID: r.nextID}
	r.nextID++
	ctx, cancel := context.WithTimeout(r.ctx, 60*time.Second)
	defer cancel()
	for sub, w := range r.writers {
		if err := w.Flush(ctx, endOfInput); err != nil {
			return nil, err
		}
		if cw, ok := w.(connector.CommittingWriter); ok {
			cs, err := cw.PrepareCommit(cp.ID)
			if err != nil {
				return nil, err
			}
			if len(cs) > 0 {
				r.pending[sub][cp.ID] = cs
			}
		}
		st, err := w.Snapshot(cp.ID)
		if err != nil {
			return nil, err
		}
		cp.Writers = append(cp.Writers, st...)
		for id := int64(0); id <= cp.ID; id++ {
			cp.Committables = append(cp.Committables, r.pending[sub][id]...)
		}
	}
	return cp, nil
}

// Checkpoint is TryCheckpoint that fails the test.
func (r *SinkRun[T]) Checkpoint() *SinkCheckpoint {
	r.tb.Helper()
	cp, err := r.TryCheckpoint(false)
	if err != nil {
		r.tb.Fatalf("checkpoint: %v", err)
	}
	return cp
}

// TryComplete commits what belongs to a checkpoint and those before it.
func (r *SinkRun[T]) TryComplete(cp *SinkCheckpoint) error { return r.CompletePartly(cp, r.par) }

// CompletePartly is TryComplete of the first subtasks alone, as when the job dies in the midst of the commits.
func (r *SinkRun[T]) CompletePartly(cp *SinkCheckpoint, subtasks int) error {
	for sub, c := range r.committers[:subtasks] {
		if c == nil {
			continue
		}
		for id := int64(0); id <= cp.ID; id++ {
			cs := r.pending[sub][id]
			if len(cs) == 0 {
				continue
			}
			if err := c.Commit(r.ctx, cs, false); err != nil {
				return err
			}
			delete(r.pending[sub], id)
		}
		if cw, ok := r.writers[sub].(connector.CommittingWriter); ok {
			cw.Committed(cp.ID)
		}
	}
	return nil
}

// Complete is TryComplete that fails the test.
func (r *SinkRun[T]) Complete(cp *SinkCheckpoint) {
	r.tb.Helper()
	if err := r.TryComplete(cp); err != nil {
		r.tb.Fatalf("complete checkpoint %d: %v", cp.ID, err)
	}
}

// Close ends the attempt in order.
func (r *SinkRun[T]) Close() {
	if r.ctx.Err() != nil {
		return
	}
	for sub := range r.writers {
		if r.writers[sub] != nil {
			if err := r.writers[sub].Close(); err != nil {
				r.tb.Errorf("close writer %d: %v", sub, err)
			}
		}
		if r.committers[sub] != nil {
			if err := r.committers[sub].Close(); err != nil {
				r.tb.Errorf("close committer %d: %v", sub, err)
			}
		}
	}
	r.cancel()
}

// Abandon leaves the attempt as a killed process would: nothing is aborted or closed until the test ends.
func (r *SinkRun[T]) Abandon() {}

// Kill ends the attempt without the chance to reach the external system in good order; used at the end of tests.
func (r *SinkRun[T]) Kill() { r.Close() }
