package hdfs_test

import (
	"errors"
	iofs "io/fs"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

func TestConfigurationNamesTheNameNodes(t *testing.T) {
	cfg, err := hdfs.FromConf(conf.FromMap(map[string]string{
		"fs.defaultFS": "hdfs://prod", "dfs.nameservices": "prod,dr", "dfs.ha.namenodes.prod": "a,b",
		"dfs.namenode.rpc-address.prod.a": "nn1:8020", "dfs.namenode.rpc-address.prod.b": "nn2", "dfs.namenode.rpc-address.dr": "far:9000",
		"dfs.replication": "2", "dfs.blocksize": "64m", "dfs.client.use.datanode.hostname": "true",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DefaultAuthority != "prod" || !slices.Equal(cfg.NameNodes["prod"], []string{"nn1:8020", "nn2:8020"}) || !slices.Equal(cfg.NameNodes["dr"], []string{"far:9000"}) ||
		cfg.Replication != 2 || cfg.BlockSize != 64<<20 || !cfg.UseDatanodeHostname {
		t.Errorf("%+v", cfg)
	}
	_, err = hdfs.FromConf(conf.FromMap(map[string]string{"dfs.nameservices": "prod"}))
	oneLine(t, err, err, "prod", "dfs.namenode.rpc-address")
}

func TestAURIWithoutNameNodeSaysWhatToWrite(t *testing.T) {
	var reg fs.Registry
	hdfs.Register(&reg, hdfs.Config{})
	_, _, err := reg.Resolve(t.Context(), "hdfs:///path")
	if !errors.Is(err, iofs.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	t.Log(err)
}

func TestRegistrySharesOneClientAndClosesItWithItsLastUser(t *testing.T) {
	cfg := cluster(t)
	var reg fs.Registry
	hdfs.Register(&reg, cfg)
	a, p, err := reg.Resolve(t.Context(), "hdfs:///tmp")
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := reg.Resolve(t.Context(), "hdfs://"+cfg.DefaultAuthority+"/tmp")
	if err != nil {
		t.Fatal(err)
	}
	if a.URI() != b.URI() || p != "/tmp" {
		t.Errorf("%s and %s, path %s", a.URI(), b.URI(), p)
	}
	for range 2 { // closing twice counts once
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Stat(t.Context(), p); err != nil {
		t.Errorf("the second user: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), p); !errors.Is(err, iofs.ErrClosed) {
		t.Errorf("after both have closed: %v", err)
	}
}
