package resourcemanager_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// yard is a Manager whose TaskManagers are goroutines that do nothing but live.
type yard struct {
	t     *testing.T
	seed  uint64
	m     *resourcemanager.Manager
	d     *resourcemanager.Embedded
	wg    sync.WaitGroup
	spare int
	jobs  map[string]*ear
	wants map[string]int
}

func newYard(t *testing.T, seed uint64, spare int) *yard {
	y := &yard{t: t, seed: seed, spare: spare, jobs: map[string]*ear{}, wants: map[string]int{}}
	y.d = resourcemanager.NewEmbedded(y.live)
	y.m = resourcemanager.New(resourcemanager.Options{Epoch: 1, Driver: y.d, Spec: resourcemanager.WorkerSpec{Slots: 2}, Logger: zerolog.Nop(), Config: config.Configuration{
		config.HeartbeatTimeout.Key: "1 d", config.TaskManagerTimeout.Key: "10 s", config.RedundantTaskManagers.Key: strconv.Itoa(spare)}})
	if err := y.m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.m.Close(); err != nil {
			t.Error(err)
		}
		y.wg.Wait()
	})
	return y
}

func (y *yard) live(ctx context.Context, id resourcemanager.WorkerID, spec resourcemanager.WorkerSpec) error {
	low, high := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
	y.wg.Go(func() { y.m.Accept(high, "here"); <-high.Done() })
	stop := context.AfterFunc(ctx, func() { low.Close(nil) })
	defer stop()
	err := low.Send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Register{Register: &pb.RegisterTaskManager{Id: string(id), Host: "here", Slots: int32(spec.Slots), Protocol: version.Protocol}}})
	for err == nil {
		var down *pb.TaskManagerDown
		if down, err = low.Recv(); down.GetShutdown() != nil {
			break
		}
	}
	low.Close(nil)
	<-low.Done()
	return nil
}

func (y *yard) declare(job string, n int) {
	if y.jobs[job] == nil {
		y.jobs[job] = &ear{}
		y.m.RegisterJob(job, y.jobs[job])
	}
	y.wants[job] = n
	y.m.Declare(job, n)
}

func (y *yard) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// satisfied: every job has what it wants.
func (y *yard) satisfied(when string) {
	y.t.Helper()
	for job, n := range y.wants {
		if got := y.jobs[job].owned(); got != n {
			y.t.Fatalf("seed %d: %s has %d slots %s, it wants %d", y.seed, job, got, when, n)
		}
	}
}

// settled: after a while there are as many TaskManagers as are in use and the spare ones, and none when nobody wants any.
func (y *yard) settled() {
	y.t.Helper()
	y.pass(time.Minute)
	y.satisfied("after a minute")
	used, idle, wanted := 0, 0, 0
	for _, tm := range y.m.TaskManagers() {
		if tm.FreeSlots == tm.Slots {
			idle++
		} else {
			used++
		}
	}
	for _, n := range y.wants {
		wanted += n
	}
	if want := y.spare * min(1, wanted); idle != want || used < (wanted+1)/2 || y.m.Pending() != 0 {
		y.t.Fatalf("seed %d: %d TaskManagers in use and %d idle for %d slots, want %d idle; %d are waited for", y.seed, used, idle, wanted, want, y.m.Pending())
	}
}

// The spare TaskManagers are there while a job runs, whatever jobs want and whichever are lost; what was lost is replaced by them at once, when
// the cluster has no others.
func TestSpareTaskManagers(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
				y := newYard(t, seed, r.IntN(3))
				for range 12 {
					live := y.m.TaskManagers()
					switch {
					case r.IntN(3) == 0 && len(live) > 0:
						y.d.Limit(len(live) - 1)
						y.d.Kill(resourcemanager.WorkerID(live[r.IntN(len(live))].ID))
						synctest.Wait()
						if y.spare > 0 {
							y.satisfied("after a loss that the cluster does not replace")
						}
						y.d.Limit(0)
					case r.IntN(4) == 0 && len(y.jobs) > 0:
						for job := range y.jobs {
							y.m.UnregisterJob(job)
							delete(y.jobs, job)
							delete(y.wants, job)
							break
						}
					default:
						y.declare([]string{"a", "b"}[r.IntN(2)], r.IntN(6))
					}
					y.settled()
				}
			})
		})
	}
}
