package operator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// stateful is a context with keyed state in mem://test/cp.
func stateful(t *testing.T, reg *fs.Registry, backend string, restore ...state.Handle) *Context {
	t.Helper()
	return &Context{Services: &services{}, Name: "totals", UID: "t", Parallelism: 1, MaxParallelism: 16, Config: config.Configuration{"state.backend.type": backend},
		Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}, StateDir: filepath.Join(t.TempDir(), "state"), StateMemory: 32 << 20,
		StateSource: storage.NewSource(reg), State: metadata.Subtask{Keyed: restore}}
}

const (
	exclusive = "mem://test/cp/chk-1"
	shared    = "mem://test/cp/shared"
)

// stored is a checkpoint of 3,000 entries.
func stored(t *testing.T, reg *fs.Registry, backend string) state.Handle {
	t.Helper()
	c := stateful(t, reg, backend)
	table, err := OpenTable(c, "sums", serde.Must[string](), serde.Must[int64]())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := table.Put(keyOf(fmt.Sprintf("key-%d", i), 16), 0, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.keyed.Snapshot(1, false)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Write(context.Background(), storage.NewSink(reg, exclusive, shared, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.keyed.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range h.Files {
		h.Files[i].Ref.Base = exclusive
	}
	return h
}

func keyOf(k string, maxParallelism int) state.Key[string] {
	b := serde.Must[string]().Append(nil, k)
	h := state.Hash32(b)
	return state.Key[string]{Key: k, Hash: h, Group: state.GroupOf(h, maxParallelism)}
}

// A state file that is not what the checkpoint says fails the task for good, with one line that names the file by its full path, the
// operator once, and what to do.
func TestDamagedStateFileIsFatal(t *testing.T) {
	damages := map[string]func(f fs.FileSystem, p string, content []byte) error{
		"removed": func(f fs.FileSystem, p string, _ []byte) error { return f.Remove(context.Background(), p, false) },
		"truncated": func(f fs.FileSystem, p string, b []byte) error {
			return fs.WriteFile(context.Background(), f, p, b[:len(b)*3/4], true)
		},
		"empty": func(f fs.FileSystem, p string, _ []byte) error {
			return fs.WriteFile(context.Background(), f, p, nil, true)
		},
		"flipped": func(f fs.FileSystem, p string, b []byte) error {
			b[len(b)/2] ^= 4
			return fs.WriteFile(context.Background(), f, p, b, true)
		},
		"a folder": func(f fs.FileSystem, p string, _ []byte) error {
			return errors.Join(f.Remove(context.Background(), p, false), f.Mkdir(context.Background(), p, 0o700))
		},
	}
	for _, backend := range []string{"hashmap", "pebble"} {
		for name, damage := range damages {
			t.Run(backend+"/"+name, func(t *testing.T) {
				reg := &fs.Registry{}
				mem.Register(reg)
				h := stored(t, reg, backend)
				damaged := 0
				for _, file := range h.Files {
					uri := file.Ref.Path()
					if uri == "" {
						continue
					}
					damaged++
					f, p, err := reg.Resolve(t.Context(), uri)
					if err != nil {
						t.Fatal(err)
					}
					content, err := fs.ReadFile(t.Context(), f, p, 1<<30)
					if err != nil {
						t.Fatal(err)
					}
					if err := damage(f, p, append([]byte(nil), content...)); err != nil {
						t.Fatal(err)
					}
					c := stateful(t, reg, backend, h)
					_, err = OpenTable(c, "sums", serde.Must[string](), serde.Must[int64]())
					if err == nil {
						t.Fatalf("%s: restored", uri)
					}
					err = c.wrap(err) // as when a user's function opens it
					var fatal interface{ Fatal() bool }
					var user *UserError
					text := err.Error()
					if !errors.As(err, &fatal) || !fatal.Fatal() || !errors.As(err, &user) || user.Operator != c.Describe() || strings.Count(text, "totals") != 1 ||
						!strings.Contains(text, "state file "+uri+" ") || !strings.HasSuffix(text, another) || strings.Contains(text, "\n") || strings.Contains(text, "canceled") {
						t.Errorf("fatal %v: %q", fatal, text)
					}
					if err := (&KeyedBase{Ctx: c}).Close(); err != nil {
						t.Fatal(err)
					}
					_ = f.Remove(t.Context(), p, true)
					if err := fs.WriteFile(t.Context(), f, p, content, true); err != nil {
						t.Fatal(err)
					}
				}
				if damaged == 0 {
					t.Fatal("no files")
				}
				c := stateful(t, reg, backend, h)
				if _, err := OpenTable(c, "sums", serde.Must[string](), serde.Must[int64]()); err != nil {
					t.Fatalf("the sound checkpoint: %v", err)
				}
				if err := (&KeyedBase{Ctx: c}).Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// State of another type than the program's is no use to try again either; a file system that does not serve is.
func TestWhatARestartMayHeal(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			reg := &fs.Registry{}
			mem.Register(reg)
			h := stored(t, reg, backend)
			c := stateful(t, reg, backend, h)
			var fatal interface{ Fatal() bool }
			c.opening = true
			if _, err := OpenTable(c, "sums", serde.Must[int64](), serde.Must[int64]()); err != nil { // what else does not fit is looked for
				t.Error(err)
			}
			if err := error(c.misfit()); !errors.As(err, &fatal) || !fatal.Fatal() || !strings.Contains(err.Error(), "the key changed") {
				t.Errorf("another key: %v", err)
			}
			if err := (&KeyedBase{Ctx: c}).Close(); err != nil {
				t.Fatal(err)
			}
			c = stateful(t, reg, backend, h)
			c.StateSource = away{}
			if _, err := OpenTable(c, "sums", serde.Must[string](), serde.Must[int64]()); !errors.Is(err, fs.ErrUnavailable) || errors.As(err, &fatal) {
				t.Errorf("unavailable: %v", err)
			}
			if err := (&KeyedBase{Ctx: c}).Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type away struct{}

func (away) Open(context.Context, state.FileRef) (fs.Reader, error) { return nil, fs.ErrUnavailable }
