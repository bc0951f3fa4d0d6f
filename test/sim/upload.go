package sim

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
)

// checkpoint is the synchronous part: flush, barrier out, freeze.
func (t *Task) checkpoint(b operator.Barrier, unaligned bool) error {
	for _, o := range t.ops {
		if err := o.PrepareBarrier(b); err != nil {
			return err
		}
	}
	extra, err := json.Marshal(b)
	if err != nil {
		return err
	}
	under, err := t.passOn(b, network.Event{Kind: network.Barrier, Checkpoint: b.ID, Timestamp: b.Timestamp, Extra: extra}, unaligned)
	if err != nil {
		return err
	}
	u := &upload{b: b, under: under, tables: make([][]string, len(t.ops))}
	for i, o := range t.ops {
		if s := t.tables[i]; s != nil && !b.Savepoint {
			s.track.Completed(b.Base)
			u.tables[i] = s.freeze(t)
		}
		s, err := operator.Take(o, t.ctxs[i], b)
		if err != nil {
			u.discard()
			return err
		}
		u.parts = append(u.parts, s)
	}
	if b.Suspend {
		t.suspended = true
	}
	u.ctx, u.cancel = context.WithCancel(t.ctx)
	t.uploads = append(t.uploads, u)
	if len(t.uploads) > 1 {
		t.w.sometimes("a task wrote two checkpoints at once")
	}
	return nil
}

func (u *upload) discard() {
	for _, p := range u.parts {
		for _, k := range p.Keyed {
			k.Discard()
		}
	}
}

// abortUpload is at once, when the JobMaster's message comes; the rest of it goes through the mailbox.
func (t *Task) abortUpload(id int64) {
	for _, u := range t.uploads {
		if u.b.ID == id {
			u.cancel()
		}
	}
}

// write lets an upload write its files, or, when it has, acknowledge. What ends in between leaves them behind.
func (t *Task) write(u *upload) {
	t.enter()
	if u.state == nil && u.ctx.Err() == nil {
		err := t.store(u)
		switch {
		case err == nil:
			return
		case t.over:
		default:
			t.w.trace("%s cannot write checkpoint %d", t, u.b.ID)
			t.decline(u.b.ID, err)
		}
	} else if u.ctx.Err() == nil {
		t.worker.report(ackReport{id: t.d.id, checkpoint: u.b.ID, state: u.state})
		t.w.point("uploaded")
	} else {
		t.drop(u)
	}
	t.uploads = slices.DeleteFunc(t.uploads, func(x *upload) bool { return x == u })
	u.cancel()
	t.run(func() error { return nil }) // may have been all that it waited for
}

// drop gives up an upload that was cancelled.
func (t *Task) drop(u *upload) {
	if u.state != nil {
		t.w.sometimes("files were left of a checkpoint that was given up while it was written")
		return
	}
	_ = t.store(u) // which finds its context ended
}

func (t *Task) store(u *upload) error {
	if u.under != nil && !u.under.done {
		u.discard()
		return context.Canceled
	}
	sink := storage.NewSink(t.w.reg, u.b.Exclusive, u.b.Shared, int64(config.MemoryThreshold.Value(t.w.conf)))
	var out metadata.Task
	for i, p := range u.parts {
		st := metadata.Subtask{Index: t.d.id.Subtask, Lists: p.Lists}
		for j, k := range p.Keyed {
			h, err := k.Write(u.ctx, sink)
			if err != nil {
				for _, rest := range p.Keyed[j+1:] {
					rest.Discard()
				}
				(&upload{parts: u.parts[i+1:]}).discard()
				return err
			}
			st.Keyed = append(st.Keyed, h)
		}
		if live := u.tables[i]; live != nil {
			h, err := t.tables[i].write(u.ctx, t, u.b.ID, u.b.Full, live, sink)
			if err != nil {
				(&upload{parts: u.parts[i+1:]}).discard()
				return err
			}
			st.Keyed = append(st.Keyed, h)
		}
		if len(st.Lists) > 0 || len(st.Keyed) > 0 {
			out.Operators = append(out.Operators, metadata.TaskOperator{ID: t.ctxs[i].ID, State: st})
		}
	}
	inFlight, err := u.under.write(u.ctx, sink)
	if err != nil {
		return err
	}
	out.InFlight = inFlight
	u.state, err = metadata.EncodeTask(out)
	return err
}
