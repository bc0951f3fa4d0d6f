package config

import "time"

// Execution. Source of keys and defaults: Flink 2.x, unless a default is said to differ.
var (
	Parallelism       = intOption("parallelism.default", 1, "Parallelism of operators that set none, 32768 at most.", between(1, 1<<15))
	MaxParallelism    = intOption("pipeline.max-parallelism", -1, "Number of key groups of operators that set none; -1 derives it from the parallelism (128 at least).", minusOneOr(1, 1<<15))
	OperatorChaining  = boolOption("pipeline.operator-chaining.enabled", true, "Run operators that need no exchange in one task.")
	ChainAcross       = boolOption("pipeline.operator-chaining.chain-operators-with-different-max-parallelism", true, "Also run operators of different max parallelism in one task, which has that of the first. Keyed state is always the first's.")
	GenerateUIDs      = boolOption("pipeline.auto-generate-uids", true, "Give operators without UID an identity that follows from their place in the program; false makes a missing UID a mistake, so that no change of the program can lose state.")
	PipelineName      = stringOption("pipeline.name", "", "The job's name; the program's name when empty.")
	RuntimeMode       = enumOption("execution.runtime-mode", "streaming", "How the job is run: all of it at once; or in BATCH, for bounded sources, stage by stage, with final results only. AUTOMATIC is BATCH when all sources are bounded.", "streaming", "batch", "automatic")
	SortedMemory      = bytesOption("execution.sorted-inputs.memory", 128<<20, "In BATCH, memory of a task for the sorting of its keyed inputs; more goes to disk (io.tmp.dirs). At most the task's share of the managed memory.", betweenBytes(32<<10, 1<<40))
	WatermarkInterval = durationOption("pipeline.auto-watermark-interval", 200*time.Millisecond, "How often sources emit watermarks.", from(time.Millisecond))
	UnalignedSplits   = boolOption("pipeline.watermark-alignment.allow-unaligned-source-splits", false, "Let watermark alignment hold subtasks as a whole where a source's reader has several splits and cannot pause single ones; the job fails else.")
	ObjectReuse       = boolOption("pipeline.object-reuse", false, "Hand on all records between chained operators as they are. Without it, what functions with a collector, a side output or asynchronous results emit is copied when it holds slices, maps or pointers, so that a later operator can change it without changing state or other outputs.")
	BufferTimeout     = durationOption("execution.buffer-timeout.interval", 100*time.Millisecond, "How long a record may wait in an output buffer; 0 flushes each record, -1 only full buffers.", minusOneMs(zeroOr(time.Millisecond)))

	RestartStrategy       = enumOption("restart-strategy.type", "exponential-delay", "What happens when a job fails.", "exponential-delay", "fixed-delay", "failure-rate", "none", "exponentialdelay", "fixeddelay", "failurerate", "off", "disable")
	FailoverStrategy      = enumOption("jobmanager.execution.failover-strategy", "region", "What restarts when a task fails, in STREAMING: the tasks that are connected with it, from the latest checkpoint, while the others run on; or all tasks, as after the failure of a checkpoint, of the coordinator process or of a savepoint that ends the job. In BATCH it is always what the failed stage needs.", "region", "full")
	FixedDelayAttempts    = intOption("restart-strategy.fixed-delay.attempts", 1, "Restarts before the job fails for good.", between(0, maxInt))
	FixedDelay            = durationOption("restart-strategy.fixed-delay.delay", time.Second, "Pause before a restart.", from(0))
	FailureRateMax        = intOption("restart-strategy.failure-rate.max-failures-per-interval", 1, "Restarts within the interval before the job fails for good.", between(1, maxInt))
	FailureRateInterval   = durationOption("restart-strategy.failure-rate.failure-rate-interval", time.Minute, "That interval.", from(time.Millisecond))
	FailureRateDelay      = durationOption("restart-strategy.failure-rate.delay", time.Second, "Pause before a restart.", from(0))
	ExponentialInitial    = durationOption("restart-strategy.exponential-delay.initial-backoff", time.Second, "First pause. A restart because a process died takes the first pause as zero.", from(time.Millisecond))
	ExponentialMax        = durationOption("restart-strategy.exponential-delay.max-backoff", time.Minute, "Longest pause.", from(time.Millisecond))
	ExponentialMultiplier = floatOption("restart-strategy.exponential-delay.backoff-multiplier", 1.5, "Growth of the pause.", between(1.0, 1000))
	ExponentialReset      = durationOption("restart-strategy.exponential-delay.reset-backoff-threshold", time.Hour, "Time without failure after which the pause starts anew.", from(time.Millisecond))
	ExponentialJitter     = floatOption("restart-strategy.exponential-delay.jitter-factor", 0.1, "Random part of the pause.", between(0.0, 1))
	ExponentialAttempts   = intOption("restart-strategy.exponential-delay.attempts-before-reset-backoff", -1, "Failures in a row before the job fails for good; -1 for no limit.", minusOneOr(0, maxInt))
)

