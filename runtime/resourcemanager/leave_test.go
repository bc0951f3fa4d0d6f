package resourcemanager_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// Slots that will be taken away are given to nobody; who has some is told, and gets others beside them. A TaskManager that is idle is given back at
// once, before fewer are wanted.
func TestWhatLeavesIsGivenBackWhenIdle(t *testing.T) {
	r := start(t, 2, map[string]string{"resourcemanager.taskmanager-timeout": "1 h"})
	job, other := &ear{}, &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 3)
	r.tm("c1", 2)
	r.tm("c2", 2)
	r.wantAsked(2)
	until := time.Now().Add(time.Minute)
	r.m.WorkerLeaving("c2", until, "decommissioned")
	var leaves []resourcemanager.Slot
	for _, s := range job.slots {
		if s.Leaves != nil {
			leaves = append(leaves, s)
		}
	}
	if len(leaves) != 1 || leaves[0].TaskManager != "c2" || !leaves[0].Leaves.Until.Equal(until) {
		t.Fatalf("slots %+v", job.slots)
	}
	r.m.RegisterJob("other", other)
	r.m.Declare("other", 1) // there is a free slot on c2, which it must not get
	if other.owned() != 0 {
		t.Fatal("a slot that leaves was given away")
	}
	r.m.Declare("j", 4) // in place of the one that leaves
	r.wantAsked(2, 3)
	r.tm("c3", 2)
	if job.owned() != 4 || other.owned() != 1 {
		t.Fatalf("%d and %d slots", job.owned(), other.owned())
	}
	var keep []resourcemanager.Slot
	for _, s := range job.slots {
		if s.Leaves == nil {
			keep = append(keep, s)
		}
	}
	r.m.Declare("j", 3, keep...)
	if got := r.d.releases(); !slices.Equal(got, []resourcemanager.WorkerID{"c2"}) {
		t.Fatalf("released %v", got)
	}
	r.wantAsked(2, 3, 2)
	// One that registers after the notice is not used either.
	r.m.WorkerLeaving("c4", until, "decommissioned")
	r.tm("c4", 2)
	if got := r.d.releases(); !slices.Equal(got, []resourcemanager.WorkerID{"c2", "c4"}) {
		t.Fatalf("released %v", got)
	}
}

// A worker that stays after all is used again.
func TestWhatStaysIsUsedAgain(t *testing.T) {
	r := start(t, 1, map[string]string{"resourcemanager.taskmanager-timeout": "1 h"})
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.tm("c1", 1)
	r.m.WorkerLeaving("c1", time.Time{}, "decommissioned")
	if job.slots[0].Leaves == nil {
		t.Fatal("the job was not told")
	}
	r.m.WorkerStays("c1")
	if job.slots[0].Leaves != nil || len(r.d.releases()) != 0 {
		t.Errorf("slots %+v, released %v", job.slots, r.d.releases())
	}
}

// A container that is killed for memory is explained: what its processes took, as far as the TaskManager had told.
func TestMemoryIsExplained(t *testing.T) {
	r := start(t, 1, nil)
	job := &ear{}
	r.m.RegisterJob("j", job)
	r.m.Declare("j", 1)
	r.d.events.WorkerStarted("c1", resourcemanager.WorkerSpec{}, "nm1")
	link, _ := r.tm("c1", 1, func(p *pb.RegisterTaskManager) { p.MemoryBytes = 512 << 20 })
	if err := link.Send(&pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Heartbeat{Heartbeat: &pb.Heartbeat{RssBytes: 31 << 20, Workers: []*pb.WorkerUsage{{JobId: "j", RssBytes: 490 << 20}}}}}); err != nil {
		t.Fatal(err)
	}
	r.until("the heartbeat", func() bool { return r.m.TaskManagers()[0].RSSBytes > 0 })
	link.Close(nil)
	r.until("loss", func() bool { return job.heard("lost c1") })
	r.d.events.WorkerLost("c1", resourcemanager.Exit{Code: -104, Memory: true, Text: "killed for memory"})
	r.until("exit", func() bool {
		return slices.ContainsFunc(job.all(), func(l string) bool {
			return strings.HasPrefix(l, "exit c1: -104 killed for memory; it had last told: the TaskManager 31mb, the worker of job j 490mb, of 512mb")
		})
	})
}
