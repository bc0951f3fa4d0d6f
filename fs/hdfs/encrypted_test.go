package hdfs_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
)

// start runs a NameNode and two DataNodes until the end of the test.
func start(t *testing.T, site map[string]string) *rig.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	site["dfs.replication"], site["dfs.namenode.replication.min"] = "2", "1"
	c, err := rig.Start(t.Context(), rig.Options{
		Dir: filepath.Join(t.TempDir(), "cluster"), Variant: "simple", Daemons: []string{rig.NameNode, rig.DataNode, rig.DataNode2}, HDFSSite: site,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *rig.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// wire looks for content in what is sent and received.
type wire struct {
	mu   sync.Mutex
	find []byte
	seen int
}

type wireConn struct {
	net.Conn
	w *wire
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &wireConn{nc, w}, nil
}

func (w *wire) look(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen += bytes.Count(b, w.find)
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.w.look(b)
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.look(b[:n])
	return n, err
}

// TestEncryptedDataTransfer is a cluster with dfs.encrypt.data.transfer, which clients find out by themselves.
func TestEncryptedDataTransfer(t *testing.T) {
	for name, suites := range map[string]string{"digest": "", "aes": "AES/CTR/NoPadding"} {
		t.Run(name, func(t *testing.T) {
			c := start(t, map[string]string{
				"dfs.block.access.token.enable": "true", "dfs.encrypt.data.transfer": "true", "dfs.encrypt.data.transfer.cipher.suites": suites,
			})
			w := &wire{find: bytes.Repeat([]byte("a secret "), 4)}
			f := open(t, hdfs.Config{DefaultAuthority: c.NameNode, Replication: 2, BlockSize: 1 << 20, ConnectTimeout: 2 * time.Second, Dial: w.dial})
			sizes(t, f)
			if err := fs.WriteFile(t.Context(), f, "/secret", bytes.Repeat(w.find, 1000), true); err != nil {
				t.Fatal(err)
			}
			holds(t, f, "/secret", bytes.Repeat(w.find, 1000))
			if w.seen > 0 {
				t.Errorf("content was on the wire %d times", w.seen)
			}
			stock(t, c, f)
			hdfs.SpoilKey(f)
			holds(t, f, "/secret", bytes.Repeat(w.find, 1000))
			hdfs.SpoilKey(f)
			if err := fs.WriteFile(t.Context(), f, "/secret", []byte("x"), true); err != nil {
				t.Error(err)
			}
			lost(t, c, open(t, hdfs.Config{DefaultAuthority: c.NameNode, Replication: 2, BlockSize: 128 << 20, ConnectTimeout: 2 * time.Second, Dial: w.dial}), "/lost/node")
		})
	}
}

// sizes writes and reads files around the sizes of chunks, packets and blocks (of 1 MiB), the parts of a file included.
func sizes(t *testing.T, f fs.FileSystem) {
	t.Helper()
	sizesIn(t, f, "/sizes")
}

func sizesIn(t *testing.T, f fs.FileSystem, dir string) {
	t.Helper()
	for _, n := range []int{0, 1, 100, 511, 512, 513, 65_535, 65_536, 65_537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20, 3<<20 + 77} {
		p, data := fmt.Sprintf("%s/%d", dir, n), pattern(n)
		if err := fs.WriteFile(t.Context(), f, p, data, true); err != nil {
			t.Fatal(err)
		}
		holds(t, f, p, data)
		r, err := f.Open(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []int{0, n / 3, n - 1} {
			b := make([]byte, min(70_000, max(0, n-off)))
			if len(b) == 0 || off < 0 {
				continue
			}
			if _, err := r.ReadAt(b, int64(off)); err != nil || !bytes.Equal(b, data[off:off+len(b)]) {
				t.Errorf("%s from %d: %v", p, off, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stock lets Hadoop's own client read what we wrote, and write what we read.
func stock(t *testing.T, c *rig.Cluster, f fs.FileSystem) {
	t.Helper()
	out, err := c.HdfsCLI(t.Context(), "dfs", "-cat", "/sizes/3145805")
	if err != nil || out != string(pattern(3<<20+77)) {
		t.Errorf("the stock client reads %d bytes, %v", len(out), err)
	}
	cli(t, c, "dfs", "-cp", "/sizes/3145805", "/sizes/copied")
	holds(t, f, "/sizes/copied", pattern(3<<20+77))
}

// lost takes the first DataNode away in the middle of a block, which has two replicas.
func lost(t *testing.T, c *rig.Cluster, f *hdfs.FileSystem, name string) {
	t.Helper()
	data := pattern(16 << 20)
	w, err := f.Create(t.Context(), name, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data[:8<<20]); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill9(t.Context(), rig.DataNode); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data[8<<20:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	holds(t, f, name, data)
}

// An open file outlives its block tokens: they are asked for again when a DataNode refuses them.
func TestBlockTokensAreReplaced(t *testing.T) {
	c := start(t, map[string]string{"dfs.block.access.token.enable": "true"})
	f := open(t, hdfs.Config{DefaultAuthority: c.NameNode, Replication: 2, BlockSize: 1 << 20})
	data := pattern(3 << 20)
	if err := fs.WriteFile(t.Context(), f, "/tokens", data, true); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open(t.Context(), "/tokens")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(data))
	for range 2 {
		hdfs.SpoilTokens(r)
		if _, err := r.ReadAt(b, 0); err != nil || !bytes.Equal(b, data) {
			t.Errorf("with a token that has ended: %v", err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
