package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	readyWait   = 3 * time.Minute // all daemons of a cluster; 10 to 20 s are usual
	restartWait = 2 * time.Minute // one daemon
	lockWait    = 5 * time.Minute
)

// Options say what to start. The zero value is the whole cluster in the default folder.
type Options struct {
	// Dir is the cluster's folder; default DefaultDir.
	Dir string
	// JarsDir is where Maven copies the jars; default DefaultJarsDir. Clusters share it.
	JarsDir string
	// PortBase is the first block of ports to try; default THALWEG_PORT_BASE or 18000. A block is 100 ports.
	PortBase int
	// Variant says what kind of cluster, in the words of VariantHelp, such as "kerberos,privacy" or "simple"; default THALWEG_RIG,
	// else what the folder's cluster is, else simple.
	Variant string
	// Daemons is the subset to run; default all of the variant. What they need beside them (a KDC, ZooKeeper, the other of a pair) is added.
	Daemons []string
	// CoreSite, HDFSSite, YARNSite and KafkaConfig are added to the configurations, over the rig's own values.
	CoreSite, HDFSSite, YARNSite, KafkaConfig map[string]string
	// Progress receives one line per step; nil for none.
	Progress io.Writer
}

// Cluster is a started or attached cluster. Its methods may be used from several goroutines; Restart, Kill9, StopDaemon and Stop of the
// same daemon must not overlap.
type Cluster struct {
	// External says that others run it (THALWEG_RIG=external, with Shared): its daemons, containers, logs and files are out of reach.
	External bool

	Dir                string
	HadoopConfDir      string
	BinDir             string // wrapper scripts of the stock clients
	Variant            Variant
	DefaultFS          string // hdfs://host:port, or hdfs://rig of a pair
	NameNode           string // host:port of the RPC server; the first of a pair, as with the next two
	ResourceManager    string // host:port for clients
	ResourceManagerWeb string // http://host:port
	KafkaBootstrap     string // host:port
	HadoopJars         string // folder with Hadoop's jars
	KafkaJars          string

	layout layout
	state  state
	runner *runner
}

// runner is what the steps of one command share.
type runner struct {
	java string
	webs webs
	mu   sync.Mutex
	out  io.Writer
}

func (r *runner) progress(format string, args ...any) {
	if r == nil || r.out == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, "rig: "+format+"\n", args...)
}

// DefaultDir is THALWEG_CLUSTER_DIR, or .cluster in the checkout around the working folder.
func DefaultDir() (string, error) {
	if d := os.Getenv("THALWEG_CLUSTER_DIR"); d != "" {
		return d, nil
	}
	root, err := checkout()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".cluster"), nil
}

// DefaultJarsDir is THALWEG_JARS_DIR, or jars in the default cluster folder.
func DefaultJarsDir() (string, error) {
	if d := os.Getenv("THALWEG_JARS_DIR"); d != "" {
		return d, nil
	}
	d, err := DefaultDir()
	return filepath.Join(d, "jars"), err
}

// checkout finds the folder with go.mod above the working folder.
func checkout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("rig: working folder: %w", err)
	}
	for d := wd; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("rig: %s is not inside a checkout: set THALWEG_CLUSTER_DIR", wd)
		}
	}
}

// Start brings the cluster up, as far as it is not up already, and waits until every daemon serves. When a daemon does not come up, those
// that this call started are ended again. A cluster that runs keeps its ports, its daemons and its configuration.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c, err := start(ctx, opts)
	if err != nil {
		return nil, err
	}
	return c, removeIfThere(c.layout.auto()) // it now belongs to the caller and not to those who share it
}

func start(ctx context.Context, opts Options) (*Cluster, error) {
	c, unlock, err := prepare(ctx, &opts)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var up []string
	for _, d := range c.state.Daemons {
		if c.layout.running(d) != 0 {
			up = append(up, d)
		}
	}
	release, err := c.configure(ctx, opts, len(up) > 0)
	if err != nil {
		return nil, err
	}
	defer release()
	begin := time.Now()
	started, err := c.startMissing(ctx, up)
	if err == nil {
		stages := c.stages()
		err = c.awaitAll(ctx, stages[len(stages)-1])
	}
	if err == nil && slices.Contains(c.state.Daemons, NameNode) && !c.state.HDFSReady {
		err = c.makeFolders(ctx)
		if err == nil {
			c.state.HDFSReady = true
			err = c.layout.save(c.state)
		}
	}
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), termWait+killWait)
		defer cancel()
		return nil, errors.Join(err, c.endDaemons(clean, started))
	}
	if len(started) > 0 {
		c.runner.progress("cluster is up in %s (%.0f s)", c.Dir, time.Since(begin).Seconds())
	} else {
		c.runner.progress("cluster is up in %s (it was already)", c.Dir)
	}
	return c, nil
}

