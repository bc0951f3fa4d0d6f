package task

import (
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/task/barrier"
)

// unaligned is what a task needs for barriers that overtake: see the package barrier for when a checkpoint is started, and underway.go for
// what goes into it. It belongs to the task's goroutine. All methods work, and do nothing, on nil.
//
// Such a barrier must find the task between two records, so that the outputs have soft bounds (network.Soft), readers look up from a buffer
// when t.mail.look is set, and a source emits few records at a time under backpressure (pace.go).
//
// With a timeout barriers begin as aligned ones. When it is over, each task turns those that wait: the producer in its outputs, the consumer
// those that have arrived; and an alignment that goes on is ended.
type unaligned struct {
	t       *Task
	timeout time.Duration // execution.checkpointing.aligned-checkpoint-timeout
	under   *underway     // of the checkpoint that is being taken and not complete; nil: none
	since   int64         // bytesIn at the first barrier of the checkpoint that is being aligned
	armed   int64         // the checkpoint whose timeout is set, or over
	timer   *time.Timer

	// Of the barrier that is being handled.
	gate *gate
	item *network.Item
}

func newUnaligned(t *Task) *unaligned {
	if t.d.Batch || !config.UnalignedCheckpoints(t.env.Config) {
		return nil
	}
	return &unaligned{t: t, timeout: config.AlignedTimeout.Value(t.env.Config), armed: -1}
}

func (u *unaligned) close() {
	if u != nil && u.timer != nil {
		u.timer.Stop()
	}
}

// soft are the bounds of outputs.
func (u *unaligned) soft() network.Soft {
	t := u.t
	return network.Soft{
		Overdraft: config.OverdraftBuffers.Value(t.env.Config),
		Filled:    func() { t.mail.look.Store(true) },
		Room:      t.mail.notify,
		Left:      func(checkpoint int64) { t.Post(func() error { return u.left(checkpoint) }) },
	}
}

// room is how many bytes an output takes above its bounds.
func (u *unaligned) room() int64 {
	return int64(config.OverdraftBuffers.Value(u.t.env.Config)) * int64(config.NetworkBufferSize.Value(u.t.env.Config))
}

// gateOptions are the options of gates.
func (u *unaligned) gateOptions() network.GateOptions {
	if u == nil {
		return network.GateOptions{}
	}
	t := u.t
	return network.GateOptions{Attention: t.mail.interrupt, Announce: func(ev network.Event) {
		t.Post(func() error {
			u.arm(ev.Checkpoint, ev.Timestamp)
			return nil
		})
	}}
}

// full reports whether an output is full, so that the task waits.
func (t *Task) full() bool {
	if t.unaligned == nil {
		return false
	}
	for _, p := range t.parts {
		if p.Full() {
			return true
		}
	}
	return false
}

// waitForRoom waits until no output is full, or a mail or a barrier has come. Timers wait too: what they emit would have no room.
func (t *Task) waitForRoom() error {
	t.publish()
	if in, ok := t.input.(*gateInput); ok {
		if any, err := in.urgent(); any || err != nil {
			return err
		}
	}
	if t.mail.pending.Load() != 0 {
		return nil
	}
	p := t.parts[0] // the metric is the sum over all
	p.Backpressured(true)
	select {
	case <-t.mail.wake:
	case <-t.ctx.Done():
	}
	p.Backpressured(false)
	return nil
}

// deadline is when the barriers of a checkpoint overtake.
func (u *unaligned) deadline(timestamp int64) time.Time {
	return time.UnixMilli(timestamp).Add(u.timeout)
}

// arm sets the timeout of a checkpoint, whose barriers begin as aligned ones. A barrier that arrives after it is turned at once.
func (u *unaligned) arm(checkpoint, timestamp int64) {
	left := time.Until(u.deadline(timestamp))
	if checkpoint < u.armed || checkpoint == u.armed && left > 0 {
		return
	}
	u.close()
	u.armed = checkpoint
	u.timer = time.AfterFunc(left, func() { u.t.Post(func() error { return u.expired(checkpoint) }) })
}

