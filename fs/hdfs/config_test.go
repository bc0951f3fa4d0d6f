package hdfs_test

import (
	"errors"
	iofs "io/fs"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/hdfs/sasl"
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

// Settings that contradict each other are one line that names the key.
func TestContradictoryNameservices(t *testing.T) {
	for _, tc := range []struct {
		set   map[string]string
		words []string
	}{
		{map[string]string{"dfs.nameservices": "prod", "dfs.ha.namenodes.prod": "a,b", "dfs.namenode.rpc-address.prod.a": "nn1:8020"},
			[]string{"dfs.namenode.rpc-address.prod.b", "dfs.ha.namenodes.prod"}},
		{map[string]string{"dfs.nameservices": "prod", "dfs.ha.namenodes.prod": "a,b", "dfs.namenode.rpc-address.prod.a": "nn1:8020", "dfs.namenode.rpc-address.prod.b": "nn1"},
			[]string{"dfs.namenode.rpc-address.prod.b", "a and b", "same address"}},
		{map[string]string{"fs.defaultFS": "hdfs://prod:8020", "dfs.nameservices": "prod", "dfs.namenode.rpc-address.prod": "nn1:8020"},
			[]string{"fs.defaultFS", "hdfs://prod"}},
		{map[string]string{"fs.defaultFS": "hdfs://prod", "dfs.nameservices": "dr", "dfs.namenode.rpc-address.dr": "far:8020", "dfs.ha.namenodes.prod": "a,b"},
			[]string{"dfs.nameservices lacks prod"}},
		{map[string]string{"hadoop.security.authentication": "kerberos", "dfs.data.transfer.protection": "private"},
			[]string{"dfs.data.transfer.protection", "privacy", `"private"`}},
	} {
		_, err := hdfs.FromConf(conf.FromMap(tc.set))
		oneLine(t, err, err, tc.words...)
	}
	cfg := hdfs.Config{User: "alice", NameNodes: map[string][]string{"prod": {"nn1:8020", "nn2:8020"}}}
	_, err := hdfs.New("prod:8020", cfg)
	oneLine(t, err, iofs.ErrInvalid, "hdfs://prod/")
}

// As for Hadoop's clients, which look at it with Kerberos only.
func TestConfigurationNamesTheProtection(t *testing.T) {
	set := map[string]string{"dfs.data.transfer.protection": "privacy,integrity"}
	for secure, want := range map[string][]sasl.Level{"simple": nil, "kerberos": {sasl.Privacy, sasl.Integrity}} {
		set["hadoop.security.authentication"] = secure
		cfg, err := hdfs.FromConf(conf.FromMap(set))
		if err != nil || !slices.Equal(cfg.DataProtection, want) {
			t.Errorf("%s: %v, %v", secure, cfg.DataProtection, err)
		}
	}
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
