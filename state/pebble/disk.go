package pebble

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	pdb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"
	"github.com/thalweg/thalweg/internal/failpoint"
)

const (
	retryPause = time.Second      // between two tries of a write that failed
	logPause   = 10 * time.Second // between two lines about it
)

// disk is the file system below the store, and what is known of its faults. Pebble tries a flush or compaction that failed again at once and
// for ever, and ends the process when its manifest cannot be written: here each table waits a moment after a fault, and what the manifest
// lacks is kept until it can be written. Whoever waits for the store is told by failure.
//
// Its lock is the innermost: Pebble calls the listener with its own held, and manifest its own.
type disk struct {
	vfs.FS
	dir   string
	log   zerolog.Logger
	pause time.Duration
	ended chan struct{} // closed by end

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change of the following
	flush    error         // of the latest flush, nil when it succeeded
	list     error         // of the latest write to the manifest
	compact  error         // of the latest compaction, nil when it succeeded
	dead     error         // after which the store cannot go on
	last     error         // what FlushEnd told
	failed   time.Time     // the latest fault; zero when all is well
	told     time.Time     // the latest line of the log
	untold   int           // faults since
	finished bool
	current  *manifest
}

func newDisk(below vfs.FS, dir string, log zerolog.Logger) *disk {
	return &disk{FS: volatileFS{below}, dir: dir, log: log, pause: retryPause, ended: make(chan struct{}), changed: make(chan struct{})}
}

// die notes a fault after which the store does nothing any more, not even close.
func (d *disk) die(err error) {
	d.change(func() {
		d.dead = err
		d.fault(err)
	})
}

// died is that fault, nil without one.
func (d *disk) died() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// end ends all waiting: the store is about to close and its files are not needed any more.
func (d *disk) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.finished {
		d.finished = true
		close(d.ended)
	}
}

// failure is the fault of the latest flush and of the latest compaction, nil when they succeeded; changed is closed when that changes.
func (d *disk) failure() (changed <-chan struct{}, flush, compact error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead != nil {
		return d.changed, d.dead, d.dead
	}
	return d.changed, d.flush, d.compact
}

// explain makes the first words of an error say what an operator can mend.
func (d *disk) explain(err error) error { return explain(d.dir, err) }

func explain(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("no space left on %s (io.tmp.dirs): %w", dir, err)
	}
	return err
}

func (d *disk) change(set func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.failed
	set()
	if d.flush == nil && d.compact == nil && d.list == nil && d.dead == nil {
		d.failed = time.Time{}
		if !was.IsZero() && !d.told.IsZero() {
			d.log.Info().Str("dir", d.dir).Msg("local state can be written again")
			d.told, d.untold = time.Time{}, 0
		}
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// fault notes and logs an error; d.mu is held.
func (d *disk) fault(err error) {
	now := time.Now()
	d.failed = now
	if d.finished {
		return
	}
	if d.untold++; d.told.IsZero() || now.Sub(d.told) >= logPause {
		d.log.Error().Err(d.explain(err)).Str("dir", d.dir).Int("times", d.untold).Msg("local state cannot be written; tried again")
		d.told, d.untold = now, 0
	}
}

// listener is told by Pebble of its background work. An empty flush ends with an error too, but is none: BackgroundError follows the others.
func listener(d *disk) *pdb.EventListener {
	return &pdb.EventListener{
		FlushEnd: func(i pdb.FlushInfo) {
			d.change(func() {
				d.last = i.Err
				if i.Err == nil {
					d.flush = nil
				}
			})
		},
		CompactionEnd: func(i pdb.CompactionInfo) {
			if i.Err == nil {
				d.change(func() { d.compact = nil })
			}
		},
		DataCorruption: func(i pdb.DataCorruptionInfo) { // the reader gets an error, too
			d.log.Error().Str("file", i.Path).Str("detail", strings.ReplaceAll(fmt.Sprint(i.Details), "\n", "; ")).Msg("a file of the local state is damaged")
		},
		BackgroundError: func(err error) {
			d.change(func() {
				if d.last != nil && errors.Is(err, d.last) {
					d.flush = err
				} else {
					d.compact = err
				}
				d.fault(err)
			})
		},
	}
}

// rest waits until the pause after the latest fault is over, or the end has come.
func (d *disk) rest() {
	d.mu.Lock()
	wait := time.Duration(0)
	if !d.failed.IsZero() {
		wait = time.Until(d.failed.Add(d.pause))
	}
	d.mu.Unlock()
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.ended:
	}
}

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, tableSuffix) {
		d.rest() // the work that failed is tried again; reads and writes of the store go on meanwhile
		if err := failpoint.Error("disk/create-table"); err != nil {
			return nil, err
		}
	}
	f, err := d.FS.Create(name, c)
	if d.PathDir(name) != d.PathJoin(d.dir, dbFolder) {
		return f, err
	}
	switch base := d.PathBase(name); {
	case strings.HasPrefix(base, "MANIFEST-"):
		m := &manifest{File: f, d: d, create: func() (vfs.File, error) { return d.FS.Create(name, c) }}
		if err != nil {
			m.File = nil
			m.fault(err)
		}
		d.mu.Lock()
		d.current = m
		d.mu.Unlock()
		return m, nil
	case strings.HasPrefix(base, "marker.") && err != nil: // says which manifest is the newest, for an Open that will not be
		return noFile{}, nil
	}
	return f, err
}

// manifest is the store's list of files. Its writes never fail, nor does making it: what the disk does not take waits in memory, some
// hundred bytes for each flush. Nobody reads the file but a snapshot and who has opened the store, which ask settled first.
type manifest struct {
	vfs.File // nil when it could not be made yet
	d        *disk
	create   func() (vfs.File, error)

	mu     sync.Mutex
	owed   []byte
	faults int
}

// Write implements vfs.File.
func (m *manifest) Write(p []byte) (int, error) {
	m.mu.Lock()
	m.owed = append(m.owed, p...)
	m.mu.Unlock()
	_, _ = m.settle() // told by disk.failure
	return len(p), nil
}

// Sync implements vfs.File: see volatileFS.
func (m *manifest) Sync() error { return nil }

// Preallocate implements vfs.File.
func (m *manifest) Preallocate(int64, int64) error { return nil }

// Close implements vfs.File.
func (m *manifest) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.File == nil {
		return nil
	}
	return m.File.Close()
}

func (m *manifest) fault(err error) {
	m.faults++
	m.d.change(func() { m.d.list = err; m.d.fault(err) })
}

// settle writes what is owed. It returns the number of faults until now.
func (m *manifest) settle() (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.File == nil {
		f, err := m.create()
		if err != nil {
			m.fault(err)
			return m.faults, err
		}
		m.File = f
	}
	for len(m.owed) > 0 {
		n, err := m.File.Write(m.owed)
		m.owed = m.owed[n:]
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			m.fault(err)
			return m.faults, err
		}
	}
	m.owed = nil
	m.d.change(func() { m.d.list = nil })
	return m.faults, nil
}

// noFile is an empty file that is not there.
type noFile struct{ vfs.File }

func (noFile) Sync() error  { return nil }
func (noFile) Close() error { return nil }

// settled makes sure that the manifest is whole. faults is the same number as long as it is.
func (d *disk) settled() (faults int, err error) {
	d.mu.Lock()
	m := d.current
	d.mu.Unlock()
	if m == nil {
		return 0, nil
	}
	return m.settle()
}
