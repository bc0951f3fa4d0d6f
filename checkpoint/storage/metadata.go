package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/state"
)

// MaxMetadataSize bounds what ReadMetadata reads into memory, bytes.
const MaxMetadataSize = 1 << 30

// Errors of WriteMetadata and ReadMetadata.
var (
	// ErrClaimed: the directory's _metadata exists or is being written, by another owner or an earlier try. The checkpoint must be
	// given up; the next one has another directory.
	ErrClaimed = errors.New("the checkpoint's metadata exists already or is being written")
	// ErrNoCheckpoint: nothing that can be restored is at the path.
	ErrNoCheckpoint = errors.New("no checkpoint or savepoint")
	// ErrFolderGone: the job's folder is not the one that it has marked as its own. Files that checkpoints share may not be there.
	ErrFolderGone = errors.New("the job's checkpoint folder was removed or renamed; put it back with all that was in it")
)

// WriteMetadata makes a checkpoint complete: it writes dir/_metadata.inprogress (created exclusively), closes it, and renames it to
// dir/_metadata. References of c that carry a Base are rewritten relative to dir in the stored copy; c itself is not changed.
//
// Cost on HDFS: create, stat, one block, complete, rename. The stat and the exclusive create together keep two owners apart (see the
// package's invariants); the rename keeps a reader from ever seeing half a file. Returned are the file's URI and its size.
// Errors: ErrClaimed; ErrFolderGone for a folder that the job owns; those of the file system. After an error other than ErrClaimed the temporary file has been removed if possible.
func (s *Storage) WriteMetadata(ctx context.Context, dir string, c metadata.Checkpoint) (uri string, size int64, err error) {
	f, _, err := s.at(ctx, dir)
	if err != nil {
		return "", 0, fmt.Errorf("storage: write metadata: %w", err)
	}
	return writeMetadata(ctx, f, dir, c, func() error {
		if !s.owned.Load() || !strings.HasPrefix(dir, s.Dir()+"/") {
			return nil
		}
		_, err := s.fs.Stat(ctx, path.Join(s.dir, ownerName))
		if errors.Is(err, iofs.ErrNotExist) {
			return ErrFolderGone
		}
		return err
	})
}

// WriteMetadata is the method of the same name for any directory (URI) of f.
func WriteMetadata(ctx context.Context, f fs.FileSystem, dir string, c metadata.Checkpoint) (uri string, size int64, err error) {
	return writeMetadata(ctx, f, dir, c, func() error { return nil })
}

// writeMetadata asks whether it may when the temporary file is in the directory, and would move along with it.
func writeMetadata(ctx context.Context, f fs.FileSystem, dir string, c metadata.Checkpoint, may func() error) (uri string, size int64, err error) {
	root, p, err := split(dir)
	if err != nil {
		return "", 0, fmt.Errorf("storage: write metadata: %w", err)
	}
	c, err = relativize(c, root+p)
	if err != nil {
		return "", 0, fmt.Errorf("storage: write metadata of checkpoint %d: %w", c.ID, err)
	}
	b, err := metadata.Encode(c)
	if err != nil {
		return "", 0, fmt.Errorf("storage: write metadata: %w", err)
	}
	tmp, final := path.Join(p, inProgress), path.Join(p, MetadataName)
	if err := failpoint.Error("checkpoint/metadata/before-create"); err != nil {
		return "", 0, err
	}
	w, err := f.Create(ctx, tmp, false)
	if err != nil {
		if errors.Is(err, iofs.ErrExist) {
			return "", 0, fmt.Errorf("storage: write %s%s: %w", root, tmp, ErrClaimed)
		}
		return "", 0, fmt.Errorf("storage: create %s%s: %w", root, tmp, err)
	}
	fail := func(what string, err error) (string, int64, error) {
		return "", 0, fmt.Errorf("storage: %s %s%s: %w", what, root, tmp, errors.Join(err, w.Abort()))
	}
	switch _, err := f.Stat(ctx, final); {
	case err == nil:
		return fail("write", ErrClaimed)
	case !errors.Is(err, iofs.ErrNotExist):
		return fail("look beside", err)
	}
	if err := failpoint.Error("checkpoint/metadata/before-write"); err != nil {
		return fail("write", err)
	}
	if _, err := w.Write(b); err != nil {
		return fail("write", err)
	}
	if err := failpoint.Error("checkpoint/metadata/before-close"); err != nil {
		return fail("close", err)
	}
	if err := w.Close(); err != nil {
		return fail("close", errors.Join(err, f.Remove(context.WithoutCancel(ctx), tmp, false)))
	}
	if err := may(); err != nil {
		return fail("complete", errors.Join(err, f.Remove(context.WithoutCancel(ctx), tmp, false)))
	}
	failpoint.At("checkpoint/metadata/before-rename")
	if err := f.Rename(ctx, tmp, final); err != nil {
		return "", 0, fmt.Errorf("storage: rename %s%s to %s: %w", root, tmp, MetadataName,
			errors.Join(err, f.Remove(context.WithoutCancel(ctx), tmp, false)))
	}
	failpoint.At("checkpoint/metadata/after-rename")
	return root + final, int64(len(b)), nil
}

