package stream

import (
	"context"

	"fmt"
	"os"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/worker"
)

// fileSystems registers the file systems that jobs can use.
func fileSystems(config.Configuration) (*fs.Registry, error) {
	reg := &fs.Registry{}
	local.Register(reg)
	if err := hdfs.RegisterDefault(reg); err != nil {
		return nil, fmt.Errorf("stream: hdfs: %w", err)
	}
	return reg, nil
}

// runLocal runs the job on an embedded cluster in this process: the same dispatcher, JobMaster, TaskManager and worker code.
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
	conf := config.Configuration(p.Graph.Config)
	level := zerolog.WarnLevel
	if s := os.Getenv("THALWEG_LOG_LEVEL"); s != "" {
		if level, err = zerolog.ParseLevel(s); err != nil {
			return fmt.Errorf("stream: THALWEG_LOG_LEVEL: %w", err)
		}
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "15:04:05.000"}).Level(level).With().Timestamp().Logger()
	res, err := runEmbedded(ctx, p, conf, args, log, fmt.Sprintf("localhost:%d", config.RestPort.Value(conf)), func(_ *minicluster.Cluster, url string) {
		fmt.Fprintf(os.Stderr, "%s runs on an embedded cluster; REST at %s\n", p.Graph.Name, url)
	})
	if err != nil {
		return err
	}
	if res.Err() != nil && ctx.Err() == nil {
		return res.Err()
	}
	return nil
}

func runEmbedded(ctx context.Context, p *graph.Program, conf config.Configuration, args []string, log zerolog.Logger, rest string, started func(*minicluster.Cluster, string)) (minicluster.Result, error) {
	reg, err := fileSystems(conf)
	if err != nil {
		return minicluster.Result{}, err
	}
	return minicluster.Run(ctx, minicluster.Options{
		Graph: p.Graph, Config: conf, Args: args, FS: reg, RESTAddress: rest, Logger: log, OnStarted: started,
		RunWorker: func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error {
			return worker.Run(ctx, link, cfg, p, reg, log)
		},
		RunCoordinator: func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error {
			return worker.RunCoordinator(ctx, link, cfg, p, log)
		},
	})
}
