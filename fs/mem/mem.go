// Package mem is a file system in memory, for tests and for the embedded cluster. Layer L1; it imports fs only. It behaves as fs/hdfs
// does: exclusive Create shows the (empty, growing) file at once, Create with overwrite shows it at Close, permissions are kept but
// checked for nobody.
package mem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// FileSystem is an fs.FileSystem in memory. Make it with New.
type FileSystem struct {
	name  string
	owner string

	mu    sync.Mutex
	nodes map[string]*node // by clean path; "/" is always there
}

type node struct {
	dir  bool
	mode uint32
	time time.Time
	data []byte // replaced, never changed, once it was closed
}

// New returns an empty file system with the URI mem://name.
func New(name string) *FileSystem {
	return &FileSystem{name: name, owner: "mem", nodes: map[string]*node{"/": {dir: true, mode: 0o755, time: time.Now()}}}
}

// Register adds the scheme mem to reg: mem://name is one file system for each name.
func Register(reg *fs.Registry) {
	var (
		mu  sync.Mutex
		all = map[string]*FileSystem{}
	)
	reg.Register("mem", func(_ context.Context, u *url.URL) (fs.FileSystem, error) {
		mu.Lock()
		defer mu.Unlock()
		if all[u.Host] == nil {
			all[u.Host] = New(u.Host)
		}
		return all[u.Host], nil
	})
}

func fail(op, p string, err error) error { return fmt.Errorf("mem: %s %s: %w", op, p, err) }

func begin(ctx context.Context, op, p string) (string, error) {
	err := ctx.Err()
	if err == nil {
		p, err = fs.CleanPath(p)
	}
	if err != nil {
		return "", fail(op, p, err)
	}
	return p, nil
}

// parents makes the directories above p. Called with the lock.
func (f *FileSystem) parents(p string, mode uint32) error {
	dir := path.Dir(p)
	switch n := f.nodes[dir]; {
	case n == nil:
		if err := f.parents(dir, mode); err != nil {
			return err
		}
		f.nodes[dir] = &node{dir: true, mode: mode, time: time.Now()}
	case !n.dir:
		return syscall.ENOTDIR
	}
	return nil
}

// find returns the node of p, or why there is none. Called with the lock.
func (f *FileSystem) find(p string) (*node, error) {
	if n := f.nodes[p]; n != nil {
		return n, nil
	}
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		if n := f.nodes[d]; n != nil && !n.dir {
			return nil, syscall.ENOTDIR
		}
	}
	return nil, iofs.ErrNotExist
}

// Create implements fs.FileSystem.
func (f *FileSystem) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	clean, err := begin(ctx, "create", p)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[clean]; n != nil {
		if n.dir && overwrite {
			return nil, fail("create", p, syscall.EISDIR)
		}
		if !overwrite {
			return nil, fail("create", p, iofs.ErrExist)
		}
	}
	if err := f.parents(clean, 0o755); err != nil {
		return nil, fail("create", p, err)
	}
	w := &writer{fs: f, ctx: ctx, path: clean}
	if !overwrite {
		w.node = &node{mode: 0o644, time: time.Now()}
		f.nodes[clean] = w.node
	}
	return w, nil
}

// Open implements fs.FileSystem. The reader sees the content of this moment.
func (f *FileSystem) Open(ctx context.Context, p string) (fs.Reader, error) {
	clean, err := begin(ctx, "open", p)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(clean)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, fail("open", p, err)
	}
	return &reader{ctx: ctx, path: clean, r: bytes.NewReader(n.data)}, nil
}

// Rename implements fs.FileSystem.
func (f *FileSystem) Rename(ctx context.Context, from, to string) error {
	a, err := begin(ctx, "rename", from)
	if err != nil {
		return err
	}
	b, err := begin(ctx, "rename", to)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.rename(a, b); err != nil {
		return fail("rename", from+" to "+to, err)
	}
	return nil
}

func (f *FileSystem) rename(a, b string) error {
	src, err := f.find(a)
	if err != nil {
		return err
	}
	if a == b {
		return nil
	}
	if fs.Within(a, b) || a == "/" {
		return iofs.ErrInvalid
	}
	if dst := f.nodes[b]; dst != nil {
		switch {
		case src.dir && !dst.dir:
			return syscall.ENOTDIR
		case !src.dir && dst.dir:
			return syscall.EISDIR
		case dst.dir && f.hasChildren(b):
			return syscall.ENOTEMPTY
		}
	} else if parent, err := f.find(path.Dir(b)); err != nil {
		return err
	} else if !parent.dir {
		return syscall.ENOTDIR
	}
	for p, n := range f.nodes {
		if p != a && fs.Within(a, p) {
			delete(f.nodes, p)
			f.nodes[b+p[len(a):]] = n
		}
	}
	delete(f.nodes, a)
	f.nodes[b] = src
	return nil
}

func (f *FileSystem) hasChildren(dir string) bool {
	for p := range f.nodes {
		if p != dir && fs.Within(dir, p) {
			return true
		}
	}
	return false
}