// relativize returns a copy of c whose files are all named relative to dir.
func relativize(c metadata.Checkpoint, dir string) (metadata.Checkpoint, error) {
	needed := false
	c.Refs(func(r *state.FileRef) { needed = needed || r.Name != "" && r.Base != "" })
	if !needed {
		return c, nil
	}
	c = c.Clone()
	var first error
	c.Refs(func(r *state.FileRef) {
		if r.Name == "" || r.Base == "" || first != nil {
			return
		}
		uri, err := Resolve(r.Base, r.Name)
		if err == nil {
			r.Name, err = Relative(dir, uri)
		}
		r.Base, first = "", err
	})
	return c, first
}

// checkpointsIn names the checkpoints in a job's directory, the newest first, "" for none.
func checkpointsIn(ctx context.Context, f fs.FileSystem, dir string) string {
	infos, err := f.List(ctx, dir)
	if err != nil {
		return ""
	}
	var ids []int64
	for _, i := range infos {
		if id, ok := checkpointID(path.Base(i.Path)); ok {
			if _, err := f.Stat(ctx, path.Join(i.Path, MetadataName)); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Compare(b, a) })
	var names []string
	for _, id := range ids {
		names = append(names, checkpointDir+strconv.FormatInt(id, 10))
	}
	return strings.Join(names, ", ")
}

// ReadMetadata reads the checkpoint or savepoint at uri, its directory or its _metadata file. FileRef.Base is filled in.
//
// Errors name the path and what to do: ErrNoCheckpoint (nothing there, or a directory without _metadata: an unfinished one),
// metadata.ErrTruncated, ErrCorrupt, ErrFormat, ErrVersion, fs.ErrScheme and those of the file system.
func ReadMetadata(ctx context.Context, reg *fs.Registry, uri string) (metadata.Checkpoint, error) {
	var none metadata.Checkpoint
	root, _, err := split(uri)
	if err != nil {
		return none, fmt.Errorf("storage: read checkpoint: %w", err)
	}
	r := roots{reg: reg}
	f, p, err := r.at(ctx, uri)
	if err != nil {
		return none, fmt.Errorf("storage: read checkpoint %s: %w", uri, err)
	}
	defer func() { _ = r.close() }() // nothing was written
	file := path.Join(p, MetadataName)
	info, err := f.Stat(ctx, p)
	if err == nil && !info.IsDir {
		file = p
	}
	if errors.Is(err, iofs.ErrNotExist) {
		return none, fmt.Errorf("storage: read %s: %w there; give the savepoint's directory or its %s file", uri, ErrNoCheckpoint, MetadataName)
	}
	if err != nil {
		return none, fmt.Errorf("storage: read %s: %w", uri, err)
	}
	b, err := fs.ReadFile(ctx, f, file, MaxMetadataSize)
	if errors.Is(err, iofs.ErrNotExist) {
		if all := checkpointsIn(ctx, f, p); all != "" {
			return none, fmt.Errorf("storage: read %s: %w: it is the folder of a job; give one of its checkpoints, %s", uri, ErrNoCheckpoint, all)
		}
		return none, fmt.Errorf("storage: read %s: %w: the directory has no %s, so it was not finished or is not one; give another",
			uri, ErrNoCheckpoint, MetadataName)
	}
	if err != nil {
		return none, fmt.Errorf("storage: read %s: %w", root+file, err)
	}
	c, err := metadata.Decode(b, root+path.Dir(file))
	if err != nil {
		return none, fmt.Errorf("storage: read %s (%d bytes): %w; restore from another savepoint or checkpoint", root+file, len(b), err)
	}
	return c, nil
}
