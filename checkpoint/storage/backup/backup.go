// Package backup keeps copies of the state files of a job's latest checkpoint on the local disk, so that a worker that replaces another one
// restores without reading the checkpoint's folder. It is layer L2, part of checkpoint/storage.
//
// Layout: <folder>/chk-<n>/<file>, one folder for each disk. The folders are the TaskManager's, which removes them when the job has ended
// there; they outlive the worker's process.
//
// Invariants:
//
//  1. A copy has the name of its state file, which is random and never used twice. So whoever restores finds by the names in its handles
//     what fits, and nothing else; no number of a subtask or a checkpoint has to be compared.
//  2. A copy is used only when its size and checksum are those that the checkpoint says.
//  3. No fault of a copy fails a checkpoint or a restore: what cannot be kept or used is read from the checkpoint's folder.
//  4. Copies of checkpoint n are removed when a later one has completed, or when n was aborted.
//
// Source: Flink's TaskLocalStateStoreImpl, and its state.backend.local-recovery.
package backup

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/state"
)

// prefix is of the folder of one checkpoint's copies.
const prefix = "chk-"

// Store is a job's copies on one machine. A nil Store keeps nothing. Safe for concurrent use.
type Store struct {
	dirs []string
	log  zerolog.Logger
	disk disk

	mu     sync.Mutex
	failed map[int64]bool // checkpoints of whose copy something is missing, told in the log
	wg     sync.WaitGroup // removals
}

// disk is what writes copies.
type disk interface {
	MkdirAll(dir string) error
	Link(from, to string) error
	Create(path string) (io.WriteCloser, error)
}

// New returns a store in dirs, which need not exist; nil without any.
func New(dirs []string, log zerolog.Logger) *Store {
	if len(dirs) == 0 {
		return nil
	}
	return &Store{dirs: dirs, log: log, disk: osDisk{}, failed: map[int64]bool{}}
}

// Close waits for what is being removed. The copies stay.
func (s *Store) Close() {
	if s != nil {
		s.wg.Wait()
	}
}

// Completed removes the copies of the checkpoints before id. It returns at once.
func (s *Store) Completed(id int64) { s.remove(func(n int64) bool { return n < id }) }

// Aborted removes the copies of checkpoint id. It returns at once. What a task makes that hears of it later is removed by Completed.
func (s *Store) Aborted(id int64) { s.remove(func(n int64) bool { return n == id }) }

func (s *Store) remove(which func(int64) bool) {
	if s == nil {
		return
	}
	s.wg.Go(func() { // unlinking large files takes its time
		s.each(func(id int64, dir string) {
			if !which(id) {
				return
			}
			if err := os.RemoveAll(dir); err != nil {
				s.log.Warn().Err(err).Str("dir", dir).Msg("local copies of a checkpoint could not be removed")
			}
		})
		s.mu.Lock()
		for id := range s.failed {
			if which(id) {
				delete(s.failed, id)
			}
		}
		s.mu.Unlock()
	})
}

// each calls fn for the folder of each checkpoint.
func (s *Store) each(fn func(id int64, dir string)) {
	for _, d := range s.dirs {
		entries, err := os.ReadDir(d)
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			s.log.Warn().Err(err).Str("dir", d).Msg("local copies of checkpoints cannot be listed")
		}
		for _, e := range entries {
			n, ok := strings.CutPrefix(e.Name(), prefix)
			id, err := strconv.ParseInt(n, 10, 64)
			if ok && err == nil && e.IsDir() {
				fn(id, filepath.Join(d, e.Name()))
			}
		}
	}
}

// miss tells, once for each checkpoint, that its copy is not whole.
func (s *Store) miss(id int64, err error) {
	s.mu.Lock()
	told := s.failed[id]
	s.failed[id] = true
	s.mu.Unlock()
	if told {
		return
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("no space left (execution.checkpointing.local-backup.dirs): %w", err)
	}
	s.log.Warn().Err(err).Int64("checkpoint_id", id).Msg("no local copy of all of the checkpoint's state; the checkpoint itself does not need it")
}

// folder makes the folder of a checkpoint on a disk.
func (s *Store) folder(id int64, at int) (string, error) {
	dir := filepath.Join(s.dirs[at%len(s.dirs)], prefix+strconv.FormatInt(id, 10))
	return dir, s.disk.MkdirAll(dir)
}

// name is the name of a file's copy, "" for inline content.
func name(ref state.FileRef) string {
	if ref.Name == "" {
		return ""
	}
	if ref.Part {
		return path.Base(ref.Name) + "@" + strconv.FormatInt(ref.Offset, 10)
	}
	return path.Base(ref.Name)
}

// osDisk is the machine's.
type osDisk struct{}

func (osDisk) MkdirAll(dir string) error  { return os.MkdirAll(dir, 0o700) }
func (osDisk) Link(from, to string) error { return os.Link(from, to) }
func (osDisk) Create(path string) (io.WriteCloser, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}
