package lint

import (
	"bytes"
	"iter"
	"os/exec"
	"strings"
	"testing"
)

// What the test of a function compiles: a generic type is compiled in each package that mentions it, for each of its types, with all its methods and
// everything that they mention. So one mention of windows or of state in a method that every stream has makes each edit of a user's function cost
// seconds. See the comment at stream.DataStream.
func TestTestsCompileLittle(t *testing.T) {
	for _, c := range []struct {
		folder, what string
		most         int // functions; a tenth above what they were when this was written
		never        []string
	}{
		{"thin", "a test of functions without state", 1540, []string{
			"stream.WindowedStream[", "stream.AllWindowedStream[", "stream.KeyedStream[", "Trigger[", "windowOp[", "assignIn[", "state/hashmap.", "state/pebble.",
			"state/onekey.", "internal/sync.(*HashTrieMap[",
		}},
		{"keyed", "a test of a function with state and timers", 2750, []string{"WindowedStream[", "windowOp[", "slices.pdqsort"}},
	} {
		t.Run(c.folder, func(t *testing.T) {
			functions := 0
			for name := range compiled(t, "./testdata/"+c.folder) {
				functions++
				for _, far := range c.never {
					if strings.Contains(name, far) {
						t.Errorf("%s compiles %s", c.what, name)
					}
				}
			}
			if functions < 100 || functions > c.most {
				t.Errorf("%s compiles %d functions, want at most %d: go tool nm -size on its archive says which", c.what, functions, c.most)
			}
		})
	}
}

// compiled are the names of the functions that are compiled with a package.
func compiled(t *testing.T, folder string) iter.Seq[string] {
	t.Helper()
	list := exec.Command("go", "list", "-export", "-f", "{{.Export}}", folder) //nolint:gosec // a folder of ours
	var stderr bytes.Buffer
	list.Stderr = &stderr
	archive, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	symbols, err := exec.Command("go", "tool", "nm", strings.TrimSpace(string(archive))).Output() //nolint:gosec // a path of the go command's
	if err != nil {
		t.Fatalf("go tool nm: %v", err)
	}
	return func(yield func(string) bool) {
		for line := range strings.Lines(string(symbols)) {
			f := strings.Fields(line)
			if len(f) >= 3 && f[1] == "T" && !yield(strings.Join(f[2:], " ")) {
				return
			}
		}
	}
}
