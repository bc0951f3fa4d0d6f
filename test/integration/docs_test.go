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
	forgetDocs(t)
	t.Cleanup(func() { forgetDocs(t) })
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

// forgetDocs removes what the page makes, also what a run that failed has left.
func forgetDocs(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	apps, err := allApplications(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range apps {
		if a.Name == "doc-totals" && a.active() {
			if _, err := cluster.YarnCLI(ctx, "application", "-kill", a.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := kafkaCluster(t).Admin().DeleteTopics(ctx, "doc-orders", "doc-totals"); err != nil {
		t.Error(err)
	}
}
