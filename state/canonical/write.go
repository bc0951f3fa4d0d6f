package canonical

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Format is the value of state.Handle.Format.
const Format = "canonical"

const (
	magic      = "TWKS"
	endMagic   = "TWKE"
	version    = 1
	compressed = 2 // the version of files whose payloads are compressed
	chunkBytes = 64 << 10
	headBytes  = 12
	chunkHead  = 16
	maxHeader  = 64 << 20
	maxChunk   = 1 << 30
)

// KindTable and KindTimers are the kinds of state.TableMeta.
const (
	KindTable  = "table"
	KindTimers = "timers"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type header struct {
	MaxParallelism int         `json:"maxParallelism"`
	Start          int         `json:"start"`
	End            int         `json:"end"`
	Tables         []tableHead `json:"tables"`
}

type tableHead struct {
	Name  string       `json:"name"`
	Kind  string       `json:"kind"`
	Key   serde.Schema `json:"key"`
	Value serde.Schema `json:"value"`
}

// Writer writes one file. Groups are begun in ascending order; entries belong to the group begun last.
type Writer struct {
	w       *bufio.Writer
	pos     int64
	rng     state.Range
	group   int // the next group to begin
	offsets []int64
	chunk   []byte // head and payload of the chunk being filled
	table   int
	entries uint32
	counts  []int64
	bytes   []int64 // of keys and values, by table
	largest []state.Largest
	packed  []byte // head and compressed payload; nil when nothing is compressed
	err     error
}

func newWriter(w io.Writer, maxParallelism int, rng state.Range, tables []state.TableMeta, compress bool) (*Writer, error) {
	h := header{MaxParallelism: maxParallelism, Start: rng.Start, End: rng.End}
	for _, t := range tables {
		h.Tables = append(h.Tables, tableHead{t.Name, t.Kind, t.Key, t.Value})
	}
	js, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("canonical: header: %w", err)
	}
	b := append([]byte(magic), version, 0, 0, 0)
	if compress {
		b[4] = compressed
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(js)))
	b = append(b, js...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(js, castagnoli))
	x := &Writer{w: bufio.NewWriterSize(w, 128<<10), rng: rng, group: rng.Start, table: -1, counts: make([]int64, len(tables)), bytes: make([]int64, len(tables)), largest: make([]state.Largest, len(tables))}
	if compress {
		x.packed = make([]byte, chunkHead+s2.MaxEncodedLen(chunkBytes))
	}
	x.write(b)
	return x, x.err
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.pos += int64(len(b))
	}
}

// Begin starts key group g and leaves the groups before it empty.
func (w *Writer) Begin(g int) error {
	w.flushChunk()
	if g < w.group || g >= w.rng.End {
		return fmt.Errorf("canonical: key group %d begun out of order or outside of [%d, %d)", g, w.rng.Start, w.rng.End)
	}
	for ; w.group <= g; w.group++ {
		w.offsets = append(w.offsets, w.pos)
	}
	return w.err
}

// Entry adds an entry of a table; the file takes copies. The error is the first one of all writes.
func (w *Writer) Entry(table int, ns state.Namespace, key, value []byte) error {
	w.open(table, len(key)+len(value))
	n := int64(len(key) + len(value))
	w.bytes[table] += n
	w.largest[table].See(key, n)
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(ns))
	w.chunk = appendBlob(w.chunk, key)
	w.chunk = appendBlob(w.chunk, value)
	return w.err
}

// Timer adds an entry of a timer set.
func (w *Writer) Timer(table int, ns state.Namespace, at int64, key []byte) error {
	w.open(table, len(key))
	w.bytes[table] += int64(len(key)) + 16
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(ns))
	w.chunk = binary.LittleEndian.AppendUint64(w.chunk, uint64(at))
	w.chunk = appendBlob(w.chunk, key)
	return w.err
}

// addChunk adds a chunk of entries as they are stored elsewhere.
func (w *Writer) addChunk(table int, count uint32, payload []byte) error {
	w.flushChunk()
	w.table, w.entries = table, count
	w.counts[table] += int64(count)
	w.bytes[table] += int64(len(payload))
	w.chunk = append(append(w.chunk[:0], make([]byte, chunkHead)...), payload...)
	w.flushChunk()
	return w.err
}

func appendBlob(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

func (w *Writer) open(table, more int) {
	if w.table != table || len(w.chunk)+more > chunkBytes {
		w.flushChunk()
		w.table = table
		w.chunk = append(w.chunk[:0], make([]byte, chunkHead)...)
	}
	w.entries++
	w.counts[table]++
}

func (w *Writer) flushChunk() {
	if w.entries > 0 {
		b := w.chunk
		if w.packed != nil {
			b = w.pack()
		}
		binary.LittleEndian.PutUint32(b[0:], uint32(w.table))
		binary.LittleEndian.PutUint32(b[4:], w.entries)
		binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-chunkHead))
		binary.LittleEndian.PutUint32(b[12:], chunkSum(b))
		w.write(b)
	}
	w.table, w.entries = -1, 0
}

