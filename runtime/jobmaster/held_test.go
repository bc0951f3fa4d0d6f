package jobmaster_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// savepointOf is a savepoint of the scripted job.
func savepointOf(t *testing.T) string {
	t.Helper()
	r := start(t, &jobtest.World{}, nil)
	r.running()
	sp := r.mustTrigger(jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: "file://" + filepath.Join(r.dir, "sp")})
	r.wait()
	return sp.Path
}

// holds counts the tasks that were deployed, by attempt: all, and those that were held.
type holds struct {
	mu   sync.Mutex
	all  map[int32]int
	held map[int32]int
}

func (h *holds) note(t *pb.TaskDeployment) *pb.Failure {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all[t.GetAttempt()]++
	if t.GetHold() {
		h.held[t.GetAttempt()]++
	}
	return nil
}

// No task of a job that starts from a savepoint runs before each of them has opened its state, whatever worker it is at, also when one of the workers
// dies meanwhile. From then on tasks run as soon as they are restored.
func TestTasksOfASavepointWaitForEachOther(t *testing.T) {
	path := savepointOf(t)
	h := &holds{all: map[int32]int{}, held: map[int32]int{}}
	var mu sync.Mutex
	var late []string // the last subtask of the second vertex, of each attempt
	w := &jobtest.World{OnDeploy: h.note, Open: func(t *pb.TaskDeployment) ([]string, bool) {
		if t.GetParallelism() == 3 && t.GetSubtask() == 2 {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, t.GetExecutionId())
			return nil, false
		}
		return nil, true
	}}
	r := start(t, w, map[string]string{"execution.state-recovery.path": path, "execution.checkpointing.interval": "1 h"})
	deployed := func(n int) string {
		t.Helper()
		r.until("all tasks to open, but one", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(late) == n && allTasks(r.details(), scheduler.TaskInitializing)
		})
		mu.Lock()
		defer mu.Unlock()
		return late[n-1]
	}
	holder := func(id string) *jobtest.Worker {
		all := r.w.Workers()
		i := slices.IndexFunc(all, func(k *jobtest.Worker) bool { return slices.Contains(k.Tasks(), id) })
		if i < 0 {
			t.Fatalf("no worker has task %s", id)
		}
		return all[i]
	}
	first := deployed(1)
	holder(first).Kill("killed")
	again := deployed(2)
	if again == first {
		t.Fatalf("task %s was deployed twice", first)
	}
	holder(again).Opened(first) // of another attempt: says nothing
	holder(again).Opened(again)
	r.running()
	r.w.Workers()[0].Kill("killed")
	r.until("another restart", func() bool { return r.details().Restarts == 2 })
	r.running()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all[0] != 5 || h.held[0] != 5 || h.all[1] != 5 || h.held[1] != 5 || h.all[2] == 0 || h.held[2] != 0 {
		t.Errorf("deployed %v by attempt, held %v", h.all, h.held)
	}
}

// What does not fit is told of all tasks of all workers, once each, and no task runs.
func TestMisfitsOfAllWorkersAreTold(t *testing.T) {
	path := savepointOf(t)
	var ran atomic.Int32
	w := &jobtest.World{OnRun: func(string) { ran.Add(1) }, Open: func(t *pb.TaskDeployment) ([]string, bool) {
		switch {
		case t.GetParallelism() == 2 && t.GetSubtask() == 1:
			return []string{"the numbers"}, true
		case t.GetParallelism() == 3:
			return []string{"the sums", "the counts"}, true
		}
		return nil, true
	}}
	r := start(t, w, map[string]string{"execution.state-recovery.path": path})
	res := r.wait()
	if want := "in 3 points; (1) the counts; (2) the numbers; (3) the sums"; res.State != scheduler.JobFailed || !strings.HasSuffix(res.Failure.Message, want) || !strings.Contains(res.Failure.Message, path) {
		t.Errorf("%s: %+v, want %q", res.State, res.Failure, want)
	}
	if d := r.details(); d.Restarts != 0 {
		t.Errorf("%d restarts", d.Restarts)
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d tasks ran", n)
	}
}
