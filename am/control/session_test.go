package control_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/runtime/rest"
)

// shaky is a session's side of an upload that breaks off connections.
type shaky struct {
	mu    sync.Mutex
	got   bytes.Buffer
	parts int
}

func (s *shaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	if r.Method == http.MethodPatch {
		s.parts++
		at, _ := strconv.Atoi(r.Header.Get(rest.UploadOffset))
		if at != s.got.Len() {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"errors":["not there"]}`) //nolint:errcheck // a test
			return
		}
		if s.parts%2 == 1 { // a part of it arrives, and the connection is lost
			_, _ = io.CopyN(&s.got, r.Body, 3<<20)
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(&s.got, r.Body)
	}
	fmt.Fprintf(w, `{"offset":%d,"complete":%v}`, s.got.Len(), s.got.Len() == size) //nolint:errcheck // a test
}

// An upload whose connections are lost goes on where they broke, and arrives whole.
func TestUploadGoesOnWhereItBroke(t *testing.T) {
	content := make([]byte, 20<<20)
	for i := range content {
		content[i] = byte(i * 7)
	}
	file := filepath.Join(t.TempDir(), "job")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := control.ProgramOf(file)
	if sum := sha256.Sum256(content); err != nil || p.SHA256 != hex.EncodeToString(sum[:]) || p.Size != int64(len(content)) || p.Name != "job" {
		t.Fatalf("%+v, %v", p, err)
	}
	s := &shaky{}
	web := httptest.NewUnstartedServer(s)
	web.Config.ErrorLog = nil
	web.Start()
	defer web.Close()
	r := control.NewREST(web.URL, time.Minute)
	defer r.Close()
	last := int64(-1)
	if _, err := r.Upload(t.Context(), file, p, func(there, _ int64) {
		if there < last {
			t.Errorf("%d after %d", there, last)
		}
		last = there
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.got.Bytes(), content) {
		t.Errorf("%d bytes arrived, of %d", s.got.Len(), len(content))
	}
	if sent, err := r.Upload(t.Context(), file, p, nil); sent != 0 || err != nil {
		t.Errorf("%d bytes of a program that is there, %v", sent, err)
	}
}

// A session of another release is told with both versions, before anything is sent.
func TestSessionOfAnotherProtocol(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"flink-version":"9.9.9","protocol":99,"session":true}`) //nolint:errcheck // a test
	}))
	defer web.Close()
	r := control.NewREST(web.URL, time.Minute)
	defer r.Close()
	var which *control.SelectionError
	if err := r.CheckProtocol(t.Context()); !errors.As(err, &which) || !strings.Contains(err.Error(), "version 9.9.9 with protocol 99") || !strings.Contains(err.Error(), "with protocol 3") {
		t.Errorf("%v", err)
	}
}