// Changes of a job's parallelism. Source of keys and defaults: Flink 2.x, unless a default is said to differ.
var (
	SchedulerKind                  = enumOption("jobmanager.scheduler", "default", "What a job does when slots are short: wait for all of them, up to slot.request.timeout; or, adaptive, run with those that it gets, and with more when they come. In BATCH it waits. thalweg rescale works with either.", "default", "adaptive")
	AdaptiveWait                   = durationOption("jobmanager.adaptive-scheduler.submission.resource-wait-timeout", 5*time.Minute, "How long a job that starts or restarts waits for all slots that it wants, before it runs with fewer, or fails; -1 waits for ever.", minusOneMs(from(0)))
	AdaptiveStabilization          = durationOption("jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout", 10*time.Second, "The same, from when it has as many as it can run with at least.", from(0))
	AdaptiveCooldown               = durationOption("jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling", 30*time.Second, "Least time between two changes of a running job's parallelism. One that was asked for does not wait for it, other than in Flink.", from(0))
	AdaptiveExecutingStabilization = durationOption("jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout", time.Minute, "How long a running job's slots must stay as they are before it takes them, when there are more than it uses and fewer than it wants. All that it wants are taken at once.", from(0))
	RescaleCheckpoint              = boolOption("jobmanager.adaptive-scheduler.rescale-trigger.active-checkpoint.enabled", true, "Take a checkpoint for a change of the parallelism; else the next one is waited for.")
	RescaleMaxFailures             = intOption("jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures", 2, "After so many failed checkpoints the parallelism changes from the last one that was completed.", between(1, maxInt))
	RescaleMaxDelay                = durationOption("jobmanager.adaptive-scheduler.rescale-trigger.max-delay", 0, "After this time the parallelism changes from the last completed checkpoint. When it is not set: as long as max-checkpoint-failures and one more checkpoints take, and execution.checkpointing.timeout at least.", from(0))
)

// Autoscaling. Source of keys and defaults: Flink's Kubernetes operator 1.12, unless a default is said to differ.
var (
	Autoscaler               = boolOption("job.autoscaler.enabled", false, "Watch the load of a job's tasks, in STREAMING, and change their parallelism after it (job.autoscaler.scaling.enabled).")
	AutoscalerScaling        = boolOption("job.autoscaler.scaling.enabled", true, "false watches and tells what it would do, in the log and the metrics, and changes nothing.")
	AutoscalerTarget         = floatOption("job.autoscaler.utilization.target", 0.7, "Share of time that tasks should be busy.", between(0.01, 1.0))
	AutoscalerUtilizationMax = floatOption("job.autoscaler.utilization.max", 0.95, "Busier tasks get more subtasks. Flink's default is the target and 0.3.", between(0.01, 1.0))
	AutoscalerUtilizationMin = floatOption("job.autoscaler.utilization.min", 0.4, "Less busy tasks get fewer.", between(0.01, 1.0))
	AutoscalerCatchUp        = durationOption("job.autoscaler.catch-up.duration", 30*time.Minute, "Time to work off the backlog in, that of a restart included; 0 leaves it out.", from(0))
	AutoscalerRestart        = durationOption("job.autoscaler.restart.time", 5*time.Second, "How long a change of the parallelism stops the job. Flink's default is 5 min.", from(0))
	AutoscalerStabilization  = durationOption("job.autoscaler.stabilization.interval", 5*time.Minute, "After a start the load is not looked at for this time.", from(0))
	AutoscalerWindow         = durationOption("job.autoscaler.metrics.window", 15*time.Minute, "The load is the mean of this time.", from(time.Second))
	AutoscalerScaleDown      = durationOption("job.autoscaler.scale-down.interval", time.Hour, "Subtasks must have been too many for this time before there are fewer.", from(0))
	AutoscalerUpFactor       = floatOption("job.autoscaler.scale-up.max-factor", 100000, "Most growth at once, as a share of the subtasks that there are.", between(0.01, 1e6))
	AutoscalerDownFactor     = floatOption("job.autoscaler.scale-down.max-factor", 0.6, "Most decrease at once, likewise.", between(0.01, 1.0))
	AutoscalerMin            = intOption("job.autoscaler.vertex.min-parallelism", 1, "Least parallelism.", between(1, 1<<15))
	AutoscalerMax            = intOption("job.autoscaler.vertex.max-parallelism", 200, "Greatest parallelism.", between(1, 1<<15))
	AutoscalerExclude        = listOption("job.autoscaler.vertex.exclude.ids", "Ids of vertices whose parallelism stays.")
)

