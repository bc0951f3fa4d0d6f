package scheduler

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/internal/transcript"
)

// The tables, printed: a change of them is a change of this file.
func TestTransitionTables(t *testing.T) {
	var b strings.Builder
	for _, s := range JobStates {
		fmt.Fprintf(&b, "job %s -> %v\n", s, jobTransitions[s])
	}
	for _, s := range TaskStates {
		fmt.Fprintf(&b, "task %s -> %v\n", s, taskTransitions[s])
	}
	const file = "testdata/states.golden"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	transcript.Compare(t, file, string(want), b.String())
	for _, s := range JobStates {
		if s.Terminal() && len(jobTransitions[s]) > 0 {
			t.Errorf("terminal state %s has successors", s)
		}
	}
	for _, s := range TaskStates {
		if s.Terminal() && len(taskTransitions[s]) > 0 {
			t.Errorf("terminal state %s has successors", s)
		}
	}
}

// Whatever happens, in whatever order: states follow the tables, Ended comes once and last, tasks are only deployed into offered slots, no
// two subtasks of a vertex share a slot, and a job whose tasks all end can always be brought to its end.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pa, pb := rapid.IntRange(1, 3).Draw(t, "a"), rapid.IntRange(1, 3).Draw(t, "b")
		s := randomJob(pa, pb, rapid.Bool().Draw(t, "connected"), rapid.Bool().Draw(t, "checkpoints"))
		m := &model{t: t, s: s, job: JobInitializing, tasks: map[string]TaskState{}, tms: []string{"tm1", "tm2", "tm3"}}
		m.step(Start{})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.step(m.draw())
		}
		// Bring it to its end.
		m.step(CancelJob{})
		for _, v := range s.Vertices() {
			for _, x := range v.Tasks {
				m.step(TaskChanged{ID: x.ID, State: TaskCanceled})
			}
		}
		if !m.ended {
			t.Fatalf("state %s after everything was cancelled", s.State())
		}
	})
}