// prepare resolves folders, takes the lock of the cluster and installs the jars.
func prepare(ctx context.Context, opts *Options) (*Cluster, func(), error) {
	var err error
	if opts.Dir == "" {
		if opts.Dir, err = DefaultDir(); err != nil {
			return nil, nil, err
		}
	}
	if opts.JarsDir == "" {
		if opts.JarsDir, err = DefaultJarsDir(); err != nil {
			return nil, nil, err
		}
	}
	me, err := user.Current()
	if err != nil {
		return nil, nil, fmt.Errorf("rig: who am I: %w", err)
	}
	l, err := openLayout(opts.Dir)
	if err != nil {
		return nil, nil, err
	}
	want, err := l.wanted(opts.Variant)
	if err != nil {
		return nil, nil, err
	}
	opts.Variant = want.String()
	if opts.Daemons, err = want.checkDaemons(opts.Daemons); err != nil {
		return nil, nil, err
	}
	jars, err := openLayout(opts.JarsDir)
	if err != nil {
		return nil, nil, err
	}
	r := &runner{out: opts.Progress}
	if r.java, err = findJava(ctx); err != nil {
		return nil, nil, err
	}
	if err := l.make(); err != nil {
		return nil, nil, err
	}
	unlock, err := lockFile(ctx, l.lock(), lockWait)
	if err != nil {
		return nil, nil, err
	}
	c := &Cluster{layout: l, runner: r}
	c.state, err = l.load()
	if errors.Is(err, ErrNoCluster) {
		c.state, err = state{Version: stateVersion, Variant: want, Daemons: opts.Daemons}, nil
	}
	c.state.User = me.Username
	if err == nil && want.Kerberos {
		c.state.Native, err = r.installNative(ctx, jars.dir)
	}
	if err == nil {
		c.state.HadoopJars, err = r.install(ctx, jars.dir, "hadoop")
	}
	if err == nil {
		c.state.KafkaJars, err = r.install(ctx, jars.dir, "kafka")
	}
	if err != nil {
		unlock()
		return nil, nil, err
	}
	c.state.JavaHome = r.java
	return c, unlock, nil
}

