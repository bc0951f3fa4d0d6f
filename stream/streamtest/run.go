package streamtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// fail ends the job.
func (j *engine) fail(err error) error {
	if j.failed == nil {
		j.failed = err
	}
	return j.failed
}

// settle moves records, mails and events until none is left.
func (j *engine) settle() (err error) {
	defer j.recovered(&err)
	if j.failed != nil {
		return fmt.Errorf("it has failed already: %w", j.failed)
	}
	for {
		progress, err := j.mails()
		if err != nil {
			return j.fail(err)
		}
		for _, s := range j.subtasks {
			if s.source != nil && s.own {
				if _, err := s.poll(true); err != nil {
					return j.fail(err)
				}
			}
		}
		moved, err := j.move()
		if err != nil {
			return j.fail(err)
		}
		if !progress && !moved {
			return nil
		}
	}
}

func (j *engine) mails() (progress bool, err error) {
	work, err := j.mail.take()
	if err != nil {
		return false, err
	}
	for _, fn := range work {
		if err := fn(); err != nil {
			return true, err
		}
	}
	return len(work) > 0, nil
}

// move takes records through the exchanges. Subtasks are in topological order: one pass takes them to the end.
func (j *engine) move() (progress bool, err error) {
	for _, s := range j.subtasks {
		if err := s.flush(); err != nil {
			return progress, err
		}
		p, err := s.read()
		if err != nil {
			return progress, err
		}
		progress = progress || p
	}
	return progress, nil
}

// tick lets watermarks follow what was read.
func (j *engine) tick() (err error) {
	defer j.recovered(&err)
	for _, s := range j.subtasks {
		if s.ended {
			continue
		}
		j.at = s
		for _, o := range s.ops {
			if p, ok := o.(operator.Progress); ok {
				if err := p.Tick(); err != nil {
					return j.fail(err)
				}
			}
		}
		if err := s.flush(); err != nil { // before what follows ticks
			return j.fail(err)
		}
		if _, err := j.move(); err != nil {
			return j.fail(err)
		}
	}
	return j.settle()
}

// readSources reads the program's own sources to their end; then is called after each step. After a restart they are there again, with nothing
// left but their end.
func (j *engine) readSources(then func() error) (err error) {
	defer j.recovered(&err)
	deadline := time.Now().Add(patience)
	for {
		done, progress := true, false
		for _, s := range j.subtasks {
			if s.source == nil || s.own || s.ended {
				continue
			}
			st, err := s.poll(false)
			if err != nil {
				return j.fail(err)
			}
			done = done && st == connector.EndOfInput
			progress = progress || st == connector.MoreAvailable
		}
		if done {
			j.read = true
			return j.settle()
		}
		if progress {
			deadline = time.Now().Add(patience)
			if err := then(); err != nil {
				return err
			}
			continue
		}
		if err := j.settle(); err != nil {
			return err
		}
		if !j.sourceReady(time.Until(deadline)) {
			return j.fail(fmt.Errorf("a source had nothing for %v, and did not end", patience))
		}
	}
}

// sourceReady waits a moment for a source or a mail; false when the time is up.
func (j *engine) sourceReady(left time.Duration) bool {
	if left <= 0 {
		return false
	}
	for _, s := range j.subtasks {
		if s.source == nil || s.own || s.ended {
			continue
		}
		t := time.NewTimer(min(left, 10*time.Millisecond))
		select {
		case <-s.source.Available():
		case <-j.mail.wake:
		case <-t.C:
		}
		t.Stop()
	}
	return true
}

// marks are the watermarks of sources, the least over their subtasks.
func (j *engine) marks() map[graph.OperatorID]int64 {
	out := map[graph.OperatorID]int64{}
	for _, s := range j.subtasks {
		if s.source == nil || s.ended {
			continue
		}
		id, w := s.ctxs[0].ID, s.source.Watermark()
		if w == operator.MinWatermark {
			continue // it has no split
		}
		if old, ok := out[id]; !ok || w < old {
			out[id] = w
		}
	}
	return out
}

