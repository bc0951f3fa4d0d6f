package yarnfake_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
	"github.com/thalweg/thalweg/yarnrpc/yarntest"
)

func TestMain(m *testing.M) {
	yarntest.RunMaster()
	goleak.VerifyTestMain(m)
}

// TestSuite runs the suite that real daemons pass too.
func TestSuite(t *testing.T) {
	c, err := yarnfake.Start(yarnfake.WithRunner(yarnfake.Processes(nil, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // end of the test
	dir := t.TempDir()
	if err := c.ConfDir(dir); err != nil {
		t.Fatal(err)
	}
	yarntest.Run(t, yarntest.Env{
		ConfDir:    dir,
		Conf:       c.Conf(),
		RollTokens: func(*testing.T) { c.RollKeys() },
		RestartNodeManagers: func(t *testing.T) {
			for i := range 2 {
				if err := c.RestartNodeManager(i); err != nil {
					t.Fatal(err)
				}
			}
		},
		RestartResourceManager: func(t *testing.T) {
			if err := c.RestartResourceManager(); err != nil {
				t.Fatal(err)
			}
		},
	})
}
