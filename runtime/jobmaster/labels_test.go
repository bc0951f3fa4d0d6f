package jobmaster

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Who is called when a job fails depends on whose failure it is.
func TestFailuresSayWhoseTheyAre(t *testing.T) {
	v := graph.Vertex{ID: graph.VertexID{ID: graph.ID{1}}, Name: "in -> parse", Operators: []graph.Operator{{Name: "in", Kind: "source"}, {Name: "in parse", Kind: "map"}}}
	out := graph.Vertex{ID: graph.VertexID{ID: graph.ID{2}}, Name: "in", Operators: []graph.Operator{{Name: "in", Kind: "sink"}, {Name: "f", Kind: "map"}}}
	j := &JobMaster{graph: &graph.JobGraph{Vertices: []graph.Vertex{v, out}}}
	at := graph.ExecutionID{Vertex: v.ID}
	for _, c := range []struct {
		f    scheduler.Failure
		want string
	}{
		{scheduler.Failure{Kind: "error", Execution: at, Operator: "in parse (uid x) at main.go:7, subtask 1/2"}, "user error"},
		{scheduler.Failure{Kind: "panic", Execution: at, Operator: "in parse"}, "user panic"},
		{scheduler.Failure{Kind: "panic", Execution: at}, "user panic"},
		{scheduler.Failure{Kind: "error", Execution: at, Operator: "in at main.go:3, subtask 1/2"}, "connector error"},
		{scheduler.Failure{Kind: "error", Execution: graph.ExecutionID{Vertex: out.ID}, Operator: "in, subtask 1/1"}, "connector error"},
		{scheduler.Failure{Kind: "panic", Execution: graph.ExecutionID{Vertex: out.ID}, Operator: "f"}, "user panic"},
		{scheduler.Failure{Kind: "error", Execution: at}, "system error"},
		{scheduler.Failure{}, "system error"},
		{scheduler.Failure{Kind: "coordinator", Operator: "in"}, "connector coordinator"},
		{scheduler.Failure{Kind: "worker", Death: true, Message: "killed by signal 11"}, "infrastructure worker-lost"},
		{scheduler.Failure{Kind: "worker", Death: true, Message: "exit code 2", Detail: "fatal error: runtime: out of memory\ngoroutine 1"}, "resources out-of-memory"},
		{scheduler.Failure{Kind: "error", Execution: at, Operator: "in parse", Message: "the shop said: fatal error: runtime: out of memory"}, "user error"},
		{scheduler.Failure{Kind: "taskmanager", Death: true}, "infrastructure container-lost"},
		{scheduler.Failure{Kind: "connection", Death: true}, "infrastructure connection"},
		{scheduler.Failure{Kind: "partition"}, "infrastructure partition-lost"},
		{scheduler.Failure{Kind: "checkpoint"}, "state checkpoint"},
		{scheduler.Failure{Kind: "damaged"}, "state damaged-state"},
		{scheduler.Failure{Kind: "restore"}, "state restore"},
		{scheduler.Failure{Kind: "resources"}, "resources slots"},
		{scheduler.Failure{Kind: "graph"}, "program graph"},
		{scheduler.Failure{Kind: "protocol"}, "program version"},
		{scheduler.Failure{Kind: "internal"}, "system internal"},
	} {
		l := labelsOf(&c.f, j.operatorKind(&c.f))
		if got := l[LabelType] + " " + l[LabelCause]; got != c.want {
			t.Errorf("%+v: %s, want %s", c.f, got, c.want)
		}
	}
}

// The history has as many failures as are asked for, each with its company; how a container ended is added when it is known.
func TestHistoryKeepsTheNewest(t *testing.T) {
	j := &JobMaster{graph: &graph.JobGraph{}, log: zerolog.Nop(), stacks: map[string]bool{}, endpoints: map[string]string{"tm5": "host:7"}}
	j.opts.Config = config.Configuration{config.ExceptionHistorySize.Key: "3"}
	record := func(i int, root bool, kind string) {
		j.recordFailure(scheduler.FailureRecorded{Root: root, Failure: scheduler.Failure{Message: fmt.Sprint(i), Kind: kind, TaskManager: fmt.Sprintf("tm%d", i), At: time.Unix(int64(i), 0)}})
	}
	for i := range 7 {
		j.ending = false
		record(i, true, "taskmanager")
		for k := range i * 30 {
			record(100+k, false, "error")
		}
	}
	var roots []string
	company := map[string]int{}
	n := 0
	for _, r := range j.history {
		if n++; r.Root {
			roots, company[r.Message], n = append(roots, r.Message), n-1, 0
		}
	}
	if fmt.Sprint(roots) != "[6 5 4]" || company["4"] != maxConcurrent || n != 0 {
		t.Fatalf("%v, with %v, %d behind the last", roots, company, n)
	}
	shown := j.details().History
	j.taskManagerExit("tm5", resourcemanager.Exit{Code: -104, Text: "too much", Memory: true})
	j.taskManagerExit("tm4", resourcemanager.Exit{Code: -102, Text: "taken"})
	for i, r := range j.history {
		switch {
		case r.Message == "5" && r.Root && (r.Labels[LabelCause] != "out-of-memory" || r.Endpoint != "host:7" || shown[i].Labels[LabelCause] != "container-lost"):
			t.Errorf("%+v, shown before %+v", r, shown[i])
		case r.Message == "4" && r.Root && (r.Labels[LabelCause] != "container-lost" || r.Detail != "The container ended with exit code -102: taken"):
			t.Errorf("%+v", r)
		}
	}
}
