package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Errors of Decode and DecodeTask; they are wrapped with what exactly is wrong.
var (
	ErrFormat    = errors.New("not checkpoint metadata")                             // another kind of file
	ErrTruncated = errors.New("truncated")                                           // shorter than its header says
	ErrCorrupt   = errors.New("corrupt")                                             // checksum or structure is wrong
	ErrVersion   = errors.New("written by a newer version of Thalweg; use that one") // format version unknown here
)

// Decode parses the content of a _metadata file and fills FileRef.Base of every file with base, the URI of the directory that the
// file stands in. The result references b (inline state, list items): do not change b afterwards.
//
// Allocation is at most a small constant times len(b): every count is checked against the bytes that are left before memory is taken.
// Errors: ErrFormat, ErrTruncated, ErrCorrupt, ErrVersion.
func Decode(b []byte, base string) (Checkpoint, error) {
	var c Checkpoint
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		if len(b) < len(magic) && bytes.HasPrefix([]byte(magic), b) {
			return c, fmt.Errorf("metadata: decode: %d bytes: %w", len(b), ErrTruncated)
		}
		return c, fmt.Errorf("metadata: decode: %w", ErrFormat)
	}
	if len(b) < headerSize {
		return c, fmt.Errorf("metadata: decode: %d bytes: %w", len(b), ErrTruncated)
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v == 0 || v > Version {
		return c, fmt.Errorf("metadata: decode: format version %d, this one reads up to %d: %w", v, Version, ErrVersion)
	}
	if flags := binary.LittleEndian.Uint16(b[10:]); flags != 0 {
		return c, fmt.Errorf("metadata: decode: unknown flags %#x: %w", flags, ErrVersion)
	}
	body, want := b[headerSize:], binary.LittleEndian.Uint64(b[12:])
	if uint64(len(body)) < want {
		return c, fmt.Errorf("metadata: decode: %d of %d bytes: %w", len(body), want, ErrTruncated)
	}
	if uint64(len(body)) > want {
		return c, fmt.Errorf("metadata: decode: %d bytes after the end: %w", uint64(len(body))-want, ErrCorrupt)
	}
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[20:]); got != want {
		return c, fmt.Errorf("metadata: decode: checksum %08x, want %08x: %w", got, want, ErrCorrupt)
	}
	d := &decoder{b: body, end: len(b), base: base}
	d.checkpoint(&c)
	if binary.LittleEndian.Uint16(b[8:]) >= 2 {
		d.exchanges(&c)
	}
	if err := d.finish(); err != nil {
		return Checkpoint{}, fmt.Errorf("metadata: decode: %w", err)
	}
	return c, nil
}

// DecodeTask parses what EncodeTask wrote. An empty input is a task without state. The result references b.
// Errors: ErrCorrupt, ErrVersion.
func DecodeTask(b []byte) (Task, error) {
	var t Task
	if len(b) == 0 {
		return t, nil
	}
	d := &decoder{b: b, end: len(b), bases: []string{""}}
	v := d.u16()
	if d.err == nil && (v == 0 || v > Version) {
		return t, fmt.Errorf("metadata: decode task state: format version %d, this one reads up to %d: %w", v, Version, ErrVersion)
	}
	n := d.count(4)
	if n > 0 {
		d.bases = make([]string, 1, n+1)
		for range n {
			d.bases = append(d.bases, d.str())
		}
	}
	t.Operators = slice[TaskOperator](d, 28)
	for i := range t.Operators {
		t.Operators[i].ID = graph.OperatorID{ID: d.id()}
		d.subtask(&t.Operators[i].State)
	}
	if v >= 2 {
		d.inFlight(&t)
	}
	if err := d.finish(); err != nil {
		return Task{}, fmt.Errorf("metadata: decode task state: %w", err)
	}
	return t, nil
}

// decoder reads from the front of b; after the first error everything reads as zero and lists as empty.
type decoder struct {
	b     []byte
	end   int // offset of the end of b in the input
	base  string
	bases []string // nil: no base indexes in the input
	err   error
}

// fail keeps the first error, with the offset of what could not be read.
func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("at byte %d: %s: %w", d.end-len(d.b), fmt.Sprintf(format, args...), ErrCorrupt)
		d.b = nil
	}
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes left over", len(d.b))
	}
	return d.err
}

