package hdfs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
)

// TestFaults breaks a NameNode and a DataNode of its own under a client.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	c, err := rig.Start(t.Context(), rig.Options{
		Dir: filepath.Join(t.TempDir(), "cluster"), Variant: "simple", Daemons: []string{rig.NameNode, rig.DataNode},
		// The DataNode reports blocks late, so that the NameNode says "not replicated yet" and "not complete".
		HDFSSite: map[string]string{"dfs.blockreport.incremental.intervalMsec": "200"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	cfg := hdfs.Config{DefaultAuthority: c.NameNode, Replication: 1, BlockSize: 1 << 20, ConnectTimeout: 2 * time.Second}
	for _, tc := range []struct {
		name string
		f    func(*testing.T, *rig.Cluster, hdfs.Config)
	}{
		{"LateBlockReports", lateReports}, {"LostAnswers", lostAnswers}, {"Quota", quota}, {"SafeMode", safeMode},
		{"NameNodePaused", paused}, {"NameNodeRestartsUnderWriters", nameNodeRestarts}, {"DataNodeRestartsUnderWriters", dataNodeRestarts},
		{"DataNodeDiesUnderALargeBlock", largeBlockDies}, {"NoDataNode", noDataNode}, {"CancelledUpload", cancelled}, {"DamagedBlock", damaged},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.f(t, c, cfg) })
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>9)
	}
	return b
}

func holds(t *testing.T, f fs.FileSystem, p string, want []byte) {
	t.Helper()
	got, err := fs.ReadFile(t.Context(), f, p, 64<<20)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, %v, want the %d that were written", p, len(got), err, len(want))
	}
}

// Files of three blocks and many small ones in a row, on the only DataNode: nothing of it reaches the caller.
func lateReports(t *testing.T, _ *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	var wg sync.WaitGroup
	data := pattern(3<<20 + 5)
	for i := range 4 {
		wg.Go(func() {
			p := fmt.Sprintf("/late/large-%d", i)
			if err := fs.WriteFile(t.Context(), f, p, data, i%2 == 0); err != nil {
				t.Error(err)
				return
			}
			holds(t, f, p, data)
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				p := fmt.Sprintf("/late/small-%d", i)
				if err := fs.WriteFile(t.Context(), f, p, []byte{byte(j)}, true); err != nil {
					t.Error(err)
					return
				}
			}
			holds(t, f, fmt.Sprintf("/late/small-%d", i), []byte{9})
		})
	}
	wg.Wait()
}

// lossy loses the answer to the first call of each method: the server has run it, the client does not know.
type lossy struct {
	mu   sync.Mutex
	lost map[string]bool
}

var lossyMethods = []string{"create", "addBlock", "complete", "rename2", "delete", "mkdirs"}

func (l *lossy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: nc, l: l}, nil
}