// Checkpoints and state.
var (
	CheckpointInterval  = durationOption("execution.checkpointing.interval", 0, "Time between checkpoints; 0 turns them off.", zeroOr(time.Millisecond))
	CheckpointTimeout   = durationOption("execution.checkpointing.timeout", 10*time.Minute, "A checkpoint that takes longer is aborted.", from(time.Millisecond))
	CheckpointMinPause  = durationOption("execution.checkpointing.min-pause", 0, "Least time between the end of one checkpoint and the start of the next. With it there is one checkpoint at a time (execution.checkpointing.max-concurrent-checkpoints).", from(0))
	CheckpointsAtOnce   = intOption("execution.checkpointing.max-concurrent-checkpoints", 1, "Checkpoints that may be under way at a time: with more than 1 the next begins at its interval though one before takes longer. One that completes ends those before it that have not. A savepoint does not wait for them. Not with unaligned checkpoints, for which savepoints wait, too.", between(1, 1000))
	CheckpointMode      = enumOption("execution.checkpointing.mode", "exactly_once", "Guarantee inside of the job.", "exactly_once", "exactly-once", "at_least_once", "at-least-once")
	Unaligned           = boolOption("execution.checkpointing.unaligned.enabled", false, "Barriers overtake the records that wait between tasks, which become part of the checkpoint: it completes under backpressure. Savepoints are always aligned, and so are edges that are forward, rescale or broadcast. Exactly-once only; BATCH has no checkpoints.")
	AlignedTimeout      = durationOption("execution.checkpointing.aligned-checkpoint-timeout", 0, "With unaligned checkpoints: barriers begin as aligned ones, and overtake when the checkpoint is older than this; 0 lets them overtake at once.", from(0))
	UnalignedForced     = boolOption("execution.checkpointing.unaligned.forced", false, "Unaligned checkpoints also with a custom partitioner. At another parallelism, records that were under way are dealt out anew by it: it must say the same for the same record.")
	CheckpointDir       = stringOption("execution.checkpointing.dir", "", "URI of the folder of checkpoints (hdfs:// or file://); <dir>/<job id>/chk-<n>. When empty: on YARN the staging folder's ckp; for a job that runs on this machine a temporary folder, which goes with the job and its retained checkpoints.").checked(folder)
	SavepointDir        = stringOption("execution.checkpointing.savepoint-dir", "", "URI of the default folder of savepoints.").checked(folder)
	CheckpointsRetained = intOption("execution.checkpointing.num-retained", 1, "Completed checkpoints to keep.", between(1, 10_000))
	Externalized        = enumOption("execution.checkpointing.externalized-checkpoint-retention", "retain_on_cancellation", "Whether a cancelled job keeps its last checkpoint. Flink's default is no_externalized_checkpoints; ours keeps it.", "retain_on_cancellation", "delete_on_cancellation", "no_externalized_checkpoints")
	TolerableFailures   = intOption("execution.checkpointing.tolerable-failed-checkpoints", 0, "Failed checkpoints in a row that do not fail the job.", between(0, maxInt))
	MemoryThreshold     = bytesOption("execution.checkpointing.fs.memory-threshold", 20<<10, "State files up to this size are stored in the checkpoint's metadata.", betweenBytes(0, 1<<20))
	LocalBackup         = boolOption("execution.checkpointing.local-backup.enabled", false, "Keep a copy of the latest checkpoint's state on the TaskManager's disk, so that a worker process that replaces another one need not read the checkpoint's folder. The copies of the pebble backend are links to its files; those of hashmap are written in addition.")
	LocalBackupDirs     = listOption("execution.checkpointing.local-backup.dirs", "Folders for these copies; a folder of the TaskManager's own is made in each. When not set: where its other local files are (io.tmp.dirs, on YARN the container's), and links cost nothing only there.")
	FromLocal           = boolOption("execution.state-recovery.from-local", true, "Restore from local copies where there are any (execution.checkpointing.local-backup.enabled). Flink's default is false.")
	SnapshotCompression = boolOption("execution.checkpointing.snapshot-compression", false, "Compress (S2) the checkpoints of the hashmap backend and canonical savepoints of both. The files of pebble are compressed anyway.")
	StateBackend        = enumOption("state.backend.type", "hashmap", "Keyed state backend.", "hashmap", "pebble")
	SavepointPath       = stringOption("execution.state-recovery.path", "", "Savepoint or checkpoint to start from.").checked(folder)
	AllowNonRestored    = boolOption("execution.state-recovery.ignore-unclaimed-state", false, "Start although the savepoint holds state that no operator claims (--allowNonRestoredState).")
	ClaimMode           = enumOption("execution.state-recovery.claim-mode", "no_claim", "Who owns the files of the savepoint afterwards.", "claim", "no_claim")
)

