package jobmaster_test

import (
	"flag"
	"math/rand/v2"
	"slices"
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

var (
	chaosSeed  = flag.Uint64("chaos.seed", 0, "seed of TestChaos, 0 for a random one")
	chaosSteps = flag.Int("chaos.steps", 60, "faults of TestChaos")
)

// Whatever dies, in whatever order, and whatever parallelism is asked for meanwhile, the job comes back, from its latest completed checkpoint, with the
// parallelism that was asked for last, and leaves nothing behind when it is cancelled. The job is one pipeline, or two that fail apart.
func TestChaos(t *testing.T) {
	for name, g := range map[string]*graph.JobGraph{"one": jobtest.Graph(2, 3), "two": twoPipelines()} {
		t.Run(name, func(t *testing.T) { chaos(t, g) })
	}
}

func chaos(t *testing.T, g *graph.JobGraph) {
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with: go test ./runtime/jobmaster -run %s -chaos.seed=%d", t.Name(), seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	type restore struct {
		attempt int32
		id      int64
	}
	restores := make(chan restore, 1<<16)
	w := &jobtest.World{OnDeploy: func(d *pb.TaskDeployment) *pb.Failure {
		if len(d.GetRestore()) > 0 {
			if _, err := metadata.DecodeTask(d.GetRestore()); err != nil {
				t.Error(err)
			}
		}
		restores <- restore{d.GetAttempt(), d.GetRestoredCheckpointId()}
		return nil
	}}
	r := start(t, w, map[string]string{"restart-strategy.exponential-delay.max-backoff": "5 ms", "execution.checkpointing.interval": "7 ms",
		"execution.checkpointing.tolerable-failed-checkpoints": "1000"}, func(o *minicluster.Options) {
		o.Graph, o.TaskManagers, o.CancelTimeout = g, 3, 100*time.Millisecond
	})
	pick := func() *jobtest.Worker {
		ws := w.Workers()
		if len(ws) == 0 {
			return nil
		}
		return ws[rng.IntN(len(ws))]
	}
	r.running() // nobody can ask for another parallelism before
	asked := 0  // the parallelism, at last
	for range *chaosSteps {
		if rng.IntN(3) > 0 { // else faults come on top of each other
			r.running()
		}
		switch rng.IntN(8) {
		case 0:
			if k := pick(); k != nil {
				k.Kill("chaos")
			}
		case 1:
			if tms := r.c.Resources.TaskManagers(); len(tms) > 0 {
				r.c.KillTaskManager(tms[rng.IntN(len(tms))].ID)
			}
		case 2:
			if c := w.Coordinator(); c != nil {
				c.TryKill("chaos")
			}
		case 3, 4:
			if k := pick(); k != nil {
				if ids := k.Tasks(); len(ids) > 0 {
					k.Fail(ids[rng.IntN(len(ids))], &pb.Failure{Message: "chaos", Kind: "error"})
				}
			}
		case 5:
			<-r.c.Dispatcher.TriggerAsync(r.c.JobID, jobmaster.TriggerRequest{})
		case 6:
			if k := pick(); k != nil {
				w.SetStuck(k)
			}
		case 7:
			n := 1 + rng.IntN(5)
			q := scheduler.Requirements{}
			for _, v := range g.Vertices {
				q[v.ID] = scheduler.Bounds{Lower: n, Upper: n}
			}
			if err := r.tryRequire(q); err != nil {
				t.Errorf("rescale: %v", err)
			}
			asked = n
		}
	}
	if asked > 0 {
		r.until("what was asked for", func() bool {
			d := r.details()
			return !d.Rescaling && !slices.ContainsFunc(d.Vertices, func(v jobmaster.VertexDetails) bool { return len(v.Tasks) != asked })
		})
	}
	r.running()
	if err := r.c.Dispatcher.Cancel(r.c.JobID); err != nil {
		t.Fatal(err)
	}
	res := r.wait()
	if res.State != scheduler.JobCanceled {
		t.Fatalf("%+v %+v", res.State, res.Failure)
	}
	r.until("workers gone", func() bool { return len(w.Workers()) == 0 })
	close(restores)
	byAttempt := map[int32]int64{}
	for x := range restores {
		if id, ok := byAttempt[x.attempt]; ok && id != x.id {
			t.Fatalf("attempt %d: tasks restored checkpoints %d and %d", x.attempt, id, x.id)
		}
		byAttempt[x.attempt] = x.id
	}
	completed := w.Completed()
	var last int64
	var attempts []int32
	for a := range byAttempt {
		attempts = append(attempts, a)
	}
	slices.Sort(attempts)
	for _, a := range attempts {
		if byAttempt[a] < last {
			t.Fatalf("attempt %d restored checkpoint %d after %d", a, byAttempt[a], last)
		}
		last = byAttempt[a]
	}
	t.Logf("%d attempts, %d notices of completion, %d coordinator processes, last restore %d", len(attempts), len(completed), w.Launches(), last)
}
