package backup

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/thalweg/thalweg/state"
)

// Sink returns a sink that passes everything on to another one and copies it as the state of checkpoint id. Tasks with the same spread use
// the same disk, where it matters.
func (s *Store) Sink(to state.Sink, id int64, spread int) state.Sink {
	if s == nil {
		return to
	}
	return &sink{Sink: to, store: s, id: id, spread: spread}
}

// sink implements state.LocalSink.
type sink struct {
	state.Sink
	store  *Store
	id     int64
	spread int
}

// Keep implements state.LocalSink. The disk that has the file is tried first of all: a link costs nothing.
func (k *sink) Keep(ref state.FileRef, path string) {
	n := name(ref)
	if n == "" {
		return
	}
	var first error
	for i := range k.store.dirs {
		err := k.link(path, n, k.spread+i)
		if err == nil {
			return
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EPERM) {
			break
		}
	}
	if errors.Is(first, syscall.EXDEV) || errors.Is(first, syscall.EPERM) { // another disk, or one without links
		if first = k.copy(path, n); first == nil {
			return
		}
	}
	k.store.miss(k.id, first)
}

// Reuse implements state.Chooser.
func (k *sink) Reuse(ref state.FileRef) bool {
	c, ok := k.Sink.(state.Chooser)
	return !ok || c.Reuse(ref)
}

func (k *sink) link(path, name string, at int) error {
	dir, err := k.store.folder(k.id, at)
	if err == nil {
		err = k.store.disk.Link(path, filepath.Join(dir, name))
	}
	if errors.Is(err, iofs.ErrExist) {
		return nil // another attempt's
	}
	return err
}

func (k *sink) copy(path, name string) (err error) {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c := copied{sink: k}
	w := bufio.NewWriterSize(&c, bufferSize)
	if _, err = io.Copy(w, r); err == nil {
		err = w.Flush()
	}
	return c.finish(err, name)
}

// bufferSize is what is written at once, and what a stream of inline content may hold before a file is made for nothing.
const bufferSize = 64 << 10

// Create implements state.Sink.
func (k *sink) Create(ctx context.Context, scope state.Scope) (state.Stream, error) {
	to, err := k.Sink.Create(ctx, scope)
	if err != nil || scope != state.Exclusive {
		return to, err
	}
	s := &stream{Stream: to, file: copied{sink: k}}
	s.w = bufio.NewWriterSize(&s.file, bufferSize)
	return s, nil
}

// stream copies what is written to another one.
type stream struct {
	state.Stream
	file copied
	w    *bufio.Writer
	err  error // of the copy
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	if s.err == nil {
		_, s.err = s.w.Write(p[:n])
	}
	return n, err
}

func (s *stream) Commit() (state.FileRef, error) {
	ref, err := s.Stream.Commit()
	n := name(ref)
	if err != nil || n == "" {
		s.file.drop()
		return ref, err
	}
	if s.err == nil {
		s.err = s.w.Flush()
	}
	if s.err = s.file.finish(s.err, n); s.err != nil {
		s.file.sink.store.miss(s.file.sink.id, s.err)
	}
	return ref, nil
}

func (s *stream) Abort() {
	s.Stream.Abort()
	s.file.drop()
}

// copied is a copy being written, under another name. Its file is made with the first Write.
type copied struct {
	sink *sink
	dir  string
	path string
	w    io.WriteCloser
}

func (c *copied) Write(p []byte) (int, error) {
	if c.w == nil {
		var err error
		if c.dir, err = c.sink.store.folder(c.sink.id, c.sink.spread); err != nil {
			return 0, err
		}
		c.path = filepath.Join(c.dir, ".copy-"+rand.Text())
		if c.w, err = c.sink.store.disk.Create(c.path); err != nil {
			return 0, err
		}
	}
	return c.w.Write(p)
}

// finish closes the file and gives it its name. After an error, err or its own, which it returns, nothing is left of it.
func (c *copied) finish(err error, name string) error {
	if c.w == nil {
		return err
	}
	w := c.w
	c.w = nil
	err = errors.Join(err, w.Close())
	if err == nil {
		err = os.Rename(c.path, filepath.Join(c.dir, name))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(c.path))
	}
	return err
}

func (c *copied) drop() {
	if c.w != nil {
		_ = c.finish(iofs.ErrInvalid, "") // what stays goes with the folder
	}
}