// pack compresses the chunk.
func (w *Writer) pack() []byte {
	payload := w.chunk[chunkHead:]
	if n := s2.MaxEncodedLen(len(payload)); n < 0 { // an entry of gigabytes
		if w.err == nil {
			w.err = fmt.Errorf("canonical: an entry of %d bytes cannot be compressed", len(payload))
		}
		return w.chunk
	} else if len(w.packed) < chunkHead+n {
		w.packed = make([]byte, chunkHead+n)
	}
	return w.packed[:chunkHead+len(s2.Encode(w.packed[chunkHead:], payload))]
}

// chunkSum covers the head without the sum, and the payload.
func chunkSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[chunkHead:])
}

func (w *Writer) finish() ([]int64, error) {
	w.flushChunk()
	for ; w.group <= w.rng.End; w.group++ {
		w.offsets = append(w.offsets, w.pos)
	}
	var b []byte
	for _, o := range w.offsets {
		b = binary.LittleEndian.AppendUint64(b, uint64(o))
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	w.write(append(b, endMagic...))
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.offsets, w.err
}

// Write makes a handle in canonical form. Tables of one name follow each other, the newest schema last. It opens an exclusive file of sink, lets fill write the entries group by group, and
// commits. When anything fails, or ctx ends, the file is given up.
func Write(ctx context.Context, sink state.Sink, maxParallelism int, rng state.Range, tables []state.TableMeta,
	fill func(ctx context.Context, w *Writer) error) (state.Handle, error) {
	return create(ctx, sink, maxParallelism, rng, tables, false, fill)
}

// WriteCompressed is Write with compressed payloads (execution.checkpointing.snapshot-compression). Readers find out by themselves.
func WriteCompressed(ctx context.Context, sink state.Sink, maxParallelism int, rng state.Range, tables []state.TableMeta,
	fill func(ctx context.Context, w *Writer) error) (state.Handle, error) {
	return create(ctx, sink, maxParallelism, rng, tables, true, fill)
}

// WriterOf is Write or WriteCompressed, as a backend's configuration says.
func WriterOf(cfg *state.Config) func(ctx context.Context, sink state.Sink, maxParallelism int, rng state.Range, tables []state.TableMeta,
	fill func(ctx context.Context, w *Writer) error) (state.Handle, error) {
	if cfg.Compress {
		return WriteCompressed
	}
	return Write
}

func create(ctx context.Context, sink state.Sink, maxParallelism int, rng state.Range, tables []state.TableMeta, compress bool,
	fill func(ctx context.Context, w *Writer) error) (state.Handle, error) {
	s, err := sink.Create(ctx, state.Exclusive)
	if err != nil {
		return state.Handle{}, fmt.Errorf("canonical: create file: %w", err)
	}
	h, err := write(ctx, s, maxParallelism, rng, tables, compress, fill)
	if err != nil {
		s.Abort()
		return state.Handle{}, err
	}
	ref, err := s.Commit()
	if err != nil {
		return state.Handle{}, fmt.Errorf("canonical: commit file: %w", err)
	}
	h.Files = []state.File{{Key: "state", Ref: ref}}
	return h, nil
}

func write(ctx context.Context, s state.Stream, maxParallelism int, rng state.Range, tables []state.TableMeta, compress bool,
	fill func(ctx context.Context, w *Writer) error) (state.Handle, error) {
	w, err := newWriter(s, maxParallelism, rng, tables, compress)
	if err != nil {
		return state.Handle{}, err
	}
	if err := fill(ctx, w); err != nil {
		return state.Handle{}, err
	}
	if err := ctx.Err(); err != nil {
		return state.Handle{}, fmt.Errorf("canonical: write: %w", err)
	}
	offsets, err := w.finish()
	if err != nil {
		return state.Handle{}, fmt.Errorf("canonical: write: %w", err)
	}
	var metas []state.TableMeta
	for i, m := range tables {
		m.Stored = w.counts[i]
		at := slices.IndexFunc(metas, func(older state.TableMeta) bool { return older.Name == m.Name })
		if at < 0 {
			metas = append(metas, m)
			continue
		}
		m.Stored += metas[at].Stored
		metas[at] = m
	}
	return state.Handle{Format: Format, Range: rng, Tables: metas, Offsets: offsets, Size: w.pos, New: w.pos, Stats: w.stats(tables)}, nil
}

// stats are what was written, by name.
func (w *Writer) stats(tables []state.TableMeta) (all []state.TableStats) {
	for i, m := range tables {
		at := slices.IndexFunc(all, func(s state.TableStats) bool { return s.Name == m.Name })
		if at < 0 {
			at, all = len(all), append(all, state.TableStats{Name: m.Name})
		}
		s := &all[at]
		s.Entries += w.counts[i]
		s.Bytes += w.bytes[i]
		s.Largest = append(s.Largest, w.largest[i].Entries()...)
	}
	return all
}
