// Package rigtest logs tests in to the clusters of test/rig, secured ones and others.
package rigtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/kerberos"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// Admin is who may do everything in HDFS: the user who runs the daemons, in a secured cluster the NameNode's principal.
const Admin = ""

// HDFS are the settings of a client, as user, of the cluster that HADOOP_CONF_DIR points to. Without that the test is skipped.
func HDFS(t testing.TB, user string) hdfs.Config {
	t.Helper()
	dir := os.Getenv("HADOOP_CONF_DIR")
	if dir == "" {
		t.Skip("HADOOP_CONF_DIR is not set: run `make cluster-up` and `eval \"$(make -s cluster-env)\"`")
	}
	return settings(t, dir, func() (*rig.Cluster, error) { return rig.Attach(filepath.Dir(dir)) }, user)
}

// HDFSOf are the settings of a client of c.
func HDFSOf(t testing.TB, c *rig.Cluster, user string) hdfs.Config {
	t.Helper()
	return settings(t, c.HadoopConfDir, func() (*rig.Cluster, error) { return c, nil }, user)
}

// HDFSByToken are the settings of a process that has delegation tokens alone.
func HDFSByToken(t testing.TB, c *rig.Cluster, tokens *token.Credentials) (hdfs.Config, *identity.Identity) {
	t.Helper()
	hc, cfg := read(t, c.HadoopConfDir)
	id := must[*identity.Identity](t)(identity.New(hc, identity.WithTokens(tokens)))
	cfg.Login = id.NameNode
	return cfg, id
}

func read(t testing.TB, dir string) (*conf.Configuration, hdfs.Config) {
	t.Helper()
	hc := must[*conf.Configuration](t)(conf.Load(conf.WithDirs(dir)))
	return hc, must[hdfs.Config](t)(hdfs.FromConf(hc))
}

func settings(t testing.TB, dir string, cluster func() (*rig.Cluster, error), user string) hdfs.Config {
	t.Helper()
	hc, cfg := read(t, dir)
	if !must[bool](t)(hc.Kerberos()) {
		cfg.User = user
		return cfg
	}
	c := must[*rig.Cluster](t)(cluster())
	keytab, principal := c.Keytab(user), c.Principal(user)
	if user == Admin {
		keytab, principal = c.Keytab("nn"), c.Principal("nn/localhost")
	}
	k, err := c.KDC()
	if err != nil {
		t.Fatal(err)
	}
	realm := must[*kerberos.Config](t)(kerberos.LoadConfigFiles(k.Config()))
	login := must[*kerberos.Login](t)(kerberos.FromKeytab(t.Context(), realm, keytab, principal))
	t.Cleanup(func() {
		if err := login.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg.Login = must[*identity.Identity](t)(identity.New(hc, identity.WithLogin(login))).NameNode
	return cfg
}

// must ends the test at an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
