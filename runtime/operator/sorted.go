package operator

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/internal/extsort"
	"github.com/thalweg/thalweg/serde"
)

// SortedReader gathers a keyed input, in BATCH, and gives it to the operator key by key, the records of a key in the order of their event
// times. Watermarks are dropped: event time has no progress within a key. Source: Flink MultiInputSortingDataInput.
type SortedReader interface {
	// Reader takes the buffers; End only notes that a channel has ended.
	Reader
	// Sort ends the gathering. The first record is current then.
	Sort() error
	// Current is the sort key of the current record, without and with the event time; ok is false when there is none. It stays valid.
	Current() (key, keyAndTime []byte, ok bool)
	// Pass gives the current record to the operator and goes to the next.
	Pass() error
	// Finish passes the last watermark on, after the last record.
	Finish() error
	// Spilled is how many bytes were written to disk.
	Spilled() int64
	Close() error
}

// A sort key is: hash u32 (which the key group follows from), length of the key u32, the encoded key, event time i64 with its sign
// turned, all big endian. So no key is the beginning of another.
const (
	sortKeyHeader = 8
	sortKeyTime   = 8
)

// keyEncoder appends the encoded key of a record. KeySelector implements it.
type keyEncoder[T any] interface {
	appendKey(dst []byte, v T) []byte
}

func (k KeySelector[K, T]) appendKey(dst []byte, v T) []byte { return k.Codec.Append(dst, k.Fn(v)) }

// SortedReader implements Type.
func (t *recordType[T]) SortedReader(dst any, channels int, keyer any, ctx *Context, cfg extsort.Config) (SortedReader, error) {
	r, err := receiver[T](dst)
	if err != nil {
		return nil, err
	}
	k, ok := keyer.(keyEncoder[T])
	if !ok {
		return nil, lastingError{fmt.Errorf("operator: compose: sorted input without a key selector for %s (a bug)", t.Name())}
	}
	g := &gathering[T]{codec: t.codec, key: k, ctx: ctx, sorter: extsort.New(cfg)}
	in := reader[T]{newInlet(g, channels), t.codec, g}
	return &sortedReader{gather: &in, ctx: ctx, sorter: g.sorter, next: r, process: func(value []byte, m Meta) error {
		v, _, err := t.codec.Decode(value)
		if err != nil {
			return ctx.wrap(undecoded[T](err))
		}
		return r.Process(v, m)
	}}, nil
}

type sortedReader struct {
	ctx     *Context
	sorter  *extsort.Sorter
	gather  Reader // decodes what arrives
	next    advancer
	process func(value []byte, m Meta) error // decodes a record and hands it on

	it          *extsort.Iterator
	sortKey     []byte
	value       []byte
	more, ready bool
}

func (s *sortedReader) Read(channel int, data []byte) ([]byte, error) {
	return s.gather.Read(channel, data)
}
func (s *sortedReader) Interrupt(*atomic.Bool) {} // BATCH has no checkpoints
func (s *sortedReader) Records() int64         { return s.gather.Records() }
func (s *sortedReader) Spilled() int64         { return s.sorter.Spilled() }
func (s *sortedReader) Close() error           { return s.sorter.Close() }

func (s *sortedReader) End(int) error { return nil }

// gathering receives what arrives.
type gathering[T any] struct {
	ignore
	codec  serde.Codec[T]
	key    keyEncoder[T]
	ctx    *Context
	sorter *extsort.Sorter
	buf    []byte // room for a sort key
	val    []byte // room for a record
}

func (g *gathering[T]) Process(v T, m Meta) error {
	b := binary.BigEndian.AppendUint32(g.buf[:0], m.Hash)
	b = append(b, 0, 0, 0, 0)
	b = g.key.appendKey(b, v)
	binary.BigEndian.PutUint32(b[4:], uint32(len(b)-sortKeyHeader))
	g.buf = binary.BigEndian.AppendUint64(b, uint64(m.TS)^1<<63)
	g.val = g.codec.Append(g.val[:0], v)
	return g.ctx.sorting(g.sorter.Add(g.buf, g.val))
}

func (s *sortedReader) Watermark() int64 {
	if s.ready && !s.more {
		return MaxWatermark
	}
	return MinWatermark
}

func (s *sortedReader) Sort() (err error) {
	if s.it, err = s.sorter.Sort(); err != nil {
		return s.ctx.sorting(err)
	}
	s.ready = true
	return s.step()
}

func (s *sortedReader) step() (err error) {
	s.sortKey, s.value, s.more, err = s.it.Next()
	return s.ctx.sorting(err)
}

// sorting attributes an error of the sort to the operator whose input it is.
func (c *Context) sorting(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("operator %s: sort the input: %w", c.Describe(), err)
}

func (s *sortedReader) Current() (key, keyAndTime []byte, ok bool) {
	if !s.more {
		return nil, nil, false
	}
	return s.sortKey[:len(s.sortKey)-sortKeyTime], s.sortKey, true
}

func (s *sortedReader) Pass() error {
	m := Meta{Hash: binary.BigEndian.Uint32(s.sortKey), TS: int64(binary.BigEndian.Uint64(s.sortKey[len(s.sortKey)-sortKeyTime:]) ^ 1<<63)}
	if err := s.process(s.value, m); err != nil {
		return err
	}
	return s.step()
}

func (s *sortedReader) Finish() error { return s.next.Watermark(MaxWatermark) }
