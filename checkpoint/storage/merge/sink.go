package merge

import (
	"context"
	"errors"
	"hash/crc32"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/state"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// holdBytes is what a stream keeps in memory before it takes a file for itself until its end.
const holdBytes = 1 << 20

// Sink is what one task stores of one checkpoint. It implements state.Sink and state.Chooser, and is safe for concurrent use. Seal or Discard
// ends it; Discard after Seal does nothing.
type Sink struct {
	m     *Merger
	to    *storage.Sink
	ctx   context.Context //nolint:containedctx // of the task's part of the checkpoint
	task  string
	round *round
	files map[*file]int // how much of each is its own, in streams; guarded by Merger.mu
}

// Sink returns a sink whose files are in the directories of another one. With ctx it gives up.
func (m *Merger) Sink(ctx context.Context, to *storage.Sink, task string) *Sink {
	s := &Sink{m: m, to: to, ctx: ctx, task: task, files: map[*file]int{}}
	m.mu.Lock()
	s.round = m.round(to.Dir())
	s.round.open[s] = true
	m.mu.Unlock()
	return s
}

// Reuse implements state.Chooser: parts of a file of which little is in use are stored anew.
func (s *Sink) Reuse(ref state.FileRef) bool { return s.m.reuse(s.round, ref) }

// Create implements state.Sink.
func (s *Sink) Create(ctx context.Context, scope state.Scope) (state.Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &stream{ctx: ctx, sink: s, scope: s.to.ScopeOf(scope)}, nil
}

// end takes the sink out of its round, once; m.mu is held.
func (s *Sink) end() bool {
	if !s.round.open[s] {
		return false
	}
	delete(s.round.open, s)
	s.round.ended[s.task] = true
	return true
}

// Seal returns when everything that was committed is stored. All streams have ended.
func (s *Sink) Seal(ctx context.Context) error {
	m, r := s.m, s.round
	m.mu.Lock()
	s.end()
	mine := slices.Collect(maps.Keys(s.files))
	r.signal()
	m.mu.Unlock()
	t := time.NewTimer(m.linger)
	defer t.Stop()
	for lingered := false; ; {
		m.mu.Lock()
		complete := m.complete(r)
		if complete {
			m.measured(r)
		}
		waiting, closing := mine[:0:0], mine[:0:0]
		for _, f := range mine {
			select {
			case <-f.done:
				continue
			default:
			}
			f.last = f.last || complete || lingered
			if waiting = append(waiting, f); m.closable(r, f) {
				closing = append(closing, f)
			}
		}
		changed := r.changed
		m.mu.Unlock()
		var wg sync.WaitGroup
		for _, f := range closing {
			wg.Go(func() { m.close(r, f) })
		}
		wg.Wait()
		if len(closing) > 0 {
			continue
		}
		if len(waiting) == 0 {
			break
		}
		select {
		case <-changed:
		case <-t.C:
			lingered = true
		case <-ctx.Done():
			s.giveUp()
			return context.Cause(ctx)
		}
	}
	var errs []error
	for _, f := range mine {
		errs = append(errs, f.err) // it is closed, and does not change any more
	}
	return errors.Join(errs...)
}

// Discard gives up what was stored. All streams have ended.
func (s *Sink) Discard() {
	s.m.mu.Lock()
	open := s.end()
	s.m.mu.Unlock()
	if open {
		s.giveUp()
	}
}

// giveUp says that nobody will refer to what was stored.
func (s *Sink) giveUp() {
	m, r := s.m, s.round
	m.mu.Lock()
	r.whole = false
	var closing []*file
	for _, f := range append([]*file(nil), r.files...) {
		if delete(f.owners, s); m.closable(r, f) {
			closing = append(closing, f)
		}
	}
	r.signal()
	m.mu.Unlock()
	for _, f := range closing {
		m.close(r, f)
	}
}

// stream implements state.Stream. It is used by one goroutine.
type stream struct {
	ctx   context.Context //nolint:containedctx // lives as long as the content being written
	sink  *Sink
	scope state.Scope
	buf   []byte
	crc   uint32
	size  int64
	file  *file // taken, when there is too much to keep
	start int64 // of the content in it
	stop  func() bool
	err   error
	done  bool
}

var errEnded = errors.New("merge: write state file: already committed or aborted")

func (s *stream) Write(p []byte) (int, error) {
	if s.done {
		return 0, errEnded
	}
	if s.err == nil && s.file == nil && s.size+int64(len(p)) > holdBytes {
		s.err = s.take(true)
	}
	if s.err == nil && s.file != nil {
		_, s.err = s.file.w.Write(p)
	}
	if s.err != nil {
		return 0, s.err
	}
	if s.file == nil {
		s.buf = append(s.buf, p...)
	}
	s.crc = crc32.Update(s.crc, castagnoli, p)
	s.size += int64(len(p))
	return len(p), nil
}

// take takes a file and writes what was kept.
func (s *stream) take(long bool) error {
	f, err := s.sink.m.take(s.ctx, s.sink, s.scope, long)
	if err != nil {
		return err
	}
	s.file, s.start = f, f.size
	s.stop = context.AfterFunc(s.ctx, f.cancel)
	_, err = f.w.Write(s.buf)
	s.buf = nil
	return err
}

// giveBack ends the stream's use of its file, in which its content is needed if nothing went wrong.
func (s *stream) giveBack(needed bool) {
	if s.file == nil {
		return
	}
	if !s.stop() && s.err == nil {
		s.err = context.Cause(s.ctx) // the file's context has ended with it
	}
	s.sink.m.giveBack(s.file, s.sink, s.size, needed && s.err == nil, s.err)
}

func (s *stream) Commit() (state.FileRef, error) {
	if s.done {
		return state.FileRef{}, errEnded
	}
	s.done = true
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	ref := state.FileRef{Size: s.size, CRC32C: s.crc}
	if s.err == nil && s.file == nil {
		if s.size <= s.sink.to.Threshold() {
			if ref.Inline = s.buf; ref.Inline == nil {
				ref.Inline = []byte{}
			}
			return ref, nil
		}
		s.err = s.take(false)
	}
	s.giveBack(true)
	if s.err != nil {
		return state.FileRef{}, s.err
	}
	ref.Name, ref.Scope, ref.Part, ref.Offset = s.file.name, s.file.scope, true, s.start
	s.sink.wrote(ref)
	return ref, nil
}

// wrote counts what was stored as in use.
func (s *Sink) wrote(ref state.FileRef) {
	if ref.Scope != state.Shared {
		return
	}
	name := path.Base(ref.Name)
	s.m.mu.Lock()
	s.round.live[name] += ref.Size
	s.m.ends[name] = max(s.m.ends[name], ref.Offset+ref.Size)
	s.m.mu.Unlock()
}

func (s *stream) Abort() {
	if s.done {
		return
	}
	s.done, s.buf = true, nil
	s.giveBack(false)
}
