package staging

import (
	"context"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the bytes that are written.
type counting struct {
	fs.FileSystem
	bytes  atomic.Int64
	failAt int64  // a write beyond this many bytes fails; 0 never
	denied string // Mkdir and Create below this folder are refused
	made   atomic.Int64
}

func (c *counting) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	if c.denied != "" && fs.Within(c.denied, p) {
		return nil, iofs.ErrPermission
	}
	w, err := c.FileSystem.Create(ctx, p, overwrite)
	c.made.Add(1)
	return &countingWriter{w, c}, err
}

func (c *counting) Mkdir(ctx context.Context, p string, perm uint32) error {
	if c.denied != "" && fs.Within(c.denied, p) {
		return iofs.ErrPermission
	}
	return c.FileSystem.Mkdir(ctx, p, perm)
}

func (c *counting) Remove(ctx context.Context, p string, recursive bool) error {
	if c.denied != "" && fs.Within(c.denied, p) { // HDFS looks at permissions first, also when there is nothing
		return iofs.ErrPermission
	}
	return c.FileSystem.Remove(ctx, p, recursive)
}

type countingWriter struct {
	fs.Writer
	c *counting
}

func (w *countingWriter) Write(p []byte) (int, error) {
	if n := w.c.bytes.Add(int64(len(p))); w.c.failAt > 0 && n > w.c.failAt {
		return 0, errors.New("pipeline broken")
	}
	return w.Writer.Write(p)
}

