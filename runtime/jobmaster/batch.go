package jobmaster

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// In BATCH there are no checkpoints. The sinks of a stage commit when all of its tasks have processed their input: each task prepares its
// commits and acknowledges with what is needed to repeat them, which is stored (progress.go); when it is of all tasks, they are told to
// commit. From then on the stage is not run again: after a failure its tasks are started for their commits alone, by the next JobMaster, too.

// errBatch answers requests for checkpoints and savepoints.
var errBatch = errors.New("jobmaster: checkpoint: the job runs in BATCH (execution.runtime-mode), which takes no checkpoints or savepoints; cancel it, or let it end")

// commits is the shell's part of the commits of stages.
type commits struct {
	last       int64 // id given
	collecting map[int64]*collection
	prepared   map[graph.VertexID]prepared
}

// collection gathers the acknowledgements of a stage's tasks.
type collection struct {
	missing map[graph.ExecutionID]bool
	states  map[graph.ExecutionID]metadata.Task
}

// prepared is what a vertex has to commit, by subtask.
type prepared struct {
	id    int64
	tasks []metadata.Task
}

func newCommits() commits {
	return commits{collecting: map[int64]*collection{}, prepared: map[graph.VertexID]prepared{}}
}

func (j *JobMaster) batch() bool { return j.opts.Graph.Mode == graph.Batch }

// checkBatch refuses what BATCH cannot do.
func (j *JobMaster) checkBatch() error {
	if path := config.SavepointPath.Value(j.opts.Config); path != "" {
		return fmt.Errorf("jobmaster: restore from %s: a job in BATCH starts without state: leave out %s, or run in STREAMING (%s)",
			path, config.SavepointPath.Key, config.RuntimeMode.Key)
	}
	return nil
}

// prepareCommit asks the tasks of a stage for their commits.
func (j *JobMaster) prepareCommit(e scheduler.PrepareCommit) {
	c := &j.commits
	for id, old := range c.collecting {
		for x := range old.missing {
			if j.sched.Execution(x) == nil { // of an attempt that failed
				delete(c.collecting, id)
				break
			}
		}
	}
	c.last++
	n := &collection{missing: map[graph.ExecutionID]bool{}, states: map[graph.ExecutionID]metadata.Task{}}
	for _, id := range e.IDs {
		n.missing[id] = true
	}
	id := c.last
	c.collecting[id] = n
	j.sendToTasks(e.IDs, func(ids []string) *pb.WorkerDown {
		return &pb.WorkerDown{Msg: &pb.WorkerDown_Trigger{Trigger: &pb.TriggerCheckpoint{CheckpointId: id, ExecutionIds: ids}}}
	})
}

// commitAck takes what a task needs to commit.
func (j *JobMaster) commitAck(m *pb.CheckpointAck) {
	id, err := graph.ParseExecutionID(m.GetExecutionId())
	if err != nil {
		return
	}
	c := j.commits.collecting[m.GetCheckpointId()]
	if c == nil || !c.missing[id] {
		return
	}
	if c.states[id], err = metadata.DecodeTask(m.GetState()); err != nil {
		j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "checkpoint", Message: fmt.Sprintf("what %s has to commit cannot be read: %v", j.sched.TaskName(id), err)}})
		return
	}
	if delete(c.missing, id); len(c.missing) > 0 {
		return
	}
	delete(j.commits.collecting, m.GetCheckpointId())
	for x, st := range c.states {
		p := j.commits.prepared[x.Vertex]
		if p.id != m.GetCheckpointId() {
			p = prepared{m.GetCheckpointId(), make([]metadata.Task, j.vertex[x.Vertex].Parallelism)}
			j.commits.prepared[x.Vertex] = p
		}
		p.tasks[x.Subtask] = st
	}
	j.step(scheduler.CommitPrepared{ID: id})
}

// commitDeclined: a task could not say what it has to commit. One that is not running has failed, which is told elsewhere.
func (j *JobMaster) commitDeclined(m *pb.CheckpointDeclined) {
	if m.GetFailure().GetKind() == rpc.KindNotRunning || j.commits.collecting[m.GetCheckpointId()] == nil {
		return
	}
	j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "checkpoint", Message: "commits could not be prepared: " + m.GetFailure().GetMessage(), Detail: m.GetFailure().GetDetail()}})
}

// commit lets the tasks of a stage commit.
func (j *JobMaster) commit(e scheduler.Commit) {
	j.sendToTasks(e.IDs, func(ids []string) *pb.WorkerDown {
		x, _ := graph.ParseExecutionID(ids[0])
		return &pb.WorkerDown{Msg: &pb.WorkerDown_Completed{Completed: &pb.CheckpointNotice{CheckpointId: j.commits.prepared[x.Vertex].id, ExecutionIds: ids}}}
	})
}

// toCommit is the state that a task is started with for its commits alone: its own lists, and of those that are every subtask's, all.
func (c *commits) toCommit(id graph.ExecutionID) (metadata.Task, int64) {
	p := c.prepared[id.Vertex]
	var out metadata.Task
	if id.Subtask >= len(p.tasks) {
		return out, p.id
	}
	for _, op := range p.tasks[id.Subtask].Operators {
		st := metadata.Subtask{Index: id.Subtask}
		for _, l := range op.State.Lists {
			if l.Mode == metadata.Union {
				l.Items = p.union(op.ID, l.Name)
			}
			st.Lists = append(st.Lists, l)
		}
		out.Operators = append(out.Operators, metadata.TaskOperator{ID: op.ID, State: st})
	}
	return out, p.id
}

func (p *prepared) union(id graph.OperatorID, name string) (items [][]byte) {
	for _, t := range p.tasks {
		for _, op := range t.Operators {
			for _, l := range op.State.Lists {
				if op.ID == id && l.Name == name {
					items = append(items, l.Items...)
				}
			}
		}
	}
	return items
}

// enumerating reports whether the enumerators are needed: in BATCH, while a source is not finished.
func (j *JobMaster) enumerating() bool {
	if !j.batch() || j.sched == nil {
		return true
	}
	for _, v := range j.sched.Vertices() {
		if !v.Spec.Operators[0].Source {
			continue
		}
		for _, x := range v.Tasks {
			if x.State != scheduler.TaskFinished {
				return true
			}
		}
	}
	return false
}
