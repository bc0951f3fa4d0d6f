// Package confined runs a job of ours as it runs in production, by thalweg-appmaster and thalweg-taskmanager in containers of YARN, with each
// container in a control group of the size that its key says. YARN itself is the stand-in of yarnrpc/yarnfake, in the caller's process,
// so that nothing else takes memory or time. Layer: bench.
//
// Main flow: Launch submits and waits for REST; KillTaskManager is the loss of a container; End waits for the job's end and Close gives
// everything up.
//
// Invariant: a process is in its group before its program starts, so every page that it takes is charged there.
package confined

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/bench/internal/cgroup"
	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// Spec is what to run. The sizes of the containers are those of Config's keys.
type Spec struct {
	Dir     string // scratch: containers' folders, staging
	Lib     string // folder of thalweg-appmaster and thalweg-taskmanager
	Program string // the job's binary
	Args    []string
	Config  config.Configuration
	// Free leaves the containers without limits.
	Free bool
}

// Groups counts the groups of this process, for their names.
var groups atomic.Int64

// NewGroup makes a group with a name of its own; size is in bytes.
func NewGroup(what string, size int64) (*cgroup.Group, error) {
	return cgroup.New(fmt.Sprintf("thalweg-bench-%d-%d-%s", os.Getpid(), groups.Add(1), what), size)
}

// App is an application. Close it.
type App struct {
	REST *flink.REST
	Job  string // id
	ID   yarn.ApplicationID

	dir     string
	fake    *yarnfake.Cluster
	client  *client.Client
	master  *cgroup.Group
	worker  *cgroup.Group
	tracker *proc.Tracker
	stop    chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	anon    map[*cgroup.Group]int64 // the most that was seen
}

// every is the pause between two looks at the groups.
const every = 100 * time.Millisecond

