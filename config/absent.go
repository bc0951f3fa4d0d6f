package config

// Reasons that several keys share.
const (
	noKerberos  = "secure clusters (Kerberos) are not supported yet"
	noTLS       = "connections are not encrypted yet"
	noShipping  = "files are not sent along yet: embed them in the program (go:embed), or read them from HDFS"
	noJars      = "there are no jars: a job is one program"
	noAdaptive  = "a running job keeps its parallelism so far: stop it with a savepoint and start it with another -p"
	noUnaligned = "checkpoints are aligned so far"
	noRPCPorts  = "the processes of an application find each other, at ports that the system chooses"
	noObjects   = "records are handed on between chained operators as they are, which is Flink's object reuse"
	noPooled    = "exchange buffers are not a share of the memory: taskmanager.network.memory.buffers-per-channel and .floating-buffers-per-gate bound them"
	noBlobs     = "a job's files are in HDFS (yarn.staging-directory), not in a blob server"
	noSessions  = "there are no sessions yet: each job is an application of its own"
	noSplitting = "rest.bind-port, on YARN, and rest.port, for a job that runs here, are the only ones that count"
	noHistory   = "there is no history server; YARN keeps how an application ended (thalweg list -a) and its logs"
	noLimits    = "containers are asked for as the job's parallelism needs them"
	noUnchained = "a failure restarts the job from its last checkpoint, with its workers left up; in BATCH the stages that are needed run again"
)

