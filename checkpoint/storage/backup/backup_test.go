package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// threshold is the size up to which files of these tests are in the metadata.
const threshold = 100

type kept struct {
	ref  state.FileRef
	data []byte
}

// rig has a checkpoint folder and a store in a folder each.
type rig struct {
	t      fataler
	reg    *fs.Registry
	remote string
	local  string
	store  *Store
	log    bytes.Buffer
}

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func newRig(t fataler, dir string) *rig {
	r := &rig{t: t, reg: &fs.Registry{}, remote: filepath.Join(dir, "ckp"), local: filepath.Join(dir, "local")}
	local.Register(r.reg)
	r.store = New([]string{filepath.Join(r.local, "a"), filepath.Join(r.local, "b")}, zerolog.New(&r.log))
	return r
}

func (r *rig) sink(id int64) state.Sink {
	dir := "file://" + r.remote
	return r.store.Sink(storage.NewSink(r.reg, storage.CheckpointDir(dir, id), storage.SharedDir(dir), threshold), id, int(id))
}

// write stores data in the scope; a shared one is kept as pebble does it, from a file of its own.
func (r *rig) write(id int64, scope state.Scope, data []byte) kept {
	r.t.Helper()
	k := r.sink(id)
	s, err := k.Create(context.Background(), scope)
	if err != nil {
		r.t.Fatal(err)
	}
	for b := data; len(b) > 0; {
		n, err := s.Write(b[:min(len(b), 7000)])
		if err != nil {
			r.t.Fatal(err)
		}
		b = b[n:]
	}
	ref, err := s.Commit()
	if err != nil {
		r.t.Fatal(err)
	}
	ref.Base = storage.CheckpointDir("file://"+r.remote, id)
	if scope == state.Shared {
		r.keep(k, ref, data)
	}
	return kept{ref, data}
}

func (r *rig) keep(k state.Sink, ref state.FileRef, data []byte) {
	r.t.Helper()
	f, err := os.CreateTemp("", "thalweg-backup-test-")
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		r.t.Fatal(err)
	}
	k.(state.LocalSink).Keep(ref, f.Name())
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil { // the store goes on without it
		r.t.Fatal(err)
	}
}

func (r *rig) source() state.Source { return r.store.Source(storage.NewSource(r.reg)) }

func (r *rig) read(src state.Source, k kept) error {
	f, err := src.Open(context.Background(), k.ref)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(b, k.data) {
		err = fmt.Errorf("read %d bytes, want other %d", len(b), len(k.data))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (r *rig) copies() []string {
	all, err := filepath.Glob(filepath.Join(r.local, "*", "chk-*", "*"))
	if err != nil {
		r.t.Fatal(err)
	}
	hidden, _ := filepath.Glob(filepath.Join(r.local, "*", "chk-*", ".*"))
	return append(all, hidden...)
}

func data(n int, b byte) []byte { return bytes.Repeat([]byte{b, 1, 2, 3, b}, n/5+1)[:n] }

// The state of a checkpoint is read without the checkpoint's folder, by whatever store has the folders of the copies.
func TestRestoreWithoutTheCheckpointsFolder(t *testing.T) {
	r := newRig(t, t.TempDir())
	all := []kept{r.write(1, state.Shared, data(200_000, 1)), r.write(1, state.Exclusive, data(300_000, 2)), r.write(1, state.Exclusive, data(10, 3)), r.write(2, state.Exclusive, data(150, 4))}
	r.keep(r.sink(2), all[0].ref, all[0].data) // checkpoint 2 refers to it again
	if err := os.Rename(r.remote, r.remote+"-away"); err != nil {
		t.Fatal(err)
	}
	r.store = New(r.store.dirs, zerolog.New(&r.log)) // the next process's
	src := r.source()
	for i, k := range all {
		if err := r.read(src, k); err != nil {
			t.Errorf("file %d: %v", i, err)
		}
	}
	to := filepath.Join(t.TempDir(), "000007.sst")
	if !src.(state.LocalSource).Link(t.Context(), all[0].ref, to) {
		t.Fatal("not linked")
	}
	if b, err := os.ReadFile(to); err != nil || !bytes.Equal(b, all[0].data) {
		t.Fatalf("linked %d bytes, %v", len(b), err)
	}
	if src.(state.LocalSource).Link(t.Context(), all[2].ref, to+"2") {
		t.Fatal("inline content has no copy")
	}
	if n := strings.Count(r.log.String(), "\n"); n != 1 || !strings.Contains(r.log.String(), "state is restored from local copies") {
		t.Errorf("log: %s", r.log.String())
	}
	r.store.Completed(2)
	r.store.Close()
	for _, c := range r.copies() {
		if !strings.Contains(c, "chk-2") {
			t.Errorf("%s is left", c)
		}
	}
	if len(r.copies()) != 2 {
		t.Errorf("%v are left of checkpoint 2, want its two files", r.copies())
	}
}

// A copy that is damaged, or not there, is not used: the file comes from the checkpoint's folder, with one line in the log.
func TestDamagedCopies(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"truncated": func(p string) error { return os.Truncate(p, 5000) },
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"longer":    func(p string) error { return os.Truncate(p, 1_000_000) },
		"missing":   os.Remove,
		"turned": func(p string) error {
			b, err := os.ReadFile(p)
			if err == nil {
				b[len(b)/2] ^= 1
				err = os.WriteFile(p, b, 0o600)
			}
			return err
		},
		"a folder": func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Mkdir(p, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, t.TempDir())
			all := []kept{r.write(1, state.Shared, data(50_000, 1)), r.write(1, state.Exclusive, data(60_000, 2))}
			for _, p := range r.copies() {
				if err := damage(p); err != nil {
					t.Fatal(err)
				}
			}
			src := r.source()
			if src.(state.LocalSource).Link(t.Context(), all[0].ref, filepath.Join(t.TempDir(), "x")) {
				t.Error("a damaged copy is linked")
			}
			for i, k := range all {
				if err := r.read(src, k); err != nil {
					t.Errorf("file %d: %v", i, err)
				}
			}
			if n := strings.Count(r.log.String(), "\n"); n != 1 || !strings.Contains(r.log.String(), "read from the checkpoint's folder") {
				t.Errorf("log: %s", r.log.String())
			}
		})
	}
}

