package fs_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net/url"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
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

// Whatever the letters of its name, a file is the same by its path and by the URI that its file system and Info make; nothing is decoded.
func TestEveryNameHasItsURI(t *testing.T) {
	var reg fs.Registry
	mem.Register(&reg)
	local.Register(&reg, local.WithoutSync())
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("aB1#?%&=+:;@ \t\n~\\[]\"'\u00fc\u4e16.-_")), 1, 12, -1).Filter(func(s string) bool { return s != "." && s != ".." }).Draw(t, "name")
		dir := rapid.SampledFrom([]string{"d", "#d", "%20", "d?x=1", "d%"}).Draw(t, "folder")
		for _, root := range []string{"", "file://", "file://localhost", "file:", "mem://m"} {
			n++
			p := fmt.Sprintf("%s/%d/%s/%s", base, n, dir, name)
			f, got, err := reg.Resolve(context.Background(), root+p)
			if err != nil || got != p {
				t.Fatalf("%q: %q, %v", root+p, got, err)
			}
			err = fs.WriteFile(context.Background(), f, got, []byte(name), false)
			infos, lerr := f.List(context.Background(), path.Dir(p))
			if err != nil || lerr != nil || len(infos) != 1 || infos[0].Path != p {
				t.Fatalf("%q: %v, %v, %+v", p, err, lerr, infos)
			}
			g, again, err := reg.Resolve(context.Background(), f.URI()+infos[0].Path)
			if err != nil || again != p {
				t.Fatalf("%q: %q, %v", p, again, err)
			}
			if b, err := fs.ReadFile(context.Background(), g, again, 1000); err != nil || string(b) != name {
				t.Fatalf("%q holds %q, %v", p, b, err)
			}
		}
	})
}

func TestParse(t *testing.T) {
	for in, want := range map[string][3]string{
		"/x/a#b": {"file", "", "/x/a#b"}, "/x/100%": {"file", "", "/x/100%"}, "hdfs://nn:8020/a%20b?c#d": {"hdfs", "nn:8020", "/a%20b?c#d"},
		"hdfs:///a//b/": {"hdfs", "", "/a/b"}, "hdfs://nn": {"hdfs", "nn", ""}, "HDFS:/a:b": {"hdfs", "", "/a:b"}, "in": {"", "", "in"}, "a/b:c": {"", "", "a/b:c"},
	} {
		u, err := fs.Parse(in)
		if err != nil || u.Scheme != want[0] || u.Host != want[1] || u.Path != want[2] {
			t.Errorf("%q: %#v, %v", in, u, err)
		}
	}
	for _, in := range []string{"hdfs:a", "hdfs://nn?a", "hdfs://nn#a/b", "hdfs://n n/a", "1:/a", "hdfs://nn:port/a"} {
		if u, err := fs.Parse(in); !errors.Is(err, iofs.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %#v, %v", in, u, err)
		}
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
