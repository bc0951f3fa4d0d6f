package taskmanager

import (
	"context"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// Leader is where the JobMaster is.
type Leader struct {
	Address string // host:port
	Epoch   int64  // of the application attempt; 0 when unknown
}

// Options make a TaskManager.
type Options struct {
	ID              string // container id, or any name that is unique in the cluster
	Host            string // name or address under which other TaskManagers reach this machine
	Slots           int
	MemoryBytes     int64 // of the container
	Cores           int
	NodeHTTPAddress string // the NodeManager's web address, for log links
	// Dirs are local folders, one per disk; a private folder below each is made and removed. Unwritable ones are skipped.
	Dirs   []string
	LogDir string // worker logs go to <LogDir>/taskmanager.out; "" discards them
	Config config.Configuration

	// Leader looks up the JobMaster; it is called again after a short pause when it fails or when the leader cannot be reached.
	Leader func(ctx context.Context) (Leader, error)
	// Connect opens the link to a leader: over gRPC (rpc/remote) in a container; the embedded cluster hands out one end of a pipe.
	Connect func(ctx context.Context, l Leader) (Connection, error)
	// Launcher starts workers; the default forks the job's artifact.
	Launcher Launcher
	// OnTokens takes newer security tokens, a credentials file, for this process and its workers; nil ignores them.
	OnTokens func(credentials []byte) error
	// OpenURI opens an artifact's URI that is not "blob:..." (hdfs://, file://).
	OpenURI func(ctx context.Context, uri string) (io.ReadCloser, error)
	Logger  zerolog.Logger

	// LookupInterval is the pause between attempts to find and reach a leader; 150 ms by default.
	LookupInterval time.Duration
	// GiveUp ends the TaskManager when no JobMaster took it for this long; 0 waits for ever.
	GiveUp time.Duration
}

// Connection is an open link with what else the leader serves. Close ends both.
type Connection struct {
	Link rpc.TaskManagerUplink
	// FetchBlob copies a blob of the cluster's store by its hex SHA-256; nil when there is none.
	FetchBlob func(ctx context.Context, key string, w io.Writer) error
	Close     func() error
}

// Launcher starts worker processes.
type Launcher interface {
	// Launch starts a worker and returns when it was started, not when it is up. The process ends by itself, or when Kill is
	// called. ctx bounds the start only.
	Launch(ctx context.Context, spec LaunchSpec) (Process, error)
}

// LaunchSpec says what to launch.
type LaunchSpec struct {
	Start  *pb.StartWorker
	Config rpc.ProcessConfig
	// Artifact copies the job's binary to w, verified; used by launchers that fork.
	Artifact func(ctx context.Context) (path string, err error)
}

// Process is a started worker.
type Process interface {
	// Link is the worker's link, or an error when the process ended (or ctx did) before it connected.
	Link(ctx context.Context) (rpc.WorkerLink, error)
	PID() int
	// Stop asks the process to end; it is killed after grace. It returns at once.
	Stop(grace time.Duration)
	// Wait returns after the process ended and all of its children were killed.
	Wait() Exit
}

// Exit is how a worker's process ended.
type Exit struct {
	Code   int    // exit code; negative: minus the number of the signal that killed it
	Reason string // in words, with the last lines of standard error
}
