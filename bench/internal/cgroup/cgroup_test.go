package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// What a shell starts behind Enter is counted, and ended when it takes more than the limit.
func TestConfines(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root's rights")
	}
	const limit = 32 << 20
	g, err := New(fmt.Sprintf("thalweg-test-%d", os.Getpid()), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	run := func(bytes int) error {
		return exec.CommandContext(t.Context(), "bash", "-c", fmt.Sprintf("%s; exec head -c %d /dev/zero | tail -n 1 >/dev/null", g.Enter(), bytes)).Run() // tail holds the line
	}
	if err := run(8 << 20); err != nil {
		t.Fatal(err)
	}
	u := g.Read()
	if u.Peak < 8<<20 || u.Peak > limit || u.Kills != 0 {
		t.Errorf("after 8 MiB: %+v", u)
	}
	_ = run(256 << 20) // what the shell says of a child that was killed is the shell's business
	if u = g.Read(); u.Kills == 0 || u.Peak > limit {
		t.Errorf("after 256 MiB in 32: %+v", u)
	}
	if p, err := g.Processes(); err != nil || len(p) != 0 {
		t.Errorf("left: %v %v", p, err)
	}
}
