// Package filesystems registers the file systems that user programs can use. It is part of layer L4.
package filesystems

import (
	"fmt"
	"os"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// Registry knows local files, and HDFS as the configuration that HADOOP_CONF_DIR names has it. Nothing is connected yet.
func Registry() (*fs.Registry, error) {
	reg := &fs.Registry{}
	local.Register(reg)
	var cfg hdfs.Config
	if os.Getenv("HADOOP_CONF_DIR") != "" {
		c, err := conf.Load()
		if err == nil {
			cfg, err = hdfs.FromConf(c)
		}
		var id *identity.Identity
		if err == nil { // on a secured cluster by the tokens that the TaskManager, or who else started the program, has put there
			id, err = identity.New(c, identity.WithTokenFile(os.Getenv(token.EnvFile)))
		}
		if err != nil {
			return nil, fmt.Errorf("Hadoop's configuration: %w", err)
		}
		cfg.Login = id.NameNode
	}
	hdfs.Register(reg, cfg)
	return reg, nil
}
