package worker

import (
	"context"
	"errors"
	"io"
	iofs "io/fs"
	"net/url"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The NameNode is away when a TaskManager fetches the job's program: it waits, so that the outage is no failure of the job.
func TestProgramIsFetchedWhenTheFileSystemIsBack(t *testing.T) {
	below := mem.New("nn")
	if err := fs.WriteFile(t.Context(), below, "/lib/job", []byte("program"), true); err != nil {
		t.Fatal(err)
	}
	f := fault.New(below, fault.When(fault.First(2, fault.Any("")), fault.Fail(fs.ErrUnavailable)))
	files := &fs.Registry{}
	files.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return f, nil })
	p := startPrefetch(t.Context(), files, container.File{URI: "mem://nn/lib/job", Size: 7}, t.TempDir(), zerolog.Nop())
	defer p.stop()
	for range 2 { // the copy serves again after a death of the worker
		in, err := p.open(t.Context(), "mem://nn/lib/job")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil || string(b) != "program" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if p.err != nil {
		t.Error(p.err)
	}
	if _, err := p.open(t.Context(), "mem://nn/lib/other"); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("%v, want what no waiting changes at once", err)
	}
	f.Set(fault.When(fault.Any(""), fault.Fail(fs.ErrUnavailable)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.open(ctx, "mem://nn/lib/other"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the wait with its context", err)
	}
}