// fullDisk fails from some operation on.
type fullDisk struct {
	disk
	left int
}

func (d *fullDisk) out() error {
	d.left--
	if d.left < 0 {
		return syscall.ENOSPC
	}
	return nil
}

func (d *fullDisk) MkdirAll(dir string) error {
	if err := d.out(); err != nil {
		return err
	}
	return d.disk.MkdirAll(dir)
}

func (d *fullDisk) Link(from, to string) error {
	if err := d.out(); err != nil {
		return err
	}
	return d.disk.Link(from, to)
}

func (d *fullDisk) Create(path string) (io.WriteCloser, error) {
	if err := d.out(); err != nil {
		return nil, err
	}
	w, err := d.disk.Create(path)
	return fullFile{w, d}, err
}

type fullFile struct {
	io.WriteCloser
	d *fullDisk
}

func (f fullFile) Write(p []byte) (int, error) {
	if err := f.d.out(); err != nil {
		n, _ := f.WriteCloser.Write(p[:len(p)/2])
		return n, err
	}
	return f.WriteCloser.Write(p)
}

func (f fullFile) Close() error {
	err := f.WriteCloser.Close()
	if e := f.d.out(); e != nil {
		return e
	}
	return err
}

// A disk that is full at any moment fails no checkpoint and no restore, and leaves nothing that is half a file.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, dir)
		full := &fullDisk{osDisk{}, rapid.IntRange(0, 25).Draw(t, "operations")}
		r.store.disk = full
		var all []kept
		for id := int64(1); id <= 2; id++ {
			for range rapid.IntRange(1, 4).Draw(t, "files") {
				scope := rapid.SampledFrom([]state.Scope{state.Shared, state.Exclusive}).Draw(t, "scope")
				all = append(all, r.write(id, scope, data(rapid.SampledFrom([]int{1, 99, 101, 20_000, 200_000}).Draw(t, "size"), byte(len(all)))))
			}
		}
		if n := strings.Count(r.log.String(), "no local copy of all"); n > 2 || full.left < 0 && n == 0 {
			t.Fatalf("%d lines for two checkpoints: %s", n, r.log.String())
		}
		src := r.source()
		for i, k := range all {
			if err := r.read(src, k); err != nil {
				t.Fatalf("file %d: %v", i, err)
			}
		}
		if strings.Contains(r.log.String(), "damaged") {
			t.Fatalf("half a file was kept: %s", r.log.String())
		}
		for _, c := range r.copies() {
			if strings.HasPrefix(filepath.Base(c), ".") {
				t.Fatalf("%s is left", c)
			}
		}
	})
}

// What is there is of the latest completed checkpoint and of later ones that were not aborted.
func TestCopiesGoWithTheirCheckpoint(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, dir)
		want := map[string]bool{}
		open := map[int64]bool{}
		for id := int64(1); id <= 6; id++ {
			k := r.write(id, state.Exclusive, data(150, byte(id)))
			want[fmt.Sprintf("chk-%d/%s", id, k.ref.Name)], open[id] = true, true
			if rapid.Bool().Draw(t, "still open") {
				continue
			}
			ended := rapid.SampledFrom(sorted(open)).Draw(t, "ended")
			completed := rapid.Bool().Draw(t, "completed")
			if completed {
				r.store.Completed(ended)
			} else {
				r.store.Aborted(ended)
			}
			for w := range want {
				var n int64
				if _, err := fmt.Sscanf(w, "chk-%d/", &n); err != nil {
					t.Fatal(err)
				}
				if completed && n < ended || !completed && n == ended {
					delete(want, w)
					delete(open, n)
				}
			}
			delete(open, ended)
			r.store.Close()
			got := map[string]bool{}
			for _, c := range r.copies() {
				got[filepath.Base(filepath.Dir(c))+"/"+filepath.Base(c)] = true
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("there are %v, want %v", got, want)
			}
		}
	})
}

func sorted(m map[int64]bool) (out []int64) {
	for id := range int64(10) {
		if m[id] {
			out = append(out, id)
		}
	}
	return out
}

// A job without local backup has neither store nor wrappers.
func TestNoStore(t *testing.T) {
	s := New(nil, zerolog.Nop())
	sink, src := &storage.Sink{}, storage.NewSource(&fs.Registry{})
	if s.Sink(sink, 1, 0) != state.Sink(sink) || s.Source(src) != state.Source(src) {
		t.Error("wrapped")
	}
	s.Completed(1)
	s.Aborted(1)
	s.Close()
}
