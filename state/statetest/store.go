// Package statetest is the suite that every state backend passes: a model test with snapshots, restores at other parallelism and
// exchange between backends, and tests of the promises in package state. It is part of layer L1, for tests only.
package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"sync"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// Store keeps the files of snapshots in memory; it is a state.Sink and a state.Source.
type Store struct {
	// InlineLimit is the size up to which files come back inline.
	InlineLimit int
	// FailAfter, when positive, makes writes fail after so many bytes.
	FailAfter int

	mu      sync.Mutex
	files   map[string][]byte
	next    int
	written int
	open    int
}

// ErrInjected is what FailAfter leads to.
var ErrInjected = errors.New("injected failure")

// Create implements state.Sink.
func (s *Store) Create(ctx context.Context, scope state.Scope) (state.Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &stream{s: s, scope: scope}, nil
}

// Open implements state.Source.
func (s *Store) Open(ctx context.Context, ref state.FileRef) (fs.Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if ref.Inline != nil {
		return reader{bytes.NewReader(ref.Inline)}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.files[ref.Name]
	if !ok {
		return nil, fmt.Errorf("store: open %s: %w", ref.Name, iofs.ErrNotExist)
	}
	return reader{bytes.NewReader(b)}, nil
}

// Names returns the stored files.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n []string
	for k := range s.files {
		n = append(n, k)
	}
	return n
}

// OpenStreams is the number of streams neither committed nor aborted.
func (s *Store) OpenStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Remove deletes files, as the coordinator does with those that no checkpoint needs.
func (s *Store) Remove(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		delete(s.files, n)
	}
}

// Replace sets the content of a file, to corrupt it.
func (s *Store) Replace(name string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = b
}

// Content returns a copy of a file.
func (s *Store) Content(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.files[name])
}

type stream struct {
	s     *Store
	scope state.Scope
	buf   bytes.Buffer
	done  bool
}

func (w *stream) Write(b []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.written += len(b)
	if w.s.FailAfter > 0 && w.s.written > w.s.FailAfter {
		return 0, ErrInjected
	}
	return w.buf.Write(b)
}

func (w *stream) Commit() (state.FileRef, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.done {
		return state.FileRef{}, errors.New("store: stream ended twice")
	}
	w.done = true
	w.s.open--
	b := w.buf.Bytes()
	ref := state.FileRef{Scope: w.scope, Size: int64(len(b)), CRC32C: crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))}
	if len(b) <= w.s.InlineLimit {
		ref.Inline = append([]byte{}, b...)
		return ref, nil
	}
	w.s.next++
	ref.Name = fmt.Sprintf("file-%d", w.s.next)
	if w.scope == state.Shared {
		ref.Name = "../shared/" + ref.Name
	}
	if w.s.files == nil {
		w.s.files = map[string][]byte{}
	}
	w.s.files[ref.Name] = b
	return ref, nil
}

func (w *stream) Abort() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.done {
		w.done = true
		w.s.open--
	}
}

type reader struct{ *bytes.Reader }

func (reader) Close() error { return nil }

var _ io.ReaderAt = reader{}
