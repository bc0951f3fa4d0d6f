package stream

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/logging"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/worker"
)

// Exit codes of Main.
const (
	exitFailed = 1 // the job, or this process, failed
	exitBuild  = 2 // the graph could not be built
)

// planFD is the file descriptor that role plan writes the job graph to.
const planFD = 3

// sdkMarker lets the client read the protocol out of a binary before anything is sent; it stays in step with version.Protocol by a test.
var sdkMarker = "thalweg.sdk.protocol=3;"

// Main runs the program that build describes, and exits the process. What it does depends on the role that the process was started in
// (environment variable THALWEG_ROLE): none runs the job here, on an embedded cluster; plan builds twice, compares, and writes the job
// graph to file descriptor 3; coordinator and worker become that process of a running job. The arguments of the process are the
// program's own; build finds them in Environment.Args.
//
// build must build the same graph each time: it runs in every process of the job. When it returns flag.ErrHelp, which a FlagSet with
// ContinueOnError returns for -h after it has shown the flags, the process ends in order, with exit code 0.
func Main(name string, build func(env *Environment) error) {
	os.Exit(run(name, build))
}

func run(name string, build func(*Environment) error) int {
	ctx, stop := process.Ending(context.Background()) // also of "job | head": it ends in order and removes its folders
	defer stop()
	args := os.Args[1:]
	var err error
	switch role := os.Getenv(rpc.EnvRole); role {
	case rpc.RolePlan:
		err = plan(name, build, args)
	case rpc.RoleWorker:
		err = runWorker(ctx, name, build, args)
	case rpc.RoleCoordinator:
		err = runCoordinator(ctx, name, build, args)
	case "":
		err = runLocal(ctx, name, build, args)
	default:
		err = fmt.Errorf("stream: unknown role %s=%q (%s)", rpc.EnvRole, role, sdkMarker)
	}
	if err == nil || errors.Is(err, flag.ErrHelp) { // build has shown its help
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	var b *buildError
	if errors.As(err, &b) {
		return exitBuild
	}
	return exitFailed
}

// buildError is a program that does not build a graph.
type buildError struct{ err error }

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

// program runs build once and translates its graph.
func program(name string, build func(*Environment) error, conf config.Configuration, args []string) (p *graph.Program, err error) {
	env := newEnvironment(name, conf, args)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case errNoEnvironment:
			p, err = nil, mistakes(errors.Join(env.mistakes(), r.error))
		default:
			p, err = nil, &buildError{fmt.Errorf("build panics: %v\n%s", r, debug.Stack())}
		}
	}()
	if build == nil {
		return nil, &buildError{errors.New("the function that builds the program is nil")}
	}
	if err := build(env); err != nil {
		return nil, &buildError{fmt.Errorf("build: %w", err)}
	}
	p, err = env.translate()
	if err != nil {
		return nil, mistakes(err)
	}
	return p, nil
}

func mistakes(err error) error {
	return &buildError{fmt.Errorf("%s\n  %s", rpc.GraphMistakes, strings.ReplaceAll(err.Error(), "\n", "\n  "))}
}

// processConfig reads THALWEG_CONFIG: a rpc.ProcessConfig, or a flat object of configuration keys.
func processConfig() (rpc.ProcessConfig, error) {
	var c rpc.ProcessConfig
	path := os.Getenv(rpc.EnvConfig)
	if path == "" {
		c.Config = map[string]string{}
		return c, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("stream: read configuration: %w", err)
	}
	var flat map[string]string
	if json.Unmarshal(b, &flat) == nil {
		c.Config = flat
		return c, nil
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("stream: parse configuration %s: %w", path, err)
	}
	if c.Config == nil {
		c.Config = map[string]string{}
	}
	return c, nil
}

// twice builds two graphs and returns the first if they are the same.
func twice(name string, build func(*Environment) error, conf config.Configuration, args []string) (*graph.Program, error) {
	a, err := program(name, build, conf, args)
	if err != nil {
		return nil, err
	}
	b, err := program(name, build, conf, args)
	if err != nil {
		return nil, err
	}
	if d := graph.Diff(a.Graph, b.Graph, "first build", "second build"); d != "" {
		return nil, &buildError{fmt.Errorf("build is not deterministic: %s. Do not use map order, clocks or random numbers to decide what to build", d)}
	}
	return a, nil
}

