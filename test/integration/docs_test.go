package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The shell blocks of docs/run-on-yarn.md run one after another, as a reader would type them.
func TestDocsRun(t *testing.T) {
	text, err := os.ReadFile("../../docs/run-on-yarn.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -eux -o pipefail\n"
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 6 {
		t.Fatalf("%d shell blocks found", len(blocks))
	}
	for _, b := range blocks {
		script += b[1]
	}
	dir := t.TempDir()
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), cluster.Env()...)
	cmd.Env = append(cmd.Env, "PATH="+cluster.BinDir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), `"customer_id":"c1","window_start"`); n < 2 {
		t.Errorf("%d results read, want at least 2\n%s", n, out)
	}
}
