// Package fstest is the conformance suite of fs.FileSystem: every implementation passes it, in memory, on disk and on a real HDFS. It
// is test support.
package fstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Options fit the suite to an implementation. The zero value checks everything.
type Options struct {
	// Root is an absolute path that exists and that the suite may fill; each test uses a folder of its own below it. Default "/".
	Root string
	// LargeBytes is the size of the file for random reads; default 3 MiB.
	LargeBytes int
	// NoPermissions is set when the file system lets everybody do everything (the superuser, memory).
	NoPermissions bool
}

// Run checks open(t) against the contract of package fs. open is called once per test; the suite closes what it returns.
func Run(t *testing.T, open func(t *testing.T) fs.FileSystem, opts Options) {
	t.Helper()
	if opts.Root == "" {
		opts.Root = "/"
	}
	if opts.LargeBytes == 0 {
		opts.LargeBytes = 3 << 20
	}
	tests := []struct {
		name string
		f    func(*suite)
	}{
		{"WriteAndRead", writeAndRead}, {"EmptyFile", emptyFile}, {"CreateExclusive", createExclusive},
		{"CreateExclusiveRace", createRace}, {"CreateOverwrite", createOverwrite}, {"OverwriteShowsNothingBeforeClose", overwriteHidden},
		{"Abort", abort}, {"CloseTwice", closeTwice}, {"CreateMakesParents", createParents}, {"WrongKinds", wrongKinds},
		{"Rename", rename}, {"RenameOverwrites", renameOverwrites}, {"RenameRefuses", renameRefuses}, {"RenameDirectory", renameDirectory},
		{"Remove", remove}, {"Mkdir", mkdir}, {"List", list}, {"Chmod", chmod}, {"Denied", denied}, {"Missing", missing}, {"BadPaths", badPaths},
		{"LargeRandomReads", largeReads}, {"ParallelFiles", parallelFiles}, {"OddNames", oddNames}, {"ContextEnded", contextEnded},
		{"ContextHoldsForOpenFiles", contextOpenFile},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := open(t)
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Errorf("close file system: %v", err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			t.Cleanup(cancel)
			s := &suite{T: t, fs: f, ctx: ctx, opts: opts, dir: path.Join(opts.Root, "fstest-"+tc.name+fmt.Sprintf("-%08x", rand.Uint32()))} //nolint:gosec // a name
			s.must(f.Mkdir(ctx, s.dir, 0o755))
			t.Cleanup(func() {
				clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
				s.must(f.Remove(clean, s.dir, true))
			})
			tc.f(s)
		})
	}
}

type suite struct {
	*testing.T
	fs   fs.FileSystem
	ctx  context.Context //nolint:containedctx // it is the life of the test
	opts Options
	dir  string
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// is checks the kind of an error and that its text says where: the path is in it.
func (s *suite) is(err, want error, p string) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want one that is %v", err, want)
	}
	if p != "" && !bytes.Contains([]byte(err.Error()), []byte(p)) {
		s.Errorf("the error %q does not name %s", err, p)
	}
}

func (s *suite) path(name string) string { return path.Join(s.dir, name) }

func (s *suite) write(p, content string) {
	s.Helper()
	s.must(fs.WriteFile(s.ctx, s.fs, p, []byte(content), true))
}

func (s *suite) holds(p, want string) {
	s.Helper()
	b, err := fs.ReadFile(s.ctx, s.fs, p, 1<<20)
	s.must(err)
	if string(b) != want {
		s.Fatalf("%s holds %q, want %q", p, b, want)
	}
}

func (s *suite) absent(p string) {
	s.Helper()
	_, err := s.fs.Stat(s.ctx, p)
	s.is(err, iofs.ErrNotExist, p)
}

func (s *suite) names(dir string) []string {
	s.Helper()
	infos, err := s.fs.List(s.ctx, dir)
	s.must(err)
	out := []string{}
	for _, i := range infos {
		if path.Dir(i.Path) != dir {
			s.Errorf("list %s returned the path %s", dir, i.Path)
		}
		out = append(out, path.Base(i.Path))
	}
	return out
}

