package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/checkpoint/storage/merge"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task/barrier"
	"github.com/thalweg/thalweg/state"
)

// snapshots are the checkpoints whose asynchronous part is running.
type snapshots struct {
	mu      sync.Mutex
	running map[int64]context.CancelFunc
	wg      sync.WaitGroup
}

func (s *snapshots) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) == 0
}

func (s *snapshots) abort(id int64) {
	s.mu.Lock()
	if cancel, ok := s.running[id]; ok {
		cancel()
	}
	s.mu.Unlock()
}

func (s *snapshots) abortAll() {
	s.mu.Lock()
	for _, cancel := range s.running {
		cancel()
	}
	s.mu.Unlock()
}

func (s *snapshots) wait() { s.wg.Wait() }

func (s *snapshots) start(parent context.Context, id int64, run func(ctx context.Context) error, failed func(error), after func()) {
	ctx, cancel := context.WithCancel(parent)
	s.mu.Lock()
	s.running[id] = cancel
	s.mu.Unlock()
	s.wg.Go(func() {
		guard.Call(func() error { return run(ctx) }, func(err error) {
			if err != nil && ctx.Err() == nil {
				failed(err)
			}
			cancel()
			s.mu.Lock()
			delete(s.running, id)
			s.mu.Unlock()
			after()
		})
	})
}

// Trigger starts a checkpoint at a source task.
func (t *Task) Trigger(m *pb.TriggerCheckpoint) {
	b := operator.Barrier{ID: m.GetCheckpointId(), Timestamp: m.GetTimestampMs(), Savepoint: m.GetSavepoint(), Canonical: m.GetCanonical(),
		Suspend: m.GetSuspend(), Drain: m.GetDrain(), Full: m.GetFull(), Base: m.GetBase(), Exclusive: m.GetExclusiveDir(), Shared: m.GetSharedDir()}
	t.takeover.Triggered(b.ID, b.Suspend)
	t.Post(func() error {
		if t.d.Batch {
			return t.prepareCommits(b)
		}
		failpoint.At("task/trigger")
		if t.source == nil {
			t.decline(b.ID, errors.New("task: triggered directly, but it has inputs"))
			return nil
		}
		if b.Drain {
			if err := t.reachEnd(); err != nil {
				return err
			}
		}
		return t.checkpoint(b, 0, false)
	})
}

// CheckpointComplete passes the coordinator's notice on to the operators.
func (t *Task) CheckpointComplete(id int64) {
	t.takeover.Completed(id)
	t.Post(func() error {
		failpoint.At("task/notified")
		for _, o := range t.ops {
			if err := o.CheckpointComplete(id); err != nil {
				return err
			}
		}
		return nil
	})
}

// CheckpointAborted ends a checkpoint that failed elsewhere. resume lets a task go on that a stop-with-savepoint had suspended.
func (t *Task) CheckpointAborted(id int64, resume bool) {
	t.takeover.Aborted(id, resume)
	t.snapshots.abort(id)
	t.Post(func() error {
		for _, o := range t.ops {
			o.CheckpointAborted(id)
		}
		t.unaligned.abort(id)
		if resume && !t.finishing {
			t.suspended = false
		}
		if t.aligner != nil {
			return t.apply(t.aligner.OnAbort(id, time.Now()))
		}
		return nil
	})
}

// OperatorEvent gives an event of the coordinator process to its operator.
func (t *Task) OperatorEvent(op graph.OperatorID, payload []byte) {
	t.takeover.Received(payload)
	t.Post(func() error {
		if t.source != nil && t.ctxs[0].ID == op {
			return t.source.HandleEvent(payload)
		}
		return nil
	})
}

func (t *Task) onBarrier(g *gate, item network.Item) error {
	failpoint.At("task/barrier-in")
	ev, channel := &item.Event, g.first+item.Channel
	b := barrier.Barrier{ID: ev.Checkpoint, Timestamp: ev.Timestamp, Options: ev.Options, Extra: ev.Extra}
	if t.unaligned == nil {
		return t.apply(t.aligner.OnBarrier(channel, b, time.Now()))
	}
	b.Unaligned = ev.Options&network.Urgent != 0
	return t.unaligned.onBarrier(g, item, b)
}

func (t *Task) onEndOfPartition(channel int) error {
	return t.apply(t.aligner.OnEndOfPartition(channel, time.Now()))
}

