package flink

import "context"

// Checkpoint is one checkpoint of a job. Times are in milliseconds, sizes in bytes.
type Checkpoint struct {
	ID       int64  `json:"id"`
	Status   string `json:"status"`
	Trigger  int64  `json:"trigger_timestamp"` // since the Unix epoch
	Duration int64  `json:"end_to_end_duration"`
	State    int64  `json:"state_size"`        // what a restore reads
	New      int64  `json:"checkpointed_size"` // what this one wrote
	Failure  string `json:"failure_message,omitempty"`
}

// Completed says that it can be restored from.
func (c Checkpoint) Completed() bool { return c.Status == "COMPLETED" }

// Checkpoints are the latest ones of a job, the newest first.
func (r *REST) Checkpoints(ctx context.Context, job string) ([]Checkpoint, error) {
	var o struct {
		History []Checkpoint `json:"history"`
	}
	err := r.Get(ctx, "/jobs/"+job+"/checkpoints", &o)
	return o.History, err
}
