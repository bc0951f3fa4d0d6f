package dispatcher

import (
	"context"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
)

// Artifact is a job's binary: where TaskManagers fetch it, and where it is on this machine.
type Artifact struct {
	URI    string `json:"uri"` // hdfs://, file://, or blob:<sha256>
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Name   string `json:"name"`
	Path   string `json:"-"` // local copy of the application master, for the coordinator process; "" after a recovery
}

// Submission is a job to run.
type Submission struct {
	JobID    graph.JobID // zero: a new one is made
	Graph    *graph.JobGraph
	Artifact Artifact
	Args     []string          // the program's arguments
	Config   map[string]string // effective configuration; the graph's wins over it
	// DataSecret is what the job's workers authenticate each other with. Submit makes one; it is stored with the job, which only its
	// owner can read, since workers that outlive an application attempt keep theirs.
	DataSecret []byte `json:"dataSecret,omitempty"`
}

// Launcher runs the coordinator process of a job (the user's binary in role coordinator).
type Launcher interface {
	// LaunchCoordinator starts it and returns its link; ctx bounds the start. The link's end is the process's end. stop ends the
	// process in order and waits for it; it must be called once, also after the process ended by itself, and returns how the
	// process ended, in words ("" for in order).
	LaunchCoordinator(ctx context.Context, cfg rpc.ProcessConfig, artifact Artifact) (link rpc.CoordinatorLink, stop func() string, err error)
}