func (t *Task) apply(effects []barrier.Effect) error {
	in, _ := t.input.(*gateInput) // in BATCH another one, and no barriers
	for _, e := range effects {
		switch e.Kind {
		case barrier.Block:
			in.block(e.Channel, true)
		case barrier.Unblock:
			in.block(e.Channel, false)
		case barrier.Cut: // the aligner says which channels are open
		case barrier.Complete:
			t.unaligned.cut(e.Alignment)
		case barrier.Abort:
			t.unaligned.abort(e.Barrier.ID)
			if e.Reason == barrier.Subsumed {
				t.decline(e.Barrier.ID, errors.New("task: a newer checkpoint's barrier came before the alignment was complete"))
			}
		case barrier.Start:
			var b operator.Barrier
			if err := json.Unmarshal(e.Barrier.Extra, &b); err != nil {
				return fmt.Errorf("task: decode barrier %d: %w", e.Barrier.ID, err)
			}
			if err := t.checkpoint(b, e.Alignment, e.Unaligned); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Task) decline(id int64, err error) {
	t.env.Report.Decline(t.d.Execution, id, t.describe(err))
}

// checkpoint is the synchronous part: operators may flush, the barrier goes out, the state is frozen. The rest runs in the background.
// It is unaligned when the barriers of some inputs have not come yet.
func (t *Task) checkpoint(b operator.Barrier, alignment time.Duration, unaligned bool) error {
	start := time.Now()
	if err := failpoint.Error("task/snapshot-sync"); err != nil {
		return err
	}
	for _, o := range t.ops {
		if err := o.PrepareBarrier(b); err != nil {
			return err
		}
	}
	extra, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("task: encode barrier %d: %w", b.ID, err)
	}
	under, err := t.passOn(b, network.Event{Kind: network.Barrier, Checkpoint: b.ID, Timestamp: b.Timestamp, Extra: extra}, unaligned)
	if err != nil {
		return err
	}
	failpoint.At("task/barrier-out")
	parts := make([]operator.Snapshot, len(t.ops))
	for i, o := range t.ops {
		s, err := operator.Take(o, t.ctxs[i], b)
		if err != nil {
			discard(parts[:i])
			return err
		}
		parts[i] = s
	}
	if b.Suspend {
		t.suspended = true
	}
	ack := &pb.CheckpointAck{ExecutionId: t.d.Execution.String(), CheckpointId: b.ID, AlignmentMs: alignment.Milliseconds(),
		StartDelayMs: max(0, start.UnixMilli()-b.Timestamp-alignment.Milliseconds()), SyncMs: time.Since(start).Milliseconds()}
	t.write(b, parts, under, ack)
	return nil
}

// write starts the asynchronous part.
func (t *Task) write(b operator.Barrier, parts []operator.Snapshot, under *underway, ack *pb.CheckpointAck) {
	t.snapshots.start(t.ctx, b.ID, func(ctx context.Context) error { return t.upload(ctx, b, parts, under, ack) }, func(err error) {
		t.log.Warn().Err(err).Int64("checkpoint_id", b.ID).Msg("checkpoint not written")
		t.decline(b.ID, err)
	}, t.mail.notify)
}

func discard(parts []operator.Snapshot) {
	for _, p := range parts {
		for _, k := range p.Keyed {
			k.Discard()
		}
	}
}

// upload is the asynchronous part. What it returns declines the checkpoint.
func (t *Task) upload(ctx context.Context, b operator.Barrier, parts []operator.Snapshot, under *underway, ack *pb.CheckpointAck) error {
	start := time.Now()
	if err := failpoint.Error("task/snapshot-async"); err != nil {
		discard(parts)
		return err
	}
	plain := storage.NewSink(t.env.FS, b.Exclusive, b.Shared, int64(config.MemoryThreshold.Value(t.env.Config)))
	var sink state.Sink = plain
	var merged *merge.Sink
	if t.env.Merge != nil && !b.Savepoint {
		merged = t.env.Merge.Sink(ctx, plain, t.d.Execution.String())
		defer merged.Discard()
		sink = merged
	}
	if !b.Savepoint { // no restart begins with one
		sink = t.env.Backup.Sink(sink, b.ID, t.d.Subtask)
	}
	if b.Full || b.Savepoint {
		sink = state.Anew{Sink: sink, Apart: b.Savepoint}
	}
	var out metadata.Task
	for i, p := range parts {
		st := metadata.Subtask{Index: t.d.Subtask, Lists: p.Lists}
		for _, l := range p.Lists {
			for _, item := range l.Items {
				ack.Size += int64(len(item))
				ack.NewSize += int64(len(item))
			}
		}
		for j, k := range p.Keyed {
			h, err := writeSnapshot(ctx, k, sink)
			if err != nil {
				for _, rest := range p.Keyed[j+1:] {
					rest.Discard()
				}
				discard(parts[i+1:])
				return fmt.Errorf("%s: write checkpoint %d: %w", t.ctxs[i].Describe(), b.ID, err)
			}
			ack.Size += h.Size
			ack.NewSize += h.New
			st.Keyed = append(st.Keyed, h)
		}
		if len(st.Lists) > 0 || len(st.Keyed) > 0 {
			out.Operators = append(out.Operators, metadata.TaskOperator{ID: t.ctxs[i].ID, State: st})
		}
	}
	inFlight, err := under.write(ctx, sink, ack)
	if err != nil {
		return fmt.Errorf("%s: write what is under way for checkpoint %d: %w", t.d.Vertex.Name, b.ID, err)
	}
	out.InFlight = inFlight
	if merged != nil {
		if err := merged.Seal(ctx); err != nil {
			return fmt.Errorf("%s: write checkpoint %d: %w", t.d.Vertex.Name, b.ID, err)
		}
	}
	enc, err := metadata.EncodeTask(out)
	if err != nil {
		return err
	}
	ack.State, ack.AsyncMs = enc, time.Since(start).Milliseconds()
	failpoint.At("task/before-ack")
	t.env.Report.Ack(ack)
	return nil
}

func writeSnapshot(ctx context.Context, s state.Snapshot, sink state.Sink) (h state.Handle, err error) {
	err = guard.Run(func() (err error) { // a user codec may panic
		h, err = s.Write(ctx, sink)
		return err
	})
	return h, err
}
