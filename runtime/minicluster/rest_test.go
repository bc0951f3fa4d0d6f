package minicluster

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

// Of a range of ports the first that is free is taken; a single one that is taken is an error.
func TestFirstFreePort(t *testing.T) {
	taken, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // a test
	port := taken.Addr().(*net.TCPAddr).Port
	s, err := listen(t.Context(), fmt.Sprintf("localhost:%d-%d", port, min(port+50, 65535)), http.NotFoundHandler(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Addr.(*net.TCPAddr).Port; got <= port || got > port+50 {
		t.Errorf("port %d, with %d taken", got, port)
	}
	s.Close()
	for _, address := range []string{fmt.Sprintf("localhost:%d", port), fmt.Sprintf("localhost:%d-%d", port, port)} {
		if _, err := listen(t.Context(), address, http.NotFoundHandler(), zerolog.Nop()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := listen(t.Context(), "localhost:9-x", http.NotFoundHandler(), zerolog.Nop()); err == nil {
		t.Error("no range is taken for one")
	}
}
