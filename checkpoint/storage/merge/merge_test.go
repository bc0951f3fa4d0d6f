package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/state"
)

const ckp = "/ckp/00000000000000000000000000000001"

func memory(t *testing.T) (*fs.Registry, *mem.FileSystem) {
	t.Helper()
	reg := &fs.Registry{}
	mem.Register(reg)
	f, _, err := reg.Resolve(t.Context(), "mem://"+t.Name()+ckp)
	if err != nil {
		t.Fatal(err)
	}
	return reg, f.(*mem.FileSystem)
}

func sink(ctx context.Context, m *Merger, reg *fs.Registry, f *mem.FileSystem, id int64, task string) *Sink {
	dir := f.URI() + ckp
	return m.Sink(ctx, storage.NewSink(reg, storage.CheckpointDir(dir, id), storage.SharedDir(dir), 20), task)
}

func read(src *storage.Source, ref state.FileRef) ([]byte, error) {
	r, err := src.Open(context.Background(), ref)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err == nil && len(b) > 2 { // anywhere in the part, too
		at := make([]byte, 2)
		if _, err = r.ReadAt(at, int64(len(b)-2)); errors.Is(err, io.EOF) {
			err = nil
		}
		if err == nil && string(at) != string(b[len(b)-2:]) {
			err = fmt.Errorf("at %d there is %q", len(b)-2, at)
		}
		if n, rerr := r.ReadAt(make([]byte, 3), int64(len(b)-2)); n != 2 || !errors.Is(rerr, io.EOF) {
			err = errors.Join(err, fmt.Errorf("%d bytes behind the part, %w", n, rerr))
		}
	}
	return b, errors.Join(err, r.Close())
}

