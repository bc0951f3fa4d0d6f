package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Retention says which checkpoints outlive the job. Source: Flink ExternalizedCheckpointRetention.
type Retention int

const (
	RetainOnCancellation Retention = iota // kept when the job is cancelled or fails
	DeleteOnCancellation                  // kept only when it fails
	NoRetention                           // never kept
)

// Config is what a Coordinator is made from.
type Config struct {
	Graph   graph.JobGraph // with max parallelisms set
	JobID   graph.JobID
	Product string            // version, stored in metadata
	Conf    map[string]string // effective configuration, redacted, stored in metadata
	Dir     string            // URI of the job's directory (storage.Storage.Dir)

	Interval time.Duration // 0: no periodic checkpoints
	Timeout  time.Duration // default 10 min
	MinPause time.Duration
	// MaxConcurrent is how many checkpoints may be pending, default 1. A savepoint may begin beside them, and counts while it is pending.
	MaxConcurrent int
	// Unaligned: barriers may overtake, so one checkpoint or savepoint is pending at a time.
	Unaligned bool
	Tolerable int // failures in a row that do not fail the job
	Retained  int // completed checkpoints to keep, default 1
	Retention Retention
	History   int // checkpoints in the statistics' history, default 10

	// FirstID is the number of the first checkpoint, default 1: what ha.Store.OpenJob returned, and above the restored one's.
	FirstID int64
	// ReservedID is the highest number that is reserved for this application attempt (ha.Store.OpenJob: FirstID as returned there).
	// Above it the coordinator asks with ReserveIDs first. Attempts never share a number, hence never a directory or a file name, and
	// a late deletion by an old attempt cannot meet a new one's files.
	ReservedID int64

	// Spare is the highest number of a checkpoint that could not be restored, 0 for none. What checkpoints up to it wrote and share is left
	// alone, since it may still be mended.
	Spare int64

	// Marks are the files (URIs) that say whose folders the job's and those that it has claimed are (storage.Storage.Own). They go last when
	// the job has ended for good.
	Marks []string

	// Existing are the completed checkpoints to go on with, oldest first; the last one is what the job is restored from. With
	// Retained above 1, storage.Storage.Completed finds the older ones; what is not listed here is swept.
	Existing []Completed
}

// FromConfiguration fills the options that configuration keys set.
func (c *Config) FromConfiguration(conf config.Configuration) {
	c.Interval = config.CheckpointInterval.Value(conf)
	c.Timeout = config.CheckpointTimeout.Value(conf)
	c.MinPause = config.CheckpointMinPause.Value(conf)
	c.MaxConcurrent = config.ConcurrentCheckpoints(conf)
	c.Unaligned = config.UnalignedCheckpoints(conf)
	c.Tolerable = config.TolerableFailures.Value(conf)
	c.Retained = config.CheckpointsRetained.Value(conf)
	switch strings.ToLower(config.Externalized.Value(conf)) {
	case "delete_on_cancellation":
		c.Retention = DeleteOnCancellation
	case "no_externalized_checkpoints":
		c.Retention = NoRetention
	default:
		c.Retention = RetainOnCancellation
	}
}

// Completed is a stored checkpoint or savepoint.
type Completed struct {
	ID   int64
	Kind Kind
	Dir  string // URI
	// Owned: the job may delete it (its own checkpoints, and what was restored with claim mode CLAIM).
	Owned bool
	// Checkpoint has FileRef.Base filled in. Only the latest checkpoint keeps its content; of older ones it is empty.
	Checkpoint metadata.Checkpoint

	exclusive []string // URIs of files of its own
}

func (c *Completed) savepoint() bool { return c.Kind == Savepoint || c.Kind == StopWithSavepoint }

func (c *Config) defaults() error {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.MaxConcurrent < 1 {
		c.MaxConcurrent = 1
	}
	if c.Retained < 1 {
		c.Retained = 1
	}
	if c.History < 1 {
		c.History = 10
	}
	if c.FirstID < 1 {
		c.FirstID = 1
	}
	if c.Dir == "" {
		return fmt.Errorf("coordinator: no checkpoint directory; set %s", config.CheckpointDir.Key)
	}
	for _, e := range c.Existing {
		if c.FirstID <= e.ID {
			c.FirstID = e.ID + 1
		}
	}
	return nil
}
