package storage

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// Remove deletes directories with everything below, then files, then directories that are empty by then (URIs). What is gone already is
// not an error; all errors are joined, and the rest is still removed, but for the files when a directory could not be: a checkpoint's directory
// tells that it is complete, so it goes before the files that it shares with others.
func (s *Storage) Remove(ctx context.Context, files, dirs, emptyDirs []string) error {
	return remove(ctx, s.at, files, dirs, emptyDirs)
}

// Remove is Storage.Remove for who has no job: the URIs may be of any file systems of reg.
func Remove(ctx context.Context, reg *fs.Registry, files, dirs, emptyDirs []string) error {
	r := &roots{reg: reg}
	err := remove(ctx, r.at, files, dirs, emptyDirs)
	if cerr := r.close(); err == nil {
		err = cerr
	}
	return err
}

func remove(ctx context.Context, at func(context.Context, string) (fs.FileSystem, string, error), files, dirs, emptyDirs []string) error {
	var errs []error
	each := func(uris []string, remove func(f fs.FileSystem, p string) error) {
		for _, uri := range uris {
			f, p, err := at(ctx, uri)
			if err == nil {
				err = remove(f, p)
			}
			if err != nil && !errors.Is(err, syscall.ENOTDIR) { // below a file there is nothing
				errs = append(errs, fmt.Errorf("storage: remove %s: %w", uri, err))
			}
		}
	}
	each(dirs, func(f fs.FileSystem, p string) error { return f.Remove(ctx, p, true) })
	if len(errs) == 0 {
		each(files, func(f fs.FileSystem, p string) error { return f.Remove(ctx, p, false) })
	}
	each(emptyDirs, func(f fs.FileSystem, p string) error {
		infos, err := f.List(ctx, p)
		if errors.Is(err, iofs.ErrNotExist) {
			return nil
		}
		if err != nil || len(infos) > 0 {
			return err
		}
		return f.Remove(ctx, p, false)
	})
	return errors.Join(errs...)
}

// Sweep removes what checkpoints with numbers below below left in the job's directory: their directories, but for keepDirs, and their
// shared files, but for keepFiles (URIs both). It returns what it removed. Files whose name tells no number stay.
func (s *Storage) Sweep(ctx context.Context, below int64, keepDirs, keepFiles []string) (removed []string, err error) {
	dirs, err := s.fs.List(ctx, s.dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage: sweep %s: %w", s.Dir(), err)
	}
	var goneDirs, goneFiles []string
	haveShared := false
	for _, i := range dirs {
		name := path.Base(i.Path)
		haveShared = haveShared || name == sharedName
		if n, ok := checkpointID(name); ok && n < below && !slices.Contains(keepDirs, s.fs.URI()+i.Path) {
			goneDirs = append(goneDirs, s.fs.URI()+i.Path)
		}
	}
	if haveShared {
		keep := map[string]bool{}
		for _, f := range keepFiles {
			keep[f] = true
		}
		files, err := s.fs.List(ctx, path.Join(s.dir, sharedName))
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return nil, fmt.Errorf("storage: sweep %s: %w", s.SharedDir(), err)
		}
		for _, i := range files {
			if n, ok := FileCheckpoint(i.Path); ok && n < below && !keep[s.fs.URI()+i.Path] {
				goneFiles = append(goneFiles, s.fs.URI()+i.Path)
			}
		}
	}
	return append(goneFiles, goneDirs...), s.Remove(ctx, goneFiles, goneDirs, nil)
}

// Orphans lists the files below the job's directory that no retained checkpoint names, its mark excepted, sorted. Retained are the directories given
// (URIs), or, with nil, every directory that holds a _metadata file.
func (s *Storage) Orphans(ctx context.Context, retained []string) ([]string, error) {
	all, err := walk(ctx, s.fs, s.dir)
	if err != nil {
		return nil, fmt.Errorf("storage: list %s: %w", s.Dir(), err)
	}
	named := map[string]bool{}
	for _, p := range all {
		if path.Base(p) != MetadataName {
			continue
		}
		dir := s.fs.URI() + path.Dir(p)
		if retained != nil && !slices.Contains(retained, dir) {
			continue
		}
		b, err := fs.ReadFile(ctx, s.fs, p, MaxMetadataSize)
		if err != nil {
			return nil, fmt.Errorf("storage: read %s: %w", p, err)
		}
		c, err := metadata.Decode(b, dir)
		if err != nil {
			return nil, fmt.Errorf("storage: read %s: %w", p, err)
		}
		named[s.fs.URI()+p] = true
		c.Refs(func(r *state.FileRef) {
			if uri, err := Resolve(r.Base, r.Name); err == nil && r.Name != "" {
				named[uri] = true
			}
		})
	}
	var out []string
	for _, p := range all {
		if uri := s.fs.URI() + p; !named[uri] && path.Base(p) != ownerName {
			out = append(out, uri)
		}
	}
	slices.Sort(out)
	return out, nil
}

// walk lists all files below dir.
func walk(ctx context.Context, f fs.FileSystem, dir string) ([]string, error) {
	infos, err := f.List(ctx, dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, i := range infos {
		if !i.IsDir {
			out = append(out, i.Path)
			continue
		}
		below, err := walk(ctx, f, i.Path)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

// Completed is a checkpoint that is stored completely.
type Completed struct {
	Dir        string // URI
	Checkpoint metadata.Checkpoint
}

// Completed reads the job's complete checkpoints with numbers up to upTo, oldest first, at most the last max. Unreadable ones are
// skipped: the pointer decides what is restored, these are only kept.
func (s *Storage) Completed(ctx context.Context, upTo int64, max int) ([]Completed, error) {
	dirs, err := s.fs.List(ctx, s.dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage: list %s: %w", s.Dir(), err)
	}
	var ids []int64
	for _, i := range dirs {
		if n, ok := checkpointID(path.Base(i.Path)); ok && n <= upTo {
			ids = append(ids, n)
		}
	}
	slices.Sort(ids)
	var out []Completed
	for _, id := range slices.Backward(ids) {
		if len(out) == max {
			break
		}
		dir := s.CheckpointDir(id)
		b, err := fs.ReadFile(ctx, s.fs, path.Join(s.dir, path.Base(dir), MetadataName), MaxMetadataSize)
		if err != nil {
			continue
		}
		if c, err := metadata.Decode(b, dir); err == nil {
			out = append(out, Completed{Dir: dir, Checkpoint: c})
		}
	}
	slices.Reverse(out)
	return out, nil
}
