package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rest"
)

// planners is how many programs are asked for their graphs at a time.
const planners = 2

// Dispatcher is the part of dispatcher.Dispatcher that a session needs.
type Dispatcher interface {
	Submit(ctx context.Context, s dispatcher.Submission) (graph.JobID, error)
	Name(id graph.JobID) (name string, known bool)
}

// Options make a Manager.
type Options struct {
	Config     config.Configuration // the session's
	Dir        string               // local folder for programs
	Files      *fs.Registry
	Root       string // URI of the folder of programs in the application's
	Dispatcher Dispatcher
	// Running are the hashes of the programs that jobs run.
	Running func() map[string]bool
	// Room says why there is no room for another job, nil for there is.
	Room func() error
	// Plan asks the program at path for its graph. An error that is User's comes back to the caller as it is.
	Plan func(ctx context.Context, path string, r rest.JobRequest, c config.Configuration) (*graph.JobGraph, error)
	// User reports whether an error of Plan is the caller's to mend.
	User func(error) bool
	// Folder returns the full URI of a folder that an option names.
	Folder func(ctx context.Context, key, value string) (string, error)
	// Fetch copies a stored program to this machine.
	Fetch func(ctx context.Context, a dispatcher.Artifact) (string, error)
	// Check refuses a file that is no job; nil for artifact.CheckFor.
	Check  func(file string) error
	Logger zerolog.Logger
}

// Manager takes the jobs of a session. Safe for concurrent use.
type Manager struct {
	opts     Options
	log      zerolog.Logger
	programs programs
	plans    chan struct{}

	mu     sync.Mutex
	ready  bool
	closed bool
}

var _ rest.Session = (*Manager)(nil)

// New makes a Manager, which takes nothing before Ready.
func New(o Options) (*Manager, error) {
	dir := filepath.Join(o.Dir, "programs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &Manager{opts: o, log: o.Logger.With().Str("component", "session").Logger(), plans: make(chan struct{}, planners),
		programs: programs{dir: dir, files: o.Files, root: o.Root, all: map[string]*program{}}}, nil
}

// Ready opens the session: the jobs of earlier attempts are known.
func (m *Manager) Ready() {
	m.mu.Lock()
	m.ready = true
	m.mu.Unlock()
}

// Close refuses jobs from now on.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

func (m *Manager) open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return &rest.Refusal{Status: http.StatusGone, Text: "the session is being shut down"}
	case !m.ready:
		return &rest.Refusal{Status: http.StatusServiceUnavailable, Text: "the session starts; try again in a moment"}
	}
	return nil
}

func refuse(format string, args ...any) error {
	return &rest.Refusal{Status: http.StatusBadRequest, Text: fmt.Sprintf(format, args...)}
}

