package canonical

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// A chunk of any content, with a right checksum, is read, or refused; and it takes no more memory than it says that it unpacks to.
func FuzzChunk(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x01k\x01v"), uint32(0), uint32(1), false)
	f.Add(s2.Encode(nil, []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x01k\x01v")), uint32(0), uint32(1), true)
	f.Add([]byte("\xff\xff\xff\xff\x0f"), uint32(1), uint32(1<<31), true)
	f.Add([]byte{}, uint32(0), uint32(1<<32-1), false)
	f.Fuzz(func(t *testing.T, payload []byte, table, count uint32, packed bool) {
		metas := []state.TableMeta{{Name: "t", Kind: KindTable, Key: serde.Schema{Kind: "string"}}, {Name: "x", Kind: KindTimers, Key: serde.Schema{Kind: "string"}}}
		var file buffer
		w, err := newWriter(&file, 4, state.Range{End: 4}, metas, packed)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Begin(1); err != nil {
			t.Fatal(err)
		}
		chunk := make([]byte, chunkHead, chunkHead+len(payload))
		chunk = append(chunk, payload...)
		binary.LittleEndian.PutUint32(chunk, table)
		binary.LittleEndian.PutUint32(chunk[4:], count)
		binary.LittleEndian.PutUint32(chunk[8:], uint32(len(payload)))
		binary.LittleEndian.PutUint32(chunk[12:], chunkSum(chunk))
		w.write(chunk)
		offsets, err := w.finish()
		if err != nil {
			t.Fatal(err)
		}
		limit := uint64(8*len(file)) + 3*windowBytes
		if n, err := s2.DecodedLen(payload); packed && err == nil {
			if n > 64<<20 {
				return // an entry may be that large
			}
			limit += uint64(n)
		}
		h := state.Handle{Format: Format, Range: state.Range{End: 4}, Offsets: offsets, Size: int64(len(file)),
			Files: []state.File{{Ref: state.FileRef{Inline: file, Size: int64(len(file)), CRC32C: crc32.Checksum(file, castagnoli)}}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := NewReader(context.Background(), nil, 4, state.Range{End: 4}, []state.Handle{h})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"t", "x"} {
			_ = r.Scan(name, func(e *Entry) error { return nil })
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > limit {
			t.Fatalf("a file of %d bytes took %d, want at most %d", len(file), got, limit)
		}
		for _, name := range []string{"t", "x"} {
			if c, err := r.Carry(name); err == nil {
				_ = c.Scan(name, func(e *Entry) error { return nil })
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
