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
	dir := program(t, good, "thalweg.sdk.protocol=3;")
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

// An installation with GOTOOLCHAIN=local, from the environment or its own settings, still builds a job, which needs a newer toolchain.
func TestLocalToolchainMayBeFetched(t *testing.T) {
	bin, dir := t.TempDir(), program(t, good, "")
	script := "#!/bin/sh\nif [ \"$1\" = env ]; then echo \"${GOTOOLCHAIN:-$SHIPPED}\"; exit; fi\necho \"toolchain ${GOTOOLCHAIN:-of the installation}\"; exit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct{ env, shipped, want string }{
		{"local", "", "auto"}, {"", "local", "auto"}, {"", "auto", "of the installation"}, {"go1.99", "local", "go1.99"}, {"local+path", "", "local+path"},
	} {
		t.Setenv("GOTOOLCHAIN", c.env)
		t.Setenv("SHIPPED", c.shipped)
		_, commands, err := resolve(t, dir)
		if err == nil || !strings.HasSuffix(err.Error(), "toolchain "+c.want) || len(commands) != 1 || strings.Contains(commands[0], "GOTOOLCHAIN=auto") != (c.want == "auto") {
			t.Errorf("%+v: %q, %v", c, commands, err)
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
		"only talks":  {program(t, talks, "thalweg.sdk.protocol=3;"), "its main must call stream.Main"},
		"protocol":    {program(t, good, "thalweg.sdk.protocol=99;"), "protocol 99, this client has protocol 3"},
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

// talks names the entry point and carries the SDK's marker, as our own command line does, but is no job.
const talks = "package main\n\nfunc main() { println(\"github.com/thalweg/thalweg/stream.Main\", \"thalweg.sdk.protocol=3;\", \"\\x00github.com/thalweg/thalweg/stream.Main\\x00\") }\n"

func TestOurOwnProgramsAreNoJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("links three programs")
	}
	for _, name := range []string{"client", "appmaster", "taskmanager"} {
		out := filepath.Join(t.TempDir(), name)
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, "github.com/thalweg/thalweg/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var e *Error
		if err := Check(out); !errors.As(err, &e) || !strings.Contains(err.Error(), "its main must call stream.Main") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Position independent, linked by the C compiler: a job is a job. Only one that needs nothing of the machine is static.
func TestHowAJobIsBuilt(t *testing.T) {
	dir := program(t, good, "thalweg.sdk.protocol=3;")
	for name, c := range map[string]struct {
		flags   []string
		cgo     string
		dynamic bool
	}{
		"plain":  {nil, "0", false},
		"pie":    {[]string{"-buildmode", "pie"}, "0", true},
		"linked": {[]string{"-ldflags", "-linkmode=external"}, "1", true},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "job")
			cmd := exec.Command("go", append(append([]string{"build", "-o", out}, c.flags...), ".")...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED="+c.cgo)
			if text, err := cmd.CombinedOutput(); err != nil {
				if _, missing := exec.LookPath("gcc"); c.cgo == "1" && missing != nil {
					t.Skip("no C compiler")
				}
				t.Fatalf("%v: %s", err, text)
			}
			if err := Check(out); err != nil {
				t.Error(err)
			}
			var e *Error
			switch err := CheckStatic(out); {
			case !c.dynamic && err != nil:
				t.Error(err)
			case c.dynamic && (!errors.As(err, &e) || !strings.Contains(err.Error(), "dynamically linked (/lib64/ld-linux-x86-64.so.2)") || !strings.Contains(err.Error(), "CGO_ENABLED=0") || strings.Contains(err.Error(), "\n")):
				t.Errorf("got %v", err)
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
