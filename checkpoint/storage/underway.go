package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// UnderWay is what an unaligned checkpoint finds under way at a task, by place and in order. The zero value is empty.
type UnderWay struct {
	places map[Place]int // in pieces
	pieces []piece
}

// Place is a channel of an input or of an output.
type Place struct {
	Sent           bool // it had left the sender: it is of an input
	Index, Channel int
	Rank           int // metadata.Part.Rank
}

type piece struct {
	Place
	data []byte
}

// Add appends data, which is copied, to what is under way at a place.
func (w *UnderWay) Add(at Place, data []byte) {
	if len(data) == 0 {
		return
	}
	i, ok := w.places[at]
	if !ok {
		if w.places == nil {
			w.places = map[Place]int{}
		}
		i = len(w.pieces)
		w.places[at] = i
		w.pieces = append(w.pieces, piece{Place: at})
	}
	w.pieces[i].data = append(w.pieces[i].data, data...)
}

// Empty reports whether nothing was added.
func (w *UnderWay) Empty() bool { return len(w.pieces) == 0 }

// Write writes all of it into one file, or into what it returns when it is small. TypeName names the records of an input or an output. Size
// is in bytes.
func (w *UnderWay) Write(ctx context.Context, sink state.Sink, typeName func(sent bool, index int) string) (out []metadata.InFlight, size int64, err error) {
	if w.Empty() {
		return nil, 0, nil
	}
	file, err := sink.Create(ctx, state.Exclusive)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range w.pieces {
		if _, err := file.Write(p.data); err != nil {
			file.Abort()
			return nil, 0, err
		}
	}
	ref, err := file.Commit()
	if err != nil {
		return nil, 0, err
	}
	out = make([]metadata.InFlight, len(w.pieces))
	for i, p := range w.pieces {
		n := int64(len(p.data))
		s := metadata.Segment{File: ref, Offset: size, Length: n, CRC32C: crc32.Checksum(p.data, castagnoli)}
		if ref.Name == "" { // each holds its own
			s.File = state.FileRef{Inline: p.data, Size: n, CRC32C: s.CRC32C}
			s.Offset = 0
		}
		out[i] = metadata.InFlight{Sent: p.Sent, Rank: p.Rank, Index: p.Index, Channel: p.Channel, Type: typeName(p.Sent, p.Index), Segment: s}
		size += n
	}
	return out, size, nil
}

// ReadSegment reads what UnderWay.Write has written of a place. It takes no more memory than the file has bytes, whatever the segment says. A
// file that is not what it should be is a StateFileError, as that of other state.
func ReadSegment(ctx context.Context, reg *fs.Registry, s *metadata.Segment) (data []byte, err error) {
	if s.File.Name == "" && s.Offset == 0 && s.Length == int64(len(s.File.Inline)) {
		data = s.File.Inline
	} else {
		if s.Offset < 0 || s.Length < 0 {
			return nil, &StateFileError{URI: s.File.Path(), Err: fmt.Errorf("%w: %d bytes at byte %d", ErrDamaged, s.Length, s.Offset)}
		}
		src := NewSource(reg)
		r, err := src.Open(ctx, s.File)
		if err != nil {
			return nil, errors.Join(err, src.Close())
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(io.NewSectionReader(r, s.Offset, s.Length))
		if err = errors.Join(err, r.Close(), src.Close()); err != nil {
			return nil, err
		}
		data = b.Bytes()
	}
	if got := crc32.Checksum(data, castagnoli); int64(len(data)) != s.Length || got != s.CRC32C {
		uri := s.File.Path()
		if uri == "" {
			uri = "in the checkpoint's metadata"
		}
		return nil, &StateFileError{URI: uri, Err: fmt.Errorf("%w: %d bytes at byte %d with checksum %08x, want %d with %08x", ErrDamaged, len(data), s.Offset, got, s.Length, s.CRC32C)}
	}
	return data, nil
}
