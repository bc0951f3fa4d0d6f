package task

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/state"
)

// underway gathers what an unaligned checkpoint finds under way at a task, by channel and in order: of an input what is left of the buffer
// that the task has in hands, then what it reads until the channel's barrier, then what that barrier overtook; of an output what waited when
// the barrier overtook it. Data is copied. It belongs to the task's goroutine until done is closed, and to the checkpoint's writer after.
type underway struct {
	storage.UnderWay
	id   int64
	task *Task

	inputs    bool // barriers of some inputs are missing
	outputs   int  // channels of outputs in which the barrier may turn
	done      chan struct{}
	unaligned bool
	alignment time.Duration // of an unaligned one, from the first barrier to the last
	processed int64         // bytes read between the first barrier and the last
}

func newUnderway(id int64, t *Task) *underway {
	return &underway{id: id, task: t, done: make(chan struct{})}
}

// input adds data of an input, the item's or what is left of it.
func (w *underway) input(g *gate, item network.Item, data []byte) {
	w.Add(storage.Place{Sent: true, Index: g.index, Channel: item.Channel, Rank: item.Restored}, data)
}

// output adds what waited in an output, by channel.
func (w *underway) output(index int, waited [][]byte) {
	for channel, data := range waited {
		w.Add(storage.Place{Index: index, Channel: channel}, data)
	}
}

// overtaken adds what a barrier overtook in its gate.
func (w *underway) overtaken(g *gate, item network.Item) {
	for _, o := range item.Overtaken {
		w.input(g, o, o.Data)
	}
}

// write waits until nothing more can come, and writes all of it into one file, or into the acknowledgement when it is small.
func (w *underway) write(ctx context.Context, sink state.Sink, ack *pb.CheckpointAck) ([]metadata.InFlight, error) {
	if w == nil {
		return nil, nil
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w.alignment > 0 {
		ack.AlignmentMs = w.alignment.Milliseconds()
	}
	ack.Processed, ack.Unaligned = w.processed, w.unaligned
	out, size, err := w.Write(ctx, sink, w.task.typeName)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	ack.Size += size
	ack.NewSize += size
	ack.Persisted = size
	return out, nil
}

// typeName names the records of an input or an output.
func (t *Task) typeName(input bool, index int) string {
	if input {
		return t.d.Head.Node.In[index].Type().(operator.Type).Name()
	}
	return t.outTypes[index].Name()
}

// restoredInput is what was under way to an input in the checkpoint that the task is restored from, as far as it is for this subtask. It is
// read before anything else.
func (t *Task) restoredInput(input int) (out []network.Restored, err error) {
	var typ operator.Type
	for i := range t.d.Restore.InFlight {
		f := &t.d.Restore.InFlight[i]
		if !f.Sent || f.Index != input {
			continue
		}
		edge := t.d.Head.Node.In[input]
		if typ == nil {
			typ = edge.Type().(operator.Type)
		}
		if f.Type != typ.Name() {
			return nil, operator.Lasting("task: restore input %d of %s: records of type %s are under way in the checkpoint, which is unaligned, and the job reads %s there; "+
				"let the job that wrote it take a savepoint, which holds no such records", input, t.d.Vertex.Name, f.Type, typ.Name())
		}
		data, err := storage.ReadSegment(t.ctx, t.env.FS, &f.Segment)
		if err == nil {
			data, err = t.sift(f.Sift, typ, edge, data)
		}
		if err != nil {
			return nil, operator.Unreadable(fmt.Errorf("task: restore input %d of %s: %w", input, t.d.Vertex.Name, err))
		}
		if len(data) > 0 {
			out = append(out, network.Restored{Channel: f.Channel, Data: data})
		}
	}
	return out, nil
}

// sift takes this subtask's records out of restored data.
func (t *Task) sift(s metadata.Sift, typ operator.Type, edge graph.Edge, data []byte) ([]byte, error) {
	measure := typ.Restored(edge.Keyer, t.d.Parallelism)
	switch s {
	case metadata.SiftKeys:
		own := state.RangeOf(t.d.MaxParallelism, t.d.Parallelism, t.d.Subtask)
		return operator.Sift(data, measure, func(h uint32) bool { return own.Contains(int(state.GroupOf(h, t.d.MaxParallelism))) }, -1)
	case metadata.SiftChosen:
		return operator.Sift(data, measure, nil, t.d.Subtask)
	}
	if edge.Partitioner == graph.Hash {
		return operator.Sift(data, measure, func(uint32) bool { return true }, -1)
	}
	return operator.Sift(data, measure, nil, -1)
}
