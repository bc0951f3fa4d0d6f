package minicluster_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func registry() *fs.Registry {
	r := &fs.Registry{}
	r.Register("file", func(context.Context, *url.URL) (fs.FileSystem, error) { return local.New(), nil })
	return r
}

func options(t *testing.T, w *jobtest.World, conf map[string]string) minicluster.Options {
	c := config.Configuration{}
	for k, v := range conf {
		c[k] = v
	}
	return minicluster.Options{Graph: jobtest.Graph(2, 3), Config: c, RunWorker: w.RunWorker, RunCoordinator: w.RunCoordinator, FS: registry(), Dir: t.TempDir(),
		Logger: zerolog.New(zerolog.NewTestWriter(t)).With().Timestamp().Logger()}
}

func run(t *testing.T, o minicluster.Options) minicluster.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := minicluster.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBoundedJobFinishesWithFinalCheckpoint(t *testing.T) {
	w := &jobtest.World{Bounded: true}
	r := run(t, options(t, w, map[string]string{"execution.checkpointing.interval": "1 h"}))
	if r.State != scheduler.JobFinished {
		t.Fatalf("state %s, failure %+v", r.State, r.Failure)
	}
	if n := len(w.Triggers()); n != 1 {
		t.Fatalf("%d checkpoints, want the final one", n)
	}
	if n := len(w.Completed()); n != 1 {
		t.Fatalf("final checkpoint was notified %d times, want once per worker", n)
	}
	if r.Details.Checkpoints.Counts.Completed != 1 {
		t.Fatalf("counts %+v", r.Details.Checkpoints.Counts)
	}
}

// A job that needs more slots than a TaskManager may have gets several.
func TestMoreSlotsThanATaskManagerHas(t *testing.T) {
	w := &jobtest.World{Bounded: true}
	o := options(t, w, nil)
	o.Graph, o.Logger = jobtest.Graph(1, 4500), zerolog.Nop()
	o.Graph.Vertices[1].MaxParallelism = 8192
	if r := run(t, o); r.State != scheduler.JobFinished {
		t.Fatalf("state %s, failure %+v", r.State, r.Failure)
	}
}

// io.tmp.dirs is where everything local goes, also here, and nothing is left in it.
func TestTmpDirs(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	o := options(t, &jobtest.World{Bounded: true}, map[string]string{"io.tmp.dirs": one + "," + two})
	o.Dir = ""
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	c, err := minicluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	for pattern, want := range map[string]int{one + "/thalweg-local-*": 1, one + "/thalweg-tm-*": 1, two + "/thalweg-tm-*": 1} {
		if got, _ := filepath.Glob(pattern); len(got) < want {
			t.Errorf("%s: %v", pattern, got)
		}
	}
	c.Close()
	for _, d := range []string{one, two} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", d, left, err)
		}
	}
	o.Config["io.tmp.dirs"] = "/proc/no/such/folder"
	if _, err := minicluster.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "io.tmp.dirs") {
		t.Errorf("an unusable folder: %v", err)
	}
}

// A savepoint's folder that no file system is for, or in which nothing can be written, is refused at once.
func TestSavepointFolderIsChecked(t *testing.T) {
	o := options(t, &jobtest.World{}, nil)
	o.RESTAddress = "localhost:0"
	c, err := minicluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for dir, want := range map[string]int{"ftp://h/x": http.StatusBadRequest, "relative": http.StatusBadRequest, "file:///proc/sp": http.StatusBadRequest, "file:///etc/passwd/x": http.StatusBadRequest, "file://" + o.Dir + "/sp": http.StatusAccepted} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.RESTURL+"/jobs/"+c.JobID.String()+"/savepoints", strings.NewReader(`{"target-directory":"`+dir+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != want {
			t.Errorf("%s: %d %s, %v", dir, resp.StatusCode, text, err)
		}
	}
}

func TestBoundedJobWithoutCheckpoints(t *testing.T) {
	w := &jobtest.World{Bounded: true}
	o := options(t, w, nil)
	o.TaskManagers = 3
	r := run(t, o)
	if r.State != scheduler.JobFinished || len(w.Triggers()) != 0 {
		t.Fatalf("state %s, %d checkpoints", r.State, len(w.Triggers()))
	}
}
