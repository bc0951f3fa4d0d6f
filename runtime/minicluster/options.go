package minicluster

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
)

// Options make an embedded cluster.
type Options struct {
	Graph  *graph.JobGraph
	Config config.Configuration
	Args   []string
	// RunWorker runs a worker in this process until its link ends or ctx does. An error, or a panic, is the worker's death.
	RunWorker func(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig) error
	// RunCoordinator runs the coordinator half of the job likewise.
	RunCoordinator func(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig) error
	// FS resolves checkpoint and savepoint URIs.
	FS *fs.Registry
	// TaskManagers is the number of TaskManagers; 0 takes as many as the job needs.
	TaskManagers int
	// MaxTaskManagers bounds them, as a full cluster does; 0 for no bound. See Cluster.LimitTaskManagers.
	MaxTaskManagers int
	// RESTAddress is where REST listens, such as "localhost:8081"; "" turns it off, port 0 takes a free one, and of a range, as in
	// "localhost:8081-8100", the first that is free is taken.
	RESTAddress string
	// Dir holds checkpoints and, unless io.tmp.dirs says where, local state; "" takes a temporary folder, of io.tmp.dirs if set, that is
	// removed at the end.
	Dir    string
	Logger zerolog.Logger
	JobID  graph.JobID // zero: a new one is made
	// CancelTimeout is how long tasks may take to end before their worker is killed; task.cancellation.timeout by default.
	CancelTimeout time.Duration
	// OnStarted is called once when the job was submitted, with the address of REST ("http://localhost:8081").
	OnStarted func(c *Cluster, restURL string)
}
