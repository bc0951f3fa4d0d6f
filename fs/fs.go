// Package fs is the file system seam: checkpoints, staging and high-availability data are written through FileSystem, whatever
// stores them. It is layer L1 and imports nothing of the project. Implementations: fs/local (file://), fs/hdfs (hdfs://),
// fs/mem (tests), fs/fault (wraps another one and injects errors).
//
// Invariants that every implementation keeps:
//
//  1. A file becomes visible under its final name only by Rename or by Create + Close; readers never rely on partial files.
//  2. Create with overwrite=false fails with an error for which errors.Is(err, iofs.ErrExist) holds when the name exists; the check
//     is atomic (fencing of application attempts relies on it).
//  3. Nothing is ever appended to.
//  4. Every call honours its context. The context of Create and Open holds for the open file too: when it ends, reads, writes and
//     Close fail.
package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net/url"
	"path"
	"strings"
	"time"
)

// Info describes a file or directory. Size is in bytes, ModTime as the store reports it (HDFS: milliseconds).
type Info struct {
	Path    string // absolute path inside the file system, without scheme and authority
	Size    int64
	ModTime time.Time
	IsDir   bool
	// Irregular is neither file nor directory: a pipe or a device or, in List alone, a symbolic link, of which Stat describes what it leads to.
	Irregular bool
	Mode      uint32 // permission bits as in Unix
	Owner     string
}

// Writer is an open file. Close makes the content durable and visible; Abort gives the file up and removes what was written.
// Exactly one of the two is called; Abort after Close is a no-op.
type Writer interface {
	io.Writer
	Close() error
	Abort() error
}

// Reader is an open file with random access.
type Reader interface {
	io.Reader
	io.ReaderAt
	io.Closer
}

// FileSystem is safe for concurrent use. Paths are absolute, slash separated, without scheme. Missing files give an error for which
// errors.Is(err, iofs.ErrNotExist) holds, denied ones iofs.ErrPermission.
type FileSystem interface {
	// Create opens a new file for writing; parent directories are made. With overwrite false an existing file is iofs.ErrExist.
	Create(ctx context.Context, path string, overwrite bool) (Writer, error)
	Open(ctx context.Context, path string) (Reader, error)
	// Rename moves a file or directory; an existing destination file is replaced atomically.
	Rename(ctx context.Context, from, to string) error
	// Remove deletes a file or, with recursive, a directory tree. A missing path is not an error.
	Remove(ctx context.Context, path string, recursive bool) error
	Mkdir(ctx context.Context, path string, perm uint32) error // with parents; existing is fine
	Stat(ctx context.Context, path string) (Info, error)
	List(ctx context.Context, dir string) ([]Info, error) // sorted by path
	Chmod(ctx context.Context, path string, perm uint32) error
	// URI is scheme and authority, such as "hdfs://namenode:8020" or "file://".
	URI() string
	Close() error
}

// Opener makes a FileSystem for a parsed URI, such as hdfs://host:8020/path.
type Opener func(ctx context.Context, u *url.URL) (FileSystem, error)

// Registry maps schemes to openers. The zero value knows no scheme.
type Registry struct {
	openers map[string]Opener
	root    string // scheme and authority of absolute paths without a scheme; "" for file://
}

// SetDefault makes absolute paths without a scheme those of the file system of uri, such as Hadoop's fs.defaultFS.
func (r *Registry) SetDefault(uri string) error {
	u, err := Parse(uri)
	if err != nil {
		return fmt.Errorf("fs: default file system: %w", err)
	}
	if u.Scheme == "" {
		return fmt.Errorf("fs: default file system %q is no URI", uri)
	}
	r.root = u.Scheme + "://" + u.Host
	return nil
}

// Register adds or replaces the opener of a scheme.
func (r *Registry) Register(scheme string, o Opener) {
	if r.openers == nil {
		r.openers = map[string]Opener{}
	}
	r.openers[scheme] = o
}

// ErrScheme is returned by Resolve for a scheme without an opener.
var ErrScheme = errors.New("no file system for this scheme")

// Parse takes a path or URI of a file apart. A plain absolute path is file://. What follows scheme and authority is the path, letter for letter, in its shortest
// form: '%', '#', '?' and blanks stand for themselves and nothing is decoded, so that FileSystem.URI() + Info.Path names the file again, whatever its name.
// Without a path it is "". What has no scheme either comes back with Scheme "".
//
// Errors: iofs.ErrInvalid for an authority that is none, and for a URI with a relative path.
//
// Source: Hadoop's Path(String), Hadoop 3.4 ("query and fragment are not supported").
func Parse(uri string) (*url.URL, error) {
	if strings.HasPrefix(uri, "/") {
		return &url.URL{Scheme: "file", Path: path.Clean(uri)}, nil
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || strings.Contains(scheme, "/") {
		return &url.URL{Path: uri}, nil
	}
	authority := ""
	if a, ok := strings.CutPrefix(rest, "//"); ok {
		authority, rest = a, ""
		if i := strings.IndexByte(a, '/'); i >= 0 {
			authority, rest = a[:i], a[i:]
		}
	} else if !strings.HasPrefix(rest, "/") {
		return nil, fmt.Errorf("fs: %q has no absolute path: write %s:///path: %w", uri, scheme, iofs.ErrInvalid)
	}
	u, err := url.Parse(scheme + "://" + authority)
	if err == nil && (u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(authority, "#")) {
		err = fmt.Errorf("%q is no host", authority)
	}
	if err != nil {
		return nil, fmt.Errorf("fs: %q is no URI such as hdfs://host:8020/path: %w: %w", uri, iofs.ErrInvalid, err)
	}
	if rest != "" {
		u.Path = path.Clean(rest)
	}
	return u, nil
}

// Resolve opens the file system of uri and returns it with the path inside of it, as Parse finds them. A plain
// absolute path is one of the default file system: file://, unless SetDefault says otherwise.
func (r *Registry) Resolve(ctx context.Context, uri string) (FileSystem, string, error) {
	if strings.HasPrefix(uri, "/") {
		uri = r.root + uri
	}
	u, err := Parse(uri)
	if err != nil {
		return nil, "", err
	}
	open, ok := r.openers[u.Scheme]
	if !ok {
		return nil, "", fmt.Errorf("fs: resolve %q: scheme %q: %w (known: file, hdfs)", uri, u.Scheme, ErrScheme)
	}
	f, err := open(ctx, u)
	if err != nil {
		return nil, "", fmt.Errorf("fs: open %s: %w", uri, err)
	}
	p := u.Path
	if p == "" {
		p = "/"
	}
	return f, p, nil
}

// ReadFile reads a whole file; files above limit bytes are an error.
func ReadFile(ctx context.Context, f FileSystem, path string, limit int64) ([]byte, error) {
	r, err := f.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err // says operation and path itself
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("fs: read %s: larger than %d bytes", path, limit)
	}
	return b, nil
}

// WriteFile writes a whole file under its final name: write, close. With overwrite false an existing file is iofs.ErrExist.
func WriteFile(ctx context.Context, f FileSystem, path string, data []byte, overwrite bool) error {
	w, err := f.Create(ctx, path, overwrite)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		_ = w.Abort() // the first failure is the one to tell
		return err
	}
	return w.Close()
}