// Merging of state files. Source of keys and defaults: Flink 2.x.
var (
	FileMerging = boolOption("execution.checkpointing.file-merging.enabled", false,
		"Put the state files that the subtasks of one TaskManager write for a checkpoint together into few files, of which each subtask refers to its parts. State below execution.checkpointing.fs.memory-threshold is in the checkpoint's metadata all the same. Savepoints are not merged.")
	FileMergingMaxSize     = bytesOption("execution.checkpointing.file-merging.max-file-size", 32<<20, "A file of this size takes no more.", betweenBytes(1<<10, 1<<40))
	FileMergingMaxSubtasks = intOption("execution.checkpointing.file-merging.max-subtasks-per-file", 4,
		"Subtasks that share a file, at most; with fewer, more files are written at the same time.", between(1, 1<<15))
	FileMergingMaxAmplification = floatOption("execution.checkpointing.file-merging.max-space-amplification", 2,
		"What an incremental checkpoint still needs of an earlier one's file is written anew when the file is more than so many times as large; below 1, files stay as long as anything in them is needed.", between(0.0, 1e6))
)

// Processes and memory.
var (
	JobManagerMemory      = bytesOption("jobmanager.memory.process.size", 448<<20, "Size of the application master's container. Flink's default is 1600mb.", betweenBytes(64<<20, 16<<40))
	TaskManagerMemory     = bytesOption("taskmanager.memory.process.size", 1<<30, "Size of a TaskManager's container. Flink's default is 1728mb.", betweenBytes(128<<20, 16<<40))
	TaskSlots             = intOption("taskmanager.numberOfTaskSlots", 1, "Slots of a TaskManager.", between(1, 4096))
	ManagedFraction       = floatOption("taskmanager.memory.managed.fraction", 0.4, "Share of a TaskManager's memory for the state backend's caches (pebble).", share)
	NetworkBufferSize     = bytesOption("taskmanager.memory.segment-size", 32<<10, "Size of an exchange buffer.", betweenBytes(1, 64<<20))
	BuffersPerChannel     = intOption("taskmanager.network.memory.buffers-per-channel", 2, "Exchange buffers of each channel.", between(1, 1<<16))
	FloatingBuffers       = intOption("taskmanager.network.memory.floating-buffers-per-gate", 8, "Further exchange buffers of each input.", between(0, 1<<16))
	OverdraftBuffers      = intOption("taskmanager.network.memory.max-overdraft-buffers-per-gate", 5, "With unaligned checkpoints: exchange buffers that a task may fill above the bound of its output before it stops in the middle of a record.", between(0, 1<<16))
	TmpDirs               = listOption("io.tmp.dirs", "Local folders, comma separated; YARN's LOCAL_DIRS on YARN, the system's temporary folder else.")
	HeartbeatInterval     = durationOption("heartbeat.interval", time.Second, "Between TaskManager and JobMaster, and from the processes of a job to whoever started them. Flink's default is 10 s.", within(time.Millisecond, time.Hour))
	HeartbeatTimeout      = durationOption("heartbeat.timeout", 10*time.Second, "Silence after which the other side counts as dead; longer than heartbeat.interval. Flink's default is 50 s.", from(10*time.Millisecond))
	RestPort              = intOption("rest.port", 8081, "Port of the REST interface with --target local, 0 for any free one; when it is not set, the first free one of 8081 to 8100. On YARN a free one is taken (rest.bind-port).", between(0, 1<<16-1))
	RestBindPort          = stringOption("rest.bind-port", "0", "Port of the REST interface on YARN; 0 takes a free one.").checked(ports)
	WebRefreshInterval    = durationOption("web.refresh-interval", 3*time.Second, "How often the dashboard asks anew.", from(100*time.Millisecond))
	ExceptionHistorySize  = intOption("web.exception-history-size", 16, "Failures of a job that are remembered, each with those that came with it.", between(1, 10_000))
	CancellationTimeout   = durationOption("task.cancellation.timeout", 10*time.Second, "How long cancelled tasks may take to end before their worker process, which is of this job alone, is killed. Flink's default is 180 s, after which it ends the whole TaskManager.", from(time.Millisecond))
	SlotRequestTimeout    = durationOption("slot.request.timeout", 5*time.Minute, "How long a job waits for its slots.", from(time.Millisecond))
	TaskManagerTimeout    = durationOption("resourcemanager.taskmanager-timeout", 30*time.Second, "An idle TaskManager is given back after this time.", from(time.Millisecond))
	RedundantTaskManagers = intOption("slotmanager.redundant-taskmanager-num", 0, "TaskManagers that are kept beside those that are needed, while a job runs: when one is lost, its tasks go to them at once. They count as whole TaskManagers; Flink counts free slots.", between(0, 10_000))
	RegistrationTimeout   = durationOption("resourcemanager.taskmanager-registration.timeout", 5*time.Minute, "A container whose TaskManager does not register is replaced after this time.", from(time.Millisecond))
	JobStoreExpiration    = durationOption("jobstore.expiration-time", time.Hour, "How long a session shows a job after its end.", from(time.Second))
	JobStoreCapacity      = intOption("jobstore.max-capacity", 100, "Ended jobs that a session shows, the newest ones. Flink's default is unbounded.", between(1, 100_000))
	StartFailureRate      = floatOption("resourcemanager.start-worker.max-failure-rate", 10, "Failed starts per minute above which requests pause.", between(0.0, 1e6))
	StartRetryInterval    = durationOption("resourcemanager.start-worker.retry-interval", 3*time.Second, "That pause.", from(0))
	StartFailureLimit     = intOption("resourcemanager.start-worker.max-failures", 30, "Failed starts in a row after which the application fails, -1 for no limit. Flink has no such limit.", minusOneOr(1, maxInt))
	ExcludeFailures       = intOption("resourcemanager.node-exclusion.failures", 3, "Failed starts on a host within the duration after which no containers are asked for there, -1 for never. At most half of the cluster's nodes are left out. Flink has no such key.", minusOneOr(1, maxInt))
	ExcludeFor            = durationOption("resourcemanager.node-exclusion.duration", 10*time.Minute, "How long a host is left out.", within(time.Second, 30*24*time.Hour))
	PreviousWorkerTimeout = durationOption("resourcemanager.previous-worker.recovery.timeout", 5*time.Second, "How long a new application attempt waits for the TaskManagers of the last one, and for the tasks in them, to go on with those; with 0 jobs restart. Flink's default is 0.", from(0))
)

