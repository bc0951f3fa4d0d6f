package file_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/serde"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a file below a folder of the test's own, at once: who monitors the folder never sees it empty.
func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(filepath.Dir(path), ".part")
	if err := errors.Join(os.WriteFile(part, []byte(text), 0o644), os.Rename(part, path)); err != nil {
		t.Fatal(err)
	}
}

func lines(opts ...file.SourceOption) connector.Source[string] {
	return file.Source(serde.String(), opts...)
}

func TestSourceConformance(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for f := range 4 {
		var text strings.Builder
		for n := range 40 * f {
			l := fmt.Sprintf("%d-%03d-%s", f, n, strings.Repeat("x", n*7%23))
			want = append(want, l)
			text.WriteString(l + "\n")
		}
		write(t, dir, fmt.Sprintf("%d #%%41?/data.txt", f), strings.TrimSuffix(text.String(), "\n"))
	}
	write(t, dir, "_tmp/data.txt", "not read\n")
	write(t, dir, ".hidden", "not read\n")
	connectortest.TestSource(t, connectortest.SourceSuite[string]{
		New: func() connector.Source[string] {
			return lines(file.Paths(dir, dir+"/0 #%41?", "file://"+dir+"/1 #%41?", dir+"//2 #%41?/data.txt"), file.SplitSize(300))
		},
		Key:     func(s string) string { return s },
		Want:    want,
		Ordered: func(a, b string) bool { return a < b },
		Failing: func() connector.Source[string] { return lines(file.Paths(dir + "/none")) },
		Error:   "/none",
	})
}

// Whatever the sizes of lines, ranges and files, each line is read once; with a header, all but the first of each file.
func TestLinesBelongToOneRange(t *testing.T) {
	base := t.TempDir()
	i := 0
	rapid.Check(t, func(rt *rapid.T) {
		i++
		dir := filepath.Join(base, fmt.Sprint(i))
		header := rapid.Bool().Draw(rt, "header")
		var want []string
		for f := range rapid.IntRange(1, 3).Draw(rt, "files") {
			ls := rapid.SliceOfN(rapid.StringMatching(`[ab]{0,9}`), 0, 12).Draw(rt, "lines")
			end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(rt, "end")
			text := strings.Join(ls, end)
			if last := rapid.Bool().Draw(rt, "ended"); last && len(ls) > 0 {
				text += end
			} else if len(ls) > 0 && ls[len(ls)-1] == "" {
				ls = ls[:len(ls)-1] // nothing after the last end
			}
			write(t, dir, fmt.Sprint(f), text)
			if header && len(ls) > 0 {
				ls = ls[1:]
			}
			want = append(want, ls...)
		}
		opts := []file.SourceOption{file.Paths("file://" + dir), file.SplitSize(int64(rapid.IntRange(1, 40).Draw(rt, "range")))}
		if header {
			opts = append(opts, file.SkipHeader())
		}
		r := connectortest.StartSource(t, lines(opts...), rapid.IntRange(1, 3).Draw(rt, "parallelism"), nil)
		r.MaxPoll = rapid.IntRange(1, 5).Draw(rt, "poll")
		r.Until("the end", r.Ended)
		r.Close()
		if got := r.Values(); !same(got, want) {
			rt.Fatalf("read %q, want %q", got, want)
		}
	})
}

