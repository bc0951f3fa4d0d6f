package failpoint

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Armoury is the other side: it arms points in a folder, for the processes that have it in their environment.
type Armoury struct{ dir string }

// NewArmoury makes the folder's parts. Any user may write there, since containers may run as another one.
func NewArmoury(dir string) (*Armoury, error) {
	for _, d := range []string{"armed", "fired", "reached"} {
		p := filepath.Join(dir, d)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return nil, fmt.Errorf("failpoint: %w", err)
		}
		if err := os.Chmod(p, 0o777); err != nil {
			return nil, fmt.Errorf("failpoint: %w", err)
		}
	}
	return &Armoury{dir}, nil
}

// Env is the setting that processes need.
func (a *Armoury) Env() string { return Folder + "=" + a.dir }

// Arm arms a point. What fired there before is forgotten.
func (a *Armoury) Arm(point string, act Action) error {
	name := FileName(point)
	if err := a.remove("fired", name); err != nil {
		return err
	}
	tmp := filepath.Join(a.dir, name)
	if err := os.WriteFile(tmp, []byte(act.String()), 0o644); err != nil {
		return fmt.Errorf("failpoint: arm %s: %w", point, err)
	}
	if err := os.Rename(tmp, filepath.Join(a.dir, "armed", name)); err != nil {
		return fmt.Errorf("failpoint: arm %s: %w", point, err)
	}
	return nil
}

// Disarm takes back what has not fired yet.
func (a *Armoury) Disarm(point string) error { return a.remove("armed", FileName(point)) }

func (a *Armoury) remove(part, name string) error {
	if err := os.Remove(filepath.Join(a.dir, part, name)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("failpoint: %w", err)
	}
	return nil
}

// Fired reports whether an armed point was struck, by which process.
func (a *Armoury) Fired(point string) (pid int, ok bool) {
	text, err := os.ReadFile(filepath.Join(a.dir, "fired", FileName(point)))
	if err != nil {
		return 0, false
	}
	if _, line, found := strings.Cut(string(text), "\npid "); found {
		_, _ = fmt.Sscan(line, &pid)
	}
	return pid, true
}

// Await waits until a point is struck.
func (a *Armoury) Await(ctx context.Context, point string) (pid int, err error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid, ok := a.Fired(point); ok {
			return pid, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("failpoint: nothing came to %s: %w", point, context.Cause(ctx))
		}
	}
}

// Reached lists the points that any process came to.
func (a *Armoury) Reached() ([]string, error) {
	files, err := os.ReadDir(filepath.Join(a.dir, "reached"))
	if err != nil {
		return nil, fmt.Errorf("failpoint: %w", err)
	}
	var all []string
	for _, f := range files {
		all = append(all, strings.ReplaceAll(f.Name(), "~", "/"))
	}
	return all, nil
}
