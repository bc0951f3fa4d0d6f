package artifact

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

const (
	// keepUnused is how long a binary stays that is not built again, keepBuilt how many do, and keepRecent how long each does: somebody may be
	// about to start it.
	keepUnused = 30 * 24 * time.Hour
	keepBuilt  = 20
	keepRecent = time.Hour
)

// entryName is the name of a folder of the cache.
var entryName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// prune marks an entry of the cache as used now, and removes those that were not used for long. A fault is no fault of the build.
func prune(cache, used string, now time.Time) {
	_ = os.Chtimes(filepath.Join(cache, used), now, now)
	all, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	type entry struct {
		name string
		used time.Time
	}
	var entries []entry
	for _, e := range all {
		if info, err := e.Info(); err == nil && e.IsDir() && entryName.MatchString(e.Name()) {
			entries = append(entries, entry{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return b.used.Compare(a.used) })
	for i, e := range entries {
		if age := now.Sub(e.used); e.name != used && age > keepRecent && (i >= keepBuilt || age > keepUnused) {
			_ = os.RemoveAll(filepath.Join(cache, e.name))
		}
	}
}
