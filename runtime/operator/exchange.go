package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/config"
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
	SortedReader(dst any, channels int, keyer any, ctx *Context, cfg extsort.Config) (SortedReader, error)
	lead(out any, sides []advancer) (any, error)
	copying(conf config.Configuration, out any) (any, error)
	// Mute returns a Receiver[T] that passes everything on to out but, while *mute, watermarks and idleness.
	Mute(out any, mute *bool) (any, error)
	// Tee returns a Receiver[T] that sends to all of outs.
	Tee(outs []any) (any, error)
	// Restored returns what takes restored records apart (Sift): a function that says how long the record at the beginning of b is and, when keyer
	// is a CustomPartitioner, which of the subtasks it goes to.
	Restored(keyer any, parallelism int) (measure func(b []byte) (n, subtask int, err error))
	// Views reports whether decoded values may reference their buffer.
	Views() bool
}

// Reader decodes exchange buffers of one input.
type Reader interface {
	// Read decodes a buffer that arrived on a channel and processes its elements. rest is what it left because it was interrupted.
	Read(channel int, data []byte) (rest []byte, err error)
	// Interrupt makes Read return between two elements while *stop is true.
	Interrupt(stop *atomic.Bool)
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

// What follows is compiled for each type of records in each program: what does not need to know the type is outside of it (outlet, inlet).

type recordType[T any] struct{ codec serde.Codec[T] }

// TypeOf compiles the record type T. The error names the field that cannot be encoded.
func TypeOf[T any]() (Type, error) {
	c, err := serde.For[T]()
	if err != nil {
		return nil, err
	}
	return &recordType[T]{c}, nil
}

func (t *recordType[T]) Views() bool { return t.codec.Views() }

func (t *recordType[T]) Name() string { return TypeName(t.codec) }

// TypeName is the Name of the type that a codec is for.
func TypeName[T any](codec serde.Codec[T]) string { return nameOf(*new(T), codec.Schema()) }

func nameOf(zero any, schema serde.Schema) string {
	return fmt.Sprintf("%T#%08x", zero, state.Hash32([]byte(fmt.Sprintf("%v", schema))))
}

func receiver[T any](r any) (Receiver[T], error) {
	if r == nil {
		return &discard[T]{}, nil
	}
	t, ok := r.(Receiver[T])
	if !ok {
		var zero T
		return nil, fmt.Errorf("operator: compose: %T does not take %T (a bug: the graph joined unlike types)", r, zero)
	}
	return t, nil
}

func (t *recordType[T]) Tee(outs []any) (any, error) {
	switch len(outs) {
	case 0:
		return Receiver[T](&discard[T]{}), nil
	case 1:
		return receiver[T](outs[0])
	}
	all := make([]Receiver[T], len(outs))
	for i, o := range outs {
		r, err := receiver[T](o)
		if err != nil {
			return nil, err
		}
		all[i] = r
	}
	return Receiver[T](newTee(all, t.codec)), nil
}

func (t *recordType[T]) Writer(part *network.Partition, n, subtask, maxParallelism int, p graph.Partitioner, keyer any, flushEach bool) (any, error) {
	o := newOutlet(part, n, flushEach)
	switch p {
	case graph.Hash:
		k, ok := keyer.(Keyer[T])
		if !ok {
			return nil, fmt.Errorf("operator: compose: edge without a key selector for %s", t.Name())
		}
		h := &hashWriter[T]{router: newRouter(o, maxParallelism), codec: t.codec, hash: k.NewHash()}
		h.inPlace, _ = t.codec.(serde.InPlace[T])
		return Receiver[T](h), nil
	case graph.Custom:
		f, ok := keyer.(CustomPartitioner[T])
		if !ok {
			return nil, fmt.Errorf("operator: compose: edge without a partitioner for %s", t.Name())
		}
		return Receiver[T](&writer[T]{dealer: dealer{outlet: o, deal: dealCustom, site: f.Site}, codec: t.codec, choose: f.Choose}), nil
	}
	d, err := newDealer(o, p, subtask)
	if err != nil {
		return nil, err
	}
	return Receiver[T](&writer[T]{dealer: d, codec: t.codec}), nil
}

// CustomPartitioner chooses the subtask, 0 to n-1, that a record goes to.
type CustomPartitioner[T any] struct {
	Choose func(v T, n int) int
	Site   string // file:line of the user's call
}

// writer encodes records into channels that do not depend on a key.
type writer[T any] struct {
	dealer
	codec  serde.Codec[T]
	choose func(v T, n int) int // of dealCustom
}

func (w *writer[T]) Process(v T, m Meta) (err error) {
	var c *network.Channel
	switch w.deal {
	case dealOne:
		c = w.channels[w.next]
	case dealAll:
		for _, c := range w.channels {
			if err := w.done(c, w.codec.Append(w.head(c, m.TS), v)); err != nil {
				return err
			}
		}
		return nil
	case dealCustom:
		if c, err = w.chosen(w.choose(v, len(w.channels))); err != nil {
			return err
		}
	default:
		c = w.channel()
	}
	return w.done(c, w.codec.Append(w.head(c, m.TS), v))
}

// hashWriter encodes records into the channels of their keys.
type hashWriter[T any] struct {
	router
	codec   serde.Codec[T]
	hash    func(T) uint32
	inPlace serde.InPlace[T] // the codec, when it can encode records where they are
}

func (w *hashWriter[T]) Process(v T, m Meta) error {
	c, buf := w.keyed(w.hash(v), m.TS)
	return w.done(c, w.codec.Append(buf, v))
}

// readsOnly implements batchReader.
func (w *router) readsOnly() {}

// ProcessBatch encodes the records where they are.
func (w *hashWriter[T]) ProcessBatch(vs []T, ts []int64) error {
	if w.inPlace == nil {
		return (&oneByOne[T]{w}).ProcessBatch(vs, ts)
	}
	for i := range vs {
		c, buf := w.keyed(w.hash(vs[i]), timeOf(ts, i))
		if err := w.done(c, w.inPlace.AppendFrom(buf, &vs[i])); err != nil {
			return err
		}
	}
	return nil
}

func (t *recordType[T]) Reader(dst any, channels int) (Reader, error) {
	r, err := receiver[T](dst)
	if err != nil {
		return nil, err
	}
	return &reader[T]{newInlet(r, channels), t.codec, r}, nil
}

type reader[T any] struct {
	inlet
	codec serde.Codec[T]
	dst   Receiver[T]
}

func (r *reader[T]) Read(channel int, b []byte) ([]byte, error) {
	for len(b) > 0 && !r.stop.Load() {
		tag := b[0]
		b = b[1:]
		if tag > tagRecordMax {
			var err error
			if b, err = r.event(channel, tag, b); err != nil {
				return nil, err
			}
			continue
		}
		m := Meta{TS: NoTimestamp}
		if tag&tagTime != 0 {
			if len(b) < 8 {
				return nil, errShortTime
			}
			m.TS = int64(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
		if tag&tagHash != 0 {
			if len(b) < 4 {
				return nil, errShortHash
			}
			m.Hash = binary.LittleEndian.Uint32(b)
			b = b[4:]
		}
		v, n, err := r.codec.Decode(b)
		if err != nil {
			return nil, undecoded[T](err)
		}
		b = b[n:]
		r.records++
		if err := r.dst.Process(v, m); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// undecoded is the error of a record that cannot be decoded. What the engine's codecs wrote they read; a codec of the program's may not.
func undecoded[T any](err error) error {
	return fmt.Errorf("%w: a record of type %s cannot be decoded (the type's own UnmarshalBinary or codec, or one inside of it, must read what it wrote): %w", ErrCorrupt, typeName[T](), err)
}

// Restored implements Type.
func (t *recordType[T]) Restored(keyer any, parallelism int) (measure func(b []byte) (n, subtask int, err error)) {
	choose, _ := keyer.(CustomPartitioner[T])
	return func(b []byte) (int, int, error) {
		v, n, err := t.codec.Decode(b)
		if err != nil || choose.Choose == nil {
			return n, 0, err
		}
		return n, choose.Choose(v, parallelism), nil
	}
}