// Submit implements rest.Session. A request that is repeated with its job id is the same job.
func (m *Manager) Submit(ctx context.Context, r rest.JobRequest) (out rest.JobAccepted, err error) {
	if err := m.open(); err != nil {
		return out, err
	}
	id := graph.JobID{ID: graph.NewID()}
	if r.JobID != "" {
		if id.ID, err = graph.ParseID(r.JobID); err != nil || id.IsZero() {
			return out, refuse("jobId %q: want 32 hex digits", r.JobID)
		}
	}
	r.JobID = id.String()
	if name, known := m.opts.Dispatcher.Name(id); known {
		return rest.JobAccepted{JobID: r.JobID, Name: name}, nil
	}
	if err := m.opts.Room(); err != nil {
		return out, &rest.Refusal{Status: http.StatusConflict, Text: err.Error()}
	}
	own, effective, err := m.configuration(ctx, r.Config)
	if err != nil {
		return out, err
	}
	p, err := m.programs.get(r.Program.SHA256)
	if err != nil {
		return out, err
	}
	defer m.programs.done(p)
	a, err := m.artifact(ctx, p, r.Program)
	if err != nil {
		return out, err
	}
	select {
	case m.plans <- struct{}{}:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	g, err := m.opts.Plan(ctx, a.Path, r, effective)
	<-m.plans
	if err != nil {
		if m.opts.User(err) {
			return out, &rest.Refusal{Status: http.StatusUnprocessableEntity, Text: err.Error()}
		}
		return out, err
	}
	for _, w := range g.Warnings {
		m.log.Warn().Str("job_id", r.JobID).Str("warning", w).Msg("job graph")
	}
	if err := m.open(); err != nil { // planning takes a while
		return out, err
	}
	if _, err = m.opts.Dispatcher.Submit(context.WithoutCancel(ctx), dispatcher.Submission{JobID: id, Graph: g, Args: r.Args, Config: own, Artifact: a}); err != nil {
		if name, known := m.opts.Dispatcher.Name(id); known { // the same request, beside this one
			return rest.JobAccepted{JobID: r.JobID, Name: name}, nil
		}
		return out, err
	}
	m.log.Info().Str("job_id", r.JobID).Str("name", g.Name).Str("program", a.Name).Msg("job submitted")
	return rest.JobAccepted{JobID: r.JobID, Name: g.Name, Warnings: g.Warnings}, nil
}

// artifact is the program with a local copy.
func (m *Manager) artifact(ctx context.Context, p *program, want rest.Program) (dispatcher.Artifact, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := dispatcher.Artifact{SHA256: p.sum, Size: want.Size, Name: want.Name}
	ok, err := m.programs.stored(ctx, p, want.Size)
	if err != nil {
		return a, err
	}
	if !ok {
		return a, &rest.Refusal{Status: http.StatusConflict, Text: fmt.Sprintf("the program %s (%.12s) is not here: send it first (PATCH programs/SHA256)", want.Name, p.sum)}
	}
	a.URI = p.uri
	a.Path, err = m.local(ctx, p, a)
	return a, err
}

// folders are the options of a job that name folders of all containers.
func folders() []*config.Option[string] {
	return []*config.Option[string]{config.CheckpointDir, config.SavepointDir, config.SavepointPath}
}

// configuration checks what a job brings, and returns it with full URIs, and with the session's below it.
func (m *Manager) configuration(ctx context.Context, c map[string]string) (own, effective config.Configuration, err error) {
	own = maps.Clone(config.Configuration(c))
	if own == nil {
		own = config.Configuration{}
	}
	if keys := own.ClusterKeys(); len(keys) > 0 {
		return nil, nil, refuse("%s", config.SessionKeys(keys))
	}
	own = own.ExecutionLevel()
	if err := config.ValidateKeys(own, config.Passthrough()...); err != nil {
		return nil, nil, refuse("%s", err)
	}
	for _, o := range folders() {
		v := o.Value(own)
		if v == "" {
			continue
		}
		uri, err := m.opts.Folder(ctx, o.Key, v)
		if err != nil {
			return nil, nil, refuse("%s", err)
		}
		o.Set(own, uri)
	}
	effective = config.Merge(m.opts.Config, own)
	if err := config.Check(effective); err != nil {
		return nil, nil, refuse("%s", err)
	}
	if p, most := config.Parallelism.Value(effective), config.MaxParallelism.Value(effective); most > 0 && p > most {
		return nil, nil, refuse("%s = %d is above %s = %d", config.Parallelism.Key, p, config.MaxParallelism.Key, most)
	}
	if uri := config.SavepointPath.Value(own); uri != "" {
		if _, err := storage.ReadMetadata(ctx, m.opts.Files, uri); err != nil && !errors.Is(err, fs.ErrUnavailable) {
			return nil, nil, refuse("start from a savepoint (%s): %s", config.SavepointPath.Key, err)
		}
	}
	return own, effective, nil
}

// Local returns the path of a local copy of a job's program, which is fetched once: jobs of one program share it.
func (m *Manager) Local(ctx context.Context, a dispatcher.Artifact) (string, error) {
	p, err := m.programs.get(a.SHA256)
	if err != nil {
		return "", err
	}
	defer m.programs.done(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.local(ctx, p, a)
}

// local is Local with p.mu.
func (m *Manager) local(ctx context.Context, p *program, a dispatcher.Artifact) (path string, err error) {
	if p.path == "" {
		p.path, err = m.opts.Fetch(ctx, a)
	}
	return p.path, err
}
