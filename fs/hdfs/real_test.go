package hdfs_test

import (
	"errors"
	iofs "io/fs"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fstest"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster returns the settings of the cluster that HADOOP_CONF_DIR points to, for its administrator. `make test` starts one.
func cluster(t testing.TB) hdfs.Config {
	t.Helper()
	return rigtest.HDFS(t, rigtest.Admin)
}

func open(t testing.TB, cfg hdfs.Config) *hdfs.FileSystem {
	t.Helper()
	f, err := hdfs.New("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestConformance(t *testing.T) {
	t.Run("superuser", func(t *testing.T) {
		cfg := cluster(t)
		fstest.Run(t, func(t *testing.T) fs.FileSystem { return open(t, cfg) }, fstest.Options{Root: "/tmp", NoPermissions: true})
	})
	t.Run("user", func(t *testing.T) {
		cfg := rigtest.HDFS(t, rig.Alice)
		cfg.BlockSize = 1 << 20 // the large file has three blocks
		fstest.Run(t, func(t *testing.T) fs.FileSystem { return open(t, cfg) }, fstest.Options{Root: "/user/alice"})
	})
}

// What follows the authority is the path, as for Hadoop's own tools: nothing is decoded.
func TestNamesInURIs(t *testing.T) {
	cfg := cluster(t)
	var reg fs.Registry
	hdfs.Register(&reg, cfg)
	f, dir, err := reg.Resolve(t.Context(), "hdfs:///tmp/uri #%20?x=1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // end of the test
	defer func() {
		if err := f.Remove(t.Context(), dir, true); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"a b", "a%20b", "a+b", "100%", "x#y?z", "\u00fc"} {
		g, p, err := reg.Resolve(t.Context(), f.URI()+dir+"/"+name)
		if err == nil {
			err = errors.Join(fs.WriteFile(t.Context(), g, p, []byte(name), false), g.Close()) // two names for one file would be iofs.ErrExist
		}
		if b, rerr := fs.ReadFile(t.Context(), f, dir+"/"+name, 100); err != nil || rerr != nil || string(b) != name {
			t.Errorf("%q: %q, %v, %v", name, b, err, rerr)
		}
	}
}

func TestErrorsNameTheCauseAndTheUser(t *testing.T) {
	f := open(t, rigtest.HDFS(t, rig.Alice))
	_, err := f.Create(t.Context(), "/user/bob/f", false)
	oneLine(t, err, iofs.ErrPermission, "create /user/bob/f", "user=alice", "/user/bob")
	_, err = f.Open(t.Context(), "/user/alice/missing")
	oneLine(t, err, iofs.ErrNotExist, "open /user/alice/missing")
}
