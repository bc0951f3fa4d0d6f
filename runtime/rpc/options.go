package rpc

import (
	"encoding/json"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// Limits and periods of connections.
const (
	MaxMessageBytes  = 64 << 20 // a message above it breaks its link; state above execution.checkpointing.fs.memory-threshold never travels here
	BlobChunkBytes   = 256 << 10
	KeepaliveTime    = 5 * time.Second // server side; gRPC's client sends no sooner than every 10 s
	KeepaliveTimeout = 5 * time.Second
)

// Options are the same for servers and clients.
type Options struct {
	// Token is the application's shared secret. A server with a token refuses calls that do not carry it (constant-time comparison);
	// empty turns the check off (Unix sockets in private folders).
	Token string
	// TLS protects TCP connections; nil means plain text.
	TLS credentials.TransportCredentials
}

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
	LogDir        string   `json:"logDir,omitempty"`
	// Embedded says that the whole cluster runs in this process, so that the job ends with it.
	Embedded bool `json:"embedded,omitempty"`
	// DataSecret is what the job's workers prove to each other to know before they exchange records. It belongs into no log.
	DataSecret []byte `json:"dataSecret,omitempty"`
}

// exitBuild is the exit code of a job process that cannot build the job's graph; Go's runtime uses it for panics, too.
const exitBuild = 2

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