func local(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, f fs.FileSystem) *Store {
	t.Helper()
	s, err := Open(t.Context(), f, "/user/ann/.thalweg", "ann")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func files(t *testing.T, f fs.FileSystem, dir string) []string {
	t.Helper()
	list, err := f.List(t.Context(), dir)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, i := range list {
		if i.IsDir {
			out = append(out, files(t, f, i.Path)...)
		} else {
			out = append(out, i.Path)
		}
	}
	return out
}

func TestSecondSubmissionSendsNothing(t *testing.T) {
	f := &counting{FileSystem: mem.New("nn")}
	one, two := local(t, "thalweg-appmaster", strings.Repeat("a", 1<<20)), local(t, "job", "bbb")
	first, err := open(t, f).PutAll(t.Context(), []string{one, two}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.bytes.Load(); got != 1<<20+3 || first[0].Sent != 1<<20 || first[1].Sent != 3 {
		t.Errorf("first: %d bytes, %+v", got, first)
	}
	f.bytes.Store(0)
	// The same content under the same name from another folder, by another client.
	again, err := open(t, f).PutAll(t.Context(), []string{local(t, "thalweg-appmaster", strings.Repeat("a", 1<<20)), two}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.bytes.Load() != 0 || again[0].Sent != 0 || again[1].Sent != 0 {
		t.Errorf("second: %d bytes, %+v", f.bytes.Load(), again)
	}
	if !again[0].ModTime.Equal(first[0].ModTime) || again[0].URI != first[0].URI {
		t.Errorf("YARN's cache would miss: %+v and %+v", first[0], again[0])
	}
	// Another content is another file; the first stays.
	if _, err := open(t, f).Put(t.Context(), local(t, "job", "ccc"), nil); err != nil {
		t.Fatal(err)
	}
	if got := files(t, f, "/user/ann/.thalweg"); len(got) != 3 {
		t.Errorf("staged: %v", got)
	}
}

func TestTruncatedFileIsSentAgain(t *testing.T) {
	f := &counting{FileSystem: mem.New("nn")}
	job := local(t, "job", "content")
	a, err := open(t, f).Put(t.Context(), job, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := strings.TrimPrefix(a.URI, f.URI())
	if err := fs.WriteFile(t.Context(), f, p, []byte("con"), true); err != nil {
		t.Fatal(err)
	}
	if a, err = open(t, f).Put(t.Context(), job, nil); err != nil || a.Sent != 7 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestVisibilityFollowsPermissions(t *testing.T) {
	f := mem.New("nn")
	job := local(t, "job", "x")
	a, err := open(t, f).Put(t.Context(), job, nil)
	if err != nil || !a.Public {
		t.Fatalf("%+v, %v", a, err)
	}
	r, err := a.Resource()
	if err != nil || r.GetVisibility() != yarnpb.LocalResourceVisibilityProto_PUBLIC || r.GetTimestamp() != a.ModTime.UnixMilli() || r.GetSize() != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if err := f.Chmod(t.Context(), "/user/ann", 0o700); err != nil {
		t.Fatal(err)
	}
	if a, err = open(t, f).Put(t.Context(), job, nil); err != nil || a.Public {
		t.Errorf("behind a closed home: %+v, %v", a, err)
	}
	if r, _ := a.Resource(); r.GetVisibility() != yarnpb.LocalResourceVisibilityProto_PRIVATE {
		t.Errorf("behind a closed home: %v", r.GetVisibility())
	}
}

// A staged file whose content was replaced by as many bytes is sent again, a whole one is not.
func TestDamagedFileIsSentAgain(t *testing.T) {
	content := strings.Repeat("program ", 10_000)
	for name, damaged := range map[string]string{
		"zeros": strings.Repeat("\x00", len(content)), "start": "x" + content[1:], "end": content[:len(content)-1] + "x",
	} {
		t.Run(name, func(t *testing.T) {
			f := mem.New("nn")
			job := local(t, "job", content)
			a, err := open(t, f).Put(t.Context(), job, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := strings.TrimPrefix(a.URI, f.URI())
			w, err := f.Create(t.Context(), p, true)
			if err == nil {
				_, err = io.WriteString(w, damaged)
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if a, err = open(t, f).Put(t.Context(), job, nil); err != nil || a.Sent != int64(len(content)) {
				t.Errorf("sent %d bytes, %v", a.Sent, err)
			}
			if a, err = open(t, f).Put(t.Context(), job, nil); err != nil || a.Sent != 0 {
				t.Errorf("sent %d bytes again, %v", a.Sent, err)
			}
			r, err := f.Open(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != content {
				t.Errorf("content: %v", err)
			}
		})
	}
}

func TestUndoLeavesNothingBehind(t *testing.T) {
	f := &counting{FileSystem: mem.New("nn")}
	s := open(t, f)
	if _, err := s.MakeApplication(t.Context(), "application_1_0001"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), local(t, "job", "x"), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as after Ctrl-C
	if err := s.Undo(ctx); err != nil {
		t.Fatal(err)
	}
	if got := files(t, f, "/"); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if _, err := f.Stat(t.Context(), "/user/ann/.thalweg"); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	// What was there before the submission stays.
	if _, err := open(t, f).Put(t.Context(), local(t, "old", "old"), nil); err != nil {
		t.Fatal(err)
	}
	s = open(t, f)
	if _, err := s.PutAll(t.Context(), []string{local(t, "old", "old"), local(t, "new", "new")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := files(t, f, "/"); len(got) != 1 || !strings.HasSuffix(got[0], "-old") {
		t.Errorf("left: %v", got)
	}
}

func TestBrokenUploadLeavesNoFile(t *testing.T) {
	f := &counting{FileSystem: mem.New("nn"), failAt: 300 << 10}
	s := open(t, f)
	_, err := s.PutAll(t.Context(), []string{local(t, "job", strings.Repeat("x", 1<<20))}, nil)
	var se *Error
	if !errors.As(err, &se) || !strings.Contains(err.Error(), "pipeline broken") {
		t.Errorf("got %v", err)
	}
	if got := files(t, f, "/"); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestUnwritableFolderIsOneLine(t *testing.T) {
	f := &counting{FileSystem: mem.New("nn"), denied: "/user"}
	_, err := Open(t.Context(), f, "/user/ann/.thalweg", "bob")
	check := func(err error) {
		t.Helper()
		if err == nil || !errors.Is(err, iofs.ErrPermission) {
			t.Fatalf("got %v", err)
		}
		for _, want := range []string{"mem://nn/user/ann/.thalweg", "user bob may not write", "yarn.staging-directory"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than one line: %q", err)
		}
	}
	check(err)
	// The folder is there, but belongs to somebody else.
	f.denied = ""
	open(t, f)
	f.denied = "/user"
	s, err := Open(t.Context(), f, "/user/ann/.thalweg", "bob")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.MakeApplication(t.Context(), "application_1_0001")
	check(err)
	_, err = s.Put(t.Context(), local(t, "job", "x"), nil)
	check(err)
	if err := s.Undo(t.Context()); err != nil {
		t.Errorf("nothing was made: %v", err)
	}
	if _, err := s.Put(t.Context(), filepath.Join(t.TempDir(), "nothing"), nil); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("a missing local file: %v", err)
	}
}

func TestProgressAddsUp(t *testing.T) {
	var last, total int64
	a, err := open(t, mem.New("nn")).Put(t.Context(), local(t, "job", strings.Repeat("x", 1<<20)), func(_ string, sent, all int64) {
		if sent < last {
			t.Errorf("goes back from %d to %d", last, sent)
		}
		last, total = sent, all
	})
	if err != nil || last != a.Size || total != a.Size {
		t.Errorf("%d of %d, %v", last, total, err)
	}
}

func TestRemoveApplicationIsNotTheRoot(t *testing.T) {
	f := mem.New("nn")
	s := open(t, f)
	if _, err := s.MakeApplication(t.Context(), "application_1_0001"); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat(t.Context(), s.Path("application_1_0001"))
	if err != nil || info.Mode != 0o700 {
		t.Errorf("%+v, %v: want 0700", info, err)
	}
	if err := RemoveApplication(t.Context(), f, s.Path("application_1_0001")); err != nil {
		t.Error(err)
	}
	if err := RemoveApplication(t.Context(), f, s.Path("application_1_0001")); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if RemoveApplication(t.Context(), f, "/") == nil || RemoveApplication(t.Context(), f, "") == nil {
		t.Error("the root may be removed")
	}
	if got := path.Dir(s.Path(libDir)); got != "/user/ann/.thalweg" {
		t.Error(got)
	}
}

func TestURL(t *testing.T) {
	u, err := yarnURL("hdfs://nn:8020/a/b c%20#1?")
	if err != nil || u.GetScheme() != "hdfs" || u.GetHost() != "nn" || u.GetPort() != 8020 || u.GetFile() != "/a/b c%20#1?" {
		t.Errorf("%v, %v", u, err)
	}
	if u, err = yarnURL("hdfs://nameservice/x"); err != nil || u.GetPort() != -1 || u.GetHost() != "nameservice" {
		t.Errorf("%v, %v", u, err)
	}
	if u, err = yarnURL("file:///x"); err != nil || u.Host != nil {
		t.Errorf("%v, %v", u, err)
	}
	for _, bad := range []string{"", "/x", "hdfs://nn:8020", "hdfs://nn:port/x"} {
		if u, err := yarnURL(bad); err == nil {
			t.Errorf("%q: %v", bad, u)
		}
	}
}

// dying ends the context at the first call of op below a folder, after its effect, as Ctrl-C does at the worst moment.
type dying struct {
	fs.FileSystem
	op     string
	cancel context.CancelFunc
	done   *atomic.Bool
}

func (d dying) Mkdir(ctx context.Context, p string, perm uint32) error {
	err := d.FileSystem.Mkdir(ctx, p, perm)
	if d.op == "mkdir" {
		d.cancel()
		return errors.Join(err, context.Canceled) // the answer is lost
	}
	return err
}

func (d dying) Chmod(ctx context.Context, p string, perm uint32) error {
	if d.op == "chmod" {
		d.cancel()
		return context.Canceled
	}
	return d.FileSystem.Chmod(ctx, p, perm)
}

func (d dying) Rename(ctx context.Context, from, to string) error {
	if d.op == "rename" && !d.done.Swap(true) { // Undo renames, too
		d.cancel()
		return context.Canceled
	}
	return d.FileSystem.Rename(ctx, from, to)
}

func TestInterruptedOpenLeavesNothing(t *testing.T) {
	for _, op := range []string{"mkdir", "chmod", "rename"} {
		f := mem.New("nn")
		ctx, cancel := context.WithCancel(t.Context())
		d := dying{f, op, cancel, &atomic.Bool{}}
		s, err := Open(ctx, d, "/user/ann/.thalweg", "ann")
		if err == nil {
			if _, err = s.Put(ctx, local(t, "job", "x"), nil); err == nil {
				t.Errorf("%s: accepted", op)
			}
			if err := s.Undo(ctx); err != nil {
				t.Error(err)
			}
		}
		if _, err := f.Stat(t.Context(), "/user"); !errors.Is(err, iofs.ErrNotExist) {
			t.Errorf("%s: left behind: %v", op, err)
		}
	}
}

// A submission that fails takes away what is its own, also when it made the folders that another one uses by now.
func TestUndoLeavesOthersFiles(t *testing.T) {
	f := mem.New("nn")
	one, two := open(t, f), open(t, f)
	one.now = one.now.Add(time.Hour) // began long after the other
	if _, err := two.Put(t.Context(), local(t, "job", "two"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := two.MakeApplication(t.Context(), "application_1_0002"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Put(t.Context(), local(t, "job", "one"), nil); err != nil {
		t.Fatal(err)
	}
	if err := one.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := files(t, f, "/"); len(got) != 1 {
		t.Errorf("left: %v, want the other's file", got)
	}
	if _, err := f.Stat(t.Context(), two.Path("application_1_0002")); err != nil {
		t.Error(err)
	}
}

// A file that another submission found while it was there is not taken back, one that it did not look for yet is, and then sent again.
func TestUndoLeavesFilesThatOthersFound(t *testing.T) {
	f := mem.New("nn")
	job := local(t, "job", "content")
	put := func(s *Store, app string) Artifact {
		t.Helper()
		if _, err := s.MakeApplication(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		a, err := s.Put(t.Context(), job, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, two := open(t, f), open(t, f)
	first := put(one, "application_1_0001")
	second := put(two, "application_1_0002")
	if second.Sent != 0 {
		t.Fatalf("sent %d bytes", second.Sent)
	}
	if err := one.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat(t.Context(), strings.TrimPrefix(first.URI, f.URI()))
	if err != nil || !info.ModTime.Equal(second.ModTime) {
		t.Errorf("the other's file: %+v, %v", info, err)
	}
	if _, err := f.Stat(t.Context(), one.Path("application_1_0001")); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
	if err := two.Undo(t.Context()); err != nil { // found, not sent: it is not the second's to remove
		t.Fatal(err)
	}
	if got := files(t, f, "/"); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
}

func TestSweep(t *testing.T) {
	f := mem.New("nn")
	at := func(day string) *Store {
		t.Helper()
		s := open(t, f)
		now, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		s.now = now
		if err := s.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	stage := func(day, app string) Artifact {
		t.Helper()
		s := at(day)
		a, err := s.Put(t.Context(), local(t, "job", "content"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if app != "" {
			if _, err := s.MakeApplication(t.Context(), app); err != nil {
				t.Fatal(err)
			}
		}
		// A client that was killed while it sent.
		w, err := f.Create(t.Context(), s.uploads()+"/0-job", false)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	base := "/user/ann/.thalweg/lib/"
	stage("2026-01-31", "")
	stage("2026-02-01", "application_1_0002")
	last, present := stage("2026-03-30", ""), stage("2026-04-01", "application_1_0004")
	if last.URI == present.URI || last.SHA256 != present.SHA256 {
		t.Errorf("%s and %s: each month has its own", last.URI, present.URI)
	}
	check := func(s *Store, want ...string) {
		t.Helper()
		removed, err := s.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(removed, " ") != strings.Join(want, " ") {
			t.Errorf("removed\n%v, want\n%v", removed, want)
		}
	}
	check(at("2026-04-02"), base+".upload-2026-01-31", base+".upload-2026-02-01", base+".upload-2026-03-30", base+"2026-01")
	check(at("2026-04-02"))
	check(at("2026-05-31"), base+".upload-2026-04-01", base+"2026-03")
	// What a running application uses stays, however old; it ends with the application's folder.
	if err := RemoveApplication(t.Context(), f, "/user/ann/.thalweg/application_1_0002"); err != nil {
		t.Fatal(err)
	}
	check(at("2026-06-01"), base+"2026-02")
	if got := files(t, f, "/"); len(got) != 1 || "mem://nn"+got[0] != present.URI {
		t.Errorf("left: %v, want %s", got, present.URI)
	}
}