func plan(name string, build func(*Environment) error, args []string) error {
	cfg, err := processConfig()
	if err != nil {
		return err
	}
	p, err := twice(name, build, cfg.Config, args)
	if err != nil {
		return err
	}
	b, err := json.Marshal(p.Graph)
	if err != nil {
		return fmt.Errorf("stream: encode the job graph: %w", err)
	}
	out := os.NewFile(planFD, "plan")
	if out == nil {
		return errors.New("stream: role plan without file descriptor 3")
	}
	_, err = out.Write(b)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("stream: write the job graph: %w", err)
	}
	return nil
}

// member builds the program of a process that is part of a job and checks that it is the job's.
func member(name string, build func(*Environment) error, args []string) (rpc.ProcessConfig, *graph.Program, error) {
	cfg, err := processConfig()
	if err != nil {
		return cfg, nil, err
	}
	p, err := program(name, build, cfg.Config, args)
	if err != nil {
		return cfg, nil, err
	}
	if cfg.Fingerprint != "" && cfg.Fingerprint != p.Graph.Fingerprint {
		why := "the program depends on its environment, or the binary is another one"
		if len(cfg.Graph) > 0 {
			var want graph.JobGraph
			if json.Unmarshal(cfg.Graph, &want) == nil {
				why = graph.Diff(&want, p.Graph, "job's graph", "graph built here")
			}
		}
		return cfg, nil, &buildError{fmt.Errorf("build made another graph than the job has: %s", why)}
	}
	return cfg, p, nil
}

// tuneGC lets the heap of a process that runs tasks grow further between collections than Go's default: exchange buffers that records
// are views of are garbage at a high rate beside a small live heap. GOMEMLIMIT, which the TaskManager sets from the container's size,
// or memory where it did not, bounds it. GOGC in the environment wins.
func tuneGC(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory)
	}
}

func processLogger(role string, cfg rpc.ProcessConfig) zerolog.Logger {
	return logging.New(os.Stderr, logging.Level(config.LogLevel.Value(cfg.Config))).With().Str("component", role).Str("job_id", cfg.JobID).Logger()
}

func control() (socket string, err error) {
	if socket = os.Getenv(rpc.EnvControl); socket == "" {
		return "", fmt.Errorf("stream: %s is not set: job processes are started by Thalweg, not by hand", rpc.EnvControl)
	}
	return socket, nil
}

// hangUp ends a link in order.
func hangUp[S, R any](l rpc.Link[S, R]) {
	l.Close(nil)
	<-l.Done()
}

func runWorker(ctx context.Context, name string, build func(*Environment) error, args []string) error {
	cfg, p, err := member(name, build, args)
	if err != nil {
		return err
	}
	socket, err := control()
	if err != nil {
		return err
	}
	link, err := rpc.DialSocket[*pb.WorkerUp, *pb.WorkerDown](ctx, socket)
	if err != nil {
		return err
	}
	defer hangUp(link)
	reg, err := containerFileSystems()
	if err != nil {
		return err
	}
	tuneGC(int64(config.TaskManagerMemory.Value(cfg.Config)))
	return worker.Run(ctx, link, cfg, p, reg, processLogger(rpc.RoleWorker, cfg))
}

func runCoordinator(ctx context.Context, name string, build func(*Environment) error, args []string) error {
	cfg, p, err := member(name, build, args)
	if err != nil {
		return err
	}
	socket, err := control()
	if err != nil {
		return err
	}
	link, err := rpc.DialSocket[*pb.CoordinatorUp, *pb.CoordinatorDown](ctx, socket)
	if err != nil {
		return err
	}
	defer hangUp(link)
	reg, err := containerFileSystems()
	if err != nil {
		return err
	}
	return worker.RunCoordinator(ctx, link, cfg, p, reg, processLogger(rpc.RoleCoordinator, cfg))
}