// Ended jobs. Source of keys: Flink 2.x.
var (
	ArchiveDir     = stringOption("jobmanager.archive.fs.dir", "", "Folder to which a job on YARN is written when it ends, for thalweg history. When it is empty: the staging folder's history. Flink writes none then.").checked(folder)
	HistoryDirs    = listOption("historyserver.archive.fs.dir", "Folders that thalweg history looks into. When it is empty: jobmanager.archive.fs.dir.")
	HistoryRefresh = durationOption("historyserver.archive.fs.refresh-interval", 10*time.Second, "How often thalweg history serve looks for new archives.", within(100*time.Millisecond, 24*time.Hour))
	HistoryKept    = intOption("historyserver.archive.retained-jobs", 100, "Archives that stay in a folder, the newest ones: the others are removed when a job ends. -1 keeps all, which is Flink's default.", minusOneOr(1, maxInt))
	HistoryAddress = stringOption("historyserver.web.address", "localhost", "Where thalweg history serve listens; 0.0.0.0 for all of the machine's addresses, which is Flink's default.")
	HistoryPort    = intOption("historyserver.web.port", 8082, "Its port; 0 takes a free one.", between(0, 65535))
)

// YARN.
var (
	YarnID                 = stringOption("yarn.application.id", "", "The running application to talk to.")
	YarnName               = stringOption("yarn.application.name", "", "The application's name; pipeline.name when empty, else the name of the artifact's file.")
	YarnQueue              = stringOption("yarn.application.queue", "", "Queue; the cluster's default when empty.")
	YarnType               = stringOption("yarn.application.type", "Thalweg", "Type shown by YARN.")
	YarnPriority           = intOption("yarn.application.priority", -1, "Priority; negative leaves the cluster's default.", between(-maxInt-1, maxInt))
	YarnTags               = listOption("yarn.tags", "Tags.")
	YarnAttempts           = intOption("yarn.application-attempts", 2, "Attempts of the application master; capped by the cluster. Flink's default is 1 without high availability.", between(1, maxInt))
	YarnAttemptsInterval   = durationOption("yarn.application-attempt-failures-validity-interval", 10*time.Second, "Only failures of attempts inside of this window count, so that an application that fails now and then lives on, and one whose attempts each fail later than this does too; -1 ms counts all.", minusOneMs(from(time.Millisecond)))
	YarnMasterCores        = intOption("yarn.appmaster.vcores", 1, "Vcores of the application master.", between(1, 4096))
	YarnContainerCores     = intOption("yarn.containers.vcores", -1, "Vcores of a TaskManager; -1 takes the number of slots.", minusOneOr(1, 4096))
	YarnHeartbeat          = durationOption("yarn.heartbeat.interval", time.Second, "Time between calls to the ResourceManager when nothing is open. A number without unit is seconds in Flink; give a unit. Flink's default is 5 s.", within(10*time.Millisecond, time.Hour))
	YarnContainerHeartbeat = durationOption("yarn.heartbeat.container-request-interval", 100*time.Millisecond, "The same while containers are asked for. Flink's default is 500 ms.", within(10*time.Millisecond, time.Hour))
	YarnReplication        = intOption("yarn.file-replication", -1, "Replication of staged files; -1 takes the file system's.", minusOneOr(1, 512))
	YarnStaging            = stringOption("yarn.staging-directory", "", "URI of the staging root; <home>/.thalweg when empty.").checked(folder)
	ExternalResources      = listOption("external-resources", "Names of external resources of a TaskManager, such as gpu. external-resource.NAME.amount is how many each TaskManager gets, external-resource.NAME.yarn.config-key what YARN calls it (yarn.io/gpu).")
	YarnRolledLogsExclude  = stringOption("yarn.rolled-logs.exclude-pattern", "", "Log files that it leaves out of these. Spark's idea, likewise.")
	YarnShipFiles          = listOption("yarn.ship-files", "Files and folders that every container gets in its working folder, by their names: paths here, or URIs of what the cluster has. Also --ship.")
	YarnShipArchives       = listOption("yarn.ship-archives", "Archives (.zip .jar .tar .tar.gz .tgz), here or on the cluster, that every container finds unpacked in a folder of the archive's name.")
	YarnProvidedLibs       = listOption("yarn.provided.lib.dirs", "Folders on the cluster, readable by everybody, whose files every container gets, once per node for all applications. Programs of Thalweg in them are used in place of those beside the client, so that nothing of it is sent.")
	YarnViewACLs           = stringOption("yarn.view.acls", "", "Who may see the application: users, a space, groups; * for all.")
	YarnModifyACLs         = stringOption("yarn.modify.acls", "", "Who may kill the application: users, a space, groups; * for all.")
	YarnNodeLabel          = stringOption("yarn.application.node-label", "", "Node label expression of the application.")
	YarnWorkerNodeLabel    = stringOption("yarn.taskmanager.node-label", "", "Node label expression of TaskManagers; beats yarn.application.node-label.")
	YarnRolledLogsInclude  = stringOption("yarn.rolled-logs.include-pattern", "", "Log files that YARN aggregates while the application runs (Java regular expression). Spark's idea; Flink has no such key.")
	HADir                  = stringOption("high-availability.storageDir", "", "URI of the folder of high-availability data; <staging>/<application>/ha when empty.").checked(folder)
)

