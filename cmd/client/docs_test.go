package main

import (
	"encoding/json"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The program of docs/write-a-job.md is built from its folder, as a reader would do it, and is a job.
func TestTheDocumentedProgram(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "write-a-job.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```go\npackage main")
	program, _, ok := strings.Cut(program, "```\n")
	if program = "package main" + program; !ok {
		t.Fatal("the page has no whole program")
	}
	if formatted, err := format.Source([]byte(program)); err != nil || string(formatted) != program {
		t.Errorf("not formatted (%v)", err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/thalweg/thalweg"
	own := strings.Replace(string(mod), "module "+module+"\n", "module example.com/my-job\n", 1) + "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n"
	for name, text := range map[string]string{"go.mod": own, "go.sum": string(sum), "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := thalweg(t, nil, "info", "-o", "json", dir, "--brokers", "kafka:9092", "--window", "5m")
	var plan struct {
		Nodes []json.RawMessage `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 || len(plan.Nodes) < 4 {
		t.Errorf("exit %d, %v\n%s\n%s", code, err, out, errs)
	}
	if _, errs, code := thalweg(t, nil, "info", dir); code != exitUsage || !strings.Contains(errs, "--brokers is missing") {
		t.Errorf("without arguments: exit %d, %s", code, errs)
	}
}
