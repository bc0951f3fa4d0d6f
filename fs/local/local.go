// Package local is the file system of this machine (file://). Layer L1; it imports fs only.
//
// Create with overwrite writes to a temporary name in the same directory and renames it at Close; without overwrite the file is
// opened exclusively under its own name. Close writes through to the disk, the file first and its directory after the rename, so that
// a checkpoint that was acknowledged is there after a power cut.
//
// A context is looked at before each operation; one system call is never interrupted. The contexts of Create and Open hold for the
// open file as well.
package local

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/thalweg/thalweg/fs"
)

// FileSystem implements fs.FileSystem on the os package. The zero value is ready and shows the whole machine.
type FileSystem struct {
	root   string
	noSync bool
}

// Option changes a FileSystem.
type Option func(*FileSystem)

// WithRoot shows the folder dir as "/". Symbolic links in it may lead outside.
func WithRoot(dir string) Option { return func(f *FileSystem) { f.root = dir } }

// WithoutSync leaves it to the kernel when content reaches the disk, for caches and tests.
func WithoutSync() Option { return func(f *FileSystem) { f.noSync = true } }

// New returns the local file system.
func New(opts ...Option) *FileSystem {
	f := &FileSystem{}
	for _, o := range opts {
		o(f)
	}
	return f
}

// Register adds the scheme file to reg. A host other than localhost in the URI is an error.
func Register(reg *fs.Registry, opts ...Option) {
	f := New(opts...)
	reg.Register("file", func(_ context.Context, u *url.URL) (fs.FileSystem, error) {
		if u.Host != "" && u.Host != "localhost" {
			return nil, fmt.Errorf("local: %s names the host %q: write file:///path: %w", u, u.Host, iofs.ErrInvalid)
		}
		return f, nil
	})
}

// resolve checks the context and turns p into a name of this machine.
func (f *FileSystem) resolve(ctx context.Context, op, p string) (clean, name string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", fail(op, p, err)
	}
	if clean, err = fs.CleanPath(p); err != nil {
		return "", "", fail(op, p, err)
	}
	return clean, filepath.Join(f.root, filepath.FromSlash(clean)), nil
}

// fail adds operation and path; the os package's own mention of them is dropped.
func fail(op, p string, err error) error {
	var pe *iofs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		err = le.Err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w (%w)", fs.ErrQuota, err)
	}
	return fmt.Errorf("local: %s %s: %w", op, p, err)
}

// Create implements fs.FileSystem. New files have mode 0644, less the process's umask.
func (f *FileSystem) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	clean, name, err := f.resolve(ctx, "create", p)
	if err != nil {
		return nil, err
	}
	target, flags := name, os.O_WRONLY|os.O_CREATE|os.O_EXCL
	if overwrite {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return nil, fail("create", p, syscall.EISDIR)
		}
		target = filepath.FromSlash(fs.TempName(filepath.ToSlash(name)))
	}
	file, err := os.OpenFile(target, flags, 0o644)
	if errors.Is(err, iofs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			file, err = os.OpenFile(target, flags, 0o644)
		}
	}
	if err != nil {
		return nil, fail("create", p, err)
	}
	return &writer{fs: f, ctx: ctx, file: file, path: clean, written: target, final: name}, nil
}

// Open implements fs.FileSystem.
func (f *FileSystem) Open(ctx context.Context, p string) (fs.Reader, error) {
	_, name, err := f.resolve(ctx, "open", p)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fail("open", p, err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		_ = file.Close()
		return nil, fail("open", p, err)
	}
	return &reader{ctx: ctx, file: file, path: p}, nil
}

// Rename implements fs.FileSystem.
func (f *FileSystem) Rename(ctx context.Context, from, to string) error {
	_, a, err := f.resolve(ctx, "rename", from)
	if err != nil {
		return err
	}
	_, b, err := f.resolve(ctx, "rename", to)
	if err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return fail("rename", from+" to "+to, err)
	}
	return f.syncDir(filepath.Dir(b), to)
}

// Remove implements fs.FileSystem.
func (f *FileSystem) Remove(ctx context.Context, p string, recursive bool) error {
	clean, name, err := f.resolve(ctx, "remove", p)
	if err != nil {
		return err
	}
	if clean == "/" {
		return fail("remove", p, iofs.ErrInvalid)
	}
	if recursive {
		err = os.RemoveAll(name)
	} else {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fail("remove", p, err)
	}
	return nil
}

// Mkdir implements fs.FileSystem. New folders get exactly perm, whatever the process's umask, and always let their owner work in them.
func (f *FileSystem) Mkdir(ctx context.Context, p string, perm uint32) error {
	_, name, err := f.resolve(ctx, "mkdir", p)
	if err != nil {
		return err
	}
	if err := mkdir(name, iofs.FileMode(perm)&iofs.ModePerm, true); err != nil {
		return fail("mkdir", p, err)
	}
	return nil
}

