package integration

import (
	"errors"
	iofs "io/fs"
	"path"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// hdfsOf is the cluster's file system as the user of the tests.
func hdfsOf(t *testing.T) fs.FileSystem {
	t.Helper()
	f, done, err := rigtest.Open(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := done(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// hdfsPath splits a URI of the cluster's file system.
func hdfsPath(t *testing.T, uri string) (fs.FileSystem, string) {
	t.Helper()
	f := hdfsOf(t)
	rest := strings.TrimPrefix(uri, "hdfs://")
	return f, rest[strings.Index(rest, "/"):]
}

// noFolder checks that an ended application leaves no folder of its own: its master removes it once it has unregistered.
func noFolder(t *testing.T, a application) {
	t.Helper()
	f := hdfsOf(t)
	dir := path.Join("/user", a.User, ".thalweg", a.ID)
	until(t, patience, "the removal of "+dir, func() (bool, error) {
		_, err := f.Stat(t.Context(), dir)
		return errors.Is(err, iofs.ErrNotExist), err
	})
}
