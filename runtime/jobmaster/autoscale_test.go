package jobmaster_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// loaded reports, for all tasks there are, a source that reads 1000 records a second, of 1500 that come, and a sink that is busy all the time as long as it has
// fewer than four subtasks.
func (r *rig) loaded(since time.Time) {
	seconds := time.Since(since).Seconds()
	for _, w := range r.w.Workers() {
		m := &pb.WorkerMetrics{TimeMs: time.Now().UnixMilli()}
		for _, text := range w.Tasks() {
			id, err := graph.ParseExecutionID(text)
			if err != nil {
				r.t.Error(err)
			}
			v := &pb.TaskMetrics{ExecutionId: text}
			d := r.details()
			n := float64(len(d.Vertices[1].Tasks))
			total := 1000.0
			if n >= 4 {
				total = 1500
			}
			if id.Vertex == source {
				p := float64(len(d.Vertices[0].Tasks))
				v.RecordsIn, v.RecordsOut, v.BusyMs = int64(total*seconds/p), int64(total*seconds/p), int64(500*seconds)
				v.Metrics = []*pb.Metric{{Name: "pendingRecords", Value: (1500 - total) * seconds / p}}
			} else {
				v.RecordsIn, v.BusyMs = int64(total*seconds/n), int64(1000*seconds)
				if n >= 4 {
					v.BusyMs = int64(700 * seconds)
				}
			}
			m.Tasks = append(m.Tasks, v)
		}
		_ = w.Link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Metrics{Metrics: m}})
	}
}

var autoscaled = map[string]string{"job.autoscaler.enabled": "true", "job.autoscaler.stabilization.interval": "0", "job.autoscaler.metrics.window": "1 s", "job.autoscaler.restart.time": "0",
	"job.autoscaler.catch-up.duration": "0", "job.autoscaler.vertex.max-parallelism": "8", "taskmanager.numberOfTaskSlots": "8"}

// A vertex that cannot keep up gets more subtasks, from the metrics that its tasks report; the others keep theirs.
func TestAutoscalerChangesTheParallelism(t *testing.T) {
	r := start(t, &jobtest.World{}, autoscaled)
	r.runs(2, 3)
	began := time.Now()
	r.until("more subtasks of the sink", func() bool {
		r.loaded(began)
		d := r.details()
		return len(d.Vertices[1].Tasks) > 3 && d.State == scheduler.JobRunning && allTasks(d, scheduler.TaskRunning)
	})
	if d := r.details(); len(d.Vertices[0].Tasks) != 2 || d.Requirements[sink].Upper != len(d.Vertices[1].Tasks) || d.Requirements[sink].Lower != 3 || d.Restarts != 0 {
		t.Errorf("requirements %v, source %d", d.Requirements, len(d.Vertices[0].Tasks))
	}
}

// A dry run tells what it would do, and does nothing.
func TestAutoscalerDryRun(t *testing.T) {
	conf := map[string]string{"job.autoscaler.scaling.enabled": "false"}
	for k, v := range autoscaled {
		conf[k] = v
	}
	r := start(t, &jobtest.World{}, conf)
	r.runs(2, 3)
	began := time.Now()
	r.until("a recommendation", func() bool {
		r.loaded(began)
		d := r.details()
		return len(d.Load) == 2 && d.Load[1].Recommended > 3
	})
	d := r.details()
	if e := d.Load[1]; e.Busy < 0.8 || e.Target < 1200 || e.Target > 1800 || e.Capacity > 1200 || d.Load[0].Pending < 0 || d.Load[0].Recommended != 2 {
		t.Errorf("%+v", d.Load)
	}
	if d.Attempt != 0 || d.Rescales != 0 || len(d.Vertices[1].Tasks) != 3 {
		t.Errorf("attempt %d, %d changes, %d subtasks", d.Attempt, d.Rescales, len(d.Vertices[1].Tasks))
	}
}
