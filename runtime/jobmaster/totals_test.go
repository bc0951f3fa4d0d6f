package jobmaster

import (
	"testing"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// What a job did is what its sources read and its sinks wrote, over all subtasks, or nothing where a task has not said.
func TestTotals(t *testing.T) {
	task := func(in int64, sent ...float64) TaskDetails {
		m := &pb.TaskMetrics{RecordsIn: in, Metrics: []*pb.Metric{{OperatorId: "s", Name: "pendingRecords", Value: 9}}}
		for _, n := range sent {
			m.Metrics = append(m.Metrics, &pb.Metric{OperatorId: "s", Name: "numRecordsSend", Value: n})
		}
		return TaskDetails{Metrics: m}
	}
	source := VertexDetails{Vertex: &graph.Vertex{}, Tasks: []TaskDetails{task(700), task(300)}}
	sink := VertexDetails{Vertex: &graph.Vertex{Inputs: []graph.Input{{}}}, Tasks: []TaskDetails{task(600, 25, 25), task(400, 15)}}
	for want, d := range map[string]*Details{
		"read 1000 records, wrote 40":                       {Vertices: []VertexDetails{source, sink}},
		"read 1000 records, wrote 40, since its last start": {Vertices: []VertexDetails{source, sink}, Restarts: 1},
		"read 1000 records":                                 {Vertices: []VertexDetails{source}},
		"":                                                  {Vertices: []VertexDetails{source, {Vertex: &graph.Vertex{}, Tasks: []TaskDetails{{}}}}},
	} {
		if got := d.Totals(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (&Details{}).Totals(); got != "" {
		t.Errorf("no vertices: %q", got)
	}
}
