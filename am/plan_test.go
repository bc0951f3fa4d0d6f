package am

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rpc"
)

func ask(t *testing.T, script string) (string, error) {
	t.Helper()
	p := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(p, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	g, err := Plan(t.Context(), PlanRequest{Path: p, Name: "job", Dir: t.TempDir(), Config: rpc.ProcessConfig{JobID: "00", Args: []string{"a b"}}, Env: []string{"EXTRA=1"}})
	if err != nil {
		return "", err
	}
	return g.Name, nil
}

func TestPlan(t *testing.T) {
	name, err := ask(t, `test "$THALWEG_ROLE" = plan && test "$EXTRA" = 1 && grep -q '"jobId":"00"' "$THALWEG_CONFIG" && echo noise && echo "{\"name\":\"$1\",\"protocol\":`+strconv.Itoa(version.Protocol)+`}" >&3`)
	if err != nil || name != "a b" {
		t.Errorf("%q, %v", name, err)
	}
	mistakes := "echo 'job: the graph has mistakes:' >&2; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo \"  main.go: $i: wrong\" >&2; done; exit 2"
	for want, script := range map[string]string{
		"no topic given":      "echo 'job: no topic given' >&2; exit 2",
		"exit status 3: ouch": "echo ouch >&2; exit 3",
		"signal: killed":      "kill -9 $$",
		"exit status 4: it ended by itself, without a word":                "exit 4",
		"must call stream.Main":                                            "echo hello >&3",
		"what it wrote is no graph":                                        "exit 0",
		"line 1\nline 2":                                                   "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i >&2; done; exit 2",
		"graph: job: build: flag -x is unknown\nUsage of job:\n  -y":       "echo 'flag -x is unknown' >&2; echo 'Usage of job:' >&2; echo '  -y' >&2; echo 'job: build: flag -x is unknown' >&2; exit 2",
		"main.go: 1: wrong\n  main.go: 2: wrong\n":                         mistakes,
		"...\nnoise 20\njob: the graph has mistakes:\n  main.go: 1: wrong": "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo noise $i >&2; done; " + mistakes,
		"main.go: 299: wrong\n  main.go: 300: wrong":                       mistakes,
		"...\nline 40": "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i >&2; done; exit 2",
	} {
		_, err := ask(t, script)
		var p *PlanError
		if !errors.As(err, &p) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "program job") {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
	var help *PlanError
	program := filepath.Join(t.TempDir(), "helps")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho Usage >&2\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if _, err := Plan(t.Context(), PlanRequest{Path: program, Name: "job", Dir: t.TempDir(), Config: rpc.ProcessConfig{Args: []string{"a", "-h"}}}); !errors.As(err, &help) || help.Help != "Usage" ||
		!strings.Contains(err.Error(), "showed its help") {
		t.Errorf("asked for its help: %v", err)
	}
	var proto *container.ProtocolError
	if _, err := ask(t, `echo '{"protocol":77,"sdk":"9.9"}' >&3`); !errors.As(err, &proto) || !strings.Contains(err.Error(), "9.9") {
		t.Errorf("another protocol: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Plan(ctx, PlanRequest{Path: "/bin/true", Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	slow := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if _, err := Plan(t.Context(), PlanRequest{Path: slow, Name: "slow", Dir: t.TempDir(), Limit: 100 * time.Millisecond}); err == nil ||
		!strings.Contains(err.Error(), "did not end within 100ms") || !strings.Contains(err.Error(), "called twice") {
		t.Errorf("a slow build: %v", err)
	}
	if _, err := Plan(t.Context(), PlanRequest{Path: "/does/not/exist", Name: "x", Dir: t.TempDir()}); err == nil {
		t.Error("a missing program builds a graph")
	}
}

func TestLongDiagnosticsEndWithALine(t *testing.T) {
	if got := limitLines("a\nb", 3); got != "a\nb" {
		t.Errorf("%q", got)
	}
	if got := limitLines("first\nsecond\nthird\n", 8); got != "first\n  and 2 more lines: see the application's jobmanager.log" {
		t.Errorf("%q", got)
	}
	if got := limitLines("a long line", 6); got != "a long ..." {
		t.Errorf("%q", got)
	}
}

func TestPorts(t *testing.T) {
	for in, want := range map[string]int{"0": 1, "8081": 1, "1-5": 5, "8081, 9000-9002": 4, "x": 0, "": 0, "5-x": 0, "65535-70000": 1} {
		n := 0
		for range portsOf(in) {
			n++
		}
		if n != want {
			t.Errorf("%q has %d ports, want %d", in, n, want)
		}
	}
	for p := range portsOf("1-9") {
		if p == 3 {
			break
		}
	}
}

func TestDiagnosticsAreCleaned(t *testing.T) {
	got := cleanDiagnostics("[2026-11-29 20:12:53.575]Exception from container-launch.\nContainer id: container_1\nExit code: 126\n\n[2026-11-29 20:12:53.576]Container exited with a non-zero exit code 126. Error file: prelaunch.err.\nLast 4096 bytes of prelaunch.err :\n/bin/bash: cannot execute\n\tat java.lang.Thread.run(Thread.java:840)\n")
	if got != "/bin/bash: cannot execute" {
		t.Errorf("%q", got)
	}
	if got := logBody("\nContainer: c\nLogType:taskmanager.err\nLogContents:\nboom\n\nEnd of LogType:taskmanager.err\n"); got != "boom" {
		t.Errorf("%q", got)
	}
	if got := oneLine(" a \n\n b\n"); got != "a | b" {
		t.Errorf("%q", got)
	}
}
