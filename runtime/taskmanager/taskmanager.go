package taskmanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// ErrRefused is returned by Run when a JobMaster refused this TaskManager for good.
var ErrRefused = errors.New("refused by the JobMaster")

// ErrNoLeader is returned by Run when no JobMaster took the TaskManager within Options.GiveUp.
var ErrNoLeader = errors.New("no JobMaster found")

const (
	lookupInterval   = 150 * time.Millisecond
	connectTimeout   = 5 * time.Second
	registerTimeout  = 10 * time.Second
	shutdownGrace    = 2 * time.Second
	linkEndGrace     = 5 * time.Second  // between the end of a worker's link and its kill
	workerUpTimeout  = 60 * time.Second // between the start of a worker and its hello
	defaultHeartbeat = time.Second
)

// TaskManager is one TaskManager. Make it with New, run it once with Run.
type TaskManager struct {
	opts  Options
	log   zerolog.Logger
	dirs  []string // private folders, one per disk
	cache *artifacts

	backups []string // folders for local copies of checkpoints, one per disk
	extra   []string // private folders beside dirs

	mu      sync.Mutex
	up      rpc.TaskManagerUplink // to the JobMaster in charge; nil while there is none
	conn    Connection
	epoch   int64 // highest epoch served
	workers map[string]*worker
	closing bool
	dropped int            // folders of local copies that were given up
	wg      sync.WaitGroup // workers
}

// New checks the options and makes the private folders.
func New(opts Options) (*TaskManager, error) {
	if opts.ID == "" || opts.Slots < 1 || opts.Leader == nil || opts.Connect == nil {
		return nil, errors.New("taskmanager: make: ID, Slots, Leader and Connect are required")
	}
	if opts.LookupInterval <= 0 {
		opts.LookupInterval = lookupInterval
	}
	t := &TaskManager{opts: opts, workers: map[string]*worker{}, log: opts.Logger.With().Str("component", "taskmanager").Str("container_id", opts.ID).Logger()}
	dirs := opts.Dirs
	if len(dirs) == 0 {
		dirs = []string{os.TempDir()}
	}
	var bad []error
	for _, d := range dirs {
		p, err := privateDir(d)
		if err != nil {
			bad = append(bad, err)
			t.log.Warn().Err(err).Str("dir", d).Msg("local folder is skipped")
			continue
		}
		t.dirs = append(t.dirs, p)
	}
	if len(t.dirs) == 0 {
		return nil, fmt.Errorf("taskmanager: no local folder is usable (io.tmp.dirs): %w", errors.Join(bad...))
	}
	if err := t.makeBackups(); err != nil {
		return nil, errors.Join(err, t.removeFolders())
	}
	t.cache = &artifacts{dir: filepath.Join(t.dirs[0], "artifacts"), open: opts.OpenURI, blob: t.fetchBlob}
	if opts.Launcher == nil {
		t.opts.Launcher = &ProcessLauncher{Dir: t.dirs[0], LogDir: opts.LogDir, Logger: t.log}
	}
	return t, nil
}

// privateDir makes a folder below d and proves that it can be written.
func privateDir(d string) (string, error) {
	if err := os.MkdirAll(d, 0o750); err != nil {
		return "", fmt.Errorf("taskmanager: local folder %s: %w", d, err)
	}
	p, err := process.Folder(d, "thalweg-tm-")
	if err != nil {
		return "", fmt.Errorf("taskmanager: local folder %s: %w", d, err)
	}
	if err := os.WriteFile(filepath.Join(p, ".probe"), make([]byte, 4096), 0o600); err != nil {
		return "", fmt.Errorf("taskmanager: local folder %s is full or read-only: %w", d, errors.Join(err, os.RemoveAll(p)))
	}
	return p, os.Remove(filepath.Join(p, ".probe"))
}

// Run serves until ctx ends or a JobMaster shuts the TaskManager down (nil), or until it is refused or finds no JobMaster (ErrRefused,
// ErrNoLeader). All workers have ended and the private folders are gone when it returns.
func (t *TaskManager) Run(ctx context.Context) error {
	watched := make(chan struct{})
	t.wg.Go(func() { t.guardMemory(watched) })
	err := t.serve(ctx)
	close(watched)
	t.mu.Lock()
	t.closing = true
	for _, w := range t.workers {
		w.stop(shutdownGrace)
	}
	t.mu.Unlock()
	t.wg.Wait()
	t.disconnect(nil)
	if rerr := t.removeFolders(); rerr != nil {
		t.log.Warn().Err(rerr).Msg("local folders could not be removed")
	}
	return err
}

// errShutdown says that the JobMaster ended this TaskManager in order.
var errShutdown = errors.New("shut down")

