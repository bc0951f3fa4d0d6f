package submit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/staging"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// YARN is the ResourceManager's side, as yarnrpc/client.Client speaks to it.
type YARN interface {
	NewApplication(ctx context.Context) (yarn.ApplicationID, yarn.Resource, error)
	Queue(ctx context.Context, name string) (*yarnpb.QueueInfoProto, error)
	Submit(ctx context.Context, app *yarnpb.ApplicationSubmissionContextProto) error
	Kill(ctx context.Context, id yarn.ApplicationID, diagnostics string) error
	Report(ctx context.Context, id yarn.ApplicationID) (*yarnpb.ApplicationReportProto, error)
}

// Request is a submission. Config has been validated.
type Request struct {
	YARN     YARN
	FS       *fs.Registry
	Hadoop   *conf.Configuration
	Config   config.Configuration
	User     string
	Artifact string   // path of the job's binary, checked
	Args     []string // the program's
	LibDir   string   // folder of thalweg-appmaster and thalweg-taskmanager
	// Tokens adds the delegation tokens that the application needs; nil on clusters without Kerberos.
	Tokens func(ctx context.Context, c *token.Credentials) error
	// OnPhase is called at the end of each phase.
	OnPhase func(Phase)
	// Progress is called while files are sent.
	Progress staging.Progress
	Logger   zerolog.Logger
}

// Phase is a step of a submission with its duration.
type Phase struct {
	Name string        `json:"phase"`
	Took time.Duration `json:"-"`
	Ms   float64       `json:"ms"`
}

// Result is a submission that YARN accepted.
type Result struct {
	ID        yarn.ApplicationID
	JobID     string
	Name      string
	Staging   string // URI of the application's folder
	HA        string // URI of its high-availability data
	Sent      int64  // bytes
	Artifacts []staging.Artifact
	Phases    []Phase
}

// LibError says that one of the product's own programs is missing.
type LibError struct{ Path string }

func (e *LibError) Error() string {
	return fmt.Sprintf("submit: %s is missing: the programs %s and %s belong beside the thalweg binary, or into the folder that THALWEG_LIB_DIR names",
		e.Path, am.MasterBinary, am.TaskManagerBinary)
}

// Submit brings the application to YARN.
//
// Errors: *client.UnreachableError, *client.QueueNotFoundError, *client.SubmissionError, *staging.Error, *SizeError, *LibError, and others
// of one line.
func Submit(ctx context.Context, r Request) (res *Result, err error) {
	r.Config = r.Config.Clone()
	qualify(r.Config, r.Hadoop)
	s := &submission{Request: r, start: time.Now(), last: time.Now(), res: &Result{JobID: graph.NewID().String()}}
	defer func() {
		if err != nil {
			if uerr := s.undo(ctx); uerr != nil {
				err = fmt.Errorf("%w; and what was begun could not be taken back: %w", err, uerr)
			}
		}
	}()
	files := []string{filepath.Join(r.LibDir, am.MasterBinary), filepath.Join(r.LibDir, am.TaskManagerBinary), r.Artifact}
	for _, f := range files[:2] {
		if _, err := os.Stat(f); err != nil {
			return nil, &LibError{Path: f}
		}
	}
	if _, err := memory.ForTaskManager(r.Config); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.phase("check")
	sweep, endSweep := context.WithCancel(ctx)
	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.sweep(sweep) })
	defer sweeping.Wait()
	defer endSweep() // a submission never waits for it
	if err := s.stage(ctx, files); err != nil {
		return nil, err
	}
	s.phase("stage")
	if err := s.send(ctx); err != nil {
		return nil, err
	}
	s.phase("submit")
	return s.res, nil
}

type submission struct {
	Request
	start, last time.Time
	res         *Result
	store       *staging.Store
	submitted   bool
}

func (s *submission) phase(name string) {
	now := time.Now()
	p := Phase{Name: name, Took: now.Sub(s.last), Ms: float64(now.Sub(s.last).Microseconds()) / 1000}
	s.last = now
	s.res.Phases = append(s.res.Phases, p)
	if s.OnPhase != nil {
		s.OnPhase(p)
	}
}

