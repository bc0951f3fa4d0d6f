package jobmaster

import (
	"slices"

	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// held is what the JobMaster knows of tasks that start from the state of another run. What types their states have is known when they have opened
// them, so each of them waits then, until all of the job's have: then they go on, or the job fails with all that does not fit, of all tasks at once.
// State that this job has checkpointed itself fits: later restarts hold nothing.
type held struct {
	path    string // of the savepoint
	opened  map[heldTask]bool
	misfits []string
}

type heldTask struct {
	vertex  graph.VertexID
	subtask int
}

// deploy holds a task that is about to be deployed, perhaps again.
func (h *held) deploy(d *pb.TaskDeployment, id graph.ExecutionID) {
	d.Hold = true
	delete(h.opened, heldTask{id.Vertex, id.Subtask})
}

// taskOpened notes a task that has opened its state. The last one decides.
func (j *JobMaster) taskOpened(id graph.ExecutionID, misfits []string) {
	h := j.held
	if h == nil || j.sched == nil || j.sched.Execution(id) == nil {
		return
	}
	h.opened[heldTask{id.Vertex, id.Subtask}] = true
	h.misfits = append(h.misfits, misfits...)
	var all []graph.ExecutionID
	for _, v := range j.sched.Vertices() {
		for _, x := range v.Tasks {
			if !h.opened[heldTask{x.ID.Vertex, x.ID.Subtask}] {
				return
			}
			all = append(all, x.ID)
		}
	}
	if len(h.misfits) > 0 {
		slices.Sort(h.misfits)
		err := &savepoint.MisfitError{Path: h.path, Misfits: slices.Compact(h.misfits)}
		j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "restore", Fatal: true, Message: err.Error()}})
		return
	}
	j.held = nil
	j.sendToTasks(all, func(ids []string) *pb.WorkerDown {
		return &pb.WorkerDown{Msg: &pb.WorkerDown_Proceed{Proceed: &pb.ProceedTasks{ExecutionIds: ids}}}
	})
}