func (t *TaskManager) serve(ctx context.Context) error {
	alone := time.Now()
	for {
		err := t.session(ctx)
		if t.disconnect(err) {
			alone = time.Now() // it was registered until now
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errShutdown):
			return nil
		case errors.Is(err, ErrRefused):
			return err
		case t.opts.GiveUp > 0 && time.Since(alone) >= t.opts.GiveUp:
			return fmt.Errorf("taskmanager: %w within %s: last try: %w", ErrNoLeader, t.opts.GiveUp, err)
		}
		t.log.Debug().Err(err).Msg("no JobMaster; trying again")
		timer := time.NewTimer(t.opts.LookupInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// disconnect closes the connection, if any, and reports whether this TaskManager was registered.
func (t *TaskManager) disconnect(err error) bool {
	t.mu.Lock()
	conn, was := t.conn, t.up != nil
	t.conn, t.up = Connection{}, nil
	t.mu.Unlock()
	if conn.Link != nil {
		if err != nil && !errors.Is(err, errShutdown) {
			conn.Link.Close(err)
		} else {
			conn.Link.Close(nil)
		}
		<-conn.Link.Done()
	}
	if conn.Close != nil {
		if cerr := conn.Close(); cerr != nil {
			t.log.Debug().Err(cerr).Msg("closing the connection")
		}
	}
	if was && err != nil {
		level := zerolog.WarnLevel
		if errors.Is(err, rpc.ErrClosed) || errors.Is(err, rpc.ErrPeerClosed) { // in order: the application ends, or another master takes over
			level = zerolog.InfoLevel
		}
		t.log.WithLevel(level).Err(err).Msg("JobMaster lost")
	}
	return was
}

// session finds a leader, registers with it and serves it until the link ends.
func (t *TaskManager) session(ctx context.Context) error {
	leader, err := t.opts.Leader(ctx)
	if err != nil {
		return fmt.Errorf("taskmanager: look up the JobMaster: %w", err)
	}
	t.mu.Lock()
	epoch := t.epoch
	t.mu.Unlock()
	if leader.Epoch != 0 && leader.Epoch < epoch {
		return fmt.Errorf("taskmanager: the JobMaster at %s has epoch %d, epoch %d was served before", leader.Address, leader.Epoch, epoch)
	}
	cctx, cancel := context.WithTimeout(ctx, connectTimeout)
	conn, err := t.opts.Connect(cctx, leader)
	cancel()
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.conn = conn
	t.mu.Unlock()
	unhook := context.AfterFunc(ctx, func() { conn.Link.Close(nil) })
	defer unhook()

	failpoint.At("taskmanager/register/before")
	reg, err := t.register(conn.Link)
	if err != nil {
		return err
	}
	failpoint.At("taskmanager/register/after")
	t.log.Info().Str("leader", leader.Address).Int64("epoch", reg.GetEpoch()).Msg("registered")
	watch := startWatch(conn.Link, time.Duration(reg.GetHeartbeatTimeoutMs())*time.Millisecond)
	defer watch.stop()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { t.heartbeats(conn.Link, time.Duration(reg.GetHeartbeatIntervalMs())*time.Millisecond, stop) })
	defer wg.Wait()
	defer close(stop)
	for {
		down, err := conn.Link.Recv()
		if err != nil {
			return err
		}
		watch.heard()
		if err := t.handle(down); err != nil {
			return err
		}
	}
}

func (t *TaskManager) register(link rpc.TaskManagerUplink) (*pb.Registered, error) {
	t.mu.Lock()
	jobs := make([]string, 0, len(t.workers))
	var held []*pb.HeldSlots
	for id, w := range t.workers {
		jobs = append(jobs, id)
		held = append(held, w.slots())
	}
	epoch := t.epoch
	t.mu.Unlock()
	err := link.Send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Register{Register: &pb.RegisterTaskManager{
		Id: t.opts.ID, Host: t.opts.Host, Slots: int32(t.opts.Slots), MemoryBytes: t.opts.MemoryBytes, CpuCores: int32(t.opts.Cores),
		Version: version.Version, Protocol: version.Protocol, NodeHttpAddress: t.opts.NodeHTTPAddress, LastEpoch: epoch, Jobs: jobs, Held: held, Pid: int32(os.Getpid())}}})
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(registerTimeout, func() { link.Close(errors.New("taskmanager: the JobMaster does not answer the registration")) })
	defer timer.Stop()
	down, err := link.Recv()
	if err != nil {
		return nil, err
	}
	switch m := down.GetMsg().(type) {
	case *pb.TaskManagerDown_Refused:
		if m.Refused.GetFinal() {
			return nil, fmt.Errorf("taskmanager: register: %w: %s", ErrRefused, m.Refused.GetReason())
		}
		return nil, fmt.Errorf("taskmanager: register: %s", m.Refused.GetReason())
	case *pb.TaskManagerDown_Registered:
		t.mu.Lock()
		defer t.mu.Unlock()
		if m.Registered.GetEpoch() < t.epoch {
			return nil, fmt.Errorf("taskmanager: register: the JobMaster has epoch %d, epoch %d was served before: it is a stale one", m.Registered.GetEpoch(), t.epoch)
		}
		t.epoch, t.up = m.Registered.GetEpoch(), link // whoever leads now adopts the running tasks, or cancels them
		return m.Registered, nil
	default:
		return nil, errors.New("taskmanager: register: the JobMaster answered with another message")
	}
}

