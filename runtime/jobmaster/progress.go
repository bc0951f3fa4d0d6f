package jobmaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// The progress of a job in BATCH is stored (ha.Store.StoreProgress) when a stage has finished, when partitions are to be dropped, and, above
// all, before a stage commits: what is committed is what every later JobMaster commits, too. One store is under way at a time; what changes
// meanwhile goes with the next.
//
// Invariants:
//
//  1. No task is told to commit before what it commits is stored.
//  2. A store is repeated until it succeeded or another attempt has taken over: one whose outcome is not known may be what the next JobMaster
//     finds, so nothing may be done that contradicts it.
//  3. Partitions are dropped after it is stored that nobody needs them.
type saving struct {
	under    bool // a store is under way
	wanted   bool // what is stored, or being stored, is out of date
	released []graph.ExecutionID
}

// storedProgress is the wire form, JSON. Version 1.
type storedProgress struct {
	Version  int            `json:"v"`
	Vertices []storedVertex `json:"vertices"`
}

type storedVertex struct {
	ID         string `json:"id"`
	Committing bool   `json:"committing,omitempty"`
	Gone       bool   `json:"gone,omitempty"`
	// Checkpoint is the id under which the commits were prepared.
	Checkpoint int64        `json:"checkpoint,omitempty"`
	Tasks      []storedTask `json:"tasks"`
}

type storedTask struct {
	Execution   string `json:"execution,omitempty"`
	TaskManager string `json:"taskmanager,omitempty"`
	Slot        int    `json:"slot,omitempty"`
	Worker      string `json:"worker,omitempty"` // the process that has the partitions
	Commit      []byte `json:"commit,omitempty"` // metadata.EncodeTask
}

const progressVersion = 1

// incarnation names a worker's process: another one has other partitions.
func incarnation(h *pb.WorkerHello) string {
	return fmt.Sprintf("%d@%s", h.GetPid(), h.GetDataAddress())
}

// encodeProgress is the progress now.
func (j *JobMaster) encodeProgress(p scheduler.Progress) ([]byte, error) {
	out := storedProgress{Version: progressVersion}
	for _, v := range j.sched.Vertices() {
		d, ok := p[v.Spec.ID]
		if !ok {
			continue
		}
		s := storedVertex{ID: v.Spec.ID.String(), Committing: d.Committing, Gone: d.Gone}
		for _, t := range d.Tasks {
			st := storedTask{Execution: t.ID.String(), TaskManager: t.Slot.TaskManager, Slot: t.Slot.Index, Worker: j.resumed[t.ID]}
			if w := j.workers[t.Slot.TaskManager]; st.Worker == "" && w != nil && w.hello != nil {
				st.Worker = incarnation(w.hello)
			}
			s.Tasks = append(s.Tasks, st)
		}
		if d.Committing {
			c := j.commits.prepared[v.Spec.ID]
			s.Checkpoint = c.id
			for _, t := range c.tasks {
				b, err := metadata.EncodeTask(t)
				if err != nil {
					return nil, fmt.Errorf("jobmaster: store the progress of %s: %w", v.Spec.Name, err)
				}
				s.Tasks = append(s.Tasks, storedTask{Commit: b})
			}
		}
		out.Vertices = append(out.Vertices, s)
	}
	return json.Marshal(out)
}

// saveProgress stores the progress, if that is wanted, beside the loop.
func (j *JobMaster) saveProgress() {
	if !j.saving.wanted || j.saving.under || j.result != nil {
		return
	}
	p := j.sched.Progress()
	data, err := j.encodeProgress(p)
	if err != nil {
		j.fail(scheduler.Failure{Kind: "internal", Fatal: true, Message: err.Error()})
		return
	}
	released := j.saving.released
	j.saving = saving{under: true}
	j.beside(func(ctx context.Context) {
		err := j.storeProgress(ctx, data)
		j.q.Post(func() { j.progressSaved(p, released, err) })
	})
}

