package yarnfake

import (
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

type options struct {
	nodes      int
	nodeSize   yarn.Resource
	hosts      bool
	largest    yarn.Resource
	unitMB     int64
	memoryOnly bool
	queues     []string
	attempts   int32
	amExpiry   time.Duration
	runner     Runner
	dir        string
	logger     zerolog.Logger
	extra      map[string]string
}

// Option changes a Cluster.
type Option func(*options)

// WithNodes sets number and size of the NodeManagers, two of 8 GiB and 16 vcores by default.
func WithNodes(n int, size yarn.Resource) Option {
	return func(o *options) { o.nodes, o.nodeSize = n, size }
}

// WithHosts gives each node a loopback address of its own, 127.0.0.1 and on: applications leave out hosts, not nodes.
func WithHosts() Option { return func(o *options) { o.hosts = true } }

// WithLargest sets the largest container, 8 GiB and 4 vcores by default.
func WithLargest(r yarn.Resource) Option { return func(o *options) { o.largest = r } }

// WithUnit sets the multiple that memory is rounded up to, in MiB, 64 by default.
func WithUnit(mb int64) Option { return func(o *options) { o.unitMB = mb } }

// WithDominantCalculator counts vcores too. By default they are not counted, and every grant shows 1 vcore.
func WithDominantCalculator() Option { return func(o *options) { o.memoryOnly = false } }

// WithQueues sets the queues, "default" by default.
func WithQueues(names ...string) Option { return func(o *options) { o.queues = names } }

// WithMaxAttempts bounds the attempts of every application, 2 by default (yarn.resourcemanager.am.max-attempts).
func WithMaxAttempts(n int32) Option { return func(o *options) { o.attempts = n } }

// WithAMExpiry fails a registered attempt that sends no beat for so long. Off by default.
func WithAMExpiry(d time.Duration) Option { return func(o *options) { o.amExpiry = d } }

// WithRunner sets what runs in containers, Idle by default.
func WithRunner(r Runner) Option { return func(o *options) { o.runner = r } }

// WithDir sets the folder for containers' files and logs; without it they go to a temporary one that Close removes.
func WithDir(dir string) Option { return func(o *options) { o.dir = dir } }

// WithLogger sets the logger, none by default.
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.logger = l } }

// WithConf adds properties to the configuration that Conf and ConfDir give, such as fs.defaultFS.
func WithConf(m map[string]string) Option { return func(o *options) { maps.Copy(o.extra, m) } }

// Cluster is a running fake. All methods are safe for concurrent use.
type Cluster struct {
	o       options
	ownDir  bool
	start   time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup // containers and the expiry loop
	rmAddr  string
	amAddr  string
	webAddr string

	lifecycle sync.Mutex // serialises stop and start of the ResourceManager; taken before mu

	mu            sync.Mutex
	closed        bool
	rmServers     []*ipcserver.Server
	timestamp     int64 // of this ResourceManager's start
	epoch         int64
	nextApp       int32
	apps          map[yarn.ApplicationID]*app
	nodes         []*node
	keys          secrets
	grantsPerBeat int
	grantDelay    time.Duration
	launchCheck   func(Launch) error
	drops         map[string]int
	refuse        map[string][]error
}

