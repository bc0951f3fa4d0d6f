package storage

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	iofs "io/fs"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// onHDFS returns a file system of the cluster that HADOOP_CONF_DIR points to, as the given user ("" for the process's), and a registry.
func onHDFS(t testing.TB, user string) (*hdfs.FileSystem, *fs.Registry) {
	t.Helper()
	cfg := rigtest.HDFS(t, user)
	f, err := hdfs.New("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	reg := &fs.Registry{}
	hdfs.Register(reg, cfg)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, reg
}

// A retained checkpoint with shared files and a savepoint on HDFS: written, moved by a rename of the NameNode, restored, swept.
func TestCheckpointsOnHDFS(t *testing.T) {
	f, reg := onHDFS(t, "")
	ctx := t.Context()
	root := "/tmp/thalweg-storage-test-" + randomHex(6)
	defer func() {
		if err := f.Remove(ctx, root, true); err != nil {
			t.Error(err)
		}
	}()
	st := New(f, root, job, WithRegistry(reg))
	if _, err := st.Own(ctx, Owner{Job: job}); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("0123456789"), 50_000)
	sink := NewSink(reg, st.CheckpointDir(2), st.SharedDir(), 1000)
	ex, sh, small := write(t, sink, state.Exclusive, large), write(t, sink, state.Shared, large), write(t, sink, state.Exclusive, []byte("small"))
	aborted := NewSink(reg, st.CheckpointDir(1), st.SharedDir(), 10)
	write(t, aborted, state.Shared, large)
	src := NewSource(reg)
	defer func() {
		if err := errors.Join(sink.Close(), aborted.Close(), src.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(2), checkpointWith(2, ex, sh, small)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(2), checkpointWith(2)); !errors.Is(err, ErrClaimed) {
		t.Fatalf("written twice: %v", err)
	}
	if removed, err := st.Sweep(ctx, 3, []string{st.CheckpointDir(2)}, []string{st.SharedDir() + "/" + strings.TrimPrefix(sh.Name, "../shared/")}); err != nil || len(removed) != 1 {
		t.Fatalf("swept %v, %v", removed, err)
	}
	if o, err := st.Orphans(ctx, nil); err != nil || len(o) != 0 {
		t.Fatalf("orphans %v, %v", o, err)
	}
	if err := f.Rename(ctx, strings.TrimPrefix(st.Dir(), f.URI()), root+"/moved"); err != nil {
		t.Fatal(err)
	}
	c, err := ReadMetadata(ctx, reg, f.URI()+root+"/moved/chk-2")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]byte{large, large, []byte("small")} {
		if got, err := read(ctx, src, refs(c)[i]); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("file %d: %d bytes, %v", i, len(got), err)
		}
	}
}

func TestUnwritableRootOnHDFS(t *testing.T) {
	super, _ := onHDFS(t, "")
	alice, _ := onHDFS(t, "alice")
	ctx := t.Context()
	root := "/tmp/thalweg-storage-test-" + randomHex(6)
	if err := super.Mkdir(ctx, root, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := New(alice, root, graph.JobID{}).Own(ctx, Owner{})
	if !errors.Is(err, iofs.ErrPermission) {
		t.Fatalf("%v, want permission denied", err)
	}
	for _, part := range []string{root, "alice", "execution.checkpointing.dir"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if err := super.Remove(ctx, root, true); err != nil {
		t.Fatal(err)
	}
}

// Of two jobs that claim one checkpoint at a time one gets it; the other is refused by its name.
func TestOneJobOwnsAFolderOnHDFS(t *testing.T) {
	f, reg := onHDFS(t, "")
	ctx := t.Context()
	root := "/tmp/thalweg-storage-test-" + randomHex(6)
	defer func() {
		if err := f.Remove(ctx, root, true); err != nil {
			t.Error(err)
		}
	}()
	claims := []string{New(f, root, job).Dir()}
	var all [4]struct {
		st  *Storage
		o   Owner
		err error
	}
	var wg sync.WaitGroup
	for i := range all {
		a := &all[i]
		a.o = Owner{Job: graph.JobID{ID: graph.ID{byte(i + 1)}}, Name: "job", Since: time.Now(), Claims: claims}
		a.st = New(f, root, a.o.Job, WithRegistry(reg))
		wg.Go(func() { _, a.err = a.st.Own(ctx, a.o) })
	}
	wg.Wait()
	won := -1
	for i, a := range all {
		if a.err == nil && won < 0 {
			won = i
		} else if a.err == nil {
			t.Errorf("jobs %d and %d have it", won, i)
		}
	}
	if won < 0 {
		t.Fatalf("nobody has it: %+v", all)
	}
	for i, a := range all {
		if i != won && owned(t, a.err).Owner.Job != all[won].o.Job {
			t.Errorf("job %d: %v", i, a.err)
		}
	}
	again := all[won].o
	again.Claims = nil
	marks, err := all[won].st.Own(ctx, again)
	if err != nil || len(marks) != 2 {
		t.Errorf("the next attempt: %v, %v", marks, err)
	}
	for _, a := range all {
		if err := a.st.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkMetadata100KBOnHDFS(b *testing.B) {
	f, _ := onHDFS(b, "")
	root := "/tmp/thalweg-storage-bench-" + randomHex(6)
	st := New(f, root, job)
	c := checkpointWith(1)
	c.Operators[0].Subtasks[0].Lists = []metadata.ListState{{Name: "l", Items: [][]byte{make([]byte, 100<<10)}}}
	id := int64(0)
	for b.Loop() {
		id++
		if _, _, err := st.WriteMetadata(b.Context(), st.CheckpointDir(id), c); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Remove(b.Context(), root, true); err != nil {
		b.Fatal(err)
	}
}
