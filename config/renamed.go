package config

import (
	"maps"
	"slices"
	"strings"
)

// counterpart are values of Flink's that an option does not have, by key, with what to use.
var counterpart = map[string]map[string]string{
	"state.backend.type": {
		"rocksdb": pebble, "forst": pebble, "embeddedrocksdbstatebackend": pebble, "filesystem": onHeap, "memory": onHeap, "jobmanager": onHeap,
	},
	"execution.target": {
		"yarn-per-job": "; an application has one job: yarn-application", "remote": "; thalweg list -m host:port looks at what runs there",
	},
	"execution.state-recovery.claim-mode": {"legacy": "; Flink 2 has left out legacy: no_claim leaves the savepoint alone, too"},
}

const (
	pebble = "; pebble is the counterpart of RocksDB: on disk, incremental"
	onHeap = "; hashmap holds state in memory"
)

// renamed are Flink's keys that are not here: older names, with the present one, and what is not needed, with the reason after a space.
//
// Source: Flink 1.x's configuration pages, and the release notes of 2.0 for what was removed.
var renamed = map[string]string{
	"state.checkpoints.dir":                                           "execution.checkpointing.dir",
	"state.checkpoint-storage":                                        "execution.checkpointing.dir",
	"execution.checkpointing.storage":                                 "execution.checkpointing.dir",
	"state.savepoints.dir":                                            "execution.checkpointing.savepoint-dir",
	"state.checkpoints.num-retained":                                  "execution.checkpointing.num-retained",
	"state.storage.fs.memory-threshold":                               "execution.checkpointing.fs.memory-threshold",
	"state.backend.fs.memory-threshold":                               "execution.checkpointing.fs.memory-threshold",
	"state.backend":                                                   "state.backend.type",
	"state.backend.local-recovery":                                    "execution.checkpointing.local-backup.enabled",
	"taskmanager.state.local.root-dirs":                               "execution.checkpointing.local-backup.dirs",
	"state.backend.incremental":                                       " the pebble backend always is (state.backend.type)",
	"execution.checkpointing.incremental":                             " the pebble backend always is (state.backend.type)",
	"restart-strategy":                                                "restart-strategy.type",
	"execution.savepoint.path":                                        "execution.state-recovery.path",
	"execution.savepoint.ignore-unclaimed-state":                      "execution.state-recovery.ignore-unclaimed-state",
	"execution.savepoint-restore-mode":                                "execution.state-recovery.claim-mode",
	"execution.buffer-timeout":                                        "execution.buffer-timeout.interval",
	"pipeline.operator-chaining":                                      "pipeline.operator-chaining.enabled",
	"taskmanager.heap.size":                                           "taskmanager.memory.process.size",
	"taskmanager.heap.mb":                                             "taskmanager.memory.process.size",
	"taskmanager.memory.flink.size":                                   "taskmanager.memory.process.size",
	"taskmanager.memory.task.heap.size":                               "taskmanager.memory.process.size",
	"taskmanager.memory.managed.size":                                 " managed memory is a share of the container, taskmanager.memory.managed.fraction",
	"jobmanager.heap.size":                                            "jobmanager.memory.process.size",
	"jobmanager.heap.mb":                                              "jobmanager.memory.process.size",
	"jobmanager.memory.flink.size":                                    "jobmanager.memory.process.size",
	"jobmanager.memory.heap.size":                                     "jobmanager.memory.process.size",
	"slotmanager.taskmanager-timeout":                                 "resourcemanager.taskmanager-timeout",
	"yarn.maximum-failed-containers":                                  "resourcemanager.start-worker.max-failures",
	"web.port":                                                        "rest.port",
	"jobmanager.web.port":                                             "rest.port",
	"taskmanager.tmp.dirs":                                            "io.tmp.dirs",
	"jobmanager.adaptive-scheduler.resource-wait-timeout":             "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
	"jobmanager.adaptive-scheduler.resource-stabilization-timeout":    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
	"jobmanager.adaptive-scheduler.scaling-interval.min":              "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
	"jobmanager.adaptive-scheduler.scaling-interval.max":              "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
	"jobmanager.adaptive-scheduler.max-delay-for-scale-trigger":       "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
	"jobmanager.adaptive-scheduler.scale-on-failed-checkpoints-count": "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
	"job.autoscaler.target.utilization":                               "job.autoscaler.utilization.target",
	"job.autoscaler.target.utilization.boundary":                      "job.autoscaler.utilization.max",
	"job.autoscaler.scale-up.grace-period":                            "job.autoscaler.scale-down.interval",
	"high-availability":                                               " it is always on, with its data in HDFS (high-availability.storageDir)",
	"high-availability.type":                                          " it is always on, with its data in HDFS (high-availability.storageDir)",
	"high-availability.cluster-id":                                    " each application has its own",
	"jobmanager.rpc.address":                                          " the processes of an application find each other",
	"jobmanager.rpc.port":                                             " the processes of an application find each other",
	"jobmanager.bind-host":                                            " the processes of an application find each other",
	"taskmanager.bind-host":                                           " the processes of an application find each other",
	"taskmanager.host":                                                " the processes of an application find each other",
	"yarn.flink-dist-jar":                                             " thalweg's own programs are those beside it (THALWEG_LIB_DIR)",
	"yarn.per-job-cluster.include-user-jar":                           " there are no jars",
	"yarn.classpath.include-user-jar":                                 " there are no jars",
}

