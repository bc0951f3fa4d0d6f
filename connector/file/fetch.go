package file

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/thalweg/thalweg/fs"
)

// chunkSize is how much is read at once.
const chunkSize = 256 << 10

// chunk is a piece of a file; err is io.EOF at its end.
type chunk struct {
	data []byte
	err  error
}

// fetch reads one split ahead of the reader, on its own goroutine.
type fetch struct {
	chunks chan chunk
	free   chan []byte
	cancel context.CancelFunc
}

// startFetch reads from offset at. wake is called when something is there.
func startFetch(ctx context.Context, wg *sync.WaitGroup, sys *systems, s *split, at int64, wake func()) *fetch {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetch{chunks: make(chan chunk, 2), free: make(chan []byte, 4), cancel: cancel}
	files, p, err := sys.resolve(ctx, s.Path)
	sp := *s
	wg.Go(func() {
		if err == nil {
			err = f.run(ctx, files, p, sp, at, wake)
		}
		if err != nil {
			f.put(ctx, chunk{err: err}, wake)
		}
	})
	return f
}

func (f *fetch) put(ctx context.Context, c chunk, wake func()) bool {
	select {
	case f.chunks <- c:
		wake()
		return true
	case <-ctx.Done():
		return false
	}
}

// run hands over what the split needs of its file, from byte at: up to the end of the last line that begins in it, or of the file. The file is compared with
// what was listed when the fetch begins and before its last chunk goes out, so that a file that changes while it is read never ends as if it were whole.
func (f *fetch) run(ctx context.Context, files fs.FileSystem, p string, s split, at int64, wake func()) (err error) {
	if err := s.unchanged(ctx, files, p); err != nil {
		return err
	}
	file, err := files.Open(ctx, p)
	if err != nil {
		return fmt.Errorf("file: read %s: %w", s.Path, err)
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	var r io.Reader = io.NewSectionReader(file, at, s.Size-min(at, s.Size))
	if s.packed() {
		if r, err = unpack(file, at); err != nil {
			return s.failed(ctx, files, p, "unpack", err)
		}
	}
	for pos := at; ; {
		var buf []byte
		select {
		case buf = <-f.free:
		default:
			buf = make([]byte, chunkSize)
		}
		n, end, err := fill(r, buf[:chunkSize])
		if err != nil {
			op := "read"
			if s.packed() {
				op = "unpack"
			}
			return s.failed(ctx, files, p, op, err)
		}
		from := pos
		pos += int64(n)
		if !s.packed() {
			if end && pos != s.Size {
				return s.failed(ctx, files, p, "read", fmt.Errorf("it ends at byte %d of %d: %w", pos, s.Size, io.ErrUnexpectedEOF))
			}
			last := min(max(s.End-1-from, 0), int64(n)) // the first end of a line from here on ends the split
			if i := bytes.IndexByte(buf[last:n], '\n'); i >= 0 {
				n, end = int(last)+i+1, true
			}
		}
		if !end {
			if !f.put(ctx, chunk{data: buf[:n]}, wake) {
				return nil
			}
			continue
		}
		if err := s.unchanged(ctx, files, p); err != nil {
			return err
		}
		f.put(ctx, chunk{buf[:n], io.EOF}, wake)
		return nil
	}
}

// fill reads until buf is full or r ends. Only io.EOF itself is the end: a wrapped one, or io.ErrUnexpectedEOF, is a connection or a stream that broke.
func fill(r io.Reader, buf []byte) (n int, end bool, err error) {
	for n < len(buf) {
		m, err := r.Read(buf[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// unpack returns what a packed file holds from byte at on.
func unpack(file io.Reader, at int64) (io.Reader, error) {
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	if n, err := io.CopyN(io.Discard, z, at); err != nil {
		return nil, fmt.Errorf("byte %d of %d: %w", n, at, err)
	}
	return z, nil
}

// unchanged compares the file with what was listed.
func (s *split) unchanged(ctx context.Context, files fs.FileSystem, p string) error {
	info, err := files.Stat(ctx, p)
	if err != nil {
		return fmt.Errorf("file: read %s: %w", s.Path, err)
	}
	if info.Size == s.Size && info.ModTime.UnixMilli() == s.ModTime {
		return nil
	}
	return lastingError{fmt.Errorf("file: %s was changed after it was listed (%d bytes then, %d now): files that a job reads must not change; move complete files into the folder",
		s.Path, s.Size, info.Size)}
}

// failed says why a file cannot be read: a change of the file explains everything else.
func (s *split) failed(ctx context.Context, files fs.FileSystem, p, op string, err error) error {
	var lasting lastingError
	if changed := s.unchanged(ctx, files, p); errors.As(changed, &lasting) {
		return changed
	}
	return fmt.Errorf("file: %s %s: %w", op, s.Path, err)
}