// absent are keys of present Flink versions that are not here, with the reason, or with what to do instead.
//
// Source: Flink 2.x's configuration pages.
var absent = map[string]string{
	"execution.attached":                                 "thalweg run stays attached without -d, and returns with it",
	"execution.shutdown-on-attached-exit":                "an application lives as long as its job; Ctrl-C in an attached run asks whether to cancel it",
	"execution.job-listeners":                            "there are no listeners; the REST interface tells how a job goes",
	"execution.buffer-timeout.enabled":                   "execution.buffer-timeout.interval = -1 ms turns it off",
	"execution.batch.adaptive.auto-parallelism.enabled":  "BATCH jobs run at the parallelism that is set (-p)",
	"execution.batch.speculative.enabled":                "there are no speculative executions",
	"execution.batch-shuffle-mode":                       "in BATCH all exchanges between tasks are blocking ones",
	"execution.checkpointing.max-concurrent-checkpoints": "there is one checkpoint at a time",
	"execution.checkpointing.snapshot-compression":       "snapshots are not compressed yet",
	"execution.checkpointing.aligned-checkpoint-timeout": noUnaligned,
	"execution.checkpointing.local-backup.enabled":       "state is restored from the checkpoint's folder, without local copies so far",
	"execution.checkpointing.interval-during-backlog":    "checkpoints have one interval, execution.checkpointing.interval",
	"execution.checkpointing.create-subdir":              "checkpoints of a job are always in a folder of its id",
	"execution.checkpointing.file-merging.enabled":       "small state files are in the checkpoint's metadata (execution.checkpointing.fs.memory-threshold); others are not merged yet",
	"pipeline.jars":                                      noJars,
	"pipeline.classpaths":                                noJars,
	"pipeline.object-reuse":                              noObjects,
	"pipeline.cached-files":                              noShipping,
	"pipeline.generic-types":                             "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
	"pipeline.force-avro":                                "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
	"pipeline.force-kryo":                                "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
	"pipeline.serialization-config":                      "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
	"pipeline.closure-cleaner-level":                     "functions are not sent anywhere: each process runs the program itself",
	"pipeline.vertex-description-mode":                   "thalweg info shows the plan as a tree, with -o json in Flink's form",
	"taskmanager.memory.network.fraction":                noPooled,
	"taskmanager.memory.network.min":                     noPooled,
	"taskmanager.memory.network.max":                     noPooled,
	"taskmanager.network.memory.fraction":                noPooled,
	"taskmanager.network.memory.min":                     noPooled,
	"taskmanager.network.memory.max":                     noPooled,
	"taskmanager.network.memory.max-buffers-per-channel": "taskmanager.network.memory.buffers-per-channel and .floating-buffers-per-gate bound a channel's buffers",
	"taskmanager.memory.managed.consumer-weights":        "the managed memory is the state backend's (taskmanager.memory.managed.fraction)",
	"taskmanager.memory.min-segment-size":                "buffers have one size, taskmanager.memory.segment-size",
	"taskmanager.cpu.cores":                              "yarn.containers.vcores is the number of vcores of a TaskManager",
	"taskmanager.rpc.port":                               noRPCPorts,
	"taskmanager.data.port":                              noRPCPorts,
	"taskmanager.data.bind-port":                         noRPCPorts,
	"taskmanager.resource-id":                            "a TaskManager has the id of its container",
	"taskmanager.exit-on-fatal-akka-error":               "there is no Akka",
	"jobmanager.execution.failover-strategy":             noUnchained,
	"jobmanager.scheduler":                               noAdaptive,
	"scheduler-mode":                                     noAdaptive,
	"jobmanager.archive.fs.dir":                          noHistory,
	"jobmanager.execution.attempts-history-size":         "the newest failures of a job are at its REST path jobs/ID/exceptions",
	"web.exception-history-size":                         "the newest failures of a job are at its REST path jobs/ID/exceptions",
	"rest.address":                                       "a job that runs here listens at localhost, an application's master at its host's name; thalweg list -m host:port looks at one",
	"rest.bind-address":                                  "a job that runs here listens at localhost, an application's master at its host's name",
	"rest.flamegraph.enabled":                            "there are no flame graphs",
	"rest.profiling.enabled":                             "there is no profiler behind REST",
	"web.submit.enable":                                  "the status page only shows: it submits nothing",
	"web.cancel.enable":                                  "the status page only shows: it cancels nothing",
	"web.upload.dir":                                     "the status page only shows: it takes no uploads",
	"security.context.factory.classes":                   noKerberos,
	"state.backend.local-recovery":                       "state is restored from the checkpoint's folder, without local copies so far",
	"state.backend.latency-track.keyed-state-enabled":    "access to state is not measured yet",
	"state.backend.changelog.enabled":                    "there is no changelog; the pebble backend's checkpoints are incremental (state.backend.type)",
	"state.changelog.enabled":                            "there is no changelog; the pebble backend's checkpoints are incremental (state.backend.type)",
	"table.exec.state.ttl":                               "time to live is set in the program, for each state: stream.WithTTL",
	"task.cancellation.timers.timeout":                   "task.cancellation.timeout bounds the end of a task",
	"cluster.evenly-spread-out-slots":                    "YARN decides on which nodes containers run",
	"cluster.processes.halt-on-fatal-error":              "a process that cannot go on ends, always",
	"cluster.uncaught-exception-handling":                "a panic of the program fails its task",
	"cluster.intercept-user-system-exit":                 "user code runs in a worker process of its own, and may only end that",
	"slot.idle.timeout":                                  "idle TaskManagers are given back after resourcemanager.taskmanager-timeout",
	"slotmanager.number-of-slots.max":                    noLimits,
	"slotmanager.number-of-slots.min":                    noLimits,
	"slotmanager.max-total-resource.cpu":                 noLimits,
	"slotmanager.max-total-resource.memory":              noLimits,
	"slotmanager.redundant-taskmanager-num":              "there are no spare TaskManagers yet: a lost one is replaced by a new container",
	"resourcemanager.job.timeout":                        "an application ends with its job",
	"process.working-dir":                                "processes work in their container's folder; io.tmp.dirs are the local folders",
	"yarn.ship-files":                                    noShipping,
	"yarn.ship-archives":                                 noShipping,
	"yarn.ship-directories":                              noShipping,
	"yarn.application-master.port":                       noRPCPorts,
	"yarn.container-start-command-template":              "there is no JVM to start; containerized.taskmanager.env.NAME sets the environment of the processes",
	"yarn.properties-file.location":                      noSessions,
	"yarn.security.appmaster.delegation.token.services":  noKerberos,
	"yarn.security.kerberos.additionalFileSystems":       noKerberos,
	"external-resources":                                 "containers have memory and vcores so far, no GPUs or other resources",
	"io.manager.async-writer.enabled":                    "files on local disks are io.tmp.dirs, with nothing else to set",
	"fs.default-scheme":                                  "fs.defaultFS of core-site.xml (HADOOP_CONF_DIR) is the default file system",
	"fs.allowed-fallback-filesystems":                    "there are the file systems hdfs and file",
	"env.hadoop.conf.dir":                                "set HADOOP_CONF_DIR in the environment",
	"env.yarn.conf.dir":                                  "set YARN_CONF_DIR in the environment",
	"env.pid.dir":                                        "there are no daemons of ours to start by hand",
	"env.ssh.opts":                                       "there are no daemons of ours to start by hand",
	"env.log.dir":                                        "logs are in the container's log folder (yarn logs -applicationId ...)",
}

