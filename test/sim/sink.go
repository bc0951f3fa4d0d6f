package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/connector"
)

// brokerSink writes to the simulated broker in transactions, by the rules of connector/kafka (recover.go there): the committer commits what
// was restored and takes its ids over; the writer takes over every other id that falls to its subtask; ids of restored committables of
// other subtasks are left alone.
type brokerSink struct {
	b      *Broker
	prefix string // of its transactional ids
}

type committable struct {
	ID    string `json:"id"`
	Epoch int    `json:"epoch"`
}

func (c committable) encode() []byte {
	b, _ := json.Marshal(c) // a string and a number
	return b
}

func decodeCommittables(items [][]byte) ([]committable, error) {
	var all []committable
	for _, item := range items {
		var c committable
		if err := json.Unmarshal(item, &c); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (s *brokerSink) idOf(subtask, slot int) string {
	return fmt.Sprintf("%s%d-%d", s.prefix, subtask, slot)
}

// Committer implements connector.CommittingSink.
func (s *brokerSink) Committer(ctx connector.SinkContext) (connector.Committer, error) {
	return &brokerCommitter{b: s.b, t: s.b.w.current}, nil
}

type brokerCommitter struct {
	b *Broker
	t *Task
}

// Commit runs on the simulation's goroutine for what was restored, else on the operator's own, which waits for the simulation's answer.
func (c *brokerCommitter) Commit(ctx context.Context, items [][]byte, retry bool) error {
	all, err := decodeCommittables(items)
	if err != nil {
		return err
	}
	if !retry {
		return c.t.commits.ask(ctx, all)
	}
	for _, cm := range all {
		if c.b.w.strike("restore-commit") == answerLost { // it fails before or after
			return fmt.Errorf("commit %s: %w", cm.ID, errUnavailable)
		}
		if err := c.b.commit(cm.ID, cm.Epoch); err != nil {
			return err
		}
		c.b.init(cm.ID)
		if c.b.w.strike("restore-commit") == answerLost {
			c.b.w.sometimes("a restored commit was done, and the task failed before it could know")
			return fmt.Errorf("commit %s: %w", cm.ID, errUnavailable)
		}
	}
	return nil
}

func (c *brokerCommitter) Close() error { return nil }

// Writer implements connector.Sink.
func (s *brokerSink) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[Out], error) {
	restored, err := decodeCommittables(ctx.AllCommittables)
	if err != nil {
		return nil, err
	}
	w := &brokerWriter{s: s, b: s.b, t: s.b.w.current, subtask: ctx.Subtask, slots: map[string]int{}, waiting: map[int64]string{}}
	for _, id := range s.b.ids(s.prefix) {
		var sub, slot int
		if _, err := fmt.Sscanf(id, s.prefix+"%d-%d", &sub, &slot); err != nil {
			return nil, err
		}
		if sub%ctx.Parallelism != ctx.Subtask || slices.ContainsFunc(restored, func(c committable) bool { return c.ID == id }) {
			continue
		}
		s.b.init(id)
	}
	return w, nil
}

type brokerWriter struct {
	s       *brokerSink
	b       *Broker
	t       *Task
	subtask int
	slots   map[string]int   // epoch of each id that is ours and free, by id
	made    int              // ids of our own
	cur     *txn             // being written
	waiting map[int64]string // id by checkpoint
}

func (w *brokerWriter) take() (id string, epoch int) {
	for _, id := range w.b.ids(w.s.prefix) { // sorted: the same each time
		if e, ok := w.slots[id]; ok {
			delete(w.slots, id)
			return id, e
		}
	}
	for {
		id := w.s.idOf(w.subtask, w.made)
		w.made++
		if t := w.b.open[id]; t != nil && t.prepared != 0 {
			continue // a restored one that its committer has not come to yet
		}
		return id, w.b.init(id)
	}
}

func (w *brokerWriter) Write(o Out, _ int64) error {
	if w.cur == nil {
		id, epoch := w.take()
		t, err := w.b.begin(id, epoch)
		if err != nil {
			return err
		}
		w.cur = t
	}
	return w.b.write(w.cur, o)
}

func (w *brokerWriter) Flush(context.Context, bool) error { return nil }

// PrepareCommit implements connector.CommittingWriter.
func (w *brokerWriter) PrepareCommit(checkpoint int64) ([][]byte, error) {
	if w.cur == nil {
		return nil, nil
	}
	if w.cur.state != txnOpen {
		return nil, fmt.Errorf("prepare %s: %w", w.cur, errFenced)
	}
	c := committable{w.cur.id, w.cur.epoch}
	w.cur.prepared = checkpoint
	w.waiting[checkpoint] = w.cur.id
	w.cur = nil
	return [][]byte{c.encode()}, nil
}

// Committed implements connector.CommittingWriter.
func (w *brokerWriter) Committed(checkpoint int64) {
	if id, ok := w.waiting[checkpoint]; ok {
		delete(w.waiting, checkpoint)
		w.slots[id] = w.b.epoch[id]
	}
}

func (w *brokerWriter) Snapshot(int64) ([][]byte, error) { return nil, nil }

// Close aborts what is open, unless the process died.
func (w *brokerWriter) Close() error {
	if w.cur != nil && w.cur.state == txnOpen && !w.t.killed {
		w.b.end(w.cur, txnAborted)
		w.b.epoch[w.cur.id]++
	}
	return nil
}
