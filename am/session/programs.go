package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/staging/artifact"
)

const (
	// keepUnused is how many programs are kept that no job runs.
	keepUnused = 8
	// maxPartial is how many programs may be on their way.
	maxPartial = 16
	// stale is when a program of which nothing more came gives way to others.
	stale = time.Minute
)

// program is a program that is here, in whole or in part.
type program struct {
	mu   sync.Mutex // of its files, held over I/O: pieces of one program come one after another
	sum  string
	path string // of the local copy; "" when there is none
	uri  string // in the application's folder; "" until it is stored

	used time.Time // guarded by programs.mu, as is pins
	pins int       // submissions that are going on
}

// programs are the programs of a session, by hash.
type programs struct {
	dir   string // local, private
	files *fs.Registry
	root  string // URI of the folder in the application's

	mu  sync.Mutex
	all map[string]*program
}

func (s *programs) get(sum string) (*program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.all[sum]
	if p == nil {
		n := 0
		for _, other := range s.all {
			if _, err := os.Stat(s.partial(other.sum)); err == nil {
				if n++; time.Since(other.used) > stale && other.pins == 0 {
					_ = os.Remove(s.partial(other.sum)) // it begins anew if somebody goes on with it
					n--
				}
			}
		}
		if n >= maxPartial {
			return nil, &rest.Refusal{Status: http.StatusTooManyRequests, Text: fmt.Sprintf("%d programs are being sent to this session at the moment; try again in a minute", n)}
		}
		p = &program{sum: sum}
		s.all[sum] = p
	}
	p.used = time.Now()
	p.pins++
	return p, nil
}

func (s *programs) done(p *program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.pins--; p.pins > 0 || p.path != "" || p.uri != "" || s.all[p.sum] != p {
		return
	}
	if _, err := os.Stat(s.partial(p.sum)); err != nil { // somebody asked for it, no more
		delete(s.all, p.sum)
	}
}

func (s *programs) partial(sum string) string { return filepath.Join(s.dir, "part-"+sum) }
func (s *programs) local(sum string) string   { return filepath.Join(s.dir, "job-"+sum) }

// stored looks for the program in the application's folder. Called with p.mu.
func (s *programs) stored(ctx context.Context, p *program, size int64) (bool, error) {
	if p.uri != "" {
		return true, nil
	}
	f, root, err := s.files.Resolve(ctx, s.root)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // nothing is open
	info, err := f.Stat(ctx, path.Join(root, p.sum))
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Size != size:
		return false, &rest.Refusal{Status: http.StatusConflict, Text: fmt.Sprintf("the program %s has %d bytes here, not %d", p.sum, info.Size, size)}
	}
	p.uri = f.URI() + path.Join(root, p.sum)
	return true, nil
}

// Uploaded implements rest.Session.
func (m *Manager) Uploaded(ctx context.Context, want rest.Program) (int64, bool, error) {
	p, err := m.programs.get(want.SHA256)
	if err != nil {
		return 0, false, err
	}
	defer m.programs.done(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.programs.have(ctx, p, want.Size)
}

func (s *programs) have(ctx context.Context, p *program, size int64) (int64, bool, error) {
	ok, err := s.stored(ctx, p, size)
	if err != nil || ok {
		return size, ok, err
	}
	info, err := os.Stat(s.partial(p.sum))
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("session: %w", err)
	}
	return info.Size(), false, nil
}

