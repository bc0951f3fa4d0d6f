package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// snapshot writes a savepoint with a count for each key, and returns its folder.
func snapshot(t *testing.T, counts map[string]int64) string {
	t.Helper()
	return savepointOf(t, func(b state.Backend) error {
		key := serde.Must[string]()
		table, err := backend.OpenTable(b, state.TableDesc[string, int64]{Name: "count", Key: key, Value: serde.Must[int64]()})
		for k, n := range counts {
			err = errors.Join(err, table.Put(state.KeyOf(state.NewHasher(key), k, 4), 0, n))
		}
		return err
	})
}

// savepointOf writes a savepoint of one operator, with what fill puts into its state.
func savepointOf(t *testing.T, fill func(b state.Backend) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "savepoint-1")
	reg := &fs.Registry{}
	local.Register(reg)
	b, err := backend.New(backend.HashMap, state.Config{Range: state.Range{End: 4}, MaxParallelism: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := fill(b); err != nil {
		t.Fatal(err)
	}
	s, err := b.Snapshot(7, true)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Write(t.Context(), storage.NewSink(reg, "file://"+dir, "", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := reg.Resolve(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	cp := metadata.Checkpoint{ID: 7, Savepoint: true, Canonical: true, Trigger: time.UnixMilli(0), JobName: "orders", Product: "1.0.0", Operators: []metadata.Operator{{
		ID: graph.OperatorID{ID: graph.ID{0xab}}, UID: "per-user", Name: "count users", Parallelism: 1, MaxParallelism: 4, Subtasks: []metadata.Subtask{{Keyed: []state.Handle{h}}},
	}}}
	if _, _, err := storage.WriteMetadata(t.Context(), f, "file://"+dir, cp); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSnapshotsAreListedShownAndCompared(t *testing.T) {
	before := snapshot(t, map[string]int64{"ann": 1, "bob": 2, "cid": 3})
	after := snapshot(t, map[string]int64{"ann": 1, "bob": 5, "dan": 4})
	for _, c := range []struct {
		args []string
		want string // a regular expression of the whole output
	}{
		{[]string{"ls", before}, `Savepoint 7 of job "orders" \(0{32}\), canonical, written 1970-01-01T00:00:00Z by thalweg 1.0.0\n\ncount users \(uid per-user\): parallelism 1 of at most 4, \d+ bytes\n` +
			`  STATE +KIND +KEY +VALUE +ENTRIES +BYTES\n  count +value +string +int64 +(-|3) +-\n`},
		{[]string{"ls", "--read", "file://" + before}, `(?s).*\n  count  value  string  int64  3 +36 bytes\n`},
		{[]string{"ls", "--read", "-o", "json", before}, `\{"operator":"count users","uid":"per-user","operatorId":"ab0{30}","parallelism":1,"maxParallelism":4,"bytes":\d+,"states":\[\{.*"state":"count".*"entries":3,"bytes":36.*\]\}\n`},
		{[]string{"show", "--key", "bob", before}, `count users \(uid per-user\) / count \(value\):\n  "bob" = 2\n`},
		{[]string{"show", "--key", `"bob"`, "-o", "json", before, "per-user", "count"}, `\{"operator":"count users","uid":"per-user","state":"count","kind":"value","keyGroup":\d,"key":"bob","value":2\}\n`},
		{[]string{"show", "--key", "zoe", before}, `No entry.\n`},
		{[]string{"show", "--limit", "0", before}, `count users \(uid per-user\) / count \(value\):\n(  "(ann|bob|cid)" = \d\n){3}`},
		{[]string{"diff", before, before}, `No difference in 1 states.\n`},
		{[]string{"diff", before, after}, `count users \(uid per-user\) / count \(value\): 1 added, 1 removed, 1 changed, 1 the same\n(  \+ "dan" = 4\n|  - "cid" = 3\n|  ~ "bob" = 5\n    was 2\n){3}`},
		{[]string{"diff", "-o", "json", before, after}, `\{"old":.*"added":1,"removed":1,"changed":1,"same":1,"samples":\[.*\]\}\n`},
	} {
		out, errs, code := thalweg(t, nil, append([]string{"state"}, c.args...)...)
		if code != 0 || errs != "" || !regexp.MustCompile("^"+c.want+"$").MatchString(out) {
			t.Errorf("%v: code %d\n%s%s\nwant %s", c.args, code, out, errs, c.want)
		}
	}
	if out, errs, code := thalweg(t, nil, "state", "show", "--limit", "1", before); code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "more than 1 entries: --limit 0") {
		t.Errorf("limit: %d %q %q", code, out, errs)
	}
}

// State per window is shown with the start of its window.
func TestPerWindowStateIsShown(t *testing.T) {
	dir := savepointOf(t, func(b state.Backend) error {
		key, num := serde.Must[string](), serde.Must[int64]()
		list, err := backend.OpenTable(b, state.TableDesc[string, []int64]{Name: "window-user-told", Key: key, Value: state.ListCodec(num)})
		if err != nil {
			return err
		}
		seen, err := backend.OpenMap(b, state.MapDesc[string, int64, int64]{Name: "window-user-seen", Key: key, Sub: num, Value: num})
		if err != nil {
			return err
		}
		k := state.KeyOf(state.NewHasher(key), "ann", 4)
		return errors.Join(list.Put(k, 60_000, []int64{3, 5}), seen.Put(seen.Entry(k, 7), 60_000, 2))
	})
	for _, c := range []struct{ args, want string }{
		{"ls", `(?s).*  window-user-seen +map +string +map\[int64\]int64 .*  window-user-told +list +string +\[\]int64 .*`},
		{"show", `count users \(uid per-user\) / window-user-seen \(map\):\n  "ann" \[7\] window 1970-01-01T00:01:00.000Z = 2\n` +
			`count users \(uid per-user\) / window-user-told \(list\):\n  "ann" window 1970-01-01T00:01:00.000Z = \[3,5\]\n`},
		{"show -o json", `(\{.*"namespace":60000,"window":"1970-01-01T00:01:00Z","key":"ann",.*\}\n){2}`},
	} {
		out, errs, code := thalweg(t, nil, append(append([]string{"state"}, strings.Fields(c.args)...), dir)...)
		if code != 0 || errs != "" || !regexp.MustCompile("^"+c.want+"$").MatchString(out) {
			t.Errorf("%v: code %d\n%s%s\nwant %s", c.args, code, out, errs, c.want)
		}
	}
}

func TestFaultsOfSnapshotsAreOneLine(t *testing.T) {
	good := snapshot(t, map[string]int64{"ann": 1})
	cut := snapshot(t, map[string]int64{"ann": 1})
	meta := filepath.Join(cut, "_metadata")
	b, err := os.ReadFile(meta)
	if err == nil {
		err = os.WriteFile(meta, b[:len(b)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls"}, []string{"ls needs a snapshot", "thalweg state ls --help"}},
		{[]string{"ls", good, "more"}, []string{`"more"`}},
		{[]string{"ls", filepath.Join(good, "none")}, []string{"none", "no checkpoint or savepoint there"}},
		{[]string{"ls", cut}, []string{cut, "_metadata"}},
		{[]string{"show", good, "other"}, []string{`operator "other"`, "there are per-user"}},
		{[]string{"show", good, "per-user", "sum"}, []string{`"sum"`, "there are count"}},
		{[]string{"show", "--limit", "-1", good}, []string{"--limit -1"}},
		{[]string{"diff", good}, []string{"two snapshots"}},
		{[]string{"undo"}, []string{`"undo"`}},
	} {
		out, errs, code := thalweg(t, nil, append([]string{"state"}, c.args...)...)
		if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: code %d, %q, %q", c.args, code, out, errs)
		}
		for _, w := range c.want {
			if !strings.Contains(errs, w) {
				t.Errorf("%v: %q lacks %q", c.args, errs, w)
			}
		}
	}
}

func TestDisposeOfASavepoint(t *testing.T) {
	dir := snapshot(t, map[string]int64{"ann": 1})
	if out, errs, code := thalweg(t, nil, "savepoint", "--dispose", dir); code != 0 || out != "Savepoint removed: file://"+dir+"\n" || errs != "" {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
