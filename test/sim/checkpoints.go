package sim

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// checkpoints feeds the checkpoint coordinator.
func (m *master) checkpoints(ev coordinator.Event) {
	for _, e := range m.coord.Step(m.w.time(), ev) {
		m.carryOut(e)
	}
	if len(m.coord.Pending()) > 1 {
		m.w.sometimes("several checkpoints were pending")
	}
	if m.coord.Settled() {
		m.chooseRestore()
	}
}

func (m *master) carryOut(e coordinator.Effect) {
	w := m.w
	switch e := e.(type) {
	case coordinator.SnapshotCoordinators:
		p := m.proc
		if p == nil || !p.up1 {
			m.inbox = append(m.inbox, func() {
				m.checkpoints(coordinator.CoordinatorSnapshot{ID: e.ID, Err: errUnavailable})
			})
			return
		}
		p.down = append(p.down, func() { p.snapshot(e.ID) })
	case coordinator.TriggerTasks:
		w.trace("epoch %d: checkpoint %d triggered", m.epoch, e.ID)
		w.checkNumber(m, e.ID)
		b := operator.Barrier{ID: e.ID, Timestamp: e.Timestamp.UnixMilli(), Savepoint: e.Options.Savepoint, Canonical: e.Options.Canonical,
			Suspend: e.Options.Suspend, Drain: e.Options.Drain, Full: e.Options.Full, Base: e.Options.Base, Exclusive: e.Options.ExclusiveDir, Shared: e.Options.SharedDir}
		m.toTasks(e.Tasks, func(wk *worker, ids []graph.ExecutionID) { wk.trigger(ids, b) })
		w.point("triggered")
	case coordinator.NotifyComplete:
		w.trace("epoch %d: checkpoint %d is complete", m.epoch, e.ID)
		m.toTasks(e.Tasks, func(wk *worker, ids []graph.ExecutionID) { wk.completed(ids, e.ID) })
		m.step(scheduler.CheckpointDone{})
		w.point("notified")
	case coordinator.NotifyAborted:
		w.trace("epoch %d: checkpoint %d aborted: %s", m.epoch, e.ID, e.Reason)
		w.sometimes("a checkpoint was aborted")
		if strings.Contains(e.Reason, "a task refers to") || strings.Contains(e.Reason, newerBarrier) {
			w.violate("checkpoint %d: %s", e.ID, e.Reason)
		}
		if strings.HasPrefix(e.Reason, coordinator.ErrSubsumed.Error()) {
			w.sometimes("a newer checkpoint completed before an older one")
		}
		m.toTasks(e.Tasks, func(wk *worker, _ []graph.ExecutionID) { wk.aborted(e.ID, e.Resume) })
	case coordinator.FinishTasks:
		m.step(scheduler.StopDone{OK: true})
		m.step(scheduler.FinalDone{OK: true})
	case coordinator.FailJob:
		if e.Fenced {
			w.sometimes("an application master found itself fenced")
			m.fenced = true
			m.step(scheduler.Suspend{Failure: scheduler.Failure{Kind: "fenced", Message: e.Reason}})
			return
		}
		m.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "checkpoint", Message: e.Reason}})
	case coordinator.Finished:
		m.finished(e)
	case coordinator.WriteMetadata:
		m.works = append(m.works, &work{point: "metadata", run: func() bool { return m.writeMetadata(e) }, id: e.ID})
	case coordinator.StorePointer:
		m.works = append(m.works, &work{point: "pointer", run: func() bool {
			return m.untilCertain(func() error {
				return m.store.StorePointer(context.Background(), m.phase.job, ha.Pointer{ID: e.ID, Dir: e.Dir})
			},
				func(err error) coordinator.Event { return coordinator.PointerStored{ID: e.ID, Err: err} })
		}})
	case coordinator.ReserveIDs:
		w.sometimes("checkpoint numbers were reserved")
		m.works = append(m.works, &work{point: "reserve", run: func() bool {
			return m.untilCertain(func() error { return m.store.ReserveIDs(context.Background(), m.phase.job, e.UpTo) },
				func(err error) coordinator.Event { return coordinator.IDsReserved{UpTo: e.UpTo, Err: err} })
		}})
	case coordinator.Discard, coordinator.Sweep:
		if d, ok := e.(coordinator.Discard); ok && d.Reason == coordinator.NoLongerLent {
			w.sometimes("a table outlived its checkpoint, for one that was under way")
		}
		m.removal = append(m.removal, e)
	default:
		w.violate("nobody carries out the coordinator's effect %T", e)
	}
}

