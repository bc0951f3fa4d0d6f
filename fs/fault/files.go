package fault

import (
	"context"

	"github.com/thalweg/thalweg/fs"
)

// Create implements fs.FileSystem.
func (f *FileSystem) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	var w fs.Writer
	err := f.do(ctx, Event{Op: Create, Path: p}, func() (err error) {
		w, err = f.inner.Create(ctx, p, overwrite)
		return err
	})
	if err != nil {
		// FailAfter: the file is there and nobody has it. That is what a client that died right after the call leaves behind, so an
		// exclusive file stays and the temporary one of an overwrite goes.
		if w != nil && overwrite {
			_ = w.Abort()
		}
		return nil, err
	}
	return &writer{fs: f, ctx: ctx, path: p, inner: w}, nil
}

// Open implements fs.FileSystem.
func (f *FileSystem) Open(ctx context.Context, p string) (fs.Reader, error) {
	var r fs.Reader
	err := f.do(ctx, Event{Op: Open, Path: p}, func() (err error) {
		r, err = f.inner.Open(ctx, p)
		return err
	})
	if err != nil {
		if r != nil {
			_ = r.Close()
		}
		return nil, err
	}
	return &reader{fs: f, ctx: ctx, path: p, inner: r}, nil
}

// Rename implements fs.FileSystem.
func (f *FileSystem) Rename(ctx context.Context, from, to string) error {
	return f.do(ctx, Event{Op: Rename, Path: from, To: to}, func() error { return f.inner.Rename(ctx, from, to) })
}

// Remove implements fs.FileSystem.
func (f *FileSystem) Remove(ctx context.Context, p string, recursive bool) error {
	return f.do(ctx, Event{Op: Remove, Path: p}, func() error { return f.inner.Remove(ctx, p, recursive) })
}

// Mkdir implements fs.FileSystem.
func (f *FileSystem) Mkdir(ctx context.Context, p string, perm uint32) error {
	return f.do(ctx, Event{Op: Mkdir, Path: p}, func() error { return f.inner.Mkdir(ctx, p, perm) })
}

// Stat implements fs.FileSystem.
func (f *FileSystem) Stat(ctx context.Context, p string) (fs.Info, error) {
	var info fs.Info
	err := f.do(ctx, Event{Op: Stat, Path: p}, func() (err error) {
		info, err = f.inner.Stat(ctx, p)
		return err
	})
	return info, err
}

// List implements fs.FileSystem.
func (f *FileSystem) List(ctx context.Context, dir string) ([]fs.Info, error) {
	var out []fs.Info
	err := f.do(ctx, Event{Op: List, Path: dir}, func() (err error) {
		out, err = f.inner.List(ctx, dir)
		return err
	})
	return out, err
}

// Chmod implements fs.FileSystem.
func (f *FileSystem) Chmod(ctx context.Context, p string, perm uint32) error {
	return f.do(ctx, Event{Op: Chmod, Path: p}, func() error { return f.inner.Chmod(ctx, p, perm) })
}

// URI implements fs.FileSystem; it is that of the wrapped file system.
func (f *FileSystem) URI() string { return f.inner.URI() }

// Close implements fs.FileSystem.
func (f *FileSystem) Close() error { return f.inner.Close() }

type writer struct {
	fs    *FileSystem
	ctx   context.Context //nolint:containedctx // it is the life of the open file
	path  string
	inner fs.Writer
}

func (w *writer) Write(b []byte) (int, error) {
	e := Event{Op: Write, Path: w.path, Size: len(b)}
	in := w.fs.decide(e)
	if err := in.before(w.ctx, e); err != nil {
		return 0, err
	}
	switch {
	case in.isTorn:
		n, err := w.inner.Write(b[:min(in.torn, len(b))])
		if err == nil {
			err = in.failure(e)
		}
		return n, err
	case in.err != nil && !in.after:
		return 0, in.failure(e)
	}
	n, err := w.inner.Write(b)
	if err == nil && in.err != nil {
		err = in.failure(e)
	}
	return n, err
}

func (w *writer) Close() error {
	ran := false
	err := w.fs.do(w.ctx, Event{Op: Close, Path: w.path}, func() error {
		ran = true
		return w.inner.Close()
	})
	if err != nil && !ran {
		_ = w.inner.Abort() // as the contract says: a file whose Close fails is given up
	}
	return err
}

func (w *writer) Abort() error {
	return w.fs.do(w.ctx, Event{Op: Abort, Path: w.path}, w.inner.Abort)
}

type reader struct {
	fs    *FileSystem
	ctx   context.Context //nolint:containedctx // it is the life of the open file
	path  string
	inner fs.Reader
}

func (r *reader) Read(b []byte) (n int, err error) {
	var end error // io.EOF is not a failure of the operation
	err = r.fs.do(r.ctx, Event{Op: Read, Path: r.path, Size: len(b)}, func() error {
		n, end = r.inner.Read(b)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, end
}

func (r *reader) ReadAt(b []byte, off int64) (n int, err error) {
	var end error
	err = r.fs.do(r.ctx, Event{Op: Read, Path: r.path, Size: len(b)}, func() error {
		n, end = r.inner.ReadAt(b, off)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, end
}

func (r *reader) Close() error {
	return r.fs.do(r.ctx, Event{Op: CloseReader, Path: r.path}, r.inner.Close)
}
