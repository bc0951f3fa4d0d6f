package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// clusterFamilies are the beginnings of the keys that a session has for all of its jobs: they make its processes, or are read by those that
// serve several jobs. All other keys are of the execution of one job.
var clusterFamilies = []string{
	"jobmanager.memory.", "taskmanager.", "resourcemanager.", "slotmanager.", "yarn.", "high-availability.", "heartbeat.", "rest.", "web.", "io.tmp.dirs", "env.",
	"jobstore.", "security.", "containerized.", "flink.hadoop.", "flink.yarn.", "thalweg.hadoop.", "metrics.", "external-resource", "jobmanager.archive.",
}

// clientFamilies are the beginnings of the keys that the command line alone reads: how long it waits, and which application it talks to.
var clientFamilies = []string{"client.", "historyserver.", "execution.target", "yarn.application.id", "yarn.application.name"}

// ofJob are the exceptions: keys of a cluster's family that a job may have for itself.
var ofJob = []string{"security.redaction.additional-keys"}

// ClusterLevel reports whether a key belongs to a cluster with all of its jobs, so that a job that is submitted to a session cannot set it.
//
// Source: the split of Flink's configuration into cluster and execution options (flink run -t yarn-session takes the latter).
func ClusterLevel(key string) bool {
	return hasPrefix(key, clusterFamilies) && !slices.Contains(ofJob, key) && !ClientLevel(key)
}

// ClientLevel reports whether the command line alone reads a key.
func ClientLevel(key string) bool { return hasPrefix(key, clientFamilies) }

// ExecutionLevel is the part of c that a job brings to a session.
func (c Configuration) ExecutionLevel() Configuration {
	out := maps.Clone(c)
	maps.DeleteFunc(out, func(k, _ string) bool { return ClusterLevel(k) || ClientLevel(k) })
	return out
}

// ClusterKeys lists the keys of c that belong to a cluster, sorted.
func (c Configuration) ClusterKeys() []string {
	var out []string
	for k := range c {
		if ClusterLevel(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// SessionKeys says in one sentence that keys, one at least, cannot be set for a job in a session, and what to do.
func SessionKeys(keys []string) string {
	are, them := "is", "it"
	if len(keys) > 1 {
		are, them = "are", "them"
	}
	return fmt.Sprintf("%s %s of a whole session, which runs already, not of one of its jobs: set %s where the session starts (thalweg session start -D%s=...), or run the job as an application of its own (-t yarn-application)",
		strings.Join(keys, ", "), are, them, keys[0])
}
