package metadata

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Version, described byte by byte in FORMAT.md, is the format version that Encode and EncodeTask write. Decoders read every version up to it.
const Version = 3

const (
	magic      = "THLWGCKP"
	headerSize = 24
	// maxSchemaDepth bounds the nesting of schemas, so that a hostile input cannot exhaust the stack.
	maxSchemaDepth = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the content of a _metadata file. FileRef.Base is not stored: references must be relative to the directory that the
// file will stand in (storage.WriteMetadata sees to that). The same checkpoint gives the same bytes.
//
// Errors: a string, list or range that the format has no room for, and schemas nested deeper than 64.
func Encode(c Checkpoint) ([]byte, error) {
	e := &encoder{b: make([]byte, headerSize, headerSize+estimate(&c))}
	e.checkpoint(&c)
	if e.err != nil {
		return nil, fmt.Errorf("metadata: encode checkpoint %d: %w", c.ID, e.err)
	}
	body := e.b[headerSize:]
	copy(e.b, magic)
	binary.LittleEndian.PutUint16(e.b[8:], Version)
	binary.LittleEndian.PutUint16(e.b[10:], 0)
	binary.LittleEndian.PutUint64(e.b[12:], uint64(len(body)))
	binary.LittleEndian.PutUint32(e.b[20:], crc32.Checksum(body, castagnoli))
	return e.b, nil
}

// EncodeTask returns the wire form of a task's state. Unlike Encode it keeps FileRef.Base, because a task that is deployed with state
// must know where the files are; bases are stored once each.
func EncodeTask(t Task) ([]byte, error) {
	e := &encoder{bases: map[string]uint32{"": 0}}
	e.u16(Version)
	var bases []string
	t.Refs(func(r *state.FileRef) {
		if _, ok := e.bases[r.Base]; !ok {
			bases = append(bases, r.Base)
			e.bases[r.Base] = uint32(len(bases))
		}
	})
	e.count(len(bases))
	for _, b := range bases {
		e.str(b)
	}
	e.count(len(t.Operators))
	for i := range t.Operators {
		e.b = append(e.b, t.Operators[i].ID.ID[:]...)
		e.subtask(&t.Operators[i].State)
	}
	e.count(len(t.InFlight))
	for i := range t.InFlight {
		f := &t.InFlight[i]
		if f.Sift > SiftChosen {
			e.fail("in-flight data: unknown sift %d", f.Sift)
		}
		e.bool(f.Sent)
		e.count(f.Rank)
		e.count(f.Index)
		e.count(f.Channel)
		e.str(f.Type)
		e.u8(uint8(f.Sift))
		e.segment(&f.Segment)
	}
	if e.err != nil {
		return nil, fmt.Errorf("metadata: encode task state: %w", e.err)
	}
	return e.b, nil
}

func estimate(c *Checkpoint) int {
	n := 1 << 10
	for i := range c.Operators {
		for j := range c.Operators[i].Subtasks {
			s := &c.Operators[i].Subtasks[j]
			for k := range s.Keyed {
				n += 256 + 8*len(s.Keyed[k].Offsets)
				for _, f := range s.Keyed[k].Files {
					n += 96 + len(f.Ref.Inline)
				}
			}
			for k := range s.Lists {
				for _, it := range s.Lists[k].Items {
					n += 4 + len(it)
				}
			}
		}
	}
	for _, b := range c.Coordinators {
		n += 32 + len(b)
	}
	for i := range c.Exchanges {
		n += 128
		for j := range c.Exchanges[i].Parts {
			n += 128 + len(c.Exchanges[i].Parts[j].Segment.File.Inline)
		}
	}
	return n
}

// encoder appends to b and keeps the first error.
type encoder struct {
	b     []byte
	bases map[string]uint32 // nil: bases are not stored
	err   error
}

func (e *encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) i64(v int64)  { e.b = binary.LittleEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) count(n int) {
	if n < 0 || n > math.MaxInt32 {
		e.fail("%d is out of range", n)
		n = 0
	}
	e.u32(uint32(n))
}

func (e *encoder) str(s string)   { e.count(len(s)); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte) { e.count(len(s)); e.b = append(e.b, s...) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) checkpoint(c *Checkpoint) {
	e.i64(c.ID)
	e.bool(c.Savepoint)
	e.bool(c.Canonical)
	e.i64(c.Trigger.UnixMilli())
	e.b = append(e.b, c.JobID.ID[:]...)
	e.str(c.JobName)
	e.str(c.Product)
	e.count(len(c.Config))
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		e.str(k)
		e.str(c.Config[k])
	}
	e.count(len(c.Operators))
	for i := range c.Operators {
		o := &c.Operators[i]
		e.b = append(e.b, o.ID.ID[:]...)
		e.str(o.UID)
		e.str(o.Name)
		e.count(o.Parallelism)
		e.count(o.MaxParallelism)
		e.count(len(o.Subtasks))
		for j := range o.Subtasks {
			e.subtask(&o.Subtasks[j])
		}
	}
	ids := slices.SortedFunc(maps.Keys(c.Coordinators), func(a, b graph.OperatorID) int { return slices.Compare(a.ID[:], b.ID[:]) })
	e.count(len(ids))
	for _, id := range ids {
		e.b = append(e.b, id.ID[:]...)
		e.bytes(c.Coordinators[id])
	}
	e.count(len(c.Exchanges))
	for i := range c.Exchanges {
		x := &c.Exchanges[i]
		e.b = append(e.b, x.From.ID[:]...)
		e.str(x.Tag)
		e.b = append(e.b, x.To.ID[:]...)
		e.count(x.Input)
		e.count(x.Nth)
		e.str(x.Type)
		e.count(x.Producers)
		e.count(x.Consumers)
		e.count(len(x.Parts))
		for j := range x.Parts {
			p := &x.Parts[j]
			e.count(p.Producer)
			e.count(p.Consumer)
			e.bool(p.Sent)
			e.count(p.Rank)
			e.segment(&p.Segment)
		}
	}
}

