package jobmaster

import (
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// checkEdges refuses a graph whose edges cannot be wired.
func checkEdges(g *graph.JobGraph) error {
	for i := range g.Vertices {
		v := &g.Vertices[i]
		for n, in := range v.Inputs {
			p := g.Vertex(in.From)
			switch {
			case p == nil:
				return fmt.Errorf("jobmaster: wire %s: input %d comes from vertex %s, which is not in the graph", v.Name, n, in.From)
			case in.FromOutput < 0 || in.FromOutput >= len(p.Outputs) || p.Outputs[in.FromOutput].To != v.ID:
				return fmt.Errorf("jobmaster: wire %s: input %d is not output %d of %s", v.Name, n, in.FromOutput, p.Name)
			case in.Partitioner == graph.Forward && p.Parallelism != v.Parallelism:
				return fmt.Errorf("jobmaster: wire %s: forward edge between parallelism %d and %d", v.Name, p.Parallelism, v.Parallelism)
			}
		}
		for n, out := range v.Outputs {
			if g.Vertex(out.To) == nil {
				return fmt.Errorf("jobmaster: wire %s: output %d goes to vertex %s, which is not in the graph", v.Name, n, out.To)
			}
		}
	}
	return nil
}

// deploy sends every worker its tasks in one message.
func (j *JobMaster) deploy(e scheduler.Deploy) {
	p := j.prep
	if p == nil && j.batch() {
		p = &preparation{attempt: e.Attempt} // a later stage
	}
	if p == nil || p.attempt != e.Attempt {
		j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "internal", Message: "jobmaster: deploy without a preparation"}})
		return
	}
	dir := ""
	if j.ckpt != nil {
		dir = j.ckpt.storage.Dir()
	}
	var order []string
	by := map[string]*pb.Deploy{}
	for _, t := range e.Tasks {
		d, err := j.deployment(t, p)
		if err != nil {
			j.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "restore", Fatal: true, Message: err.Error()}})
			return
		}
		d.CheckpointDir = dir
		if j.held != nil {
			j.held.deploy(d, t.ID)
		}
		tm := t.Slot.TaskManager
		if by[tm] == nil {
			by[tm] = &pb.Deploy{OldestAttempt: int32(e.Oldest)}
			for _, id := range e.Kept {
				by[tm].Kept = append(by[tm].Kept, id.String())
			}
			order = append(order, tm)
		}
		by[tm].Tasks = append(by[tm].Tasks, d)
	}
	failpoint.At("deploy/send")
	for _, tm := range order {
		j.toWorker(tm, &pb.WorkerDown{Msg: &pb.WorkerDown_Deploy{Deploy: by[tm]}})
	}
	j.restored.attempt, j.restored.id = p.attempt, p.id
	j.prep = nil
	j.log.Info().Int("attempt", e.Attempt).Int("tasks", len(e.Tasks)).Int("workers", len(order)).Msg("tasks deployed")
}

func (j *JobMaster) deployment(t scheduler.Placement, p *preparation) (*pb.TaskDeployment, error) {
	v := j.vertex[t.ID.Vertex]
	d := &pb.TaskDeployment{ExecutionId: t.ID.String(), VertexId: v.ID.String(), Subtask: int32(t.ID.Subtask), Attempt: int32(t.ID.Attempt),
		Parallelism: int32(v.Parallelism), MaxParallelism: int32(v.MaxParallelism), RestoredCheckpointId: p.id, Slot: int32(t.Slot.Index)}
	if tasks := p.assigned[v.ID]; t.ID.Subtask < len(tasks) && len(tasks[t.ID.Subtask].Operators)+len(tasks[t.ID.Subtask].InFlight) > 0 {
		b, err := metadata.EncodeTask(tasks[t.ID.Subtask])
		if err != nil {
			return nil, fmt.Errorf("jobmaster: deploy %s: %w", j.sched.TaskName(t.ID), err)
		}
		d.Restore = b
	}
	if t.CommitOnly {
		st, id := j.commits.toCommit(t.ID)
		b, err := metadata.EncodeTask(st)
		if err != nil {
			return nil, fmt.Errorf("jobmaster: deploy %s: %w", j.sched.TaskName(t.ID), err)
		}
		d.Restore, d.RestoredCheckpointId, d.CommitOnly = b, id, true
	}
	for _, out := range v.Outputs {
		from, to := out.Partitioner.Consumers(v.Parallelism, j.vertex[out.To].Parallelism, t.ID.Subtask)
		d.Outputs = append(d.Outputs, &pb.PartitionDeployment{Subpartitions: int32(to - from), ConsumerMaxParallelism: int32(j.vertex[out.To].MaxParallelism)})
	}
	for _, in := range v.Inputs {
		gate := &pb.GateDeployment{}
		producers := j.vertex[in.From].Parallelism
		from, to := in.Partitioner.Producers(producers, v.Parallelism, t.ID.Subtask)
		for i := from; i < to; i++ {
			first, _ := in.Partitioner.Consumers(producers, v.Parallelism, i)
			sub := t.ID.Subtask - first
			producer := j.sched.Vertex(in.From).Tasks[i]
			address := ""
			if w := j.workers[producer.Slot.TaskManager]; w != nil && w.hello != nil {
				address = w.hello.GetDataAddress()
			}
			gate.Channels = append(gate.Channels, &pb.ChannelSource{Producer: producer.ID.String(), Output: int32(j.vertex[in.From].Partition(in.FromOutput)), Subpartition: int32(sub), Address: address})
		}
		d.Inputs = append(d.Inputs, gate)
	}
	return d, nil
}

// checkpointTasks lists the tasks for the checkpoint coordinator.
func (j *JobMaster) checkpointTasks() []coordinator.Task {
	var out []coordinator.Task
	for _, v := range j.sched.Vertices() {
		for _, x := range v.Tasks {
			out = append(out, coordinator.Task{Execution: x.ID, Source: len(v.Spec.Inputs) == 0})
		}
	}
	return out
}
