package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// An application for which YARN has no room tells so, and can be cancelled: there is no master yet that could.
func TestApplicationThatWaitsTellsWhyAndCanBeCancelled(t *testing.T) {
	env := fakeYARN(t, yarnfake.WithNodes(0, yarn.Resource{}))
	var runs, tells safe
	attached := make(chan int, 1)
	self := job(t)
	go func() {
		attached <- thalwegTo(t, &runs, &tells, env, "run", "-t", "yarn-application", "-Dyarn.application.name=waits", self)
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		if out, _, _ := thalweg(t, env, "list"); strings.Contains(out, "ACCEPTED") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the application is not ACCEPTED")
		}
	}
	if _, errs, code := thalweg(t, env, "stop", "-Dyarn.application.name=waits", "-Dclient.connection-timeout=3s"); code != exitFailed || !strings.Contains(errs, "thalweg cancel -Dyarn.application.id=application_") {
		t.Errorf("stop: exit %d %q", code, errs)
	}
	for !strings.Contains(tells.String(), "waits        after") {
		if time.Now().After(deadline) {
			t.Fatalf("the run does not tell that it waits: %q", tells.String())
		}
		tick := time.NewTimer(10 * time.Millisecond)
		<-tick.C
	}
	out, errs, code := thalweg(t, env, "cancel", "-Dyarn.application.name=waits")
	if code != 0 || !strings.Contains(out, "waited in ACCEPTED (Application is added to the scheduler") || !strings.Contains(out, "killed through YARN") {
		t.Errorf("cancel: exit %d %q %q", code, out, errs)
	}
	if code := <-attached; code != exitFailed || !strings.Contains(runs.String(), "ended: KILLED") || !strings.Contains(tells.String(), "Queue's AM resource limit exceeded.") {
		t.Errorf("run: exit %d\n%s\n%s", code, runs.String(), tells.String())
	}
	root, err := os.ReadFile(filepath.Join(env["THALWEG_CONF_DIR"], "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, dir, _ := strings.Cut(strings.TrimSpace(string(root)), "file://")
	if left, err := filepath.Glob(filepath.Join(dir, "application_*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, errs, code := thalweg(t, env, "cancel", "-Dyarn.application.name=waits"); code != exitUsage || !strings.Contains(errs, "none is named") {
		t.Errorf("a second time: exit %d %q", code, errs)
	}
}

func TestWaitsTellOnlyNews(t *testing.T) {
	now := time.Now()
	app := control.Application{State: "ACCEPTED", Diagnostics: "[Sun Nov 29 22:53:30 +0000 2026] Not yet activated.  Details : used 1;\n more "}
	var w waits
	at := func(d time.Duration, want string) {
		t.Helper()
		if got := w.next(app, now.Add(d)); got != want {
			t.Errorf("after %s: %q, want %q", d, got, want)
		}
	}
	at(0, "")
	at(time.Second, "") // most start in a moment
	at(3*time.Second, "Not yet activated. Details : used 1; more")
	at(4*time.Second, "")
	app.Diagnostics = "[Sun Nov 29 22:53:40 +0000 2026] Not yet activated.  Details : used 2;"
	at(5*time.Second, "") // only numbers
	app.Diagnostics = "Activated, waiting for resources to be assigned for AM.  Details : x"
	at(6*time.Second, "Activated, waiting for resources to be assigned for AM. Details : x")
	app.State, app.REST = "RUNNING", "http://h:1"
	at(7*time.Second, "")
	app.State, app.REST = "ACCEPTED", "" // the next attempt
	at(8*time.Second, "")
	at(11*time.Second, "Activated, waiting for resources to be assigned for AM. Details : x")
	app.Diagnostics = ""
	at(12*time.Second, "")
	app.State = "KILLED"
	at(13*time.Second, "")
}

// job is a static program that looks like a job from outside: it links a function of the SDK's name. Nothing runs it.
func job(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/job\n\ngo 1.27\n\nrequire github.com/thalweg/thalweg v0.0.0\n\nreplace github.com/thalweg/thalweg => ./sdk\n",
		"main.go":          "package main\n\nimport \"github.com/thalweg/thalweg/stream\"\n\nfunc main() { stream.Main() }\n",
		"sdk/go.mod":       "module github.com/thalweg/thalweg\n\ngo 1.27\n",
		"sdk/stream/st.go": "package stream\n\n//go:noinline\nfunc Main() {}\n",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "job")
	cmd := exec.Command("go", "build", "-o", out, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}
