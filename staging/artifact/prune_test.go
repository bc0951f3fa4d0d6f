package artifact

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBinariesThatAreNotUsedGo(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		ages []time.Duration // of entries 0, 1, ...
		gone map[int]bool
	}{
		"long unused":          {[]time.Duration{40 * 24 * time.Hour, 29 * 24 * time.Hour, 31 * 24 * time.Hour}, map[int]bool{2: true}}, // 0 is used now
		"too many":             {append(make([]time.Duration, 1), ages(25, 2*time.Hour)...), map[int]bool{20: true, 21: true, 22: true, 23: true, 24: true, 25: true}},
		"many, but in use now": {ages(30, time.Minute), nil},
	} {
		cache := t.TempDir()
		path := func(i int) string { return filepath.Join(cache, fmt.Sprintf("%016x", i)) }
		for i, age := range c.ages {
			if err := os.MkdirAll(path(i), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path(i), "job"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path(i), now.Add(-age), now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		other := filepath.Join(cache, "of somebody else")
		if err := os.Mkdir(other, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(other, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		prune(cache, fmt.Sprintf("%016x", 0), now)
		for i := range c.ages {
			if _, err := os.Stat(path(i)); (err != nil) != c.gone[i] {
				t.Errorf("%s: entry %d: %v", name, i, err)
			}
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// ages are n of them, each a minute more than the one before.
func ages(n int, least time.Duration) (out []time.Duration) {
	for i := range n {
		out = append(out, least+time.Duration(i)*time.Minute)
	}
	return out
}
