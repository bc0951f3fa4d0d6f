package taskmanager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// maxArtifact bounds the size of a job's binary, bytes.
const maxArtifact = 4 << 30

// artifacts caches job binaries by their content.
type artifacts struct {
	dir  string
	open func(ctx context.Context, uri string) (io.ReadCloser, error)
	blob func(ctx context.Context, key string, w io.Writer) error
	mu   sync.Mutex // one fetch at a time: there are few, and two of the same file are no use
}

// get returns the path of an executable copy whose content has been verified.
func (a *artifacts) get(ctx context.Context, art *pb.Artifact) (string, error) {
	sum := art.GetSha256()
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("taskmanager: fetch artifact %s: %q is no SHA-256", art.GetUri(), sum)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path := filepath.Join(a.dir, sum)
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return path, os.Chtimes(path, now, now) // it is of use
	}
	a.prune()
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return "", fmt.Errorf("taskmanager: fetch artifact: %w", err)
	}
	tmp, err := os.CreateTemp(a.dir, "fetch-")
	if err != nil {
		return "", fmt.Errorf("taskmanager: fetch artifact: %w", err)
	}
	got := sum
	if art.GetUri() == "blob:"+sum {
		err = a.blob(ctx, sum, tmp) // verifies the content itself
	} else {
		h := sha256.New()
		err = a.copy(ctx, art.GetUri(), io.MultiWriter(tmp, h))
		got = hex.EncodeToString(h.Sum(nil))
	}
	err = errors.Join(err, tmp.Close())
	if err == nil && got != sum {
		err = fmt.Errorf("its SHA-256 is %s, not %s: the file was changed after the submission", got, sum)
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o500)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("taskmanager: fetch artifact %s: %w", art.GetUri(), errors.Join(err, os.RemoveAll(tmp.Name())))
	}
	return path, nil
}

// keepArtifacts is how many binaries stay beside a new one. A worker that runs one that has gone runs on; to start again it is fetched again.
const keepArtifacts = 8

// prune removes those that were not used for longest. Called with the lock.
func (a *artifacts) prune() {
	list, err := os.ReadDir(a.dir)
	if err != nil || len(list) <= keepArtifacts {
		return
	}
	used := map[string]time.Time{}
	for _, e := range list {
		if i, err := e.Info(); err == nil {
			used[e.Name()] = i.ModTime()
		}
	}
	slices.SortFunc(list, func(x, y os.DirEntry) int { return used[y.Name()].Compare(used[x.Name()]) })
	for _, e := range list[keepArtifacts:] {
		_ = os.Remove(filepath.Join(a.dir, e.Name())) // the next one tries again
	}
}

func (a *artifacts) copy(ctx context.Context, uri string, w io.Writer) error {
	if key, ok := strings.CutPrefix(uri, "blob:"); ok {
		return a.blob(ctx, key, w)
	}
	if a.open == nil {
		return errors.New("this TaskManager can fetch from the blob store only")
	}
	r, err := a.open(ctx, uri)
	if err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(r, maxArtifact+1))
	if n > maxArtifact {
		err = fmt.Errorf("larger than %d bytes", int64(maxArtifact))
	}
	return errors.Join(err, r.Close())
}
