package lint

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// What the test of a function compiles: a generic type is compiled in each package that mentions it, for each of its types, with all its methods and
// everything that they mention. So one mention of windows or of state in a method that every stream has makes each edit of a user's function cost
// seconds. See the comment at stream.DataStream.
func TestTestsCompileLittle(t *testing.T) {
	list := exec.Command("go", "list", "-export", "-f", "{{.Export}}", "./testdata/thin")
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
	functions := 0
	for line := range strings.Lines(string(symbols)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "T" {
			continue
		}
		functions++
		name := strings.Join(f[2:], " ")
		for _, far := range []string{
			"stream.WindowedStream[", "stream.AllWindowedStream[", "stream.KeyedStream[", "Trigger[", "windowOp[", "assignIn[", "state/hashmap.", "state/pebble.",
			"state/onekey.", "internal/sync.(*HashTrieMap[",
		} {
			if strings.Contains(name, far) {
				t.Errorf("a test of functions without state compiles %s", name)
			}
		}
	}
	// 1300 when this was written, which takes half a second; nearly 6000 took several.
	if functions < 100 || functions > 1600 {
		t.Errorf("a test of three functions compiles %d functions, want at most 1600: go tool nm -size on its archive says which", functions)
	}
}
