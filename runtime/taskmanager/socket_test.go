package taskmanager

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Job processes start below temporary folders of any length, and nobody else may connect to them.
func TestSocketPath(t *testing.T) {
	for name, base := range map[string]string{"short": "/tmp", "longest that is used": "/tmp/" + strings.Repeat("x", 33), "too long": filepath.Join(t.TempDir(), strings.Repeat("y", 100))} {
		t.Run(name, func(t *testing.T) {
			if base != "/tmp" {
				if err := os.Mkdir(base, 0o700); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(base) })
			}
			t.Setenv("TMPDIR", base)
			dir, sock, err := SocketPath()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			l, err := net.Listen("unix", sock)
			if err != nil {
				t.Fatalf("path of %d bytes: %v", len(sock), err)
			}
			defer func() { _ = l.Close() }()
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("%s: mode %v, %v", dir, st.Mode(), err)
			}
		})
	}
}
