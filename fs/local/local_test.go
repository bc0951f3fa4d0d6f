package local_test

import (
	"context"
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fstest"
	"github.com/thalweg/thalweg/fs/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	fstest.Run(t, func(*testing.T) fs.FileSystem { return local.New() },
		fstest.Options{Root: dir, NoPermissions: os.Getuid() == 0})
}

func TestConformanceBelowARoot(t *testing.T) {
	fstest.Run(t, func(t *testing.T) fs.FileSystem { return local.New(local.WithRoot(t.TempDir()), local.WithoutSync()) },
		fstest.Options{NoPermissions: os.Getuid() == 0})
}

func TestRegistryResolvesPlainPathsAndFileURIs(t *testing.T) {
	var reg fs.Registry
	local.Register(&reg)
	p := filepath.Join(t.TempDir(), "f")
	for _, uri := range []string{p, "file://" + p, "file://localhost" + p} {
		f, name, err := reg.Resolve(t.Context(), uri)
		if err != nil {
			t.Fatal(err)
		}
		if name != p {
			t.Errorf("%s is the path %s", uri, name)
		}
		if err := fs.WriteFile(t.Context(), f, name, []byte("x"), true); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := reg.Resolve(t.Context(), "file://host"+p); !errors.Is(err, iofs.ErrInvalid) {
		t.Errorf("a URI with a host: %v", err)
	}
}

func TestFailedCloseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f := local.New()
	w, err := f.Create(context.Background(), filepath.Join(dir, "sub", "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	// The folder goes away under the open file, so the rename fails.
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("close: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
