package dispatcher

import (
	"context"
	"testing"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
)

// Who stopped a job learns where its savepoint is although the job is over: the end waits for the question.
func TestEndWaitsUntilOutcomesAreRead(t *testing.T) {
	d := &Dispatcher{triggers: newTriggers()}
	d.AwaitRead(t.Context()) // nothing was asked for
	id := graph.JobID{ID: graph.NewID()}
	if _, err := d.triggers.begin(id.String() + "/t"); err != nil {
		t.Fatal(err)
	}
	if op, err := d.Operation(id, "t"); err != nil || op.Done {
		t.Fatalf("%+v %v", op, err)
	}
	d.triggers.end(id.String()+"/t", jobmaster.TriggerResult{Path: "file:///sp"})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.AwaitRead(ended) // nobody asks: bounded by its context
	if !d.triggers.unread() {
		t.Error("read although nobody asked after the end")
	}
	if op, err := d.Operation(id, "t"); err != nil || op.Result.Path != "file:///sp" {
		t.Fatalf("%+v %v", op, err)
	}
	d.AwaitRead(t.Context())
}
