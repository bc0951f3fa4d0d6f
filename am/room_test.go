package am

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/config"
)

// A job that would make YARN kill the application master, again and again with all jobs, is refused with the key to raise.
func TestRoomForAnotherJob(t *testing.T) {
	const mib = 1 << 20
	if err := roomFor(3, 100*mib, config.Bytes(448*mib)); err != nil {
		t.Error(err)
	}
	err := roomFor(20, 380*mib, config.Bytes(448*mib))
	if err == nil || !strings.Contains(err.Error(), "with 20 jobs it takes 380mb of its container of 448mb (jobmanager.memory.process.size, -jm)") {
		t.Error(err)
	}
}

func TestChildrenCount(t *testing.T) {
	before := treeRSS(os.Getpid())
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	with := treeRSS(os.Getpid()) - treeRSS(cmd.Process.Pid)
	if before <= 0 || treeRSS(cmd.Process.Pid) <= 0 || with <= 0 {
		t.Errorf("%d, then %d without the child", before, with)
	}
	_ = in.Close() // it ends
	_ = cmd.Wait()
}
