// Package extsort sorts records that may be more than memory holds: records gather in memory, full memories are sorted and written as runs
// to a local folder, and runs are merged. It is layer L0.
//
// Main flow: New, Add ..., Sort, Iterator.Next ..., Close. One goroutine.
//
// Invariants:
//
//  1. Records come out in the order of their keys (bytes.Compare), those of equal keys in the order in which they were added.
//  2. What an Iterator returns stays as it is for ever: its memory is not used again.
//  3. Close removes every file, whenever it comes.
package extsort

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Config sizes a Sorter.
type Config struct {
	// Dir is the folder of the runs. It is made when the first one is written.
	Dir string
	// Memory is about how many bytes of records are held, default 32 MiB. One record more is always taken.
	Memory int64
	// FanIn is how many runs are merged at once, default 64, at least 2: each costs a buffer of BlockSize.
	FanIn int
	// BlockSize is how many bytes of a run are read at once, default 64 KiB.
	BlockSize int
	// Interrupt is called now and then while runs are written and merged; its error ends that. Nil for never.
	Interrupt func() error
}

// Sorter takes records, then sorts them.
type Sorter struct {
	cfg     Config
	entries []entry
	chunk   []byte // where the next record is copied to
	held    int64
	runs    []string
	made    int // runs ever written
	spilled int64
	sorted  bool
	open    []*os.File
}

// entry is a record in memory. prefix is the key's first eight bytes, which decide most comparisons.
type entry struct {
	prefix     uint64
	key, value []byte
	seq        int
}

// entrySize is what an entry costs beside its bytes.
const entrySize = 64

// ErrSorted is returned by Add after Sort.
var ErrSorted = errors.New("extsort: records are added after they were sorted")

// New makes a Sorter.
func New(cfg Config) *Sorter {
	if cfg.Memory <= 0 {
		cfg.Memory = 32 << 20
	}
	if cfg.FanIn == 0 {
		cfg.FanIn = 64
	}
	cfg.FanIn = max(cfg.FanIn, 2)
	if cfg.BlockSize <= 0 {
		cfg.BlockSize = 64 << 10
	}
	return &Sorter{cfg: cfg}
}

// Add takes a record; the slices are copied. Errors: of the disk, and ErrSorted.
func (s *Sorter) Add(key, value []byte) error {
	if s.sorted {
		return ErrSorted
	}
	n := len(key) + len(value)
	if s.held > 0 && s.held+int64(n+entrySize) > s.cfg.Memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if cap(s.chunk)-len(s.chunk) < n {
		s.chunk = make([]byte, 0, max(n, int(min(s.cfg.Memory/16+1, 256<<10))))
	}
	at := len(s.chunk)
	s.chunk = append(append(s.chunk, key...), value...)
	rec := s.chunk[at:len(s.chunk):len(s.chunk)]
	k := rec[:len(key):len(key)]
	s.entries = append(s.entries, entry{prefix(k), k, rec[len(key):], len(s.entries)})
	s.held += int64(n + entrySize)
	return nil
}

// Spilled is how many bytes were written to disk so far.
func (s *Sorter) Spilled() int64 { return s.spilled }

func prefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func (s *Sorter) sortEntries() {
	slices.SortFunc(s.entries, func(a, b entry) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return cmp.Compare(a.seq, b.seq)
	})
}

// spill writes what is held as a run.
func (s *Sorter) spill() error {
	s.sortEntries()
	w, err := s.newRun()
	if err != nil {
		return err
	}
	for i := range s.entries {
		err := s.interrupted(i)
		if err == nil {
			err = w.add(s.entries[i].key, s.entries[i].value)
		}
		if err != nil {
			return errors.Join(err, w.abort())
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	s.runs = append(s.runs, w.path)
	clear(s.entries)
	s.entries, s.chunk, s.held = s.entries[:0], nil, 0
	return nil
}

// Sort ends the adding and returns the records in order. What the Iterator reads is removed by Close.
func (s *Sorter) Sort() (*Iterator, error) {
	if s.sorted {
		return nil, ErrSorted
	}
	s.sorted = true
	if len(s.runs) == 0 {
		s.sortEntries()
		return &Iterator{memory: s.entries}, nil
	}
	if len(s.entries) > 0 {
		if err := s.spill(); err != nil {
			return nil, err
		}
	}
	s.entries, s.chunk = nil, nil
	for len(s.runs) > s.cfg.FanIn { // neighbours are merged, so that the order of equal keys stays
		if err := s.pass(); err != nil {
			return nil, err
		}
	}
	return s.merge(s.runs)
}

// pass merges each FanIn runs to one.
func (s *Sorter) pass() error {
	var next []string
	for group := range slices.Chunk(s.runs, s.cfg.FanIn) {
		if len(group) == 1 {
			next = append(next, group[0])
			continue
		}
		path, err := s.mergeRuns(group)
		if err != nil {
			return err
		}
		next = append(next, path)
	}
	s.runs = next
	return nil
}

func (s *Sorter) mergeRuns(group []string) (path string, err error) {
	it, err := s.merge(group)
	if err != nil {
		return "", err
	}
	w, err := s.newRun()
	if err != nil {
		return "", err
	}
	for n := 0; ; n++ {
		key, value, ok, err := it.Next()
		if err == nil && ok {
			err = w.add(key, value)
		}
		if err == nil {
			err = s.interrupted(n)
		}
		if err != nil {
			return "", errors.Join(err, w.abort())
		}
		if !ok {
			break
		}
	}
	if err := w.finish(); err != nil {
		return "", err
	}
	if err := s.closeRuns(); err != nil {
		return "", err
	}
	for _, old := range group {
		if err := os.Remove(old); err != nil {
			return "", fmt.Errorf("extsort: remove a merged run: %w", err)
		}
	}
	return w.path, nil
}

// interrupted asks whether to go on, each 1024 records.
func (s *Sorter) interrupted(n int) error {
	if n%1024 != 1023 || s.cfg.Interrupt == nil {
		return nil
	}
	return s.cfg.Interrupt()
}

func (s *Sorter) closeRuns() error {
	var all error
	for _, f := range s.open {
		all = errors.Join(all, f.Close())
	}
	s.open = nil
	if all != nil {
		return fmt.Errorf("extsort: close runs: %w", all)
	}
	return nil
}

// Close removes the files. The Iterator must not be used any more; a second call does nothing.
func (s *Sorter) Close() error {
	err := s.closeRuns()
	s.sorted, s.entries, s.chunk, s.runs = true, nil, nil, nil
	if s.made > 0 {
		s.made = 0
		if rerr := os.RemoveAll(s.cfg.Dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("extsort: remove the runs: %w", rerr))
		}
	}
	return err
}

func (s *Sorter) newRun() (*runWriter, error) {
	if s.made == 0 {
		if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
			return nil, diskError("make the folder of spilled records", err)
		}
	}
	s.made++
	return newRunWriter(filepath.Join(s.cfg.Dir, fmt.Sprintf("run-%d", s.made)), &s.spilled)
}

// diskError says what to do about a full disk.
func diskError(what string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("extsort: %s: %w: make room there, or name larger disks with io.tmp.dirs", what, err)
	}
	return fmt.Errorf("extsort: %s: %w", what, err)
}