func (s *submission) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	if s.submitted {
		if err := s.YARN.Kill(ctx, s.res.ID, "the submission was given up"); !errors.Is(err, yarn.ErrApplicationNotFound) {
			errs = append(errs, err)
		}
	}
	if s.store != nil {
		errs = append(errs, s.store.Undo(ctx))
	}
	return errors.Join(errs...)
}

// prepare runs the two sides at the same time: what the ResourceManager says, and what the file system says.
func (s *submission) prepare(ctx context.Context) error {
	side, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct{ yarn, fs error }
	var got outcome
	done := make(chan struct{})
	go func() {
		defer close(done)
		got.fs = s.checkFiles(side)
	}()
	if got.yarn = s.checkYARN(side); got.yarn != nil {
		cancel()
	}
	<-done
	if got.yarn != nil {
		return got.yarn
	}
	if got.fs == nil && config.CheckpointDir.Value(s.Config) == "" { // only now: both sides read the configuration
		config.CheckpointDir.Set(s.Config, s.store.URI(staging.CheckpointDir))
	}
	return got.fs
}

// SizeError says that a container is larger than the cluster grants.
type SizeError struct {
	What    string // "application master", "TaskManager"
	Size    yarn.Resource
	Largest yarn.Resource
	Keys    string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("submit: the container of the %s (%s) is larger than the cluster's maximum (%s): lower %s", e.What, e.Size, e.Largest, e.Keys)
}

// sizes are the containers of the two kinds.
func sizes(c config.Configuration) (master, worker yarn.Resource) {
	mb := func(b config.Bytes) int64 { return (int64(b) + 1<<20 - 1) >> 20 }
	return yarn.Resource{MemoryMB: mb(config.JobManagerMemory.Value(c)), VCores: int32(config.YarnMasterCores.Value(c))}, //nolint:gosec // cores are few
		yarn.Resource{MemoryMB: mb(config.TaskManagerMemory.Value(c)), VCores: int32(memory.WorkerCores(c))} //nolint:gosec // cores are few
}

func (s *submission) checkYARN(ctx context.Context) error {
	id, largest, err := s.YARN.NewApplication(ctx)
	if err != nil {
		return err
	}
	s.res.ID = id
	master, worker := sizes(s.Config)
	if !master.Fits(largest) {
		return &SizeError{"application master", master, largest, config.JobManagerMemory.Key + " or " + config.YarnMasterCores.Key}
	}
	if !worker.Fits(largest) {
		return &SizeError{"TaskManager", worker, largest, config.TaskManagerMemory.Key + " or " + config.YarnContainerCores.Key}
	}
	name := s.queue()
	q, err := s.YARN.Queue(ctx, name)
	switch {
	case err != nil:
		var missing *client.QueueNotFoundError
		if errors.As(err, &missing) {
			return fmt.Errorf("%w (set with %s)", err, config.YarnQueue.Key)
		}
		return err
	case q.GetState() != yarnpb.QueueStateProto_Q_RUNNING:
		return fmt.Errorf("submit: queue %q accepts no applications (%s): choose another with -D%s=...", name, q.GetState(), config.YarnQueue.Key)
	case len(q.GetChildQueues()) > 0:
		return fmt.Errorf("submit: queue %q is a parent queue: choose one of its children with -D%s=...", name, config.YarnQueue.Key)
	}
	return nil
}

func (s *submission) queue() string {
	if q := config.YarnQueue.Value(s.Config); q != "" {
		return q
	}
	return "default"
}

// Root is the URI of the staging root: yarn.staging-directory, else .thalweg in the user's home of the default file system.
func Root(c config.Configuration, hadoop *conf.Configuration, user string) (string, error) {
	def, err := hadoop.DefaultFS()
	if err != nil {
		return "", err
	}
	root := config.YarnStaging.Value(c)
	switch {
	case root == "":
		root = strings.TrimSuffix(def, "/") + "/user/" + user + "/.thalweg"
	case strings.HasPrefix(root, "/"):
		root = strings.TrimSuffix(def, "/") + root
	}
	if u, err := url.Parse(root); err != nil || u.Scheme == "" || u.Path == "" || u.Path == "/" {
		return "", fmt.Errorf("submit: %s = %q is no folder: give a URI such as hdfs://namenode:8020/user/%s/.thalweg", config.YarnStaging.Key, root, user)
	}
	return root, nil
}