func writeAndRead(s *suite) {
	before := time.Now().Add(-2 * time.Second)
	p := s.path("f")
	w, err := s.fs.Create(s.ctx, p, false)
	s.must(err)
	for _, part := range []string{"one ", "two ", "three"} {
		n, err := w.Write([]byte(part))
		s.must(err)
		if n != len(part) {
			s.Fatalf("wrote %d bytes of %d", n, len(part))
		}
	}
	s.must(w.Close())
	s.holds(p, "one two three")
	info, err := s.fs.Stat(s.ctx, p)
	s.must(err)
	if info.Path != p || info.Size != 13 || info.IsDir || info.Owner == "" || info.Mode&0o600 != 0o600 {
		s.Errorf("stat: %+v", info)
	}
	if info.ModTime.Before(before) || info.ModTime.After(time.Now().Add(2*time.Second)) {
		s.Errorf("modification time %s is not now", info.ModTime)
	}
	r, err := s.fs.Open(s.ctx, p)
	s.must(err)
	b := make([]byte, 5)
	if n, err := r.ReadAt(b, 8); n != 5 || (err != nil && !errors.Is(err, io.EOF)) || string(b) != "three" {
		s.Errorf("ReadAt(8): %q, %d, %v", b, n, err)
	}
	if n, err := r.ReadAt(b, 11); n != 2 || !errors.Is(err, io.EOF) {
		s.Errorf("ReadAt across the end: %d, %v, want 2 and EOF", n, err)
	}
	if n, err := r.ReadAt(b, 100); n != 0 || !errors.Is(err, io.EOF) {
		s.Errorf("ReadAt behind the end: %d, %v, want 0 and EOF", n, err)
	}
	if _, err := r.ReadAt(b, -1); err == nil {
		s.Error("ReadAt(-1) has no error")
	}
	all, err := io.ReadAll(r) // ReadAt has not moved it
	s.must(err)
	if string(all) != "one two three" {
		s.Errorf("Read: %q", all)
	}
	s.must(r.Close())
}

func emptyFile(s *suite) {
	p := s.path("empty")
	s.must(fs.WriteFile(s.ctx, s.fs, p, nil, false))
	s.holds(p, "")
	info, err := s.fs.Stat(s.ctx, p)
	s.must(err)
	if info.Size != 0 || info.IsDir {
		s.Errorf("stat: %+v", info)
	}
}

func createExclusive(s *suite) {
	p := s.path("f")
	s.must(fs.WriteFile(s.ctx, s.fs, p, []byte("first"), false))
	_, err := s.fs.Create(s.ctx, p, false)
	s.is(err, iofs.ErrExist, p)
	s.holds(p, "first")
	// A file that is still being written exists as well.
	q := s.path("open")
	w, err := s.fs.Create(s.ctx, q, false)
	s.must(err)
	_, err = s.fs.Create(s.ctx, q, false)
	s.is(err, iofs.ErrExist, q)
	s.must(w.Close())
	s.holds(q, "")
}

func createRace(s *suite) {
	const contenders = 8
	for round := range 3 {
		p := s.path(fmt.Sprintf("epoch-%d", round))
		var wg sync.WaitGroup
		won := make([]bool, contenders)
		errs := make([]error, contenders)
		for i := range contenders {
			wg.Go(func() {
				errs[i] = fs.WriteFile(s.ctx, s.fs, p, []byte(fmt.Sprint(i)), false)
				won[i] = errs[i] == nil
			})
		}
		wg.Wait()
		winner := slices.Index(won, true)
		if winner < 0 {
			s.Fatalf("nobody created the file: %v", errs)
		}
		for i, err := range errs {
			if i != winner {
				s.is(err, iofs.ErrExist, p)
			}
		}
		s.holds(p, fmt.Sprint(winner))
	}
}

func createOverwrite(s *suite) {
	p := s.path("f")
	s.write(p, "a longer first content")
	s.write(p, "second")
	s.holds(p, "second")
	if got := s.names(s.dir); !slices.Equal(got, []string{"f"}) {
		s.Errorf("left in the folder: %v", got)
	}
}

func overwriteHidden(s *suite) {
	p := s.path("f")
	s.write(p, "old")
	w, err := s.fs.Create(s.ctx, p, true)
	s.must(err)
	_, err = w.Write([]byte("new"))
	s.must(err)
	s.holds(p, "old")
	if got := s.names(s.dir); !slices.Equal(got, []string{"f"}) {
		s.Errorf("the unfinished file shows: %v", got)
	}
	s.must(w.Close())
	s.holds(p, "new")
}

