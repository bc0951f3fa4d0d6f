package savepoint

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// ErrNotSavepoint is returned by Dispose for a checkpoint: others of its job may share its files.
var ErrNotSavepoint = errors.New("it is a checkpoint, whose files others of its job may share; a run that claims it (-claimMode claim) removes it when it is subsumed")

// Dispose removes the savepoint at uri (directory or _metadata file): first _metadata, so that nobody starts from a part of it, then the files
// that it names in its directory, then the directory. What else is in the directory stays, and is the error *LeftError.
//
// Errors besides: those of storage.ReadMetadata; ErrNotSavepoint; *storage.OwnedError when a job has claimed it; those of the file system, after which Dispose can be called again only
// while _metadata is there. A file that cannot be removed does not keep it from the others.
func Dispose(ctx context.Context, reg *fs.Registry, uri string) error {
	c, err := storage.ReadMetadata(ctx, reg, uri)
	if err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("savepoint: dispose %s: %w", uri, err) }
	if !c.Savepoint {
		return fail(ErrNotSavepoint)
	}
	f, p, err := reg.Resolve(ctx, uri)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = f.Close() }() // only looked into
	folder := strings.TrimSuffix(p, "/"+storage.MetadataName)
	if err := storage.OwnerOf(ctx, f, folder); err != nil {
		return fail(err)
	}
	at := func(name string) string { return f.URI() + path.Join(folder, name) }
	var files []string
	c.Refs(func(r *state.FileRef) {
		if r.Name != "" && r.Name != ".." && path.Base(r.Name) == r.Name {
			files = append(files, at(r.Name))
		}
	})
	if err := storage.Remove(ctx, reg, []string{at(storage.MetadataName)}, nil, nil); err != nil {
		return fail(err)
	}
	if err := storage.Remove(ctx, reg, files, nil, []string{at("")}); err != nil {
		if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 1 {
			err = fmt.Errorf("%w (and %d more, which may be left like this one)", all.Unwrap()[0], len(all.Unwrap())-1)
		}
		return fail(err)
	}
	left, err := f.List(ctx, folder)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return nil
	case err != nil:
		return fail(err)
	}
	return &LeftError{Dir: at(""), Files: len(left)}
}

// LeftError says that the directory of a savepoint that was removed holds files which are not the savepoint's.
type LeftError struct {
	Dir   string // URI
	Files int
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("savepoint: dispose %s: the savepoint is removed, but its directory holds %d files that are not of it: look at them, then remove it", e.Dir, e.Files)
}
