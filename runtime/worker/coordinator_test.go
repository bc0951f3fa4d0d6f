package worker_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/worker"
	"github.com/thalweg/thalweg/state"
)

// rogue is a source whose enumerator does something at a chosen place.
type rogue struct {
	where string
	do    func()
}

func (r rogue) at(place string) {
	if r.where == place {
		r.do()
	}
}
func (rogue) Boundedness() connector.Boundedness { return connector.Unbounded }
func (r rogue) Enumerator(ctx connector.EnumeratorContext, _ []byte) (connector.Enumerator, error) {
	r.at("new")
	return rogueEnumerator{r, ctx}, nil
}
func (r rogue) Reader(connector.ReaderContext) (connector.Reader[count], error) {
	return nil, errors.New("not used here")
}
func (r rogue) Preflight(context.Context, connector.PreflightContext) error {
	r.at("preflight")
	return nil
}

type rogueEnumerator struct {
	rogue
	ctx connector.EnumeratorContext
}

func (e rogueEnumerator) Start(context.Context) error {
	e.at("start")
	e.ctx.Async(0, func(context.Context) (any, error) { e.at("async"); return nil, nil }, func(_ any, err error) {
		e.at("done")
		if err != nil {
			e.ctx.Fail(err)
		}
	})
	return nil
}
func (rogueEnumerator) AddReader(int)                        {}
func (rogueEnumerator) AddSplitsBack([]connector.Split, int) {}
func (rogueEnumerator) HandleSplitRequest(int)               {}
func (rogueEnumerator) CheckpointComplete(int64)             {}
func (rogueEnumerator) Close() error                         { return nil }
func (e rogueEnumerator) Snapshot(int64) ([]byte, error)     { return nil, nil }

// Whatever an enumerator or a preflight check does to its goroutine, the job hears of it, and of whose code it was; the process goes on.
func TestEnumeratorThatEndsItsGoroutineFailsTheJob(t *testing.T) {
	for _, place := range []string{"preflight", "new", "start", "async", "done"} {
		for name, do := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
			t.Run(place+" "+name, func(t *testing.T) {
				_, send, until, stop := coordinate(t, rogue{place, do})
				defer stop()
				send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: &pb.StartCoordinators{}}})
				until(func(m *pb.CoordinatorUp) bool {
					f := m.GetFailure()
					if f == nil {
						return false
					}
					want, stack := "panic: ouch", "TestEnumeratorThatEndsItsGoroutine"
					if name == "goexit" {
						want, stack = guard.ErrExit.Error(), ""
					}
					if f.GetOperator() != "rogue" || !strings.Contains(f.GetMessage(), "operator rogue: ") || !strings.Contains(f.GetMessage(), want) || !strings.Contains(f.GetDetail(), stack) {
						t.Errorf("got %v", f)
					}
					return true
				})
				send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Snapshot{Snapshot: &pb.SnapshotCoordinators{CheckpointId: 3}}})
				until(func(m *pb.CoordinatorUp) bool { return m.GetSnapshot().GetCheckpointId() == 3 }) // it still answers
			})
		}
	}
}

// coordinate runs the coordinator process of a job with that source, whose operator is id: send sends to it, until reads what it sends until that is ok.
func coordinate(t *testing.T, source connector.Source[count]) (id string, send func(*pb.CoordinatorDown), until func(ok func(*pb.CoordinatorUp) bool), stop func()) {
	t.Helper()
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	src := &graph.Node{Kind: "source", Name: "rogue", UID: "rogue", Source: true, Parallelism: 2, OutImpl: typ,
		Impl: operator.Source(source, operator.Watermarks[count]{}), Coordinator: operator.SourceCoordinator(source, operator.Watermarks[count]{})}
	out := &graph.Node{Kind: "sink", Name: "out", UID: "out", In: []graph.Edge{{From: src}}, Impl: operator.Sink[count](collect{newWorld(1)})}
	p, err := graph.Translate(&graph.StreamGraph{Name: "rogue", Nodes: []*graph.Node{src, out}}, graph.Options{Parallelism: 1, DefaultMax: state.DefaultMaxParallelism})
	if err != nil {
		t.Fatal(err)
	}
	send, until, stop = coordinateProgram(t, p)
	return p.Graph.Vertices[0].Operators[0].ID.String(), send, until, stop
}

// coordinateProgram is coordinate with a whole program.
func coordinateProgram(t *testing.T, p *graph.Program) (send func(*pb.CoordinatorDown), until func(ok func(*pb.CoordinatorUp) bool), stop func()) {
	lower, upper := rpc.Pipe[*pb.CoordinatorUp, *pb.CoordinatorDown]()
	ended := make(chan error, 1)
	go func() {
		ended <- worker.RunCoordinator(context.Background(), lower, rpc.ProcessConfig{}, p, &fs.Registry{}, zerolog.Nop())
	}()
	send = func(m *pb.CoordinatorDown) {
		if err := upper.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	until = func(ok func(*pb.CoordinatorUp) bool) {
		for {
			m, err := upper.Recv()
			if err != nil {
				t.Fatalf("the coordinator ended: %v", err)
			}
			if ok(m) {
				return
			}
		}
	}
	return send, until, func() {
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Shutdown{Shutdown: &pb.Shutdown{}}})
		if err := <-ended; err != nil {
			t.Error(err)
		}
		upper.Close(nil)
		<-upper.Done()
		<-lower.Done()
	}
}

