package process

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keptFor is how long the folder of an ended process stays: somebody may look into it, or start from a checkpoint in it.
const keptFor = time.Hour

// Folder makes a private folder (mode 0700) in parent, or in the system's temporary folder when that is "". The caller removes it; what a process that
// was killed left under the same prefix is removed by a later call, an hour after its last change or later.
func Folder(parent, prefix string) (string, error) { return FolderKeeping(parent, prefix, keptFor) }

// FolderKeeping is Folder with another time that what killed processes left stays.
func FolderKeeping(parent, prefix string, keep time.Duration) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent, prefix, time.Now().Add(-keep))
	return os.MkdirTemp(parent, prefix+Self()+"_")
}

// sweep removes folders of processes that have ended, which have not changed since then. Those of other users cannot be removed, and stay.
func sweep(parent, prefix string, since time.Time) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return // whoever makes a folder there will say why
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix)
		owner, _, whole := strings.Cut(name, "_")
		if !ok || !whole || !e.IsDir() || !Ended(owner) {
			continue
		}
		if st, err := e.Info(); err == nil && st.ModTime().Before(since) {
			_ = os.RemoveAll(filepath.Join(parent, e.Name())) // a leftover
		}
	}
}
