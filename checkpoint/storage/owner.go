package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

const (
	ownerName = "_owner"
	maxOwner  = 1 << 20 // bytes of a mark
	// A mark is created and then written. One that stays empty for markPatience is of a job that died in between.
	markPatience = 3 * time.Second
	markPause    = 50 * time.Millisecond
)

// Owner is the job that may remove the files of a folder, as it stands in the folder's mark, <folder>/_owner (JSON). A job marks its own
// folder and, when it starts from a snapshot with claim mode CLAIM, the folders of that (see Claims). The marks go when the job ends for
// good; its next application attempts find them and go on with them.
type Owner struct {
	Job    graph.JobID `json:"job"`
	Name   string      `json:"name"`
	By     string      `json:"by,omitempty"` // who runs it, for people: an application
	Since  time.Time   `json:"since"`
	Claims []string    `json:"claims,omitempty"` // URIs of the folders that it has claimed; in the mark of its own folder alone
}

// OwnedError says that a folder is another job's.
type OwnedError struct {
	Folder string // URI
	Owner  Owner  // zero when its mark was never written
}

// Mark is the URI of the file that says whose the folder is.
func (e *OwnedError) Mark() string { return e.Folder + "/" + ownerName }

func (e *OwnedError) Error() string {
	const out = "start with claim mode NO_CLAIM (-cm no_claim), which leaves the files alone, or end that job first; if it is gone for good, remove "
	if e.Owner.Job == (graph.JobID{}) {
		return fmt.Sprintf("storage: %s is being claimed by another job: %s%s", e.Folder, out, e.Mark())
	}
	by := ""
	if e.Owner.By != "" {
		by = " in " + e.Owner.By
	}
	return fmt.Sprintf("storage: the files in %s belong to job %s (%s)%s since %s, and two jobs would remove each other's: %s%s",
		e.Folder, e.Owner.Job, e.Owner.Name, by, e.Owner.Since.UTC().Format(time.RFC3339), out, e.Mark())
}

// Own makes o.Job the owner of its own folder, which it creates (mode 0700), and of those in o.Claims, all or none. It returns the URIs of
// all marks that the job has, those of its earlier attempts too; they are to be removed when it has ended for good.
//
// Errors: *OwnedError; for its own folder, one that names the folder, the user and the reason why nothing can be written there.
func (s *Storage) Own(ctx context.Context, o Owner) (marks []string, err error) {
	var made []string // by this call
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if rerr := s.Remove(ctx, made, nil, []string{s.Dir()}); rerr != nil && len(made) > 0 {
				err = fmt.Errorf("%w (and what this job has claimed could not be given back: %w)", err, rerr)
			}
		}
	}()
	if err := s.fs.Mkdir(ctx, s.dir, 0o700); err != nil {
		return nil, s.notWritable(ctx, err)
	}
	before, err := s.mark(ctx, s.Dir(), o)
	var owned *OwnedError
	switch {
	case errors.As(err, &owned) && owned.Owner.Job == (graph.JobID{}): // of an attempt that died: nobody else marks a new job's folder
		before = &Owner{}
	case errors.As(err, &owned):
		return nil, err
	case err != nil:
		return nil, s.notWritable(ctx, err)
	}
	own := s.Dir() + "/" + ownerName
	marks = append(marks, own)
	if before == nil {
		made = append(made, own)
	} else if o.Claims = union(before.Claims, o.Claims); len(o.Claims) > len(before.Claims) || before.Job != o.Job {
		b, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("storage: mark %s: %w", s.Dir(), err)
		}
		if err := fs.WriteFile(ctx, s.fs, path.Join(s.dir, ownerName), b, true); err != nil {
			return nil, s.notWritable(ctx, err)
		}
	}
	claim := o
	claim.Claims = nil
	for _, folder := range o.Claims {
		if before != nil && slices.Contains(before.Claims, folder) && !s.there(ctx, folder) {
			continue // the snapshot is gone since: a later one took its place
		}
		was, err := s.mark(ctx, folder, claim)
		if err != nil {
			return nil, err
		}
		marks = append(marks, folder+"/"+ownerName)
		if was == nil {
			made = append(made, folder+"/"+ownerName)
		}
	}
	s.owned.Store(true)
	return marks, nil
}

// there reports whether a folder exists, or may.
func (s *Storage) there(ctx context.Context, folder string) bool {
	f, p, err := s.at(ctx, folder)
	if err == nil {
		_, err = f.Stat(ctx, p)
	}
	return !errors.Is(err, iofs.ErrNotExist)
}

