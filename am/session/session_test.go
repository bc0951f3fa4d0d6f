package session

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type jobs map[graph.JobID]dispatcher.Submission

func (j jobs) Submit(_ context.Context, s dispatcher.Submission) (graph.JobID, error) {
	j[s.JobID] = s
	return s.JobID, nil
}

func (j jobs) Name(id graph.JobID) (string, bool) {
	s, ok := j[id]
	if !ok {
		return "", false
	}
	return s.Graph.Name, true
}

type rig struct {
	*Manager
	jobs    jobs
	store   *fault.FileSystem
	running map[string]bool
	full    error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{jobs: jobs{}, store: fault.New(mem.New("nn")), running: map[string]bool{}}
	files := &fs.Registry{}
	files.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return r.store, nil })
	var err error
	r.Manager, err = New(Options{
		Config: config.Configuration{"parallelism.default": "3", "taskmanager.numberOfTaskSlots": "2"}, Dir: t.TempDir(), Files: files, Root: "mem://nn/app/programs", Dispatcher: r.jobs,
		Running: func() map[string]bool { return r.running }, User: func(error) bool { return true },
		Plan: func(_ context.Context, path string, q rest.JobRequest, c config.Configuration) (*graph.JobGraph, error) {
			if len(q.Args) > 0 {
				return nil, errors.New(q.Args[0])
			}
			b, err := os.ReadFile(path)
			return &graph.JobGraph{Name: string(b[:4]) + " " + c["parallelism.default"]}, err
		},
		Room:   func() error { return r.full },
		Folder: func(_ context.Context, _, v string) (string, error) { return "mem://nn" + v, nil },
		Fetch:  func(context.Context, dispatcher.Artifact) (string, error) { return "", errors.New("not fetched") },
		Check: func(file string) error {
			if b, err := os.ReadFile(file); err != nil || bytes.HasPrefix(b, []byte("#!")) {
				return errors.New("it is a script")
			}
			return nil
		},
		Logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func programOf(content string) rest.Program {
	sum := sha256.Sum256([]byte(content))
	return rest.Program{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content)), Name: "job"}
}

func (r *rig) send(t *testing.T, content string) rest.Program {
	t.Helper()
	p := programOf(content)
	if _, ok, err := r.Append(t.Context(), p, 0, strings.NewReader(content)); err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	return p
}

func refused(t *testing.T, err error, status int, want string) {
	t.Helper()
	var x *rest.Refusal
	if !errors.As(err, &x) || x.Status != status || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %d %q", err, status, want)
	}
}

// A program whose upload broke is taken up where it broke, and is there only when all of it is, and is what its name says.
func TestUploadIsTakenUpAgain(t *testing.T) {
	r := newRig(t)
	const content = "prog0123456789"
	p := programOf(content)
	_, _, err := r.Append(t.Context(), p, 0, strings.NewReader(content))
	refused(t, err, 503, "starts")
	r.Ready()
	if have, ok, err := r.Append(t.Context(), p, 0, strings.NewReader(content[:5])); have != 5 || ok || err != nil {
		t.Fatalf("%d, %v, %v", have, ok, err)
	}
	have, _, err := r.Append(t.Context(), p, 0, strings.NewReader(content))
	if refused(t, err, 409, "begins at 5"); have != 5 {
		t.Errorf("%d bytes there", have)
	}
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p})
	refused(t, err, 409, "send it first")
	r.store.Set(fault.When(fault.First(1, fault.Any("")), fault.Fail(fs.ErrUnavailable)))
	if _, _, err := r.Append(t.Context(), p, 5, strings.NewReader(content[5:])); !errors.Is(err, fs.ErrUnavailable) {
		t.Errorf("the store is away: %v", err)
	}
	if have, ok, err := r.Uploaded(t.Context(), p); have != 5 && have != p.Size || ok || err != nil {
		t.Errorf("%d, %v, %v", have, ok, err)
	}
	have, _, _ = r.Uploaded(t.Context(), p)
	if have, ok, err := r.Append(t.Context(), p, have, strings.NewReader(content[have:])); have != p.Size || !ok || err != nil {
		t.Errorf("%d, %v, %v", have, ok, err)
	}
	if b, err := fs.ReadFile(t.Context(), r.store, "/app/programs/"+p.SHA256, 100); err != nil || string(b) != content {
		t.Errorf("%q, %v", b, err)
	}
	wrong := programOf("another content")
	_, _, err = r.Append(t.Context(), wrong, 0, strings.NewReader("abother content"))
	refused(t, err, 422, "send it again")
	if have, _, _ := r.Uploaded(t.Context(), wrong); have != 0 {
		t.Errorf("%d bytes of a damaged program are kept", have)
	}
	script := programOf("#!/bin/sh\n")
	_, _, err = r.Append(t.Context(), script, 0, strings.NewReader("#!/bin/sh\n"))
	refused(t, err, 422, "script")
	if list, err := filepath.Glob(filepath.Join(r.programs.dir, "part-*")); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// What a job brings stands over the session's options; folders become those that all containers see.
