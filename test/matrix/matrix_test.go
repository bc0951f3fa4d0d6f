package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The events of go test become the numbers of a line: a test that is skipped is well only when the kind of cluster is the reason, and of tests in tests
// the innermost is named.
func TestResultsOfASuite(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.mod", "module x\n\ngo 1.24\n")
	write(t, dir, "x_test.go", `package x

import "testing"

func TestGood(t *testing.T) { t.Run("inner", func(*testing.T) {}) }
func TestBad(t *testing.T) {
	t.Run("well", func(*testing.T) {})
	t.Run("ill", func(t *testing.T) { t.Error("3 results, want 4") })
}
func TestNeedy(t *testing.T) { t.Skip("needs two NameNodes (nn-ha): this cluster is simple") }
func TestPartly(t *testing.T) { t.Run("part", func(t *testing.T) { t.Skip("needs Kerberos: this cluster is simple") }) }
func TestLazy(t *testing.T) { t.Skip("not today") }
`)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", ".")
	cmd.Dir = dir
	out, _ := cmd.Output() // it fails
	r := result{Cluster: "simple", Suite: "integration"}
	if err := r.read(bytes.NewReader(out), io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := result{
		Cluster: "simple", Suite: "integration", Passed: 2,
		Failed:     map[string]string{"TestBad/ill": "3 results, want 4", "TestLazy": "skipped: not today"},
		Impossible: map[string]string{"TestNeedy": "needs two NameNodes (nn-ha): this cluster is simple", "TestPartly/part": "needs Kerberos: this cluster is simple"},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
	var text strings.Builder
	if err := table(&text, []result{r}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"simple   integration  2       2       2             0s\n", "failed on simple: integration TestBad/ill: 3 results, want 4\n",
		"not possible on simple: integration TestPartly/part: needs Kerberos: this cluster is simple\n",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the table lacks %q:\n%s", line, text.String())
		}
	}
}

// A suite that does not compile, or has no test, has failed.
func TestSuitesWithoutTestsFail(t *testing.T) {
	for name, source := range map[string]string{"none": "package x\n", "broken": "package x\n\nfunc TestX() { nope() }\n"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "go.mod", "module x\n\ngo 1.24\n")
			write(t, dir, "x_test.go", source)
			cmd := exec.CommandContext(t.Context(), "go", "test", "-json", ".")
			cmd.Dir = dir
			out, _ := cmd.Output() // it may fail
			r := result{Suite: "integration"}
			if err := r.read(bytes.NewReader(out), io.Discard); err != nil || r.ok() {
				t.Errorf("%+v %v\n%s", r, err, out)
			}
		})
	}
}

func TestKindsOf(t *testing.T) {
	got, err := kindsOf("privacy, kerberos+privacy+rm-ha,docker")
	want := []kind{{"privacy", "kerberos,privacy"}, {"kerberos+privacy+rm-ha", "kerberos,privacy,rm-ha"}, {docker, ""}}
	if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v %v", got, err)
	}
	if _, err := kindsOf("moon"); err == nil || !strings.Contains(err.Error(), `no word "moon"`) {
		t.Error(err)
	}
	for _, s := range suites("", "7") {
		for _, k := range got {
			if why := s.impossible(k); (why != "") != (k.name == docker && s.name != "integration") {
				t.Errorf("%s on %s: %q", s.name, k.name, why)
			}
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