// configure decides on ports and writes the configuration. While a daemon runs, what it was started with stays.
func (c *Cluster) configure(ctx context.Context, opts Options, running bool) (func(), error) {
	release := func() {}
	want, err := ParseVariant(opts.Variant)
	if err != nil {
		return nil, err
	}
	if err := c.state.fits(want, running, c.layout.dir); err != nil {
		return nil, err
	}
	if !running {
		base := opts.PortBase
		if base == 0 {
			base = c.state.PortBase
		}
		if base == 0 || os.Getenv("THALWEG_PORT_BASE") != "" && opts.PortBase == 0 {
			b, err := wantedBase()
			if err != nil {
				return nil, err
			}
			base = b
		}
		hosts, err := wantedHosts()
		if err != nil {
			return nil, err
		}
		c.state.Hosts = hosts
		c.state.Daemons, c.state.Variant = opts.Daemons, want
		c.state.Core, c.state.HDFS, c.state.YARN, c.state.KafkaConfig = opts.CoreSite, opts.HDFSSite, opts.YARNSite, opts.KafkaConfig
		var offsets []int
		for _, name := range c.state.Daemons {
			d, err := c.daemon(name)
			if err != nil {
				return nil, err
			}
			offsets = append(offsets, d.ports...)
		}
		b, rel, err := choosePorts(base, offsets)
		if err != nil {
			return nil, err
		}
		if b != base {
			c.runner.progress("ports %d to %d are taken, using %d to %d", base, base+portBlock-1, b, b+portBlock-1)
		}
		c.state.PortBase, release = b, rel
	}
	c.fill()
	if err := c.layout.save(c.state); err != nil {
		release()
		return nil, err
	}
	if want.Kerberos {
		if err := c.makeRealm(ctx); err != nil {
			release()
			return nil, err
		}
	}
	if err := c.writeConf(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// fill sets the public fields from the state.
func (c *Cluster) fill() {
	s := c.state
	c.Dir, c.HadoopConfDir, c.BinDir = c.layout.dir, c.layout.conf(), c.layout.bin()
	c.Variant = s.Variant
	c.NameNode = s.addr(portNameNode)
	c.DefaultFS = c.defaultFS()
	c.ResourceManager = s.addr(portRM)
	c.ResourceManagerWeb = "http://" + s.addr(portRMHTTP)
	c.KafkaBootstrap = s.addr(portKafka)
	c.HadoopJars, c.KafkaJars = s.HadoopJars, s.KafkaJars
}

// Attach opens the cluster in dir (default DefaultDir) as Start has left it. It does not check that the daemons run: Status does.
func Attach(dir string) (*Cluster, error) {
	if dir == "" {
		d, err := DefaultDir()
		if err != nil {
			return nil, err
		}
		dir = d
	}
	l, err := openLayout(dir)
	if err != nil {
		return nil, err
	}
	s, err := l.load()
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l, state: s, runner: &runner{java: s.JavaHome}}
	c.fill()
	return c, nil
}

// Env returns the variables that point clients to this cluster, as KEY=value.
func (c *Cluster) Env() []string {
	if c.External {
		return nil // the process has it
	}
	env := []string{
		"HADOOP_CONF_DIR=" + c.HadoopConfDir,
		"THALWEG_KAFKA=" + c.KafkaBootstrap,
		"THALWEG_CLUSTER_DIR=" + c.Dir,
		"THALWEG_JARS_DIR=" + filepath.Dir(c.HadoopJars),
		"THALWEG_HADOOP_JARS=" + c.HadoopJars,
		"THALWEG_KAFKA_JARS=" + c.KafkaJars,
		"THALWEG_RIG=" + c.Variant.String(),
	}
	if c.Variant.Kerberos {
		env = append(env, "KRB5_CONFIG="+c.krb5Config(), "KRB5CCNAME=FILE:"+c.layout.ticket(c.state.User))
	}
	return env
}

// Status is what one daemon does at the moment.
type Status struct {
	Daemon string
	PID    int   // 0 when it does not run
	Ready  error // nil when it serves
	Log    string
}

// Status asks every daemon of the cluster.
func (c *Cluster) Status(ctx context.Context) []Status {
	var out []Status
	for _, d := range c.state.Daemons {
		s := Status{Daemon: d, PID: c.layout.running(d), Log: c.LogFile(d)}
		if s.PID == 0 {
			s.Ready = errors.New("does not run")
		} else {
			s.Ready = c.ready(ctx, d)
		}
		out = append(out, s)
	}
	return out
}

// LogFile is the log of a daemon; what it prints itself is beside it, ending in .out.
func (c *Cluster) LogFile(daemon string) string { return c.layout.log(daemon) }

// NodeManager is the address (host:port) of a NodeManager, by which YARN knows its node.
func (c *Cluster) NodeManager(daemon string) string { return c.state.nodeAddr(daemon, portNM) }

// Exclude makes the nodes on these hosts, and no others, the excluded ones; they are decommissioned with `yarn rmadmin -refreshNodes`.
func (c *Cluster) Exclude(hosts ...string) error {
	return writeFile(c.layout.excluded(), []byte(strings.Join(append(hosts, ""), "\n")), 0o644)
}

// NodeMemoryMB is what each NodeManager has for containers.
func (c *Cluster) NodeMemoryMB() int { return nodeMemoryMB }

// ContainerLogs are the folders below which the NodeManagers write containers' logs while an application runs.
func (c *Cluster) ContainerLogs() []string {
	var out []string
	for _, d := range c.state.Daemons {
		if d == NodeManager1 || d == NodeManager2 {
			out = append(out, filepath.Join(c.layout.data(d), "logs"))
		}
	}
	return out
}
