package pebble_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/pebble"
	"github.com/thalweg/thalweg/state/statetest"
)

// fullFS is a disk on which files whose names contain what can be full.
type fullFS struct {
	vfs.FS
	what string
	full atomic.Bool
	none atomic.Bool // nor can such files be made
}

type fullFile struct {
	vfs.File
	fs   *fullFS
	name string
}

func (f *fullFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.none.Load() && strings.Contains(filepath.Base(name), f.what) {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.ENOSPC}
	}
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.Contains(filepath.Base(name), f.what) {
		return file, err
	}
	return &fullFile{file, f, name}, nil
}

func (f *fullFile) Write(p []byte) (int, error) {
	if f.fs.full.Load() {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	return f.File.Write(p)
}

// lines is a log that counts its lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

type diskCase struct {
	t     *testing.T
	fs    *fullFS
	log   lines
	b     *pebble.Backend
	table state.Table[int64, []byte]
	keys  *state.Hasher[int64]
	store *statetest.Store
	ckpt  int64
	dir   string
}

func newDiskCase(t *testing.T, what string, o pebble.Options) *diskCase {
	c := &diskCase{t: t, fs: &fullFS{FS: vfs.Default, what: what}, keys: state.NewHasher(serde.Must[int64]()), store: &statetest.Store{}}
	cfg := c.config()
	c.dir = cfg.Dir
	b, err := pebble.NewWithOptions(cfg, o.On(c.fs))
	if err != nil {
		t.Fatal(err)
	}
	b.SetRetryPause(20 * time.Millisecond)
	c.b = b
	c.open()
	return c
}

func (c *diskCase) config(hs ...state.Handle) state.Config {
	return state.Config{Range: state.Range{End: 8}, MaxParallelism: 8, Dir: filepath.Join(c.t.TempDir(), "state"), Logger: zerolog.New(&c.log), Restore: hs, Source: c.store}
}

func (c *diskCase) open() {
	c.t.Helper()
	t, err := pebble.OpenTable(c.b, state.TableDesc[int64, []byte]{Name: "rows", Key: serde.Must[int64](), Value: serde.Must[[]byte]()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.table = t
}

func (c *diskCase) put(k int64, size int) error {
	return c.table.Put(state.KeyOf(c.keys, k, 8), 0, bytes.Repeat([]byte{byte(k)}, size))
}

// snapshot is the task's half and the other.
func (c *diskCase) snapshot() (state.Handle, error) {
	c.t.Helper()
	c.ckpt++
	s, err := c.b.Snapshot(c.ckpt, false)
	if err != nil {
		c.t.Fatalf("the task failed with its checkpoint: %v", err)
	}
	return s.Write(context.Background(), c.store)
}

func (c *diskCase) full(fn func()) {
	c.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		c.t.Fatal("hangs on a full disk")
	}
}

// A full disk fails the checkpoint at once, with reason and folder, and not the task; the log stays readable; with space again checkpoints go on
// and nothing is missing.
func TestFullDisk(t *testing.T) {
	for _, what := range []string{".sst", "MANIFEST"} {
		t.Run(what, func(t *testing.T) {
			c := newDiskCase(t, what, pebble.Options{})
			for k := range int64(100) {
				if err := c.put(k, 100); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.snapshot(); err != nil {
				t.Fatal(err)
			}
			c.fs.full.Store(true)
			for round := range int64(5) {
				if err := c.put(1000+round, 100); err != nil {
					t.Fatal(err)
				}
				c.full(func() {
					_, err := c.snapshot()
					if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on "+c.dir) {
						t.Errorf("checkpoint on a full disk: %v", err)
					}
				})
			}
			if n := c.log.count(`"level":"error"`); n != 1 {
				t.Errorf("%d lines about it:\n%s", n, c.log.buf.String())
			}
			c.fs.full.Store(false)
			var h state.Handle
			deadline := time.Now().Add(time.Minute)
			for {
				var err error
				if h, err = c.snapshot(); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("with space again: %v", err)
				}
			}
			if c.log.count("can be written again") != 1 {
				t.Error("no word of the end of it")
			}
			if err := c.b.Close(); err != nil {
				t.Fatal(err)
			}
			b, err := pebble.New(c.config(h))
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close() //nolint:errcheck // read only
			c.b = b
			c.open()
			for _, k := range []int64{0, 99, 1000, 1004} {
				if v, ok, err := c.table.Get(state.KeyOf(c.keys, k, 8), 0); err != nil || !ok || len(v) != 100 {
					t.Errorf("key %d: %d bytes, %v, %v", k, len(v), ok, err)
				}
			}
		})
	}
}

// A store that cannot be opened for want of space says so, whichever of its files has none; it opens when there is space again.
func TestFullDiskOpening(t *testing.T) {
	for _, what := range []string{"MANIFEST", ".dbtmp", ".log", ".sst"} {
		t.Run(what, func(t *testing.T) {
			c := newDiskCase(t, what, pebble.Options{MemoryBytes: 8 << 20})
			var h state.Handle
			for k := range int64(12) { // several tables, which are merged
				if err := c.put(k, 1000); err != nil {
					t.Fatal(err)
				}
				var err error
				if h, err = c.snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.b.Close(); err != nil {
				t.Fatal(err)
			}
			for _, full := range []*atomic.Bool{&c.fs.full, &c.fs.none} {
				full.Store(true)
				for range 5 {
					cfg := c.config(h)
					c.full(func() {
						b, err := pebble.NewWithOptions(cfg, pebble.Options{MemoryBytes: 8 << 20}.On(c.fs))
						if err == nil { // what is full is not needed to open it
							if err := b.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
								t.Error(err)
							}
							return
						}
						if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on "+cfg.Dir) {
							t.Error(err)
						}
					})
				}
				full.Store(false)
			}
			b, err := pebble.New(c.config(h))
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close() //nolint:errcheck // read only
			c.b = b
			c.open()
			for k := range int64(12) {
				if v, ok, err := c.table.Get(state.KeyOf(c.keys, k, 8), 0); err != nil || !ok || len(v) != 1000 {
					t.Errorf("key %d: %d bytes, %v, %v", k, len(v), ok, err)
				}
			}
		})
	}
}

// State that outgrows its memory on a full disk is an error of the task that says so, not a wait without end; and the backend can be closed.
func TestFullDiskEviction(t *testing.T) {
	c := newDiskCase(t, ".sst", pebble.Options{CacheBytes: 1 << 20, BlockCacheBytes: 8 << 20, MemTableBytes: 1 << 20})
	c.fs.full.Store(true)
	c.full(func() {
		var err error
		for k := int64(0); k < 1<<20 && err == nil; k++ {
			err = c.put(k, 1000)
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on "+c.dir) {
			t.Errorf("writes on a full disk: %v", err)
		}
	})
	c.full(func() {
		if err := c.b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// A backend whose manifest cannot be written can be closed, without a panic.
func TestFullDiskClose(t *testing.T) {
	c := newDiskCase(t, "MANIFEST", pebble.Options{})
	c.b.SetRetryPause(time.Hour)
	c.fs.full.Store(true)
	if err := c.put(1, 100); err != nil {
		t.Fatal(err)
	}
	c.full(func() {
		if _, err := c.snapshot(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("checkpoint: %v", err)
		}
		if err := c.b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}
