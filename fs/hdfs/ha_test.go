package hdfs_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/test/rig/rigtest"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// TestWritersGoOnOverAFailover kills the active NameNode of a secured pair under writers that have a token alone: of files that are written
// over and over, and of one that is open all the time.
func TestWritersGoOnOverAFailover(t *testing.T) {
	c := runVariant(t, filepath.Join(t.TempDir(), "cluster"), "kerberos,integrity,nn-ha")
	ctx := t.Context()
	alice := open(t, as(t, c, rig.Alice))
	tok, err := alice.DelegationToken(ctx, rig.Alice)
	if err != nil || !strings.HasPrefix(tok.Service, "ha-hdfs:") {
		t.Fatalf("%v, %v", tok, err)
	}
	creds := &token.Credentials{}
	creds.Put(tok.Service, tok)
	cfg, _ := rigtest.HDFSByToken(t, c, creds)
	cfg.BlockSize = 1 << 20
	f := open(t, cfg)
	long, err := f.Create(ctx, "/user/alice/long", true)
	if err != nil {
		t.Fatal(err)
	}
	data := pattern(5<<20 + 77)
	if _, err := long.Write(data[:2<<20+100]); err != nil {
		t.Fatal(err)
	}
	write(t, under{f, "/user/alice"}, 300_000, func() {
		active, err := c.Active(ctx, rig.NameNode)
		if err != nil {
			t.Error(err)
			return
		}
		start := time.Now()
		if err := c.Kill9(ctx, active); err != nil {
			t.Error(err)
		}
		if _, err := long.Write(data[2<<20+100:]); err != nil {
			t.Error(err)
		}
		if err := long.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("an open file went on and was closed %s after the death of %s", time.Since(start).Round(time.Millisecond), active)
		if err := c.StartDaemon(ctx, active); err != nil {
			t.Error(err)
		}
	})
	holds(t, f, "/user/alice/long", data)
	// The one that came back is standby: whoever asks it first is sent on.
	addrs := cfg.NameNodes[cfg.DefaultAuthority]
	for _, order := range [][]string{{addrs[0], addrs[1]}, {addrs[1], addrs[0]}} {
		cfg.NameNodes = map[string][]string{cfg.DefaultAuthority: order}
		holds(t, open(t, cfg), "/user/alice/long", data)
	}
}

// under moves a file system to a folder.
type under struct {
	*hdfs.FileSystem
	dir string
}

func (u under) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	return u.FileSystem.Create(ctx, u.dir+p, overwrite)
}

func (u under) Open(ctx context.Context, p string) (fs.Reader, error) {
	return u.FileSystem.Open(ctx, u.dir+p)
}
