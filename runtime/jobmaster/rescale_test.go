package jobmaster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// vertices of jobtest.Graph.
var source, sink = graph.VertexID(jobtest.Op(1)), graph.VertexID(jobtest.Op(2))

func both(lower, upper int) scheduler.Requirements {
	return scheduler.Requirements{source: {Lower: lower, Upper: upper}, sink: {Lower: lower, Upper: upper}}
}

func (r *rig) require(q scheduler.Requirements) {
	r.t.Helper()
	if err := r.tryRequire(q); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tryRequire(q scheduler.Requirements) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.c.Dispatcher.Require(ctx, r.c.JobID, q)
}

// runs waits until all tasks run, with this parallelism.
func (r *rig) runs(p, q int) {
	r.t.Helper()
	r.until(fmt.Sprintf("running with %d and %d", p, q), func() bool {
		d := r.details()
		return d.State == scheduler.JobRunning && allTasks(d, scheduler.TaskRunning) && len(d.Vertices[0].Tasks) == p && len(d.Vertices[1].Tasks) == q && !d.Rescaling
	})
}

// deployed collects the deployments of each attempt.
type deployed struct {
	mu sync.Mutex
	by map[int32][]*pb.TaskDeployment
}

func (d *deployed) hook(t *pb.TaskDeployment) *pb.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = map[int32][]*pb.TaskDeployment{}
	}
	d.by[t.GetAttempt()] = append(d.by[t.GetAttempt()], t)
	return nil
}

func (d *deployed) last() []*pb.TaskDeployment {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.by[slices.Max(slices.Collect(maps.Keys(d.by)))]
}

// A running job gets another parallelism from a checkpoint that is taken for it: its state is dealt out among the new subtasks, its workers
// stay, containers are added when slots are missing and given back when they are left over.
func TestRescaleUpAndDown(t *testing.T) {
	var d deployed
	r := start(t, &jobtest.World{OnDeploy: d.hook}, map[string]string{"taskmanager.numberOfTaskSlots": "2", "resourcemanager.taskmanager-timeout": "50 ms"})
	r.runs(2, 3)
	first := r.c.Resources.TaskManagers()
	if len(first) != 2 {
		t.Fatalf("%d TaskManagers for 3 slots of 2", len(first))
	}
	r.require(both(6, 6))
	r.runs(6, 6)
	if n := len(r.c.Resources.TaskManagers()); n != 3 {
		t.Errorf("%d TaskManagers for 6 slots of 2", n)
	}
	seen := map[string]bool{}
	for _, task := range d.last() {
		if task.GetParallelism() != 6 {
			t.Errorf("deployed as %v", task)
		}
		got, err := metadata.DecodeTask(task.GetRestore())
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range got.Operators {
			for _, l := range op.State.Lists {
				for _, item := range l.Items {
					seen[op.ID.String()[31:]+":"+string(item)] = true
				}
			}
		}
	}
	for _, want := range []string{"1:0@1", "1:1@1", "2:0@1", "2:1@1", "2:2@1"} {
		if !seen[want] {
			t.Errorf("the state %s was lost; restored %v", want, seen)
		}
	}
	if det := r.details(); det.Restarts != 0 || det.Rescales != 1 || det.Root != nil {
		t.Errorf("restarts %d, rescales %d, root %v", det.Restarts, det.Rescales, det.Root)
	}
	if h := r.details().RescaleHistory; len(h) != 1 || h[0].State != "COMPLETED" || h[0].Cause != jobmaster.CauseRequirements || h[0].Vertices[1] != (jobmaster.RescaledVertex{
		ID: sink, Name: "Sum -> Sink: out", Group: "default", Desired: 6, Least: 6, Before: 3, After: 6}) {
		t.Errorf("history %+v", h)
	}
	r.require(both(1, 1))
	r.runs(1, 1)
	r.until("surplus TaskManagers given back", func() bool { return len(r.c.Resources.TaskManagers()) == 1 })
	if n := len(r.w.Workers()); n != 1 {
		t.Errorf("%d workers, want 1", n)
	}
	starts := r.w.Starts()
	if last := starts[len(starts)-1]; !last.GetRestored() || last.GetParallelism()[jobtest.Op(1).String()] != 1 {
		t.Errorf("enumerators were started with %v", last)
	}
}