// Launch submits the job and waits until REST knows it.
func Launch(ctx context.Context, s Spec) (_ *App, err error) {
	a := &App{dir: s.Dir, stop: make(chan struct{}), anon: map[*cgroup.Group]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if !s.Free {
		if a.master, err = NewGroup("master", int64(config.JobManagerMemory.Value(s.Config))); err != nil {
			return nil, err
		}
		if a.worker, err = NewGroup("taskmanager", int64(config.TaskManagerMemory.Value(s.Config))); err != nil {
			return nil, err
		}
	}
	const node = 16 << 10 // MiB
	a.fake, err = yarnfake.Start(yarnfake.WithRunner(a.run), yarnfake.WithDir(filepath.Join(s.Dir, "nodes")), yarnfake.WithUnit(1), yarnfake.WithLargest(yarn.Resource{MemoryMB: node, VCores: 16}),
		yarnfake.WithNodes(1, yarn.Resource{MemoryMB: 2 * node, VCores: 64}), yarnfake.WithConf(map[string]string{"fs.defaultFS": "file:///"}))
	if err != nil {
		return nil, err
	}
	if a.client, err = client.New(a.fake.Conf()); err != nil {
		return nil, err
	}
	user := "bench"
	who, err := identity.New(a.fake.Conf(), identity.WithUser(user))
	if err != nil {
		return nil, err
	}
	files, err := container.FileSystems(a.fake.Conf(), who, nil, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	conf := config.Configuration{"yarn.staging-directory": "file://" + filepath.Join(s.Dir, "staging"), "yarn.application.name": "bench"}
	maps.Copy(conf, s.Config)
	r, err := submit.Submit(ctx, submit.Request{YARN: a.client, FS: files, Hadoop: a.fake.Conf(), Config: conf, User: user, Artifact: s.Program, Args: s.Args, LibDir: s.Lib, Logger: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	a.ID = r.ID
	a.tracker = proc.Track(proc.Container(r.ID.String()))
	a.wg.Go(a.watch)
	return a, a.find(ctx)
}

// find waits for the job's REST interface.
func (a *App) find(ctx context.Context) error {
	return flink.Until(ctx, time.Minute, "the job's REST interface", func(ctx context.Context) (bool, error) {
		app, err := control.Get(ctx, a.client, a.ID)
		if err != nil {
			return false, err
		}
		if app.Ended() {
			a.Job = ""
			return true, nil // its end is looked at in End
		}
		if app.REST == "" {
			return false, nil
		}
		rest := flink.NewREST(app.REST)
		ids, err := rest.Jobs(ctx)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		a.REST, a.Job = rest, ids[0]
		return true, nil
	})
}

// run is the runner of containers: what yarnfake.Processes does, in the container's group; a NodeManager removes the folders of a
// container that has ended, and so does this.
func (a *App) run(ctx context.Context, l yarnfake.Launch) (int32, string) {
	g := a.worker
	if l.Master {
		g = a.master
	}
	if g != nil {
		l.Context = proto.Clone(l.Context).(*yarnpb.ContainerLaunchContextProto)
		l.Context.Command = append([]string{g.Enter() + ";"}, l.Context.GetCommand()...)
	}
	exit, text := yarnfake.Processes(nil, nil)(ctx, l)
	if !l.Master { // the master's attempts share the application's folder
		local, _ := filepath.Glob(filepath.Join(filepath.Dir(l.WorkDir()), "thalweg-tm-*")) // the pattern is good
		a.wg.Go(func() {
			for _, d := range append(local, l.WorkDir()) {
				_ = os.RemoveAll(d) // the whole scratch folder goes later
			}
		})
	}
	return exit, text
}

// watch notes the most anonymous memory of the groups.
func (a *App) watch() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, g := range []*cgroup.Group{a.master, a.worker} {
			if g == nil {
				continue
			}
			n := g.Read().Anon
			a.mu.Lock()
			a.anon[g] = max(a.anon[g], n)
			a.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-a.stop:
			return
		}
	}
}

// Memory is what a container's group has met; Anon is the most that was seen, not the present.
func (a *App) Memory(master bool) cgroup.Usage {
	g := a.worker
	if master {
		g = a.master
	}
	if g == nil {
		return cgroup.Usage{}
	}
	u := g.Read()
	a.mu.Lock()
	defer a.mu.Unlock()
	u.Anon = max(u.Anon, a.anon[g])
	return u
}

// Usage is the CPU time of all processes so far, and the sum of their largest memory.
func (a *App) Usage() proc.Usage { return a.tracker.Usage() }

// KillTaskManager kills the processes of the TaskManager's container, all at once, as the loss of the container does.
func (a *App) KillTaskManager() error {
	killed := 0
	for _, p := range a.tracker.Live() {
		if !a.taskManager(p) {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("confined: kill %d: %w", p.PID, err)
		}
		killed++
	}
	if killed == 0 {
		return errors.New("confined: no process of a TaskManager found")
	}
	return nil
}

// KillWorker kills the process that runs the job's tasks. Its TaskManager stays.
func (a *App) KillWorker() error {
	for _, p := range a.tracker.Live() {
		if a.taskManager(p) && strings.Contains(string(proc.Environment(p.PID)), "THALWEG_ROLE=worker") {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				return fmt.Errorf("confined: kill %d: %w", p.PID, err)
			}
			return nil
		}
	}
	return errors.New("confined: no worker process found")
}

// taskManager says whether a process is in a TaskManager's container.
func (a *App) taskManager(p proc.Process) bool {
	master, ok := a.fake.Master(a.ID)
	return ok && !strings.Contains(string(proc.Environment(p.PID)), "CONTAINER_ID="+master.String())
}

// LocalDir is where the containers keep what is theirs.
func (a *App) LocalDir() string { return filepath.Join(a.dir, "nodes") }

// Status is how the application ended, "" while it runs, and why.
func (a *App) Status(ctx context.Context) (final, why string, err error) {
	app, err := control.Get(ctx, a.client, a.ID)
	if err != nil || !app.Ended() {
		return "", "", err
	}
	return app.Final, app.Why(), nil
}

// End waits for the end of the application, which must be a success.
func (a *App) End(ctx context.Context, limit time.Duration) error {
	var final, why string
	err := flink.Until(ctx, limit, "the end of "+a.ID.String(), func(ctx context.Context) (bool, error) {
		var err error
		final, why, err = a.Status(ctx)
		return final != "", err
	})
	if err == nil && final != "SUCCEEDED" {
		err = fmt.Errorf("confined: %s ended %s: %.2000s\n%s", a.ID, final, why, a.Logs())
	}
	return err
}

// Logs are the last lines of the containers' logs.
func (a *App) Logs() string {
	const lines = 12
	var b strings.Builder
	_ = filepath.Walk(a.LocalDir(), func(p string, info os.FileInfo, err error) error { // for a message
		if err != nil || !strings.Contains(p, "/logs/") || !info.Mode().IsRegular() || info.Size() == 0 {
			return nil
		}
		text, _ := os.ReadFile(p)
		all := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "== %s\n%s\n", filepath.Base(filepath.Dir(p))+"/"+filepath.Base(p), strings.Join(all[max(0, len(all)-lines):], "\n"))
		return nil
	})
	return b.String()
}

// Close ends what still runs. The scratch folder stays.
func (a *App) Close() error {
	var errs []error
	if a.client != nil {
		errs = append(errs, a.client.Close())
	}
	if a.fake != nil {
		errs = append(errs, a.fake.Close())
	}
	if a.tracker != nil {
		close(a.stop)
		a.wg.Wait()
		a.tracker.Stop()
	}
	for _, g := range []*cgroup.Group{a.master, a.worker} {
		if g != nil {
			errs = append(errs, g.Close(context.Background()))
		}
	}
	return errors.Join(errs...)
}
