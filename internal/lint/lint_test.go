// Package lint checks what linters cannot say: the layers of the design, the closure of user binaries, file sizes, package comments.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/thalweg/thalweg/"

type pkg struct {
	ImportPath, Dir, Doc               string
	Imports, Deps                      []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,Deps,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// layers from the bottom up: a package may import packages of its own or a lower layer. The longest matching prefix decides.
var layers = map[string]int{
	"internal": 0, "serde": 1, "state": 1, "connector": 1, "fs": 1, "config": 1, "yarnrpc": 1,
	"runtime/graph": 1, "runtime/metrics": 1,
	"runtime/task": 2, "runtime/operator": 2, "runtime/network": 2, "runtime/rpc": 2, "checkpoint": 2,
	"runtime": 3, "stream": 4, "am": 5, "staging": 5, "sql": 5, "cmd": 6,
	"examples": 7, "test": 7, "bench": 7,
}

func layer(path string) (int, bool) {
	for p := strings.TrimPrefix(path, module); p != "." && p != ""; p = filepath.Dir(p) {
		if l, ok := layers[p]; ok {
			return l, true
		}
	}
	return 0, false
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		from, ok := layer(p.ImportPath)
		if !ok {
			t.Errorf("%s belongs to no layer; give it a place in the design's map", p.ImportPath)
		}
		for _, i := range p.Imports {
			if !strings.HasPrefix(i, module) {
				continue
			}
			to, ok := layer(i)
			if ok && to > from {
				t.Errorf("%s (layer %d) imports %s (layer %d)", p.ImportPath, from, i, to)
			}
		}
	}
}

// rules are further bans: packages under the first prefix never depend (Deps: also indirectly) on packages under the others.
var rules = []struct {
	under, why string
	never      []string
}{
	{under: "stream", why: "a user's binary carries no YARN code", never: []string{"yarnrpc/client", "yarnrpc/am", "yarnrpc/nm", "yarnrpc/yarnfake", "staging", "am", "cmd"}},
	{under: "runtime", why: "the runtime knows untyped operators only", never: []string{"stream", "am", "staging", "cmd", "yarnrpc/client", "yarnrpc/am", "yarnrpc/nm"}},
	{under: "yarnrpc", why: "yarnrpc knows nothing of streams", never: []string{"runtime", "stream", "checkpoint", "state", "connector", "serde", "fs", "config"}},
	{under: "connector", why: "a connector does not know the API above it", never: []string{"stream", "runtime", "checkpoint", "state"}},
	{under: "config", why: "options are a leaf", never: []string{"runtime", "stream", "fs", "state", "serde", "yarnrpc"}},
	{under: "am", why: "the application master hosts jobs without linking the SDK", never: []string{"stream"}},
}

func TestForbiddenDependencies(t *testing.T) {
	for _, p := range packages(t) {
		for _, r := range rules {
			if !under(p.ImportPath, r.under) {
				continue
			}
			for _, d := range p.Deps {
				for _, n := range r.never {
					if under(d, n) {
						t.Errorf("%s depends on %s: %s", p.ImportPath, d, r.why)
					}
				}
			}
		}
	}
}

func under(path, prefix string) bool {
	path, ours := strings.CutPrefix(path, module)
	if !ours {
		return false
	}
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func TestRuntimeFolderHoldsNoGoFiles(t *testing.T) {
	files, err := filepath.Glob("../../runtime/*.go")
	if err != nil || len(files) > 0 {
		t.Errorf("runtime would shadow the standard package: %v %v", files, err)
	}
}

func TestFilesAreReadable(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range append(append(append([]string(nil), p.GoFiles...), p.TestGoFiles...), p.XTestGoFiles...) {
			path := filepath.Join(p.Dir, f)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
				continue
			}
			if bytes.Contains(b[:min(len(b), 4096)], []byte("// Code generated")) {
				continue
			}
			if n := bytes.Count(b, []byte("\n")); n > 800 {
				t.Errorf("%s has %d lines; 800 is the limit, split it by subject", path, n)
			}
			if strings.HasSuffix(f, "_test.go") && bytes.Contains(b, []byte("time."+"Sleep(")) {
				t.Errorf("%s sleeps; wait for the condition instead", path)
			}
		}
	}
}

func TestPackagesAreDescribed(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && len(p.Doc) < 20 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// One package makes the loggers, so that all logs have one form. Test support writes to a test's log.
func TestLoggersComeFromOnePlace(t *testing.T) {
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		if rel == "internal/logging" || rel == "connector/connectortest" || rel == "yarnrpc/yarntest" {
			continue
		}
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{"zerolog.New(", "zerolog.ConsoleWriter", "zerolog.NewConsoleWriter", "zerolog.TimeFormatUnix"} {
				if bytes.Contains(b, []byte(word)) {
					t.Errorf("%s/%s uses %s: take the logger from internal/logging, or from who calls", rel, f, word)
				}
			}
		}
	}
}
