// Package rigtest logs tests in to the clusters of test/rig, secured ones and others.
package rigtest

import (
	"context"
	"errors"
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
	return forTest(t, dir, func() (*rig.Cluster, error) { return rig.Attach(filepath.Dir(dir)) }, user)
}

// HDFSOf are the settings of a client of c.
func HDFSOf(t testing.TB, c *rig.Cluster, user string) hdfs.Config {
	t.Helper()
	return forTest(t, c.HadoopConfDir, func() (*rig.Cluster, error) { return c, nil }, user)
}

// HDFSByToken are the settings of a process that has delegation tokens alone.
func HDFSByToken(t testing.TB, c *rig.Cluster, tokens *token.Credentials) (hdfs.Config, *identity.Identity) {
	t.Helper()
	hc := must[*conf.Configuration](t)(conf.Load(conf.WithDirs(c.HadoopConfDir)))
	cfg := must[hdfs.Config](t)(hdfs.FromConf(hc))
	id := must[*identity.Identity](t)(identity.New(hc, identity.WithTokens(tokens)))
	cfg.Login = id.NameNode
	return cfg, id
}

// Open opens the file system of c as the user who runs its daemons and its jobs; done closes it. For what is no test.
func Open(ctx context.Context, c *rig.Cluster) (f *hdfs.FileSystem, done func() error, err error) {
	user := Admin
	if c.Variant.Kerberos {
		user = c.User()
	}
	cfg, logout, err := settings(ctx, c.HadoopConfDir, func() (*rig.Cluster, error) { return c, nil }, user)
	if err != nil {
		return nil, nil, err
	}
	if f, err = hdfs.New("", cfg); err != nil {
		return nil, nil, errors.Join(err, logout())
	}
	return f, func() error { return errors.Join(f.Close(), logout()) }, nil
}

// Identity is who submits applications to c: its own user, by a keytab; nil on a cluster without Kerberos, where that is the user of the system.
func Identity(t testing.TB, c *rig.Cluster) *identity.Identity {
	t.Helper()
	if !c.Variant.Kerberos {
		return nil
	}
	id, logout, err := loggedIn(t.Context(), must[*conf.Configuration](t)(conf.Load(conf.WithDirs(c.HadoopConfDir))), c, c.User())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := logout(); err != nil {
			t.Error(err)
		}
	})
	return id
}

func settings(ctx context.Context, dir string, cluster func() (*rig.Cluster, error), user string) (cfg hdfs.Config, logout func() error, err error) {
	logout = func() error { return nil }
	hc, err := conf.Load(conf.WithDirs(dir))
	if err != nil {
		return cfg, nil, err
	}
	if cfg, err = hdfs.FromConf(hc); err != nil {
		return cfg, nil, err
	}
	secure, err := hc.Kerberos()
	if err != nil || !secure {
		cfg.User = user
		return cfg, logout, err
	}
	c, err := cluster()
	if err != nil {
		return cfg, nil, err
	}
	id, logout, err := loggedIn(ctx, hc, c, user)
	if err != nil {
		return cfg, nil, err
	}
	cfg.Login = id.NameNode
	return cfg, logout, nil
}

// loggedIn is a user of a secured cluster, by the keytab.
func loggedIn(ctx context.Context, hc *conf.Configuration, c *rig.Cluster, user string) (*identity.Identity, func() error, error) {
	keytab, principal := c.Keytab(user), c.Principal(user)
	if user == Admin {
		keytab, principal = c.Keytab("nn"), c.Principal("nn/localhost")
	}
	k, err := c.KDC()
	if err != nil {
		return nil, nil, err
	}
	realm, err := kerberos.LoadConfigFiles(k.Config())
	if err != nil {
		return nil, nil, err
	}
	login, err := kerberos.FromKeytab(ctx, realm, keytab, principal)
	if err != nil {
		return nil, nil, err
	}
	id, err := identity.New(hc, identity.WithLogin(login))
	if err != nil {
		return nil, nil, errors.Join(err, login.Close())
	}
	return id, login.Close, nil
}

// forTest is settings until the end of the test.
func forTest(t testing.TB, dir string, cluster func() (*rig.Cluster, error), user string) hdfs.Config {
	t.Helper()
	cfg, logout, err := settings(t.Context(), dir, cluster, user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := logout(); err != nil {
			t.Error(err)
		}
	})
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