// Qualify writes the default file system's address into a URI without one (hdfs:///x), so that it names the same folder everywhere.
func Qualify(uri string, hadoop *conf.Configuration) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" || u.Scheme == "file" || u.Host != "" || u.Path == "" {
		return uri
	}
	def, err := hadoop.DefaultFS()
	if err != nil {
		return uri
	}
	if d, err := url.Parse(def); err == nil && d.Scheme == u.Scheme {
		u.Host = d.Host
		return u.String()
	}
	return uri
}

// qualify does so for all options that name folders.
func qualify(c config.Configuration, hadoop *conf.Configuration) {
	for _, o := range []*config.Option[string]{config.CheckpointDir, config.SavepointDir, config.SavepointPath, config.HADir, config.YarnStaging} {
		if v := o.Value(c); v != "" {
			o.Set(c, Qualify(v, hadoop))
		}
	}
}

func (s *submission) checkFiles(ctx context.Context) error {
	root, err := Root(s.Config, s.Hadoop, s.User)
	if err != nil {
		return err
	}
	f, p, err := s.FS.Resolve(ctx, root)
	if err != nil {
		return s.unreachable(config.YarnStaging.Key, root, err)
	}
	if s.store, err = staging.Open(ctx, f, p, s.User); err != nil {
		return s.unreachable(config.YarnStaging.Key, root, err)
	}
	if config.CheckpointDir.Value(s.Config) == "" {
		return nil // below the staging root, see prepare
	}
	return s.checkCheckpoints(ctx)
}

// unreachable names the key of an address that nobody answers at.
func (s *submission) unreachable(key, uri string, err error) error {
	if errors.Is(err, fs.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		var st *staging.Error
		if errors.As(err, &st) {
			err = st.Err
		}
		from := key
		if !config.YarnStaging.IsSet(s.Config) && key == config.YarnStaging.Key {
			from = conf.KeyDefaultFS
			if file := s.Hadoop.Source(conf.KeyDefaultFS); file != "" {
				from += " in " + file
			}
		}
		return fmt.Errorf("submit: the file system of %s does not answer within %s: %w (address from %s: check it, and that the NameNode runs)",
			uri, config.ClientConnectTimeout.Value(s.Config), err, from)
	}
	return err
}

// checkCheckpoints makes the folder and writes a file into it: a job that can never store a checkpoint is refused here.
func (s *submission) checkCheckpoints(ctx context.Context) error {
	uri := config.CheckpointDir.Value(s.Config)
	if strings.HasPrefix(uri, "/") || strings.HasPrefix(uri, "file:") {
		return nil // a folder of the nodes, which this machine need not have
	}
	f, p, err := s.FS.Resolve(ctx, uri)
	if err != nil {
		return s.unreachable(config.CheckpointDir.Key, uri, err)
	}
	made := false
	if _, serr := f.Stat(ctx, p); errors.Is(serr, iofs.ErrNotExist) {
		made = true
		err = f.Mkdir(ctx, p, 0o700)
	}
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails, by its contract
	probe := path.Join(p, ".probe-"+hex.EncodeToString(name))
	if err == nil {
		err = fs.WriteFile(ctx, f, probe, nil, false)
	}
	if err == nil {
		err = f.Remove(ctx, probe, false)
	}
	if err == nil {
		return nil
	}
	if made {
		_ = f.Remove(ctx, p, false) // only when empty; the first error is the one to tell
	}
	if errors.Is(err, iofs.ErrPermission) {
		return fmt.Errorf("submit: the checkpoint folder %s cannot be written by user %s: choose another with -D%s=..., or change its permissions", uri, s.User, config.CheckpointDir.Key)
	}
	return s.unreachable(config.CheckpointDir.Key, uri, fmt.Errorf("submit: the checkpoint folder %s cannot be written: %w (%s)", uri, err, config.CheckpointDir.Key))
}

