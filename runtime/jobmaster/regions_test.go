package jobmaster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// twoPipelines are jobtest.Graph twice, with nothing between them: operators 1 and 2, and 3 and 4.
func twoPipelines() *graph.JobGraph {
	g, h := jobtest.Graph(2, 3), jobtest.Graph(2, 3)
	other := func(id graph.VertexID) graph.VertexID { id.ID[15] += 2; return id }
	for i := range h.Vertices {
		v := &h.Vertices[i]
		v.ID, v.Name = other(v.ID), "Other "+v.Name
		v.Operators[0].ID, v.Operators[0].UID = graph.OperatorID(v.ID), "other-"+v.Operators[0].UID
		for k := range v.Inputs {
			v.Inputs[k].From = other(v.Inputs[k].From)
		}
		for k := range v.Outputs {
			v.Outputs[k].To, v.Outputs[k].From = other(v.Outputs[k].To), graph.OperatorID(v.ID)
		}
	}
	g.Vertices = append(g.Vertices, h.Vertices...)
	return g
}

// deployments records what is deployed.
type deployments struct {
	mu  sync.Mutex
	all []*pb.TaskDeployment
}

func (d *deployments) add(t *pb.TaskDeployment) *pb.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, t)
	return nil
}

func (d *deployments) take() (all []*pb.TaskDeployment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, d.all = d.all, nil
	return all
}

// of finds a worker's task of a vertex.
func (r *rig) of(vertex graph.OperatorID) (w *jobtest.Worker, id string) {
	r.t.Helper()
	for _, w := range r.w.Workers() {
		for _, id := range w.Tasks() {
			if strings.HasPrefix(id, vertex.String()) {
				return w, id
			}
		}
	}
	r.t.Fatalf("no task of %s", vertex)
	return nil, ""
}

// One pipeline of a job restarts alone: its enumerators, its tasks with their state, and no others. The checkpoint that was pending is given up,
// the next one holds both again.
func TestRegionRestartsAlone(t *testing.T) {
	deployed, muted := &deployments{}, make(chan int64, 1)
	w := &jobtest.World{OnDeploy: deployed.add, Mute: func(id int64) bool {
		if id != 2 {
			return false
		}
		muted <- id
		return true
	}}
	r := start(t, w, nil, func(o *minicluster.Options) { o.Graph = twoPipelines() })
	r.running()
	first := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
	if n := len(deployed.take()); n != 10 {
		t.Fatalf("%d tasks, want 10", n)
	}
	pending := make(chan error, 1)
	go func() {
		_, err := r.c.Dispatcher.Trigger(t.Context(), r.c.JobID, jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
		pending <- err
	}()
	<-muted
	worker, id := r.of(jobtest.Op(4))
	worker.Fail(id, &pb.Failure{Message: "boom", Kind: "error"})
	if err := <-pending; !errors.Is(err, coordinator.ErrRestarting) {
		t.Errorf("the checkpoint that was pending: %v", err)
	}
	r.until("restart", func() bool { return r.details().Restarts == 1 })
	r.running()
	again := deployed.take()
	for _, d := range again {
		st, err := metadata.DecodeTask(d.GetRestore())
		if v := d.GetVertexId(); err != nil || v != jobtest.Op(3).String() && v != jobtest.Op(4).String() || d.GetAttempt() != 1 || d.GetRestoredCheckpointId() != first.ID ||
			string(st.Operators[0].State.Lists[0].Items[0]) != fmt.Sprintf("%d@%d", d.GetSubtask(), first.ID) {
			t.Errorf("deployed %v, %v", d, err)
		}
	}
	starts := w.Starts()
	if last := starts[len(starts)-1]; len(again) != 5 || len(starts) != 2 || !slices.Equal(last.GetOperators(), []string{jobtest.Op(3).String()}) ||
		last.GetAttempt() != 1 || string(last.GetStates()[jobtest.Op(1).String()]) != fmt.Sprintf("enum@%d", first.ID) {
		t.Errorf("%d tasks were deployed again, enumerators started by %v", len(again), starts)
	}
	for _, v := range r.details().Vertices {
		for _, x := range v.Tasks {
			if want := map[bool]int{false: 0, true: 1}[strings.HasPrefix(v.Vertex.Name, "Other")]; x.ID.Attempt != want {
				t.Errorf("%s runs in attempt %d, want %d", v.Vertex.Name, x.ID.Attempt, want)
			}
		}
	}
	third := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint})
	// Now the one that ran on: it goes back to the checkpoint after the other's restart.
	worker, id = r.of(jobtest.Op(1))
	worker.Fail(id, &pb.Failure{Message: "boom", Kind: "error"})
	r.until("second restart", func() bool { return r.details().Restarts == 2 })
	r.running()
	for _, d := range deployed.take() {
		if v := d.GetVertexId(); v != jobtest.Op(1).String() && v != jobtest.Op(2).String() || d.GetAttempt() != 2 || d.GetRestoredCheckpointId() != third.ID {
			t.Errorf("deployed %v", d)
		}
	}
	// What concerns all of the job restarts all of it.
	w.Coordinator().Kill("enumerator panicked")
	r.until("third restart", func() bool { return r.details().Restarts == 3 })
	r.running()
	if n := len(deployed.take()); n != 10 {
		t.Errorf("%d tasks were deployed after the end of the coordinator process, want 10", n)
	}
}
