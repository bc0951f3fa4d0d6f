// Package merge puts the small state files that the tasks of one job write in one process together into few files, so that small state does
// not make thousands of files in HDFS (execution.checkpointing.file-merging.enabled). It is layer L2, part of checkpoint/storage.
//
// Main flow: each task that takes part in a checkpoint has a Sink. A stream keeps its content until it is committed, or until it has more than
// holdBytes; then it takes one of the checkpoint's open files, appends to it, and gives it back. What comes back is a reference to a part of
// that file (state.FileRef.Part). Seal, before the task acknowledges, waits until the files are closed: whoever is the last of the process's
// tasks closes them, or who has waited for lingering.
//
// Invariants:
//
//  1. A task acknowledges after all files that it has content in were closed. Nothing is appended to a file that was closed.
//  2. A file holds content of one checkpoint and one scope, so it is deleted as other files are: an exclusive one with its checkpoint's
//     directory, a shared one when no checkpoint refers to any part of it (storage/shared counts files, not parts). Its name tells the
//     checkpoint, so that what a crash leaves is swept.
//  3. A file that nobody has content in any more, because all who wrote to it gave up, is removed.
//  4. One write is under way in a file at a time, and no lock is held over it. When its task gives up meanwhile, the file is lost to all.
//
// Source: Flink FileMergingSnapshotManager (FLIP-306), within one checkpoint.
package merge

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// Config says how large and how shared files become.
type Config struct {
	MaxFileSize      int64   // a file of this size takes no more, bytes
	MaxSubtasks      int     // that have content in one file
	MaxAmplification float64 // of a shared file's size over what of it is in use, before what is in use is stored anew; below 1 for any
}

const (
	// lingering is how long the files of a checkpoint wait for tasks whose barrier has not come yet. Those that come later have other files.
	lingering = 500 * time.Millisecond
	// rounds is of how many checkpoints it is known which tasks have ended their part.
	rounds = 8
)

// Merger is of one job in one process. Safe for concurrent use. A nil Merger knows no tasks, and has no Sinks.
type Merger struct {
	cfg    Config
	linger time.Duration

	mu     sync.Mutex
	tasks  map[string]bool // that are alive
	rounds []*round        // oldest first
	// live are the bytes that the last checkpoint of all tasks refers to, by shared file; ends are how long these files are, as far as seen.
	live, ends map[string]int64
}

// New returns a Merger without tasks.
func New(cfg Config) *Merger {
	return &Merger{cfg: cfg, linger: lingering, tasks: map[string]bool{}, live: map[string]int64{}, ends: map[string]int64{}}
}

// Join says that a task is alive: the files of a checkpoint wait for its part. Leave says that it is not any more.
func (m *Merger) Join(task string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.tasks[task] = true
	m.mu.Unlock()
}

// Leave is explained at Join.
func (m *Merger) Leave(task string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	delete(m.tasks, task)
	for _, r := range m.rounds {
		r.signal() // those who wait close the files
	}
	m.mu.Unlock()
}

// round is a checkpoint.
type round struct {
	dir     string
	open    map[*Sink]bool // neither sealed nor given up
	ended   map[string]bool
	files   []*file
	live    map[string]int64 // bytes by shared file
	whole   bool             // nobody has given up
	changed chan struct{}    // closed and replaced when something that others wait for has changed
}

func (r *round) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// round finds or makes the round of a checkpoint; m.mu is held.
func (m *Merger) round(dir string) *round {
	for _, r := range m.rounds {
		if r.dir == dir {
			return r
		}
	}
	if len(m.rounds) >= rounds && len(m.rounds[0].open) == 0 && len(m.rounds[0].files) == 0 {
		m.rounds = m.rounds[1:]
	}
	r := &round{dir: dir, open: map[*Sink]bool{}, ended: map[string]bool{}, live: map[string]int64{}, whole: true, changed: make(chan struct{})}
	m.rounds = append(m.rounds, r)
	return r
}

// complete reports whether no task that is alive has anything to add; m.mu is held.
func (m *Merger) complete(r *round) bool {
	if len(r.open) > 0 {
		return false
	}
	for t := range m.tasks {
		if !r.ended[t] {
			return false
		}
	}
	return true
}