// mark makes o the owner of a folder, or finds that its job is (before).
func (s *Storage) mark(ctx context.Context, folder string, o Owner) (before *Owner, err error) {
	f, p, err := s.at(ctx, folder)
	if err != nil {
		return nil, fmt.Errorf("storage: claim %s: %w", folder, err)
	}
	p = path.Join(p, ownerName)
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("storage: claim %s: %w", folder, err)
	}
	for deadline := time.Now().Add(markPatience); ; {
		err := create(ctx, f, p, b)
		if err == nil {
			return nil, nil
		}
		if !errors.Is(err, iofs.ErrExist) {
			return nil, fmt.Errorf("storage: claim %s: %w", folder, err)
		}
		was, err := readOwner(ctx, f, p)
		switch {
		case err != nil && !errors.Is(err, iofs.ErrNotExist):
			return nil, fmt.Errorf("storage: claim %s: %w", folder, err)
		case err == nil && was.Job == o.Job:
			return &was, nil
		case err == nil && was.Job != (graph.JobID{}) || time.Now().After(deadline):
			return nil, &OwnedError{Folder: folder, Owner: was}
		}
		t := time.NewTimer(markPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("storage: claim %s: %w", folder, context.Cause(ctx))
		}
	}
}

// create writes a file that must not exist, whole or not at all.
func create(ctx context.Context, f fs.FileSystem, p string, b []byte) error {
	w, err := f.Create(ctx, p, false)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		_ = w.Abort() // the first failure is the one to tell
		return err
	}
	if err := w.Close(); err != nil {
		return errors.Join(err, f.Remove(context.WithoutCancel(ctx), p, false))
	}
	return nil
}

// readOwner reads a mark; one that is not written yet is the zero Owner.
func readOwner(ctx context.Context, f fs.FileSystem, p string) (o Owner, err error) {
	b, err := fs.ReadFile(ctx, f, p, maxOwner)
	if err != nil {
		return Owner{}, err
	}
	if json.Unmarshal(b, &o) != nil {
		return Owner{}, nil
	}
	return o, nil
}

// OwnerOf returns *OwnedError when a folder (path inside of f) has a mark, nil when it has none.
func OwnerOf(ctx context.Context, f fs.FileSystem, folder string) error {
	o, err := readOwner(ctx, f, path.Join(folder, ownerName))
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage: look whose %s is: %w", f.URI()+folder, err)
	}
	return &OwnedError{Folder: f.URI() + folder, Owner: o}
}

// Disown takes away the mark that a job which is gone for good has left on a folder (path inside of f). One that has come in its place
// meanwhile stays.
//
// Errors: *OwnedError for another mark than was; those of the file system.
func Disown(ctx context.Context, f fs.FileSystem, folder string, was Owner) error {
	mark, aside := path.Join(folder, ownerName), path.Join(folder, ownerName+"."+graph.NewID().String())
	fail := func(err error) error { return fmt.Errorf("storage: remove the mark %s: %w", f.URI()+mark, err) }
	if err := f.Rename(ctx, mark, aside); err != nil { // of several that do this, one gets it
		if errors.Is(err, iofs.ErrNotExist) {
			return nil
		}
		return fail(err)
	}
	now, err := readOwner(ctx, f, aside)
	switch {
	case err != nil:
		return fail(err)
	case now.Job == was.Job:
		if err := f.Remove(ctx, aside, false); err != nil {
			return fail(err)
		}
		return nil
	}
	if err := f.Rename(context.WithoutCancel(ctx), aside, mark); err != nil {
		return fail(err)
	}
	return &OwnedError{Folder: f.URI() + folder, Owner: now}
}

// Claims lists the folders (URIs, sorted) whose files a job may remove that claims a snapshot in dir: the folder of the job that took it, or
// its own when it is a savepoint or stands alone, and those of other jobs with which it shares files.
func Claims(dir string, c metadata.Checkpoint) (folders []string, err error) {
	dir = DirOf(dir)
	_, p, err := split(dir)
	if err != nil {
		return nil, fmt.Errorf("storage: claim %s: %w", dir, err)
	}
	folder := dir
	if _, ok := checkpointID(path.Base(p)); ok && path.Base(path.Dir(p)) == c.JobID.String() {
		folder = parent(dir)
	}
	folders = append(folders, folder)
	c.Refs(func(r *state.FileRef) {
		if r.Scope != state.Shared || r.Name == "" || err != nil {
			return
		}
		base := r.Base
		if base == "" {
			base = dir
		}
		var uri string
		if uri, err = Resolve(base, r.Name); err != nil {
			return
		}
		in := parent(uri)
		if path.Base(in) == sharedName {
			in = parent(in)
		}
		folders = append(folders, in)
	})
	slices.Sort(folders)
	return slices.Compact(folders), err
}

// parent is the folder that a URI of split's form stands in.
func parent(uri string) string {
	root, p, err := split(uri)
	if err != nil {
		return uri
	}
	return root + path.Dir(p)
}

func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
