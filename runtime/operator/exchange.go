package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/thalweg/thalweg/internal/extsort"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Elements in an exchange buffer, back to back:
//
//	tag 1 byte, then by tag
//	bit 0x01  record with time: int64 little endian
//	bit 0x02  record with key hash: uint32 little endian
//	          then the record in its codec's encoding
//	0x10      watermark: int64 little endian
//	0x11      channel is idle
//	0x12      channel is active
const (
	tagTime      = 0x01
	tagHash      = 0x02
	tagRecordMax = 0x03
	tagWatermark = 0x10
	tagIdle      = 0x11
	tagActive    = 0x12
)

// ErrCorrupt is returned for an exchange buffer that cannot be decoded.
var ErrCorrupt = errors.New("operator: corrupt exchange buffer")

// Type is a record type of the graph, with what is needed to compose chains without knowing it.
type Type interface {
	// Name is the Go type with a hash of its schema.
	Name() string
	// Writer returns a Receiver[T] that encodes into part.
	Writer(part *network.Partition, subpartitions, subtask, maxParallelism int, p graph.Partitioner, keyer any, flushEach bool) (any, error)
	// Reader returns a decoder that feeds dst, a Receiver[T].
	Reader(dst any, channels int) (Reader, error)
	// SortedReader returns a reader that sorts by key; keyer is the edge's.
	SortedReader(dst any, channels int, keyer any, cfg extsort.Config) (SortedReader, error)
	lead(out any, sides []advancer) (any, error)
	// Mute returns a Receiver[T] that passes everything on to out but, while *mute, watermarks and idleness.
	Mute(out any, mute *bool) (any, error)
	// Tee returns a Receiver[T] that sends to all of outs.
	Tee(outs []any) (any, error)
	// Views reports whether decoded values may reference their buffer.
	Views() bool
}

// Reader decodes exchange buffers of one input.
type Reader interface {
	// Read decodes a buffer that arrived on a channel and processes its elements.
	Read(channel int, data []byte) error
	// End marks a channel as ended (end of data).
	End(channel int) error
	// Records is how many records were read.
	Records() int64
	// Watermark is the input's current watermark.
	Watermark() int64
}

// Keyer computes key hashes of records of T; each task makes its own hash function (it holds scratch memory).
type Keyer[T any] interface {
	NewHash() func(v T) uint32
}

type recordType[T any] struct{ codec serde.Codec[T] }

// TypeOf compiles the record type T. The error names the field that cannot be encoded.
func TypeOf[T any]() (Type, error) {
	c, err := serde.For[T]()
	if err != nil {
		return nil, err
	}
	return recordType[T]{c}, nil
}

func (t recordType[T]) Views() bool { return t.codec.Views() }

func (t recordType[T]) Name() string {
	var zero T
	return fmt.Sprintf("%T#%08x", zero, state.Hash32([]byte(fmt.Sprintf("%v", t.codec.Schema()))))
}

func receiver[T any](r any) (Receiver[T], error) {
	if r == nil {
		return discard[T]{}, nil
	}
	t, ok := r.(Receiver[T])
	if !ok {
		var zero T
		return nil, fmt.Errorf("operator: compose: %T does not take %T (a bug: the graph joined unlike types)", r, zero)
	}
	return t, nil
}

func (t recordType[T]) Tee(outs []any) (any, error) {
	switch len(outs) {
	case 0:
		return Receiver[T](discard[T]{}), nil
	case 1:
		return receiver[T](outs[0])
	}
	all := make(tee[T], len(outs))
	for i, o := range outs {
		r, err := receiver[T](o)
		if err != nil {
			return nil, err
		}
		all[i] = r
	}
	return Receiver[T](newTee(all, t.codec)), nil
}

