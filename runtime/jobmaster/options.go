package jobmaster

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Resources is the part of resourcemanager.Manager that a JobMaster needs.
type Resources interface {
	RegisterJob(id string, l resourcemanager.JobListener)
	UnregisterJob(id string)
	Declare(id string, n int, keep ...resourcemanager.Slot)
	Send(tm string, msg *pb.TaskManagerDown) error
	CurrentProblem() string
	// Returning is how many TaskManagers of the application attempt before may still come back, negative when that is not known.
	Returning() int
}

// Options make a JobMaster.
type Options struct {
	JobID    graph.JobID
	Graph    *graph.JobGraph
	Artifact *pb.Artifact
	Args     []string
	Config   config.Configuration // the job's effective configuration
	// DataSecret is what the job's workers authenticate each other with. Workers outlive an application attempt, so it must be the same
	// in each.
	DataSecret []byte
	Epoch      int64 // of the application attempt, from 1
	// Owner is who runs the job, for people: an application. It may be empty.
	Owner string
	// Pointer and FirstID are what ha.Store.OpenJob returned for this job.
	Pointer ha.Pointer
	FirstID int64

	Resources Resources
	Store     ha.Store
	FS        *fs.Registry
	// LaunchCoordinator starts the job's coordinator process; see dispatcher.Launcher.
	LaunchCoordinator func(ctx context.Context, cfg rpc.ProcessConfig) (link rpc.CoordinatorLink, stop func() string, err error)
	Logger            zerolog.Logger
	// OnState is called by the loop at each change of the job's state; it must return at once.
	OnState func(scheduler.JobState)
	// OnEnd stores how the job ended for good, before anything of its checkpoints is removed. After an error nothing is removed: another
	// attempt has taken over, or will find the job unfinished and go on with it.
	OnEnd func(Result) error

	// CancelTimeout is how long tasks may take to end after they were cancelled before their workers are killed; 30 s by default.
	CancelTimeout time.Duration
	// StopGrace is what workers get to end in order when the job has ended; 5 s by default.
	StopGrace time.Duration
	// ReadyTimeout bounds the coordinator process's start, preflight included; 2 min by default.
	ReadyTimeout time.Duration
}

// Result is how a job ended.
type Result struct {
	State   scheduler.JobState // FINISHED, CANCELED, FAILED; SUSPENDED when another attempt goes on with the job
	Failure *scheduler.Failure // for FAILED and SUSPENDED
	Start   time.Time
	End     time.Time
	Details *Details
	// Fenced: a newer application attempt has taken over.
	Fenced bool
}
