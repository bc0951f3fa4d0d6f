package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
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
	id     int64
	task   *Task
	places map[place]int // in pieces
	pieces []piece

	inputs    bool // barriers of some inputs are missing
	outputs   int  // channels of outputs in which the barrier may turn
	done      chan struct{}
	unaligned bool
	alignment time.Duration // of an unaligned one, from the first barrier to the last
	processed int64         // bytes read between the first barrier and the last
}

type place struct {
	sent           bool
	index, channel int
	rank           int // metadata.Part.Rank
}

type piece struct {
	place
	data []byte
}

func newUnderway(id int64, t *Task) *underway {
	return &underway{id: id, task: t, places: map[place]int{}, done: make(chan struct{})}
}

// input adds data of an input, the item's or what is left of it.
func (w *underway) input(g *gate, item network.Item, data []byte) {
	w.add(place{true, g.index, item.Channel, item.Restored}, data)
}

// output adds what waited in an output, by channel.
func (w *underway) output(index int, waited [][]byte) {
	for channel, data := range waited {
		w.add(place{index: index, channel: channel}, data)
	}
}

func (w *underway) add(at place, data []byte) {
	if len(data) == 0 {
		return
	}
	i, ok := w.places[at]
	if !ok {
		i = len(w.pieces)
		w.places[at] = i
		w.pieces = append(w.pieces, piece{place: at})
	}
	w.pieces[i].data = append(w.pieces[i].data, data...)
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
	if len(w.pieces) == 0 {
		return nil, nil
	}
	file, err := sink.Create(ctx, state.Exclusive)
	if err != nil {
		return nil, err
	}
	for _, p := range w.pieces {
		if _, err := file.Write(p.data); err != nil {
			file.Abort()
			return nil, err
		}
	}
	ref, err := file.Commit()
	if err != nil {
		return nil, err
	}
	out := make([]metadata.InFlight, len(w.pieces))
	at := int64(0)
	for i, p := range w.pieces {
		n := int64(len(p.data))
		s := metadata.Segment{File: ref, Offset: at, Length: n, CRC32C: crc32.Checksum(p.data, castagnoli)}
		if ref.Name == "" { // each holds its own
			s.File = state.FileRef{Inline: p.data, Size: n, CRC32C: s.CRC32C}
			s.Offset = 0
		}
		out[i] = metadata.InFlight{Sent: p.sent, Rank: p.rank, Index: p.index, Channel: p.channel, Type: w.task.typeName(p.sent, p.index), Segment: s}
		at += n
	}
	ack.Size += at
	ack.NewSize += at
	ack.Persisted = at
	return out, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
		data, err := t.readSegment(&f.Segment)
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

func (t *Task) readSegment(s *metadata.Segment) ([]byte, error) {
	return readSegment(t.ctx, t.env.FS, s)
}

// readSegment takes no more memory than the file has bytes, whatever the segment says. A file that is not what it should be is a
// storage.StateFileError, as that of other state.
func readSegment(ctx context.Context, reg *fs.Registry, s *metadata.Segment) (data []byte, err error) {
	if s.File.Name == "" && s.Offset == 0 && s.Length == int64(len(s.File.Inline)) {
		data = s.File.Inline
	} else {
		if s.Offset < 0 || s.Length < 0 {
			return nil, &storage.StateFileError{URI: s.File.Path(), Err: fmt.Errorf("%w: %d bytes at byte %d", storage.ErrDamaged, s.Length, s.Offset)}
		}
		r, err := storage.NewSource(reg).Open(ctx, s.File)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(io.NewSectionReader(r, s.Offset, s.Length))
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		data = b.Bytes()
	}
	if got := crc32.Checksum(data, castagnoli); int64(len(data)) != s.Length || got != s.CRC32C {
		uri := s.File.Path()
		if uri == "" {
			uri = "in the checkpoint's metadata"
		}
		return nil, &storage.StateFileError{URI: uri, Err: fmt.Errorf("%w: %d bytes at byte %d with checksum %08x, want %d with %08x", storage.ErrDamaged, len(data), s.Offset, got, s.Length, s.CRC32C)}
	}
	return data, nil
}
