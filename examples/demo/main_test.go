package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain is also the demo itself, for the tests that start it.
func TestMain(m *testing.M) {
	if os.Getenv("THALWEG_TEST_DEMO") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func start(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string, errs *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	tmp, errs = t.TempDir(), &bytes.Buffer{}
	cmd = exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "THALWEG_TEST_DEMO=1", "TMPDIR="+tmp)
	cmd.Stderr = errs
	return cmd, tmp, errs
}

func left(t *testing.T, tmp string) {
	t.Helper()
	if files, _ := filepath.Glob(filepath.Join(tmp, "*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// The demo runs for its time, ends at Ctrl-C with its sum and exit code 0, and when nobody reads its output any more (demo | head -1). It
// leaves nothing behind.
func TestTheDemoEndsInOrder(t *testing.T) {
	cmd, tmp, errs := start(t, "-for", "3s")
	out, err := cmd.Output()
	if err != nil || !regexp.MustCompile(`\nDone after [^012]\S*s: `).Match(out) { // no sooner
		t.Errorf("%v: %s %s", err, out, errs)
	}
	left(t, tmp)

	for name, after := range map[string]func(*exec.Cmd, *os.File){
		"Ctrl-C":    func(cmd *exec.Cmd, _ *os.File) { _ = cmd.Process.Signal(os.Interrupt) },
		"SIGTERM":   func(cmd *exec.Cmd, _ *os.File) { _ = cmd.Process.Signal(syscall.SIGTERM) },
		"no reader": func(_ *exec.Cmd, r *os.File) { _ = r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			cmd, tmp, errs := start(t, "-for", "0")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close() //nolint:errcheck // once more
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			lines := bufio.NewScanner(r)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "RUNNING") { // it is in full swing
			}
			after(cmd, r)
			text := ""
			for lines.Scan() {
				text = lines.Text()
			}
			if err := cmd.Wait(); err != nil || errs.Len() > 0 {
				t.Errorf("%v: %s", err, errs)
			}
			if name != "no reader" && !strings.HasPrefix(text, "Done after") {
				t.Errorf("last line %q", text)
			}
			left(t, tmp)
		})
	}
}

func TestFaultsOfTheCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		`unexpected argument "extra"`: {"extra"},
		"want a time such as 10s":     {"-for", "-1s"},
		"not defined: -nope":          {"-nope"},
		"invalid value":               {"-for", "soon"},
	} {
		if _, _, err := parse(args, os.Stderr); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if d, v, err := parse([]string{"-for", "0", "-v"}, os.Stderr); d != 0 || !v || err != nil {
		t.Errorf("%v %v %v", d, v, err)
	}
	cmd, tmp, errs := start(t, "extra")
	if out, err := cmd.Output(); cmd.ProcessState.ExitCode() != 2 || len(out) > 0 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("%v: %q %q", err, out, errs)
	}
	left(t, tmp)
}
