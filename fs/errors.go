package fs

import (
	"errors"
	"fmt"
	"path"

	iofs "io/fs"
)

// Conditions of a store that callers decide about, beside iofs.ErrExist, iofs.ErrNotExist and iofs.ErrPermission. Directories where a
// file is wanted and the like are syscall.EISDIR, ENOTDIR and ENOTEMPTY, as from the os package.
var (
	// ErrUnavailable says that the store could not serve within the time allowed: not reachable, starting, in safe mode, or without
	// a node that can take data. The same call may succeed later.
	ErrUnavailable = errors.New("file system unavailable")
	// ErrSafeMode says that the store answers and takes no writes for now: it is starting, or its operator says so. It is ErrUnavailable too.
	ErrSafeMode error = safeMode{}
	// ErrQuota says that the directory or the store has no room left for the data or the name.
	ErrQuota = errors.New("quota exceeded")
	// ErrCorrupt says that content is not what was written: no copy passes its checksum.
	ErrCorrupt = errors.New("content is damaged")
	// ErrAborted is returned by a Writer that was given up.
	ErrAborted = errors.New("file was given up")
)

// CleanPath checks that p is absolute and returns its shortest form. Everything else is iofs.ErrInvalid.
func CleanPath(p string) (string, error) {
	if p == "" || p[0] != '/' {
		return "", fmt.Errorf("path %q is not absolute: %w", p, iofs.ErrInvalid)
	}
	for i := range len(p) {
		if p[i] == 0 {
			return "", fmt.Errorf("path %q: %w", p, iofs.ErrInvalid)
		}
	}
	return path.Clean(p), nil
}

// Within says whether p is dir or lies below it; both are clean.
func Within(dir, p string) bool {
	if dir == "/" || p == dir {
		return true
	}
	return len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

type safeMode struct{}

func (safeMode) Error() string        { return "file system is in safe mode" }
func (safeMode) Is(target error) bool { return target == ErrUnavailable }
