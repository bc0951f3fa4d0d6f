package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fstest"
	"github.com/thalweg/thalweg/fs/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	fstest.Run(t, func(*testing.T) fs.FileSystem { return mem.New("t") }, fstest.Options{NoPermissions: true})
}

func TestRegistryKeepsOneFileSystemPerName(t *testing.T) {
	var reg fs.Registry
	mem.Register(&reg)
	a, p, err := reg.Resolve(t.Context(), "mem://x/dir/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile(t.Context(), a, p, []byte("content"), false); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b, _, err := reg.Resolve(t.Context(), "mem://x/")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(t.Context(), b, "/dir/f", 100); err != nil || string(got) != "content" {
		t.Errorf("read %q, %v", got, err)
	}
	c, _, err := reg.Resolve(t.Context(), "mem://y/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "/dir/f"); err == nil {
		t.Error("mem://y shows the files of mem://x")
	}
	if got, want := a.(*mem.FileSystem).Tree(), "/\n/dir/\n/dir/f\n"; got != want {
		t.Errorf("tree is %q, want %q", got, want)
	}
}
