package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/serde"
)

// parts reads all that a reader of the directory sees, by folder.
func parts(t testing.TB, dir string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(p, "/_thalweg") {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, filepath.Dir(p))
		out[rel] = append(out[rel], strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSinkConformance(t *testing.T) {
	connectortest.TestSink(t, 20, func(t *testing.T) connectortest.SinkSuite[string] {
		dir := t.TempDir() + "/out#1//%20?"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return connectortest.SinkSuite[string]{
			New: func() connector.Sink[string] {
				return file.Sink(serde.String(), file.Directory(dir), file.RollSize(9), file.BucketBy(func(s string) string { return "b #%41?/" + s[len(s)-1:] }))
			},
			Value: func(s string) string { return s },
			Committed: func(t *testing.T) []string {
				var all []string
				for _, ls := range parts(t, dir) {
					all = append(all, ls...)
				}
				return all
			},
			Clean: func(t *testing.T) {
				if _, err := os.Stat(filepath.Join(dir, "_thalweg")); err == nil {
					t.Error("the folder of pending parts is left behind")
				}
			},
		}
	})
}

func TestBucketsAndNames(t *testing.T) {
	dir := t.TempDir()
	s := file.Sink(serde.JSON[order](), file.Directory("file://"+dir+"/"), file.BucketByEventTime("2006-01-02--15"), file.Prefix("orders"), file.Suffix(".json"), file.Header("# orders"))
	r := connectortest.MustStartSink[order](t, s, 1, nil, connectortest.SinkOptions{})
	w := r.Writer(0)
	for i, at := range []string{"2026-01-01T00:10:00Z", "2026-01-01T00:59:59Z", "2026-01-01T01:00:00Z", "1969-12-31T23:00:00Z"} {
		ts, err := time.Parse(time.RFC3339, at)
		if err == nil {
			err = w.Write(order{int64(i)}, ts.UnixMilli())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Write(order{9}, connector.NoTimestamp); err == nil || !strings.Contains(err.Error(), "no event time") {
		t.Errorf("a record without event time: %v", err)
	}
	if got := parts(t, dir); len(got) != 0 {
		t.Errorf("before the checkpoint: %v", got)
	}
	r.Complete(r.Checkpoint())
	r.Close()
	want := map[string][]string{
		"2026-01-01--00": {"# orders", `{"id":0}`, `{"id":1}`}, "2026-01-01--01": {"# orders", `{"id":2}`}, "1969-12-31--23": {"# orders", `{"id":3}`}}
	if got := parts(t, dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	files, _ := filepath.Glob(dir + "/*/*")
	if !slices.ContainsFunc(files, func(f string) bool {
		return strings.HasPrefix(filepath.Base(f), "orders-0-") && strings.HasSuffix(f, ".json")
	}) {
		t.Errorf("names: %v", files)
	}
}

func TestRecordsAndBucketsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	bucket := ""
	s := file.Sink(serde.String(), file.Directory(dir), file.BucketBy(func(string) string { return bucket }))
	w := connectortest.MustStartSink[string](t, s, 1, nil, connectortest.SinkOptions{}).Writer(0)
	if err := w.Write("a\nb", 0); err == nil || !strings.Contains(err.Error(), "end of a line") {
		t.Errorf("a record of two lines: %v", err)
	}
	if err := w.Write("a\r", 0); err == nil || !strings.Contains(err.Error(), "carriage return") {
		t.Errorf("a record that would lose its end: %v", err)
	}
	for _, bucket = range []string{"..", "a/../../b", "/abs", "a//b", "_thalweg", "a\x00"} {
		if err := w.Write("x", 0); err == nil || !strings.Contains(err.Error(), "not a folder below") {
			t.Errorf("bucket %q: %v", bucket, err)
		}
	}
	err := fmt.Sprint(file.Sink(serde.String(), file.Prefix("a/b"), file.RollSize(0), file.RollInterval(0), file.Header("a\n"), file.BucketBy(func(int) string { return "" })).(connector.Validator).Validate())
	for _, want := range []string{"file.Directory", "file.Prefix", "file.RollSize", "file.RollInterval", "file.Header", "file.BucketBy: it has a func(int) string, the sink's records are string"} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is not in %s", want, err)
		}
	}
}

// A directory that cannot be written is found before the job runs.
func TestDirectoryIsTriedBeforehand(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a-file", "x")
	s := file.Sink(serde.String(), file.Directory(dir+"/a-file/out"))
	env := connector.PreflightContext{Files: connectortest.Files()}
	if err := s.(connector.Preflight).Preflight(t.Context(), env); err == nil || !strings.Contains(err.Error(), "a-file") {
		t.Errorf("a directory below a file: %v", err)
	}
	if err := file.Sink(serde.String(), file.Directory(dir+"/new")).(connector.Preflight).Preflight(t.Context(), env); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir + "/new"); err != nil || len(left) > 0 { // a finished sink's folder is looked at again by the next attempt
		t.Errorf("left %v, %v", left, err)
	}
}

// A job that fails or is cancelled leaves no folder of pending parts that is empty, whoever ends last.
func TestFailedJobsLeaveNoEmptyFolder(t *testing.T) {
	for _, last := range []string{"writer", "committer"} {
		dir := t.TempDir()
		s := file.Sink(serde.String(), file.Directory(dir))
		ctx, cancel := context.WithCancel(t.Context())
		sc := connector.SinkContext{Context: ctx, Files: connectortest.Files(), Parallelism: 1, JobID: "j", OperatorID: "o", CheckpointingEnabled: true, Metrics: &connectortest.Metrics{}}
		w, err := s.Writer(sc, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Committer(sc)
		if err == nil {
			err = w.Write("x", 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if last == "writer" {
			err = errors.Join(c.Close(), w.Close())
		} else {
			err = errors.Join(w.Close(), c.Close())
		}
		if left, rerr := os.ReadDir(dir); err != nil || rerr != nil || len(left) > 0 {
			t.Errorf("%s last: %v, %v, left %v", last, err, rerr, left)
		}
	}
}