func abort(s *suite) {
	for _, overwrite := range []bool{false, true} {
		p := s.path(fmt.Sprintf("f-%t", overwrite))
		w, err := s.fs.Create(s.ctx, p, overwrite)
		s.must(err)
		_, err = w.Write(make([]byte, 200_000))
		s.must(err)
		s.must(w.Abort())
		s.absent(p)
		if _, err := w.Write([]byte("x")); err == nil {
			s.Error("Write after Abort has no error")
		}
		if err := w.Close(); err == nil {
			s.Error("Close after Abort has no error")
		}
		s.absent(p)
	}
	if got := s.names(s.dir); len(got) != 0 {
		s.Errorf("left in the folder: %v", got)
	}
	s.write(s.path("kept"), "kept")
	w, err := s.fs.Create(s.ctx, s.path("kept"), true)
	s.must(err)
	s.must(w.Abort())
	s.holds(s.path("kept"), "kept")
}

func closeTwice(s *suite) {
	p := s.path("f")
	w, err := s.fs.Create(s.ctx, p, false)
	s.must(err)
	_, err = w.Write([]byte("data"))
	s.must(err)
	s.must(w.Close())
	s.must(w.Abort()) // a no-op
	s.holds(p, "data")
	if _, err := w.Write([]byte("x")); err == nil {
		s.Error("Write after Close has no error")
	}
	s.holds(p, "data")
}

func createParents(s *suite) {
	s.must(fs.WriteFile(s.ctx, s.fs, s.path("a/b/exclusive"), []byte("1"), false))
	s.must(fs.WriteFile(s.ctx, s.fs, s.path("c/d/replaced"), []byte("2"), true))
	s.holds(s.path("a/b/exclusive"), "1")
	s.holds(s.path("c/d/replaced"), "2")
	info, err := s.fs.Stat(s.ctx, s.path("a/b"))
	s.must(err)
	if !info.IsDir {
		s.Errorf("stat of a parent: %+v", info)
	}
}

func wrongKinds(s *suite) {
	d, f := s.path("dir"), s.path("file")
	s.must(s.fs.Mkdir(s.ctx, d, 0o755))
	s.write(f, "x")
	_, err := s.fs.Create(s.ctx, d, true)
	s.is(err, syscall.EISDIR, d)
	_, err = s.fs.Create(s.ctx, d, false)
	s.is(err, iofs.ErrExist, d)
	_, err = s.fs.Open(s.ctx, d)
	s.is(err, syscall.EISDIR, d)
	_, err = s.fs.List(s.ctx, f)
	s.is(err, syscall.ENOTDIR, f)
	_, err = s.fs.Create(s.ctx, f+"/below", false)
	s.is(err, syscall.ENOTDIR, f)
	_, err = s.fs.Create(s.ctx, f+"/below", true)
	s.is(err, syscall.ENOTDIR, f)
	s.is(s.fs.Mkdir(s.ctx, f, 0o755), iofs.ErrExist, f)
	s.is(s.fs.Mkdir(s.ctx, f+"/below", 0o755), syscall.ENOTDIR, f)
	s.holds(f, "x")
}

func rename(s *suite) {
	s.write(s.path("a"), "content")
	s.must(s.fs.Rename(s.ctx, s.path("a"), s.path("b")))
	s.absent(s.path("a"))
	s.holds(s.path("b"), "content")
	s.must(s.fs.Rename(s.ctx, s.path("b"), s.path("b")))
	s.holds(s.path("b"), "content")
}

func renameOverwrites(s *suite) {
	s.write(s.path("target"), "old")
	s.write(s.path("tmp"), "new")
	s.must(s.fs.Rename(s.ctx, s.path("tmp"), s.path("target")))
	s.absent(s.path("tmp"))
	s.holds(s.path("target"), "new")
	// There is no moment at which the target is missing.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.fs.Stat(s.ctx, s.path("target")); err != nil {
				s.Errorf("while it is replaced: %v", err)
				return
			}
		}
	})
	for i := range 20 {
		s.write(s.path("tmp"), fmt.Sprint(i))
		s.must(s.fs.Rename(s.ctx, s.path("tmp"), s.path("target")))
	}
	close(stop)
	wg.Wait()
	s.holds(s.path("target"), "19")
}

