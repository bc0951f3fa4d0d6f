package integration

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/rig/rigtest"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/yarntest"
)

// What the fakes promise, the real daemons keep: the suites that run against the fakes in their packages run here against them.
func TestSuites(t *testing.T) {
	t.Run("yarn", func(t *testing.T) {
		c, err := conf.Load(conf.WithDirs(cluster.HadoopConfDir))
		if err != nil {
			t.Fatal(err)
		}
		yarntest.Run(t, yarntest.Env{
			Conf: c, ConfDir: cluster.HadoopConfDir, Identity: rigtest.Identity(t, cluster),
			RestartResourceManager: restart("resourcemanager"), RestartNodeManagers: restart("nodemanager-1", "nodemanager-2"),
		})
	})
	t.Run("kafka", func(t *testing.T) { kafkatest.Run(t, cluster.KafkaBootstrap) })
	// These packages test against the daemons themselves when the environment names them, each with paths, topics and clusters of its own.
	for _, p := range []string{"fs/hdfs", "connector/kafka", "checkpoint/storage", "runtime/ha", "test/eos"} {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			packageTests(t, p)
		})
	}
}

// restart ends daemons by SIGKILL and starts them again.
func restart(daemons ...string) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		rigtest.Needs(t, cluster, rigtest.Daemons)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		for _, d := range daemons {
			if err := cluster.Kill9(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range daemons {
			if err := cluster.StartDaemon(ctx, d); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// packageTests runs a package's tests against the daemons, and lets none of them be skipped.
func packageTests(t *testing.T, pkg string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "./"+pkg)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), cluster.Env()...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go test ./%s: %v\n%s", pkg, err, interesting(string(out)))
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") {
			t.Errorf("skipped although the daemons are there: %s", line)
		}
	}
}

// interesting leaves out what passed.
func interesting(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if l := strings.TrimSpace(line); !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- PASS") {
			b.WriteString(line)
		}
	}
	return b.String()
}