// file is a file that several tasks write to. All but what its taker uses is guarded by Merger.mu.
type file struct {
	scope  state.Scope
	w      fs.Writer // of its taker
	uri    string
	name   string
	size   int64
	taken  bool // by a stream, or by who closes it
	long   bool // for longer than one write
	last   bool // it is to be closed
	owners map[*Sink]bool
	cancel context.CancelFunc
	done   chan struct{} // closed when it is
	err    error
}

// take finds a file to append to, or makes one. Who takes it for long waits for nobody.
func (m *Merger) take(ctx context.Context, s *Sink, scope state.Scope, long bool) (*file, error) {
	for {
		m.mu.Lock()
		var wait bool
		for _, f := range s.round.files {
			if f.scope != scope || f.last || f.err != nil || f.size >= m.cfg.MaxFileSize || !f.owners[s] && len(f.owners) >= max(m.cfg.MaxSubtasks, 1) {
				continue
			}
			if !f.taken {
				f.taken, f.long, f.owners[s] = true, long, true
				s.files[f] += 0
				m.mu.Unlock()
				return f, nil
			}
			wait = wait || !f.long
		}
		changed := s.round.changed
		if !wait || long {
			f := &file{scope: scope, taken: true, long: long, owners: map[*Sink]bool{s: true}, done: make(chan struct{})}
			s.round.files, s.files[f] = append(s.round.files, f), 0
			m.mu.Unlock()
			return f, m.create(f, s)
		}
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// create opens a file that was taken. Its context is its own: it serves several tasks.
func (m *Merger) create(f *file, s *Sink) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	if f.w, f.uri, f.name, err = s.to.NewFile(ctx, f.scope); err != nil {
		m.giveBack(f, s, 0, false, err)
	}
	return err
}

// giveBack ends a taking after which the file has n more bytes, which somebody needs or nobody, or is lost. Who gave it back last closes it when
// it is to be closed.
func (m *Merger) giveBack(f *file, s *Sink, n int64, needed bool, err error) {
	m.mu.Lock()
	if needed {
		s.files[f]++
	} else if s.files[f] == 0 {
		delete(s.files, f)
		delete(f.owners, s)
	}
	f.size += n
	f.taken, f.long = false, false
	if f.err == nil {
		f.err = err
	}
	if f.err != nil {
		f.last = true
	}
	mine := m.closable(s.round, f)
	s.round.signal()
	m.mu.Unlock()
	if mine {
		m.close(s.round, f)
	}
}

// closable takes a file that is to be closed, if nobody else has it; m.mu is held.
func (m *Merger) closable(r *round, f *file) bool {
	if len(f.owners) == 0 {
		f.last = true
	}
	if !f.last || f.taken {
		return false
	}
	f.taken = true
	for i := range r.files {
		if r.files[i] == f {
			r.files = append(r.files[:i:i], r.files[i+1:]...)
			break
		}
	}
	return true
}

// close closes a file that closable has taken, or removes it when nobody needs it.
func (m *Merger) close(r *round, f *file) {
	m.mu.Lock()
	needed, err := len(f.owners) > 0, f.err
	m.mu.Unlock()
	switch {
	case f.w == nil:
	case err != nil || !needed:
		err = errors.Join(err, f.w.Abort()) // what stays behind is swept
	default:
		err = storage.CloseFile(f.w, f.uri)
	}
	f.cancel()
	m.mu.Lock()
	f.err = err
	close(f.done)
	r.signal()
	m.mu.Unlock()
}

// measured makes the bytes in use of a round those that the next one decides by; m.mu is held.
func (m *Merger) measured(r *round) {
	if !r.whole {
		return
	}
	r.whole = false // once
	m.live = r.live
	for name := range m.ends {
		if r.live[name] == 0 {
			delete(m.ends, name)
		}
	}
}

// reuse decides whether a part of a shared file goes on being referred to.
func (m *Merger) reuse(r *round, ref state.FileRef) bool {
	if !ref.Part {
		return true
	}
	name := path.Base(ref.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[name] = max(m.ends[name], ref.Offset+ref.Size)
	if live, known := m.live[name]; known && m.cfg.MaxAmplification >= 1 && float64(m.ends[name]) > m.cfg.MaxAmplification*float64(live) {
		return false
	}
	r.live[name] += ref.Size
	return true
}
