package am

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/fs"
)

// fetch copies a staged file into dir, checks its content and makes it executable.
func fetch(ctx context.Context, files *fs.Registry, f container.File, dir string) (path string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("am: fetch %s from %s: %w", f.Name, f.URI, err)
	}
	store, p, err := files.Resolve(ctx, f.URI)
	if err != nil {
		return fail(finalError{err})
	}
	in, err := store.Open(ctx, p)
	if errors.Is(err, iofs.ErrNotExist) {
		err = finalError{err}
	}
	if err != nil {
		return fail(shared(err))
	}
	defer in.Close() //nolint:errcheck // only read
	path = filepath.Join(dir, "job-"+f.SHA256[:min(12, len(f.SHA256))])
	out, err := os.CreateTemp(dir, "fetch-") // a copy may be running already
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name()) // goes with the container
		}
	}()
	h := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(out, h), in, make([]byte, 256<<10))
	if err = errors.Join(err, out.Close()); err != nil {
		return fail(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); n != f.Size || got != f.SHA256 {
		return fail(finalError{fmt.Errorf("got %d bytes with hash %s, want %d with %s: the staged file is damaged; submit the job again", n, got, f.Size, f.SHA256)})
	}
	if err := os.Chmod(out.Name(), 0o700); err != nil { //nolint:gosec // an executable of the owner's
		return fail(err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return fail(err)
	}
	return path, nil
}
