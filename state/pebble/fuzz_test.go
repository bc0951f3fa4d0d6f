package pebble

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// Files that are packed together come apart in their folder, and nowhere else.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x01a\x03xyz\x02bc\x00"))
	f.Add([]byte("\x04../a\x01x"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		root := t.TempDir()
		dir := filepath.Join(root, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = unpackFiles(dir, b)
		if all, err := os.ReadDir(root); err != nil || len(all) != 1 {
			t.Fatalf("%v %v", all, err)
		}
	})
}

const fuzzGroups = 4

// inline is a sink, and a source, of content that stays in the handles.
type inline struct{}

type inlineStream struct{ bytes.Buffer }

func (inline) Create(context.Context, state.Scope) (state.Stream, error) { return &inlineStream{}, nil }
func (inline) Open(context.Context, state.FileRef) (fs.Reader, error) {
	return nil, errors.New("there are no files")
}

func (s *inlineStream) Abort() {}
func (s *inlineStream) Commit() (state.FileRef, error) {
	b := append([]byte{}, s.Bytes()...)
	return state.FileRef{Inline: b, Size: int64(len(b)), CRC32C: crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))}, nil
}

// fuzzed is a backend with a table and timers, of which handles are restored; folder is its own.
func fuzzed(folder string, rng state.Range, src state.Source, restore ...state.Handle) (*Backend, state.Table[string, string], state.Timers[string], error) {
	b, err := New(state.Config{Range: rng, MaxParallelism: fuzzGroups, Dir: folder, MemoryBytes: 16 << 20, Restore: restore, Source: src})
	if err != nil {
		return nil, nil, nil, err
	}
	str := serde.Must[string]()
	table, err := OpenTable(b, state.TableDesc[string, string]{Name: "t", Key: str, Value: str})
	var timers state.Timers[string]
	if err == nil {
		timers, err = OpenTimers(b, state.TimersDesc[string]{Name: "x", Key: str})
	}
	return b, table, timers, err
}

// try restores a handle, as a whole or in part, reads what it holds, and stores it again. It fails on what a task would fail on, too.
func try(t *testing.T, h state.Handle, src state.Source) {
	for _, rng := range []state.Range{{End: fuzzGroups}, {Start: 1, End: 3}} {
		b, table, timers, err := fuzzed(filepath.Join(t.TempDir(), "b"), rng, src, h)
		if err == nil {
			var all []state.Namespace
			if all, err = table.Namespaces(nil); err == nil {
				for _, ns := range all {
					err = errors.Join(err, table.Scan(ns, func(state.Key[string], *string) error { return nil }))
				}
			}
			timers.Next()
			err = errors.Join(err, timers.PopUntil(0, func(state.Key[string], state.Namespace, int64) error { return nil }))
			_ = b.Stored("t", rng, func(*serde.Schema, *canonical.Entry) error { return nil })
			_ = b.Stored("x", rng, func(*serde.Schema, *canonical.Entry) error { return nil })
			if s, serr := b.Snapshot(1, true); serr == nil {
				_, _ = s.Write(context.Background(), inline{})
			}
		}
		if b != nil {
			if cerr := b.Close(); cerr != nil && err == nil {
				t.Fatal(cerr)
			}
		}
	}
}

// A store may hold any keys and values, and any list of its states: what cannot be read is told.
func FuzzStored(f *testing.F) {
	f.Add(uint16(1), uint8(1), []byte("\x80\x00\x00\x00\x00\x00\x00\x00\x01k"), []byte("\x00\x01v"), []byte{})
	f.Add(uint16(2), uint8(2), []byte("short"), []byte{}, []byte{})
	f.Add(uint16(1), uint8(1), []byte{}, []byte{}, []byte(`{"version":1,"maxParallelism":4,"sets":[{"id":1,"name":"t","kind":"table"}]}`))
	f.Add(uint16(3), uint8(0), []byte("x"), []byte("y"), []byte(`{"version":1,"maxParallelism":4,"sets":[{"id":3,"name":"z","kind":"timers"},{"id":3,"name":"t","kind":"table"}]}`))
	f.Fuzz(func(t *testing.T, id uint16, group uint8, rest, value, meta []byte) {
		src := inline{}
		b, _, _, err := fuzzed(filepath.Join(t.TempDir(), "a"), state.Range{End: fuzzGroups}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Snapshot(1, false)
		if err != nil {
			t.Fatal(err)
		}
		s.Discard() // settles the store
		if err := raw(b).Set(append(appendGroup(nil, id, int(group%fuzzGroups)), rest...), value, pdb.NoSync); err != nil {
			t.Fatal(err)
		}
		if len(meta) > 0 {
			if err := raw(b).Set(metaKey, meta, pdb.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if s, err = b.Snapshot(2, false); err != nil {
			t.Fatal(err)
		}
		h, err := s.Write(context.Background(), src)
		if err = errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		try(t, h, src)
	})
}

// Pebble's own files may hold anything under a right checksum: the store does not open, or says what it cannot read.
func FuzzFiles(f *testing.F) {
	src := inline{}
	b, table, timers, err := fuzzed(filepath.Join(f.TempDir(), "a"), state.Range{End: fuzzGroups}, nil)
	if err != nil {
		f.Fatal(err)
	}
	str := serde.Must[string]()
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		h := state.Hash32(str.Append(nil, k))
		key := state.Key[string]{Key: k, Hash: h, Group: state.GroupOf(h, fuzzGroups)}
		if err := errors.Join(table.Put(key, 0, k+k), timers.Register(key, 0, 5)); err != nil {
			f.Fatal(err)
		}
	}
	s, err := b.Snapshot(1, false)
	if err != nil {
		f.Fatal(err)
	}
	h, err := s.Write(context.Background(), src)
	if err = errors.Join(err, b.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(0), uint16(10), []byte{1})
	f.Add(uint8(1), uint16(100), []byte("\xff\xff\xff\xff"))
	f.Add(uint8(1), uint16(30), []byte{})
	f.Fuzz(func(t *testing.T, file uint8, at uint16, with []byte) {
		n := int(file) % len(h.Files)
		content := h.Files[n].Ref.Inline
		cut := min(int(at), len(content))
		if len(with) == 0 {
			content = content[:cut]
		} else {
			content = append(content[:cut:cut], append(with, content[min(cut+len(with), len(content)):]...)...)
		}
		x := h
		x.Files = append([]state.File{}, h.Files...)
		x.Files[n].Ref.Inline = append([]byte{}, content...)
		x.Files[n].Ref.Size, x.Files[n].Ref.CRC32C = int64(len(content)), crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
		try(t, x, src)
	})
}