func same(a, b []string) bool {
	n := map[string]int{}
	for _, s := range a {
		n[s]++
	}
	for _, s := range b {
		n[s]--
	}
	for _, v := range n {
		if v != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

func TestPackedFilesAreReadAndRestored(t *testing.T) {
	dir := t.TempDir()
	var want []string
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for n := range 30_000 {
		l := fmt.Sprintf("%d %s", n, strings.Repeat("y", n%40))
		want = append(want, l)
		fmt.Fprintln(z, l) //nolint:errcheck // into memory
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.gz", b.String())
	src := lines(file.Paths(dir), file.SplitSize(1000))
	r := connectortest.StartSource(t, src, 2, nil)
	r.Until("half of it", func() bool { return len(r.Records) > 15_000 })
	cp := r.Checkpoint()
	got := r.Values()[:cp.Emitted]
	r.Close()
	r = connectortest.StartSource(t, src, 1, cp)
	r.Until("the end", r.Ended)
	if got = append(got, r.Values()...); !same(got, want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	write(t, dir, "a.gz", b.String()[:b.Len()-100])
	r = connectortest.StartSource(t, src, 1, nil)
	if err := r.UntilFailed(); !strings.Contains(err.Error(), "a.gz") {
		t.Errorf("a file that is cut short: %v", err)
	}
}

// A monitored folder: files are read when they are complete, each once, also after a restore.
func TestMonitorReadsEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "1", "a\nb\n")
	src := lines(file.Paths(dir), file.Monitor(time.Millisecond))
	r := connectortest.StartSource(t, src, 2, nil)
	r.Until("the first file", func() bool { return len(r.Records) == 2 })
	write(t, dir, "2", "c\n")
	r.Until("the second file", func() bool { return len(r.Records) == 3 })
	cp := r.Checkpoint()
	r.Close()
	write(t, dir, "3", "d\n")
	r = connectortest.StartSource(t, src, 1, cp)
	r.Until("the third file", func() bool { return len(r.Records) == 1 })
	if r.Within(20*time.Millisecond, func() bool { return len(r.Records) > 1 || r.Ended() }) {
		t.Errorf("after a restore: %q, ended %v", r.Values(), r.Ended())
	}
}

type order struct {
	ID int64 `json:"id"`
}

func TestBadRecordsNameTheirPlace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "orders", "{\"id\":1}\n\n{broken\n{\"id\":2}\n")
	r := connectortest.StartSource(t, file.Source(serde.JSON[order](), file.Paths(dir)), 1, nil)
	if err := r.UntilFailed(); !strings.Contains(err.Error(), "/orders: the line at byte 10 cannot be decoded") {
		t.Error(err)
	}
	r = connectortest.StartSource(t, file.Source(serde.JSON[order](), file.Paths(dir), file.SkipBadRecords()), 1, nil)
	r.Until("the end", r.Ended)
	if len(r.Records) != 2 || r.Metrics[0].Value("recordsSkipped") != 1 {
		t.Errorf("%v, %v skipped", r.Values(), r.Metrics[0].Value("recordsSkipped"))
	}
}

func TestFilesThatChangeAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", strings.Repeat("line\n", 100))
	src := lines(file.Paths(dir), file.SplitSize(100))
	r := connectortest.StartSource(t, src, 1, nil)
	r.MaxPoll = 1
	r.Until("some", func() bool { return len(r.Records) > 10 })
	cp := r.Checkpoint()
	r.Close()
	write(t, dir, "f", strings.Repeat("other\n", 100))
	r = connectortest.StartSource(t, src, 1, cp)
	err := r.UntilFailed()
	var fatal interface{ Fatal() bool }
	if !strings.Contains(err.Error(), "changed after it was listed") || !errors.As(err, &fatal) || !fatal.Fatal() {
		t.Error(err)
	}
}

