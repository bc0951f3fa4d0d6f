package rpc

import (
	"encoding/json"
	"strings"

	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// MaxMessageBytes is the largest message: one above it breaks its link. State above execution.checkpointing.fs.memory-threshold never
// travels here.
const MaxMessageBytes = 64 << 20

// The links as their owners see them.
type (
	// TaskManagerLink is the JobMaster's end, TaskManagerUplink the TaskManager's.
	TaskManagerLink   = Link[*pb.TaskManagerDown, *pb.TaskManagerUp]
	TaskManagerUplink = Link[*pb.TaskManagerUp, *pb.TaskManagerDown]
	// CoordinatorLink is the JobMaster's end, CoordinatorUplink the coordinator process's.
	CoordinatorLink   = Link[*pb.CoordinatorDown, *pb.CoordinatorUp]
	CoordinatorUplink = Link[*pb.CoordinatorUp, *pb.CoordinatorDown]
	// WorkerLink is the TaskManager's end, WorkerUplink the worker's.
	WorkerLink   = Link[*pb.WorkerDown, *pb.WorkerUp]
	WorkerUplink = Link[*pb.WorkerUp, *pb.WorkerDown]
)

// Environment of a job process, set by whoever starts it (the TaskManager, or the dispatcher for the coordinator process).
const (
	EnvRole    = "THALWEG_ROLE"    // RolePlan, RoleCoordinator or RoleWorker
	EnvControl = "THALWEG_CONTROL" // path of the Unix socket to dial
	EnvConfig  = "THALWEG_CONFIG"  // path of a JSON file that holds a ProcessConfig
	EnvJobID   = "THALWEG_JOB_ID"

	RolePlan        = "plan"
	RoleCoordinator = "coordinator"
	RoleWorker      = "worker"
)

// KindNotRunning is the kind of a Failure that declines a checkpoint because the task is not there (any more): its own failure, which is
// reported apart, and not the checkpoint's.
const KindNotRunning = "not-running"

// KindDamaged is the kind of a Failure of a task whose state cannot be read as the checkpoint says it was written. Nothing heals it but
// another checkpoint.
const KindDamaged = "damaged"

// ProcessConfig is what a worker or coordinator process is told at its start, beside its environment.
type ProcessConfig struct {
	JobID       string            `json:"jobId"`
	JobName     string            `json:"jobName"`
	Fingerprint string            `json:"fingerprint"` // of the graph that the process must build
	Config      map[string]string `json:"config"`      // the job's effective configuration
	Args        []string          `json:"args,omitempty"`
	// Graph is the job graph (JSON), so that a process that builds another one can say what differs.
	Graph json.RawMessage `json:"graph,omitempty"`

	// The rest is for workers.
	TaskManagerID string   `json:"taskManagerId,omitempty"`
	Host          string   `json:"host,omitempty"` // name under which other workers reach this machine
	Slots         int      `json:"slots,omitempty"`
	MemoryBytes   int64    `json:"memoryBytes,omitempty"` // the container's share for this process
	Dirs          []string `json:"dirs,omitempty"`        // private local folders, one per disk, removed after the process
	// BackupDirs are for local copies of the job's checkpoints, one per disk; they need not exist. They stay for the job's next worker here.
	BackupDirs []string `json:"backupDirs,omitempty"`
	LogDir     string   `json:"logDir,omitempty"`
	// Embedded says that the whole cluster runs in this process, so that the job ends with it.
	Embedded bool `json:"embedded,omitempty"`
	// DataSecret is what the job's workers prove to each other to know before they exchange records. It belongs into no log.
	DataSecret []byte `json:"dataSecret,omitempty"`
}

// exitBuild is the exit code of a job process that cannot build the job's graph; Go's runtime uses it for panics, too.
const exitBuild = 2

// GraphMistakes announces the list of all mistakes of a graph, a line each, in what a job process writes to its standard error.
const GraphMistakes = "the graph has mistakes:"

// BuildFailed reports whether a job process ended because it could not build the job's graph, which no restart heals: its exit code says
// so, and it did not panic. reason is the exit in words with the last lines of standard error.
func BuildFailed(exitCode int, reason string) bool {
	return exitCode == exitBuild && !strings.Contains(reason, "\ngoroutine ")
}

// Summary is the line of a process's last words that says most: its panic, or else the last line that is no entry of its log.
func Summary(lastLines string) string {
	best := ""
	for line := range strings.Lines(lastLines) {
		line = strings.TrimSpace(line)
		if Crash(line) {
			return line
		}
		if line != "" && !strings.HasPrefix(line, `{"level":`) {
			best = line
		}
	}
	return best
}

// BuildPanics is in the line that names a panic in build.
const BuildPanics = ": build panics: "

// Crash reports whether a line names the crash of a Go program: Go's runtime writes it before the stacks.
func Crash(line string) bool {
	return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, BuildPanics)
}