// renamedFamilies are the same for all keys that begin so.
var renamedFamilies = map[string]string{
	"state.backend.rocksdb.":        " the pebble backend sizes itself by taskmanager.memory.managed.fraction",
	"high-availability.zookeeper.":  " nothing here uses ZooKeeper",
	"env.java.":                     " there is no JVM",
	"classloader.":                  " there are no classes to load",
	"taskmanager.memory.jvm-":       " there is no JVM: taskmanager.memory.process.size is the container",
	"jobmanager.memory.jvm-":        " there is no JVM: jobmanager.memory.process.size is the container",
	"taskmanager.memory.framework.": " taskmanager.memory.process.size is the container, and the rest follows",
	"taskmanager.memory.task.":      " taskmanager.memory.process.size is the container, and the rest follows",
	"yarn.provided.usrlib.":         " a job is one static program, which is sent once",
	"jobmanager.memory.off-heap.":   " jobmanager.memory.process.size is the container, and the rest follows",
	"akka.":                         " there is no Akka",
	"pekko.":                        " there is no Pekko",
}

// flinks is what a key of Flink's is here: the present key, or the reason why there is none. Both are "" for others.
func flinks(key string) (present, reason string) {
	if hint, ok := renamed[key]; ok {
		if reason, ok := strings.CutPrefix(hint, " "); ok {
			return "", reason
		}
		return hint, ""
	}
	if reason, ok := absent[key]; ok {
		return "", reason
	}
	longest := ""
	for _, families := range []map[string]string{renamedFamilies, absentFamilies} {
		for prefix, why := range families {
			if strings.HasPrefix(key, prefix) && len(prefix) > len(longest) {
				longest, reason = prefix, strings.TrimPrefix(why, " ")
			}
		}
	}
	return "", reason
}

// Absent tells of the keys of Flink's that are not here and have part in them: "key: why there is none", in order. Families of keys are told
// by what they begin with, and three dots.
func Absent(part string) (out []string) {
	if len(part) < 3 {
		return nil
	}
	tell := func(keys map[string]string, rest string) {
		for k, why := range keys {
			last := k[strings.LastIndexByte(k, '.')+1:] // of a family it may be the start of a word
			if strings.Contains(strings.ToLower(k), strings.ToLower(part)) || rest != "" && last != "" && strings.HasPrefix(part, last) {
				out = append(out, k+rest+": "+strings.TrimPrefix(why, " "))
			}
		}
	}
	tell(absent, "")
	tell(absentFamilies, "...")
	tell(renamedFamilies, "...")
	slices.Sort(out)
	return out
}

// About tells of a key of Flink's that is not here, or a part of one: what it is called now, or why there is none. "" when there is nothing to
// tell.
func About(part string) string {
	key := part
	if present, reason := flinks(key); present == "" && reason == "" {
		key = ""
		for _, k := range slices.Sorted(maps.Keys(absent)) {
			if len(part) > 2 && strings.Contains(strings.ToLower(k), strings.ToLower(part)) {
				key = k
				break
			}
		}
	}
	switch present, reason := flinks(key); {
	case present != "":
		return key + " is " + present + " now"
	case reason != "":
		return key + ": " + reason
	}
	return ""
}
