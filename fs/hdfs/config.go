package hdfs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
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
	// Dial opens all connections; default net.Dialer.
	Dial ipc.DialFunc
	// WrapDataTransfer may put a security layer on a fresh connection to a DataNode, with the token of the block. Nil is none. It must
	// end with its context.
	WrapDataTransfer func(ctx context.Context, nc net.Conn, token *commonpb.TokenProto) (net.Conn, error)
	// UseDatanodeHostname dials DataNodes by name instead of address (dfs.client.use.datanode.hostname).
	UseDatanodeHostname bool
	// Replication and BlockSize (bytes) of new files; 0 is the server's default.
	Replication int
	BlockSize   int64
	// RetryTimeout bounds a call whose context has no deadline, waits for an unreachable or unwilling NameNode included; default 30 s.
	RetryTimeout time.Duration
	// ConnectTimeout bounds opening one connection; default 10 s.
	ConnectTimeout time.Duration
	// IOTimeout bounds a call to the NameNode and any silence of a DataNode; default 60 s.
	IOTimeout time.Duration
	// Logger receives one warning per call that has to wait; default none.
	Logger *zerolog.Logger
}

func (c *Config) setDefaults() {
	if c.RetryTimeout <= 0 {
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

// FromConf takes addresses, replication and block size from Hadoop's configuration: fs.defaultFS, dfs.nameservices,
// dfs.ha.namenodes.*, dfs.namenode.rpc-address.*, dfs.replication, dfs.blocksize, dfs.client.use.datanode.hostname.
//
// Errors: *conf.KeyError.
func FromConf(c *conf.Configuration) (Config, error) {
	out := Config{NameNodes: map[string][]string{}}
	var errs []error
	def, err := c.DefaultFS()
	errs = append(errs, err)
	if u, err := url.Parse(def); err == nil && u.Scheme == "hdfs" {
		out.DefaultAuthority = u.Host
	}
	services, err := c.Strings("dfs.nameservices")
	errs = append(errs, err)
	for _, ns := range services {
		ids, err := c.Strings("dfs.ha.namenodes." + ns)
		errs = append(errs, err)
		keys := []string{"dfs.namenode.rpc-address." + ns}
		if len(ids) > 0 {
			keys = nil
			for _, id := range ids {
				keys = append(keys, "dfs.namenode.rpc-address."+ns+"."+id)
			}
		}
		for _, k := range keys {
			if _, ok := c.Raw(k); !ok {
				continue
			}
			a, err := c.Address(k, 8020)
			errs = append(errs, err)
			out.NameNodes[ns] = append(out.NameNodes[ns], a)
		}
		if len(out.NameNodes[ns]) == 0 {
			errs = append(errs, fmt.Errorf("hdfs: nameservice %s has no dfs.namenode.rpc-address.%s: set it or take it out of dfs.nameservices", ns, ns))
		}
	}
	repl, err := c.Int("dfs.replication", 3)
	errs = append(errs, err)
	out.Replication = int(repl)
	out.BlockSize, err = c.Size("dfs.blocksize", 128<<20)
	errs = append(errs, err)
	out.UseDatanodeHostname, err = c.Bool("dfs.client.use.datanode.hostname", false)
	errs = append(errs, err)
	return out, errors.Join(errs...)
}

// addresses returns the NameNodes behind an authority.
func (c *Config) addresses(authority string) ([]string, error) {
	if authority == "" {
		authority = c.DefaultAuthority
	}
	if a := c.NameNodes[authority]; len(a) > 0 {
		return a, nil
	}
	if authority == "" {
		return nil, fmt.Errorf("hdfs: the URI names no NameNode and fs.defaultFS is not an hdfs:// address: write hdfs://host:port/path or set HADOOP_CONF_DIR: %w", iofs.ErrInvalid)
	}
	if _, _, err := net.SplitHostPort(authority); err == nil {
		return []string{authority}, nil
	}
	return []string{net.JoinHostPort(strings.Trim(authority, "[]"), defaultPort)}, nil
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
