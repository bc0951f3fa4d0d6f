package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// external is a cluster that others run, such as that of docker/hadoop, when THALWEG_RIG is "external". It is described by HADOOP_CONF_DIR,
// THALWEG_KAFKA (host:port), THALWEG_RM_WEB (http://host:port of the ResourceManager) and the stock clients on the PATH.
func external() (*Cluster, bool, error) {
	if os.Getenv("THALWEG_RIG") != "external" {
		return nil, false, nil
	}
	c := &Cluster{External: true, HadoopConfDir: os.Getenv("HADOOP_CONF_DIR"), KafkaBootstrap: os.Getenv("THALWEG_KAFKA"), ResourceManagerWeb: os.Getenv("THALWEG_RM_WEB"), runner: &runner{}}
	hdfs, err := exec.LookPath("hdfs")
	if err != nil || c.HadoopConfDir == "" || c.KafkaBootstrap == "" || c.ResourceManagerWeb == "" {
		return nil, true, fmt.Errorf("rig: an external cluster (THALWEG_RIG=external) needs HADOOP_CONF_DIR, THALWEG_KAFKA, THALWEG_RM_WEB and hdfs on the PATH")
	}
	c.BinDir = filepath.Dir(hdfs)
	return c, true, nil
}

// errExternal says that a daemon is not ours.
func (c *Cluster) errExternal(name string) error {
	return fmt.Errorf("rig: %s is a daemon of a cluster that others run (THALWEG_RIG=external)", name)
}
