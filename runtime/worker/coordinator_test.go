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
	typ, err := operator.TypeOf[count]()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"preflight", "new", "start", "async", "done"} {
		for name, do := range map[string]func(){"panic": func() { panic("ouch") }, "goexit": runtime.Goexit} {
			t.Run(place+" "+name, func(t *testing.T) {
				src := &graph.Node{Kind: "source", Name: "rogue", UID: "rogue", Source: true, Parallelism: 1, OutImpl: typ, Impl: operator.Source(rogue{place, do}, operator.Watermarks[count]{}), Coordinator: operator.SourceCoordinator(rogue{place, do}, operator.Watermarks[count]{})}
				out := &graph.Node{Kind: "sink", Name: "out", UID: "out", In: []graph.Edge{{From: src}}, Impl: operator.Sink[count](collect{newWorld(1)})}
				p, err := graph.Translate(&graph.StreamGraph{Name: "rogue", Nodes: []*graph.Node{src, out}}, graph.Options{Parallelism: 1, DefaultMax: state.DefaultMaxParallelism})
				if err != nil {
					t.Fatal(err)
				}
				lower, upper := rpc.Pipe[*pb.CoordinatorUp, *pb.CoordinatorDown]()
				ended := make(chan error, 1)
				go func() {
					ended <- worker.RunCoordinator(context.Background(), lower, rpc.ProcessConfig{}, p, &fs.Registry{}, zerolog.Nop())
				}()
				send := func(m *pb.CoordinatorDown) {
					if err := upper.Send(m); err != nil {
						t.Fatal(err)
					}
				}
				until := func(ok func(*pb.CoordinatorUp) bool) {
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
				send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Shutdown{Shutdown: &pb.Shutdown{}}})
				if err := <-ended; err != nil {
					t.Error(err)
				}
				upper.Close(nil)
				<-upper.Done()
				<-lower.Done()
			})
		}
	}
}
