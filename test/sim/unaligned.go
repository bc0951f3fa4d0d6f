package sim

import (
	"context"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/task/barrier"
	"github.com/thalweg/thalweg/state"
)

// Barriers that overtake, as in runtime/task/unaligned.go and underway.go.

// underway is what an unaligned checkpoint finds under way at a task.
type underway struct {
	storage.UnderWay
	t  *Task
	id int64

	inputs  bool // barriers of some inputs are missing
	outputs int  // channels of outputs in which the barrier may turn
	done    bool // nothing more can come
}

func (w *underway) add(at storage.Place, data []byte) {
	if len(data) > 0 {
		w.Add(at, data)
		w.t.w.sometimes("records were under way in a checkpoint")
	}
}

func (w *underway) input(c *channel, item network.Item) {
	w.add(storage.Place{Sent: true, Index: c.index, Channel: item.Channel, Rank: item.Restored}, item.Data)
	if item.Restored > 0 {
		w.t.w.sometimes("records that were restored were still under way in the next checkpoint")
	}
}

func (w *underway) overtaken(c *channel, item *network.Item) {
	for _, o := range item.Overtaken {
		w.input(c, o)
	}
}

func (w *underway) output(index int, waited [][]byte) {
	for channel, data := range waited {
		w.add(storage.Place{Index: index, Channel: channel}, data)
	}
}

// write stores all of it in one file, or in the acknowledgement.
func (w *underway) write(ctx context.Context, sink state.Sink) ([]metadata.InFlight, error) {
	if w == nil {
		return nil, nil
	}
	if w.Empty() {
		return nil, ctx.Err()
	}
	out, _, err := w.Write(ctx, sink, w.t.typeName)
	return out, err
}

func (t *Task) typeName(input bool, index int) string {
	if input {
		return t.inputType(index).Name()
	}
	return t.outTypes[index].Name()
}

func (t *Task) inputType(index int) operator.Type {
	return t.d.head.Node.In[index].Type().(operator.Type)
}

// overtakes reports whether barriers may overtake in this run.
func (t *Task) overtakes() bool { return t.w.plan.Overtake >= 0 }

// deadline is when the barriers of a checkpoint overtake.
func (t *Task) deadline(timestamp int64) int64 {
	return timestamp + config.AlignedTimeout.Value(t.w.conf).Milliseconds()
}

// arm sets the timeout of a checkpoint whose barriers begin as aligned ones.
func (t *Task) arm(checkpoint, timestamp int64) {
	at := t.deadline(timestamp)
	if checkpoint < t.armed || checkpoint == t.armed && at > t.w.now {
		return
	}
	t.armed = checkpoint
	t.timers.add(at, func() error {
		if t.armed != checkpoint {
			return nil
		}
		return t.expired(checkpoint)
	})
}

func (t *Task) expired(checkpoint int64) error {
	if t.aligner != nil {
		for _, c := range t.channels {
			c.gate.Hasten(checkpoint)
			c.ready = true
		}
		if err := t.apply(t.aligner.OnTimeout(checkpoint, t.w.time())); err != nil {
			return err
		}
	}
	if w := t.under; w != nil && w.id == checkpoint && w.outputs > 0 {
		for i, p := range t.parts {
			w.output(i, p.Hasten(checkpoint))
		}
		w.outputs = 0
		t.w.sometimes("barriers that waited were turned into ones that overtake")
		t.settle()
	}
	return nil
}

// soft are the bounds of outputs, which nothing fills here.
func (t *Task) soft() network.Soft {
	return network.Soft{Overdraft: 1 << 30, Filled: func() {}, Room: func() {}, Left: func(checkpoint int64) {
		t.inbox = append(t.inbox, func() error {
			if w := t.under; w != nil && w.id == checkpoint && w.outputs > 0 {
				w.outputs--
				t.settle()
			}
			return nil
		})
	}}
}

// settle lets the checkpoint be written when nothing more can come.
func (t *Task) settle() {
	if w := t.under; w != nil && !w.inputs && w.outputs == 0 {
		w.done, t.under = true, nil
	}
}

// giveUp ends a checkpoint that was started and is not complete.
func (t *Task) giveUp(checkpoint int64) {
	if t.under != nil && t.under.id == checkpoint {
		t.under = nil
		t.abortUpload(checkpoint)
	}
}

