package hdfs

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

const defaultPort = "8020" // of a NameNode, when a URI names none

// Config says how to reach clusters. The zero value reads hdfs://host:port under simple authentication with the server's defaults.
type Config struct {
	// NameNodes are the addresses (host:port) behind an authority, for nameservices. An authority that is not here is host[:port].
	NameNodes map[string][]string
	// DefaultAuthority is used for hdfs:///path.
	DefaultAuthority string
	// User is who acts, under simple authentication; default HADOOP_USER_NAME or the OS user.
	User string
	// IPC are added to the options of NameNode connections: mechanisms for Kerberos and tokens (ipc.WithMechanisms), protection.
	IPC []ipc.Option
	// Login returns further options for the NameNodes at addrs behind an authority: mechanisms that differ from cluster to cluster, since
	// each has tokens of its own.
	Login func(authority string, addrs []string) []ipc.Option
	// Dial opens all connections; default net.Dialer.
	Dial ipc.DialFunc
	// DataProtection are the levels at which data may travel, in order of preference (dfs.data.transfer.protection). None is for clusters
	// without, whose DataNodes expect no handshake. Clusters with dfs.encrypt.data.transfer are found out and need no setting.
	DataProtection []sasl.Level
	// UseDatanodeHostname dials DataNodes by name instead of address (dfs.client.use.datanode.hostname).
	UseDatanodeHostname bool
	// TokenServiceByName makes the service of delegation tokens host:port instead of ip:port (hadoop.security.token.service.use_ip=false).
	TokenServiceByName bool
	// Replication and BlockSize (bytes) of new files; 0 is the server's default.
	Replication int
	BlockSize   int64
	// RetryTimeout bounds a call whose context has no deadline, waits for an unreachable or unwilling NameNode included; default 30 s, and
	// 2 min for a nameservice of several, which may take as long to fail over (Hadoop's client tries 15 times, up to 15 s apart).
	RetryTimeout time.Duration
	// ConnectTimeout bounds opening one connection; default 10 s.
	ConnectTimeout time.Duration
	// IOTimeout bounds a call to the NameNode and any silence of a DataNode; default 60 s.
	IOTimeout time.Duration
	kerberos  bool // FromConf: the cluster is secured
	// Logger receives one warning per call that has to wait; default none.
	Logger *zerolog.Logger
}

func (c *Config) setDefaults(nameNodes int) {
	switch {
	case c.RetryTimeout > 0:
	case nameNodes > 1:
		c.RetryTimeout = 2 * time.Minute
	default:
		c.RetryTimeout = 30 * time.Second
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.IOTimeout <= 0 {
		c.IOTimeout = 60 * time.Second
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Logger == nil {
		nop := zerolog.Nop()
		c.Logger = &nop
	}
}

// FromConf takes addresses, protection, replication and block size from Hadoop's configuration: fs.defaultFS, dfs.nameservices,
// dfs.ha.namenodes.*, dfs.namenode.rpc-address.*, dfs.data.transfer.protection (on clusters with Kerberos), dfs.replication,
// dfs.blocksize, dfs.client.use.datanode.hostname, hadoop.security.token.service.use_ip.
//
// Errors: *conf.KeyError.
func FromConf(c *conf.Configuration) (Config, error) {
	var out Config
	var errs []error
	def, err := c.DefaultFS()
	errs = append(errs, err)
	if u, err := url.Parse(def); err == nil && u.Scheme == "hdfs" {
		out.DefaultAuthority = u.Host
	}
	out.NameNodes, err = nameNodes(c, out.DefaultAuthority)
	errs = append(errs, err)
	out.kerberos, err = c.Kerberos()
	errs = append(errs, err)
	if out.kerberos {
		out.DataProtection, err = dataProtection(c)
		errs = append(errs, err)
	}
	repl, err := c.Int("dfs.replication", 3)
	errs = append(errs, err)
	out.Replication = int(repl)
	out.BlockSize, err = c.Size("dfs.blocksize", 128<<20)
	errs = append(errs, err)
	out.UseDatanodeHostname, err = c.Bool("dfs.client.use.datanode.hostname", false)
	errs = append(errs, err)
	byIP, err := c.Bool("hadoop.security.token.service.use_ip", true)
	errs = append(errs, err)
	out.TokenServiceByName = !byIP
	return out, errors.Join(errs...)
}

// dataProtection is what dfs.data.transfer.protection says. Hadoop's clients look at it with Kerberos only.
func dataProtection(c *conf.Configuration) ([]sasl.Level, error) {
	list, err := c.String(sasl.KeyProtection, "")
	if err != nil || list == "" {
		return nil, err
	}
	levels, err := ipc.ParseProtections(list)
	if err != nil {
		return nil, keyError(c, sasl.KeyProtection, err.Error())
	}
	return levels, nil
}

// Register adds the scheme hdfs to reg. File systems are shared by all who resolve the same authority, and closed when the last of them
// closes; one that is never closed ends with the process.
func Register(reg *fs.Registry, cfg Config) {
	s := &shared{cfg: cfg, all: map[string]*entry{}}
	reg.Register("hdfs", s.open)
}

type shared struct {
	cfg Config

	mu  sync.Mutex
	all map[string]*entry
}

type entry struct {
	fs   *FileSystem
	refs int
}

func (s *shared) open(_ context.Context, u *url.URL) (fs.FileSystem, error) {
	authority := u.Host
	if authority == "" {
		authority = s.cfg.DefaultAuthority
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[authority]
	if e == nil {
		f, err := New(authority, s.cfg)
		if err != nil {
			return nil, err
		}
		e = &entry{fs: f}
		s.all[authority] = e
	}
	e.refs++
	return &handle{FileSystem: e.fs, release: sync.OnceValue(func() error { return s.release(authority, e) })}, nil
}

func (s *shared) release(authority string, e *entry) error {
	s.mu.Lock()
	e.refs--
	last := e.refs == 0
	if last {
		delete(s.all, authority)
	}
	s.mu.Unlock()
	if last {
		return e.fs.Close()
	}
	return nil
}

// handle is one user's share of a FileSystem.
type handle struct {
	*FileSystem
	release func() error
}

func (h *handle) Close() error { return h.release() }
