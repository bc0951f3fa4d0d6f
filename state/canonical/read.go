package canonical

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// ErrCorrupt marks files whose content does not match their checksums or their format.
var ErrCorrupt = errors.New("file of a snapshot is corrupt or truncated")

// CorruptError is ErrCorrupt with the place. No later try reads the file.
type CorruptError struct {
	File string // URI, where it is known
	At   int64  // byte
	What string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("state file %s at byte %d: %s: %v", e.File, e.At, e.What, ErrCorrupt)
}
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// Entry is an entry as stored. The slices are valid until the next one.
type Entry struct {
	Group     int
	Namespace state.Namespace
	At        int64 // timers
	Key       []byte
	Value     []byte        // tables
	Schema    *serde.Schema // of Value; the same pointer for the same schema of one file
}

// Reader reads the files of several handles, cut to a range. It opens the files on first use; Close closes them.
type Reader struct {
	ctx   context.Context
	src   state.Source
	rng   state.Range
	files []*file
}

type file struct {
	handle state.Handle
	open   io.ReaderAt
	close  func() error
	head   header
	size   int64
	packed bool   // payloads are compressed
	plain  []byte // the payload that was decompressed last
}

// NewReader returns a reader of those handles that intersect rng. Each key group may be in one handle only.
func NewReader(ctx context.Context, src state.Source, maxParallelism int, rng state.Range, handles []state.Handle) (*Reader, error) {
	r := &Reader{ctx: ctx, src: src, rng: rng}
	seen := map[int]bool{}
	for _, h := range handles {
		lo, hi := max(h.Range.Start, rng.Start), min(h.Range.End, rng.End)
		if lo >= hi {
			continue
		}
		for g := lo; g < hi; g++ {
			if seen[g] {
				return nil, fmt.Errorf("canonical: restore: key group %d is in two handles", g)
			}
			seen[g] = true
		}
		if len(h.Files) != 1 || len(h.Offsets) != h.Range.End-h.Range.Start+1 {
			return nil, fmt.Errorf("canonical: restore key groups [%d, %d): %w: %d files, %d offsets", h.Range.Start, h.Range.End, ErrCorrupt, len(h.Files), len(h.Offsets))
		}
		f := &file{handle: h}
		r.files = append(r.files, f)
		if err := r.load(f, maxParallelism); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// load opens the file and reads its header.
func (r *Reader) load(f *file, maxParallelism int) error {
	ref := f.handle.Files[0].Ref
	f.size = ref.Size
	if ref.Inline != nil {
		f.open, f.close, f.size = bytes.NewReader(ref.Inline), func() error { return nil }, int64(len(ref.Inline))
	} else {
		x, err := r.src.Open(r.ctx, ref)
		if err != nil {
			return fmt.Errorf("canonical: open %s: %w", f.name(), err)
		}
		f.open, f.close = x, x.Close
	}
	var b [headBytes]byte
	if err := f.readAt(b[:], 0); err != nil {
		return err
	}
	if string(b[:4]) != magic {
		return f.corrupt(0, "no state file")
	}
	switch v := binary.LittleEndian.Uint16(b[4:]); v {
	case version:
	case compressed:
		f.packed = true
	default:
		return fmt.Errorf("canonical: %s has format version %d, this program reads %d; restore it with a newer program", f.name(), v, compressed)
	}
	n := binary.LittleEndian.Uint32(b[8:])
	if n > maxHeader || int64(n) > f.handle.Offsets[0] {
		return f.corrupt(8, "length of the header")
	}
	js := make([]byte, n+4)
	if err := f.readAt(js, headBytes); err != nil {
		return err
	}
	if crc32.Checksum(js[:n], castagnoli) != binary.LittleEndian.Uint32(js[n:]) {
		return f.corrupt(headBytes, "checksum of the header")
	}
	if err := json.Unmarshal(js[:n], &f.head); err != nil {
		return f.corrupt(headBytes, err.Error())
	}
	if f.head.MaxParallelism != maxParallelism {
		return fmt.Errorf("canonical: %s was written with max parallelism %d, the operator has %d; restore with the same number", f.name(), f.head.MaxParallelism, maxParallelism)
	}
	if f.head.Start != f.handle.Range.Start || f.head.End != f.handle.Range.End {
		return f.corrupt(headBytes, "key groups differ from the handle's")
	}
	for i := 1; i < len(f.handle.Offsets); i++ {
		if f.handle.Offsets[i] < f.handle.Offsets[i-1] {
			return f.corrupt(0, "offsets of the handle do not ascend")
		}
	}
	return nil
}

func (f *file) name() string {
	if len(f.handle.Files) > 0 && f.handle.Files[0].Ref.Name != "" {
		return f.handle.Files[0].Ref.Path()
	}
	return "inline state"
}

func (f *file) corrupt(at int64, what string) error {
	return fmt.Errorf("canonical: %w", &CorruptError{f.name(), at, what})
}

func (f *file) readAt(b []byte, at int64) error {
	n, err := f.open.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return f.corrupt(at+int64(n), "file ends")
	}
	return fmt.Errorf("canonical: read %s at byte %d: %w", f.name(), at, err)
}

// Close closes the files.
func (r *Reader) Close() error {
	var err error
	for _, f := range r.files {
		if f.close != nil {
			err = errors.Join(err, f.close())
			f.close = nil
		}
	}
	return err
}

// Tables returns the tables and timer sets of all files, each name once, with its newest value. Files that disagree are an error.
func (r *Reader) Tables() ([]state.TableMeta, error) {
	var out []state.TableMeta
	seen := map[string]int{}
	for _, f := range r.files {
		for i, t := range f.head.Tables {
			if slices.ContainsFunc(f.head.Tables[i+1:], func(newer tableHead) bool { return newer.Name == t.Name }) {
				continue
			}
			m := state.TableMeta{Name: t.Name, Kind: t.Kind, Key: t.Key, Value: t.Value, Stored: -1}
			if i, ok := seen[t.Name]; !ok {
				seen[t.Name] = len(out)
				out = append(out, m)
			} else if out[i].Kind != m.Kind || out[i].Value.String() != m.Value.String() {
				return nil, fmt.Errorf("canonical: state %q differs between the files of one snapshot", t.Name)
			}
		}
	}
	return out, nil
}

// Scan calls fn for every entry of the named table or timer set in the range, ordered by file and key group.
func (r *Reader) Scan(name string, fn func(e *Entry) error) error {
	var e Entry
	return r.chunks(name, func(f *file, c *chunk) error {
		e.Group, e.Schema = c.group, &f.head.Tables[c.table].Value
		return scanChunk(f, c.at, c.payload, c.count, f.head.Tables[c.table].Kind == KindTimers, &e, fn)
	})
}

// chunk is a chunk as stored. The payload is valid until the next one.
type chunk struct {
	group, table int
	at           int64
	count        uint32
	payload      []byte
}

// chunks calls fn for every chunk of the named table or timer set in the range, ordered by file and key group.
func (r *Reader) chunks(name string, fn func(f *file, c *chunk) error) error {
	for _, f := range r.files {
		if !slices.ContainsFunc(f.head.Tables, func(t tableHead) bool { return t.Name == name }) {
			continue
		}
		if err := r.scanFile(f, name, fn); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) scanFile(f *file, name string, fn func(f *file, c *chunk) error) error {
	h := &f.handle
	lo, hi := max(h.Range.Start, r.rng.Start), min(h.Range.End, r.rng.End)
	w := window{f: f, end: h.Offsets[hi-h.Range.Start]}
	for g := lo; g < hi; g++ {
		at, end := h.Offsets[g-h.Range.Start], h.Offsets[g-h.Range.Start+1]
		for at < end {
			if err := r.ctx.Err(); err != nil {
				return fmt.Errorf("canonical: read %s: %w", f.name(), err)
			}
			head, err := w.get(at, chunkHead)
			if err != nil {
				return err
			}
			table, count, n := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
			if n > maxChunk || int64(n) > end-at-chunkHead || int(table) >= len(f.head.Tables) {
				return f.corrupt(at, "head of a chunk")
			}
			if f.head.Tables[table].Name == name {
				b, err := w.get(at, chunkHead+int(n))
				if err != nil {
					return err
				}
				if chunkSum(b) != binary.LittleEndian.Uint32(b[12:]) {
					return f.corrupt(at, "checksum of a chunk")
				}
				payload, err := f.unpack(at, b[chunkHead:])
				if err != nil {
					return err
				}
				if err := fn(f, &chunk{g, int(table), at, count, payload}); err != nil {
					return err
				}
			}
			at += chunkHead + int64(n)
		}
	}
	return nil
}

// unpack returns the payload of the chunk at a position, valid until the next call.
func (f *file) unpack(at int64, b []byte) ([]byte, error) {
	if !f.packed {
		return b, nil
	}
	n, err := s2.DecodedLen(b)
	if err != nil || n > maxChunk {
		return nil, f.corrupt(at, "length of a compressed chunk")
	}
	if cap(f.plain) < n {
		f.plain = make([]byte, n)
	}
	if f.plain, err = s2.Decode(f.plain[:cap(f.plain)], b); err != nil {
		return nil, f.corrupt(at, "a compressed chunk")
	}
	return f.plain, nil
}

func scanChunk(f *file, at int64, b []byte, count uint32, timers bool, e *Entry, fn func(e *Entry) error) error {
	fixed := 8
	if timers {
		fixed = 16
	}
	for ; count > 0; count-- {
		if len(b) < fixed {
			return f.corrupt(at, "entry ends")
		}
		e.Namespace = int64(binary.LittleEndian.Uint64(b))
		if timers {
			e.At = int64(binary.LittleEndian.Uint64(b[8:]))
		}
		var ok bool
		if e.Key, b, ok = blob(b[fixed:]); !ok {
			return f.corrupt(at, "length of a key")
		}
		if !timers {
			if e.Value, b, ok = blob(b); !ok {
				return f.corrupt(at, "length of a value")
			}
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		return f.corrupt(at, "bytes after the last entry")
	}
	return nil
}

func blob(b []byte) (v, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	return b[w : w+int(n) : w+int(n)], b[w+int(n):], true
}

// window reads a file in large pieces.
type window struct {
	f   *file
	end int64 // nothing is read from here on
	at  int64
	buf []byte
}

const windowBytes = 1 << 20

// get returns n bytes at position pos, valid until the next call.
func (w *window) get(pos int64, n int) ([]byte, error) {
	if pos < w.at || pos+int64(n) > w.at+int64(len(w.buf)) {
		if pos+int64(n) > w.end {
			return nil, w.f.corrupt(pos, "file ends")
		}
		size := max(int(min(windowBytes, w.end-pos)), n)
		if cap(w.buf) < size {
			if w.f.size > 0 && int64(size) > w.f.size { // a corrupt length must not allocate more than the file holds
				return nil, w.f.corrupt(pos, "file ends")
			}
			w.buf = make([]byte, size)
		}
		w.buf = w.buf[:size]
		w.at = pos
		if err := w.f.readAt(w.buf, pos); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[pos-w.at:][:n:n], nil
}
