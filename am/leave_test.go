package am

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

func (r *rig) leaving() map[resourcemanager.WorkerID]time.Time {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	out := map[resourcemanager.WorkerID]time.Time{}
	for id, at := range r.events.leaving {
		out[id] = at
	}
	return out
}

// A node is decommissioned with a time limit, and used again: the workers on it are told of, with the time, and of no others.
func TestDecommissionIsTold(t *testing.T) {
	r := newRig(t, nil).registering()
	r.driver.RequestWorkers(spec, 4)
	r.settled(4)
	r.fake.Decommission(0, time.Minute)
	until(t, "the notice", func() bool { return len(r.leaving()) == 2 })
	for id, at := range r.leaving() {
		if left := time.Until(at); left < 50*time.Second || left > time.Minute {
			t.Errorf("%s leaves in %s, want a minute", id, left)
		}
	}
	r.driver.RequestWorkers(spec, 5) // in place of one that leaves
	r.settled(5)
	r.fake.Recommission(0)
	until(t, "the end of it", func() bool { return len(r.leaving()) == 0 })
}

// Containers that the scheduler will take are told of; when it does, nothing counts as a failed start.
func TestPreemptionIsTold(t *testing.T) {
	r := newRig(t, config.Configuration{"resourcemanager.start-worker.max-failures": "1"}).registering()
	r.driver.RequestWorkers(spec, 2)
	r.settled(2)
	victim := r.fake.Stats(r.id).Live[0]
	r.fake.Preempt(victim)
	until(t, "the notice", func() bool { _, ok := r.leaving()[workerID(victim)]; return ok })
	if err := r.fake.KillContainer(victim, yarn.ExitPreempted, "preempted"); err != nil {
		t.Fatal(err)
	}
	r.settled(2)
	if !r.events.get(func(e *events) bool { return e.lost[workerID(victim)].Preempted && e.fatal == nil }) {
		t.Errorf("told %+v", r.events)
	}
}

// A host where TaskManagers do not start is left out: what is wanted runs on the others, also when the ResourceManager has restarted and knows
// nothing of it, and the exclusion ends.
func TestBadHostIsLeftOut(t *testing.T) {
	r := newRig(t, config.Configuration{config.ExcludeFailures.Key: "2", config.ExcludeFor.Key: "1 s", config.StartFailureRate.Key: "1000"},
		yarnfake.WithHosts(), yarnfake.WithNodes(4, yarn.Resource{MemoryMB: 1024, VCores: 64})).registering()
	bad := r.fake.Node(0).Host
	r.fake.SetLaunchCheck(func(l yarnfake.Launch) error {
		if l.Node.Host == bad {
			return &ipc.RemoteError{Class: string(yarn.ErrYarn), Message: "the disk is full"}
		}
		return nil
	})
	r.driver.RequestWorkers(spec, 9) // four to a node: without the exclusion one would be tried there again and again
	r.settled(9)
	excluded := func() bool {
		r.driver.mu.Lock()
		defer r.driver.mu.Unlock()
		return strings.Join(r.driver.ledger.ExcludedHosts(), " ") == bad
	}
	until(t, "the exclusion", excluded)
	if err := r.fake.RestartResourceManager(); err != nil {
		t.Fatal(err)
	}
	granted := r.fake.Stats(r.id).Granted
	r.driver.RequestWorkers(spec, 11)
	r.settled(11)
	until(t, "the end of the exclusion", func() bool { return !excluded() })
	if n := r.fake.Stats(r.id).Granted - granted; n < 2 || n > 6 {
		t.Errorf("%d containers were granted for 2 more", n)
	}
	if !r.events.get(func(e *events) bool { return e.fatal == nil }) {
		t.Errorf("the application ends: %v", r.events.fatal)
	}
}

// SPARK-29683: all nodes but those that are left out are gone, as it looks after a failover. The application waits and does not fail.
func TestOnlyExcludedNodesLeft(t *testing.T) {
	fail := make(chan struct{})
	r := newRig(t, config.Configuration{config.ExcludeFailures.Key: "1", config.ExcludeFor.Key: "2 s"}, yarnfake.WithHosts(),
		yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
			select {
			case <-fail:
				return yarnfake.Idle(ctx, l)
			default:
				return 1, "boom"
			}
		}))
	r.driver.RequestWorkers(spec, 1)
	until(t, "the exclusion", func() bool {
		r.driver.mu.Lock()
		defer r.driver.mu.Unlock()
		return len(r.driver.ledger.ExcludedHosts()) == 1
	})
	r.driver.mu.Lock()
	bad := r.driver.ledger.ExcludedHosts()[0]
	r.driver.mu.Unlock()
	for i := range 2 {
		if r.fake.Node(i).Host != bad {
			r.fake.StopNode(i)
		}
	}
	close(fail)
	r.registering()
	until(t, "a worker, once the exclusion is over", func() bool { return r.driver.Counts().Registered == 1 })
	if !r.events.get(func(e *events) bool { return e.fatal == nil }) {
		t.Errorf("the application ends: %v", r.events.fatal)
	}
}
