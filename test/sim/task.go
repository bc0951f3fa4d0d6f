package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/task"
	"github.com/thalweg/thalweg/runtime/task/barrier"
)

// deployment says what a task runs, as the JobMaster's message does.
type deployment struct {
	id          graph.ExecutionID
	slot        scheduler.Slot
	head        *graph.ChainNode
	vertex      *graph.Vertex
	graph       *graph.JobGraph
	parallelism int
	inputs      [][]network.Source
	restore     metadata.Task
	checkpoint  int64 // restored
}

// channel is an input gate of a task. Each channel has one of its own, so that the scheduler chooses which one is read; where barriers may
// overtake there is one for each input, since what was under way to it is read before all else of the input.
type channel struct {
	gate  *network.Gate
	index int  // of the vertex's inputs
	base  int  // its first channel, in the reader and in the alignment
	ready bool // may have something
}

// Task is a model of runtime/task.Task: its loop is the scheduler's choice among its channels, mails, timers and uploads.
type Task struct {
	w        *World
	worker   *worker
	d        deployment
	ctx      context.Context //nolint:containedctx // the task's life
	cancel   context.CancelFunc
	ops      []operator.Operator
	ctxs     []*operator.Context
	parts    []*network.Partition
	channels []*channel
	reader   operator.Reader
	inputs   int             // channels of all gates
	outTypes []operator.Type // by output
	source   operator.SourceHead
	aligner  *barrier.Aligner
	mark     operator.Marker
	inbox    []func() error // from the JobMaster
	timers   timers
	uploads  []*upload
	tables   []*tables // by operator; nil for those that have none
	commits  commitDesk
	takeover *task.Takeover

	under *underway // of the unaligned checkpoint that is being taken
	armed int64     // the checkpoint whose timeout is set
	from  *channel  // with item, the barrier that is being handled
	item  *network.Item

	opened    bool
	atEnd     int // channels at the end of their data
	endOfData bool
	suspended bool
	finishing bool
	over      bool
	killed    bool // its process died: nothing of it may be seen any more

	mu    sync.Mutex // of what other goroutines hand in
	posts []func() error
	err   error
}

// upload is the asynchronous part of a checkpoint.
type upload struct {
	b      operator.Barrier
	parts  []operator.Snapshot
	tables [][]string // by operator
	under  *underway
	state  []byte          // the report, when the files are written
	ctx    context.Context //nolint:containedctx // its life
	cancel context.CancelFunc
}

