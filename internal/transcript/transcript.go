// Package transcript runs the scripts that state what a pure core does: testdata/*.txt, each a list of events with the effects of each.
// A core's test plays a script's events and returns the script as it should read; -rewrite writes that into testdata, to be read as a
// difference. It is a leaf, for tests only.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts of testdata should say")

// Run runs every testdata/*.txt of the package as a subtest. play gets a script and returns it with the effects that its events have now.
func Run(t *testing.T, play func(t *testing.T, script string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			Compare(t, f, string(want), play(t, string(want)))
		})
	}
}

// Compare fails the test when got is not want, the content of file, or writes it there with -rewrite.
func Compare(t *testing.T, file, want, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (go test -run %s -rewrite writes it anew), -want +got:\n%s", file, t.Name(), d)
	}
}
