package hdfs_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
)

// TestFoldersThatAreEncryptedOrErasureCoded: the first are refused in one line, reading as writing; in the second our files are
// replicated, as checkpoints and staged files are anywhere.
func TestFoldersThatAreEncryptedOrErasureCoded(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	keys := "jceks://file" + filepath.Join(t.TempDir(), "keys.jceks")
	c, err := rig.Start(t.Context(), rig.Options{
		Dir: filepath.Join(t.TempDir(), "cluster"), Variant: "simple", Daemons: []string{rig.NameNode, rig.DataNode},
		CoreSite: map[string]string{"hadoop.security.key.provider.path": keys},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	cli(t, c, "key", "create", "zone", "-provider", keys)
	if err := c.Restart(t.Context(), rig.NameNode); err != nil { // it reads the keys when it starts
		t.Fatal(err)
	}
	f := open(t, hdfs.Config{DefaultAuthority: c.NameNode})
	for _, dir := range []string{"/zone", "/coded"} {
		if err := f.Mkdir(t.Context(), dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	data := pattern(100_000)
	if err := fs.WriteFile(t.Context(), f, "/plain", data, true); err != nil {
		t.Fatal(err)
	}
	cli(t, c, "crypto", "-createZone", "-keyName", "zone", "-path", "/zone")
	cli(t, c, "dfs", "-cp", "/plain", "/zone/theirs")
	_, err = f.Open(t.Context(), "/zone/theirs")
	oneLine(t, err, errors.ErrUnsupported, "/zone/theirs", "encryption zone")
	err = fs.WriteFile(t.Context(), f, "/zone/ours", data, false)
	oneLine(t, err, errors.ErrUnsupported, "/zone/ours", "encryption zone")

	cli(t, c, "ec", "-enablePolicy", "-policy", "XOR-2-1-1024k")
	cli(t, c, "ec", "-setPolicy", "-path", "/coded", "-policy", "XOR-2-1-1024k")
	if err := fs.WriteFile(t.Context(), f, "/coded/ours", data, true); err != nil {
		t.Fatal(err)
	}
	holds(t, f, "/coded/ours", data)
}
