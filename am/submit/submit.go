package submit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// YARN is the ResourceManager's side, as yarnrpc/client.Client speaks to it.
type YARN interface {
	NewApplication(ctx context.Context) (yarn.ApplicationID, yarn.Resource, error)
	Queue(ctx context.Context, name string) (*yarnpb.QueueInfoProto, error)
	Nodes(ctx context.Context, states ...yarnpb.NodeStateProto) ([]*yarnpb.NodeReportProto, error)
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
	Artifact string   // path of the job's binary, checked; "" for a session, which takes jobs later
	Args     []string // the program's
	LibDir   string   // folder of thalweg-appmaster and thalweg-taskmanager
	// Tokens returns the delegation tokens that the application needs for its staging folder among others; nil on clusters without Kerberos.
	Tokens func(ctx context.Context, uris ...string) (*token.Credentials, error)
	// KerberosConf is the path of a krb5.conf that is sent along with the keytab; empty for the nodes' own.
	KerberosConf string
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
// Errors: *ConfigError, *client.UnreachableError, *client.QueueNotFoundError, *client.SubmissionError, *staging.Error, *SizeError,
// *LibError, and others of one line.
func Submit(ctx context.Context, r Request) (res *Result, err error) {
	r.Config = r.Config.Clone()
	s := &submission{Request: r, start: time.Now(), last: time.Now(), res: &Result{JobID: graph.NewID().String()}}
	defer func() {
		if err != nil {
			if uerr := s.undo(ctx); uerr != nil {
				err = fmt.Errorf("%w; and what was begun could not be taken back: %s", err, strings.ReplaceAll(uerr.Error(), "\n", "; "))
			}
		}
	}()
	if r.Artifact == "" {
		s.res.JobID = ""
	}
	if len(config.YarnProvidedLibs.Value(r.Config)) == 0 {
		if _, err := s.programs(); err != nil {
			return nil, err
		}
	}
	if _, err := memory.ForTaskManager(r.Config); err != nil {
		return nil, err
	}
	if err := s.qualify(); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	files, err := s.programs()
	if err != nil {
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
	made        []made
	ships       []shipped
	provided    map[string]container.File // programs, by name
}

type made struct {
	uri   string
	paths []string
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

// undoing notes paths of the file system of uri that undo removes when the submission fails: files, and folders with nothing in them.
func (s *submission) undoing(uri string, paths ...string) {
	s.made = append(s.made, made{uri, paths})
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
	for _, m := range slices.Backward(s.made) {
		f, _, err := s.FS.Resolve(ctx, m.uri)
		if err != nil {
			continue // it was never there
		}
		for _, p := range slices.Backward(m.paths) {
			_ = f.Remove(ctx, p, false) // what somebody else put something into stays
		}
		_ = f.Close() // nothing is open
	}
	return errors.Join(errs...)
}

// programs are the files to send: those of the product, unless they are provided, and the job's.
func (s *submission) programs() (files []string, err error) {
	if len(s.provided) == 0 {
		files = []string{filepath.Join(s.LibDir, am.MasterBinary), filepath.Join(s.LibDir, am.TaskManagerBinary)}
		for _, f := range files {
			if _, err := os.Stat(f); err != nil {
				return nil, &LibError{Path: f}
			}
		}
	}
	if s.Artifact != "" {
		files = append(files, s.Artifact)
	}
	return files, nil
}

func (s *submission) stage(ctx context.Context, files []string) error {
	var err error
	if s.res.Staging, err = s.store.MakeApplication(ctx, s.res.ID.String()); err != nil {
		return err
	}
	staged, err := s.store.PutAll(ctx, files, s.Progress)
	if err != nil {
		return err
	}
	s.res.Artifacts = staged
	for _, a := range staged {
		s.res.Sent += a.Sent
	}
	return nil
}

func (s *submission) send(ctx context.Context) error {
	var job container.File
	staged := s.res.Artifacts
	if s.Artifact != "" {
		job = file(staged[len(staged)-1])
	}
	master, worker := s.provided[am.MasterBinary], s.provided[am.TaskManagerBinary]
	if len(s.provided) == 0 {
		master, worker = file(staged[0]), file(staged[1])
	}
	files, err := s.sendShipped(ctx)
	if err != nil {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails, by its contract
	s.res.HA = s.res.Staging + "/ha"
	if dir := config.HADir.Value(s.Config); dir != "" {
		s.res.HA = strings.TrimSuffix(dir, "/") + "/" + s.res.ID.String()
	}
	s.res.Name = config.YarnName.Value(s.Config)
	if s.res.Name == "" {
		if s.res.Name = config.PipelineName.Value(s.Config); s.res.Name == "" {
			s.res.Name = cmp.Or(job.Name, SessionName)
		}
	}
	app := &container.Application{
		Protocol: version.Protocol, Version: version.Version, ID: s.res.ID.String(), Name: s.res.Name, User: s.User,
		Config: s.Config, Hadoop: container.HadoopProperties(s.Hadoop, s.Config), JobID: s.res.JobID,
		Session: s.Artifact == "", Artifact: job, Args: s.Args,
		Staging: s.res.Staging, HA: s.res.HA, TaskManager: worker, Files: files, Token: hex.EncodeToString(secret), Submitted: s.start.UnixMilli(),
	}
	if err := s.sendKeytab(ctx, app); err != nil {
		return err
	}
	creds := &token.Credentials{}
	if s.Tokens != nil {
		var err error
		if creds, err = s.Tokens(ctx, s.res.Staging, s.res.HA, config.CheckpointDir.Value(s.Config), config.SavepointDir.Value(s.Config)); err != nil {
			return err
		}
	}
	launch, err := am.MasterLaunch(app, master, creds)
	if err != nil {
		return err
	}
	if err := s.store.MarkSubmitted(ctx); err != nil {
		return err
	}
	s.submitted = true // from here on the ResourceManager may know it
	err = s.YARN.Submit(ctx, s.context(launch))
	var refused *ipc.RemoteError
	if errors.As(err, &refused) && strings.Contains(refused.Message, "does not have permission to submit") {
		return fmt.Errorf("%w: set %s to a queue that takes applications of %s, or ask for access (acl_submit_applications)", err, config.YarnQueue.Key, s.User)
	}
	return err
}

func file(a staging.Artifact) container.File {
	return container.File{Name: a.Name, URI: a.URI, SHA256: a.SHA256, Size: a.Size, ModTime: a.ModTime, Public: a.Public}
}

func (s *submission) context(launch *yarnpb.ContainerLaunchContextProto) *yarnpb.ApplicationSubmissionContextProto {
	c := s.Config
	master, _ := sizes(c)
	sub := &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: s.res.ID.Proto(), ApplicationName: &s.res.Name, Queue: ptr(QueueName(s.Config)), AmContainerSpec: launch, Resource: master.Proto(),
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
		sub.LogAggregationContext.RolledLogsExcludePattern = ptr(config.YarnRolledLogsExclude.Value(c))
	}
	for _, t := range config.YarnTags.Value(c) {
		sub.ApplicationTags = append(sub.ApplicationTags, strings.ToLower(t))
	}
	if s.Artifact == "" {
		sub.ApplicationTags = append(sub.ApplicationTags, container.SessionTag)
	}
	return sub
}

// SessionName is the name of a session that has none. Flink's is "Flink session cluster".
const SessionName = "Thalweg session cluster"

func ptr[T any](v T) *T { return &v }