// expired is the end of a checkpoint's timeout.
func (u *unaligned) expired(checkpoint int64) error {
	t := u.t
	if in, ok := t.input.(*gateInput); ok {
		for _, g := range in.gates {
			g.g.Hasten(checkpoint)
		}
		if err := t.apply(t.aligner.OnTimeout(checkpoint, time.Now())); err != nil {
			return err
		}
	}
	if w := u.under; w != nil && w.id == checkpoint && w.outputs > 0 {
		for i, p := range t.parts {
			w.output(i, p.Hasten(checkpoint))
		}
		w.outputs = 0
		u.settle()
	}
	return nil
}

// left says that a barrier that could turn has left an output in its place.
func (u *unaligned) left(checkpoint int64) error {
	if w := u.under; w != nil && w.id == checkpoint && w.outputs > 0 {
		w.outputs--
		u.settle()
	}
	return nil
}

// onBarrier takes a barrier that came out of a gate.
func (u *unaligned) onBarrier(g *gate, item network.Item, b barrier.Barrier) error {
	t, channel := u.t, g.first+item.Channel
	if item.Event.Options&network.MayTurn != 0 {
		u.arm(b.ID, b.Timestamp)
	}
	if w := u.under; w != nil && w.id == b.ID && w.inputs && t.aligner.Open(channel) {
		w.overtaken(g, item)
	}
	if id, _, pending := t.aligner.Pending(); !pending || id < b.ID {
		u.since = t.input.bytesIn()
	}
	u.gate, u.item = g, &item
	err := t.apply(t.aligner.OnBarrier(channel, b, time.Now()))
	u.gate, u.item = nil, nil
	return err
}

// record puts data that was polled into the checkpoint, if it was under way.
func (u *unaligned) record(g *gate, item network.Item) {
	if u == nil || u.under == nil || !u.under.inputs || !u.t.aligner.Open(g.first+item.Channel) {
		return
	}
	u.under.input(g, item, item.Data)
}

// cut says that the last barrier of an unaligned checkpoint has come.
func (u *unaligned) cut(alignment time.Duration) {
	if w := u.under; w != nil && w.inputs {
		w.inputs, w.alignment, w.processed = false, alignment, u.t.input.bytesIn()-u.since
		u.settle()
	}
}

// abort gives up a checkpoint that was started and is not complete.
func (u *unaligned) abort(checkpoint int64) {
	if u != nil && u.under != nil && u.under.id == checkpoint {
		u.under = nil
		u.t.snapshots.abort(checkpoint)
	}
}

// settle lets the checkpoint be written when nothing more can come.
func (u *unaligned) settle() {
	if w := u.under; !w.inputs && w.outputs == 0 {
		u.under = nil
		close(w.done)
	}
}

// passOn sends the barrier on, and begins to gather what is under way; nil when the checkpoint needs none of that.
func (t *Task) passOn(b operator.Barrier, ev network.Event, started bool) (*underway, error) {
	u := t.unaligned
	if u == nil || b.Savepoint {
		return nil, t.broadcast(ev)
	}
	if u.under != nil { // of a checkpoint before, which nobody waits for any more
		u.abort(u.under.id)
	}
	w := newUnderway(b.ID, t)
	if started {
		w.unaligned, w.inputs = true, true
		in := t.input.(*gateInput)
		if h := in.held; h.g != nil && (t.aligner.Open(h.g.first+h.item.Channel) || u.gate == h.g && u.item.Channel == h.item.Channel) {
			w.input(h.g, h.item, h.rest)
		}
		if u.gate != nil {
			w.overtaken(u.gate, *u.item)
		}
	} else if t.aligner != nil {
		w.processed = t.input.bytesIn() - u.since
	}
	overtake := started || !time.Now().Before(u.deadline(b.Timestamp))
	for i, p := range t.parts {
		if i >= len(t.d.Overtakes) || !t.d.Overtakes[i] {
			if err := p.Broadcast(ev); err != nil {
				return nil, err
			}
			continue
		}
		if !overtake {
			turn := ev
			turn.Options |= network.MayTurn
			w.outputs += p.Channels()
			if err := p.Broadcast(turn); err != nil {
				return nil, err
			}
			continue
		}
		w.unaligned = true
		waited, err := p.Overtake(ev)
		if err != nil {
			return nil, err
		}
		w.output(i, waited)
	}
	if w.outputs > 0 {
		u.arm(b.ID, b.Timestamp)
	}
	u.under = w
	u.settle()
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
