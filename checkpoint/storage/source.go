package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// ErrDamaged is wrapped by errors about state files whose size or checksum differ from what the checkpoint says.
var ErrDamaged = errors.New("state file is damaged")

// Source reads state files. It implements state.Source and is safe for concurrent use.
type Source struct{ roots roots }

// NewSource returns a source that resolves FileRef.Base through reg.
func NewSource(reg *fs.Registry) *Source {
	return &Source{roots: roots{reg: reg}}
}

// Close gives back the file systems that the source has opened; see Sink.Close. No reader may be open.
func (s *Source) Close() error { return s.roots.close() }

// Open opens a state file. Sequential reads are verified: the Read that reaches the stored size with another checksum, goes beyond it,
// or meets the end before it returns an error wrapping ErrDamaged. ReadAt is not verified. Inline content is verified here.
func (s *Source) Open(ctx context.Context, ref state.FileRef) (fs.Reader, error) {
	if ref.Name == "" {
		if int64(len(ref.Inline)) != ref.Size || crc32.Checksum(ref.Inline, castagnoli) != ref.CRC32C {
			return nil, fmt.Errorf("storage: open inline state of %d bytes: %w", ref.Size, ErrDamaged)
		}
		return inlineReader{bytes.NewReader(ref.Inline)}, nil
	}
	if ref.Base == "" {
		return nil, fmt.Errorf("storage: open %s: the directory that it is relative to is not known", ref.Name)
	}
	uri, err := Resolve(ref.Base, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("storage: open state file: %w", err)
	}
	f, p, err := s.roots.at(ctx, uri)
	if err != nil {
		return nil, fmt.Errorf("storage: open %s: %w", uri, err)
	}
	r, err := f.Open(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("storage: open state file %s of checkpoint %s: %w", uri, ref.Base, err)
	}
	return &checkedReader{Reader: r, uri: uri, want: ref}, nil
}

type inlineReader struct{ *bytes.Reader }

func (inlineReader) Close() error { return nil }

// checkedReader follows sequential reads with size and checksum.
type checkedReader struct {
	fs.Reader
	uri  string
	want state.FileRef
	size int64
	crc  uint32
}

func (r *checkedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.crc = crc32.Update(r.crc, castagnoli, p[:n])
	r.size += int64(n)
	if r.size > r.want.Size {
		return n, fmt.Errorf("storage: read %s: more than %d bytes: %w", r.uri, r.want.Size, ErrDamaged)
	}
	if r.size == r.want.Size && r.crc != r.want.CRC32C {
		return n, fmt.Errorf("storage: read %s: checksum %08x, want %08x: %w", r.uri, r.crc, r.want.CRC32C, ErrDamaged)
	}
	if errors.Is(err, io.EOF) && r.size != r.want.Size {
		return n, fmt.Errorf("storage: read %s: %d of %d bytes: %w", r.uri, r.size, r.want.Size, ErrDamaged)
	}
	return n, err
}