func newTask(w *worker, d deployment) *Task {
	t := &Task{w: w.w, worker: w, d: d, takeover: task.NewTakeover(d.checkpoint)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.commits.t = t
	t.commits.cond.L = &t.mu
	return t
}

func (t *Task) String() string {
	return fmt.Sprintf("%s/%d#%d", t.d.vertex.Name, t.d.id.Subtask, t.d.id.Attempt)
}

// enter makes the task the one whose code runs.
func (t *Task) enter() { t.w.current = t }

// run runs a part of the task's work and ends it when that fails.
func (t *Task) run(fn func() error) {
	if t.over {
		return
	}
	t.enter()
	err := fn()
	if err == nil {
		t.commits.settle()
		err = t.drainPosts()
	}
	if err != nil {
		t.fail(err)
		return
	}
	if t.finishing && t.drained() {
		t.finish()
	}
}

// drainPosts runs what operators posted.
func (t *Task) drainPosts() error {
	for {
		t.mu.Lock()
		if t.err != nil {
			defer t.mu.Unlock()
			return t.err
		}
		if len(t.posts) == 0 {
			t.mu.Unlock()
			return nil
		}
		fn := t.posts[0]
		t.posts = t.posts[1:]
		t.mu.Unlock()
		if err := fn(); err != nil {
			return err
		}
	}
}

// open composes the chain, restores its state and commits what was prepared.
func (t *Task) open() error {
	if err := t.compose(); err != nil {
		return err
	}
	for i := len(t.ops) - 1; i >= 0; i-- {
		if err := operator.Open(t.ctx, t.ops[i], t.ctxs[i]); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	t.opened = true
	t.scheduleFlush()
	t.takeover.Moved(pb.TaskState_RUNNING)
	t.worker.report(taskReport{id: t.d.id, state: running})
	return nil
}

func (t *Task) scheduleFlush() {
	every := config.BufferTimeout.Value(t.w.conf).Milliseconds()
	if every <= 0 {
		return
	}
	var again func() error
	again = func() error {
		t.After(every, again)
		return t.flush()
	}
	t.After(every, again)
}

func (t *Task) flush() error {
	for _, p := range t.parts {
		if err := p.FlushAll(); err != nil {
			return err
		}
	}
	return nil
}

// poll reads the source.
func (t *Task) poll(max int) error {
	st, err := t.source.Poll(max)
	if err == nil && st == connector.EndOfInput {
		return t.reachEnd()
	}
	return err
}

// read takes the next item of a channel.
func (t *Task) read(i int) error {
	c := t.channels[i]
	item, ok, err := c.gate.Poll()
	if err != nil {
		return err
	}
	if !ok {
		c.ready = false
		return nil
	}
	if item.Data != nil {
		t.record(c, item)
		_, err = t.reader.Read(c.base+item.Channel, item.Data)
		c.gate.Release(item)
		return err
	}
	switch item.Event.Kind {
	case network.Barrier:
		return t.onBarrier(c, item)
	case network.EndOfData:
		if err := t.reader.End(c.base + item.Channel); err != nil {
			return err
		}
		if t.atEnd++; t.atEnd == t.inputs {
			return t.reachEnd()
		}
		return nil
	case network.EndOfPartition:
		if t.finishing || t.endOfData || t.suspended {
			return t.apply(t.aligner.OnEndOfPartition(c.base+item.Channel, t.w.time()))
		}
		return fmt.Errorf("task: channel %d of %s ended before its data did", i, t.d.vertex.Name)
	}
	return fmt.Errorf("task: unknown event %d", item.Event.Kind)
}

func (t *Task) reachEnd() error {
	if t.endOfData {
		return nil
	}
	if err := operator.EndOfData(t.source, t.ops, t.parts); err != nil {
		return err
	}
	t.endOfData = true
	t.takeover.Moved(pb.TaskState_END_OF_DATA)
	t.worker.report(taskReport{id: t.d.id, state: running, endOfData: true})
	return nil
}

// What the JobMaster's messages do; see runtime/task/checkpoint.go.

func (t *Task) trigger(b operator.Barrier) error {
	if t.source == nil {
		t.decline(b.ID, errors.New("triggered directly, but it has inputs"))
		return nil
	}
	if b.Drain {
		if err := t.reachEnd(); err != nil {
			return err
		}
	}
	return t.checkpoint(b, false)
}

func (t *Task) complete(id int64) error {
	for _, o := range t.tables {
		if o != nil {
			o.track.Completed(id)
		}
	}
	for _, o := range t.ops {
		if err := o.CheckpointComplete(id); err != nil {
			return err
		}
	}
	return nil
}

func (t *Task) aborted(id int64, resume bool) error {
	for _, o := range t.ops {
		o.CheckpointAborted(id)
	}
	for _, o := range t.tables {
		if o != nil {
			o.track.Aborted(id)
		}
	}
	t.giveUp(id)
	if resume && !t.finishing {
		t.suspended = false
		t.w.sometimes("sources went on after a stop-with-savepoint that was aborted")
	}
	if t.aligner != nil {
		return t.apply(t.aligner.OnAbort(id, t.w.time()))
	}
	return nil
}

func (t *Task) event(op graph.OperatorID, payload []byte) error {
	if t.source != nil && t.ctxs[0].ID == op {
		return t.source.HandleEvent(payload)
	}
	return nil
}

func (t *Task) apply(effects []barrier.Effect) error {
	for _, e := range effects {
		switch e.Kind {
		case barrier.Block:
			t.block(e.Channel, true)
		case barrier.Unblock:
			t.block(e.Channel, false)
		case barrier.Cut:
		case barrier.Complete:
			if t.under != nil {
				t.under.inputs = false
				t.settle()
			}
		case barrier.Abort:
			t.giveUp(e.Barrier.ID)
			if e.Reason == barrier.Subsumed {
				t.w.sometimes("a newer barrier ended an alignment")
				t.decline(e.Barrier.ID, errors.New(newerBarrier))
			} else {
				t.w.sometimes("an alignment was aborted")
			}
		case barrier.Start:
			var b operator.Barrier
			if err := json.Unmarshal(e.Barrier.Extra, &b); err != nil {
				return err
			}
			if e.Unaligned {
				t.w.sometimes("a task took a checkpoint unaligned")
			}
			if err := t.checkpoint(b, e.Unaligned); err != nil {
				return err
			}
		default:
			return fmt.Errorf("task: unknown effect %d of the aligner", e.Kind)
		}
	}
	return nil
}

// newerBarrier is why a task declines a checkpoint; nobody should wait for it any more then.
const newerBarrier = "a newer checkpoint's barrier came before the alignment was complete"

func (t *Task) block(channel int, on bool) {
	for _, c := range t.channels {
		if i := channel - c.base; i >= 0 && i < c.gate.Channels() {
			if on {
				c.gate.Block(i)
			} else {
				c.gate.Unblock(i)
				c.ready = true
			}
		}
	}
}

func (t *Task) decline(id int64, err error) {
	t.worker.report(declineReport{id: t.d.id, checkpoint: id, reason: err.Error()})
}

func (t *Task) drained() bool {
	for _, o := range t.ops {
		if !o.Drained() {
			return false
		}
	}
	return len(t.uploads) == 0
}

func (t *Task) finish() {
	for _, p := range t.parts {
		if err := p.Finish(); err != nil && !isConnection(err) {
			t.fail(err)
			return
		}
	}
	t.end(finished, nil)
}

func isConnection(err error) bool {
	var c *network.ConnectionError
	return errors.As(err, &c)
}

func (t *Task) fail(err error) {
	if t.over {
		return
	}
	if isMisfit(err) {
		t.w.violate("%s: %v", t, err)
	}
	f := &failure{message: err.Error(), kind: "error"}
	var fatal interface{ Fatal() bool }
	if isConnection(err) {
		f.kind = "connection"
	}
	if errors.As(err, &fatal) {
		f.fatal = fatal.Fatal()
		t.w.lost = t.w.lost || errors.Is(err, errLost)
	}
	t.w.trace("%s fails: %v", t, err)
	t.end(failed, f)
}

// end closes everything, and reports the last state.
func (t *Task) end(s taskState, f *failure) {
	if t.over {
		return
	}
	t.over = true
	t.enter()
	for _, u := range t.uploads {
		u.cancel()
		t.drop(u)
	}
	t.uploads = nil
	for _, c := range t.channels {
		c.gate.Close() // before the context ends, which would close them on a goroutine
	}
	t.cancel()
	for _, o := range t.ops {
		if o != nil {
			if err := o.Close(); err != nil && !errors.Is(err, context.Canceled) {
				t.w.trace("%s: close: %v", t, err)
			}
		}
	}
	for _, p := range t.parts {
		p.Close()
	}
	delete(t.worker.tasks, t.d.id)
	t.w.changed = true
	if !t.killed {
		t.worker.report(taskReport{id: t.d.id, state: s, failure: f})
	}
}