// onBarrier takes a barrier that came out of a gate.
func (t *Task) onBarrier(c *channel, item network.Item) error {
	ev, ch := &item.Event, c.base+item.Channel
	b := barrier.Barrier{ID: ev.Checkpoint, Timestamp: ev.Timestamp, Extra: ev.Extra, Unaligned: ev.Options&network.Urgent != 0}
	if ev.Options&network.MayTurn != 0 {
		t.arm(b.ID, b.Timestamp)
	}
	if w := t.under; w != nil && w.id == b.ID && w.inputs && t.aligner.Open(ch) {
		w.overtaken(c, &item)
	}
	t.from, t.item = c, &item
	err := t.apply(t.aligner.OnBarrier(ch, b, t.w.time()))
	t.from, t.item = nil, nil
	return err
}

// record puts data that was polled into the checkpoint, if it was under way.
func (t *Task) record(c *channel, item network.Item) {
	if w := t.under; w != nil && w.inputs && t.aligner.Open(c.base+item.Channel) {
		w.input(c, item)
	}
}

// passOn sends the barrier on, and begins to gather what is under way.
func (t *Task) passOn(b operator.Barrier, ev network.Event, started bool) (*underway, error) {
	if !t.overtakes() || b.Savepoint {
		return nil, t.broadcast(ev)
	}
	if t.under != nil {
		t.giveUp(t.under.id)
	}
	w := &underway{t: t, id: b.ID, inputs: started}
	if started && t.from != nil {
		w.overtaken(t.from, t.item)
	}
	overtake := started || t.w.now >= t.deadline(b.Timestamp)
	for i, p := range t.parts {
		switch to := t.d.graph.Vertex(t.d.vertex.Outputs[i].To); {
		case !to.Overtakes():
			if err := p.Broadcast(ev); err != nil {
				return nil, err
			}
		case !overtake:
			turn := ev
			turn.Options |= network.MayTurn
			w.outputs += p.Channels()
			if err := p.Broadcast(turn); err != nil {
				return nil, err
			}
		default:
			waited, err := p.Overtake(ev)
			if err != nil {
				return nil, err
			}
			w.output(i, waited)
		}
	}
	if w.outputs > 0 {
		t.arm(b.ID, b.Timestamp)
	}
	t.under = w
	t.settle()
	return w, nil
}

func (t *Task) broadcast(ev network.Event) error {
	for _, p := range t.parts {
		if err := p.Broadcast(ev); err != nil {
			return err
		}
	}
	return nil
}

// restoredInput is what was under way to an input, as far as it is for this subtask.
func (t *Task) restoredInput(input int) (out []network.Restored, err error) {
	for i := range t.d.restore.InFlight {
		f := &t.d.restore.InFlight[i]
		if !f.Sent || f.Index != input {
			continue
		}
		edge, typ := t.d.head.Node.In[input], t.inputType(input)
		if f.Type != typ.Name() {
			t.w.violate("%s: records of type %s are restored into an input of %s", t, f.Type, typ.Name())
		}
		data, err := storage.ReadSegment(context.Background(), t.w.reg, &f.Segment)
		if err != nil {
			return nil, err
		}
		measure := typ.Restored(edge.Keyer, t.d.parallelism)
		own := state.RangeOf(t.d.vertex.MaxParallelism, t.d.parallelism, t.d.id.Subtask)
		wants := func(uint32) bool { return true }
		if f.Sift == metadata.SiftKeys {
			t.w.sometimes("records under way were dealt out to another parallelism")
			wants = func(h uint32) bool { return own.Contains(int(state.GroupOf(h, t.d.vertex.MaxParallelism))) }
		}
		if data, err = operator.Sift(data, measure, wants, -1); err != nil {
			t.w.violate("%s: restore what was under way: %v", t, err)
			return nil, err
		}
		if len(data) > 0 {
			t.w.sometimes("records under way were restored")
			out = append(out, network.Restored{Channel: f.Channel, Data: data})
		}
	}
	return out, nil
}

// overtaking sets what a run with unaligned checkpoints has.
func overtaking(conf config.Configuration, timeout int) {
	if timeout >= 0 {
		config.Unaligned.Set(conf, true)
		config.AlignedTimeout.Set(conf, time.Duration(timeout)*time.Millisecond)
	}
}