type lossyConn struct {
	net.Conn
	l    *lossy
	lose atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	c.l.mu.Lock()
	for _, m := range lossyMethods {
		// The name stands in the request header as a string field with its length before it.
		if !c.l.lost[m] && bytes.Contains(b, append([]byte{10, byte(len(m))}, m...)) {
			c.l.lost[m] = true
			c.lose.Store(true)
			break
		}
	}
	c.l.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

func lostAnswers(t *testing.T, _ *rig.Cluster, cfg hdfs.Config) {
	l := &lossy{lost: map[string]bool{}}
	cfg.Dial = l.dial
	f := open(t, cfg)
	ctx := t.Context()
	if err := f.Mkdir(ctx, "/lost/dir", 0o700); err != nil {
		t.Error(err)
	}
	// The exclusive file is ours although the first answer never came: the NameNode knows the repeated call.
	if err := fs.WriteFile(ctx, f, "/lost/claim", []byte("claim"), false); err != nil {
		t.Error(err)
	}
	if err := f.Rename(ctx, "/lost/claim", "/lost/renamed"); err != nil {
		t.Error(err)
	}
	holds(t, f, "/lost/renamed", []byte("claim"))
	if err := f.Remove(ctx, "/lost/renamed", false); err != nil {
		t.Error(err)
	}
	if len(l.lost) != len(lossyMethods) {
		t.Errorf("answers lost: %v, want one of each of %v", l.lost, lossyMethods)
	}
}

func quota(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	ctx := t.Context()
	for _, d := range []string{"/quota/names", "/quota/space"} {
		if err := f.Mkdir(ctx, d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cli(t, c, "dfsadmin", "-setQuota", "2", "/quota/names")
	cli(t, c, "dfsadmin", "-setSpaceQuota", "1m", "/quota/space")
	if err := fs.WriteFile(ctx, f, "/quota/names/1", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	err := fs.WriteFile(ctx, f, "/quota/names/2", []byte("x"), false)
	oneLine(t, err, fs.ErrQuota, "/quota/names/2", "quota", "-setQuota")
	err = fs.WriteFile(ctx, f, "/quota/space/f", pattern(2<<20), false)
	oneLine(t, err, fs.ErrQuota, "/quota/space/f", "quota", "-setSpaceQuota")
	if _, err := f.Stat(ctx, "/quota/space/f"); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("the refused file: %v", err)
	}
}

func cli(t *testing.T, c *rig.Cluster, args ...string) {
	t.Helper()
	if _, err := c.HdfsCLI(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// oneLine checks that an error says what, where and of which kind.
func oneLine(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want an error of the kind %q", err, kind)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	t.Log(err)
}

func safeMode(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	if err := f.Mkdir(t.Context(), "/safe", 0o755); err != nil {
		t.Fatal(err)
	}
	cli(t, c, "dfsadmin", "-safemode", "enter")
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := fs.WriteFile(short, f, "/safe/refused", []byte("x"), false)
	oneLine(t, err, fs.ErrSafeMode, "/safe/refused", "safe mode")
	if !errors.Is(err, fs.ErrUnavailable) {
		t.Error("it is not waited out")
	}
	waiting := make(chan error, 1)
	go func() { waiting <- fs.WriteFile(t.Context(), f, "/safe/waited", []byte("x"), false) }()
	cli(t, c, "dfsadmin", "-safemode", "leave")
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	holds(t, f, "/safe/waited", []byte("x"))
}

func paused(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	if _, err := f.Stat(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(rig.NameNode); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := f.Stat(short, "/tmp"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stat of a paused NameNode: %v", err)
	}
	if err := c.Resume(rig.NameNode); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat(t.Context(), "/tmp"); err != nil {
		t.Error(err)
	}
}

// write keeps four writers busy until stop is closed, then checks what they wrote last.
func write(t *testing.T, f fs.FileSystem, size int, during func()) {
	t.Helper()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	written := make(chan struct{}, 1000)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range 4 {
		wg.Go(func() {
			for j := 0; ; j++ {
				p := fmt.Sprintf("/busy/%d", i)
				data := pattern(size + j)
				if err := fs.WriteFile(ctx, f, p, data, true); err != nil {
					t.Error(err)
					return
				}
				select {
				case written <- struct{}{}:
				default:
				}
				select {
				case <-stop:
					holds(t, f, p, data)
					return
				default:
				}
			}
		})
	}
	during()
	for range len(written) + 8 { // they go on afterwards
		select {
		case <-written:
		case <-ctx.Done():
			t.Error("the writers do not go on")
		}
	}
	close(stop)
	wg.Wait()
}

func nameNodeRestarts(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	write(t, f, 300_000, func() {
		if err := c.Kill9(t.Context(), rig.NameNode); err != nil {
			t.Error(err)
		}
		if err := c.StartDaemon(t.Context(), rig.NameNode); err != nil {
			t.Error(err)
		}
	})
}

func dataNodeRestarts(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	write(t, f, 300_000, func() {
		for range 2 {
			if err := c.Kill9(t.Context(), rig.DataNode); err != nil {
				t.Error(err)
			}
			if err := c.StartDaemon(t.Context(), rig.DataNode); err != nil {
				t.Error(err)
			}
		}
	})
}

func largeBlockDies(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	cfg.BlockSize = 128 << 20
	f := open(t, cfg)
	w, err := f.Create(t.Context(), "/large", true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(pattern(8 << 20)); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill9(t.Context(), rig.DataNode); err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(pattern(8 << 20))
	if err == nil {
		err = w.Close()
	} else if cerr := w.Close(); cerr == nil {
		t.Error("Close after a failed Write has no error")
	}
	oneLine(t, err, fs.ErrUnavailable, "/large", "data node")
	if err := c.StartDaemon(t.Context(), rig.DataNode); err != nil {
		t.Fatal(err)
	}
	if infos, err := f.List(t.Context(), "/"); err != nil || strings.Contains(fmt.Sprint(infos), "/large") {
		t.Errorf("after the failure: %v, %v", infos, err)
	}
	if err := fs.WriteFile(t.Context(), f, "/large", pattern(8<<20), true); err != nil {
		t.Error(err)
	}
}

func noDataNode(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	if err := fs.WriteFile(t.Context(), f, "/none/there", []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if err := c.StopDaemon(t.Context(), rig.DataNode); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := fs.WriteFile(ctx, f, "/none/f", []byte("x"), false)
	oneLine(t, err, fs.ErrUnavailable, "/none/f")
	rctx, rcancel := context.WithTimeout(t.Context(), time.Second)
	defer rcancel()
	_, err = fs.ReadFile(rctx, f, "/none/there", 10)
	oneLine(t, err, fs.ErrUnavailable, "/none/there", "data node")
	if _, err := f.Stat(t.Context(), "/none/f"); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("the file that could not be written: %v", err)
	}
	if err := c.StartDaemon(t.Context(), rig.DataNode); err != nil {
		t.Fatal(err)
	}
	holds(t, f, "/none/there", []byte("x"))
}

func cancelled(t *testing.T, _ *rig.Cluster, cfg hdfs.Config) {
	cfg.BlockSize = 128 << 20
	f := open(t, cfg)
	for _, overwrite := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := f.Create(ctx, "/cancelled/f", overwrite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(pattern(6 << 20)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := w.Write(pattern(6 << 20)); !errors.Is(err, context.Canceled) {
			t.Errorf("write: %v", err)
		}
		if err := w.Close(); !errors.Is(err, context.Canceled) {
			t.Errorf("close: %v", err)
		}
		if infos, err := f.List(t.Context(), "/cancelled"); err != nil || len(infos) != 0 {
			t.Errorf("left: %v, %v", infos, err)
		}
	}
}

func damaged(t *testing.T, c *rig.Cluster, cfg hdfs.Config) {
	f := open(t, cfg)
	data := pattern(200_000)
	if err := fs.WriteFile(t.Context(), f, "/damaged", data, true); err != nil {
		t.Fatal(err)
	}
	// Find the block file with exactly this content and turn one bit.
	found := 0
	err := filepath.WalkDir(filepath.Join(c.Dir, "data", "datanode"), func(p string, d iofs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "blk_") || strings.HasSuffix(d.Name(), ".meta") {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil || !bytes.Equal(b, data) {
			return err
		}
		found++
		b[150_000] ^= 1
		return os.WriteFile(p, b, 0o600)
	})
	if err != nil || found == 0 {
		t.Fatalf("block file: %d found, %v", found, err)
	}
	_, err = fs.ReadFile(t.Context(), f, "/damaged", 1<<20)
	oneLine(t, err, fs.ErrCorrupt, "/damaged", "checksum")
	r, err := f.Open(t.Context(), "/damaged")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	if _, err := r.ReadAt(b, 1000); err != nil || !bytes.Equal(b, data[1000:2000]) {
		t.Errorf("the undamaged part: %v", err)
	}
	if _, err := r.ReadAt(b, 149_900); !errors.Is(err, fs.ErrCorrupt) {
		t.Errorf("the damaged part: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestPipelineGoesOnWithoutALostDataNode writes blocks with two replicas and takes one of the two DataNodes away, first and second in turn.
func TestPipelineGoesOnWithoutALostDataNode(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	c, err := rig.Start(t.Context(), rig.Options{
		Dir: filepath.Join(t.TempDir(), "cluster"), Variant: "simple", Daemons: []string{rig.NameNode, rig.DataNode, rig.DataNode2},
		// Two replicas are wanted, one is enough to close a file.
		HDFSSite: map[string]string{"dfs.replication": "2", "dfs.namenode.replication.min": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	f := open(t, hdfs.Config{DefaultAuthority: c.NameNode, Replication: 2, BlockSize: 128 << 20, ConnectTimeout: 2 * time.Second})
	data := pattern(24 << 20)
	for i, victim := range []string{rig.DataNode, rig.DataNode2} {
		for _, when := range []string{"open", "streaming", "closing"} {
			p := fmt.Sprintf("/pipeline/%d-%s", i, when)
			w, err := f.Create(t.Context(), p, i == 0)
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]int{"open": 1000, "streaming": 12 << 20, "closing": len(data)}[when]
			if _, err := w.Write(data[:at]); err != nil {
				t.Fatal(err)
			}
			if err := c.Kill9(t.Context(), victim); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(data[at:]); err != nil {
				t.Fatalf("%s, %s: %v", victim, when, err)
			}
			if err := w.Close(); err != nil {
				t.Fatalf("%s, %s: %v", victim, when, err)
			}
			holds(t, f, p, data)
			if err := c.StartDaemon(t.Context(), victim); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The stock client agrees that every file is closed and whole. (With as many DataNodes as replicas wanted, the NameNode keeps the stale
	// replicas of the returned nodes and finds no other place, so one replica each is what there is.)
	out, err := c.HdfsCLI(t.Context(), "fsck", "/pipeline", "-files", "-blocks", "-openforwrite")
	if err != nil || !strings.Contains(out, "is HEALTHY") || strings.Contains(out, "OPENFORWRITE") || strings.Count(out, " bytes, replicated:") != 6 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestUnreachableNameNodeIsOneBoundedError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := open(t, hdfs.Config{DefaultAuthority: addr, User: "alice", RetryTimeout: 500 * time.Millisecond})
	_, err = f.Stat(t.Context(), "/f") // no deadline of its own
	oneLine(t, err, fs.ErrUnavailable, addr, "/f", "refused")

	// A host that does not exist is not waited for.
	f = open(t, hdfs.Config{DefaultAuthority: "no-such-host.invalid:8020", User: "alice", RetryTimeout: time.Hour, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = f.Stat(ctx, "/f")
	oneLine(t, err, fs.ErrUnavailable, "no-such-host.invalid", "/f")
	if ctx.Err() != nil {
		t.Error("it was waited for")
	}
}
