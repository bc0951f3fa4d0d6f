// Package localrun runs an example on the embedded cluster, for its test.
package localrun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/stream"
)

// Lines runs the program as `thalweg run -t local` does, and returns what it printed, sorted. It changes os.Stdout meanwhile.
func Lines(t *testing.T, name string, build func(*stream.Environment) error, args ...string) []string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is read below
	stdout := os.Stdout
	os.Stdout = f
	err = stream.RunLocal(t.Context(), name, build, stream.LocalOptions{Args: args})
	os.Stdout = stdout
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(lines)
	return lines
}

// Expect runs the program and fails the test unless it printed so many lines, one of them (or a part of it) being want.
func Expect(t *testing.T, build func(*stream.Environment) error, args []string, lines int, want string) {
	t.Helper()
	got := Lines(t, "example", build, args...)
	if len(got) != lines || !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, want) }) {
		t.Errorf("%d lines, want %d, one of them %q:\n%s", len(got), lines, want, strings.Join(got, "\n"))
	}
}
