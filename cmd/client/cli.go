package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/configfile"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// cli is one invocation.
type cli struct {
	out, err io.Writer
	getenv   func(string) string
	tty      bool // out is a terminal

	dynamic []string
	output  string
	target  string
	address string
}

func newCLI(out, errw io.Writer, getenv func(string) string) *cli {
	c := &cli{out: out, err: errw, getenv: getenv}
	if f, ok := out.(*os.File); ok {
		c.tty = isatty.IsTerminal(f.Fd())
	}
	return c
}

func (c *cli) json() bool { return c.output == "json" }

func (c *cli) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, format, args...) // nobody reads it any more
}

// notef writes a line for people beside the output.
func (c *cli) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(c.err, format+"\n", args...) // nobody reads it any more
}

// emit writes one JSON object in one line.
func (c *cli) emit(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	_, err = fmt.Fprintf(c.out, "%s\n", b)
	return err
}

// config is the effective configuration: config.yaml, then -D, then flags. It is validated as a whole.
func (c *cli) config(flags config.Configuration) (config.Configuration, error) {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	file, err := configfile.Load(configfile.Dir(c.getenv, exe))
	if err != nil {
		return nil, &usageError{err}
	}
	dyn, err := config.ParseDynamic(c.dynamic)
	if err != nil {
		return nil, &usageError{err}
	}
	all := config.Merge(file, dyn, flags)
	if err := config.Validate(all, config.Passthrough()...); err != nil {
		return nil, &usageError{err}
	}
	return all, nil
}

// cluster is the way to the Hadoop cluster.
type cluster struct {
	hadoop *conf.Configuration
	yarn   *client.Client
	user   string
	config config.Configuration
}

// connect reads the Hadoop configuration, with the pass-through keys over it. Nothing is dialed yet.
func (c *cli) connect(cfg config.Configuration) (*cluster, error) {
	h, err := conf.Load()
	if errors.Is(err, conf.ErrNoConfiguration) {
		return nil, &usageError{fmt.Errorf("%w: point HADOOP_CONF_DIR to the cluster's configuration folder", err)}
	}
	if err != nil {
		return nil, &usageError{err}
	}
	h = h.WithValues(container.Overrides(cfg))
	u, err := ipc.CurrentUser()
	if err != nil {
		return nil, &usageError{err}
	}
	y, err := client.New(h, client.WithMaxWait(config.ClientConnectTimeout.Value(cfg)))
	if err != nil {
		return nil, &usageError{err}
	}
	return &cluster{hadoop: h, yarn: y, user: u.Effective, config: cfg}, nil
}

func (k *cluster) close() { _ = k.yarn.Close() } // the process ends

func (k *cluster) files() (*fs.Registry, error) {
	return container.FileSystems(k.hadoop, k.user, func(h *hdfs.Config) {
		h.RetryTimeout = config.ClientConnectTimeout.Value(k.config)
		if n := config.YarnReplication.Value(k.config); n > 0 {
			h.Replication = n
		}
	}, zerolog.Nop())
}

// libDir is the folder of the product's own programs.
func (c *cli) libDir() string {
	if d := c.getenv("THALWEG_LIB_DIR"); d != "" {
		return d
	}
	exe, err := os.Executable()
	if err != nil {
		return "."
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return filepath.Dir(exe)
}

// job finds the job to act on, by -m or on YARN.
func (c *cli) job(ctx context.Context, id string) (*target, error) {
	cfg, err := c.config(nil)
	if err != nil {
		return nil, err
	}
	if c.address != "" {
		t, err := control.Direct(ctx, c.address, cfg, id)
		if err != nil {
			return nil, err
		}
		return &target{Target: t, qualify: func(uri string) string { return uri }, close: t.REST.Close}, nil
	}
	k, err := c.connect(cfg)
	if err != nil {
		return nil, err
	}
	t, err := control.FindJob(ctx, k.yarn, cfg, id)
	if err != nil {
		k.close()
		return nil, err
	}
	return &target{Target: t, qualify: func(uri string) string { return submit.Qualify(uri, k.hadoop) }, app: func(ctx context.Context) (control.Application, error) {
		return control.Get(ctx, k.yarn, t.App.ID)
	}, close: func() { t.REST.Close(); k.close() }}, nil
}

// target is a job and what is needed to name folders for it.
type target struct {
	*control.Target
	qualify func(uri string) string
	app     func(ctx context.Context) (control.Application, error) // asks YARN; nil without an application on YARN
	close   func()
}
