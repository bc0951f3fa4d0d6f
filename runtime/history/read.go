package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/thalweg/thalweg/fs"
)

const (
	// maxArchive bounds the size of a file that is read, maxOpen how many whole ones are kept in memory.
	maxArchive = 64 << 20
	maxOpen    = 8
)

// Job is an ended job. Times are in milliseconds since 1970.
type Job struct {
	ID          string `json:"jid"`
	Name        string `json:"name"`
	State       string `json:"state"`
	Start       int64  `json:"start-time"`
	End         int64  `json:"end-time"`
	Duration    int64  `json:"duration"`
	Application string `json:"application-id"`
}

// Folder is where archives are.
type Folder struct {
	FS   fs.FileSystem
	Path string
}

// Store reads archives. It is safe for concurrent use.
type Store struct {
	folders []Folder
	tell    func(uri string, err error)

	mu    sync.Mutex
	known map[string]entry // by URI of the file
	open  map[string]map[string]string
	order []string // of open, the oldest first
	bad   map[string]bool
}

// entry is what is kept of every archive.
type entry struct {
	file     fs.Info
	folder   Folder
	job      Job
	overview json.RawMessage // of the job
}

// Open makes a Store. Nothing is read yet. tell is called once for a file that has the name of an archive and is none.
func Open(tell func(uri string, err error), folders ...Folder) *Store {
	return &Store{folders: folders, tell: tell, known: map[string]entry{}, open: map[string]map[string]string{}, bad: map[string]bool{}}
}

// Refresh looks for archives that are new, and forgets those that are gone. A folder that is not there yet has none.
//
// Errors: of a folder that cannot be listed; the others are read nevertheless.
func (s *Store) Refresh(ctx context.Context) error {
	var errs []error
	found := map[string]bool{}
	for _, folder := range s.folders {
		list, err := archives(ctx, folder.FS, folder.Path)
		if errors.Is(err, iofs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			s.keep(folder, found)
			continue
		}
		for _, file := range list {
			uri := folder.FS.URI() + file.Path
			found[uri] = true
			if s.has(uri, file) {
				continue
			}
			if err := s.take(ctx, folder, file, uri); err != nil {
				s.refuse(uri, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, e := range s.known {
		if !found[uri] {
			delete(s.known, uri)
			s.forget(e.job.ID)
		}
	}
	return errors.Join(errs...)
}

// keep notes the files of a folder that could not be listed as still there.
func (s *Store) keep(folder Folder, found map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uri, e := range s.known {
		if e.folder == folder {
			found[uri] = true
		}
	}
}

func (s *Store) has(uri string, file fs.Info) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.known[uri]
	return ok && e.file.ModTime.Equal(file.ModTime) && e.file.Size == file.Size
}

// refuse tells once of a file that is no archive.
func (s *Store) refuse(uri string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.bad[uri] {
		s.bad[uri] = true
		s.tell(uri, err)
	}
}

// take reads a new archive.
func (s *Store) take(ctx context.Context, folder Folder, file fs.Info, uri string) error {
	docs, err := load(ctx, folder.FS, file)
	if err != nil {
		return err
	}
	var overview struct{ Jobs []json.RawMessage }
	e := entry{file: file, folder: folder}
	if err := json.Unmarshal([]byte(docs["/jobs/overview"]), &overview); err != nil || len(overview.Jobs) != 1 {
		return fmt.Errorf("history: %s: it has no overview of one job", uri)
	}
	e.overview = overview.Jobs[0]
	if err := json.Unmarshal(e.overview, &e.job); err != nil || e.job.ID != path.Base(file.Path) {
		return fmt.Errorf("history: %s: it is of the job %q", uri, e.job.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[uri] = e
	delete(s.bad, uri)
	s.forget(e.job.ID)
	return nil
}

func load(ctx context.Context, f fs.FileSystem, file fs.Info) (map[string]string, error) {
	uri := f.URI() + file.Path
	if file.Size > maxArchive {
		return nil, fmt.Errorf("history: %s has %d bytes, more than %d", uri, file.Size, maxArchive)
	}
	content, err := fs.ReadFile(ctx, f, file.Path, maxArchive)
	if err != nil {
		return nil, fmt.Errorf("history: read %s: %w", uri, err)
	}
	var a archive
	if err := json.Unmarshal(content, &a); err != nil {
		return nil, fmt.Errorf("history: read %s: %w", uri, err)
	}
	docs := map[string]string{}
	for _, d := range a.Archive {
		if json.Valid([]byte(d.JSON)) {
			docs["/"+strings.Trim(d.Path, "/")] = d.JSON
		}
	}
	return docs, nil
}

// forget drops a job's documents from memory. Called with the lock.
func (s *Store) forget(job string) {
	delete(s.open, job)
	s.order = slices.DeleteFunc(s.order, func(j string) bool { return j == job })
}

// Jobs lists the jobs, those that ended last first. One that is in several folders is listed once.
func (s *Store) Jobs() []Job {
	var out []Job
	for _, e := range s.entries() {
		out = append(out, e.job)
	}
	return out
}

func (s *Store) entries() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	var out []entry
	for _, e := range s.known {
		if !seen[e.job.ID] {
			seen[e.job.ID] = true
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.job.End, a.job.End), cmp.Compare(a.job.ID, b.job.ID))
	})
	return out
}

// Document is what the REST interface gave under a path of a job, such as /jobs/<job id>/exceptions; ok is false when there is no such thing.
//
// Errors: of the file system.
func (s *Store) Document(ctx context.Context, job, p string) (doc string, ok bool, err error) {
	s.mu.Lock()
	docs := s.open[job]
	var from *entry
	for _, e := range s.known {
		if e.job.ID == job {
			from = &e
			break
		}
	}
	s.mu.Unlock()
	if from == nil {
		return "", false, nil
	}
	if docs == nil {
		if docs, err = load(ctx, from.folder.FS, from.file); err != nil {
			return "", false, err
		}
		s.mu.Lock()
		s.forget(job)
		s.open[job] = docs
		if s.order = append(s.order, job); len(s.order) > maxOpen {
			s.forget(s.order[0])
		}
		s.mu.Unlock()
	}
	doc, ok = docs[p]
	return doc, ok, nil
}
