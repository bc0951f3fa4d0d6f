package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// The coordinator of a job that has taken thousands of checkpoints, many of which failed in one way or another, knows what it knew after
// the first hundreds.
func TestThousandsOfCheckpointsLeaveNothing(t *testing.T) {
	c, err := New(Config{Graph: testGraph(false), Dir: testDir, Interval: time.Second, Timeout: time.Minute, Tolerable: 1 << 30, Retained: 3, ReservedID: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	attempt := 0
	step := func(ev Event) {
		for _, e := range c.Step(now, ev) {
			if f, ok := e.(FailJob); ok {
				t.Fatal(f)
			}
		}
	}
	step(TasksRunning{Tasks: testTasks(attempt)})
	var last string // shared file of the last completed checkpoint: the next one refers to it, too
	take := func(n int) {
		now = now.Add(time.Second)
		step(Tick{})
		if len(c.Pending()) == 0 {
			t.Fatalf("round %d: no checkpoint", n)
		}
		id := c.Pending()[0]
		name := fmt.Sprintf("../shared/%d-sst", id)
		ack := func(task Task) {
			files := []state.File{{Ref: state.FileRef{Name: name, Size: 1, Scope: state.Shared}}}
			if last != "" {
				files = append(files, state.File{Ref: state.FileRef{Name: last, Size: 1, Scope: state.Shared}})
			}
			var st metadata.Task
			if task.Execution.Vertex == windowID {
				st.Operators = []metadata.TaskOperator{{ID: graph.OperatorID(windowID), State: metadata.Subtask{Keyed: []state.Handle{{Range: state.Range{End: 128}, Files: files}}}}}
			}
			step(Ack{ID: id, Execution: task.Execution, State: st})
		}
		tasks := testTasks(attempt)
		if n%7 == 1 { // declined, and acknowledged late
			step(Decline{ID: id, Execution: tasks[0].Execution, Reason: "disk full"})
			ack(tasks[1])
			return
		}
		for i, task := range tasks {
			if n%7 == 2 && i == 2 { // the job restarts meanwhile
				step(JobRestarting{Reason: "worker died"})
				attempt++
				step(TasksRunning{Tasks: testTasks(attempt)})
				return
			}
			if n%7 == 3 && i == 3 { // it takes too long
				now = now.Add(time.Minute)
				step(Tick{})
				return
			}
			ack(task)
		}
		switch n % 7 {
		case 4: // the metadata cannot be written
			step(MetadataWritten{ID: id, Err: fmt.Errorf("full")})
			return
		case 5: // aborted while it is being written
			step(JobRestarting{})
			attempt++
			step(TasksRunning{Tasks: testTasks(attempt)})
			step(MetadataWritten{ID: id})
			return
		}
		step(MetadataWritten{ID: id})
		step(PointerStored{ID: id})
		last = name
	}
	held := func() string {
		return fmt.Sprintf("%d retained, %d shared files, %d lent, %d doomed, %d history, %d queued", len(c.retained), len(c.registry.Files()), len(c.lent), len(c.doomed), len(c.stats.history), len(c.queue))
	}
	const rounds = 350
	for n := range rounds {
		take(n)
	}
	before := held()
	for n := rounds; n < 20*rounds; n++ {
		take(n)
	}
	if after := held(); after != before || len(c.aborted) > 101 || len(c.stats.duration) > summaryWindow {
		t.Errorf("at first: %s; in the end: %s, %d aborted", before, after, len(c.aborted))
	}
	if n := c.stats.counts; n.Completed < 2*rounds || n.Failed < 10*rounds || n.InProgress != 0 {
		t.Errorf("%+v", n)
	}
}