// A file that changes while it is read, behind what was read ahead: the job fails at once, and never ends as if it had read all of it. Nor is a last line
// taken that was half there when the file was listed.
func TestFilesThatChangeWhileTheyAreReadAreRefused(t *testing.T) {
	const line = "0123456789abcdef0123456789abcde\n"
	const whole = 6 << 20
	text := strings.Repeat(line, whole/len(line)) + "half"
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	if _, err := z.Write([]byte(text)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	changes := map[string]func(path string) error{
		"truncated":                  func(p string) error { return os.Truncate(p, 3<<20) },
		"truncated to what was read": func(p string) error { return os.Truncate(p, int64(len(line))) },
		"appended to": func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(" and more\n")
				err = errors.Join(err, f.Close())
			}
			return err
		},
		"rewritten": func(p string) error {
			return errors.Join(os.WriteFile(p, bytes.Repeat([]byte("x"), len(text)), 0o644), os.Chtimes(p, later, later))
		},
		"replaced": func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte(text), 0o644), os.Chtimes(p+".new", later, later), os.Rename(p+".new", p))
		},
	}
	for name, change := range changes {
		for _, split := range []int64{whole * 2, whole / 2} { // one range, and one that ends before the file
			for _, base := range []string{"f", "f.gz"} {
				t.Run(fmt.Sprint(name, split, base), func(t *testing.T) {
					dir := t.TempDir()
					content := text
					if base == "f.gz" {
						content = packed.String()
					}
					write(t, dir, base, content)
					r := connectortest.StartSource(t, lines(file.Paths(dir), file.SplitSize(split)), 1, nil)
					r.MaxPoll = 1
					r.Until("the first line", func() bool { return len(r.Records) > 0 })
					if err := change(filepath.Join(dir, base)); err != nil {
						t.Fatal(err)
					}
					r.MaxPoll = 10_000
					if r.Within(time.Minute, r.Ended) {
						t.Fatalf("it ends after %d lines, as if nothing had happened", len(r.Records))
					}
					err := r.UntilFailed()
					var fatal interface{ Fatal() bool }
					if !strings.Contains(err.Error(), "was changed after it was listed") || !errors.As(err, &fatal) || !fatal.Fatal() {
						t.Error(err)
					}
					all := whole/len(line) + 1
					if split < whole && base == "f" {
						all = int(split) / len(line)
					}
					if n := len(r.Records); n >= all {
						t.Errorf("%d lines were read: all of the range", n)
					}
				})
			}
		}
	}
}

// Links to files are files of their own names; what cannot be read is told.
func TestLinks(t *testing.T) {
	other, dir := t.TempDir(), t.TempDir()
	write(t, other, "far", "a\nb\n")
	write(t, dir, "near", "c\n")
	link := func(to, name string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(other, "far"), "link.txt")
	link(other, "_folder")
	link("nowhere", ".dangling")
	root := filepath.Join(other, "root")
	if err := os.Symlink(dir, root); err != nil { // the path itself may be a link
		t.Fatal(err)
	}
	r := connectortest.StartSource(t, lines(file.Paths(root)), 2, nil)
	r.Until("the end", r.Ended)
	if got := r.Values(); !same(got, []string{"a", "b", "c"}) {
		t.Errorf("read %q", got)
	}
	fails := func(name, want string) {
		t.Helper()
		err := connectortest.StartSource(t, lines(file.Paths(dir)), 1, nil).UntilFailed()
		if !strings.Contains(err.Error(), name+" "+want) {
			t.Error(err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("nowhere", "lost")
	r = connectortest.StartSource(t, lines(file.Paths(dir), file.Match("*.txt")), 1, nil)
	r.Until("the end", r.Ended)
	if got := r.Values(); !same(got, []string{"a", "b"}) {
		t.Errorf("read %q", got)
	}
	fails("lost", "is a link that leads nowhere")
	link(".", "circle")
	fails("circle", "is a link to a folder, which is not followed")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails("pipe", "is neither a file nor a folder")
}

func TestMistakesAreToldTogether(t *testing.T) {
	v := lines(file.Paths("in", "/x", "hdfs://nn?x", "file:y"), file.Match("["), file.SplitSize(0), file.Monitor(-1), file.MaxLine(0)).(connector.Validator)
	err := fmt.Sprint(v.Validate())
	for _, want := range []string{`"in" is neither an absolute path nor a URI`, `"hdfs://nn?x" is no URI`, `"file:y" has no absolute path`, "file.Match", "file.SplitSize", "file.Monitor", "file.MaxLine"} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is not in %s", want, err)
		}
	}
	if err := lines().(connector.Validator).Validate(); err == nil || !strings.Contains(err.Error(), "file.Paths") {
		t.Errorf("without a path: %v", err)
	}
	reg := connectortest.Files()
	for uri, want := range map[string]string{"/no/such": "/no/such", "s3://b/x": "s3"} {
		err := lines(file.Paths(uri)).(connector.Preflight).Preflight(t.Context(), connector.PreflightContext{Files: reg})
		if err == nil || !strings.Contains(err.Error(), want) || uri == "s3://b/x" && !errors.Is(err, fs.ErrScheme) {
			t.Errorf("%s: %v", uri, err)
		}
	}
}
