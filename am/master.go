package am

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/am/session"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/staging"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

const (
	// endTimeout bounds what has to be done after the job, or after a termination signal: unregister, clean up.
	endTimeout = 30 * time.Second
	// bootTimeout bounds what has to be done before registration, but for the wait for the high-availability data.
	bootTimeout = 2 * time.Minute
)

// outcome is how the application ends. The zero value is no end: another attempt may follow.
type outcome struct {
	status      resourcemanager.FinalStatus
	diagnostics string
}

// master is one application attempt.
type master struct {
	c      *container.Container
	app    *container.Application
	log    zerolog.Logger
	start  time.Time
	who    *login.Who
	tokens *tokens
	files  *fs.Registry
	env    []string // of the job's process
	shares memory.Master

	store     ha.Store
	epoch     int64
	rm        *rmclient.Client
	scheduler Scheduler // rm, or what was registered with it early
	nodes     *nm.Client
	driver    *Driver
	manager   *resourcemanager.Manager
	listener  net.Listener
	leader    string // host:port of the control plane
	web       *rest.Server
	gate      *gate
	handler   http.Handler // REST, for the archives of ended jobs
	webURL    string

	jobs     *session.Manager // nil unless the application is a session
	shutdown chan struct{}    // closed when the session is to end
	ending   sync.Once

	work     string // folder of the job's files
	program  chan fetched
	fetching sync.WaitGroup
	fail     func(error) // ends the attempt's context with a fatalError
}

// fetched is the job's binary on this machine.
type fetched struct {
	path string
	err  error
}

// Run is the ApplicationMaster's process. It returns nil when the application has ended and is unregistered, whatever its status; an
// error means that this attempt failed and that YARN may start another one. The end of ctx (a termination signal) ends the attempt
// without unregistering, since another may follow.
func Run(ctx context.Context, getenv func(string) string) (err error) {
	start := time.Now()
	c, err := container.Read(getenv)
	if err != nil {
		return err
	}
	log, closer := c.Logger(container.MasterLog)
	defer closer.Close() //nolint:errcheck // nobody is left to tell
	defer func() { c.Tell(err) }()
	m := &master{c: c, app: c.App, log: log, start: start, shares: memory.ForMaster(c.App.Config), gate: &gate{}}
	log.Info().Str("version", version.Version).Int("pid", os.Getpid()).Interface("config", c.App.Config.Redacted()).Strs("args", c.App.Args).
		Dur("since_submit", start.Sub(time.UnixMilli(c.App.Submitted))).Msg("application master starts")
	defer func() { log.Err(err).Msg("application master ends") }()
	defer m.close()
	ctx, stop := context.WithCancelCause(ctx)
	m.fail = func(err error) { stop(fatalError{err}) }
	defer m.fetching.Wait()
	defer stop(nil)
	failpoint.At("master/start")
	if err = m.boot(ctx); err != nil {
		if m.rm != nil && final(err) {
			return m.refuse(ctx, err)
		}
		return err
	}
	if err = m.run(ctx); errors.Is(err, resourcemanager.ErrFenced) || errors.Is(err, ha.ErrFenced) {
		return fmt.Errorf("am: this attempt gives up: %w", err)
	}
	return err
}

// boot takes the epoch and makes what needs no ResourceManager.
func (m *master) boot(life context.Context) error {
	ctx, cancel := context.WithTimeout(life, bootTimeout)
	defer cancel()
	hadoop := m.app.HadoopConfiguration()
	hadoopDir, err := m.c.HadoopDir()
	if err != nil {
		return err
	}
	m.work = filepath.Join(m.c.WorkDir, "job")
	if err := os.MkdirAll(m.work, 0o700); err != nil {
		return fmt.Errorf("am: %w", err)
	}
	if err := m.login(ctx, life, hadoop); err != nil {
		return err
	}
	m.env = []string{"HADOOP_CONF_DIR=" + hadoopDir, "YARN_CONF_DIR=", "HADOOP_USER_NAME=" + m.app.User, m.tokens.file.Environment()}
	for k, v := range memory.Environment(m.shares.Job, m.shares.Cores) {
		m.env = append(m.env, k+"="+v)
	}
	if m.files, err = container.FileSystems(hadoop, m.who.Identity, nil, m.log); err != nil {
		return err
	}
	m.program = make(chan fetched, 1)
	if !m.app.Session {
		m.fetchProgram(life)
	}
	if m.rm, err = rmclient.FromCredentials(hadoop, m.c.Credentials, rmclient.WithLogger(m.log)); err != nil {
		return err
	}
	m.log = m.log.With().Stringer("attempt_id", m.rm.Attempt()).Logger()
	protect, err := identity.Protections(hadoop)
	if err != nil {
		return err
	}
	m.nodes = nm.New(nm.WithLogger(m.log), nm.WithProtections(protect...))
	f, p, err := m.files.Resolve(ctx, m.app.HA)
	if err != nil {
		return finalError{fmt.Errorf("am: high-availability folder: %w", err)}
	}
	m.store = ha.NewFileStore(f, p, m.log)
	var lc net.ListenConfig
	if m.listener, err = lc.Listen(ctx, "tcp", ":0"); err != nil {
		return fmt.Errorf("am: listen: %w", err)
	}
	m.leader = net.JoinHostPort(m.c.Host, port(m.listener))
	if m.web, err = m.listenREST(ctx, m.gate); err != nil {
		return err
	}
	_, webPort, err := net.SplitHostPort(m.web.Addr.String())
	if err != nil {
		return fmt.Errorf("am: REST address: %w", err)
	}
	m.webURL = "http://" + net.JoinHostPort(m.c.Host, webPort)
	failpoint.At("master/epoch/before")
	if err := m.acquire(life); err != nil {
		return err
	}
	failpoint.At("master/epoch/after")
	return m.makeManager()
}

