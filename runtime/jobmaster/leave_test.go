package jobmaster_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
)

func (r *rig) used() map[string]bool {
	used := map[string]bool{}
	for _, v := range r.details().Vertices {
		for _, task := range v.Tasks {
			used[task.TaskManager] = true
		}
	}
	return used
}

// A TaskManager will be taken away: another one is asked for first, then a checkpoint is taken, then the tasks move with their state. It counts as
// no restart and no failure, even where none is allowed, and what is left behind is given back at once.
func TestTasksMoveOffWhatLeaves(t *testing.T) {
	var d deployed
	r := start(t, &jobtest.World{OnDeploy: d.hook}, map[string]string{"taskmanager.numberOfTaskSlots": "1", "restart-strategy.type": "none", "resourcemanager.taskmanager-timeout": "1 h"})
	r.runs(2, 3)
	leaving := r.details().Vertices[1].Tasks[0].TaskManager
	before := r.used()
	r.c.Resources.WorkerLeaving(resourcemanager.WorkerID(leaving), time.Now().Add(time.Hour), "its node is being decommissioned")
	r.until("tasks elsewhere, and the TaskManager given back", func() bool {
		gone := true
		for _, tm := range r.c.Resources.TaskManagers() {
			gone = gone && tm.ID != leaving
		}
		return gone && !r.used()[leaving]
	})
	r.runs(2, 3)
	det := r.details()
	if det.Restarts != 0 || det.Root != nil || len(det.History) != 0 || det.Attempt != 1 {
		t.Errorf("restarts %d, root %v, history %v, attempt %d", det.Restarts, det.Root, det.History, det.Attempt)
	}
	after := r.used()
	delete(before, leaving)
	for tm := range before {
		if !after[tm] {
			t.Errorf("tasks left %s, which stays", tm)
		}
	}
	if n := len(r.c.Resources.TaskManagers()); n != 3 || det.Slots != 3 {
		t.Errorf("%d TaskManagers, %d slots wanted", n, det.Slots)
	}
	for _, task := range d.last() {
		got, err := metadata.DecodeTask(task.GetRestore())
		if err != nil || len(got.Operators) == 0 || task.GetRestoredCheckpointId() == 0 {
			t.Errorf("%s was deployed without its state: %v", task.GetExecutionId(), err)
		}
	}
}

// A node that stays after all changes nothing.
func TestLeaveTakenBack(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"taskmanager.numberOfTaskSlots": "1", "resourcemanager.taskmanager-timeout": "50 ms"}, noMore(3))
	r.runs(2, 3)
	before := r.used()
	leaving := resourcemanager.WorkerID(r.details().Vertices[1].Tasks[0].TaskManager)
	r.c.Resources.WorkerLeaving(leaving, time.Time{}, "its node is being decommissioned")
	r.until("another slot is wanted", func() bool { return r.details().Slots == 4 })
	r.c.Resources.WorkerStays(leaving)
	r.until("it is not wanted any more", func() bool { return r.details().Slots == 3 })
	r.c.LimitTaskManagers(0)
	if det := r.details(); det.Attempt != 0 || !maps.Equal(before, r.used()) {
		t.Errorf("attempt %d in %v, before %v", det.Attempt, r.used(), before)
	}
}

// What is taken away before another one came is no failure: the job restarts though its strategy allows no more.
func TestLossThatWasAnnouncedIsFree(t *testing.T) {
	r := start(t, &jobtest.World{}, map[string]string{"taskmanager.numberOfTaskSlots": "1", "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "0",
		"restart-strategy.fixed-delay.delay": "1 ms"}, noMore(3))
	r.runs(2, 3)
	for range 2 {
		leaving := r.details().Vertices[1].Tasks[0].TaskManager
		r.c.Resources.WorkerLeaving(resourcemanager.WorkerID(leaving), time.Time{}, "the scheduler takes it")
		r.until("another slot is wanted", func() bool { return r.details().Slots == 4 })
		restarts := r.details().Restarts
		r.c.KillTaskManager(leaving)
		r.until("the restart", func() bool { return r.details().Restarts == restarts+1 })
		r.runs(2, 3)
	}
	if h := r.details().History; len(h) == 0 || !strings.Contains(h[0].Failure.Message, "is gone") {
		t.Errorf("history %+v", h)
	}
}

// An adaptive job for which no other slots come gives back what leaves in time, goes on with fewer, and grows again.
func TestAdaptiveJobShrinksForWhatLeaves(t *testing.T) {
	r := start(t, &jobtest.World{}, quick, noMore(3))
	r.runs(2, 3)
	leaving := r.details().Vertices[1].Tasks[0].TaskManager
	r.c.Resources.WorkerLeaving(resourcemanager.WorkerID(leaving), time.Now().Add(400*time.Millisecond), "the scheduler takes it")
	r.c.LimitTaskManagers(2)
	r.runs(2, 2)
	if d := r.details(); d.Restarts != 0 || d.Root != nil || r.used()[leaving] {
		t.Errorf("%d restarts, %v, used %v", d.Restarts, d.Root, r.used())
	}
	r.c.LimitTaskManagers(0)
	r.runs(2, 3)
}
