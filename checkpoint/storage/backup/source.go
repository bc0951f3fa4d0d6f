package backup

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// Source returns a source that looks for local copies before it asks another one. It is for one restore: it knows the copies that there
// were when it was first asked.
func (s *Store) Source(from state.Source) state.Source {
	if s == nil {
		return from
	}
	return &source{Source: from, store: s}
}

// source implements state.LocalSource.
type source struct {
	state.Source
	store *Store

	find   sync.Once
	copies map[string]string // paths by name
	tell   sync.Once
	found  sync.Once
}

// Link implements state.LocalSource.
func (x *source) Link(ctx context.Context, ref state.FileRef, path string) bool {
	at, ok := x.lookUp(ref)
	if !ok {
		return false
	}
	f, err := verified(ctx, at, ref)
	if err == nil {
		err = os.Link(at, path)
		if err != nil && !errors.Is(err, iofs.ErrExist) {
			err = transfer(f, path)
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		x.miss(ref, fmt.Errorf("%s: %w", at, err))
		return false
	}
	x.hit(ref)
	return true
}

// Open implements state.Source.
func (x *source) Open(ctx context.Context, ref state.FileRef) (fs.Reader, error) {
	if at, ok := x.lookUp(ref); ok {
		f, err := verified(ctx, at, ref)
		if err == nil {
			x.hit(ref)
			return f, nil
		}
		x.miss(ref, fmt.Errorf("%s: %w", at, err))
	}
	return x.Source.Open(ctx, ref)
}

// lookUp finds the copy of a file.
func (x *source) lookUp(ref state.FileRef) (string, bool) {
	n := name(ref)
	if n == "" {
		return "", false
	}
	x.find.Do(func() {
		x.copies = map[string]string{}
		x.store.each(func(_ int64, dir string) {
			entries, _ := os.ReadDir(dir) // what cannot be listed is not there
			for _, e := range entries {
				x.copies[e.Name()] = filepath.Join(dir, e.Name())
			}
		})
	})
	at, ok := x.copies[n]
	if !ok {
		x.miss(ref, nil)
	}
	return at, ok
}

// hit tells once that a copy was used.
func (x *source) hit(ref state.FileRef) {
	x.found.Do(func() {
		x.store.log.Info().Str("file", ref.Path()).Msg("state is restored from local copies")
	})
}

// miss tells once that a copy is not there, or is not what it should be.
func (x *source) miss(ref state.FileRef, err error) {
	x.tell.Do(func() {
		if err == nil {
			x.store.log.Info().Str("file", ref.Path()).Msg("a state file has no local copy; it is read from the checkpoint's folder, as are others without one")
			return
		}
		x.store.log.Warn().Err(err).Str("file", ref.Path()).Msg("the local copy of a state file is not usable; it is read from the checkpoint's folder, as are others like it")
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verified opens a copy whose content is ref's, at its start. It reads all of it.
func verified(ctx context.Context, path string, ref state.FileRef) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(sum, struct{ io.Reader }{&bound{ctx, f}}, make([]byte, 256<<10))
	if err == nil && (n != ref.Size || sum.Sum32() != ref.CRC32C) {
		err = fmt.Errorf("damaged: %d bytes with checksum %08x, want %d with %08x", n, sum.Sum32(), ref.Size, ref.CRC32C)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// bound reads until its context ends.
type bound struct {
	ctx context.Context //nolint:containedctx // lives as long as one read of the file
	r   io.Reader
}

func (b *bound) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// transfer writes what r holds to a new file.
func transfer(r io.Reader, path string) error {
	w, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
