package storage

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"
	"sync"

	"github.com/thalweg/thalweg/fs"
)

// roots opens file systems through a registry, one per scheme and authority, and keeps them until close. Safe for concurrent use.
type roots struct {
	reg *fs.Registry
	mu  sync.Mutex
	all map[string]fs.FileSystem
}

// at returns the file system of a URI and the path inside of it.
func (r *roots) at(ctx context.Context, uri string) (fs.FileSystem, string, error) {
	root, p, err := split(uri)
	if err != nil {
		return nil, "", err
	}
	r.mu.Lock()
	f := r.all[root]
	r.mu.Unlock()
	if f != nil {
		return f, p, nil
	}
	opened, p, err := r.reg.Resolve(ctx, root+p)
	if err != nil {
		return nil, "", err
	}
	r.mu.Lock()
	f = r.all[root]
	if f == nil {
		if r.all == nil {
			r.all = map[string]fs.FileSystem{}
		}
		r.all[root] = opened
	}
	r.mu.Unlock()
	if f == nil {
		return opened, p, nil
	}
	return f, p, opened.Close() // somebody was faster
}

func (r *roots) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, f := range r.all {
		errs = append(errs, f.Close())
	}
	r.all = nil
	return errors.Join(errs...)
}

// split cuts a URI into scheme and authority ("hdfs://nn:8020", "file://") and a clean absolute path. A plain absolute path is file://.
func split(uri string) (root, p string, err error) {
	if strings.HasPrefix(uri, "/") {
		return "file://", path.Clean(uri), nil
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || scheme == "" {
		return "", "", fmt.Errorf("%q is not a URI such as hdfs://host:8020/dir or an absolute path: %w", uri, iofs.ErrInvalid)
	}
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return scheme + "://" + rest, "/", nil
	}
	return scheme + "://" + rest[:i], path.Clean(rest[i:]), nil
}

// clean normalises a URI: no double or trailing slashes, no dot segments. What does not parse comes back as it is.
func clean(uri string) string {
	root, p, err := split(uri)
	if err != nil {
		return uri
	}
	return root + p
}

// Resolve returns the URI of a file whose name is relative to the directory base.
func Resolve(base, name string) (string, error) {
	root, p, err := split(base)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(name, "/") || strings.Contains(name, "://") {
		return "", fmt.Errorf("%q is not a relative name", name)
	}
	return root + path.Join(p, name), nil
}

// Relative is the inverse of Resolve: the name of the file uri relative to the directory base. Both must be in one file system.
func Relative(base, uri string) (string, error) {
	root, p, err := split(base)
	if err != nil {
		return "", err
	}
	uroot, up, err := split(uri)
	if err != nil {
		return "", err
	}
	if root != uroot {
		return "", fmt.Errorf("%s and %s are in different file systems", base, uri)
	}
	from, to := segments(p), segments(up)
	n := 0
	for n < len(from) && n < len(to)-1 && from[n] == to[n] {
		n++
	}
	return strings.Repeat("../", len(from)-n) + strings.Join(to[n:], "/"), nil
}

func segments(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}
