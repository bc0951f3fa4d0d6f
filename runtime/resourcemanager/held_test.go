package resourcemanager_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

func holding(job string, slots ...int32) func(*pb.RegisterTaskManager) {
	return func(r *pb.RegisterTaskManager) {
		r.LastEpoch, r.Jobs, r.Held = 4, append(r.Jobs, job), append(r.Held, &pb.HeldSlots{JobId: job, Slots: slots})
	}
}

// cancelled waits for the word that all tasks of a job's worker are to end.
func cancelled(t *testing.T, link rpc.TaskManagerUplink, job string) {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { link.Close(nil) })
	defer timer.Stop()
	for {
		down, err := link.Recv()
		if err != nil {
			t.Fatalf("the tasks of %s are not cancelled: %v", job, err)
		}
		if w := down.GetWorker(); w.GetJobId() == job && w.GetDown().GetCancel().GetAll() {
			return
		}
	}
}

// After the death of an application master jobs get the slots in which their tasks run on, whoever registers first; nobody else gets them.
func TestJobsKeepTheSlotsOfTheirTasks(t *testing.T) {
	r := start(t, 2, nil)
	early := &ear{}
	r.m.RegisterJob("early", early)
	r.tm("spare", 2)
	l1, _ := r.tm("c1", 2, holding("early", 1), holding("late", 0))
	if early.owned() != 1 || r.m.TaskManagers()[1].Jobs[1] != "early" {
		t.Fatalf("%d slots, %v", early.owned(), r.m.TaskManagers())
	}
	r.m.Declare("early", 3) // the spare ones
	if early.owned() != 3 || r.m.TaskManagers()[1].FreeSlots != 1 {
		t.Fatalf("%d slots, %v", early.owned(), r.m.TaskManagers())
	}
	late := &ear{}
	r.m.RegisterJob("late", late)
	if late.owned() != 1 || r.m.TaskManagers()[1].Jobs[0] != "late" {
		t.Fatalf("%d slots, %v", late.owned(), r.m.TaskManagers())
	}
	// One that comes when its job has slots already brings nothing that anybody goes on with.
	l2, _ := r.tm("c2", 2, holding("early", 0))
	cancelled(t, l2, "early")
	if early.owned() != 3 {
		t.Fatalf("%d slots", early.owned())
	}
	l1.Close(nil)
}

// Slots whose job does not come are given to others in time, and its tasks are cancelled.
func TestSlotsOfAJobThatDoesNotComeAreGivenUp(t *testing.T) {
	r := start(t, 1, map[string]string{config.PreviousWorkerTimeout.Key: "50 ms"})
	job := &ear{}
	r.m.RegisterJob("j", job)
	l, _ := r.tm("c1", 1, holding("gone", 0))
	r.m.Declare("j", 1)
	cancelled(t, l, "gone")
	r.until("the slot", func() bool { return job.owned() == 1 })
}
