package rig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// TestPairsFailOver kills the active masters of a secured cluster, one after the other, and asks stock clients for what was there before.
func TestPairsFailOver(t *testing.T) {
	failOver(t, start(t, rig.Options{Variant: "kerberos,integrity,rm-ha,nn-ha", Daemons: []string{rig.NameNode, rig.DataNode, rig.ResourceManager, rig.NodeManager1}}))
}

func failOver(t *testing.T, c *rig.Cluster) {
	t.Helper()
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must[string](t)(c.HdfsCLI(ctx, "dfs", "-put", "-f", file, "/tmp/f"))
	for _, kind := range []string{rig.NameNode, rig.ResourceManager} {
		before := must[string](t)(c.Active(ctx, kind))
		begin := time.Now()
		if err := c.Kill9(ctx, before); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other takes over", func() error {
			now, err := c.Active(ctx, kind)
			if err == nil && now == before {
				err = fmt.Errorf("%s is still active", now)
			}
			return err
		})
		t.Logf("%s was killed, the other was active after %.1f s", before, time.Since(begin).Seconds())
		if err := c.StartDaemon(ctx, before); err != nil {
			t.Fatal(err)
		}
	}
	if out := must[string](t)(c.HdfsCLI(ctx, "dfs", "-cat", "/tmp/f")); out != "hello\n" {
		t.Errorf("the file is %q", out)
	}
	eventually(t, "all serve", func() error {
		for _, s := range c.Status(ctx) {
			if s.Ready != nil {
				return fmt.Errorf("%s: %w", s.Daemon, s.Ready)
			}
		}
		return nil
	})
	must[string](t)(c.YarnCLI(ctx, "node", "-list"))
}
