package staging

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"sync"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Folders below the root.
const (
	libDir        = "lib"
	CheckpointDir = "ckp"
)

// Store is the staging root of a user. Safe for concurrent use.
type Store struct {
	fs   fs.FileSystem
	root string // inside of fs
	user string // for messages

	mu  sync.Mutex
	new []string // files that this process wrote to lib, and folders that it made, for Undo
}

// Error says that the staging folder cannot be used; one line with folder, reason and the key to change.
type Error struct {
	Op   string
	URI  string
	User string
	Err  error
}

func (e *Error) Error() string {
	why := e.Err.Error()
	if errors.Is(e.Err, iofs.ErrPermission) {
		why = fmt.Sprintf("user %s may not write there", e.User)
	}
	return fmt.Sprintf("staging: %s %s: %s (choose another folder with -Dyarn.staging-directory=...)", e.Op, e.URI, why)
}

func (e *Error) Unwrap() error { return e.Err }

// Open makes the folders below root (a path inside of f) where they are missing and checks that they can be written. user is named in
// messages.
//
// Errors: *Error.
func Open(ctx context.Context, f fs.FileSystem, root, user string) (*Store, error) {
	s := &Store{fs: f, root: path.Clean(root), user: user}
	lib := path.Join(s.root, libDir)
	switch info, err := f.Stat(ctx, lib); {
	case err == nil && info.IsDir:
		return s, nil // that it can be written shows at the first Put; the application's folder is made in any case
	case err == nil:
		return nil, s.fail("use", fmt.Errorf("%s is a file", lib))
	case !errors.Is(err, iofs.ErrNotExist):
		return nil, s.fail("look into", err)
	}
	fresh, err := s.missing(ctx, lib)
	if err != nil {
		return nil, s.fail("look into", err)
	}
	if err := f.Mkdir(ctx, lib, 0o755); err != nil {
		return nil, s.fail("make", err)
	}
	if fresh != "" {
		s.remember(fresh)
	}
	for _, p := range []string{s.root, lib} { // whatever the umask made of them: what is below stays private where it has to be
		if fresh != "" && fs.Within(fresh, p) {
			if err := f.Chmod(ctx, p, 0o755); err != nil {
				return nil, s.fail("make", err)
			}
		}
	}
	return s, nil
}

// missing returns the topmost folder on the way to p that does not exist, "" when all do.
func (s *Store) missing(ctx context.Context, p string) (string, error) {
	top := ""
	for ; p != "/"; p = path.Dir(p) {
		_, err := s.fs.Stat(ctx, p)
		switch {
		case err == nil:
			return top, nil
		case !errors.Is(err, iofs.ErrNotExist):
			return "", err
		}
		top = p
	}
	return top, nil
}

func (s *Store) fail(op string, err error) error {
	return &Error{Op: op, URI: s.fs.URI() + s.root, User: s.user, Err: err}
}

func (s *Store) remember(p string) {
	s.mu.Lock()
	s.new = append(s.new, p)
	s.mu.Unlock()
}

// URI is the URI of a path below the root.
func (s *Store) URI(elem ...string) string {
	return s.fs.URI() + path.Join(append([]string{s.root}, elem...)...)
}

// Path is the path inside of the file system.
func (s *Store) Path(elem ...string) string { return path.Join(append([]string{s.root}, elem...)...) }

// FS is the file system of the root.
func (s *Store) FS() fs.FileSystem { return s.fs }

// MakeApplication makes the folder of an application, for its owner only, and returns its URI. It is the check that the root can be
// written.
//
// Errors: *Error.
func (s *Store) MakeApplication(ctx context.Context, id string) (string, error) {
	p := s.Path(id)
	if err := s.fs.Mkdir(ctx, p, 0o700); err != nil {
		return "", s.fail("write to", err)
	}
	s.remember(p)
	if err := s.fs.Chmod(ctx, p, 0o700); err != nil {
		return "", s.fail("write to", err)
	}
	return s.fs.URI() + p, nil
}

// RemoveApplication removes the folder of an application with all in it. One that is missing is no error.
func RemoveApplication(ctx context.Context, f fs.FileSystem, dir string) error {
	if path.Base(dir) == "/" || path.Base(dir) == "." {
		return fmt.Errorf("staging: remove %q: not the folder of an application", dir)
	}
	if err := f.Remove(ctx, dir, true); err != nil {
		return fmt.Errorf("staging: remove %s%s: %w", f.URI(), dir, err)
	}
	return nil
}

// Undo removes what this Store made: the application's folder and the files that were uploaded, newest first. It is for a submission
// that failed; files that were there before stay. ctx may have ended already: Undo takes its own time, ten seconds at most.
func (s *Store) Undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	s.mu.Lock()
	list := s.new
	s.new = nil
	s.mu.Unlock()
	var errs []error
	for i := len(list) - 1; i >= 0; i-- {
		if err := s.fs.Remove(ctx, list[i], true); err != nil {
			errs = append(errs, fmt.Errorf("staging: remove %s%s: %w", s.fs.URI(), list[i], err))
		}
	}
	return errors.Join(errs...)
}
