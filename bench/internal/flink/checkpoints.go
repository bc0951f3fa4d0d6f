package flink

import (
	"context"
	"encoding/json"
	"fmt"
)

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

// Sync is the longest synchronous part of a checkpoint, of all its subtasks, in milliseconds.
func (r *REST) Sync(ctx context.Context, job string, checkpoint int64) (int64, error) {
	base := fmt.Sprintf("/jobs/%s/checkpoints/details/%d", job, checkpoint)
	var d struct {
		Tasks map[string]json.RawMessage `json:"tasks"`
	}
	if err := r.Get(ctx, base, &d); err != nil {
		return 0, err
	}
	var longest int64
	for vertex := range d.Tasks {
		var v struct {
			Subtasks []struct {
				Checkpoint struct {
					Sync int64 `json:"sync"`
				} `json:"checkpoint"`
			} `json:"subtasks"`
		}
		if err := r.Get(ctx, base+"/subtasks/"+vertex, &v); err != nil {
			return 0, err
		}
		for _, t := range v.Subtasks {
			longest = max(longest, t.Checkpoint.Sync)
		}
	}
	return longest, nil
}