// Client and security.
var (
	Target               = enumOption("execution.target", "local", "Where thalweg run runs a job without -t.", "local", "yarn-application", "yarn-session")
	ClientTimeout        = durationOption("client.timeout", time.Minute, "How long the client waits for one answer of a job (savepoint, stop).", from(time.Millisecond))
	ClientConnectTimeout = durationOption("client.connection-timeout", 20*time.Second, "How long the client tries to reach the ResourceManager, the NameNode or the application. Flink has no such key; Hadoop's clients try for up to 15 minutes.", from(time.Millisecond))
	RedactionKeys        = listOption("security.redaction.additional-keys", "Further parts of keys whose values are never shown.")
	LogLevel             = enumOption("env.log.level", "info", "Log level of all processes.", "trace", "debug", "info", "warn", "error")
	LogMaxBytes          = bytesOption("env.log.max-size", 64<<20, "A log file is rolled at this size. Flink's default is unbounded.", betweenBytes(1<<20, 1<<40))
	LogMaxFiles          = intOption("env.log.max", 10, "Rolled log files that are kept.", between(1, 10_000))
)

// Kerberos.
var (
	KerberosKeytab      = stringOption("security.kerberos.login.keytab", "", "Path of the keytab that the client and the application log in with on a cluster with Kerberos; needs security.kerberos.login.principal. With it an application outlives every token.")
	KerberosPrincipal   = stringOption("security.kerberos.login.principal", "", "Who logs in with the keytab, name@REALM or name/host@REALM.")
	KerberosCache       = boolOption("security.kerberos.login.use-ticket-cache", true, "Without a keytab the client uses the tickets of kinit (KRB5CCNAME). The application gets delegation tokens alone, and ends when these can be renewed no further (7 days by Hadoop's defaults).")
	KerberosConf        = stringOption("security.kerberos.krb5-conf.path", "", "Path of the client's krb5.conf, which the application gets, too; when empty KRB5_CONFIG, else /etc/krb5.conf of each machine.")
	KerberosFileSystems = listOption("security.kerberos.access.hadoopFileSystems", "Further file systems (hdfs://nameservice or hdfs://host:port) that the application needs tokens for, besides the default one and that of the staging folder.")
	TokensEnabled       = boolOption("security.delegation.tokens.enabled", true, "Whether delegation tokens are obtained at submission, and again by the application. Without them the cluster must give tokens in another way (HADOOP_TOKEN_FILE_LOCATION).")
	TokensRatio         = floatOption("security.delegation.tokens.renewal.time-ratio", 0.75, "At this part of their life an application with a keytab obtains tokens again, and hands them to its TaskManagers.", between(0.01, 1.0))
	TokensBackoff       = durationOption("security.delegation.tokens.renewal.retry.backoff", time.Hour, "Longest wait before another try when tokens could not be obtained; the first is a second, each further one twice as long.", from(time.Millisecond))
	ShipKeytab          = boolOption("yarn.security.kerberos.ship-local-keytab", true, "Whether the keytab is sent with the application, readable by its owner alone; otherwise it is at the same path on each node.")
	LocalKeytab         = stringOption("yarn.security.kerberos.localized-keytab-path", "krb5.keytab", "Name of the keytab in the application master's folder; with ship-local-keytab=false its path on the nodes.")
)

// AtLeastOnce reports whether checkpoints need no alignment (execution.checkpointing.mode, in either spelling).
func AtLeastOnce(c Configuration) bool {
	m := CheckpointMode.Value(c)
	return m == "at_least_once" || m == "at-least-once"
}

// ConcurrentCheckpoints is how many checkpoints may be under way at a time: 1 when there is to be a pause between them.
func ConcurrentCheckpoints(c Configuration) int {
	if CheckpointMinPause.Value(c) > 0 {
		return 1
	}
	return CheckpointsAtOnce.Value(c)
}

// UnalignedCheckpoints reports whether barriers may overtake records (execution.checkpointing.unaligned.enabled, which is for exactly-once).
func UnalignedCheckpoints(c Configuration) bool { return Unaligned.Value(c) && !AtLeastOnce(c) }