// storeProgress repeats until it is done, or cannot be.
func (j *JobMaster) storeProgress(ctx context.Context, data []byte) error {
	for {
		err := j.opts.Store.StoreProgress(ctx, j.opts.JobID, data)
		if err == nil || ctx.Err() != nil || (ha.JobPointers{}).Superseded(err) {
			return err
		}
		f := scheduler.Failure{Kind: waiting, At: time.Now(), Message: fmt.Sprintf("the job's progress cannot be stored, trying again: %v", err)}
		j.q.Post(func() { j.waitsFor(f) })
		t := time.NewTimer(readPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

func (j *JobMaster) progressSaved(p scheduler.Progress, released []graph.ExecutionID, err error) {
	if j.result != nil {
		return
	}
	if err != nil {
		if (ha.JobPointers{}).Superseded(err) {
			j.fenced = true
			j.suspend(scheduler.Failure{Message: err.Error(), Kind: "fenced"})
		}
		return
	}
	j.saving.under = false
	j.drop(released)
	for _, v := range j.sched.Vertices() {
		if p[v.Spec.ID].Committing {
			j.step(scheduler.CommitsKept{Vertex: v.Spec.ID})
		}
	}
	j.saveProgress()
}

// release drops partitions once it is stored that nobody needs them.
func (j *JobMaster) release(e scheduler.ReleasePartitions) {
	j.saving.released = append(j.saving.released, e.IDs...)
	j.saving.wanted = true
}

// drop drops partitions, wherever they are.
func (j *JobMaster) drop(released []graph.ExecutionID) {
	if len(released) == 0 {
		return
	}
	m := &pb.ReleasePartitions{}
	for _, id := range released {
		m.ExecutionIds = append(m.ExecutionIds, id.String())
	}
	for tm, w := range j.workers {
		if w.hello != nil {
			j.toWorker(tm, &pb.WorkerDown{Msg: &pb.WorkerDown_Release{Release: m}})
		}
	}
}

// loadProgress reads how far an earlier JobMaster came; it runs beside the loop.
func (j *JobMaster) loadProgress(ctx context.Context) (*storedProgress, error) {
	data, err := j.opts.Store.Progress(ctx, j.opts.JobID)
	if err != nil || data == nil {
		return nil, err
	}
	var p storedProgress
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("jobmaster: the stored progress of the job cannot be decoded: %w", err)
	}
	if p.Version != progressVersion {
		return nil, fmt.Errorf("jobmaster: the stored progress of the job has version %d, this build knows %d", p.Version, progressVersion)
	}
	return &p, nil
}

// resume takes stored progress: what is committing, and what the scheduler starts from.
func (j *JobMaster) resume(stored *storedProgress) (scheduler.Progress, error) {
	if stored == nil {
		return nil, nil
	}
	out := scheduler.Progress{}
	for _, s := range stored.Vertices {
		raw, err := graph.ParseID(s.ID)
		id := graph.VertexID{ID: raw}
		v := j.vertex[id]
		if err == nil && v == nil {
			err = errors.New("the job has no such vertex")
		}
		if err == nil && len(s.Tasks) != v.Parallelism {
			err = fmt.Errorf("it has %d subtasks, not %d", v.Parallelism, len(s.Tasks))
		}
		d := scheduler.Done{Committing: s.Committing, Gone: s.Gone}
		c := prepared{id: s.Checkpoint}
		for _, t := range s.Tasks {
			if err != nil {
				break
			}
			if s.Committing {
				var task metadata.Task
				if task, err = metadata.DecodeTask(t.Commit); err == nil {
					c.tasks = append(c.tasks, task)
				}
				continue
			}
			var x graph.ExecutionID
			if x, err = graph.ParseExecutionID(t.Execution); err == nil {
				d.Tasks = append(d.Tasks, scheduler.DoneTask{ID: x, Slot: scheduler.Slot{TaskManager: t.TaskManager, Index: t.Slot}})
				j.resumed[x] = t.Worker
			}
		}
		if err != nil {
			return nil, fmt.Errorf("jobmaster: the stored progress of vertex %s: %w", s.ID, err)
		}
		if s.Committing {
			j.commits.prepared[id] = c
			j.commits.last = max(j.commits.last, c.id)
		}
		out[id] = d
	}
	return out, nil
}

// survivors tells the scheduler, when the first workers are up, which TaskManagers of the attempt before have not brought their partitions
// along. It reports whether the preparation goes on.
func (j *JobMaster) survivors() bool {
	if j.checked {
		return true
	}
	j.checked = true
	lost := map[string]bool{}
	var order []string
	for _, v := range j.sched.Vertices() {
		for _, x := range v.Tasks {
			was, ok := j.resumed[x.ID]
			if tm := x.Slot.TaskManager; ok && !lost[tm] {
				if w := j.workers[tm]; w == nil || w.hello == nil || incarnation(w.hello) != was {
					lost[tm] = true
					order = append(order, tm)
				}
			}
		}
	}
	p := j.prep
	for _, tm := range order {
		j.step(scheduler.WorkerDown{TaskManager: tm, Failure: scheduler.Failure{Kind: "taskmanager", Death: true, TaskManager: tm,
			Message: fmt.Sprintf("what finished stages left on %s did not outlive the application master", j.where(tm))}})
	}
	return j.prep == p
}