func renameRefuses(s *suite) {
	s.is(s.fs.Rename(s.ctx, s.path("missing"), s.path("x")), iofs.ErrNotExist, s.path("missing"))
	s.write(s.path("f"), "f")
	s.is(s.fs.Rename(s.ctx, s.path("f"), s.path("no/such/folder/f")), iofs.ErrNotExist, s.path("f"))
	s.must(s.fs.Mkdir(s.ctx, s.path("d/full"), 0o755))
	s.must(s.fs.Mkdir(s.ctx, s.path("e"), 0o755))
	if err := s.fs.Rename(s.ctx, s.path("f"), s.path("d")); err == nil {
		s.Error("a file replaced a folder")
	}
	if err := s.fs.Rename(s.ctx, s.path("e"), s.path("f")); err == nil {
		s.Error("a folder replaced a file")
	}
	if err := s.fs.Rename(s.ctx, s.path("e"), s.path("d")); err == nil {
		s.Error("a folder replaced one that is not empty")
	}
	if err := s.fs.Rename(s.ctx, s.path("d"), s.path("d/full/d")); err == nil {
		s.Error("a folder was moved below itself")
	}
	s.holds(s.path("f"), "f")
	if got := s.names(s.dir); !slices.Equal(got, []string{"d", "e", "f"}) {
		s.Errorf("left in the folder: %v", got)
	}
}

func renameDirectory(s *suite) {
	s.write(s.path("from/sub/a"), "a")
	s.write(s.path("from/b"), "b")
	s.write(s.path("from2"), "a name with the same beginning")
	s.must(s.fs.Rename(s.ctx, s.path("from"), s.path("to")))
	s.holds(s.path("to/sub/a"), "a")
	s.holds(s.path("to/b"), "b")
	s.holds(s.path("from2"), "a name with the same beginning")
	s.absent(s.path("from"))
	s.absent(s.path("from/b"))
}

func remove(s *suite) {
	s.must(s.fs.Remove(s.ctx, s.path("missing"), false))
	s.must(s.fs.Remove(s.ctx, s.path("missing/deeper"), true))
	s.write(s.path("f"), "f")
	s.must(s.fs.Remove(s.ctx, s.path("f"), false))
	s.absent(s.path("f"))
	s.write(s.path("d/sub/f"), "f")
	s.write(s.path("d2"), "a name with the same beginning")
	s.is(s.fs.Remove(s.ctx, s.path("d"), false), syscall.ENOTEMPTY, s.path("d"))
	s.holds(s.path("d/sub/f"), "f")
	s.must(s.fs.Remove(s.ctx, s.path("d"), true))
	s.absent(s.path("d"))
	s.absent(s.path("d/sub/f"))
	s.holds(s.path("d2"), "a name with the same beginning")
	s.must(s.fs.Mkdir(s.ctx, s.path("empty"), 0o755))
	s.must(s.fs.Remove(s.ctx, s.path("empty"), false))
	s.absent(s.path("empty"))
}

func mkdir(s *suite) {
	p := s.path("a/b/c")
	s.must(s.fs.Mkdir(s.ctx, p, 0o700))
	info, err := s.fs.Stat(s.ctx, p)
	s.must(err)
	if !info.IsDir || info.Mode != 0o700 {
		s.Errorf("stat: %+v, want a folder of mode 0700", info)
	}
	s.must(s.fs.Chmod(s.ctx, p, 0o711))
	s.must(s.fs.Mkdir(s.ctx, p, 0o755)) // it is there; nothing changes
	if info, err = s.fs.Stat(s.ctx, p); err != nil || info.Mode != 0o711 {
		s.Errorf("mkdir of an existing folder changed it: %+v, %v", info, err)
	}
	s.must(s.fs.Mkdir(s.ctx, s.path("shared"), 0o777)) // whatever the umask of the process is
	if info, err = s.fs.Stat(s.ctx, s.path("shared")); err != nil || info.Mode != 0o777 {
		s.Errorf("stat: %+v, %v, want mode 0777", info, err)
	}
}

