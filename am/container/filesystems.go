package container

import (
	"fmt"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
)

// FileSystems makes the registry of the file systems that a process of an application uses: file:// and hdfs:// as Hadoop's
// configuration describes it. id is who acts.
//
// Errors: *conf.KeyError.
func FileSystems(hadoop *conf.Configuration, id *identity.Identity, change func(*hdfs.Config), log zerolog.Logger) (*fs.Registry, error) {
	reg := &fs.Registry{}
	local.Register(reg)
	cfg, err := hdfs.FromConf(hadoop)
	if err != nil {
		return nil, fmt.Errorf("container: file systems: %w", err)
	}
	cfg.Login, cfg.Logger = id.NameNode, &log
	if change != nil {
		change(&cfg)
	}
	hdfs.Register(reg, cfg)
	return reg, nil
}