// fetchProgram begins to fetch the job's binary, first of all, since everything of the job waits for it.
func (m *master) fetchProgram(life context.Context) {
	m.fetching.Go(func() {
		var got fetched
		got.err = ha.Await(life, m.log, "fetch "+m.app.Artifact.URI, func(ctx context.Context) (err error) {
			got.path, err = fetch(ctx, m.files, m.app.Artifact, m.work)
			return err
		})
		m.program <- got
	})
}

func port(l net.Listener) string {
	_, p, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "0"
	}
	return p
}

func (m *master) makeManager() error {
	spec := resourcemanager.SpecOf(m.app.Config)
	app := *m.app
	app.Leader, app.Epoch, app.Keytab, app.KerberosConf = m.leader, m.epoch, nil, nil
	if _, err := TaskManagerLaunch(&app, m.tokens.launch()); err != nil { // what is wrong with it is wrong for every container
		return finalError{err}
	}
	preempt, err := m.app.HadoopConfiguration().Duration(conf.KeyPreemptAfter, 15*time.Second, time.Millisecond)
	if err != nil {
		return finalError{err}
	}
	m.driver = NewDriver(DriverOptions{
		PreemptAfter: preempt,
		Scheduler:    m.scheduler, Nodes: m.nodes, Config: m.driverConfig(), Spec: spec, Prestart: m.prestart(spec), Tail: nodeTail, Logger: m.log,
		Registration: rmclient.Registration{Host: m.c.Host, RPCPort: -1, TrackingURL: m.webURL},
		Launch: func(*yarnpb.ContainerProto, resourcemanager.WorkerSpec) (*yarnpb.ContainerLaunchContextProto, error) {
			return TaskManagerLaunch(&app, m.tokens.launch())
		},
	})
	m.manager = resourcemanager.New(resourcemanager.Options{
		Config: m.app.Config, Driver: m.driver, Epoch: m.epoch, Spec: spec, Logger: m.log,
		OnFatal: m.fail,
	})
	return m.tokens.toldTo(m.manager.UpdateTokens)
}

// prestart is how many workers are asked for before the graph is known: what the default parallelism needs. A session has no graph.
func (m *master) prestart(s resourcemanager.WorkerSpec) int {
	if m.app.Session {
		return 0
	}
	slots := max(s.Slots, 1)
	return max(1, (config.Parallelism.Value(m.app.Config)+slots-1)/slots)
}

// driverConfig is the configuration, for a session without the limit of failed starts: its running jobs need no others, and those that wait for slots
// end by themselves (slot.request.timeout).
func (m *master) driverConfig() config.Configuration {
	if !m.app.Session || config.StartFailureLimit.IsSet(m.app.Config) {
		return m.app.Config
	}
	c := m.app.Config.Clone()
	config.StartFailureLimit.Set(c, -1)
	return c
}

// accept serves a TaskManager's link and looks after its container when the link breaks.
func (m *master) accept(link rpc.TaskManagerLink, remote string) {
	named := &namedLink{TaskManagerLink: link}
	m.manager.Accept(named, remote)
	if named.id != "" {
		m.driver.Suspect(resourcemanager.WorkerID(named.id))
	}
}

// namedLink remembers the id under which the TaskManager registered.
type namedLink struct {
	rpc.TaskManagerLink
	id string // written by the receiving goroutine, which is the one that accept waits for
}

func (l *namedLink) Recv() (*pb.TaskManagerUp, error) {
	up, err := l.TaskManagerLink.Recv()
	if r := up.GetRegister(); r != nil {
		l.id = r.GetId()
	}
	return up, err
}

// end unregisters with the true final status and removes what the application had, also after a termination signal.
func (m *master) end(ctx context.Context, out outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	m.log.Info().Stringer("status", out.status).Str("diagnostics", out.diagnostics).Msg("the application ends")
	failpoint.At("master/unregister/before")
	err := m.manager.Deregister(ctx, out.status, out.diagnostics)
	failpoint.At("master/unregister/after")
	if errors.Is(err, rmclient.ErrShutdown) {
		return err // killed, or replaced by another attempt: nothing is ours any more
	}
	// Another attempt cannot follow now, unless unregistering failed.
	if err == nil {
		if cerr := m.store.CleanUp(ctx); cerr != nil {
			m.log.Warn().Err(cerr).Str("dir", m.app.HA).Msg("high-availability data could not be removed")
		}
		if cerr := m.removeStaging(ctx); cerr != nil {
			m.log.Warn().Err(cerr).Str("dir", m.app.Staging).Msg("the staging folder could not be removed")
		}
	}
	return err
}

func (m *master) removeStaging(ctx context.Context) error {
	f, p, err := m.files.Resolve(ctx, m.app.Staging)
	if err != nil {
		return err
	}
	if filepath.Base(p) != m.app.ID {
		return fmt.Errorf("am: %s is not the folder of %s", p, m.app.ID)
	}
	return staging.RemoveApplication(ctx, f, p)
}

func (m *master) close() {
	if m.manager != nil {
		if err := m.manager.Close(); err != nil {
			m.log.Warn().Err(err).Msg("closing the resource manager")
		}
	}
	if m.web != nil {
		m.web.Close()
	}
	if m.listener != nil {
		_ = m.listener.Close() // a served one is closed already
	}
	if m.rm != nil {
		_ = m.rm.Close() // the process ends
	}
	if m.nodes != nil {
		_ = m.nodes.Close() // the process ends
	}
	if m.who != nil {
		_ = m.who.Close() // forgets the tickets
	}
}