// take returns the next n bytes; nil after an error.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) i64() int64 {
	if p := d.take(8); p != nil {
		return int64(binary.LittleEndian.Uint64(p))
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail("boolean %d", v)
	}
	return v == 1
}

func (d *decoder) int() int {
	v := d.u32()
	if v > math.MaxInt32 {
		d.fail("number %d is out of range", v)
		return 0
	}
	return int(v)
}

// count reads the length of a list whose items take at least itemSize bytes each, and refuses one that cannot be there.
func (d *decoder) count(itemSize int) int {
	n := d.int()
	if n > len(d.b)/itemSize {
		d.fail("list of %d items in %d bytes", n, len(d.b))
		return 0
	}
	return n
}

func (d *decoder) bytes() []byte { return d.take(d.count(1)) }
func (d *decoder) str() string   { return string(d.bytes()) }

func (d *decoder) id() (id graph.ID) {
	copy(id[:], d.take(len(id)))
	return id
}

// slice reads a count and returns a list of that many zero values; nil for none.
func slice[T any](d *decoder, itemSize int) []T {
	if n := d.count(itemSize); n > 0 {
		return make([]T, n)
	}
	return nil
}

func (d *decoder) checkpoint(c *Checkpoint) {
	c.ID = d.i64()
	c.Savepoint = d.bool()
	c.Canonical = d.bool()
	c.Trigger = time.UnixMilli(d.i64()).UTC()
	c.JobID = graph.JobID{ID: d.id()}
	c.JobName = d.str()
	c.Product = d.str()
	if n := d.count(8); n > 0 {
		c.Config = make(map[string]string, n)
		last := ""
		for i := range n {
			k := d.str()
			if i > 0 && k <= last {
				d.fail("configuration keys are not in order at %q", k)
			}
			if d.err != nil {
				return
			}
			last = k
			c.Config[k] = d.str()
		}
	}
	c.Operators = slice[Operator](d, 36)
	for i := range c.Operators {
		o := &c.Operators[i]
		o.ID = graph.OperatorID{ID: d.id()}
		o.UID = d.str()
		o.Name = d.str()
		o.Parallelism = d.int()
		o.MaxParallelism = d.int()
		o.Subtasks = slice[Subtask](d, 12)
		for j := range o.Subtasks {
			d.subtask(&o.Subtasks[j])
			if d.err != nil {
				return
			}
		}
	}
	if n := d.count(20); n > 0 {
		c.Coordinators = make(map[graph.OperatorID][]byte, n)
		for range n {
			id := graph.OperatorID{ID: d.id()}
			if _, dup := c.Coordinators[id]; dup {
				d.fail("operator %s has two coordinator states", id)
			}
			if d.err != nil {
				return
			}
			c.Coordinators[id] = d.bytes()
		}
	}
}

func (d *decoder) exchanges(c *Checkpoint) {
	c.Exchanges = slice[Exchange](d, 60)
	for i := range c.Exchanges {
		x := &c.Exchanges[i]
		x.From = graph.OperatorID{ID: d.id()}
		x.Tag = d.str()
		x.To = graph.OperatorID{ID: d.id()}
		x.Input = d.int()
		x.Nth = d.int()
		x.Type = d.str()
		x.Producers = d.int()
		x.Consumers = d.int()
		x.Parts = slice[Part](d, 50)
		for j := range x.Parts {
			p := &x.Parts[j]
			p.Producer = d.int()
			p.Consumer = d.int()
			p.Sent = d.bool()
			p.Rank = d.int()
			d.segment(&p.Segment)
			if d.err == nil && (p.Producer >= x.Producers || p.Consumer >= x.Consumers) {
				d.fail("in-flight data from subtask %d of %d to subtask %d of %d", p.Producer, x.Producers, p.Consumer, x.Consumers)
			}
			if d.err != nil {
				return
			}
		}
	}
}

