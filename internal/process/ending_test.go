package process

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// A connection that its other side has closed ends itself, not the process, although writing to it raises SIGPIPE; SIGTERM does.
func TestClosedConnectionIsNoEnd(t *testing.T) {
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGPIPE)
	defer signal.Stop(seen)
	ctx, stop := Ending(t.Context())
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = c.Write([]byte("hello"))
		if errors.Is(err, syscall.ECONNRESET) {
			err = nil // what the next write finds is the closed pipe
		}
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	<-seen
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); cause.Error() != "terminated signal received" {
		t.Errorf("ended by %v", cause)
	}
}

// A pipe is unread when its reader is closed, and then only; a file never is.
func TestUnread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // a test
	if unread(w) {
		t.Error("a pipe with a reader")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !unread(w) {
		t.Error("a pipe without a reader")
	}
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	if unread(f) {
		t.Error("a file")
	}
}