func (t recordType[T]) Writer(part *network.Partition, n, subtask, maxParallelism int, p graph.Partitioner, keyer any, flushEach bool) (any, error) {
	w := &writer[T]{codec: t.codec, flushEach: flushEach, part: part}
	for i := range n {
		w.channels = append(w.channels, part.Channel(i))
	}
	switch p {
	case graph.Hash:
		k, ok := keyer.(Keyer[T])
		if !ok {
			return nil, fmt.Errorf("operator: compose: edge without a key selector for %s", t.Name())
		}
		h := &hashWriter[T]{writer: w, hash: k.NewHash(), max: maxParallelism, route: make([]uint16, maxParallelism)}
		h.inPlace, _ = t.codec.(serde.InPlace[T])
		for g := range h.route {
			h.route[g] = uint16(state.SubtaskOf(maxParallelism, n, uint16(g)))
		}
		return Receiver[T](h), nil
	case graph.Broadcast:
		return Receiver[T](&broadcastWriter[T]{w}), nil
	case graph.Forward:
		// One channel: the consumer subtask of the same index.
		return Receiver[T](&singleWriter[T]{writer: w, c: w.channels[0]}), nil
	case graph.Rebalance:
		if n == 1 {
			return Receiver[T](&singleWriter[T]{writer: w, c: w.channels[0]}), nil
		}
		return Receiver[T](&rebalanceWriter[T]{writer: w, next: subtask % n}), nil
	case graph.Rescale:
		return Receiver[T](&rebalanceWriter[T]{writer: w}), nil
	case graph.Shuffle:
		return Receiver[T](&choosingWriter[T]{writer: w, choose: func(_ T, n int) int { return rand.IntN(n) }}), nil
	case graph.Global:
		return Receiver[T](&choosingWriter[T]{writer: w, choose: func(T, int) int { return 0 }}), nil
	case graph.Custom:
		f, ok := keyer.(CustomPartitioner[T])
		if !ok {
			return nil, fmt.Errorf("operator: compose: edge without a partitioner for %s", t.Name())
		}
		return Receiver[T](&choosingWriter[T]{writer: w, choose: f.Choose, site: f.Site}), nil
	}
	return nil, fmt.Errorf("operator: compose: unknown partitioner %q", p)
}

// writer encodes into the channels of a partition.
type writer[T any] struct {
	codec     serde.Codec[T]
	part      *network.Partition
	channels  []*network.Channel
	flushEach bool
	records   int64
}

// encodes implements encoder.
func (w *writer[T]) encodes() {}

// Records is how many records were written; the task's goroutine reads it.
func (w *writer[T]) Records() int64 { return w.records }

func (w *writer[T]) put(c *network.Channel, v T, m Meta) error {
	w.records++
	buf := c.Buf()
	if m.TS != NoTimestamp {
		buf = append(buf, tagTime)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(m.TS))
	} else {
		buf = append(buf, 0)
	}
	return w.done(c, w.codec.Append(buf, v))
}

func (w *writer[T]) done(c *network.Channel, buf []byte) error {
	if err := c.Put(buf); err != nil {
		return err
	}
	if w.flushEach {
		return c.Flush()
	}
	return nil
}