func TestJobsConfiguration(t *testing.T) {
	r := newRig(t)
	r.Ready()
	p := r.send(t, "prog")
	a, err := r.Submit(t.Context(), rest.JobRequest{Program: p, Config: map[string]string{"execution.checkpointing.dir": "/ckp", "client.timeout": "1 s"}})
	if err != nil || a.Name != "prog 3" {
		t.Fatalf("%+v, %v", a, err)
	}
	b, err := r.Submit(t.Context(), rest.JobRequest{JobID: strings.Repeat("ab", 16), Program: p, Config: map[string]string{"parallelism.default": "7"}})
	if err != nil || b.Name != "prog 7" || b.JobID != strings.Repeat("ab", 16) {
		t.Fatalf("%+v, %v", b, err)
	}
	for id, s := range r.jobs {
		if id.String() == a.JobID && fmt.Sprint(s.Config) != "map[execution.checkpointing.dir:mem://nn/ckp]" || s.Artifact.URI != "mem://nn/app/programs/"+p.SHA256 || s.Artifact.Path == "" {
			t.Errorf("%+v", s)
		}
	}
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p, Args: []string{"no topic"}})
	refused(t, err, 422, "no topic")
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p, Config: map[string]string{"parallelism.default": "9", "pipeline.max-parallelism": "8"}})
	refused(t, err, 400, "parallelism.default = 9 is above")
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p, JobID: "x"})
	refused(t, err, 400, "32 hex digits")
	r.full = errors.New("no room")
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p})
	refused(t, err, 409, "no room")
	r.full = nil
	r.Close()
	_, err = r.Submit(t.Context(), rest.JobRequest{Program: p})
	refused(t, err, 410, "shut down")
	if again, err := r.Submit(t.Context(), rest.JobRequest{Program: p}); err == nil {
		t.Errorf("%+v", again)
	}
}

// Many programs come and go: those that no job runs are removed, but for the last ones.
func TestUnusedProgramsGo(t *testing.T) {
	r := newRig(t)
	r.Ready()
	used := r.send(t, "used")
	r.running[used.SHA256] = true
	for i := range 3 * keepUnused {
		r.send(t, fmt.Sprintf("program %d", i))
	}
	stored, err := r.store.List(t.Context(), "/app/programs")
	local, lerr := filepath.Glob(filepath.Join(r.programs.dir, "*"))
	if err != nil || lerr != nil || len(stored) > keepUnused+2 || len(local) > keepUnused+2 || len(r.programs.all) > keepUnused+2 {
		t.Errorf("%d stored, %d here, %d known, %v, %v", len(stored), len(local), len(r.programs.all), err, lerr)
	}
	if _, ok, err := r.Uploaded(t.Context(), used); !ok || err != nil {
		t.Errorf("a program that runs is gone: %v, %v", ok, err)
	}
}

// Uploads that nobody goes on with do not keep others out for ever, and there are never many.
func TestUploadsAreBounded(t *testing.T) {
	r := newRig(t)
	r.Ready()
	for i := range maxPartial {
		if _, _, err := r.Append(t.Context(), programOf(fmt.Sprintf("part %d", i)), 0, strings.NewReader("p")); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := r.Append(t.Context(), programOf("one more"), 0, strings.NewReader("o"))
	refused(t, err, 429, "try again")
}
