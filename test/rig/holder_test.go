package rig

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Who has a port is told: a process that listens, a connection, a closed connection, for which nothing can be done but wait.
func TestHolderOfAPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	me := fmt.Sprintf("process %d", os.Getpid())
	if got := holderOf(port).text(port); !strings.Contains(got, "taken by "+me) || !strings.Contains(got, "THALWEG_PORT_BASE") {
		t.Error(got)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if got := holderOf(port).text(port); !strings.Contains(got, "a connection of "+me) {
		t.Error(got)
	}
	_ = server.Close() // the side that closes first keeps the port
	_, _ = io.Copy(io.Discard, client)
	_ = client.Close()
	for deadline := time.Now().Add(time.Minute); !holderOf(port).waits && time.Now().Before(deadline); { // until the kernel has taken in the last packet
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
	if h := holderOf(port); !h.waits || !strings.Contains(h.text(port), "TIME_WAIT") || !strings.Contains(h.text(port), "within a minute") {
		t.Errorf("%+v %s", h, h.text(port))
	}
	if h := holderOf(1); h.known {
		t.Errorf("%+v", h)
	}
}

// What the rig has made is removed, the jars and what others have put there stay.
func TestPurgeRemovesWhatTheRigHasMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	l, err := openLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	made := func() *Cluster {
		if err := l.make(); err != nil {
			t.Fatal(err)
		}
		s := state{Version: stateVersion, PortBase: 18000, Daemons: AllDaemons()}
		for _, f := range []string{l.auto(), filepath.Join(dir, "users"), filepath.Join(l.confOf("nodemanager-1"), "x.xml"), filepath.Join(l.webapps(), "x"), filepath.Join(l.data("kafka"), "x"), filepath.Join(l.tmp("kafka"), "x"), l.log("kafka"), l.pid("kafka")} {
			if err := writeFile(f, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.save(s); err != nil {
			t.Fatal(err)
		}
		c, err := Attach(dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := made().Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	c := made()
	if err := writeFile(filepath.Join(dir, "jars", "hadoop", "x.jar"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "jars" {
		t.Errorf("left: %v", left)
	}
}