func list(s *suite) {
	if got := s.names(s.dir); len(got) != 0 {
		s.Errorf("a new folder holds %v", got)
	}
	for _, n := range []string{"b", "a-2", "a", "c/inner", "Z"} {
		s.write(s.path(n), n)
	}
	infos, err := s.fs.List(s.ctx, s.dir)
	s.must(err)
	var got []string
	for _, i := range infos {
		got = append(got, i.Path)
		if i.IsDir != (path.Base(i.Path) == "c") || (!i.IsDir && i.Size != int64(len(path.Base(i.Path)))) || i.ModTime.IsZero() {
			s.Errorf("listed: %+v", i)
		}
	}
	want := []string{s.path("Z"), s.path("a"), s.path("a-2"), s.path("b"), s.path("c")}
	if !slices.Equal(got, want) {
		s.Errorf("listed %v, want %v", got, want)
	}
}

func chmod(s *suite) {
	s.write(s.path("f"), "f")
	s.must(s.fs.Chmod(s.ctx, s.path("f"), 0o640))
	info, err := s.fs.Stat(s.ctx, s.path("f"))
	s.must(err)
	if info.Mode != 0o640 {
		s.Errorf("mode is %o, want 640", info.Mode)
	}
	s.is(s.fs.Chmod(s.ctx, s.path("missing"), 0o600), iofs.ErrNotExist, s.path("missing"))
}

func denied(s *suite) {
	if s.opts.NoPermissions {
		return
	}
	d := s.path("closed")
	s.write(d+"/f", "f")
	s.must(s.fs.Chmod(s.ctx, d, 0o555))
	_, err := s.fs.Create(s.ctx, d+"/new", false)
	s.is(err, iofs.ErrPermission, d)
	_, err = s.fs.Create(s.ctx, d+"/new", true)
	s.is(err, iofs.ErrPermission, d)
	s.is(s.fs.Mkdir(s.ctx, d+"/sub", 0o755), iofs.ErrPermission, d)
	s.is(s.fs.Remove(s.ctx, d+"/f", false), iofs.ErrPermission, d)
	s.is(s.fs.Rename(s.ctx, d+"/f", s.path("g")), iofs.ErrPermission, d)
	s.holds(d+"/f", "f")
	s.must(s.fs.Chmod(s.ctx, d+"/f", 0o000))
	r, err := s.fs.Open(s.ctx, d+"/f")
	if err == nil { // HDFS checks when the blocks are asked for
		_, err = io.ReadAll(r)
		s.must(r.Close())
	}
	s.is(err, iofs.ErrPermission, d)
	s.must(s.fs.Chmod(s.ctx, d, 0o755))
}

func missing(s *suite) {
	for _, p := range []string{s.path("missing"), s.path("no/such/folder/f")} {
		_, err := s.fs.Open(s.ctx, p)
		s.is(err, iofs.ErrNotExist, p)
		_, err = s.fs.Stat(s.ctx, p)
		s.is(err, iofs.ErrNotExist, p)
		_, err = s.fs.List(s.ctx, p)
		s.is(err, iofs.ErrNotExist, p)
	}
}

func badPaths(s *suite) {
	for _, p := range []string{"", "relative", "a/../b"} {
		if _, err := s.fs.Create(s.ctx, p, true); !errors.Is(err, iofs.ErrInvalid) {
			s.Errorf("create %q: %v, want invalid", p, err)
		}
		if _, err := s.fs.Stat(s.ctx, p); !errors.Is(err, iofs.ErrInvalid) {
			s.Errorf("stat %q: %v, want invalid", p, err)
		}
	}
	if err := s.fs.Remove(s.ctx, "/", true); err == nil {
		s.Error("the root was removed")
	}
	s.write(s.dir+"/x/../y//z", "z")
	s.holds(s.path("y/z"), "z")
}

func oddNames(s *suite) {
	names := []string{"a b", "a%20b", "a:b", "a+b", "100%", "ümlaut", "#x", "a=b&c", "a?b#c", "%41%"}
	for _, n := range names {
		if n == "a:b" && s.fs.URI() != "file://" && s.fs.URI()[:4] == "hdfs" {
			continue // HDFS refuses colons
		}
		s.write(s.path(n), n)
		s.holds(s.path(n), n)
	}
}