func (m *master) finished(e coordinator.Finished) {
	if e.RequestID == rescaleRequest && e.Err != nil {
		m.w.sometimes("the checkpoint for another parallelism failed")
		m.step(scheduler.RescaleFailed{})
	}
	if e.RequestID == savepointRequest {
		switch {
		case e.Err == nil && !strings.Contains(e.Path, "/savepoints/"):
			m.w.violate("who asked for a savepoint got %s", e.Path)
		case errors.Is(e.Err, coordinator.ErrSubsumed):
			m.w.violate("a savepoint was given up for a checkpoint: %v", e.Err)
		case errors.Is(e.Err, coordinator.ErrEnded) && e.ID != 0 && m.result != nil && m.result.State == scheduler.JobFinished:
			m.w.violate("a savepoint was cut off by the end of the job: %v", e.Err)
		}
	}
	if e.RequestID != "stop" {
		return
	}
	if e.Err == nil {
		m.stopped = e.Path
		return
	}
	m.w.sometimes("a stop-with-savepoint failed")
	m.stopAsked = false
	m.step(scheduler.StopDone{OK: false})
}

// answer posts ev, to be handled when the scheduler says so.
func (m *master) answer(ev coordinator.Event) {
	m.inbox = append(m.inbox, func() { m.checkpoints(ev) })
}

func (m *master) writeMetadata(e coordinator.WriteMetadata) bool {
	uri, size, err := m.storage.WriteMetadata(context.Background(), e.Dir, e.Checkpoint)
	if retryable(err) && m.w.time().Before(e.Deadline) {
		return false
	}
	if err == nil && e.Checkpoint.Savepoint {
		m.w.checkSavepoint(e.Dir)
	}
	m.answer(coordinator.MetadataWritten{ID: e.ID, Path: uri, Size: size, Err: err})
	return true
}

func (m *master) untilCertain(try func() error, ev func(error) coordinator.Event) bool {
	err := try()
	m.w.checkPointer(m)
	if err != nil && !superseded(err) {
		m.w.sometimes("a pointer's outcome was not known, and it was stored again")
		return false
	}
	m.answer(ev(err))
	return true
}

// remove works off the first removal.
func (m *master) remove() {
	e := m.removal[0]
	m.tries++
	var err error
	switch e := e.(type) {
	case coordinator.Discard:
		m.works = slices.DeleteFunc(m.works, func(k *work) bool { return e.Written != 0 && k.id == e.Written })
		err = m.storage.Remove(context.Background(), e.Files, e.Dirs, e.EmptyDirs)
	case coordinator.Sweep:
		var gone []string
		gone, err = m.storage.Sweep(context.Background(), e.Below, e.Keep.Dirs, e.Keep.Files)
		if len(gone) > 0 {
			m.w.sometimes("a sweep found what an aborted checkpoint had left")
		}
	}
	if err == nil || m.tries == 6 {
		if err != nil {
			m.w.leaves = m.w.leaves || m.told
		}
		m.removal, m.tries = slices.Delete(m.removal, 0, 1), 0
	}
	m.w.checkReadable()
}

// finish is the end of the job for this attempt. The store has to know it before anything of the job's checkpoints is removed.
func (m *master) finish() {
	if !m.result.State.Terminal() {
		m.ended = true
		m.jobEnded(coordinator.Suspended)
		return
	}
	m.works = append(m.works, &work{point: "end-job", run: func() bool {
		err := m.store.EndJob(context.Background(), m.phase.job, ha.Result{State: string(m.result.State)})
		m.w.checkEnded(m)
		if err != nil && !superseded(err) {
			return false
		}
		m.ended = true
		if err != nil {
			m.w.sometimes("a superseded application master found that it may not end the job")
			m.fenced = true
			m.jobEnded(coordinator.Suspended)
			return true
		}
		m.inbox = append(m.inbox, m.tellEnd)
		return true
	}})
}

func (m *master) tellEnd() {
	switch m.result.State {
	case scheduler.JobFinished:
		m.jobEnded(coordinator.FinishedOK)
	case scheduler.JobCanceled:
		m.jobEnded(coordinator.Canceled)
	default:
		m.jobEnded(coordinator.Failed)
	}
}

func (m *master) jobEnded(s coordinator.EndState) {
	if !m.told {
		m.told = true
		m.checkpoints(coordinator.JobEnded{State: s})
	}
}

// over: nothing of this attempt is under way any more.
func (m *master) over() bool {
	return m.dead || m.result != nil && m.ended && m.told && len(m.removal) == 0 && len(m.inbox) == 0 && len(m.works) == 0
}