// absentFamilies are the same for all keys that begin so; the longest that fits counts.
var absentFamilies = map[string]string{
	"security.kerberos.":                     noKerberos,
	"security.delegation.":                   noKerberos,
	"yarn.security.kerberos.":                noKerberos,
	"zookeeper.sasl.":                        "nothing here uses ZooKeeper",
	"security.ssl.":                          noTLS,
	"jobmanager.adaptive-":                   noAdaptive,
	"taskmanager.network.netty.":             "there is no Netty",
	"taskmanager.network.memory.buffer-debl": "buffers have one size, taskmanager.memory.segment-size",
	"taskmanager.network.sort-shuffle.":      "in BATCH what a stage writes goes to io.tmp.dirs, with nothing else to set",
	"taskmanager.network.hybrid-shuffle.":    "in BATCH what a stage writes goes to io.tmp.dirs, with nothing else to set",
	"execution.batch.":                       "in BATCH stages run one after another at the parallelism that is set, with nothing else to set",
	"execution.checkpointing.file-merging.":  "small state files are in the checkpoint's metadata (execution.checkpointing.fs.memory-threshold); others are not merged yet",
	"execution.checkpointing.local-backup.":  "state is restored from the checkpoint's folder, without local copies so far",
	"state.backend.forst.":                   "the pebble backend sizes itself by taskmanager.memory.managed.fraction",
	"state.backend.changelog.":               "there is no changelog; the pebble backend's checkpoints are incremental (state.backend.type)",
	"blob.":                                  noBlobs,
	"kubernetes.":                            "jobs run here or on YARN",
	"historyserver.":                         noHistory,
	"queryable-state.":                       "state cannot be queried from outside",
	"table.":                                 "there is no SQL yet",
	"sql-":                                   "there is no SQL yet",
	"python.":                                "a job is a Go program",
	"job-result-store.":                      "what a failover needs is in HDFS (high-availability.storageDir)",
	"high-availability.kubernetes.":          "jobs run here or on YARN",
	"external-resource.":                     "containers have memory and vcores so far, no GPUs or other resources",
	"rest.connection-timeout":                "client.timeout and client.connection-timeout bound what the client waits for",
	"rest.idleness-timeout":                  "client.timeout and client.connection-timeout bound what the client waits for",
	"rest.retry.":                            "client.timeout and client.connection-timeout bound what the client waits for",
	"rest.await-":                            noSplitting,
	"rest.async.":                            noSplitting,
	"rest.server.":                           noSplitting,
	"rest.client.":                           "client.timeout and client.connection-timeout bound what the client waits for",
	"s3.":                                    "there are the file systems hdfs and file so far",
	"fs.s3":                                  "there are the file systems hdfs and file so far",
	"fs.oss":                                 "there are the file systems hdfs and file so far",
	"fs.gs":                                  "there are the file systems hdfs and file so far",
	"fs.hdfs.":                               "Hadoop's own files are read from HADOOP_CONF_DIR",
	"jobstore.":                              "what a failover needs is in HDFS (high-availability.storageDir)",
	"web.log.":                               "logs are in the container's log folder (yarn logs -applicationId ...)",
	"pipeline.default-kryo-serializers":      "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
	"pipeline.registered-":                   "records are encoded by codecs compiled from their Go types, or registered with serde.Register",
}

const noFailureRate = "there is no such strategy; restart-strategy.exponential-delay.attempts-before-reset-backoff bounds failures in a row"
