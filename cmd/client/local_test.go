package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/internal/process"
)

// clientRole makes the test's binary the command line.
const clientRole = "THALWEG_TEST_CLIENT"

// A job that runs here does not outlive a command line that is killed: who starts it again from its checkpoint would have it twice.
func TestAKilledCommandTakesItsJobAlong(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "run", self, "stay")
	cmd.Env = append(os.Environ(), clientRole+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var name string
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "config") {
	}
	if lines.Scan() {
		name = lines.Text()
	}
	if name == "" || process.Ended(name) {
		t.Fatalf("the job %q does not run", name)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !process.Ended(name); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("the job lives on")
		}
	}
}