func (t *TaskManager) handle(down *pb.TaskManagerDown) error {
	switch m := down.GetMsg().(type) {
	case *pb.TaskManagerDown_StartWorker:
		failpoint.At("taskmanager/start-worker")
		t.startWorker(m.StartWorker)
	case *pb.TaskManagerDown_StopWorker:
		t.mu.Lock()
		if w := t.workers[m.StopWorker.GetJobId()]; w != nil {
			w.next, w.killed = nil, m.StopWorker.GetGraceMs() == 0
			w.stop(time.Duration(m.StopWorker.GetGraceMs()) * time.Millisecond)
		} else {
			t.dropBackups(m.StopWorker.GetJobId())
		}
		t.mu.Unlock()
	case *pb.TaskManagerDown_Worker:
		t.mu.Lock()
		if w := t.workers[m.Worker.GetJobId()]; w != nil {
			w.send(m.Worker.GetDown())
		}
		t.mu.Unlock()
	case *pb.TaskManagerDown_Tokens:
		if t.opts.OnTokens == nil {
			return nil
		}
		if err := t.opts.OnTokens(m.Tokens.GetCredentials()); err != nil {
			t.log.Error().Err(err).Msg("newer security tokens cannot be used, those of before will end")
			return nil
		}
		t.log.Info().Msg("newer security tokens arrived")
	case *pb.TaskManagerDown_Shutdown:
		t.log.Info().Str("reason", m.Shutdown.GetReason()).Msg("shut down by the JobMaster")
		return errShutdown
	case *pb.TaskManagerDown_Refused:
		return fmt.Errorf("taskmanager: %w: %s", ErrRefused, m.Refused.GetReason())
	}
	return nil
}

// report sends to the JobMaster in charge; without one the message is void: the next one asks what there is, or starts with new attempts.
func (t *TaskManager) report(ctx context.Context, up *pb.TaskManagerUp) {
	t.mu.Lock()
	link := t.up
	t.mu.Unlock()
	if link == nil {
		return
	}
	if err := link.SendWait(ctx, up); err != nil {
		t.log.Debug().Err(err).Msg("message to the JobMaster is lost with its link")
	}
}

func (t *TaskManager) heartbeats(link rpc.TaskManagerUplink, interval time.Duration, stop <-chan struct{}) {
	if interval <= 0 {
		interval = defaultHeartbeat
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		hb := &pb.Heartbeat{TimeMs: time.Now().UnixMilli()}
		hb.RssBytes, hb.CpuSeconds = usage(os.Getpid())
		t.mu.Lock()
		for id, w := range t.workers {
			if pid := w.pid(); pid > 0 {
				u := &pb.WorkerUsage{JobId: id, Pid: int32(pid)}
				if pid != os.Getpid() {
					u.RssBytes, u.CpuSeconds = usage(pid)
				}
				hb.Workers = append(hb.Workers, u)
			}
		}
		t.mu.Unlock()
		if link.Send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Heartbeat{Heartbeat: hb}}) != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-stop:
			return
		}
	}
}

// watch cuts a link over which nothing came for too long.
type watch struct {
	timer   *time.Timer
	timeout time.Duration
}

func startWatch(link rpc.TaskManagerUplink, timeout time.Duration) *watch {
	if timeout <= 0 {
		return &watch{}
	}
	return &watch{timeout: timeout, timer: time.AfterFunc(timeout, func() {
		link.Close(fmt.Errorf("taskmanager: no word from the JobMaster for %s (heartbeat.timeout)", timeout))
	})}
}

func (w *watch) heard() {
	if w.timer != nil {
		w.timer.Reset(w.timeout)
	}
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (t *TaskManager) fetchBlob(ctx context.Context, key string, w io.Writer) error {
	t.mu.Lock()
	fetch := t.conn.FetchBlob
	t.mu.Unlock()
	if fetch == nil {
		return errors.New("taskmanager: the JobMaster has no blob store")
	}
	return fetch(ctx, key, w)
}
