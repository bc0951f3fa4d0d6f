package jobmaster

import (
	"strings"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// The labels of a failure say whose it is and what happened, so that alerts and people can tell them apart without reading texts. They
// take the place of Flink's jobmanager.failure-enrichers (FLIP-304), which are classes that run in the JobManager: ours runs no code of users.
const (
	// LabelType is one of user (the program's functions), connector (sources, sinks and their enumerators), state (checkpoints and what is
	// restored), resources (memory, slots), infrastructure (processes, containers, connections), program (the program cannot run as it
	// is: another graph, another version) and system (ours).
	LabelType = "type"
	// LabelCause is what happened: panic, error, out-of-memory, worker-lost, container-lost, preempted, connection, partition-lost,
	// coordinator, checkpoint, damaged-state, restore, slots, graph, version, waiting, shutdown, internal.
	LabelCause = "cause"
)

// labelsOf classifies a failure; kind is the kind of the operator that it comes from, "" when that is not known.
func labelsOf(f *scheduler.Failure, kind string) map[string]string {
	whose, cause := "system", f.Kind
	switch f.Kind {
	case "panic", "error", "":
		switch {
		case kind == "source" || kind == "sink":
			whose = "connector"
		case f.Operator != "" || f.Kind == "panic":
			whose = "user"
		}
		if f.Kind == "" {
			cause = "error"
		}
	case "coordinator":
		whose = "connector"
	case "worker":
		whose, cause = "infrastructure", "worker-lost"
	case "taskmanager":
		whose, cause = "infrastructure", "container-lost"
	case "connection":
		whose = "infrastructure"
	case "partition":
		whose, cause = "infrastructure", "partition-lost"
	case "checkpoint", "restore", waiting:
		whose = "state"
	case rpc.KindDamaged:
		whose, cause = "state", "damaged-state"
	case "resources":
		whose, cause = "resources", "slots"
	case "graph":
		whose = "program"
	case "protocol":
		whose, cause = "program", "version"
	}
	if f.Death && outOfMemory(f.Message+"\n"+f.Detail) {
		whose, cause = "resources", "out-of-memory"
	}
	return map[string]string{LabelType: whose, LabelCause: cause}
}

// outOfMemory looks for what the Go runtime says, in the last lines of a process, when it gets no more.
func outOfMemory(text string) bool {
	for _, s := range []string{"fatal error: runtime: out of memory", "fatal error: runtime: cannot allocate", "cannot allocate memory"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// operatorKind is the kind of the operator that a failure names: "name (uid ...) at ..., subtask 1/2", or the name alone.
func (j *JobMaster) operatorKind(f *scheduler.Failure) (kind string) {
	longest := 0
	for i := range j.graph.Vertices {
		v := &j.graph.Vertices[i]
		if f.Execution != (graph.ExecutionID{}) && f.Execution.Vertex != v.ID {
			continue
		}
		for _, op := range v.Operators {
			rest, ok := strings.CutPrefix(f.Operator, op.Name)
			if !ok || len(op.Name) < longest || rest != "" && !strings.HasPrefix(rest, " (uid ") && !strings.HasPrefix(rest, " at ") && !strings.HasPrefix(rest, ", subtask ") {
				continue
			}
			longest, kind = len(op.Name), op.Kind
		}
	}
	return kind
}
