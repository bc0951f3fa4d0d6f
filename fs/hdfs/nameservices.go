package hdfs

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/yarnrpc/conf"
)

const (
	keyNameservices = "dfs.nameservices"
	keyNameNodes    = "dfs.ha.namenodes."
	keyRPCAddress   = "dfs.namenode.rpc-address."
)

// nameNodes reads the addresses behind each nameservice. Settings that contradict each other are errors: a client that guessed would
// write to another cluster, or fail over to nothing.
func nameNodes(c *conf.Configuration, defaultAuthority string) (map[string][]string, error) {
	out := map[string][]string{}
	services, err := c.Strings(keyNameservices)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, ns := range services {
		addrs, err := nameNodesOf(c, ns)
		errs = append(errs, err)
		out[ns] = addrs
	}
	host, _, withPort := strings.Cut(defaultAuthority, ":")
	switch _, ha := c.Raw(keyNameNodes + host); {
	case withPort && slices.Contains(services, host):
		errs = append(errs, keyError(c, conf.KeyDefaultFS, fmt.Sprintf("%s is a nameservice (%s), which has no port: write hdfs://%s", host, keyNameservices, host)))
	case ha && !slices.Contains(services, host):
		errs = append(errs, keyError(c, keyNameNodes+host, fmt.Sprintf("%s lacks %s: add it", keyNameservices, host)))
	}
	return out, errors.Join(errs...)
}

// nameNodesOf returns the addresses of one nameservice, at least one without an error.
func nameNodesOf(c *conf.Configuration, ns string) ([]string, error) {
	ids, err := c.Strings(keyNameNodes + ns)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		if _, ok := c.Raw(keyRPCAddress + ns); !ok {
			return nil, keyError(c, keyRPCAddress+ns, fmt.Sprintf("set it, or %s%s when it has several NameNodes: %s lists %s", keyNameNodes, ns, keyNameservices, ns))
		}
		a, err := c.Address(keyRPCAddress+ns, 8020)
		return []string{a}, err
	}
	var addrs []string
	for _, id := range ids {
		key := keyRPCAddress + ns + "." + id
		if _, ok := c.Raw(key); !ok {
			return nil, keyError(c, key, fmt.Sprintf("set it, or take %s out of %s%s", id, keyNameNodes, ns))
		}
		a, err := c.Address(key, 8020)
		if err != nil {
			return nil, err
		}
		if i := slices.Index(addrs, a); i >= 0 {
			return nil, keyError(c, key, fmt.Sprintf("%s and %s of %s%s are the same address: give each NameNode its own", ids[i], id, keyNameNodes, ns))
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func keyError(c *conf.Configuration, key, fix string) error {
	value, _ := c.Raw(key)
	return &conf.KeyError{Key: key, Value: value, File: c.Source(key), Fix: fix}
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
	if host, _, err := net.SplitHostPort(authority); err == nil {
		if len(c.NameNodes[host]) > 0 {
			return nil, fmt.Errorf("hdfs: %s is a nameservice (%s), which has no port: write hdfs://%s/path: %w", host, keyNameservices, host, iofs.ErrInvalid)
		}
		return []string{authority}, nil
	}
	return []string{net.JoinHostPort(strings.Trim(authority, "[]"), defaultPort)}, nil
}