// remark emits again what sources had emitted before a restart: a test is not to wait for it.
func (j *engine) remark(marks map[graph.OperatorID]int64) error {
	if err := j.settle(); err != nil { // splits first
		return err
	}
	for _, s := range j.subtasks {
		if s.source == nil || s.ended {
			continue
		}
		if w, ok := marks[s.ctxs[0].ID]; ok {
			if err := s.source.(operator.Progress).EmitWatermark(w); err != nil {
				return j.fail(err)
			}
		}
	}
	return nil
}

// snapshotDir is where the state of snapshots would be that is not in them.
const snapshotDir = "mem://streamtest/snapshot"

// snapshot takes a savepoint that holds everything itself.
func (j *engine) snapshot() (_ *metadata.Checkpoint, err error) {
	defer j.recovered(&err)
	if err := j.settle(); err != nil {
		return nil, err
	}
	j.checkpoints++
	b := operator.Barrier{ID: j.checkpoints, Timestamp: j.now, Savepoint: true, Canonical: true, Exclusive: snapshotDir, Shared: snapshotDir + "/shared"}
	c := &metadata.Checkpoint{ID: b.ID, Savepoint: true, Canonical: true, Trigger: time.UnixMilli(j.now).UTC(), JobName: j.prog.Graph.Name, Coordinators: map[graph.OperatorID][]byte{}}
	for _, e := range j.enumerators {
		st, err := e.e.Snapshot(b.ID)
		if err != nil {
			return nil, j.fail(err)
		}
		c.Coordinators[e.id] = st
	}
	sink := storage.NewSink(j.reg, b.Exclusive, b.Shared, 1<<40)
	ops := map[graph.OperatorID]*metadata.Operator{}
	var order []graph.OperatorID
	for _, s := range j.subtasks {
		if _, err := j.move(); err != nil { // what was emitted before the barrier belongs to this side of it
			return nil, j.fail(err)
		}
		j.at = s
		for _, o := range s.ops {
			if err := o.PrepareBarrier(b); err != nil {
				return nil, j.fail(err)
			}
		}
		for i, o := range s.ops {
			st, err := s.snapshot(o, s.ctxs[i], b, sink)
			if err != nil {
				return nil, j.fail(err)
			}
			id := s.ctxs[i].ID
			if ops[id] == nil {
				ops[id] = &metadata.Operator{ID: id, UID: s.ctxs[i].UID, Name: s.ctxs[i].Name, Parallelism: s.vertex.Parallelism, MaxParallelism: s.vertex.MaxParallelism}
				order = append(order, id)
			}
			if len(st.Lists) > 0 || len(st.Keyed) > 0 {
				ops[id].Subtasks = append(ops[id].Subtasks, st)
			}
		}
	}
	for _, id := range order {
		c.Operators = append(c.Operators, *ops[id])
	}
	for _, o := range j.outputs {
		o.keep()
	}
	return c, j.complete(b.ID)
}

func (s *subtask) snapshot(o operator.Operator, ctx *operator.Context, b operator.Barrier, sink *storage.Sink) (metadata.Subtask, error) {
	st := metadata.Subtask{Index: s.index}
	snap, err := operator.Take(o, ctx, b)
	if err != nil {
		return st, err
	}
	st.Lists = snap.Lists
	for _, k := range snap.Keyed {
		h, err := k.Write(s.j.ctx, sink)
		if err != nil {
			return st, err
		}
		st.Keyed = append(st.Keyed, h)
	}
	return st, nil
}

// complete tells everybody that a checkpoint is complete, and waits for commits.
func (j *engine) complete(id int64) error {
	for _, e := range j.enumerators {
		e.e.CheckpointComplete(id)
	}
	for _, s := range j.subtasks {
		j.at = s
		for _, o := range s.ops {
			if err := o.CheckpointComplete(id); err != nil {
				return j.fail(err)
			}
		}
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if _, err := j.mails(); err != nil {
			return j.fail(err)
		}
		if !slices.ContainsFunc(j.subtasks, func(s *subtask) bool {
			return slices.ContainsFunc(s.ops, func(o operator.Operator) bool { return !o.Drained() })
		}) {
			return nil
		}
		select {
		case <-j.mail.wake:
		case <-deadline.C:
			return j.fail(fmt.Errorf("the commits of checkpoint %d did not end within %v", id, patience))
		}
	}
}

