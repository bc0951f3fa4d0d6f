package storage

import (
	"bytes"
	"context"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func registry() *fs.Registry {
	reg := &fs.Registry{}
	mem.Register(reg)
	local.Register(reg, local.WithoutSync())
	return reg
}

var job = graph.JobID{ID: graph.ID{0xab, 0xcd, 0xef}}

// memory returns a storage in a fresh memory file system, and its registry.
func memory(t *testing.T) (*Storage, *fs.Registry, *mem.FileSystem) {
	t.Helper()
	reg := registry()
	f, p, err := reg.Resolve(t.Context(), "mem://nn/ckp")
	if err != nil {
		t.Fatal(err)
	}
	return New(f, p, job, WithRegistry(reg)), reg, f.(*mem.FileSystem)
}

func write(t *testing.T, sink state.Sink, scope state.Scope, parts ...[]byte) state.FileRef {
	t.Helper()
	s, err := sink.Create(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if n, err := s.Write(p); err != nil || n != len(p) {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	ref, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func read(ctx context.Context, src state.Source, ref state.FileRef) ([]byte, error) {
	r, err := src.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// checkpointWith is a checkpoint of one operator whose files are given.
func checkpointWith(id int64, refs ...state.FileRef) metadata.Checkpoint {
	h := state.Handle{Format: "canonical", Range: state.Range{End: 128}}
	for _, r := range refs {
		h.Files = append(h.Files, state.File{Ref: r})
	}
	return metadata.Checkpoint{ID: id, JobID: job, Operators: []metadata.Operator{{Name: "op", Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.Subtask{{Keyed: []state.Handle{h}}}}}}
}

func refs(c metadata.Checkpoint) (out []state.FileRef) {
	c.Refs(func(r *state.FileRef) { out = append(out, *r) })
	return out
}

func TestSmallCheckpointIsOneFile(t *testing.T) {
	st, reg, f := memory(t)
	const threshold = 16
	sink := NewSink(reg, st.CheckpointDir(1), st.SharedDir(), threshold)
	small := write(t, sink, state.Exclusive, []byte("0123456789"), []byte("abcdef"))
	empty := write(t, sink, state.Shared)
	uri, _, err := st.WriteMetadata(t.Context(), st.CheckpointDir(1), checkpointWith(1, small, empty))
	if err != nil {
		t.Fatal(err)
	}
	if want := "mem://nn/ckp/" + job.String() + "/chk-1/_metadata"; uri != want {
		t.Fatalf("%s, want %s", uri, want)
	}
	if files := f.Dump(); len(files) != 1 {
		t.Fatalf("%d files, want one: %v", len(files), files)
	}
	c, err := ReadMetadata(t.Context(), reg, st.CheckpointDir(1))
	if err != nil {
		t.Fatal(err)
	}
	src := NewSource(reg)
	for i, want := range []string{"0123456789abcdef", ""} {
		if got, err := read(t.Context(), src, refs(c)[i]); err != nil || string(got) != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
}

func TestLargeStateIsFilesBesideTheMetadata(t *testing.T) {
	st, reg, f := memory(t)
	sink := NewSink(reg, st.CheckpointDir(3), st.SharedDir(), 16)
	large := bytes.Repeat([]byte("x"), 1000)
	ex := write(t, sink, state.Exclusive, large[:16], large[16:17], large[17:])
	sh := write(t, sink, state.Shared, large)
	if !strings.HasPrefix(ex.Name, "3-") || !strings.HasPrefix(sh.Name, "../shared/3-") || ex.Size != 1000 || ex.CRC32C != sh.CRC32C {
		t.Fatalf("%+v, %+v", ex, sh)
	}
	if _, _, err := st.WriteMetadata(t.Context(), st.CheckpointDir(3), checkpointWith(3, ex, sh)); err != nil {
		t.Fatal(err)
	}
	c, err := ReadMetadata(t.Context(), reg, st.CheckpointDir(3)+"/_metadata")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refs(c) {
		if got, err := read(t.Context(), NewSource(reg), r); err != nil || !bytes.Equal(got, large) {
			t.Fatalf("%s: %d bytes, %v", r.Name, len(got), err)
		}
	}
	if o, err := st.Orphans(t.Context(), nil); err != nil || len(o) != 0 {
		t.Fatalf("orphans %v, %v", o, err)
	}
	if n := len(f.Dump()); n != 3 {
		t.Fatalf("%d files, want 3", n)
	}
}

func TestAbortedStreamsLeaveNothing(t *testing.T) {
	st, reg, f := memory(t)
	sink := NewSink(reg, st.CheckpointDir(1), st.SharedDir(), 4)
	for _, size := range []int{0, 3, 100} {
		s, err := sink.Create(t.Context(), state.Shared)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		s.Abort()
		s.Abort()
		if _, err := s.Commit(); err == nil {
			t.Fatal("an aborted stream was committed")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := sink.Create(ctx, state.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Commit(); !errors.Is(err, context.Canceled) {
		t.Fatalf("commit: %v, want canceled", err)
	}
	if files := f.Dump(); len(files) != 0 {
		t.Fatalf("left behind: %v", files)
	}
}

func TestSavepointHasEverythingInOneDirectory(t *testing.T) {
	st, reg, _ := memory(t)
	dir := NewSavepointDir("mem://other/sp/", job)
	if !strings.HasPrefix(dir, "mem://other/sp/savepoint-abcdef-") || !IsSavepointDir(dir) {
		t.Fatalf("directory %s", dir)
	}
	sink := NewSink(reg, dir, dir, 4)
	r := write(t, sink, state.Shared, []byte("shared state"))
	if r.Scope != state.Exclusive || strings.Contains(r.Name, "/") {
		t.Fatalf("%+v, want a file of its own", r)
	}
	if _, _, err := st.WriteMetadata(t.Context(), dir, checkpointWith(1, r)); err != nil {
		t.Fatal(err)
	}
	c, err := ReadMetadata(t.Context(), reg, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t.Context(), NewSource(reg), refs(c)[0]); err != nil || string(got) != "shared state" {
		t.Fatalf("%q, %v", got, err)
	}
}

// The directory is moved, in its file system and to another one: names inside are relative (FLINK-5763).
func TestMovedDirectoryRestores(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	sink := NewSink(reg, st.CheckpointDir(7), st.SharedDir(), 4)
	want := []string{"exclusive", "shared file"}
	ex, sh := write(t, sink, state.Exclusive, []byte(want[0])), write(t, sink, state.Shared, []byte(want[1]))
	if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(7), checkpointWith(7, ex, sh)); err != nil {
		t.Fatal(err)
	}
	check := func(uri string) {
		t.Helper()
		c, err := ReadMetadata(ctx, reg, uri)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range refs(c) {
			if got, err := read(ctx, NewSource(reg), r); err != nil || string(got) != want[i] {
				t.Fatalf("%s: %q, %v", r.Name, got, err)
			}
		}
	}
	// The job's whole directory: shared/ goes along.
	if err := f.Mkdir(ctx, "/archive", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(ctx, "/ckp/"+job.String(), "/archive/old"); err != nil {
		t.Fatal(err)
	}
	check("mem://nn/archive/old/chk-7")

	// Copied to a local disk.
	dir := t.TempDir()
	for p, content := range f.Dump() {
		file := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(p, "/archive/")))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check(dir + "/old/chk-7")
	check("file://" + dir + "/old/chk-7/_metadata")
}

func TestClaimedFilesAreReferredToRelatively(t *testing.T) {
	ctx := t.Context()
	st, reg, _ := memory(t)
	old := New(st.fs, "/elsewhere", graph.JobID{ID: graph.ID{1}})
	sink := NewSink(reg, old.CheckpointDir(1), old.SharedDir(), 0)
	r := write(t, sink, state.Shared, []byte("from the other job"))
	r.Base = old.CheckpointDir(1)
	c := checkpointWith(2, r)
	if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(2), c); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(refs(c)[0], r) {
		t.Fatal("the caller's checkpoint was changed")
	}
	got, err := ReadMetadata(ctx, reg, st.CheckpointDir(2))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := read(ctx, NewSource(reg), refs(got)[0]); err != nil || string(b) != "from the other job" {
		t.Fatalf("%q, %v", b, err)
	}
	r.Base = "hdfs://elsewhere/x"
	if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(3), checkpointWith(3, r)); err == nil {
		t.Fatal("a file of another file system was taken")
	}
}

func TestDamagedFilesAreNotRestored(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	r := write(t, NewSink(reg, st.CheckpointDir(1), "", 0), state.Exclusive, []byte("0123456789"))
	r.Base = st.CheckpointDir(1)
	p := strings.TrimPrefix(r.Base, "mem://nn") + "/" + r.Name
	src := NewSource(reg)
	for name, content := range map[string]string{"bit": "0123456788", "short": "012345678", "long": "0123456789x", "empty": ""} {
		if err := fs.WriteFile(ctx, f, p, []byte(content), true); err != nil {
			t.Fatal(err)
		}
		if _, err := read(ctx, src, r); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v, want ErrDamaged with the path", name, err)
		}
	}
	if err := f.Remove(ctx, p, false); err != nil {
		t.Fatal(err)
	}
	var file *StateFileError
	if _, err := read(ctx, src, r); !errors.Is(err, iofs.ErrNotExist) || !errors.As(err, &file) || file.Error() != "state file "+r.Path()+" is missing" {
		t.Errorf("missing: %v", err)
	}
	if err := f.Mkdir(ctx, p, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := read(ctx, src, r); !errors.As(err, &file) || !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := read(ctx, src, state.FileRef{Inline: []byte("abc"), Size: 3, CRC32C: 1}); !errors.Is(err, ErrDamaged) {
		t.Errorf("inline: %v", err)
	}
	if _, err := read(ctx, src, state.FileRef{Name: "x"}); err == nil {
		t.Error("a file without a base was opened")
	}
}

func TestUnreadableSavepointsAreOneClearLine(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	good, err := metadata.Encode(checkpointWith(1))
	if err != nil {
		t.Fatal(err)
	}
	put := func(p string, b []byte) {
		if err := fs.WriteFile(ctx, f, p, b, true); err != nil {
			t.Fatal(err)
		}
	}
	put("/sp/truncated/_metadata", good[:len(good)-3])
	put("/sp/other/_metadata", []byte("something else entirely"))
	put("/sp/unfinished/1-abc", []byte("state"))
	put("/sp/file", []byte("not a savepoint at all"))
	for uri, want := range map[string]struct {
		is   error
		says string
	}{
		"mem://nn/sp/nowhere":             {ErrNoCheckpoint, "give the savepoint's directory"},
		"mem://nn/sp/unfinished":          {ErrNoCheckpoint, "has no _metadata"},
		"mem://nn/sp/truncated":           {metadata.ErrTruncated, "restore from another"},
		"mem://nn/sp/truncated/_metadata": {metadata.ErrTruncated, "restore from another"},
		"mem://nn/sp/other":               {metadata.ErrFormat, "not checkpoint metadata"},
		"mem://nn/sp/file":                {metadata.ErrFormat, "not checkpoint metadata"},
		"gopher://nn/sp/other":            {fs.ErrScheme, "gopher"},
		"sp/relative":                     {nil, "not a URI"},
	} {
		_, err := ReadMetadata(ctx, reg, uri)
		if err == nil || want.is != nil && !errors.Is(err, want.is) {
			t.Errorf("%s: %v, want %v", uri, err, want.is)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, uri) || !strings.Contains(msg, want.says) || strings.Contains(msg, "\n") {
			t.Errorf("%s: %q, want one line with the path and %q", uri, msg, want.says)
		}
	}
	_ = st
}

func TestUnwritableRootIsRefused(t *testing.T) {
	ctx := t.Context()
	f := fault.New(mem.New("nn"))
	st := New(f, "/ckp", job)
	marks, err := st.Own(ctx, Owner{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat(ctx, "/ckp/"+job.String())
	if err != nil || info.Mode != 0o700 {
		t.Fatalf("mode %o, %v; want 700", info.Mode, err)
	}
	if err := st.Remove(ctx, marks, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, op := range []fault.Op{fault.Mkdir, fault.Create, fault.Write, fault.Close} {
		f.Set(fault.When(fault.On(op, ""), fault.Fail(iofs.ErrPermission)))
		_, err := st.Own(ctx, Owner{Job: job})
		if !errors.Is(err, iofs.ErrPermission) {
			t.Fatalf("%s: %v", op, err)
		}
		for _, part := range []string{st.Dir(), "user ", "permission denied", "execution.checkpointing.dir"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
	f.Set()
	if infos, err := f.List(ctx, "/ckp/"+job.String()); err != nil && !errors.Is(err, iofs.ErrNotExist) || len(infos) != 0 {
		t.Fatalf("left behind: %v, %v", infos, err)
	}
}

// The order of calls is a contract: a _metadata that exists is complete.
func TestMetadataIsWrittenThenRenamed(t *testing.T) {
	f := fault.New(mem.New("nn"))
	st := New(f, "/ckp", graph.JobID{})
	if _, _, err := st.WriteMetadata(t.Context(), st.CheckpointDir(1), checkpointWith(1)); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for _, e := range f.Log() {
		ops = append(ops, string(e.Op)+" "+path.Base(e.Path))
	}
	want := []string{"create _metadata.inprogress", "stat _metadata", "write _metadata.inprogress", "close _metadata.inprogress", "rename _metadata.inprogress"}
	if diff := cmp.Diff(want, ops); diff != "" {
		t.Fatal(diff)
	}
}

// Whatever fails, there is either no _metadata or a complete one, and no file stays that blocks the directory.
func TestMetadataIsAllOrNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		inner := mem.New("nn")
		f := fault.New(inner)
		st := New(f, "/ckp", job)
		broken := errors.New("broken")
		nth := rapid.IntRange(1, 6).Draw(t, "operation")
		f.Set(fault.When(fault.Nth(nth, func(fault.Event) bool { return true }), rapid.SampledFrom([]fault.Injector{
			fault.Fail(broken), fault.FailAfter(broken), fault.Torn(10, broken)}).Draw(t, "how")))
		_, _, err := st.WriteMetadata(ctx, st.CheckpointDir(1), checkpointWith(1))
		f.Set()
		reg := &fs.Registry{}
		dump := inner.Dump()
		file := "/ckp/" + job.String() + "/chk-1/_metadata"
		if b, ok := dump[file]; ok {
			if _, derr := metadata.Decode([]byte(b), ""); derr != nil {
				t.Fatalf("%v: an incomplete _metadata is there: %v", err, derr)
			}
		} else if err == nil {
			t.Fatal("no error and no _metadata")
		}
		_ = reg
	})
}

func TestTwoWritersOfOneCheckpoint(t *testing.T) {
	ctx := t.Context()
	inner := mem.New("nn")
	first, second := fault.New(inner), New(inner, "/ckp", job)
	st := New(first, "/ckp", job)
	dir := st.CheckpointDir(1)

	// The second comes while the first is writing.
	first.Set(fault.When(fault.On(fault.Close, ""), fault.Call(func(fault.Event) {
		if _, _, err := second.WriteMetadata(ctx, dir, checkpointWith(1)); !errors.Is(err, ErrClaimed) {
			t.Errorf("while the first writes: %v, want ErrClaimed", err)
		}
	})))
	if _, _, err := st.WriteMetadata(ctx, dir, checkpointWith(1)); err != nil {
		t.Fatal(err)
	}
	before := inner.Dump()
	if _, _, err := second.WriteMetadata(ctx, dir, checkpointWith(2)); !errors.Is(err, ErrClaimed) {
		t.Fatalf("after the first: %v, want ErrClaimed", err)
	}
	if diff := cmp.Diff(before, inner.Dump()); diff != "" {
		t.Fatalf("the second left a trace: %s", diff)
	}
}

func TestSweepRemovesWhatAbortedCheckpointsLeft(t *testing.T) {
	ctx := t.Context()
	st, _, f := memory(t)
	base := "/ckp/" + job.String()
	for _, p := range []string{"/chk-1/_metadata", "/chk-2/2-a", "/chk-3/_metadata", "/chk-3/3-a", "/chk-4/4-a", "/shared/1-a", "/shared/2-b", "/shared/3-c", "/shared/4-d",
		"/shared/unnumbered", "/taskowned/x"} {
		if err := fs.WriteFile(ctx, f, base+p, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.Sweep(ctx, 4, []string{st.CheckpointDir(3)}, []string{st.SharedDir() + "/1-a", st.SharedDir() + "/3-c"}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for p := range f.Dump() {
		left = append(left, strings.TrimPrefix(p, base))
	}
	slices.Sort(left)
	want := []string{"/chk-3/3-a", "/chk-3/_metadata", "/chk-4/4-a", "/shared/1-a", "/shared/3-c", "/shared/4-d", "/shared/unnumbered", "/taskowned/x"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Fatal(diff)
	}
	if last, err := st.LastID(ctx); err != nil || last != 4 {
		t.Fatalf("last %d, %v", last, err)
	}
	empty := New(f, "/none", job)
	if removed, err := empty.Sweep(ctx, 9, nil, nil); err != nil || removed != nil {
		t.Fatalf("%v, %v", removed, err)
	}
}

func TestRemoveTouchesNothingElse(t *testing.T) {
	ctx := t.Context()
	st, _, f := memory(t)
	for _, p := range []string{"/user/sp/1-a", "/user/sp/notes.txt", "/user/own/1-a", "/ckp/x/y"} {
		if err := fs.WriteFile(ctx, f, p, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
	}
	err := st.Remove(ctx, []string{"mem://nn/user/sp/1-a", "mem://nn/user/own/1-a", "mem://nn/gone"}, []string{"mem://nn/ckp/x"},
		[]string{"mem://nn/user/sp", "mem://nn/user/own", "mem://nn/gone"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"/user/sp/notes.txt": "x"}, f.Dump()); diff != "" {
		t.Fatal(diff)
	}
	if _, err := f.Stat(ctx, "/user/own"); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatalf("the empty directory stays: %v", err)
	}
}

// A savepoint that was to be written below a file has left nothing there, and its removal finds no fault with that.
func TestRemoveBelowAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	st := New(local.New(), "/ckp", graph.JobID{})
	below := "file://" + dir + "/file/savepoint-1"
	if err := st.Remove(t.Context(), []string{below + "/f"}, []string{below}, []string{below}); err != nil {
		t.Error(err)
	}
}

// A checkpoint that cannot be removed stays whole: what tells that it is complete goes before the files that it shares.
func TestRemoveTakesTheDirectoryFirst(t *testing.T) {
	ctx := t.Context()
	inner := mem.New("nn")
	f := fault.New(inner, fault.When(fault.First(1, fault.On(fault.Remove, "/ckp/chk-1")), fault.Fail(errors.New("no"))))
	for _, p := range []string{"/ckp/chk-1/_metadata", "/ckp/shared/1-a"} {
		if err := fs.WriteFile(ctx, f, p, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
	}
	whole := inner.Dump()
	remove := func() error {
		return remove(ctx, func(_ context.Context, p string) (fs.FileSystem, string, error) { return f, p, nil }, []string{"/ckp/shared/1-a"}, []string{"/ckp/chk-1"}, nil)
	}
	if err := remove(); err == nil {
		t.Error("no error")
	}
	if diff := cmp.Diff(whole, inner.Dump()); diff != "" {
		t.Error(diff)
	}
	if err := remove(); err != nil || len(inner.Dump()) > 0 {
		t.Errorf("left %v, %v", inner.Dump(), err)
	}
}

func TestCompletedFindsTheOlderOnes(t *testing.T) {
	ctx := t.Context()
	st, _, f := memory(t)
	for id := int64(1); id <= 5; id++ {
		if _, _, err := st.WriteMetadata(ctx, st.CheckpointDir(id), checkpointWith(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.WriteFile(ctx, f, "/ckp/"+job.String()+"/chk-3/_metadata", []byte("damaged"), true); err != nil {
		t.Fatal(err)
	}
	got, err := st.Completed(ctx, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Checkpoint.ID != 2 || got[1].Checkpoint.ID != 4 || got[1].Dir != st.CheckpointDir(4) {
		t.Fatalf("%+v", got)
	}
}

func TestRelativeNames(t *testing.T) {
	for _, c := range []struct{ base, uri, want string }{
		{"hdfs://nn/a/chk-1", "hdfs://nn/a/chk-1/f", "f"},
		{"hdfs://nn/a/chk-1", "hdfs://nn/a/shared/f", "../shared/f"},
		{"hdfs://nn/a/chk-1/", "hdfs://nn/b/c/f", "../../b/c/f"},
		{"/tmp/x", "file:///tmp/y", "../y"},
		{"hdfs://nn/", "hdfs://nn/f", "f"},
		{"hdfs://nn/f/g", "hdfs://nn/f", "../../f"},
	} {
		got, err := Relative(c.base, c.uri)
		if err != nil || got != c.want {
			t.Errorf("%s from %s: %q, %v; want %q", c.uri, c.base, got, err, c.want)
		}
		if back, err := Resolve(c.base, got); err != nil || back != clean(c.uri) {
			t.Errorf("%s at %s: %q, %v; want %q", got, c.base, back, err, c.uri)
		}
	}
	if _, err := Relative("hdfs://a/x", "hdfs://b/x"); err == nil {
		t.Error("a name across file systems")
	}
	for _, name := range []string{"/etc/passwd", "hdfs://x/y"} {
		if _, err := Resolve("hdfs://nn/a", name); err == nil {
			t.Errorf("%q was taken for a relative name", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.StringMatching(`(/[a-c]{1,2}){1,5}`)
		base, uri := "hdfs://nn"+p.Draw(t, "base"), "hdfs://nn"+p.Draw(t, "file")
		rel, err := Relative(base, uri)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Resolve(base, rel); err != nil || back != uri {
			t.Fatalf("%s from %s is %q, back %q (%v)", uri, base, rel, back, err)
		}
	})
}
