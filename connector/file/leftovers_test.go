package file_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/serde"
)

// formerRun is the environment variable with the directory to which TestFormerRun, in a process of its own, writes.
const formerRun = "FILE_TEST_FORMER_RUN"

// TestFormerRun is a local job that gets as far as this: "a" is in its last checkpoint, "b" in one that was not completed, and "c" in a part
// that is open. It says the checkpoint, and when its input has a line commits "b".
func TestFormerRun(t *testing.T) {
	dir := os.Getenv(formerRun)
	if dir == "" {
		t.Skip("only as another process")
	}
	r := connectortest.MustStartSink(t, partSink(dir), 1, nil, connectortest.SinkOptions{JobID: "former", Embedded: true})
	r.Write(0, "a")
	cp := r.Checkpoint()
	r.Write(0, "b")
	next := r.Checkpoint()
	r.Write(0, "c")
	if err := r.Writer(0).Flush(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(cp)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s\n", b)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	r.Complete(next)
	r.Close()
}

func partSink(dir string) connector.Sink[string] {
	return file.Sink(serde.String(), file.Directory(dir))
}

// former is TestFormerRun in its process.
type former struct {
	cp   *connectortest.SinkCheckpoint
	cmd  *exec.Cmd
	in   io.WriteCloser
	done bool
}

func startFormer(t *testing.T, dir string) *former {
	t.Helper()
	if process.Self() == "" {
		t.Skip("processes have no names on this system")
	}
	f := &former{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFormerRun$"), cp: &connectortest.SinkCheckpoint{}}
	f.cmd.Env = append(os.Environ(), formerRun+"="+dir)
	f.cmd.Stderr = os.Stderr
	var err error
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kill)
	for s := bufio.NewScanner(out); s.Scan(); {
		if json.Unmarshal(s.Bytes(), f.cp) == nil {
			return f
		}
	}
	t.Fatal("the former run says nothing")
	return nil
}

func (f *former) kill() {
	if !f.done {
		f.done = true
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	}
}

// pendingParts are the contents of the parts that are not committed.
func pendingParts(t *testing.T, dir string) (out []string) {
	t.Helper()
	files, _ := filepath.Glob(dir + "/_thalweg/*/*")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	slices.Sort(out)
	return out
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

// A local job was killed and is started again from its checkpoint, under another id and at other parallelisms: what it left is committed if
// the checkpoint holds it, and removed if not.
func TestKilledRunLeavesNothing(t *testing.T) {
	for _, parallelism := range []int{1, 3} {
		dir := t.TempDir()
		f := startFormer(t, dir)
		wantLines(t, "of the former run", pendingParts(t, dir), "a", "b", "c")
		f.kill()
		r := connectortest.MustStartSink(t, partSink(dir), parallelism, f.cp, connectortest.SinkOptions{JobID: "second", Embedded: true})
		wantLines(t, "pending", pendingParts(t, dir))
		wantLines(t, "committed", parts(t, dir)["."], "a")
		r.Write(parallelism-1, "d")
		cp := r.Checkpoint()
		// A run of this process does not end before it: what it leaves is that of one that may live on.
		r2 := connectortest.MustStartSink(t, partSink(dir), 2, f.cp, connectortest.SinkOptions{JobID: "third", Embedded: true})
		wantLines(t, "pending", pendingParts(t, dir), "d")
		r.Complete(cp)
		r.Close()
		r2.Write(1, "e")
		r2.Complete(r2.Checkpoint())
		r2.Close()
		wantLines(t, "committed", parts(t, dir)["."], "a", "d", "e")
		if _, err := os.Stat(dir + "/_thalweg"); err == nil {
			t.Errorf("the folder of pending parts is left behind: %q", pendingParts(t, dir))
		}
	}
}

// The run whose checkpoint was restored lives on: what it writes is left alone.
func TestRunThatLivesOnIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	f := startFormer(t, dir)
	r := connectortest.MustStartSink(t, partSink(dir), 2, f.cp, connectortest.SinkOptions{JobID: "second", Embedded: true})
	wantLines(t, "pending", pendingParts(t, dir), "b", "c")
	if _, err := f.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	f.done = true
	r.Write(0, "d")
	r.Complete(r.Checkpoint())
	r.Close()
	wantLines(t, "committed", parts(t, dir)["."], "a", "b", "d")
	if _, err := os.Stat(dir + "/_thalweg"); err == nil {
		t.Errorf("the folder of pending parts is left behind: %q", pendingParts(t, dir))
	}
}

// Where nothing is known of the former run's process, what it left is removed when it is old.
func TestForsakenPartsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	r := connectortest.MustStartSink(t, partSink(dir), 2, nil, connectortest.SinkOptions{JobID: "first"})
	r.Write(1, "a")
	cp := r.Checkpoint()
	r.Write(0, "b")
	r.Write(1, "c")
	r.Checkpoint()
	r2 := connectortest.MustStartSink(t, partSink(dir), 1, cp, connectortest.SinkOptions{JobID: "second"})
	wantLines(t, "pending", pendingParts(t, dir), "b", "c")
	files, _ := filepath.Glob(dir + "/_thalweg/*/0-*")
	if len(files) != 1 {
		t.Fatalf("%q", files)
	}
	if err := os.Chtimes(files[0], time.Time{}, time.Now().Add(-61*time.Minute)); err != nil {
		t.Fatal(err)
	}
	cp2 := r2.Checkpoint()
	connectortest.MustStartSink(t, partSink(dir), 2, cp2, connectortest.SinkOptions{JobID: "third"})
	wantLines(t, "pending", pendingParts(t, dir), "c")
	wantLines(t, "committed", parts(t, dir)["."], "a")
}

func TestWriterStateIsChecked(t *testing.T) {
	dir := t.TempDir()
	for _, bad := range []string{"", "x", `{"folders":["file:///etc"]}`, `{"folders":["/"]}`, `{"folders":[""]}`, `{"folders":["_thalweg/x"]}`} {
		_, err := connectortest.StartSink(t, partSink(dir), 1, &connectortest.SinkCheckpoint{Writers: [][]byte{[]byte(bad)}}, connectortest.SinkOptions{})
		if err == nil || !strings.Contains(err.Error(), "state") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
