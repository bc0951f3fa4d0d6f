package yarntest_test

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/yarntest"
)

func TestMain(m *testing.M) {
	yarntest.RunMaster()
	goleak.VerifyTestMain(m)
}

// TestRealDaemons runs the suite against the cluster of HADOOP_CONF_DIR. THALWEG_RESTART_RM and
// THALWEG_RESTART_NMS, shell commands, let it restart daemons; THALWEG_LOCAL_CONF_DIR is HADOOP_CONF_DIR as the nodes see it, when they run on this machine; THALWEG_ROLLS_TOKENS=true says that its AMRM key rolls within a minute.
func TestRealDaemons(t *testing.T) {
	if os.Getenv("HADOOP_CONF_DIR") == "" {
		t.Skip("HADOOP_CONF_DIR is not set: the cluster suite of test/integration runs this against real daemons")
	}
	c, err := conf.Load()
	if err != nil {
		t.Fatal(err)
	}
	env := yarntest.Env{Conf: c, ConfDir: os.Getenv("THALWEG_LOCAL_CONF_DIR"), RollsTokens: os.Getenv("THALWEG_ROLLS_TOKENS") == "true"}
	env.RestartResourceManager = command("THALWEG_RESTART_RM")
	env.RestartNodeManagers = command("THALWEG_RESTART_NMS")
	yarntest.Run(t, env)
}

// command runs the shell command in an environment variable; nil when it is unset.
func command(variable string) func(t *testing.T) {
	cmd := os.Getenv(variable)
	if cmd == "" {
		return nil
	}
	return func(t *testing.T) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "/bin/bash", "-c", cmd).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
}