func (d *decoder) inFlight(t *Task) {
	t.InFlight = slice[InFlight](d, 55)
	for i := range t.InFlight {
		f := &t.InFlight[i]
		f.Sent = d.bool()
		f.Rank = d.int()
		f.Index = d.int()
		f.Channel = d.int()
		f.Type = d.str()
		if f.Sift = Sift(d.u8()); f.Sift > SiftChosen {
			d.fail("in-flight data: unknown sift %d", f.Sift)
		}
		d.segment(&f.Segment)
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) segment(s *Segment) {
	d.ref(&s.File)
	s.Offset = d.i64()
	s.Length = d.i64()
	s.CRC32C = d.u32()
	if d.err == nil && (s.Offset < 0 || s.Length < 0 || s.Offset > s.File.Size || s.Length > s.File.Size-s.Offset) {
		d.fail("segment of %d bytes at %d in a file of %d", s.Length, s.Offset, s.File.Size)
	}
}

func (d *decoder) subtask(s *Subtask) {
	s.Index = d.int()
	s.Keyed = slice[state.Handle](d, 40)
	for i := range s.Keyed {
		d.handle(&s.Keyed[i])
		if d.err != nil {
			return
		}
	}
	s.Lists = slice[ListState](d, 9)
	for i := range s.Lists {
		l := &s.Lists[i]
		l.Name = d.str()
		l.Mode = Mode(d.u8())
		if l.Mode > Union {
			d.fail("list state %q: unknown mode %d", l.Name, l.Mode)
		}
		l.Items = slice[[]byte](d, 4)
		for j := range l.Items {
			l.Items[j] = d.bytes()
		}
		if d.err != nil {
			return
		}
	}
}

func (d *decoder) handle(h *state.Handle) {
	h.Format = d.str()
	h.Range.Start = d.int()
	h.Range.End = d.int()
	if h.Range.End < h.Range.Start || h.Range.End > state.MaxMaxParallelism {
		d.fail("key-group range [%d, %d)", h.Range.Start, h.Range.End)
	}
	h.Size = d.i64()
	h.New = d.i64()
	h.Tables = slice[state.TableMeta](d, 50)
	for i := range h.Tables {
		t := &h.Tables[i]
		t.Name = d.str()
		t.Kind = d.str()
		t.Stored = d.i64()
		d.schema(&t.Key, 0)
		d.schema(&t.Value, 0)
		if d.err != nil {
			return
		}
	}
	h.Files = slice[state.File](d, 21)
	for i := range h.Files {
		h.Files[i].Key = d.str()
		d.ref(&h.Files[i].Ref)
		if d.err != nil {
			return
		}
	}
	h.Offsets = slice[int64](d, 8)
	for i := range h.Offsets {
		h.Offsets[i] = d.i64()
		if h.Offsets[i] < 0 || i > 0 && h.Offsets[i] < h.Offsets[i-1] {
			d.fail("offsets of key groups are not ascending")
		}
	}
}

func (d *decoder) ref(r *state.FileRef) {
	kind := d.u8()
	r.Size = d.i64()
	r.CRC32C = d.u32()
	switch kind {
	case 0:
		r.Inline = d.bytes()
		if d.err == nil && int64(len(r.Inline)) != r.Size {
			d.fail("inline file of %d bytes says %d", len(r.Inline), r.Size)
		}
	case 1, 2, 3, 4:
		r.Scope = state.Scope((kind - 1) % 2)
		r.Name = d.str()
		if r.Part = kind > 2; r.Part {
			if r.Offset = d.i64(); r.Offset < 0 || r.Size > math.MaxInt64-r.Offset {
				d.fail("file %q: %d bytes at %d", r.Name, r.Size, r.Offset)
			}
		}
		if r.Name == "" || r.Size < 0 {
			d.fail("file %q of %d bytes", r.Name, r.Size)
		}
		r.Base = d.base
	default:
		d.fail("unknown kind of file %d", kind)
	}
	if d.bases != nil {
		i := d.u32()
		if uint64(i) >= uint64(len(d.bases)) {
			d.fail("base %d of %d", i, len(d.bases))
			return
		}
		r.Base = d.bases[i]
	}
}

func (d *decoder) schema(s *serde.Schema, depth int) {
	if depth > maxSchemaDepth {
		d.fail("schema nested deeper than %d", maxSchemaDepth)
		return
	}
	s.Kind = d.str()
	s.Name = d.str()
	s.Len = d.int()
	flags := d.u8()
	if flags > 3 {
		d.fail("schema flags %#x", flags)
	}
	s.Fields = slice[serde.SchemaField](d, 21)
	for i := range s.Fields {
		s.Fields[i].Name = d.str()
		d.schema(&s.Fields[i].Type, depth+1)
		if d.err != nil {
			return
		}
	}
	if flags&1 != 0 {
		s.Elem = &serde.Schema{}
		d.schema(s.Elem, depth+1)
	}
	if flags&2 != 0 && d.err == nil {
		s.Key = &serde.Schema{}
		d.schema(s.Key, depth+1)
	}
}
