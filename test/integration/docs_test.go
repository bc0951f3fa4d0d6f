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
	out := runPage(t, "run-on-yarn.md", 6, "")
	if n := strings.Count(out, `"customer_id":"c1","window_start"`); n < 2 {
		t.Errorf("%d results read, want at least 2\n%s", n, out)
	}
}

// So do those of docs/sessions.md, on the topics of that page.
func TestDocsOfSessionsRun(t *testing.T) {
	out := runPage(t, "sessions.md", 1, "for topic in doc-orders doc-totals; do kafka-topics --bootstrap-server $THALWEG_KAFKA --create --topic $topic --partitions 2; done\n")
	if !strings.Contains(out, "Takes jobs after") || !strings.Contains(out, "order-totals") || !strings.Contains(out, "the session was shut down") {
		t.Error(out)
	}
}

// runPage runs the shell blocks of a page, at least so many, after a preparation, and returns what they print.
func runPage(t *testing.T, page string, least int, before string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	script := "set -eux -o pipefail\n" + before
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < least {
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
	return string(out)
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
		if (a.Name == "doc-totals" || a.Name == "doc-session") && a.active() {
			if _, err := cluster.YarnCLI(ctx, "application", "-kill", a.ID); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := kafkaCluster(t).Admin().DeleteTopics(ctx, "doc-orders", "doc-totals"); err != nil {
		t.Error(err)
	}
}