func mkdir(name string, perm iofs.FileMode, leaf bool) error {
	info, err := os.Stat(name)
	if err == nil {
		if !info.IsDir() && leaf {
			return iofs.ErrExist
		} else if !info.IsDir() {
			return syscall.ENOTDIR
		}
		return nil
	}
	if !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if err := mkdir(filepath.Dir(name), perm, false); err != nil {
		return err
	}
	if err := os.Mkdir(name, perm); err != nil {
		if errors.Is(err, iofs.ErrExist) { // somebody else was faster
			return mkdir(name, perm, leaf)
		}
		return err
	}
	if !leaf {
		perm |= 0o300
	}
	return os.Chmod(name, perm)
}

// Stat implements fs.FileSystem.
func (f *FileSystem) Stat(ctx context.Context, p string) (fs.Info, error) {
	clean, name, err := f.resolve(ctx, "stat", p)
	if err != nil {
		return fs.Info{}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return fs.Info{}, fail("stat", p, err)
	}
	return describe(clean, info), nil
}

// List implements fs.FileSystem. Links are shown themselves, as irregular.
func (f *FileSystem) List(ctx context.Context, dir string) ([]fs.Info, error) {
	clean, name, err := f.resolve(ctx, "list", dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(name) // sorted by name
	if err != nil {
		return nil, fail("list", dir, err)
	}
	out := make([]fs.Info, 0, len(entries))
	for _, e := range entries {
		if fs.IsTemp(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fail("list", dir, err)
		}
		out = append(out, describe(path.Join(clean, e.Name()), info))
	}
	return out, nil
}

// Chmod implements fs.FileSystem.
func (f *FileSystem) Chmod(ctx context.Context, p string, perm uint32) error {
	_, name, err := f.resolve(ctx, "chmod", p)
	if err != nil {
		return err
	}
	if err := os.Chmod(name, iofs.FileMode(perm)&iofs.ModePerm); err != nil {
		return fail("chmod", p, err)
	}
	return nil
}

// URI implements fs.FileSystem.
func (f *FileSystem) URI() string { return "file://" }

// Close implements fs.FileSystem; there is nothing to close.
func (f *FileSystem) Close() error { return nil }

// syncDir makes the names in dir durable.
func (f *FileSystem) syncDir(dir, p string) error {
	if f.noSync {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fail("sync", p, err)
	}
	err = d.Sync()
	_ = d.Close()
	if err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems cannot sync folders
		return fail("sync", p, err)
	}
	return nil
}

type writer struct {
	fs      *FileSystem
	ctx     context.Context //nolint:containedctx // it is the life of the open file
	file    *os.File
	path    string
	written string // where the content goes
	final   string // where it will be
	state   atomic.Int32
}

const (
	open int32 = iota
	closed
	aborted
)

func (w *writer) Write(b []byte) (int, error) {
	if err := w.check(); err != nil {
		return 0, fail("write", w.path, err)
	}
	n, err := w.file.Write(b)
	if err != nil {
		return n, fail("write", w.path, err)
	}
	return n, nil
}

func (w *writer) check() error {
	switch w.state.Load() {
	case closed:
		return iofs.ErrClosed
	case aborted:
		return fs.ErrAborted
	}
	return w.ctx.Err()
}

// Close implements fs.Writer. A file whose Close fails is removed.
func (w *writer) Close() error {
	if err := w.check(); err != nil {
		if w.state.Load() == open {
			_ = w.Abort()
		}
		return fail("close", w.path, err)
	}
	w.state.Store(closed)
	var err error
	if !w.fs.noSync {
		err = w.file.Sync()
	}
	if cerr := w.file.Close(); err == nil {
		err = cerr
	}
	if err == nil && w.written != w.final {
		err = os.Rename(w.written, w.final)
	}
	if err != nil {
		_ = os.Remove(w.written)
		return fail("close", w.path, err)
	}
	return w.fs.syncDir(filepath.Dir(w.final), w.path)
}

// Abort implements fs.Writer.
func (w *writer) Abort() error {
	if !w.state.CompareAndSwap(open, aborted) {
		return nil
	}
	_ = w.file.Close()
	if err := os.Remove(w.written); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fail("abort", w.path, err)
	}
	return nil
}

type reader struct {
	ctx  context.Context //nolint:containedctx // it is the life of the open file
	file *os.File
	path string
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, fail("read", r.path, err)
	}
	return r.file.Read(b)
}

func (r *reader) ReadAt(b []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, fail("read", r.path, err)
	}
	return r.file.ReadAt(b, off)
}

func (r *reader) Close() error {
	if err := r.file.Close(); err != nil {
		return fail("close", r.path, err)
	}
	return nil
}
