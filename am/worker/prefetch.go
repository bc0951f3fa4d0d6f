package worker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/ha"
)

// prefetch copies the application's program to this node while the TaskManager registers, so that the start of its first worker does not
// wait for the network. Content is checked by who opens it.
type prefetch struct {
	files  *fs.Registry
	file   container.File
	path   string
	log    zerolog.Logger
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

func startPrefetch(ctx context.Context, files *fs.Registry, f container.File, dir string, log zerolog.Logger) *prefetch {
	ctx, cancel := context.WithCancel(ctx)
	p := &prefetch{files: files, file: f, log: log, path: filepath.Join(dir, "program"), cancel: cancel, done: make(chan struct{})}
	if f.URI == "" { // a session: its jobs come later
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.err = p.copy(ctx)
	}()
	return p
}

func (p *prefetch) copy(ctx context.Context) (err error) {
	in, err := p.remote(ctx, p.file.URI)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(p.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(out, in, make([]byte, 256<<10))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil && n != p.file.Size {
		err = fmt.Errorf("worker: %s has %d bytes, want %d", p.file.URI, n, p.file.Size)
	}
	return err
}

// remote opens a staged file. It waits while the file system is unavailable: a worker that could not be started for that would be a
// failure of the job, which has done nothing wrong.
func (p *prefetch) remote(ctx context.Context, uri string) (in io.ReadCloser, err error) {
	f, path, err := p.files.Resolve(ctx, uri)
	if err != nil {
		return nil, err
	}
	err = ha.Await(ctx, p.log, "fetch "+uri, func(ctx context.Context) error {
		in, err = f.Open(ctx, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return in, nil
}

// open is taskmanager.Options.OpenURI: the copy when it is the application's program and the copy was made, else the store.
func (p *prefetch) open(ctx context.Context, uri string) (io.ReadCloser, error) {
	if uri != p.file.URI {
		return p.remote(ctx, uri)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err == nil {
		if f, err := os.Open(p.path); err == nil {
			return f, nil
		}
	}
	return p.remote(ctx, uri)
}

// stop ends the copying and waits for it.
func (p *prefetch) stop() {
	p.cancel()
	<-p.done
}
