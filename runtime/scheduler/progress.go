package scheduler

import (
	"fmt"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Progress is what a job in BATCH has behind it and the next JobMaster need not do again, by vertex: a stage that is finished, with the
// partitions that it left, or one whose commits are prepared. A vertex that is not in it is to be run.
type Progress map[graph.VertexID]Done

// Done is the progress of a vertex. All vertices of a stage have the same.
type Done struct {
	// Committing: the commits are prepared and kept; they are all that is left to do. Tasks is empty.
	Committing bool
	// Gone: it is finished, and its partitions are lost, or were dropped since nobody needs them.
	Gone bool
	// Tasks are the attempts that finished, by subtask, and where their partitions are.
	Tasks []DoneTask
}

// DoneTask is a subtask that finished.
type DoneTask struct {
	ID   graph.ExecutionID
	Slot Slot
}

// Progress is the job's progress now. Nil in STREAMING.
func (s *Scheduler) Progress() Progress {
	if !s.batch {
		return nil
	}
	p := Progress{}
	for _, st := range s.stages {
		for _, v := range st.vertices {
			switch st.state {
			case stageCommitting:
				p[v.Spec.ID] = Done{Committing: true}
			case stageFinished:
				d := Done{Gone: st.gone}
				for _, x := range v.Tasks {
					d.Tasks = append(d.Tasks, DoneTask{x.ID, x.Slot})
				}
				p[v.Spec.ID] = d
			}
		}
	}
	return p
}

// resume puts the stages where an earlier JobMaster has left them.
func (s *Scheduler) resume(p Progress) error {
	if len(p) > 0 && !s.batch {
		return fmt.Errorf("scheduler: resume: the job runs in STREAMING")
	}
	for _, st := range s.stages {
		finished, committing := true, true
		for _, v := range st.vertices {
			d, ok := p[v.Spec.ID]
			finished = finished && ok && !d.Committing && len(d.Tasks) == len(v.Tasks)
			committing = committing && ok && d.Committing
		}
		switch {
		case committing:
			st.state, st.kept = stageCommitting, true
		case finished:
			st.state, st.done = stageFinished, true
			for _, v := range st.vertices {
				d := p[v.Spec.ID]
				st.gone = st.gone || d.Gone
				for i, t := range d.Tasks {
					v.Tasks[i] = &Execution{ID: t.ID, State: TaskFinished, EndOfData: true, Slot: t.Slot, Since: v.Tasks[i].Since}
				}
			}
		}
		s.resumed = s.resumed || committing || finished
	}
	return nil
}

// start is the job's beginning, or where it goes on.
func (s *Scheduler) start() {
	s.setJob(JobCreated)
	s.setJob(JobRunning)
	if s.cfg.Adopt != nil {
		s.adopt()
		return
	}
	if !s.resumed {
		s.requireSlots(s.slots)
		s.prepare(false, nil)
		return
	}
	vertices := s.rerun()
	if s.all(func(x *Execution) bool { return x.State == TaskFinished }) {
		s.phase = phaseActive
		s.checkEnd()
		return
	}
	s.requireSlots(s.slots)
	s.prepare(false, vertices)
}

// kept lists the finished tasks of earlier JobMasters whose partitions are of use.
func (s *Scheduler) kept() (ids []graph.ExecutionID) {
	if !s.resumed {
		return nil
	}
	for _, st := range s.stages {
		if st.state != stageFinished || st.gone {
			continue
		}
		st.each(func(x *Execution) {
			if x.ID.Attempt < s.cfg.FirstAttempt {
				ids = append(ids, x.ID)
			}
		})
	}
	return ids
}