// bent is a source whose enumerator does something when it is started.
type bent struct {
	rogue
	start func(connector.EnumeratorContext)
}

func (b bent) Enumerator(ctx connector.EnumeratorContext, _ []byte) (connector.Enumerator, error) {
	return bentEnumerator{rogueEnumerator{b.rogue, ctx}, b.start}, nil
}

type bentEnumerator struct {
	rogueEnumerator
	start func(connector.EnumeratorContext)
}

func (b bentEnumerator) Start(context.Context) error { b.start(b.ctx); return nil }

// What an enumerator does against its contract ends the job, with what it did and to whom.
func TestEnumeratorsThatViolateTheirContract(t *testing.T) {
	a, b := connector.Split{ID: "a"}, connector.Split{ID: "b"}
	for name, c := range map[string]struct {
		start func(connector.EnumeratorContext)
		event string // a reader's, "" for none
		want  string
		fatal bool
	}{
		"one split, two readers": {func(c connector.EnumeratorContext) { c.Assign(0, b, a); c.Assign(1, a) }, "",
			`(rule "split-assigned-once"): the enumerator assigned split "a" to subtask 1, and to subtask 0 before, which has not released it`, true},
		"subtask that is not there": {func(c connector.EnumeratorContext) { c.Assign(2, a) }, "", `(rule "subtask")`, true},
		"split after the last": {func(c connector.EnumeratorContext) { c.NoMoreSplits(1); c.Assign(1, a) }, "",
			`(rule "assign-after-no-more")`, true},
		"event of a reader":  {func(connector.EnumeratorContext) {}, `{"custom":"eA=="}`, `(rule "events"): the reader of subtask 1 sent an event`, true},
		"failure of nothing": {func(c connector.EnumeratorContext) { c.Fail(nil) }, "", "operator rogue: the enumerator called Fail without an error", false},
	} {
		t.Run(name, func(t *testing.T) {
			id, send, until, stop := coordinate(t, bent{start: c.start})
			defer stop()
			send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: &pb.StartCoordinators{}}})
			if c.event != "" {
				send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_OperatorEvent{OperatorEvent: &pb.OperatorEvent{OperatorId: id, Subtask: 1, Payload: []byte(c.event)}}})
			}
			until(func(m *pb.CoordinatorUp) bool {
				f := m.GetFailure()
				if f != nil && (!strings.Contains(f.GetMessage(), c.want) || f.GetFatal() != c.fatal) {
					t.Errorf("got %v, want %q", f, c.want)
				}
				return f != nil
			})
		})
	}
}

// A split that its reader has released may be given out again, to whichever reader; one that another reader has may not.
func TestReleasedSplitsMayBeAssignedAgain(t *testing.T) {
	a := connector.Split{ID: "a"}
	var ctx connector.EnumeratorContext
	id, send, until, stop := coordinate(t, asked{bent{start: func(c connector.EnumeratorContext) { ctx = c; c.Assign(0, a) }}, func(subtask int) { ctx.Assign(subtask, a) }})
	defer stop()
	send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: &pb.StartCoordinators{}}})
	tell := func(subtask int32, event string) {
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_OperatorEvent{OperatorEvent: &pb.OperatorEvent{OperatorId: id, Subtask: subtask, Payload: []byte(event)}}})
	}
	ready := func(subtask int32) {
		send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_SubtaskReady{SubtaskReady: &pb.SubtaskReady{OperatorId: id, Subtask: subtask}}})
	}
	ready(0)
	ready(1)
	assignedTo := func(subtask int32) {
		t.Helper()
		until(func(m *pb.CoordinatorUp) bool {
			if f := m.GetFailure(); f != nil {
				t.Fatalf("subtask %d: %v", subtask, f)
			}
			e := m.GetOperatorEvent()
			return e != nil && e.GetSubtask() == subtask && strings.Contains(string(e.GetPayload()), `"assign":[{"ID":"a"`)
		})
	}
	assignedTo(0)
	tell(0, `{"released":["a"]}`)
	tell(1, `{"request":true}`)
	assignedTo(1)
	tell(0, `{"released":["a"]}`) // it is no longer that reader's
	tell(0, `{"request":true}`)
	until(func(m *pb.CoordinatorUp) bool {
		return strings.Contains(m.GetFailure().GetMessage(), `assigned split "a" to subtask 0, and to subtask 1 before`)
	})
}

// asked is a source whose enumerator does something when a reader asks for a split.
type asked struct {
	bent
	request func(subtask int)
}

func (a asked) Enumerator(ctx connector.EnumeratorContext, _ []byte) (connector.Enumerator, error) {
	return askedEnumerator{bentEnumerator{rogueEnumerator{a.rogue, ctx}, a.start}, a.request}, nil
}

type askedEnumerator struct {
	bentEnumerator
	request func(subtask int)
}

func (a askedEnumerator) HandleSplitRequest(subtask int) { a.request(subtask) }
