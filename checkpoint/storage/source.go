package storage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"syscall"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// ErrDamaged is wrapped by errors about state files whose size or checksum differ from what the checkpoint says.
var ErrDamaged = errors.New("damaged")

// StateFileError says that a state file is not what its checkpoint says: missing, no file, or damaged (ErrDamaged). No later try reads it.
type StateFileError struct {
	URI string
	Err error
}

func (e *StateFileError) Error() string {
	switch { // the causes say no more
	case errors.Is(e.Err, iofs.ErrNotExist):
		return fmt.Sprintf("state file %s is missing", e.URI)
	case errors.Is(e.Err, syscall.EISDIR):
		return fmt.Sprintf("state file %s is a directory", e.URI)
	}
	return fmt.Sprintf("state file %s is %v", e.URI, e.Err)
}
func (e *StateFileError) Unwrap() error { return e.Err }

// lasting turns errors that no later try gets over into a StateFileError.
func lasting(uri string, err error) error {
	switch {
	case errors.Is(err, iofs.ErrNotExist), errors.Is(err, ErrDamaged):
		return &StateFileError{uri, err}
	case errors.Is(err, fs.ErrCorrupt):
		return &StateFileError{uri, fmt.Errorf("%w: %w", ErrDamaged, err)}
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return &StateFileError{uri, fmt.Errorf("out of reach: %w", err)}
	}
	return err
}

// Source reads state files. It implements state.Source and is safe for concurrent use.
type Source struct{ roots roots }

// NewSource returns a source that resolves FileRef.Base through reg.
func NewSource(reg *fs.Registry) *Source {
	return &Source{roots: roots{reg: reg}}
}

// Close gives back the file systems that the source has opened; see Sink.Close. No reader may be open.
func (s *Source) Close() error { return s.roots.close() }

// Open opens a state file; a missing one is a StateFileError. Sequential reads are verified: the Read that reaches the stored size with another checksum, goes beyond it,
// or meets the end before it returns a StateFileError
// of ErrDamaged. ReadAt is not verified. Inline content is verified here.
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
		if x := lasting(uri, err); x != err { //nolint:errorlint // whether it is the same
			return nil, fmt.Errorf("storage: open: %w", x)
		}
		return nil, fmt.Errorf("storage: open state file %s: %w", uri, err)
	}
	if ref.Part {
		r = newPart(r, ref)
	}
	return &checkedReader{Reader: r, uri: uri, want: ref}, nil
}

// part is a reader of a part of a file.
type part struct {
	*io.SectionReader
	sequential *bufio.Reader
	file       io.Closer
}

// partBuffer is what is read at once of a part: each read of a file in the middle is a request of its own.
const partBuffer = 1 << 20

func newPart(r fs.Reader, ref state.FileRef) *part {
	s := io.NewSectionReader(r, ref.Offset, ref.Size)
	return &part{s, bufio.NewReaderSize(s, int(min(ref.Size, partBuffer))), r}
}

func (p *part) Read(b []byte) (int, error) { return p.sequential.Read(b) }
func (p *part) Close() error               { return p.file.Close() }

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
		return n, r.damaged("more than %d bytes", r.want.Size)
	}
	if r.size == r.want.Size && r.crc != r.want.CRC32C {
		return n, r.damaged("checksum %08x, want %08x", r.crc, r.want.CRC32C)
	}
	if errors.Is(err, io.EOF) && r.size != r.want.Size {
		return n, r.damaged("%d of %d bytes", r.size, r.want.Size)
	}
	return n, lasting(r.uri, err)
}

func (r *checkedReader) damaged(format string, args ...any) error {
	return fmt.Errorf("storage: read: %w", &StateFileError{r.uri, fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))})
}

// ReadAt implements io.ReaderAt.
func (r *checkedReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.Reader.ReadAt(p, at)
	return n, lasting(r.uri, err)
}
