package kdc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Ready returns nil when the KDC accepts connections.
func (k *KDC) Ready(ctx context.Context) error {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(k.Port)))
	if err != nil {
		return fmt.Errorf("kdc: %w", err)
	}
	return c.Close()
}

// Server is a KDC that runs as a child of this process.
type Server struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer // complete once done is closed
	done chan struct{}
	once sync.Once
}

// Start runs the KDC as a child and waits until it answers. End it with Stop; it does not outlive this process.
func (k *KDC) Start(ctx context.Context) (*Server, error) {
	argv := k.Argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	s := &Server{cmd: cmd, out: &bytes.Buffer{}, done: make(chan struct{})}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = k.ServerEnv(), k.Dir, s.out, s.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("kdc: start: %w", err)
	}
	go func() {
		_ = cmd.Wait() // how it ends is its own affair: Stop ends it by a signal
		close(s.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, toolWait)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := k.Ready(ctx)
		if err == nil {
			return s, nil
		}
		select {
		case <-s.done:
			return nil, fmt.Errorf("kdc: start: it ended at once: %s", bytes.TrimSpace(s.out.Bytes()))
		case <-ctx.Done():
			s.Stop()
			return nil, fmt.Errorf("kdc: start: %w (last: %w)", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// Stop ends the KDC and waits until it is gone. It may be called again.
func (s *Server) Stop() {
	s.once.Do(func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) })
	select {
	case <-s.done:
		return
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
	}
	<-s.done
}

// ForTest returns a realm that runs until the test ends, in a folder and on a port of its own. Dir and Port of opts need not be set. The test
// is skipped where MIT Kerberos is not installed, except in CI (the variable CI is set), where it fails.
func ForTest(t testing.TB, opts Options) *KDC {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = filepath.Join(t.TempDir(), "kdc")
	}
	if opts.Port == 0 {
		port, err := freePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		opts.Port = port
	}
	k, err := New(opts)
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := k.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return k
}

// User makes a principal with a keytab in the realm's folder and returns the path of it. It ends the test when that fails.
func (k *KDC) User(t testing.TB, principal string) string {
	t.Helper()
	file := filepath.Join(k.Dir, "user."+fmt.Sprintf("%x", principal)+".keytab")
	err := errors.Join(k.AddPrincipal(t.Context(), principal, ""), k.Keytab(t.Context(), file, principal))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// freePort is one that is free for TCP and UDP at the moment.
func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	var last error
	for range 20 {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("kdc: free port: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := lc.ListenPacket(ctx, "udp", l.Addr().String())
		_ = l.Close()
		if err == nil {
			_ = u.Close()
			return port, nil
		}
		last = err
	}
	return 0, fmt.Errorf("kdc: free port: %w", last)
}
