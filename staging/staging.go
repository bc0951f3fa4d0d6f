package staging

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Folders below the root.
const (
	libDir        = "lib"
	CheckpointDir = "ckp"
	// HistoryDir is the default folder of the archives of ended jobs, below the root.
	HistoryDir = "history"
	// monthLayout names the folders below lib.
	monthLayout = "2006-01"
	// usesPrefix and a month are the name of a folder in an application's, which says whose files it uses.
	usesPrefix = "lib-"
	// submittedDir is the folder in an application's that says that it may run, on a cluster that this one knows nothing of.
	submittedDir = "submitted"
	// uploadPrefix and a day are the name of a folder below lib for files that are being sent.
	uploadPrefix = ".upload-"
	dayLayout    = "2006-01-02"
)

// Store is the staging root of a user. Safe for concurrent use.
type Store struct {
	fs   fs.FileSystem
	root string // inside of fs
	user string // for messages
	now  time.Time

	mu  sync.Mutex
	new []made // for Undo
	app string // folder of the application
}

// made is a file or folder of this process.
type made struct {
	path string
	tree bool // goes with all in it; else a folder that others may use too, which goes when it is empty
	lib  bool // a whole file below lib, which goes if no other submission can have found it
}

// reuse bounds the time from the making of an application's folder to the look for files that are there already.
const reuse = 10 * time.Minute

// month is the folder below lib that this Store uses.
func (s *Store) month() string { return s.now.Format(monthLayout) }

// uploads is the folder for files that are being sent.
func (s *Store) uploads() string { return s.Path(libDir, uploadPrefix+s.now.Format(dayLayout)) }

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
// messages. A failed Open leaves nothing behind.
//
// Errors: *Error.
func Open(ctx context.Context, f fs.FileSystem, root, user string) (*Store, error) {
	s := &Store{fs: f, root: path.Clean(root), user: user, now: time.Now().UTC()}
	if err := s.open(ctx); err != nil {
		if !errors.Is(err, fs.ErrUnavailable) { // nothing can be removed then, and the wait was long enough
			_ = s.Undo(ctx) // the first error is the one to tell
		}
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	lib := s.Path(libDir, s.month())
	missing, err := Missing(ctx, s.fs, lib)
	if err != nil {
		return s.fail("look into", err)
	}
	if len(missing) == 0 {
		return nil // that it can be written shows at the first Put; the application's folder is made in any case
	}
	for _, p := range missing { // also when it fails: the call may have had its effect
		s.remember(p, false)
	}
	if err := s.fs.Mkdir(ctx, lib, 0o755); err != nil {
		return s.fail("make", err)
	}
	for _, p := range missing { // whatever the umask made of them: what is below stays private where it has to be
		if fs.Within(s.root, p) {
			if err := s.fs.Chmod(ctx, p, 0o755); err != nil {
				return s.fail("make", err)
			}
		}
	}
	return nil
}

// Missing lists p and the folders above it that do not exist, the topmost first.
//
// Errors: those of f; a file on the way.
func Missing(ctx context.Context, f fs.FileSystem, p string) ([]string, error) {
	var out []string
	for p = path.Clean(p); p != "/"; p = path.Dir(p) {
		info, err := f.Stat(ctx, p)
		switch {
		case err == nil && !info.IsDir:
			return nil, fmt.Errorf("%s is a file", p)
		case err == nil:
			return out, nil
		case !errors.Is(err, iofs.ErrNotExist):
			return nil, err
		}
		out = slices.Insert(out, 0, p)
	}
	return out, nil
}

func (s *Store) fail(op string, err error) error {
	return &Error{Op: op, URI: s.fs.URI() + s.root, User: s.user, Err: err}
}

func (s *Store) remember(p string, tree bool) { s.note(made{path: p, tree: tree}) }

func (s *Store) note(m made) {
	s.mu.Lock()
	s.new = append(s.new, m)
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
// written. The folder says which files below lib the application uses, until it is removed; made before Put it also keeps those that
// another submission sent, and now takes back.
//
// Errors: *Error.
func (s *Store) MakeApplication(ctx context.Context, id string) (string, error) {
	p := s.Path(id)
	s.remember(p, true)
	s.mu.Lock()
	s.app = p
	s.mu.Unlock()
	if err := s.fs.Mkdir(ctx, path.Join(p, usesPrefix+s.month()), 0o700); err != nil {
		return "", s.fail("write to", err)
	}
	if err := s.fs.Chmod(ctx, p, 0o700); err != nil {
		return "", s.fail("write to", err)
	}
	return s.fs.URI() + p, nil
}

// MarkSubmitted notes in the application's folder that it is about to be submitted: from here on RemoveUnused leaves the folder alone.
//
// Errors: *Error.
func (s *Store) MarkSubmitted(ctx context.Context) error {
	s.mu.Lock()
	p := path.Join(s.app, submittedDir)
	s.mu.Unlock()
	if err := s.fs.Mkdir(ctx, p, 0o700); err != nil {
		return s.fail("write to", err)
	}
	return nil
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

// Undo removes what this Store made: the application's folder, the files that were uploaded, and the folders that are empty, newest first.
// It is for a submission that failed; files that were there before stay, and those that another submission may have found meanwhile. ctx may have ended already: Undo takes its own time, ten seconds
// at most.
func (s *Store) Undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	s.mu.Lock()
	list := s.new
	s.new = nil
	s.mu.Unlock()
	var errs []error
	for _, m := range slices.Backward(list) {
		if m.lib {
			if err := s.takeBack(ctx, m.path); err != nil {
				errs = append(errs, err)
			}
			continue
		}
		err := s.fs.Remove(ctx, m.path, m.tree)
		if errors.Is(err, iofs.ErrPermission) {
			continue // who may not remove it could not make it
		}
		if err != nil && (m.tree || !errors.Is(err, syscall.ENOTEMPTY)) {
			errs = append(errs, fmt.Errorf("staging: remove %s%s: %w", s.fs.URI(), m.path, err))
		}
	}
	return errors.Join(errs...)
}

// takeBack removes a file below lib, unless a submission that began not long before the file was complete, or later, is still there: that one may
// have found it. The file is out of the way first, so that whoever looks for it now sends it, and whoever looked before is seen.
func (s *Store) takeBack(ctx context.Context, p string) error {
	fail := func(err error) error {
		return fmt.Errorf("staging: remove %s%s: %w", s.fs.URI(), p, err)
	}
	aside := p + ".undo"
	err := s.fs.Rename(ctx, p, aside)
	if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, iofs.ErrPermission) {
		return nil // it never was
	}
	if err != nil {
		return fail(err)
	}
	others, err := s.others(ctx)
	if err == nil && !others {
		if err := s.fs.Remove(ctx, aside, false); err != nil {
			return fail(err)
		}
		return nil
	}
	if rerr := s.fs.Rename(ctx, aside, p); rerr != nil {
		return fail(errors.Join(err, rerr))
	}
	return err
}

// others reports whether there is the folder of another application that was begun when this submission was, or later.
func (s *Store) others(ctx context.Context) (bool, error) {
	list, err := s.fs.List(ctx, s.root)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(i fs.Info) bool {
		name := path.Base(i.Path)
		return i.IsDir && name != libDir && name != CheckpointDir && name != HistoryDir && i.Path != s.app && i.ModTime.After(s.now.Add(-reuse))
	}), nil
}
