package taskmanager

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestSocketsOfKilledProcessesAreSwept(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * time.Hour)
	self := strconv.Itoa(os.Getpid())
	for name, age := range map[string]time.Time{"thalweg-sock-999999999-a": old, "thalweg-sock-" + self + "-b": old, "thalweg-sock-999999999-c": time.Now(), "thalweg-sock-x": old, "other": old} {
		p := filepath.Join(base, name)
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, age, age); err != nil {
			t.Fatal(err)
		}
	}
	sweepSockets(base, time.Now())
	left, err := os.ReadDir(base)
	if err != nil || len(left) != 4 {
		t.Fatalf("left %v, %v: want all but the old one of the process that is gone", left, err)
	}
	if _, err := os.Stat(filepath.Join(base, "thalweg-sock-999999999-a")); !os.IsNotExist(err) {
		t.Error("it was not removed")
	}
}
