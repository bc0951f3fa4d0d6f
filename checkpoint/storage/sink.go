package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/state"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sink writes the files of one snapshot of one task. It implements state.Sink and is safe for concurrent use.
type Sink struct {
	roots             roots
	exclusive, shared string // URIs
	sharedPrefix      string // of names, relative to exclusive
	namePrefix        string
	threshold         int64
	err               error
}

// NewSink returns a sink for a checkpoint (TriggerCheckpoint.exclusive_dir and shared_dir, URIs). With an empty sharedDir, or one that
// equals exclusiveDir, shared files are written to exclusiveDir as exclusive ones, which makes a savepoint self-contained.
//
// Streams of at most threshold bytes stay in memory and come back inline; others become a file, in one go: create, write, close. The
// directory is made with the first file. A directory that is not a URI is reported by the first Create.
func NewSink(reg *fs.Registry, exclusiveDir, sharedDir string, threshold int64) *Sink {
	s := &Sink{roots: roots{reg: reg}, exclusive: clean(exclusiveDir), threshold: threshold}
	_, p, err := split(exclusiveDir)
	if err != nil {
		s.err = err
		return s
	}
	if id, ok := checkpointID(path.Base(p)); ok {
		s.namePrefix = strconv.FormatInt(id, 10) + "-"
	}
	if sharedDir != "" && clean(sharedDir) != s.exclusive {
		s.shared = clean(sharedDir)
		rel, err := Relative(s.exclusive, s.shared+"/x")
		if err != nil {
			s.err = err
			return s
		}
		s.sharedPrefix = rel[:len(rel)-1]
	}
	return s
}

// Create opens a stream. Nothing is stored before the threshold is exceeded.
func (s *Sink) Create(ctx context.Context, scope state.Scope) (state.Stream, error) {
	if s.err != nil {
		return nil, fmt.Errorf("storage: create state file: %w", s.err)
	}
	return &stream{ctx: ctx, sink: s, scope: s.ScopeOf(scope)}, nil
}

// Close gives back the file systems that the sink has opened. A sink that is never closed keeps its share of them, which costs nothing
// where the process works with them anyway. No stream may be open.
func (s *Sink) Close() error { return s.roots.close() }

// stream is used by one goroutine.
type stream struct {
	ctx   context.Context //nolint:containedctx // lives as long as the file being written
	sink  *Sink
	scope state.Scope
	buf   []byte
	crc   uint32
	size  int64
	w     fs.Writer
	uri   string
	name  string
	err   error
	done  bool
}

func (s *stream) Write(p []byte) (int, error) {
	if s.done {
		return 0, errors.New("storage: write state file: already committed or aborted")
	}
	if s.err != nil {
		return 0, s.err
	}
	if s.w == nil && s.size+int64(len(p)) > s.sink.threshold {
		if s.err = s.open(); s.err != nil {
			return 0, s.err
		}
	}
	if s.w == nil {
		s.buf = append(s.buf, p...)
	} else if _, err := s.w.Write(p); err != nil {
		s.err = fmt.Errorf("storage: write %s: %w", s.uri, err)
		return 0, s.err
	}
	s.crc = crc32.Update(s.crc, castagnoli, p)
	s.size += int64(len(p))
	return len(p), nil
}

// Dir is the checkpoint's directory, a URI.
func (s *Sink) Dir() string { return s.exclusive }

// Threshold is the size up to which streams come back inline, bytes.
func (s *Sink) Threshold() int64 { return s.threshold }

// ScopeOf is the scope that files have which are to have another one: all are exclusive where there is no directory of shared ones.
func (s *Sink) ScopeOf(scope state.Scope) state.Scope {
	if s.shared == "" {
		return state.Exclusive
	}
	return scope
}

// NewFile creates a file of its own for state of a scope. Name is what FileRef.Name of its content is. The context holds for the open file, too.
func (s *Sink) NewFile(ctx context.Context, scope state.Scope) (w fs.Writer, uri, name string, err error) {
	if s.err != nil {
		return nil, "", "", fmt.Errorf("storage: create state file: %w", s.err)
	}
	dir, prefix := s.exclusive, ""
	if s.ScopeOf(scope) == state.Shared {
		dir, prefix = s.shared, s.sharedPrefix
	}
	base := s.namePrefix + randomHex(16)
	uri, name = dir+"/"+base, prefix+base
	if err := failpoint.Error("upload/create"); err != nil {
		return nil, "", "", err
	}
	f, p, err := s.roots.at(ctx, uri)
	if err == nil {
		w, err = f.Create(ctx, p, false)
	}
	if err != nil {
		return nil, "", "", fmt.Errorf("storage: create %s: %w", uri, err)
	}
	return w, uri, name, nil
}

// CloseFile closes a file that NewFile has created; it is in the store then. After an error it is aborted.
func CloseFile(w fs.Writer, uri string) error {
	failpoint.At("upload/before-close")
	if err := w.Close(); err != nil {
		_ = w.Abort() // what stays behind is swept: its name tells the checkpoint
		return fmt.Errorf("storage: close %s: %w", uri, err)
	}
	return nil
}

// open creates the file and moves what was buffered into it.
func (s *stream) open() error {
	w, uri, name, err := s.sink.NewFile(s.ctx, s.scope)
	if err != nil {
		return err
	}
	s.w, s.uri, s.name = w, uri, name
	if len(s.buf) > 0 {
		if _, err := w.Write(s.buf); err != nil {
			return fmt.Errorf("storage: write %s: %w", s.uri, err)
		}
	}
	s.buf = nil
	return nil
}

func (s *stream) Commit() (state.FileRef, error) {
	if s.done {
		return state.FileRef{}, errors.New("storage: commit state file: already committed or aborted")
	}
	s.done = true
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil {
		s.abort()
		return state.FileRef{}, s.err
	}
	ref := state.FileRef{Size: s.size, CRC32C: s.crc}
	if s.w == nil {
		ref.Inline = s.buf
		if ref.Inline == nil {
			ref.Inline = []byte{}
		}
		return ref, nil
	}
	if err := CloseFile(s.w, s.uri); err != nil {
		return state.FileRef{}, err
	}
	ref.Name, ref.Scope = s.name, s.scope
	return ref, nil
}

func (s *stream) Abort() {
	if s.done {
		return
	}
	s.done = true
	s.abort()
}

func (s *stream) abort() {
	if s.w != nil {
		_ = s.w.Abort() // what stays behind is swept: its name tells the checkpoint
	}
	s.buf = nil
}
