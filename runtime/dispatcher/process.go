package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/taskmanager"
)

// stopGrace is what a coordinator process gets to end in order.
const stopGrace = 3 * time.Second

// ProcessLauncher forks the job's artifact in role coordinator.
type ProcessLauncher struct {
	Dir    string // private folder
	LogDir string // "" discards output
	Env    []string
	// Fetch returns a local path of an artifact that has none.
	Fetch func(ctx context.Context, a Artifact) (string, error)
}

// LaunchCoordinator implements Launcher.
func (l *ProcessLauncher) LaunchCoordinator(ctx context.Context, cfg rpc.ProcessConfig, a Artifact) (rpc.CoordinatorLink, func() string, error) {
	path := a.Path
	if path == "" {
		if l.Fetch == nil {
			return nil, nil, fmt.Errorf("dispatcher: launch coordinator: artifact %s has no local copy", a.Name)
		}
		var err error
		if path, err = l.Fetch(ctx, a); err != nil {
			return nil, nil, fmt.Errorf("dispatcher: launch coordinator: %w", err)
		}
	}
	sockDir, sock, err := taskmanager.SocketPath()
	if err != nil {
		return nil, nil, err
	}
	links := make(chan rpc.CoordinatorLink, 1)
	server, err := rpc.ServeSocket(sock, func(link rpc.CoordinatorLink) {
		select {
		case links <- link:
		default:
			link.Close(errors.New("dispatcher: a coordinator process connects once"))
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("dispatcher: launch coordinator: %w", errors.Join(err, os.RemoveAll(sockDir)))
	}
	cleanup := func() {
		server.Close()
		_ = os.RemoveAll(sockDir) // a few bytes in the temporary folder
	}
	proc, err := taskmanager.Fork(taskmanager.ForkSpec{Path: path, Args: cfg.Args, Role: rpc.RoleCoordinator, Control: sock, Config: cfg, Dir: l.Dir, LogDir: l.LogDir, Env: l.Env})
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	stop := func() string {
		proc.Stop(stopGrace)
		exit := proc.Wait()
		select {
		case l := <-links:
			l.Close(nil)
		default:
		}
		cleanup()
		if exit.Code == 0 {
			return ""
		}
		return exit.Reason
	}
	select {
	case link := <-links:
		return link, stop, nil
	case <-proc.Done():
		stop()
		return nil, nil, &ExitError{Exit: proc.Wait()}
	case <-ctx.Done():
		proc.Stop(0)
		stop()
		return nil, nil, fmt.Errorf("dispatcher: launch coordinator: %w", context.Cause(ctx))
	}
}

// ExitError is a coordinator process that ended before it connected.
type ExitError struct{ Exit taskmanager.Exit }

func (e *ExitError) Error() string {
	how := e.Exit.Reason
	if e.Exit.Code == 0 {
		how = "it ended in order (does it call stream.Main?)"
	}
	return "dispatcher: launch coordinator: " + how
}

// Permanent reports whether another try would end the same way.
func (e *ExitError) Permanent() bool { return rpc.BuildFailed(e.Exit.Code, e.Exit.Reason) }

// InProcess runs the coordinator's code as a goroutine of this process.
type InProcess struct {
	Run func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error
}

// LaunchCoordinator implements Launcher.
func (p InProcess) LaunchCoordinator(_ context.Context, cfg rpc.ProcessConfig, _ Artifact) (rpc.CoordinatorLink, func() string, error) {
	lower, upper := rpc.Pipe[*pb.CoordinatorUp, *pb.CoordinatorDown]()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var how string
	go func() {
		defer close(done)
		if err := guard(func() error { return p.Run(ctx, lower, cfg) }); err != nil && ctx.Err() == nil {
			how = err.Error()
		}
		lower.Close(nil)
		<-lower.Done()
	}()
	return upper, func() string {
		upper.Close(nil)
		select {
		case <-done:
		case <-time.After(stopGrace):
		}
		cancel()
		<-done
		<-upper.Done()
		return how
	}, nil
}

func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