func (w *writer[T]) all(b ...byte) error {
	for _, c := range w.channels {
		if err := w.done(c, append(c.Buf(), b...)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer[T]) Watermark(ts int64) error {
	var b [9]byte
	b[0] = tagWatermark
	binary.LittleEndian.PutUint64(b[1:], uint64(ts))
	return w.all(b[:]...)
}

func (w *writer[T]) Idle(idle bool) error {
	if idle {
		return w.all(tagIdle)
	}
	return w.all(tagActive)
}

type singleWriter[T any] struct {
	*writer[T]
	c *network.Channel
}

func (w *singleWriter[T]) Process(v T, m Meta) error { return w.put(w.c, v, m) }

type rebalanceWriter[T any] struct {
	*writer[T]
	next int
}

func (w *rebalanceWriter[T]) Process(v T, m Meta) error {
	c := w.channels[w.next]
	if w.next++; w.next == len(w.channels) {
		w.next = 0
	}
	return w.put(c, v, m)
}

// CustomPartitioner chooses the subtask, 0 to n-1, that a record goes to.
type CustomPartitioner[T any] struct {
	Choose func(v T, n int) int
	Site   string // file:line of the user's call
}

// choosingWriter sends each record where a function says.
type choosingWriter[T any] struct {
	*writer[T]
	choose func(v T, n int) int
	site   string
}

func (w *choosingWriter[T]) Process(v T, m Meta) error {
	i := w.choose(v, len(w.channels))
	if i < 0 || i >= len(w.channels) {
		return fmt.Errorf("PartitionCustom at %s: the partition function returned subtask %d; there are 0 to %d", w.site, i, len(w.channels)-1)
	}
	return w.put(w.channels[i], v, m)
}

type broadcastWriter[T any] struct{ *writer[T] }

func (w *broadcastWriter[T]) Process(v T, m Meta) error {
	for _, c := range w.channels {
		if err := w.put(c, v, m); err != nil {
			return err
		}
	}
	return nil
}

type hashWriter[T any] struct {
	*writer[T]
	hash    func(T) uint32
	inPlace serde.InPlace[T] // the codec, when it can encode records where they are
	max     int
	route   []uint16
}

func (w *hashWriter[T]) Process(v T, m Meta) error {
	c, buf := w.head(w.hash(v), m.TS)
	return w.done(c, w.codec.Append(buf, v))
}

// head begins a record in the channel of its key.
func (w *hashWriter[T]) head(h uint32, ts int64) (*network.Channel, []byte) {
	w.records++
	c := w.channels[w.route[state.GroupOf(h, w.max)]]
	buf := c.Buf()
	if ts != NoTimestamp {
		buf = append(buf, tagTime|tagHash)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(ts))
	} else {
		buf = append(buf, tagHash)
	}
	return c, binary.LittleEndian.AppendUint32(buf, h)
}

// readsOnly implements batchReader.
func (w *hashWriter[T]) readsOnly() {}

// ProcessBatch encodes the records where they are.
func (w *hashWriter[T]) ProcessBatch(vs []T, ts []int64) error {
	if w.inPlace == nil {
		return oneByOne[T]{w}.ProcessBatch(vs, ts)
	}
	for i := range vs {
		c, buf := w.head(w.hash(vs[i]), timeOf(ts, i))
		if err := w.done(c, w.inPlace.AppendFrom(buf, &vs[i])); err != nil {
			return err
		}
	}
	return nil
}

func (t recordType[T]) Reader(dst any, channels int) (Reader, error) {
	r, err := receiver[T](dst)
	if err != nil {
		return nil, err
	}
	return &reader[T]{codec: t.codec, dst: r, valve: NewValve(channels)}, nil
}

type reader[T any] struct {
	codec   serde.Codec[T]
	dst     Receiver[T]
	valve   *Valve
	records int64
}

func (r *reader[T]) Records() int64   { return r.records }
func (r *reader[T]) Watermark() int64 { return r.valve.Output() }

func (r *reader[T]) End(channel int) error { return r.watermark(channel, MaxWatermark) }

func (r *reader[T]) watermark(channel int, ts int64) error {
	if out, ok := r.valve.OnWatermark(channel, ts); ok {
		return r.dst.Watermark(out)
	}
	return nil
}

func (r *reader[T]) Read(channel int, b []byte) error {
	for len(b) > 0 {
		tag := b[0]
		b = b[1:]
		if tag > tagRecordMax {
			var err error
			if b, err = r.event(channel, tag, b); err != nil {
				return err
			}
			continue
		}
		m := Meta{TS: NoTimestamp}
		if tag&tagTime != 0 {
			if len(b) < 8 {
				return fmt.Errorf("%w: time cut short", ErrCorrupt)
			}
			m.TS = int64(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
		if tag&tagHash != 0 {
			if len(b) < 4 {
				return fmt.Errorf("%w: hash cut short", ErrCorrupt)
			}
			m.Hash = binary.LittleEndian.Uint32(b)
			b = b[4:]
		}
		v, n, err := r.codec.Decode(b)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		b = b[n:]
		r.records++
		if err := r.dst.Process(v, m); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader[T]) event(channel int, tag byte, b []byte) ([]byte, error) {
	switch tag {
	case tagWatermark:
		if len(b) < 8 {
			return nil, fmt.Errorf("%w: watermark cut short", ErrCorrupt)
		}
		return b[8:], r.watermark(channel, int64(binary.LittleEndian.Uint64(b)))
	case tagIdle, tagActive:
		out, advanced, idle, changed := r.valve.OnIdle(channel, tag == tagIdle)
		if advanced {
			if err := r.dst.Watermark(out); err != nil {
				return nil, err
			}
		}
		if changed {
			return b, r.dst.Idle(idle)
		}
		return b, nil
	}
	return nil, fmt.Errorf("%w: unknown tag %#x", ErrCorrupt, tag)
}
