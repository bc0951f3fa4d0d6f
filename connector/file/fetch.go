package file

import (
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

func (f *fetch) run(ctx context.Context, files fs.FileSystem, p string, s split, at int64, wake func()) (err error) {
	info, err := files.Stat(ctx, p)
	if err != nil {
		return fmt.Errorf("file: read %s: %w", s.Path, err)
	}
	if info.Size != s.Size || info.ModTime.UnixMilli() != s.ModTime {
		return lastingError{fmt.Errorf("file: %s was changed after it was listed (%d bytes then, %d now): files that a job reads must not change; move complete files into the folder",
			s.Path, s.Size, info.Size)}
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
		z, err := gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("file: unpack %s: %w", s.Path, err)
		}
		if _, err := io.CopyN(io.Discard, z, at); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("file: unpack %s: %w", s.Path, err)
		}
		r = z
	}
	for {
		var buf []byte
		select {
		case buf = <-f.free:
		default:
			buf = make([]byte, chunkSize)
		}
		n, err := io.ReadFull(r, buf[:chunkSize])
		if errors.Is(err, io.ErrUnexpectedEOF) {
			if s.packed() { // also what gzip says of a file that is cut short
				if _, more := r.Read(buf[n:chunkSize]); more != nil && !errors.Is(more, io.EOF) {
					return fmt.Errorf("file: unpack %s: %w", s.Path, more)
				}
			}
			err = io.EOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("file: read %s: %w", s.Path, err)
		}
		if !f.put(ctx, chunk{buf[:n], err}, wake) || err != nil {
			return nil
		}
	}
}