// Start starts a cluster on ports of this machine that the system chooses. Close it.
func Start(opts ...Option) (*Cluster, error) {
	o := options{
		nodes: 2, nodeSize: yarn.Resource{MemoryMB: 8192, VCores: 16}, largest: yarn.Resource{MemoryMB: 8192, VCores: 4},
		unitMB: 64, memoryOnly: true, queues: []string{"default"}, attempts: 2, runner: Idle, logger: zerolog.Nop(),
		extra: make(map[string]string),
	}
	for _, f := range opts {
		f(&o)
	}
	c := &Cluster{
		o: o, start: time.Now(), timestamp: time.Now().UnixMilli(), epoch: 0, apps: make(map[yarn.ApplicationID]*app),
		keys: newSecrets(), drops: make(map[string]int), refuse: make(map[string][]error),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o.dir == "" {
		d, err := os.MkdirTemp("", "yarnfake-")
		if err != nil {
			return nil, fmt.Errorf("yarnfake: start: %w", err)
		}
		c.o.dir, c.ownDir = d, true
	}
	if err := c.boot(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("yarnfake: start: %w", err)
	}
	return c, nil
}

func (c *Cluster) boot() error {
	for i := range c.o.nodes {
		n, err := c.startNode(i)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	c.rmAddr, c.amAddr = "127.0.0.1:0", "127.0.0.1:0"
	if err := c.serveRM(); err != nil {
		return err
	}
	c.webAddr = c.rmAddr // there are no web pages; the address only appears in URLs
	if c.o.amExpiry > 0 {
		c.wg.Go(c.expireMasters)
	}
	return nil
}

// serveRM opens the two ports of the ResourceManager, those of before where it ran before.
func (c *Cluster) serveRM() error {
	rm, err := listen(c.rmAddr)
	if err != nil {
		return err
	}
	am, err := listen(c.amAddr)
	if err != nil {
		_ = rm.Close()
		return err
	}
	c.rmAddr, c.amAddr = rm.Addr().String(), am.Addr().String()
	clientSrv := ipcserver.New(ipcserver.Config{Handler: c.faulty(c.handleClient), Simple: true, Password: c.rmTokenPassword})
	amSrv := ipcserver.New(ipcserver.Config{Handler: c.faulty(c.handleMaster), Password: c.amrmPassword})
	clientSrv.Serve(rm)
	amSrv.Serve(am)
	c.mu.Lock()
	c.rmServers = []*ipcserver.Server{clientSrv, amSrv}
	c.mu.Unlock()
	return nil
}

// listen takes a port; one that was just given up may need a moment.
func listen(addr string) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		l, err := net.Listen("tcp", addr) //nolint:noctx // does not wait
		if err == nil {
			return l, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Close ends all containers, connections and goroutines.
func (c *Cluster) Close() error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	servers := c.rmServers
	for _, n := range c.nodes {
		servers = append(servers, n.srv)
	}
	c.mu.Unlock()
	c.cancel()
	for _, s := range servers {
		s.Close()
	}
	c.wg.Wait()
	if c.ownDir {
		return os.RemoveAll(c.o.dir)
	}
	return nil
}

// Properties are the configuration keys with which clients find the cluster.
func (c *Cluster) Properties() map[string]string {
	m := map[string]string{
		conf.KeyRMHostname:               "127.0.0.1",
		conf.KeyRMAddress:                c.rmAddr,
		conf.KeyRMSchedulerAddress:       c.amAddr,
		conf.KeyRMWebAddress:             c.webAddr,
		conf.KeyMinimumAllocationMB:      strconv.FormatInt(c.o.unitMB, 10),
		"hadoop.security.authentication": "simple",
	}
	maps.Copy(m, c.o.extra)
	return m
}

// Conf is the configuration for clients in this process.
func (c *Cluster) Conf() *conf.Configuration { return conf.FromMap(c.Properties()) }

// ConfDir writes core-site.xml and yarn-site.xml into dir, for other processes' HADOOP_CONF_DIR.
func (c *Cluster) ConfDir(dir string) error {
	var core, site strings.Builder
	props := c.Properties()
	for _, k := range slices.Sorted(maps.Keys(props)) {
		b := &core
		if strings.HasPrefix(k, "yarn.") {
			b = &site
		}
		b.WriteString("  <property><name>")
		_ = xml.EscapeText(b, []byte(k))
		b.WriteString("</name><value>")
		_ = xml.EscapeText(b, []byte(props[k]))
		b.WriteString("</value></property>\n")
	}
	for name, b := range map[string]*strings.Builder{"core-site.xml": &core, "yarn-site.xml": &site} {
		text := "<?xml version=\"1.0\"?>\n<configuration>\n" + b.String() + "</configuration>\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("yarnfake: write configuration: %w", err)
		}
	}
	return nil
}

// Dir is the folder that holds containers' files and logs: <node>/local/<application>/<container> and
// <node>/logs/<application>/<container>.
func (c *Cluster) Dir() string { return c.o.dir }

// Stats is what an application did and got, over all its attempts.
type Stats struct {
	Beats     int // allocate calls that were run, repeated ones not counted
	Registers int
	Granted   int // containers handed out, the ApplicationMasters' own not counted
	Released  int // given back by the ApplicationMaster through allocate
	Started   int // accepted by a NodeManager
	Completed int
	Attempts  int
	Open      int // sum of the open asks' counts for any host
	Live      []yarn.ContainerID
}

// Stats returns the counts of an application; the zero value when it is unknown.
func (c *Cluster) Stats(id yarn.ApplicationID) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.apps[id]
	if a == nil {
		return Stats{}
	}
	s := a.stats
	s.Attempts = len(a.attempts)
	s.Open = a.current().open()
	for _, ct := range a.containers {
		if !ct.master && ct.state != stateDone {
			s.Live = append(s.Live, ct.id)
		}
	}
	slices.SortFunc(s.Live, func(a, b yarn.ContainerID) int { return int(a.ID - b.ID) })
	return s
}

// Applications are the ids of all applications, oldest first.
func (c *Cluster) Applications() []yarn.ApplicationID {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := slices.Collect(maps.Keys(c.apps))
	slices.SortFunc(ids, func(a, b yarn.ApplicationID) int { return int(a.ID - b.ID) })
	return ids
}

// Master is the container of the application's running attempt.
func (c *Cluster) Master(id yarn.ApplicationID) (yarn.ContainerID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.apps[id]; a != nil {
		if m := a.current().master; m != nil && m.state != stateDone {
			return m.id, true
		}
	}
	return yarn.ContainerID{}, false
}