// stop ends everything that runs.
func (j *engine) stop() error {
	if !j.running {
		return nil
	}
	j.running = false
	var errs []error
	for _, s := range j.subtasks {
		errs = append(errs, s.close())
	}
	for _, e := range j.enumerators {
		e.cancel()
		errs = append(errs, e.e.Close())
	}
	j.cancel()
	errs = append(errs, j.net.Close())
	j.subtasks, j.enumerators = nil, nil
	_, _ = j.mail.take() // of those that are gone
	return errors.Join(errs...)
}

// enumerator is a source's half that assigns splits, with what it may do. It runs on the test's goroutine.
type enumerator struct {
	j      *engine
	id     graph.OperatorID
	v      *graph.Vertex
	e      connector.Enumerator
	ctx    context.Context //nolint:containedctx // its life
	cancel context.CancelFunc
	up     []int
}

func (j *engine) openEnumerators(c *metadata.Checkpoint) error {
	for _, s := range j.subtasks {
		if s.source == nil || s.index > 0 {
			continue
		}
		n := j.prog.Heads[s.vertex.ID]
		half, ok := n.Node.Coordinator.(operator.Coordinator)
		if !ok {
			continue
		}
		var restored []byte
		if c != nil {
			restored = c.Coordinators[n.ID]
		}
		ctx, cancel := context.WithCancel(j.ctx)
		e := &enumerator{j: j, id: n.ID, v: s.vertex, ctx: ctx, cancel: cancel}
		var err error
		if e.e, err = half.Enumerator(e, restored); err != nil || e.e == nil {
			e.cancel()
			if err != nil {
				return j.fail(err)
			}
			continue
		}
		j.enumerators = append(j.enumerators, e)
		if err := e.e.Start(e.ctx); err != nil {
			return j.fail(err)
		}
		for i := range s.vertex.Parallelism {
			e.up = append(e.up, i)
			if half.Alignment() != nil { // tests say what comes when: no source waits for another
				free := operator.MaxWatermark
				e.post(i, operator.SourceEvent{Allowed: &free})
			}
			e.e.AddReader(i)
		}
	}
	return nil
}

func (j *engine) toEnumerator(op graph.OperatorID, subtask int, payload []byte) error {
	var ev operator.SourceEvent
	if err := json.Unmarshal(payload, &ev); err != nil {
		return err
	}
	for _, e := range j.enumerators {
		if e.id != op {
			continue
		}
		if ev.Request {
			e.e.HandleSplitRequest(subtask)
		}
		if h, ok := e.e.(connector.EventEnumerator); ok && ev.Custom != nil {
			h.HandleEvent(subtask, ev.Custom)
		}
	}
	return nil
}

func (e *enumerator) post(subtask int, ev operator.SourceEvent) {
	b, err := json.Marshal(ev)
	if err != nil {
		e.Fail(err)
		return
	}
	run := e.j.runs
	e.j.mail.post(func() error {
		if e.j.runs != run {
			return nil
		}
		for _, s := range e.j.subtasks {
			if s.vertex.ID == e.v.ID && s.index == subtask {
				return s.source.HandleEvent(b)
			}
		}
		return fmt.Errorf("there is no reader %d of %s", subtask, e.v.Name)
	})
}

func (e *enumerator) Parallelism() int { return e.v.Parallelism }
func (e *enumerator) Readers() []int   { return slices.Clone(e.up) }
func (e *enumerator) Assign(subtask int, splits ...connector.Split) {
	e.post(subtask, operator.SourceEvent{Assign: splits})
}
func (e *enumerator) NoMoreSplits(subtask int) {
	e.post(subtask, operator.SourceEvent{NoMoreSplits: true})
}

func (e *enumerator) SendEvent(subtask int, payload []byte) {
	e.post(subtask, operator.SourceEvent{Custom: payload})
}

// Async runs the work at once, and once.
func (e *enumerator) Async(_ time.Duration, work func(context.Context) (any, error), done func(any, error)) {
	run := e.j.runs
	e.j.mail.post(func() error {
		if e.j.runs == run {
			done(work(e.ctx))
		}
		return nil
	})
}
func (e *enumerator) Fail(err error)         { e.j.mail.fail(err) }
func (e *enumerator) Files() *fs.Registry    { return e.j.reg }
func (e *enumerator) Logger() zerolog.Logger { return e.j.log }