// The files of many subtasks are few, each subtask's content is its own, and what is small is in the metadata.
func TestManySubtasksWriteFewFiles(t *testing.T) {
	reg, f := memory(t)
	m := New(Config{MaxFileSize: 1 << 20, MaxSubtasks: 4, MaxAmplification: 2})
	const tasks = 16
	for i := range tasks {
		m.Join(fmt.Sprint(i))
	}
	var wg sync.WaitGroup
	refs := make([][]state.FileRef, tasks)
	for i := range tasks {
		wg.Go(func() {
			s := sink(t.Context(), m, reg, f, 1, fmt.Sprint(i))
			defer s.Discard()
			for k, scope := range []state.Scope{state.Exclusive, state.Shared, state.Exclusive} {
				ref, err := put(t.Context(), s, scope, fmt.Sprintf("%d-%d:%d", i, k, []int{500, 700, 20}[k]))
				if err != nil {
					t.Error(err)
				}
				ref.Base = f.URI() + ckp + "/chk-1"
				refs[i] = append(refs[i], ref)
			}
			if err := s.Seal(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(f.Dump()); n != 2*tasks/4 {
		t.Errorf("%d files for %d subtasks:\n%s", n, tasks, f.Tree())
	}
	src := storage.NewSource(reg)
	for i := range refs {
		for k, ref := range refs[i] {
			got, err := read(src, ref)
			if want := string(content(fmt.Sprintf("%d-%d:%d", i, k, []int{500, 700, 20}[k]))); err != nil || string(got) != want {
				t.Errorf("subtask %d: %q, %v; want %q", i, got, err, want)
			}
			if (k == 2) != (ref.Name == "") || k == 1 && ref.Scope != state.Shared || k < 2 && !strings.HasPrefix(path.Base(ref.Name), "1-") {
				t.Errorf("subtask %d: %+v", i, ref)
			}
		}
	}
}

// A task whose barrier is late does not hold the others up for long: they have their files, it has another one.
func TestLateTasksHaveFilesOfTheirOwn(t *testing.T) {
	reg, f := memory(t)
	m := New(Config{MaxFileSize: 1 << 20, MaxSubtasks: 4})
	m.linger = time.Millisecond
	m.Join("early")
	m.Join("late")
	for i, task := range []string{"early", "late"} {
		s := sink(t.Context(), m, reg, f, 1, task)
		if _, err := put(t.Context(), s, state.Exclusive, "x:100"); err != nil {
			t.Fatal(err)
		}
		if err := s.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(f.Dump()); n != i+1 {
			t.Fatalf("%d files after %s", n, task)
		}
	}
}

// A task that ends is not waited for, and one that gives up leaves no file that it alone wrote to.
func TestTasksThatEndAndGiveUp(t *testing.T) {
	reg, f := memory(t)
	m := New(Config{MaxFileSize: 1 << 20, MaxSubtasks: 4})
	m.linger = time.Hour
	for _, task := range []string{"a", "b", "c"} {
		m.Join(task)
	}
	b := sink(t.Context(), m, reg, f, 1, "b")
	if _, err := put(t.Context(), b, state.Exclusive, "x:100"); err != nil {
		t.Fatal(err)
	}
	b.Discard()
	if left := f.Dump(); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
	a := sink(t.Context(), m, reg, f, 1, "a")
	if _, err := put(t.Context(), a, state.Exclusive, "x:100"); err != nil {
		t.Fatal(err)
	}
	sealed := make(chan error)
	go func() { sealed <- a.Seal(t.Context()) }()
	m.Leave("c")
	if err := <-sealed; err != nil {
		t.Fatal(err)
	}
	// Whoever gives up while it waits says why, and takes its file along.
	ctx, cancel := context.WithCancelCause(t.Context())
	m.Join("c")
	a = sink(ctx, m, reg, f, 2, "a")
	if _, err := put(ctx, a, state.Shared, "y:100"); err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := a.Seal(ctx); !errors.Is(err, stopped) {
		t.Fatal(err)
	}
	if n := len(f.Dump()); n != 1 {
		t.Fatalf("%d files", n)
	}
}

// A file that cannot be written is an error for all that wrote to it, which names it.
func TestFileThatCannotBeWritten(t *testing.T) {
	reg, f := memory(t)
	m := New(Config{MaxFileSize: 1 << 20, MaxSubtasks: 4})
	m.Join("a")
	m.Join("b")
	a, b := sink(t.Context(), m, reg, f, 1, "a"), sink(t.Context(), m, reg, f, 1, "b")
	for _, s := range []*Sink{a, b} {
		if _, err := put(t.Context(), s, state.Exclusive, "x:100"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Remove(t.Context(), ckp+"/chk-1", true); err != nil { // as when the checkpoint was aborted elsewhere
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, s := range []*Sink{a, b} {
		wg.Go(func() {
			if err := s.Seal(t.Context()); err == nil || !strings.Contains(err.Error(), ckp+"/chk-1/1-") {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
}

// What is needed of a file of which most is not is stored anew, and only that.
func TestSpaceAmplificationIsBounded(t *testing.T) {
	reg, f := memory(t)
	m := New(Config{MaxFileSize: 1 << 20, MaxSubtasks: 4, MaxAmplification: 2})
	m.Join("a")
	known := map[string]state.FileRef{}
	stored := 0
	take := func(id int64, tables ...string) {
		t.Helper()
		s := sink(t.Context(), m, reg, f, id, "a")
		defer s.Discard()
		next := map[string]state.FileRef{}
		stored = 0
		for _, name := range tables {
			ref, ok := known[name]
			if !ok || !s.Reuse(ref) {
				var err error
				if ref, err = put(t.Context(), s, state.Shared, name); err != nil {
					t.Fatal(err)
				}
				stored++
			}
			next[name] = ref
		}
		if err := s.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		known = next
	}
	for i, c := range []struct {
		tables []string
		stored int
	}{
		{[]string{"a:100", "b:100", "c:100", "d:100"}, 4},
		{[]string{"a:100", "b:100"}, 0}, // half of the file: kept
		{[]string{"a:100"}, 0},          // as it was measured
		{[]string{"a:100", "e:100"}, 2}, // a quarter: stored anew, beside what is new
		{[]string{"a:100", "e:100"}, 0},
	} {
		if take(int64(i+1), c.tables...); stored != c.stored {
			t.Errorf("checkpoint %d stored %d tables, want %d", i+1, stored, c.stored)
		}
	}
}
