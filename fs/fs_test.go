package fs_test

import (
	"context"
	"errors"
	iofs "io/fs"
	"net/url"
	"path"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
)

func TestTemporaryNamesStandBesideTheirFileAndAreKnown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := "/" + rapid.StringMatching(`[a-z]{1,3}(/[a-z.]{1,8}){0,3}`).Draw(t, "path")
		tmp := fs.TempName(p)
		if path.Dir(tmp) != path.Dir(p) || tmp == p || !fs.IsTemp(tmp) || tmp == fs.TempName(p) {
			t.Fatalf("%s has the temporary name %s", p, tmp)
		}
		if fs.IsTemp(p) || fs.IsTemp(p+".inprogress") || fs.IsTemp("/."+path.Base(p)+".inprogress") {
			t.Fatalf("%s counts as temporary", p)
		}
	})
}

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{"/": "/", "/a//b/": "/a/b", "/a/../b": "/b", "/../a": "/a"} {
		if got, err := fs.CleanPath(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a", "./a", "hdfs://x/a", "/a\x00b"} {
		if _, err := fs.CleanPath(in); !errors.Is(err, iofs.ErrInvalid) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestResolveNamesAnUnknownScheme(t *testing.T) {
	var reg fs.Registry
	mem.Register(&reg)
	if _, _, err := reg.Resolve(t.Context(), "s3://bucket/f"); !errors.Is(err, fs.ErrScheme) {
		t.Errorf("got %v", err)
	}
	boom := errors.New("boom")
	reg.Register("bad", func(context.Context, *url.URL) (fs.FileSystem, error) { return nil, boom })
	if _, _, err := reg.Resolve(t.Context(), "bad://x/"); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestReadFileRefusesMoreThanItsLimit(t *testing.T) {
	f := mem.New("t")
	if err := fs.WriteFile(t.Context(), f, "/f", []byte("12345"), false); err != nil {
		t.Fatal(err)
	}
	if b, err := fs.ReadFile(t.Context(), f, "/f", 5); string(b) != "12345" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := fs.ReadFile(t.Context(), f, "/f", 4); err == nil {
		t.Error("5 bytes were read with a limit of 4")
	}
}
