package jobmaster

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// A restart whose checkpoint is damaged goes back to the retained one before it; what the user named to start from is refused instead.
// Results between the two that were committed already are then written again, which the log says.

const fellBack = "the latest checkpoint is damaged; the job goes back to the one before, and writes what was committed since again. Nothing of the damaged one is removed"

// fallBack is told of a task whose state is damaged. It takes the mark off the failure that no restart heals it when there is another
// checkpoint, which it then reads; the restart waits for that.
func (j *JobMaster) fallBack(id graph.ExecutionID, f *scheduler.Failure) {
	if j.ckpt == nil {
		return
	}
	latest, ok := j.ckpt.core.Latest()
	if r := j.restored; !ok || j.falling || r.attempt != id.Attempt || r.id != latest.ID {
		f.Fatal = false // another task's state was damaged, too, or the attempt has ended for another reason; the next one sees
		return
	}
	older := j.ckpt.core.Older()
	if len(older) == 0 {
		f.Message += fmt.Sprintf(" (there is no other checkpoint of the job: %s is %d)", config.CheckpointsRetained.Key, config.CheckpointsRetained.Value(j.opts.Config))
		return
	}
	f.Fatal, f.Free, j.falling = false, true, true
	j.beside(func(ctx context.Context) {
		to, err := j.readable(ctx, older)
		if ctx.Err() != nil {
			return
		}
		j.q.Post(func() {
			j.falling = false
			if err != nil {
				j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "restore", Fatal: true, Message: fmt.Sprintf(
					"checkpoint %d is damaged, and so are those before it: %v; start the job from a savepoint", latest.ID, err)}})
				return
			}
			j.log.Warn().Int64("checkpoint_id", latest.ID).Int64("before", to.ID).Str("path", latest.Dir).Msg(fellBack)
			j.ckpt.step(coordinator.FallBack{To: to.ID, Checkpoint: to.Checkpoint})
			j.chooseRestore()
			j.checkPrepared()
		})
	})
}

// readable reads the first of some checkpoints whose metadata is whole.
func (j *JobMaster) readable(ctx context.Context, all []coordinator.Completed) (coordinator.Completed, error) {
	var first error
	for _, c := range all {
		mode := savepoint.NoClaim
		if c.Owned {
			mode = savepoint.Claim
		}
		cp, err := j.patientLoad(ctx, fmt.Sprintf("checkpoint %d", c.ID), c.Dir, mode)
		if err == nil {
			c.Checkpoint = cp
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	return coordinator.Completed{}, first
}

// olderThan finds the newest checkpoint of this job before one whose metadata cannot be read, nil when there is none.
func (j *JobMaster) olderThan(ctx context.Context, id int64, why error) *coordinator.Completed {
	f, path, err := j.opts.FS.Resolve(ctx, config.CheckpointDir.Value(j.opts.Config))
	if err != nil {
		return nil // newCheckpoints would say so; the first reason is the better one
	}
	st := storage.New(f, path, j.opts.JobID)
	defer func() {
		if err := f.Close(); err != nil {
			j.log.Debug().Err(err).Msg("close the checkpoint storage")
		}
	}()
	found, err := st.Completed(ctx, id-1, 1)
	if err != nil || len(found) == 0 || found[0].Checkpoint.JobID != j.opts.JobID {
		return nil
	}
	c := found[0]
	j.log.Warn().AnErr("reason", why).Int64("checkpoint_id", id).Int64("before", c.Checkpoint.ID).Str("path", c.Dir).Msg(fellBack)
	return &coordinator.Completed{ID: c.Checkpoint.ID, Dir: c.Dir, Owned: true, Checkpoint: c.Checkpoint}
}
