package artifact

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(content), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	return p
}

// program makes a module with a main package; the SDK is one of our own with the same name, so that the test needs no network and builds
// fast.
func program(t *testing.T, main, marker string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/job\n\ngo 1.27\n\nrequire github.com/thalweg/thalweg v0.0.0\n\nreplace github.com/thalweg/thalweg => ./sdk\n",
		"main.go":          main,
		"sdk/go.mod":       "module github.com/thalweg/thalweg\n\ngo 1.27\n",
		"sdk/stream/st.go": "package stream\n\nimport \"os\"\n\n//go:noinline\nfunc Main(name string) { os.Stdout.WriteString(name + \"" + marker + "\") }\n",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const good = "package main\n\nimport \"github.com/thalweg/thalweg/stream\"\n\nfunc main() { stream.Main(\"x\") }\n"

func resolve(t *testing.T, name string) (string, []string, error) {
	t.Helper()
	var commands []string
	p, err := Resolve(t.Context(), name, Options{CacheDir: t.TempDir(), OnBuild: func(c string) { commands = append(commands, c) }})
	return p, commands, err
}

func TestFoldersAndFilesAreBuilt(t *testing.T) {
	dir := program(t, good, "thalweg.sdk.protocol=1;")
	for _, name := range []string{dir, filepath.Join(dir, "main.go")} {
		p, commands, err := resolve(t, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(commands) != 1 || !strings.Contains(commands[0], "CGO_ENABLED=0") {
			t.Errorf("commands %q", commands)
		}
		// The result is an artifact itself, and is not built again.
		again, commands, err := resolve(t, p)
		if err != nil || again != p || len(commands) != 0 {
			t.Errorf("%s, %q, %v", again, commands, err)
		}
	}
}

func TestFaultsAreOneLineThatSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	arm := filepath.Join(dir, "arm")
	src := write(t, "main.go", "package main\n\nfunc main() {}\n")
	cmd := exec.Command("go", "build", "-o", arm, src)
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lib := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.27\n", "x.go": "package x\n"} {
		if err := os.WriteFile(filepath.Join(lib, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct{ path, want string }{
		"missing":     {filepath.Join(dir, "nothing"), "does not exist"},
		"script":      {write(t, "job.sh", "#!/bin/sh\nexit 0\n"), "it is a script"},
		"jar":         {write(t, "job.jar", "PK\x03\x04...."), "zip or jar"},
		"empty":       {write(t, "empty", ""), "not an executable for linux/amd64"},
		"damaged":     {write(t, "damaged", "\x7fELF\x02\x01\x01"), "damaged"},
		"arm":         {arm, "AARCH64, not an executable for linux/amd64"},
		"no Go":       {"/bin/true", "no Go program"},
		"no SDK":      {src, "does not link the SDK"},
		"protocol":    {program(t, good, "thalweg.sdk.protocol=99;"), "protocol 99, this client has protocol 1"},
		"syntax":      {write(t, "bad.go", "package main\n\nfunc main() { nope }\n"), "undefined: nope"},
		"not main":    {lib, "not a main package"},
		"not go code": {t.TempDir(), "does not build"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := resolve(t, c.path)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if name != "syntax" && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestCancelledBuild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Resolve(ctx, program(t, good, ""), Options{CacheDir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