func (s *submission) stage(ctx context.Context, files []string) error {
	staged, err := s.store.PutAll(ctx, files, s.Progress)
	if err != nil {
		return err
	}
	s.res.Artifacts = staged
	for _, a := range staged {
		s.res.Sent += a.Sent
	}
	s.res.Staging, err = s.store.MakeApplication(ctx, s.res.ID.String())
	return err
}

func (s *submission) send(ctx context.Context) error {
	job := s.res.Artifacts[2]
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, by its contract
	s.res.HA = s.res.Staging + "/ha"
	if dir := config.HADir.Value(s.Config); dir != "" {
		s.res.HA = strings.TrimSuffix(dir, "/") + "/" + s.res.ID.String()
	}
	s.res.Name = config.YarnName.Value(s.Config)
	if s.res.Name == "" {
		if s.res.Name = config.PipelineName.Value(s.Config); s.res.Name == "" {
			s.res.Name = job.Name
		}
	}
	app := &container.Application{
		Protocol: version.Protocol, Version: version.Version, ID: s.res.ID.String(), Name: s.res.Name, User: s.User,
		Config: s.Config, Hadoop: container.HadoopProperties(s.Hadoop, s.Config), JobID: s.res.JobID,
		Artifact: file(job), Args: s.Args,
		Staging: s.res.Staging, HA: s.res.HA, TaskManager: file(s.res.Artifacts[1]), Token: hex.EncodeToString(secret), Submitted: s.start.UnixMilli(),
	}
	creds := &token.Credentials{}
	if s.Tokens != nil {
		if err := s.Tokens(ctx, creds); err != nil {
			return err
		}
	}
	launch, err := am.MasterLaunch(app, file(s.res.Artifacts[0]), creds)
	if err != nil {
		return err
	}
	s.submitted = true // from here on the ResourceManager may know it
	return s.YARN.Submit(ctx, s.context(launch))
}

func file(a staging.Artifact) container.File {
	return container.File{Name: a.Name, URI: a.URI, SHA256: a.SHA256, Size: a.Size, ModTime: a.ModTime, Public: a.Public}
}

func (s *submission) context(launch *yarnpb.ContainerLaunchContextProto) *yarnpb.ApplicationSubmissionContextProto {
	c := s.Config
	master, _ := sizes(c)
	sub := &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: s.res.ID.Proto(), ApplicationName: &s.res.Name, Queue: ptr(s.queue()), AmContainerSpec: launch, Resource: master.Proto(),
		MaxAppAttempts: ptr(int32(config.YarnAttempts.Value(c))), ApplicationType: ptr(config.YarnType.Value(c)), //nolint:gosec // a few
		KeepContainersAcrossApplicationAttempts: ptr(true), AttemptFailuresValidityInterval: ptr(config.YarnAttemptsInterval.Value(c).Milliseconds()),
		LogAggregationContext: &yarnpb.LogAggregationContextProto{},
	}
	if config.YarnAttemptsInterval.Value(c) < 0 {
		sub.AttemptFailuresValidityInterval = ptr(int64(-1))
	}
	if p := config.YarnPriority.Value(c); p >= 0 {
		sub.Priority = &yarnpb.PriorityProto{Priority: ptr(int32(p))} //nolint:gosec // small
	}
	if l := config.YarnNodeLabel.Value(c); l != "" {
		sub.NodeLabelExpression = &l
	}
	if p := config.YarnRolledLogsInclude.Value(c); p != "" {
		sub.LogAggregationContext.RolledLogsIncludePattern = &p
		sub.LogAggregationContext.RolledLogsExcludePattern = ptr("")
	}
	for _, t := range config.YarnTags.Value(c) {
		sub.ApplicationTags = append(sub.ApplicationTags, strings.ToLower(t))
	}
	return sub
}

func ptr[T any](v T) *T { return &v }
