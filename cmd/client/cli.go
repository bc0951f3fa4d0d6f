package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/login"
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
	out, err io.Writer // out is for what programs write themselves; ours goes through print
	print    *recorder
	in       *os.File
	getenv   func(string) string
	tty      bool // out is a terminal
	inTTY    bool // and so is in

	dynamic []string
	output  string
	target  string
	address string
	glued   string // what stood in one word with the key that is to be completed
}

func newCLI(out, errw io.Writer, getenv func(string) string) *cli {
	c := &cli{out: out, err: errw, print: &recorder{w: out}, in: os.Stdin, getenv: getenv}
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		c.tty = isatty.IsTerminal(f.Fd())
	}
	c.inTTY = isatty.IsTerminal(c.in.Fd())
	return c
}

// recorder remembers the first error of writing, so that output that was lost is not called success.
type recorder struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.w.Write(b)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

func (r *recorder) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// execute runs a command line and returns the exit code.
func (c *cli) execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetOut(c.print)
	root.SetErr(c.err)
	if completing(args) {
		args = c.separate(args)
	}
	root.SetArgs(rewrite(args))
	err := root.ExecuteContext(ctx)
	if w := c.print.failure(); w != nil && err == nil {
		err = &exitError{exitFailed, fmt.Errorf("write the output: %w", w)}
	}
	if errors.Is(c.print.failure(), syscall.EPIPE) && errors.Is(err, syscall.EPIPE) {
		return exitClosed // the reader, such as head, has all it wanted
	}
	code := c.report(err)
	if c.json() && c.print.failure() != nil { // nothing can be said there
		c.output = "text"
		c.report(err)
	}
	return code
}

func (c *cli) json() bool { return c.output == "json" }

func (c *cli) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.print, format, args...) // the error is kept there
}

// notef writes a line for people beside the output.
func (c *cli) notef(format string, args ...any) {
	_, _ = fmt.Fprintf(c.err, format+"\n", args...) // nobody reads it any more
}

// emit writes one JSON object in one line.
func (c *cli) emit(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // "Source -> Map" is to be read, and there is no HTML
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	if _, err := c.print.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// config is the effective configuration: config.yaml, then -D, then flags. It is validated as a whole.
func (c *cli) config(flags config.Configuration) (config.Configuration, error) {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	file, err := configfile.Named(c.getenv, exe)
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
	who    *login.Who
	user   string
	config config.Configuration

	kerberosConf string // of the client, or empty

	wait  *patience
	limit string // what ends the waits, for messages
}

// connect reads the Hadoop configuration, with the pass-through keys over it. Nothing is dialed yet.
func (c *cli) connect(cfg config.Configuration) (*cluster, error) {
	h, err := conf.Load()
	if err != nil {
		if errors.Is(err, conf.ErrNoConfiguration) {
			err = fmt.Errorf("%w (or name the REST interface of a job without YARN, such as -m localhost:%d)", err, defaultRESTPort())
		}
		return nil, &usageError{err}
	}
	h = h.WithValues(container.Overrides(cfg))
	ctx, cancel := context.WithTimeout(context.Background(), config.ClientConnectTimeout.Value(cfg))
	defer cancel()
	who, err := login.Client(ctx, cfg, h, c.getenv, zerolog.Nop())
	if err != nil {
		return nil, &usageError{err}
	}
	k := &cluster{hadoop: h, who: who, user: who.User(), config: cfg, wait: newPatience(patienceEnds, c.notef), limit: giveUp(cfg), kerberosConf: login.Conf(cfg, c.getenv)}
	k.yarn, err = client.New(h, client.WithMaxWait(config.ClientConnectTimeout.Value(cfg)), client.WithIdentity(who.Identity), client.WithIPC(ipc.WithDial(k.wait.dial("the ResourceManager", k.limit, (&net.Dialer{}).DialContext))))
	if err != nil {
		return nil, &usageError{err}
	}
	return k, nil
}

// giveUp says when a wait ends.
func giveUp(cfg config.Configuration) string {
	return fmt.Sprintf("for %s at most: %s", config.ClientConnectTimeout.Value(cfg), config.ClientConnectTimeout.Key)
}

func (k *cluster) close() {
	k.wait.close()
	_ = k.yarn.Close() // the process ends
	_ = k.who.Close()
}

func (k *cluster) files() (*fs.Registry, error) {
	return container.FileSystems(k.hadoop, k.who.Identity, func(h *hdfs.Config) {
		h.Dial = k.wait.dial("HDFS", k.limit, (&net.Dialer{}).DialContext)
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
		if app := proxied(c.address); app != "" {
			return nil, &usageError{fmt.Errorf("-m %s is YARN's proxy, which passes only GET: use -D%s=%s", c.address, config.YarnID.Key, app)}
		}
		wait := newPatience(patienceEnds, c.notef)
		wait.began("the REST interface", giveUp(cfg), c.address)
		t, err := control.Direct(ctx, c.address, cfg, id)
		wait.close()
		if err != nil {
			return nil, err
		}
		return &target{Target: t, folder: fullURI, close: t.REST.Close}, nil
	}
	k, err := c.connect(cfg)
	if err != nil {
		return nil, err
	}
	k.wait.began("the application and its master", k.limit, "")
	if cfg, err = c.inSession(ctx, k, cfg, id); err != nil {
		k.close()
		return nil, err
	}
	t, err := control.FindJob(ctx, k.yarn, cfg, id)
	k.wait.close()
	if err != nil {
		k.close()
		return nil, err
	}
	return &target{Target: t, folder: k.folder, app: func(ctx context.Context) (control.Application, error) {
		return control.Get(ctx, k.yarn, t.App.ID)
	}, close: func() { t.REST.Close(); k.close() }}, nil
}

var proxyPath = regexp.MustCompile(`/proxy/(application_[0-9]+_[0-9]+)`)

// proxied is the application whose pages behind the ResourceManager the address names, "" for none.
func proxied(address string) string {
	if m := proxyPath.FindStringSubmatch(address); m != nil {
		return m[1]
	}
	return ""
}

// target is a job and what is needed to name folders for it.
type target struct {
	*control.Target
	folder func(ctx context.Context, flag, uri string) (string, error) // the URI of a folder for all containers
	app    func(ctx context.Context) (control.Application, error)      // asks YARN; nil without an application on YARN
	close  func()
}