// pattern is content that tells each position apart.
func pattern(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // content
	for i := 0; i+8 <= n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

func largeReads(s *suite) {
	data := pattern(s.opts.LargeBytes)
	p := s.path("large")
	w, err := s.fs.Create(s.ctx, p, true)
	s.must(err)
	for rest := data; len(rest) > 0; {
		n := min(len(rest), 100_003) // neither a power of two nor a divisor
		_, err := w.Write(rest[:n])
		s.must(err)
		rest = rest[n:]
	}
	s.must(w.Close())
	info, err := s.fs.Stat(s.ctx, p)
	s.must(err)
	if info.Size != int64(len(data)) {
		s.Fatalf("size %d, want %d", info.Size, len(data))
	}
	r, err := s.fs.Open(s.ctx, p)
	s.must(err)
	all, err := io.ReadAll(r)
	s.must(err)
	if !bytes.Equal(all, data) {
		s.Fatal("the content differs")
	}
	var wg sync.WaitGroup // ReadAt is allowed from several goroutines at once
	for g := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 7)) //nolint:gosec // positions
			for range 10 {
				off := rnd.IntN(len(data))
				b := make([]byte, rnd.IntN(300_000))
				n, err := r.ReadAt(b, int64(off))
				want := data[off:min(off+len(b), len(data))]
				if n != len(want) || !bytes.Equal(b[:n], want) || (n < len(b) && !errors.Is(err, io.EOF)) || (n == len(b) && err != nil && !errors.Is(err, io.EOF)) {
					s.Errorf("ReadAt(%d bytes, %d): %d, %v", len(b), off, n, err)
				}
			}
		})
	}
	wg.Wait()
	s.must(r.Close())
}

func parallelFiles(s *suite) {
	const files, size = 16, 150_000
	data := pattern(size)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() {
			p := s.path(fmt.Sprintf("sub/f-%02d", i))
			if err := fs.WriteFile(s.ctx, s.fs, p, data, i%2 == 0); err != nil {
				s.Error(err)
				return
			}
			b, err := fs.ReadFile(s.ctx, s.fs, p, size)
			if err != nil || !bytes.Equal(b, data) {
				s.Errorf("%s: %d bytes, %v", p, len(b), err)
			}
		})
	}
	wg.Wait()
	if got := s.names(s.path("sub")); len(got) != files {
		s.Errorf("%d files are there, want %d", len(got), files)
	}
}

func contextEnded(s *suite) {
	s.write(s.path("f"), "f")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	calls := map[string]func() error{
		"create":    func() error { _, err := s.fs.Create(ctx, s.path("g"), false); return err },
		"overwrite": func() error { _, err := s.fs.Create(ctx, s.path("g"), true); return err },
		"open":      func() error { _, err := s.fs.Open(ctx, s.path("f")); return err },
		"rename":    func() error { return s.fs.Rename(ctx, s.path("f"), s.path("g")) },
		"remove":    func() error { return s.fs.Remove(ctx, s.path("f"), true) },
		"mkdir":     func() error { return s.fs.Mkdir(ctx, s.path("d"), 0o755) },
		"stat":      func() error { _, err := s.fs.Stat(ctx, s.path("f")); return err },
		"list":      func() error { _, err := s.fs.List(ctx, s.dir); return err },
		"chmod":     func() error { return s.fs.Chmod(ctx, s.path("f"), 0o600) },
	}
	for name, f := range calls {
		if err := f(); !errors.Is(err, context.Canceled) {
			s.Errorf("%s with an ended context: %v", name, err)
		}
	}
	s.holds(s.path("f"), "f")
	if got := s.names(s.dir); !slices.Equal(got, []string{"f"}) {
		s.Errorf("left in the folder: %v", got)
	}
}

func contextOpenFile(s *suite) {
	s.write(s.path("f"), "f")
	for _, overwrite := range []bool{false, true} {
		ctx, cancel := context.WithCancel(s.ctx)
		w, err := s.fs.Create(ctx, s.path("g"), overwrite)
		s.must(err)
		_, err = w.Write([]byte("g"))
		s.must(err)
		cancel()
		if err := w.Close(); !errors.Is(err, context.Canceled) {
			s.Errorf("Close with an ended context: %v", err)
		}
		s.must(w.Abort())
		s.absent(s.path("g"))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	r, err := s.fs.Open(ctx, s.path("f"))
	s.must(err)
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		s.Errorf("Read with an ended context: %v", err)
	}
	s.must(r.Close())
}
