package taskmanager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// A TaskManager of a session serves many programs, and keeps the ones that it used last.
func TestProgramsThatAreNotUsedGo(t *testing.T) {
	fetched := 0
	a := &artifacts{dir: filepath.Join(t.TempDir(), "artifacts"), open: func(_ context.Context, uri string) (io.ReadCloser, error) {
		fetched++
		return io.NopCloser(strings.NewReader(uri)), nil
	}}
	get := func(i int) string {
		t.Helper()
		uri := fmt.Sprintf("mem://x/program-%d", i)
		sum := sha256.Sum256([]byte(uri))
		p, err := a.get(t.Context(), &pb.Artifact{Uri: uri, Sha256: hex.EncodeToString(sum[:])})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := get(0)
	for i := range 3 * keepArtifacts {
		get(i + 1)
		if get(0) != first {
			t.Fatal("another path")
		}
	}
	list, err := os.ReadDir(a.dir)
	if err != nil || len(list) > keepArtifacts+1 || fetched != 1+3*keepArtifacts {
		t.Errorf("%d programs are kept, %d were fetched, %v", len(list), fetched, err)
	}
}