// What cannot be is refused, with all reasons, and changes nothing.
func TestRescaleIsRefused(t *testing.T) {
	r := start(t, &jobtest.World{}, nil)
	r.runs(2, 3)
	for what, c := range map[string]struct {
		q    scheduler.Requirements
		want []string
	}{
		"above the key groups": {both(1, 129), []string{"Source: numbers", "129 is above its max parallelism 128", "Sum -> Sink: out"}},
		"upside down":          {both(3, 2), []string{"the upper bound 2 is below the lower bound 3"}},
		"nothing":              {both(0, 0), []string{"lower bound 0"}},
		"a vertex is missing":  {scheduler.Requirements{source: {Lower: 1, Upper: 1}}, []string{"name every vertex"}},
		"unknown vertex":       {scheduler.Requirements{source: {Lower: 1, Upper: 1}, sink: {Lower: 1, Upper: 1}, graph.VertexID(jobtest.Op(9)): {Lower: 1, Upper: 1}}, []string{"no vertex"}},
	} {
		err := r.tryRequire(c.q)
		if !errors.Is(err, jobmaster.ErrRequirements) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q", what, err, w)
			}
		}
	}
	if d := r.details(); d.Attempt != 0 || d.Requirements[source] != (scheduler.Bounds{Lower: 2, Upper: 2}) {
		t.Errorf("attempt %d, requirements %v", d.Attempt, d.Requirements)
	}
	if err := r.c.Dispatcher.Cancel(r.c.JobID); err != nil {
		t.Fatal(err)
	}
	r.wait()
	if err := r.tryRequire(both(1, 1)); !errors.Is(err, jobmaster.ErrEnded) {
		t.Errorf("of a job that ended: %v", err)
	}
}

// Slots that do not come leave the job as it is, and it says why.
func TestRescaleWithoutSlotsLeavesTheJobAlone(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"taskmanager.numberOfTaskSlots": "3", "slot.request.timeout": "300 ms"}, noMore(1))
	r.runs(2, 3)
	r.require(both(4, 4))
	r.until("the request is given up", func() bool { return r.details().RescaleCounts["FAILED"] == 1 })
	d := r.details()
	if !strings.Contains(d.RescaleHistory[0].Failure, "3 of 4 slots within 300ms") || d.Attempt != 0 || d.Slots != 3 || !allTasks(d, scheduler.TaskRunning) {
		t.Errorf("%+v, attempt %d, %d slots", d.RescaleHistory, d.Attempt, d.Slots)
	}
	if d.Requirements[sink] != (scheduler.Bounds{Lower: 3, Upper: 3}) {
		t.Errorf("requirements %v", d.Requirements)
	}
	r.require(both(3, 3)) // what fits still works
	r.runs(3, 3)
}

// noMore lets the cluster have so many TaskManagers at most.
func noMore(n int) func(*minicluster.Options) {
	return func(o *minicluster.Options) { o.MaxTaskManagers = n }
}

// quick makes the adaptive scheduler's waits short.
var quick = map[string]string{"jobmanager.scheduler": "adaptive", "taskmanager.numberOfTaskSlots": "1", "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "100 ms",
	"jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "100 ms", "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "10 ms",
	"resourcemanager.taskmanager-timeout": "1 h"}

// The adaptive scheduler starts with the slots that it gets, grows when more come, and shrinks when one is lost for good.
func TestAdaptiveJobRunsWithWhatThereIs(t *testing.T) {
	r := start(t, &jobtest.World{}, quick, noMore(1))
	r.runs(1, 1)
	if d := r.details(); d.Slots != 3 || d.HasSlots != 1 || d.Requirements[sink] != (scheduler.Bounds{Lower: 1, Upper: 3}) {
		t.Errorf("wants %d slots, has %d, %v", d.Slots, d.HasSlots, d.Requirements)
	}
	r.c.LimitTaskManagers(2)
	r.runs(2, 2)
	r.c.LimitTaskManagers(0)
	r.runs(2, 3)
	if d := r.details(); d.Restarts != 0 || d.Root != nil {
		t.Errorf("%d restarts, %v", d.Restarts, d.Root)
	}
	if starts := r.w.Starts(); !starts[len(starts)-1].GetRestored() {
		t.Error("the job grew without its state")
	}
	r.c.LimitTaskManagers(2)
	r.c.KillTaskManager(r.c.Resources.TaskManagers()[0].ID)
	r.runs(2, 2)
	r.c.LimitTaskManagers(0)
	r.runs(2, 3)
	d := r.details()
	if d.Restarts != 1 {
		t.Errorf("%d restarts, want 1", d.Restarts)
	}
	var causes []string
	for _, h := range d.RescaleHistory {
		causes = append(causes, h.Cause)
	}
	if got := strings.Join(causes, " "); got != "NEW_RESOURCE_AVAILABLE RECOVERABLE_FAILOVER NEW_RESOURCE_AVAILABLE NEW_RESOURCE_AVAILABLE INITIAL_SCHEDULE" {
		t.Errorf("changes of the parallelism, newest first: %s", got)
	}
}

// When not even the lower bounds can be had in time, the job fails, and says which wait it was.
func TestAdaptiveJobWithoutSlotsFails(t *testing.T) {
	conf := map[string]string{"jobmanager.adaptive-scheduler.submission.resource-wait-timeout": "100 ms", "restart-strategy.type": "none"}
	for k, v := range quick {
		conf[k] = v
	}
	g := jobtest.Graph(2, 3)
	g.Vertices[1].SlotSharingGroup = "other" // two slots at least
	r := start(t, &jobtest.World{}, conf, noMore(1), func(o *minicluster.Options) { o.Graph = g })
	if res := r.wait(); res.State != scheduler.JobFailed || !strings.Contains(res.Failure.Message, "1 of 5 slots within 100ms (jobmanager.adaptive-scheduler.submission.resource-wait-timeout)") {
		t.Errorf("%s: %+v", res.State, res.Failure)
	}
}