// Append implements rest.Session.
func (m *Manager) Append(ctx context.Context, want rest.Program, offset int64, part io.Reader) (int64, bool, error) {
	if err := m.open(); err != nil {
		return 0, false, err
	}
	p, err := m.programs.get(want.SHA256)
	if err != nil {
		return 0, false, err
	}
	defer m.programs.done(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	have, complete, err := m.programs.have(ctx, p, want.Size)
	if err != nil || complete {
		return have, complete, err
	}
	if offset != have {
		return have, false, &rest.Refusal{Status: http.StatusConflict, Text: fmt.Sprintf("the next part of the program begins at %d, not at %d", have, offset)}
	}
	n, err := m.programs.write(p, part, want.Size-have)
	have += n
	if err != nil || have < want.Size {
		return have, false, err
	}
	if err := m.complete(ctx, p, want); err != nil {
		return have, false, err
	}
	m.programs.sweep(ctx, m.opts.Running())
	return have, true, nil
}

func (s *programs) write(p *program, part io.Reader, room int64) (int64, error) {
	f, err := os.OpenFile(s.partial(p.sum), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("session: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(part, room))
	if cerr := f.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("session: %w", cerr)
	}
	return n, err
}

// complete checks what was sent and stores it. Called with p.mu.
func (m *Manager) complete(ctx context.Context, p *program, want rest.Program) error {
	part, local := m.programs.partial(p.sum), m.programs.local(p.sum)
	refuse := func(format string, args ...any) error {
		_ = os.Remove(part) // it is of no use
		return &rest.Refusal{Status: http.StatusUnprocessableEntity, Text: fmt.Sprintf(format, args...)}
	}
	got, err := hash(part)
	if err != nil {
		return err
	}
	if got != p.sum {
		return refuse("what arrived of the program %s has the hash %.12s, not %.12s: send it again", want.Name, got, p.sum)
	}
	if err := m.check(part, want.Name); err != nil {
		return refuse("%s", err)
	}
	f, root, err := m.programs.files.Resolve(ctx, m.programs.root)
	if err != nil {
		return fmt.Errorf("session: store the program %s: %w", want.Name, err)
	}
	defer f.Close() //nolint:errcheck // nothing is open
	to := path.Join(root, p.sum)
	if err := store(ctx, f, part, to); err != nil {
		return fmt.Errorf("session: store the program %s in %s%s: %w", want.Name, f.URI(), root, err)
	}
	if err := os.Chmod(part, 0o700); err != nil { //nolint:gosec // an executable of the owner's
		return fmt.Errorf("session: %w", err)
	}
	if err := os.Rename(part, local); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	p.path, p.uri = local, f.URI()+to
	m.log.Info().Str("program", want.Name).Str("sha256", p.sum).Int64("bytes", want.Size).Msg("program received")
	return nil
}

// check looks whether the file can be a job of this session.
func (m *Manager) check(file, name string) error {
	if m.opts.Check != nil {
		return m.opts.Check(file)
	}
	return artifact.CheckFor(file, name, "the session")
}

func hash(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	if _, err := io.CopyBuffer(h, f, make([]byte, 256<<10)); err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// store copies a local file; it gets its name when it is complete.
func store(ctx context.Context, f fs.FileSystem, file, to string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	if err := f.Mkdir(ctx, path.Dir(to), 0o700); err != nil {
		return err
	}
	tmp := to + ".part"
	w, err := f.Create(ctx, tmp, true)
	if err != nil {
		return err
	}
	if _, err := io.CopyBuffer(w, in, make([]byte, 256<<10)); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Rename(ctx, tmp, to)
}

// sweep removes the programs that no job runs, but for the newest.
func (s *programs) sweep(ctx context.Context, running map[string]bool) {
	s.mu.Lock()
	var unused []*program
	for _, p := range s.all {
		if p.pins == 0 && !running[p.sum] {
			unused = append(unused, p)
		}
	}
	slices.SortFunc(unused, func(a, b *program) int { return b.used.Compare(a.used) })
	unused = unused[min(keepUnused, len(unused)):]
	for _, p := range unused {
		delete(s.all, p.sum)
	}
	s.mu.Unlock()
	f, root, err := s.files.Resolve(ctx, s.root)
	if err != nil {
		return // the next one comes
	}
	defer f.Close() //nolint:errcheck // nothing is open
	for _, p := range unused {
		_ = f.Remove(ctx, path.Join(root, p.sum), false) // goes with the application at the latest
		for _, file := range []string{p.path, s.partial(p.sum)} {
			_ = os.Remove(file) // "" is none
		}
	}
}