func (e *encoder) segment(s *Segment) {
	if s.Offset < 0 || s.Length < 0 || s.Offset > s.File.Size || s.Length > s.File.Size-s.Offset {
		e.fail("segment of %d bytes at %d in a file of %d", s.Length, s.Offset, s.File.Size)
	}
	e.ref(&s.File)
	e.i64(s.Offset)
	e.i64(s.Length)
	e.u32(s.CRC32C)
}

func (e *encoder) subtask(s *Subtask) {
	e.count(s.Index)
	e.count(len(s.Keyed))
	for i := range s.Keyed {
		e.handle(&s.Keyed[i])
	}
	e.count(len(s.Lists))
	for i := range s.Lists {
		l := &s.Lists[i]
		if l.Mode > Union {
			e.fail("list state %q: unknown mode %d", l.Name, l.Mode)
		}
		e.str(l.Name)
		e.u8(uint8(l.Mode))
		e.count(len(l.Items))
		for _, it := range l.Items {
			e.bytes(it)
		}
	}
}

func (e *encoder) handle(h *state.Handle) {
	if h.Range.Start < 0 || h.Range.End < h.Range.Start || h.Range.End > state.MaxMaxParallelism {
		e.fail("key-group range [%d, %d) is not valid", h.Range.Start, h.Range.End)
	}
	e.str(h.Format)
	e.count(h.Range.Start)
	e.count(h.Range.End)
	e.i64(h.Size)
	e.i64(h.New)
	e.count(len(h.Tables))
	for i := range h.Tables {
		t := &h.Tables[i]
		e.str(t.Name)
		e.str(t.Kind)
		e.i64(t.Stored)
		e.schema(&t.Key, 0)
		e.schema(&t.Value, 0)
	}
	e.count(len(h.Files))
	for i := range h.Files {
		e.str(h.Files[i].Key)
		e.ref(&h.Files[i].Ref)
	}
	e.count(len(h.Offsets))
	for _, o := range h.Offsets {
		e.i64(o)
	}
}

func (e *encoder) ref(r *state.FileRef) {
	kind := uint8(0) // 0 inline, 1 exclusive file, 2 shared file, 3 and 4 parts of such
	if r.Name != "" {
		if r.Inline != nil {
			e.fail("file %q: has a name and inline content", r.Name)
		}
		switch r.Scope {
		case state.Exclusive:
			kind = 1
		case state.Shared:
			kind = 2
		default:
			e.fail("file %q: unknown scope %d", r.Name, r.Scope)
		}
		if r.Part {
			kind += 2
			if r.Offset < 0 || r.Size < 0 || r.Size > math.MaxInt64-r.Offset {
				e.fail("file %q: %d bytes at %d", r.Name, r.Size, r.Offset)
			}
		}
	}
	e.u8(kind)
	e.i64(r.Size)
	e.u32(r.CRC32C)
	if kind == 0 {
		e.bytes(r.Inline)
	} else {
		e.str(r.Name)
	}
	if r.Part && kind > 2 {
		e.i64(r.Offset)
	}
	if e.bases != nil {
		if kind == 0 {
			e.u32(0)
		} else {
			e.u32(e.bases[r.Base])
		}
	}
}

func (e *encoder) schema(s *serde.Schema, depth int) {
	if depth > maxSchemaDepth {
		e.fail("schema %q: nested deeper than %d", s.Name, maxSchemaDepth)
		return
	}
	e.str(s.Kind)
	e.str(s.Name)
	e.count(s.Len)
	var flags uint8
	if s.Elem != nil {
		flags |= 1
	}
	if s.Key != nil {
		flags |= 2
	}
	e.u8(flags)
	e.count(len(s.Fields))
	for i := range s.Fields {
		e.str(s.Fields[i].Name)
		e.schema(&s.Fields[i].Type, depth+1)
	}
	if s.Elem != nil {
		e.schema(s.Elem, depth+1)
	}
	if s.Key != nil {
		e.schema(s.Key, depth+1)
	}
}
