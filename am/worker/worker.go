// Package worker is the life of a TaskManager in a YARN container: what the container tells it, where it finds the JobMaster, what its
// workers get. Layer L5; imports am/container and runtime/{taskmanager,ha}, and no YARN protocol: a TaskManager never talks to YARN.
package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/rpc/remote"
	"github.com/thalweg/thalweg/runtime/taskmanager"
	"github.com/thalweg/thalweg/yarnrpc/identity"
)

// leaderPoll is how often the leader file is looked at while there is no leader of the wanted epoch.
const leaderPoll = 150 * time.Millisecond

// Run is the TaskManager's process: it returns when the JobMaster ended it, when ctx ends, or with an error for the container's
// error file.
func Run(ctx context.Context, getenv func(string) string) (err error) {
	c, err := container.Read(getenv)
	if err != nil {
		return err
	}
	log, closer := c.Logger(container.TaskManagerLog)
	defer closer.Close() //nolint:errcheck // nobody is left to tell
	log.Info().Str("version", version.Version).Strs("local_dirs", c.LocalDirs).Int("pid", os.Getpid()).Msg("TaskManager starts")
	defer func() {
		log.Err(err).Msg("TaskManager ends")
	}()
	shares, err := memory.ForTaskManager(c.App.Config)
	if err != nil {
		return err
	}
	hadoopDir, err := c.HadoopDir()
	if err != nil {
		return err
	}
	private := filepath.Join(c.WorkDir, "workers")
	if err := os.MkdirAll(private, 0o700); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	tokens, err := container.NewTokenFile(private, c.Credentials)
	if err != nil {
		return err
	}
	hadoop := c.App.HadoopConfiguration()
	id, err := identity.New(hadoop, identity.WithUser(c.App.User), identity.WithTokenFile(tokens.Path))
	if err != nil {
		return err
	}
	files, err := container.FileSystems(hadoop, id, nil, log)
	if err != nil {
		return err
	}
	env := []string{"HADOOP_CONF_DIR=" + hadoopDir, "YARN_CONF_DIR=", "HADOOP_USER_NAME=" + c.App.User, tokens.Environment()}
	for k, v := range memory.Environment(shares.Worker, shares.Cores) {
		env = append(env, k+"="+v)
	}
	early := startPrefetch(ctx, files, c.App.Artifact, private, log)
	defer early.stop()
	leader := &leaders{app: c.App, files: files, log: log}
	tm, err := taskmanager.New(taskmanager.Options{
		ID: c.ID, Host: c.Host, Slots: config.TaskSlots.Value(c.App.Config), MemoryBytes: int64(shares.Container), Cores: shares.Cores,
		NodeHTTPAddress: c.NodeHTTPAddress, Dirs: localDirs(c), LogDir: c.LogDir, Config: c.App.Config,
		Leader: leader.find, Connect: connect(c.App.Token),
		Launcher: &taskmanager.ProcessLauncher{Dir: private, LogDir: c.LogDir, Env: env, Logger: log},
		OpenURI:  early.open,
		OnTokens: tokens.Replace,
		Logger:   log, GiveUp: config.RegistrationTimeout.Value(c.App.Config),
	})
	if err != nil {
		return err
	}
	return tm.Run(ctx)
}

// connect opens links to the JobMaster for taskmanager.Options.
func connect(token string) func(context.Context, taskmanager.Leader) (taskmanager.Connection, error) {
	return func(ctx context.Context, l taskmanager.Leader) (taskmanager.Connection, error) {
		c, err := remote.Dial(l.Address, remote.Options{Token: token})
		if err != nil {
			return taskmanager.Connection{}, err
		}
		link, err := c.ConnectTaskManager(ctx)
		if err != nil {
			return taskmanager.Connection{}, errors.Join(err, c.Close())
		}
		return taskmanager.Connection{Link: link, FetchBlob: c.FetchBlob, Close: c.Close}, nil
	}
}

// localDirs are the folders for local state, one per disk: the container's own below those that YARN gives the application, since the
// NodeManager removes these with the container, even one that was killed, and the application's only at its end.
//
// Source: ResourceLocalizationService.handleCleanupContainerResources, Hadoop 3.4.
func localDirs(c *container.Container) []string {
	if own := config.TmpDirs.Value(c.App.Config); len(own) > 0 {
		return own
	}
	dirs := make([]string, 0, len(c.LocalDirs))
	for _, d := range c.LocalDirs {
		dirs = append(dirs, filepath.Join(d, c.ID))
	}
	return dirs
}

// leaders finds the JobMaster: the one that launched this container first, later the one that the leader file names.
type leaders struct {
	app   *container.Application
	files *fs.Registry
	log   zerolog.Logger

	mu    sync.Mutex
	first bool
	store *ha.FileStore
}

func (l *leaders) find(ctx context.Context) (taskmanager.Leader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.first {
		l.first = true
		if l.app.Leader != "" {
			return taskmanager.Leader{Address: l.app.Leader, Epoch: l.app.Epoch}, nil
		}
	}
	if l.store == nil {
		f, p, err := l.files.Resolve(ctx, l.app.HA)
		if err != nil {
			return taskmanager.Leader{}, err
		}
		l.store = ha.NewFileStore(f, p, l.log)
	}
	found, err := l.store.WatchLeader(ctx, l.app.Epoch, leaderPoll)
	if err != nil {
		return taskmanager.Leader{}, err
	}
	if found.Address == "" {
		return taskmanager.Leader{}, errors.New("worker: the leader file names no address")
	}
	return taskmanager.Leader{Address: found.Address, Epoch: found.Epoch}, nil
}
