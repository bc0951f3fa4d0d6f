package operator

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/guard"
)

// badCommits is a sink whose Commit does what a test says.
type badCommits struct{ commit func() }

func (b badCommits) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[int64], error) {
	return b, nil
}
func (b badCommits) Committer(connector.SinkContext) (connector.Committer, error) { return b, nil }
func (badCommits) Write(int64, int64) error                                       { return nil }
func (badCommits) Flush(context.Context, bool) error                              { return nil }
func (badCommits) Snapshot(int64) ([][]byte, error)                               { return nil, nil }
func (badCommits) PrepareCommit(int64) ([][]byte, error)                          { return [][]byte{{1}}, nil }
func (badCommits) Committed(int64)                                                {}
func (badCommits) Close() error                                                   { return nil }
func (b badCommits) Commit(context.Context, [][]byte, bool) error {
	b.commit()
	return nil
}

// failDesk hands over what fails the task.
type failDesk struct {
	*desk
	failed chan error
}

func (d failDesk) Fail(err error) { d.failed <- err }

func TestCommitThatPanicsFailsTheTask(t *testing.T) {
	for name, c := range map[string]struct {
		commit func()
		want   string
		stack  string
	}{
		"panic":  {func() { panic("ouch") }, "operator out, subtask 1/1: commit checkpoint 7: panic: ouch", "badCommits.Commit"},
		"goexit": {runtime.Goexit, guard.ErrExit.Error(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := failDesk{newDesk(t.Context()), make(chan error, 1)}
			op, err := Sink[int64](badCommits{c.commit}).New(&Context{Services: d, Name: "out", Parallelism: 1, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}, Checkpointing: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := op.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := op.Snapshot(Barrier{ID: 7}); err != nil {
				t.Fatal(err)
			}
			if err := op.CheckpointComplete(7); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-d.failed:
				if !strings.Contains(err.Error(), c.want) || !strings.Contains(guard.Stack(err), c.stack) {
					t.Errorf("got %v with the stack %q", err, guard.Stack(err))
				}
			case <-time.After(time.Minute):
				t.Fatal("the task goes on without its commit")
			}
			if err := op.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// halfSink leaves something out of what a CommittingSink has.
type halfSink struct {
	badCommits
	writer    connector.SinkWriter[int64]
	committer connector.Committer
}

func (h halfSink) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[int64], error) {
	return h.writer, nil
}
func (h halfSink) Committer(connector.SinkContext) (connector.Committer, error) {
	return h.committer, nil
}

// plainWriter prepares no commits.
type plainWriter struct{ connector.SinkWriter[int64] }

func (plainWriter) Close() error { return nil }

func sinkContext(t *testing.T, index int) *Context {
	return &Context{Services: newDesk(t.Context()), Name: "out", Parallelism: 1, Index: index, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}, Checkpointing: true}
}

// A sink that would commit nothing, or could write nothing, is told at once, and no restart is tried.
func TestSinksThatViolateTheirContract(t *testing.T) {
	for rule, s := range map[string]connector.Sink[int64]{
		"committer":         halfSink{writer: badCommits{}},
		"writer":            halfSink{committer: badCommits{}},
		"committing-writer": halfSink{writer: plainWriter{}, committer: badCommits{}},
	} {
		op, err := Sink(s).New(sinkContext(t, 0), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = op.Open(t.Context())
		var ce *connector.ContractError
		if !errors.As(err, &ce) || ce.Rule != rule || !strings.Contains(err.Error(), "operator out") {
			t.Errorf("%s: %v", rule, err)
		}
		if err := op.Close(); err != nil {
			t.Errorf("%s: close: %v", rule, err)
		}
	}
}

// Committed is called by a mail, while the task may be at work in another operator: what it does is the sink's.
func TestCommittedIsTheSinks(t *testing.T) {
	ctx := sinkContext(t, 2)
	op, err := Sink[int64](badCommits{func() {}}).New(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := op.Snapshot(Barrier{ID: 7}); err != nil {
		t.Fatal(err)
	}
	ctx.Mark.Current = 0
	op.(*sinkOp).committed(7)
	if ctx.Mark.Current != 2 {
		t.Errorf("a panic would be told of operator %d of the chain, not of 2", ctx.Mark.Current)
	}
	if err := op.Close(); err != nil {
		t.Error(err)
	}
}
