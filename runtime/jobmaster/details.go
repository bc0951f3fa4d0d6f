package jobmaster

import (
	"context"
	"maps"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/scheduler/autoscale"
)

// Details is what there is to know about a job at one moment. It belongs to the caller; graph and metrics inside are read-only.
type Details struct {
	JobID    graph.JobID
	Name     string
	Graph    *graph.JobGraph
	Config   config.Configuration
	State    scheduler.JobState
	Start    time.Time
	End      time.Time // zero while it runs
	Since    map[scheduler.JobState]time.Time
	Vertices []VertexDetails
	Restarts int
	Adopted  int // tasks of the application attempt before that this one went on with
	Attempt  int
	Slots    int                // wanted
	HasSlots int                // owned
	Problem  string             // why slots are missing
	Root     *scheduler.Failure // of the last failure that ended an attempt
	History  []Recorded         // newest first
	// Checkpoints is nil for a job that takes none.
	Checkpoints   *coordinator.Stats
	CheckpointDir string // URI of the job's directory, "" for none
	// Requirements are the bounds of the parallelism that were asked for last; nil in BATCH and before the job is scheduled.
	Requirements   scheduler.Requirements
	Adaptive       bool           // jobmanager.scheduler
	Rescales       int            // changes of the parallelism of this JobMaster
	Rescaling      bool           // one is on its way
	Resizing       bool           // the job is RESTARTING for one
	RescaleHistory []Rescale      // newest first
	RescaleCounts  map[string]int // by State
	// Load is what the autoscaler knows of the vertices, in their order; nil when it is not enabled, or has no whole metrics window.
	Load []autoscale.Evaluation
}

// VertexDetails is one vertex.
type VertexDetails struct {
	Vertex *graph.Vertex
	Tasks  []TaskDetails
}

// TaskDetails is one subtask's current attempt.
type TaskDetails struct {
	ID          graph.ExecutionID
	State       scheduler.TaskState
	EndOfData   bool
	TaskManager string
	Slot        int
	Since       map[scheduler.TaskState]time.Time
	Failure     *scheduler.Failure
	Metrics     *pb.TaskMetrics // nil before the first report
	Rates       Rates
}

// Details returns the job's present state. It fails only when ctx ends first.
func (j *JobMaster) Details(ctx context.Context) (*Details, error) {
	ch := make(chan *Details, 1)
	if !j.q.Post(func() { ch <- j.details() }) {
		return j.finalDetails(), nil
	}
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case d := <-ch:
			return d, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-t.C: // the loop may have ended with the request in its queue
			if d := j.finalDetails(); d != nil {
				return d, nil
			}
		}
	}
}

func (j *JobMaster) finalDetails() *Details {
	j.finalMu.Lock()
	defer j.finalMu.Unlock()
	return j.final
}

func (j *JobMaster) details() *Details {
	d := &Details{JobID: j.opts.JobID, Name: j.graph.Name, Graph: j.graph, Config: j.opts.Config, State: scheduler.JobInitializing, Start: j.start,
		Since: map[scheduler.JobState]time.Time{scheduler.JobInitializing: j.start}, Slots: j.needed, HasSlots: len(j.slots),
		Root: j.root, History: append([]Recorded(nil), j.history...)}
	if len(j.slots) < j.needed {
		d.Problem = j.opts.Resources.CurrentProblem()
	}
	if j.ckpt != nil {
		st := j.ckpt.core.Stats()
		d.Checkpoints, d.CheckpointDir = &st, j.ckpt.storage.Dir()
	}
	if j.sched != nil {
		d.State, d.Restarts, d.Attempt, d.Adopted = j.sched.State(), j.sched.Restarts(), j.sched.Attempt(), j.adopted
		d.Rescales, d.Rescaling, d.Adaptive = j.sched.Rescales(), j.sched.Pending(), j.adaptive()
		d.RescaleHistory, d.RescaleCounts = j.scaling.history.all, maps.Clone(j.scaling.history.counts)
		d.Load, d.Resizing = j.autoscaling.last, j.sched.Rescaling()
		if !j.batch() {
			d.Requirements = j.sched.Requirements()
		}
		maps.Copy(d.Since, j.sched.Since())
		for _, v := range j.sched.Vertices() {
			vd := VertexDetails{Vertex: v.Spec}
			for _, x := range v.Tasks {
				id := x.ID.String()
				t := TaskDetails{ID: x.ID, State: x.State, EndOfData: x.EndOfData, TaskManager: x.Slot.TaskManager, Slot: x.Slot.Index,
					Since: maps.Clone(x.Since), Failure: x.Failure}
				if s := j.metrics.last[id]; s != nil {
					t.Metrics, t.Rates = s.now, s.rates
				}
				vd.Tasks = append(vd.Tasks, t)
			}
			d.Vertices = append(d.Vertices, vd)
		}
	}
	if j.result != nil {
		d.End, d.State = j.result.End, j.result.State
	}
	return d
}
