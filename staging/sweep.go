package staging

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Sweep removes what no application can need any more below lib, and returns the paths: months before the last one that no application with
// a folder uses, and uploads that were begun before yesterday. A submission uses the present month alone, which it may have begun in the last one:
// so nothing that is removed can be wanted by one that is going on.
//
// Errors: of the file system; what was removed before stays removed.
func (s *Store) Sweep(ctx context.Context) (removed []string, err error) {
	fail := func(err error) ([]string, error) {
		return removed, fmt.Errorf("staging: sweep %s: %w", s.URI(libDir), err)
	}
	list, err := s.fs.List(ctx, s.Path(libDir))
	if err != nil {
		return fail(err)
	}
	var old, months []string
	for _, info := range list {
		name := path.Base(info.Path)
		if _, err := time.Parse(monthLayout, name); err == nil && info.IsDir && name < s.now.AddDate(0, 0, 1-s.now.Day()).AddDate(0, -1, 0).Format(monthLayout) {
			months = append(months, name)
		}
		day, ok := strings.CutPrefix(name, uploadPrefix)
		if _, err := time.Parse(dayLayout, day); ok && err == nil && info.IsDir && day < s.now.AddDate(0, 0, -1).Format(dayLayout) {
			old = append(old, info.Path)
		}
	}
	if len(months) > 0 {
		used, err := s.used(ctx)
		if err != nil {
			return fail(err)
		}
		for _, m := range months {
			if !slices.Contains(used, m) {
				old = append(old, s.Path(libDir, m))
			}
		}
	}
	for _, p := range old {
		if err := s.fs.Remove(ctx, p, true); err != nil {
			return fail(err)
		}
		removed = append(removed, p)
	}
	return removed, nil
}

// RemoveUnused removes the folder of an application if nothing is in it but the note of MakeApplication, and reports whether it did. That is what a
// client leaves that is killed before MarkSubmitted. Whatever is put into it meanwhile stays.
//
// Errors: of the file system.
func (s *Store) RemoveUnused(ctx context.Context, dir string) (bool, error) {
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("staging: remove %s%s: %w", s.fs.URI(), dir, err)
	}
	list, err := s.fs.List(ctx, dir)
	if err != nil {
		return fail(err)
	}
	if slices.ContainsFunc(list, func(i fs.Info) bool { return !i.IsDir || !strings.HasPrefix(path.Base(i.Path), usesPrefix) }) {
		return false, nil
	}
	for _, p := range append(list, fs.Info{Path: dir}) {
		err := s.fs.Remove(ctx, p.Path, false)
		if errors.Is(err, syscall.ENOTEMPTY) {
			return false, nil
		}
		if err != nil {
			return fail(err)
		}
	}
	return true, nil
}

// used lists the months of the applications that have a folder.
func (s *Store) used(ctx context.Context) ([]string, error) {
	list, err := s.fs.List(ctx, s.root)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, app := range list {
		if name := path.Base(app.Path); !app.IsDir || name == libDir || name == CheckpointDir || name == HistoryDir {
			continue
		}
		in, err := s.fs.List(ctx, app.Path)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, info := range in {
			if m, ok := strings.CutPrefix(path.Base(info.Path), usesPrefix); ok {
				out = append(out, m)
			}
		}
	}
	return out, nil
}