// Remove implements fs.FileSystem.
func (f *FileSystem) Remove(ctx context.Context, p string, recursive bool) error {
	clean, err := begin(ctx, "remove", p)
	if err != nil {
		return err
	}
	if clean == "/" {
		return fail("remove", p, iofs.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !recursive && f.hasChildren(clean) {
		return fail("remove", p, syscall.ENOTEMPTY)
	}
	for q := range f.nodes {
		if fs.Within(clean, q) {
			delete(f.nodes, q)
		}
	}
	return nil
}

// Mkdir implements fs.FileSystem.
func (f *FileSystem) Mkdir(ctx context.Context, p string, perm uint32) error {
	clean, err := begin(ctx, "mkdir", p)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[clean]; n != nil {
		if !n.dir {
			return fail("mkdir", p, iofs.ErrExist)
		}
		return nil
	}
	if err := f.parents(clean, perm|0o300); err != nil {
		return fail("mkdir", p, err)
	}
	f.nodes[clean] = &node{dir: true, mode: perm & 0o777, time: time.Now()}
	return nil
}

// Stat implements fs.FileSystem.
func (f *FileSystem) Stat(ctx context.Context, p string) (fs.Info, error) {
	clean, err := begin(ctx, "stat", p)
	if err != nil {
		return fs.Info{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(clean)
	if err != nil {
		return fs.Info{}, fail("stat", p, err)
	}
	return f.info(clean, n), nil
}

func (f *FileSystem) info(p string, n *node) fs.Info {
	return fs.Info{Path: p, Size: int64(len(n.data)), ModTime: n.time, IsDir: n.dir, Mode: n.mode, Owner: f.owner}
}

// List implements fs.FileSystem.
func (f *FileSystem) List(ctx context.Context, dir string) ([]fs.Info, error) {
	clean, err := begin(ctx, "list", dir)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(clean)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fail("list", dir, err)
	}
	var out []fs.Info
	for p, n := range f.nodes {
		if p != "/" && path.Dir(p) == clean {
			out = append(out, f.info(p, n))
		}
	}
	slices.SortFunc(out, func(a, b fs.Info) int { return cmp.Compare(a.Path, b.Path) })
	return out, nil
}

// Chmod implements fs.FileSystem.
func (f *FileSystem) Chmod(ctx context.Context, p string, perm uint32) error {
	clean, err := begin(ctx, "chmod", p)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.find(clean)
	if err != nil {
		return fail("chmod", p, err)
	}
	n.mode = perm & 0o777
	return nil
}

// URI implements fs.FileSystem.
func (f *FileSystem) URI() string { return "mem://" + f.name }

// Close implements fs.FileSystem. The content stays: a registry hands the same file system out again.
func (f *FileSystem) Close() error { return nil }

// Dump returns the content of every file by path, for tests.
func (f *FileSystem) Dump() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for p, n := range f.nodes {
		if !n.dir {
			out[p] = string(n.data)
		}
	}
	return out
}

// Tree lists every path below the root, directories with a slash at the end, one a line, for tests.
func (f *FileSystem) Tree() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for p, n := range f.nodes {
		if n.dir && p != "/" {
			p += "/"
		}
		lines = append(lines, p+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

type writer struct {
	fs   *FileSystem
	ctx  context.Context //nolint:containedctx // it is the life of the open file
	path string
	node *node // of an exclusive Create, visible from the start

	mu   sync.Mutex
	buf  []byte
	done error // why it is over
}

func (w *writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		return 0, fail("write", w.path, err)
	}
	w.buf = append(w.buf, b...)
	return len(b), nil
}

func (w *writer) check() error { return cmp.Or(w.done, w.ctx.Err()) }

func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		if w.done == nil {
			w.done = fs.ErrAborted
			w.forget()
		}
		return fail("close", w.path, err)
	}
	w.done = iofs.ErrClosed
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	switch n := w.fs.nodes[w.path]; {
	case w.node != nil:
		if n != w.node {
			return fail("close", w.path, errors.Join(iofs.ErrNotExist, errors.New("the file was removed while it was written")))
		}
		n.data, n.time = w.buf, time.Now()
	case n != nil && n.dir:
		return fail("close", w.path, syscall.EISDIR)
	default:
		if err := w.fs.parents(w.path, 0o755); err != nil {
			return fail("close", w.path, err)
		}
		w.fs.nodes[w.path] = &node{mode: 0o644, time: time.Now(), data: w.buf}
	}
	return nil
}

func (w *writer) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = fs.ErrAborted
		w.forget()
	}
	return nil
}

// forget removes what an exclusive Create has shown.
func (w *writer) forget() {
	w.buf = nil
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if w.node != nil && w.fs.nodes[w.path] == w.node {
		delete(w.fs.nodes, w.path)
	}
}

type reader struct {
	ctx  context.Context //nolint:containedctx // it is the life of the open file
	path string

	mu     sync.Mutex
	r      *bytes.Reader
	closed bool
}

func (r *reader) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fail("read", r.path, iofs.ErrClosed)
	}
	if err := r.ctx.Err(); err != nil {
		return fail("read", r.path, err)
	}
	return nil
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	return r.r.Read(b)
}

func (r *reader) ReadAt(b []byte, off int64) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fail("read", r.path, iofs.ErrInvalid)
	}
	return r.r.ReadAt(b, off)
}

func (r *reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fail("close", r.path, iofs.ErrClosed)
	}
	r.closed = true
	return nil
}

var _ io.ReaderAt = (*reader)(nil)
