package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
)

// snapshotFiles opens the file systems that snapshots are in: this machine's, or the cluster's, to which it connects when one is there.
type snapshotFiles struct {
	c       *cli
	cluster *cluster
	remote  *fs.Registry
}

func (c *cli) snapshotFiles() *snapshotFiles { return &snapshotFiles{c: c} }

// of is the file systems for a snapshot, and its URI in them.
func (f *snapshotFiles) of(uri string) (*fs.Registry, string, error) {
	if here, at := f.c.onDisk(uri); here {
		reg := &fs.Registry{}
		local.Register(reg)
		return reg, at, nil
	}
	if f.remote == nil {
		var err error
		if f.cluster, f.remote, err = f.c.clusterFiles(); err != nil {
			return nil, "", err
		}
	}
	return f.remote, uri, nil
}

func (f *snapshotFiles) close() {
	if f.cluster != nil {
		f.cluster.close()
	}
}

// open opens the snapshots that a command names. done closes them.
func (c *cli) open(ctx context.Context, uris ...string) (all []*inspect.Snapshot, done func(), err error) {
	files := c.snapshotFiles()
	closeAll := func() {
		for _, s := range all {
			_ = s.Close() // only local copies
		}
		files.close()
	}
	for _, uri := range uris {
		reg, at, err := files.of(uri)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		s, err := inspect.Open(ctx, reg, at)
		if err != nil {
			closeAll()
			if savepoint.Unreadable(err) {
				err = &usageError{err}
			}
			return nil, nil, err
		}
		all = append(all, s)
	}
	return all, closeAll, nil
}

// onDisk says whether a snapshot is read from this machine's own files, and by which URI.
func (c *cli) onDisk(uri string) (bool, string) {
	if strings.HasPrefix(uri, "file:") {
		return true, uri
	}
	if strings.Contains(uri, "://") {
		return false, uri
	}
	p, err := filepath.Abs(uri)
	if err != nil {
		return false, uri
	}
	if _, err := os.Stat(p); err != nil && filepath.IsAbs(uri) && !errors.Is(err, os.ErrPermission) && c.getenv("HADOOP_CONF_DIR") != "" {
		return false, uri
	}
	return true, "file://" + p
}

// clusterFiles are the cluster's file systems; plain paths are those of fs.defaultFS.
func (c *cli) clusterFiles() (*cluster, *fs.Registry, error) {
	cfg, err := c.config(nil)
	if err != nil {
		return nil, nil, err
	}
	k, err := c.connect(cfg)
	if err != nil {
		return nil, nil, err
	}
	reg, err := k.files()
	if err == nil {
		var root string
		if root, err = k.hadoop.DefaultFS(); err == nil {
			err = reg.SetDefault(root)
		}
	}
	if err != nil {
		k.close()
		return nil, nil, &usageError{err}
	}
	return k, reg, nil
}
