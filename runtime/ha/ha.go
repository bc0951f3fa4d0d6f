// Package ha keeps what outlives an application attempt: job graphs, the pointer to each job's latest completed checkpoint, results of
// jobs that ended, the leader's address, and the epoch that fences attempts. It is layer L3 (imports fs, runtime/graph). There is no
// ZooKeeper: everything is files of one directory (FileStore on any fs.FileSystem), or memory for the embedded cluster (NewMemory).
//
// Main flow of an attempt: AcquireEpoch, PublishLeader, Jobs; then per job OpenJob (which takes the job over from the attempt before
// and returns the pointer), StorePointer after each checkpoint, EndJob; CleanUp when the application ends for good.
//
// Invariants:
//
//  1. An epoch is acquired once: its file is created exclusively. Epochs grow.
//  2. After OpenJob of a higher epoch has returned, no StorePointer, StoreProgress or EndJob of a lower one succeeds for that job, and the pointer
//     that OpenJob returned is the last that succeeded. There is no moment in between: see FileStore.
//  3. A job that ended is not run again, whichever attempt ended it.
package ha

import (
	"context"
	"errors"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Errors of Store.
var (
	// ErrFenced: a newer application attempt has taken over. Stop at once, without touching jobs.
	ErrFenced = errors.New("a newer application attempt has taken over")
	// ErrEnded: the job has a result and must not run.
	ErrEnded = errors.New("the job has ended already")
	// ErrUnknownJob: no job of this id is stored or opened.
	ErrUnknownJob = errors.New("unknown job")
	// ErrDamaged: what is stored is incomplete or cannot be decoded, so that neither another try nor another attempt can read it.
	ErrDamaged = errors.New("the high-availability data is damaged; submit the job again, from its latest checkpoint")
)

// Job is a stored job. Data is opaque: graph, artifact, arguments, configuration, as the dispatcher encodes them.
type Job struct {
	ID   graph.JobID `json:"id"`
	Name string      `json:"name"`
	Data []byte      `json:"data"`
}

// Pointer names the checkpoint to restore. The zero value: none was completed yet (restore the submission's savepoint, if any).
type Pointer struct {
	ID  int64
	Dir string // URI of the checkpoint's directory
}

// IsZero reports whether there is no checkpoint.
func (p Pointer) IsZero() bool { return p == Pointer{} }

// Result is how a job ended.
type Result struct {
	State string    `json:"state"` // FINISHED, CANCELED, FAILED
	Name  string    `json:"name,omitempty"`
	Error string    `json:"error,omitempty"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Data is opaque, for REST after the end.
	Data []byte `json:"data,omitempty"`
}

// Leader is the address of the application attempt in charge. Token authenticates TaskManagers; the file is readable by the owner only.
type Leader struct {
	Epoch   int64  `json:"epoch"`
	Address string `json:"address"`
	Token   string `json:"token,omitempty"`
	Web     string `json:"web,omitempty"` // URL of the REST interface
}

// Store is safe for concurrent use, except that calls for one job are made one after another. Every method may return ErrFenced once
// a higher epoch exists; after other errors of StorePointer, StoreProgress and EndJob the outcome is unknown and the same call must be repeated.
type Store interface {
	// AcquireEpoch makes this store the owner with the next epoch (1 for the first). Owner is for people: attempt id and host.
	AcquireEpoch(ctx context.Context, owner string) (epoch int64, err error)
	// CheckEpoch returns ErrFenced when a higher epoch exists.
	CheckEpoch(ctx context.Context) error

	// PutJob stores a submitted job; storing the same id again is an error unless the content is equal.
	PutJob(ctx context.Context, j Job) error
	// Jobs lists the jobs that are stored and have not ended, by id. Those that can be read come with an ErrDamaged for the others.
	Jobs(ctx context.Context) ([]Job, error)
	// OpenJob takes the job over for this epoch and returns its pointer and the first checkpoint number that this epoch may use;
	// that number is reserved. ErrEnded when the job has a result.
	OpenJob(ctx context.Context, id graph.JobID) (p Pointer, firstID int64, err error)
	// ReserveIDs reserves checkpoint numbers up to upTo for this epoch: the next one begins above. StorePointer reserves p.ID+1.
	ReserveIDs(ctx context.Context, id graph.JobID, upTo int64) error
	// StorePointer makes p the job's pointer, durably. One rename when p.Dir is "<same parent>/chk-<p.ID>" as before.
	StorePointer(ctx context.Context, id graph.JobID, p Pointer) error
	// StoreProgress keeps data with an opened job, durably, in place of what was kept before: how far a job came that takes no checkpoints.
	// It uses the job's pointer and a checkpoint number, so a job has either checkpoints or progress. After errors other than ErrFenced,
	// ErrEnded and ErrUnknownJob the outcome is unknown, and the same call must be repeated before another one.
	StoreProgress(ctx context.Context, id graph.JobID, data []byte) error
	// Progress reads what StoreProgress kept last, nil when there is nothing. For an opened job it is what this epoch or the ones before
	// stored; no earlier one can change it any more.
	Progress(ctx context.Context, id graph.JobID) ([]byte, error)
	// StoreRequirements keeps what is required of an opened job's parallelism, durably, in place of what was kept before. It may run beside the
	// other calls for the job. An attempt that finds requirements stores them again before it relies on them: no earlier one changes them then.
	StoreRequirements(ctx context.Context, id graph.JobID, data []byte) error
	// Requirements reads what StoreRequirements kept last, nil when there is nothing.
	Requirements(ctx context.Context, id graph.JobID) ([]byte, error)
	// Pointer reads a job's pointer without taking it over (command line, tests).
	Pointer(ctx context.Context, id graph.JobID) (Pointer, error)
	// EndJob records the result and removes the job. It works for opened jobs only, and repeating it is fine; ErrFenced when another
	// attempt has ended the job meanwhile.
	EndJob(ctx context.Context, id graph.JobID, r Result) error
	// Results lists the jobs that ended.
	Results(ctx context.Context) (map[graph.JobID]Result, error)
	// ForgetResult removes the result of a job that ended; one that is missing is no error.
	ForgetResult(ctx context.Context, id graph.JobID) error

	// PublishLeader announces this attempt; l.Epoch is set by the store.
	PublishLeader(ctx context.Context, l Leader) error
	// WatchLeader waits until an attempt of at least minEpoch is announced, looking every poll, and returns the highest.
	WatchLeader(ctx context.Context, minEpoch int64, poll time.Duration) (Leader, error)

	// CleanUp removes everything, at the end of the application. ErrFenced when a higher epoch exists.
	CleanUp(ctx context.Context) error
}
