package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a killed process left goes after an hour, by the next one; what belongs to a living one, or is younger, or is not ours, stays.
func TestFolder(t *testing.T) {
	parent := t.TempDir()
	mine, err := Folder(parent, "thalweg-x-")
	if err != nil {
		t.Fatal(err)
	}
	if Self() == "" {
		t.Skip("processes have no names on this system")
	}
	if st, err := os.Stat(mine); err != nil || st.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", st, err)
	}
	dead := strings.Split(Self(), "-")[0] + "-4194304-1" // above the kernel's largest number
	old := time.Now().Add(-2 * keptFor)
	stays := map[string]bool{filepath.Base(mine): true}
	for name, stay := range map[string]bool{
		"thalweg-x-" + dead + "_1": false, "thalweg-x-" + dead + "_young": true, "thalweg-y-" + dead + "_1": true,
		"thalweg-x-" + Self() + "_1": true, "thalweg-x-123": true, "thalweg-x-000000000000-4194304-1_1": true,
	} {
		d := filepath.Join(parent, name)
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, "f"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_young") {
			if err := os.Chtimes(d, old, old); err != nil {
				t.Fatal(err)
			}
		}
		stays[name] = stay
	}
	again, err := Folder(parent, "thalweg-x-")
	if err != nil {
		t.Fatal(err)
	}
	stays[filepath.Base(again)] = true
	for name, want := range stays {
		if _, err := os.Stat(filepath.Join(parent, name)); (err == nil) != want {
			t.Errorf("%s stays: %v, want %v", name, err == nil, want)
		}
	}
}
