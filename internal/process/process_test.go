package process_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/internal/process"
)

// TestHelper is the process that TestEnded asks about: it says its name and lives until its input ends.
func TestHelper(t *testing.T) {
	if os.Getenv("PROCESS_TEST_HELPER") == "" {
		t.Skip("only as another process")
	}
	os.Stdout.WriteString(process.Self() + "\n")
	os.Stdin.Read(make([]byte, 1))
}

func TestEnded(t *testing.T) {
	if process.Self() == "" {
		t.Skip("processes have no names on this system")
	}
	if process.Ended(process.Self()) {
		t.Error("this process has ended")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "PROCESS_TEST_HELPER=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 200)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(b[:n]))
	if process.Ended(name) {
		t.Errorf("%s lives", name)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !process.Ended(name) {
		t.Errorf("%s has ended", name)
	}
	m, rest, _ := strings.Cut(name, "-")
	self := process.Self()
	for _, other := range []string{"", "-", "x", "x-1-1", strings.Repeat("0", len(m)) + "-" + rest, m + "-0-1", m + "--1-1", m + "-1"} {
		if process.Ended(other) {
			t.Errorf("%q has ended: nothing is known of it", other)
		}
	}
	if another := self[:strings.LastIndex(self, "-")+1] + "1"; !process.Ended(another) {
		t.Errorf("%s has ended: its number is another process's by now", another)
	}
}
