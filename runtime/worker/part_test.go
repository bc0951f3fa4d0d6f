package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/state"
)

// diary is what the enumerators of a program live through.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) take() (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines, d.lines = d.lines, nil
	return lines
}

// logged is a source whose enumerator writes down what happens to it.
type logged struct {
	name string
	d    *diary
}

func (logged) Boundedness() connector.Boundedness { return connector.Unbounded }
func (l logged) Enumerator(_ connector.EnumeratorContext, state []byte) (connector.Enumerator, error) {
	l.d.add("%s made of %q", l.name, state)
	return loggedEnumerator(l), nil
}
func (logged) Reader(connector.ReaderContext) (connector.Reader[count], error) {
	return nil, errors.New("not used here")
}

type loggedEnumerator logged

func (loggedEnumerator) Start(context.Context) error          { return nil }
func (e loggedEnumerator) AddReader(sub int)                  { e.d.add("%s reader %d", e.name, sub) }
func (loggedEnumerator) AddSplitsBack([]connector.Split, int) {}
func (e loggedEnumerator) HandleSplitRequest(sub int)         { e.d.add("%s request of %d", e.name, sub) }
func (e loggedEnumerator) CheckpointComplete(id int64)        { e.d.add("%s complete %d", e.name, id) }
func (e loggedEnumerator) Close() error                       { e.d.add("%s closed", e.name); return nil }
func (e loggedEnumerator) Snapshot(int64) ([]byte, error)     { return []byte(e.name), nil }

// When a part of a job restarts, the enumerators of its sources are made anew, for readers of the new attempt. Those of the others go on with
// theirs.
func TestEnumeratorsOfAPartStartAnew(t *testing.T) {
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	d := &diary{}
	var nodes []*graph.Node
	for _, name := range []string{"a", "b"} {
		s := logged{name, d}
		src := &graph.Node{Kind: "source", Name: name, UID: name, Source: true, Parallelism: 2, OutImpl: typ,
			Impl: operator.Source(s, operator.Watermarks[count]{}), Coordinator: operator.SourceCoordinator(s, operator.Watermarks[count]{})}
		nodes = append(nodes, src, &graph.Node{Kind: "sink", Name: name + " out", UID: name + "-out", In: []graph.Edge{{From: src}}, Impl: operator.Sink[count](collect{newWorld(1)})})
	}
	p, err := graph.Translate(&graph.StreamGraph{Name: "two", Nodes: nodes}, graph.Options{Parallelism: 1, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	id := map[string]string{}
	for _, v := range p.Graph.Vertices {
		if v.Operators[0].Source {
			id[v.Operators[0].Name] = v.Operators[0].ID.String()
		}
	}
	send, until, stop := coordinateProgram(t, p)
	defer stop()
	snapshots := int64(0)
	// happened is what the enumerators wrote down of all that was sent: they snapshot behind it.
	happened := func() []string {
		snapshots++
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Snapshot{Snapshot: &pb.SnapshotCoordinators{CheckpointId: snapshots}}})
		until(func(m *pb.CoordinatorUp) bool {
			if f := m.GetFailure(); f != nil {
				t.Fatal(f)
			}
			s := m.GetSnapshot()
			if s.GetCheckpointId() != snapshots {
				return false
			}
			if len(s.GetStates()) != 2 {
				t.Fatalf("snapshot of %v", s.GetStates())
			}
			return true
		})
		return d.take()
	}
	ready := func(name string, attempt int32) {
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_SubtaskReady{SubtaskReady: &pb.SubtaskReady{OperatorId: id[name], Subtask: 1, Attempt: attempt}}})
	}
	request := func(name string, attempt int32) {
		b, err := json.Marshal(operator.SourceEvent{Request: true})
		if err != nil {
			t.Fatal(err)
		}
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_OperatorEvent{OperatorEvent: &pb.OperatorEvent{OperatorId: id[name], Subtask: 1, Attempt: attempt, Payload: b}}})
	}
	want := func(lines ...string) {
		t.Helper()
		if got := happened(); !slices.Equal(got, lines) {
			t.Fatalf("%q, want %q", got, lines)
		}
	}
	send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: &pb.StartCoordinators{}}})
	ready("a", 0)
	ready("b", 0)
	want(`a made of ""`, `b made of ""`, "a reader 1", "b reader 1")
	send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: &pb.StartCoordinators{Attempt: 1, Restored: true, Operators: []string{id["b"]},
		States: map[string][]byte{id["a"]: []byte("a@1"), id["b"]: []byte("b@1")}}}})
	request("a", 0)
	request("b", 0) // a reader of before
	ready("b", 1)
	request("b", 1)
	send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Completed{Completed: &pb.CheckpointNotice{CheckpointId: 7}}})
	want("b closed", `b made of "b@1"`, "a request of 1", "b reader 1", "b request of 1", "a complete 7", "b complete 7")
}
