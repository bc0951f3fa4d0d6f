package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/logging"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/worker"
	"github.com/thalweg/thalweg/stream/internal/filesystems"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// fileSystems registers the file systems that jobs can use.
func fileSystems() (*fs.Registry, error) {
	reg, err := filesystems.Registry()
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return reg, nil
}

// containerFileSystems are fileSystems for the processes of a job. In a container of YARN a path without scheme is one of Hadoop's default
// file system, as for Flink: the local disk of a node is nobody's.
func containerFileSystems() (*fs.Registry, error) {
	reg, err := fileSystems()
	if err != nil || os.Getenv("CONTAINER_ID") == "" || os.Getenv("HADOOP_CONF_DIR") == "" {
		return reg, err
	}
	c, err := conf.Load()
	if err != nil {
		return nil, fmt.Errorf("stream: Hadoop's configuration: %w", err)
	}
	def, err := c.DefaultFS()
	if err != nil {
		return nil, fmt.Errorf("stream: Hadoop's configuration: %w", err)
	}
	return reg, reg.SetDefault(def)
}

// LocalOptions are the settings of RunLocal.
type LocalOptions struct {
	Config map[string]string // configuration keys, as with -D
	Args   []string          // the program's arguments
	REST   string            // address of the REST interface, such as "localhost:8081", "localhost:0" or "localhost:8081-8100", of which a free one is taken; "" for none
	Logger zerolog.Logger
	// Started is called once the job runs, with the URL of the REST interface.
	Started func(url string)
}

// RunLocal runs a program on an embedded cluster in this process, with the dispatcher, JobMaster, TaskManager and worker code of a real
// one, and returns when the job has ended: nil when it finished, or when ctx ended and the job was cancelled in order.
func RunLocal(ctx context.Context, name string, build func(*Environment) error, o LocalOptions) error {
	conf := config.Configuration(o.Config)
	if err := config.Validate(conf, config.Passthrough()...); err != nil {
		return err
	}
	p, err := twice(name, build, conf, o.Args)
	if err != nil {
		return err
	}
	res, err := runEmbedded(ctx, p, o)
	if err != nil {
		return err
	}
	return outcome(ctx, res)
}

// outcome is the error of a job that has ended: nil when it finished, or was cancelled since ctx ended. One that failed, also while it was
// cancelled, is none in order.
func outcome(ctx context.Context, res minicluster.Result) error {
	if ctx.Err() != nil && res.State == scheduler.JobCanceled {
		return nil
	}
	return minicluster.JobError(res)
}

// runLocal is Main without a role.
func runLocal(ctx context.Context, name string, build func(*Environment) error, args []string) error {
	cfg, err := processConfig()
	if err != nil {
		return err
	}
	p, err := twice(name, build, cfg.Config, args)
	if err != nil {
		return err
	}
	for _, w := range p.Graph.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	level := zerolog.WarnLevel
	if s := os.Getenv("THALWEG_LOG_LEVEL"); s != "" {
		if level, err = zerolog.ParseLevel(s); err != nil {
			return fmt.Errorf("stream: THALWEG_LOG_LEVEL: %w", err)
		}
	}
	tuneGC(int64(config.TaskManagerMemory.Value(p.Graph.Config)))
	ports := restPorts(p.Graph.Config)
	res, err := runEmbedded(ctx, p, LocalOptions{
		Args: args, REST: "localhost:" + ports,
		Logger: logging.Console(os.Stderr, level),
		Started: func(url string) {
			taken := ""
			if first, _, ranged := strings.Cut(ports, "-"); ranged && !strings.HasSuffix(url, ":"+first) {
				taken = " (port " + first + " is taken)"
			}
			fmt.Fprintf(os.Stderr, "%s runs on an embedded cluster; REST at %s%s\n", p.Graph.Name, url, taken)
		},
	})
	if errors.Is(err, syscall.EADDRINUSE) && ports != "0" {
		return fmt.Errorf("port %s, for the status page and REST interface of a job that runs here, is taken (by another such job?): "+
			"set %s to another one, or to 0 for any free one: thalweg run -D%s=0 ..., or in config.yaml", ports, config.RestPort.Key, config.RestPort.Key)
	}
	if err != nil {
		return err
	}
	if err := outcome(ctx, res); err != nil || res.State == scheduler.JobCanceled {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s %s after %s\n", p.Graph.Name, res.State, res.End.Sub(res.Start).Round(10*time.Millisecond))
	return nil
}

// restPorts are the ports of which a job that runs here takes a free one: rest.port alone when it is set, else that and those behind it.
func restPorts(c config.Configuration) string {
	port := config.RestPort.Value(c)
	if config.RestPort.IsSet(c) {
		return strconv.Itoa(port)
	}
	return fmt.Sprintf("%d-%d", port, port+localPorts-1)
}

// localPorts is how many jobs can run on a machine at the same time without a thought of their ports.
const localPorts = 20

func runEmbedded(ctx context.Context, p *graph.Program, o LocalOptions) (minicluster.Result, error) {
	conf := config.Configuration(p.Graph.Config)
	reg, err := fileSystems()
	if err != nil {
		return minicluster.Result{}, err
	}
	return minicluster.Run(ctx, minicluster.Options{
		Graph: p.Graph, Config: conf, Args: o.Args, FS: reg, RESTAddress: o.REST, Logger: o.Logger,
		OnStarted: func(_ *minicluster.Cluster, url string) {
			if o.Started != nil {
				o.Started(url)
			}
		},
		RunWorker: func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
			return worker.Run(ctx, link, cfg, p, reg, o.Logger)
		},
		RunCoordinator: func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error {
			return worker.RunCoordinator(ctx, link, cfg, p, reg, o.Logger)
		},
	})
}
