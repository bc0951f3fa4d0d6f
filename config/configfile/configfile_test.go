package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thalweg/thalweg/config"
)

func TestNestedAndDottedKeysAreTheSame(t *testing.T) {
	got, err := Parse([]byte(`
# a comment
taskmanager:
  memory.process.size: 2gb
  memory:
    segment-size: 4kb
  numberOfTaskSlots: 0x2
yarn.tags: [a, b]
pipeline.name: "on"
rest.port: 1_000
high-availability.storageDir:
`))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Configuration{
		"taskmanager.memory.process.size": "2gb", "taskmanager.memory.segment-size": "4kb", "taskmanager.numberOfTaskSlots": "0x2",
		"yarn.tags": "a;b", "pipeline.name": "on", "rest.port": "1_000", "high-availability.storageDir": "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadFilesNameTheLine(t *testing.T) {
	for in, want := range map[string]string{
		"a: 1\na: 2\n":             "line 2",
		"a.b: 1\na:\n  b: 2\n":     "a.b is given twice",
		"- 1\n- 2\n":               "line 1: want key: value pairs",
		"just words":               "want key: value pairs",
		"a: &x {b: 1}\nc: *x\n":    "line 2: anchors and aliases",
		"a:\n  - {b: 1}\n":         "line 2: a: a list may hold plain values only",
		"a: 1\n---\nb: 2\n":        "more than one YAML document",
		"? [a, b]\n: 1\n":          "a key must be a plain word",
		"a: [1, 2":                 "line 1",
		strings.Repeat("{a: ", 40): "",
	} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", in, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if c, err := Load(dir); err != nil || len(c) != 0 {
		t.Errorf("missing file: %v, %v", c, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("parallelism.default: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(k string) string { return map[string]string{"THALWEG_CONF_DIR": dir}[k] }
	c, err := Load(Dir(env, "/x/bin/thalweg"))
	if err != nil || c["parallelism.default"] != "3" {
		t.Errorf("Load = %v, %v", c, err)
	}
	none := func(string) string { return "" }
	if got := Dir(none, "/opt/t/bin/thalweg"); got != "/opt/t/conf" {
		t.Errorf("Dir = %s, want the conf folder beside bin", got)
	}
}

// A folder that is named and does nothing is an error, whether it is missing or its file has the old name.
func TestFolderThatDoesNothing(t *testing.T) {
	dir := t.TempDir()
	load := func(d string) error {
		_, err := Named(func(k string) string { return map[string]string{"THALWEG_CONF_DIR": d}[k] }, "/x/bin/thalweg")
		return err
	}
	if err := load(dir); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := load(filepath.Join(dir, "gone")); err == nil || !strings.Contains(err.Error(), "THALWEG_CONF_DIR = "+dir+"/gone") {
		t.Errorf("a missing folder: %v", err)
	}
	old := filepath.Join(dir, "flink-conf.yaml")
	if err := os.WriteFile(old, []byte("rest.port: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := load(dir); err == nil || !strings.Contains(err.Error(), "flink-conf.yaml and no config.yaml") {
		t.Errorf("the old name: %v", err)
	}
	if err := load(old); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("a file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := load(dir); err != nil {
		t.Errorf("both: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1", "a:\n  b: [1,2]", "a.b: x\n", "---\n", "a: &x 1\nb: *x", "\t", "{a: {b: {c: d}}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err == nil {
			for k := range c {
				if k == "" {
					t.Error("empty key")
				}
			}
		}
	})
}
