package staging

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Artifact is a staged file.
type Artifact struct {
	Name   string
	SHA256 string // hex
	Size   int64
	URI    string
	// ModTime is the store's time of the file, in milliseconds: YARN compares it.
	ModTime time.Time
	Archive bool  // YARN unpacks it
	Public  bool  // everybody can read it, see invariant 3 of the package
	Sent    int64 // bytes that went over the network; 0 when the file was there already
}

// Progress is told while files are staged; Sent of Total bytes of Name. Calls come from several goroutines, one at a time for a name.
type Progress func(name string, sent, total int64)

// Put stages one local file. Nothing is sent when the content is there already, by its name, its size and samples of it.
//
// Errors: *Error for the store, else a plain error that names the local file.
func (s *Store) Put(ctx context.Context, file string, progress Progress) (Artifact, error) {
	a := Artifact{Name: filepath.Base(file)}
	in, err := os.Open(file)
	if err != nil {
		return a, fmt.Errorf("staging: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	h := sha256.New()
	if a.Size, err = io.Copy(h, in); err != nil {
		return a, fmt.Errorf("staging: read %s: %w", file, err)
	}
	a.SHA256 = hex.EncodeToString(h.Sum(nil))
	p := s.Path(libDir, s.month(), a.SHA256+"-"+a.Name)
	a.URI = s.fs.URI() + p
	info, err := s.fs.Stat(ctx, p)
	switch {
	case err == nil && !info.IsDir && info.Size == a.Size && s.same(ctx, in, p, a.Size):
	case err == nil || errors.Is(err, iofs.ErrNotExist):
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			return a, fmt.Errorf("staging: read %s: %w", file, err)
		}
		if a.Sent, err = s.upload(ctx, in, p, a, progress); err != nil {
			return a, err
		}
		if info, err = s.fs.Stat(ctx, p); err != nil {
			return a, s.fail("look into", err)
		}
		if info.Size != a.Size {
			return a, fmt.Errorf("staging: %s changed while it was staged (%d bytes, then %d): try again", file, a.Size, info.Size)
		}
	default:
		return a, s.fail("look into", err)
	}
	a.ModTime = info.ModTime
	if a.Public, err = s.public(ctx, p, info.Mode); err != nil {
		return a, s.fail("look into", err)
	}
	return a, nil
}

// sample is how much of a file that is there already is compared, at its start, in its middle and at its end.
const sample = 4 << 10

// same compares samples of the staged file with the local one: a file that was written over, or that a disk gave back as zeros, is not taken for
// what its name says. A store that cannot be read now is no reason to send the file again: its containers will check it, too.
func (s *Store) same(ctx context.Context, in io.ReaderAt, p string, size int64) bool {
	r, err := s.fs.Open(ctx, p)
	if err != nil {
		return true
	}
	defer r.Close() //nolint:errcheck // only read
	var here, there [sample]byte
	for _, off := range []int64{0, size / 2, max(0, size-sample)} {
		n, err := in.ReadAt(here[:min(sample, size-off)], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return true // the read of the whole told already
		}
		if m, err := r.ReadAt(there[:n], off); err == nil && !bytes.Equal(here[:n], there[:m]) {
			return false
		}
	}
	return true
}

// upload writes the file into the day's folder of uploads, and gives it its name when it is complete. What a process that was killed leaves
// there is removed by Sweep.
func (s *Store) upload(ctx context.Context, in *os.File, p string, a Artifact, progress Progress) (int64, error) {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails, by its contract
	tmp := path.Join(s.uploads(), hex.EncodeToString(random[:])+"-"+a.Name)
	s.remember(s.uploads(), false) // also when it fails: the call may have had its effect
	s.remember(tmp, true)
	w, err := s.fs.Create(ctx, tmp, false)
	if err != nil {
		return 0, s.fail("write to", err)
	}
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	progress(a.Name, 0, a.Size)
	h := sha256.New() // what was sent is what was named: the file may be rebuilt meanwhile
	n, err := io.CopyBuffer(&counted{w: w, name: a.Name, total: a.Size, progress: progress}, io.TeeReader(in, h), make([]byte, 256<<10))
	if err == nil && hex.EncodeToString(h.Sum(nil)) != a.SHA256 {
		err = errors.New("the file changed while it was staged: try again")
	}
	// Somebody else may have staged the same content meanwhile. Replacing it would change its time under applications that hold it.
	if err == nil {
		if info, serr := s.fs.Stat(ctx, p); serr == nil && info.Size == a.Size && s.same(ctx, in, p, a.Size) {
			return n, w.Abort()
		}
		err = w.Close()
	} else {
		err = errors.Join(err, w.Abort())
	}
	if err == nil {
		err = s.fs.Chmod(ctx, tmp, 0o755)
	}
	if err == nil {
		s.note(made{path: p, lib: true})
		err = s.fs.Rename(ctx, tmp, p)
	}
	if err != nil {
		return n, s.fail("write to", err)
	}
	return n, nil
}

type counted struct {
	w           io.Writer
	name        string
	sent, total int64
	progress    Progress
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.sent += int64(n)
	c.progress(c.name, c.sent, c.total)
	return n, err
}

// PutAll stages several files at the same time and returns their artifacts in the same order. The first error ends the others.
func (s *Store) PutAll(ctx context.Context, files []string, progress Progress) ([]Artifact, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := make([]Artifact, len(files))
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i, f := range files {
		wg.Go(func() {
			a, err := s.Put(ctx, f, progress)
			if err != nil {
				once.Do(func() { first = err; cancel() })
			}
			out[i] = a
		})
	}
	wg.Wait()
	if slices.ContainsFunc(out, func(a Artifact) bool { return a.Sent > 0 }) {
		_ = s.fs.Remove(ctx, s.uploads(), false) // another submission may be using it; Sweep comes later
	}
	return out, first
}

// Public reports whether everybody can read the file that info describes, with its path inside of f, and enter all folders above it.
func Public(ctx context.Context, f fs.FileSystem, info fs.Info) (bool, error) {
	return (&Store{fs: f}).public(ctx, info.Path, info.Mode)
}

// public reports whether everybody can read the file of that mode at p and enter all folders above it.
func (s *Store) public(ctx context.Context, p string, mode uint32) (bool, error) {
	if mode&0o004 == 0 {
		return false, nil
	}
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		info, err := s.fs.Stat(ctx, dir)
		if errors.Is(err, iofs.ErrPermission) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if info.Mode&0o001 == 0 {
			return false, nil
		}
		if dir == "/" {
			return true, nil
		}
	}
}
