package sim

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// rescaleRequest is the request of the checkpoint that a change of the parallelism waits for.
const rescaleRequest = "rescale"

// rescaling says when a job changes its parallelism.
func (w *World) rescaling() scheduler.Rescaling {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	r := scheduler.Rescaling{Wait: ms(500), Stabilization: ms(60), Cooldown: ms(100), ExecutingStabilization: ms(80), Checkpoint: w.plan.Scale&1 != 0,
		MaxDelay: ms(700), MaxFailures: 2, Patience: ms(2000)}
	return r
}

// loadRequirements reads what was asked of an earlier master, and makes it this one's.
func (m *master) loadRequirements(ctx context.Context) (scheduler.Requirements, error) {
	data, err := m.store.Requirements(ctx, m.phase.job)
	if err != nil {
		return nil, err
	}
	if data != nil {
		var r scheduler.Requirements
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, err
		}
		if err := m.store.StoreRequirements(ctx, m.phase.job, data); err != nil {
			return nil, err
		}
		m.w.sometimes("a new application master took over a parallelism that was asked of the one before")
		return r, nil
	}
	if m.w.plan.Scale&2 != 0 {
		return scheduler.Elastic(m.graph), nil
	}
	return scheduler.Fixed(m.graph), nil
}

// rescale asks for another parallelism of each vertex. It is stored before the scheduler hears of it.
func (m *master) rescale(arg int) {
	if m.sched == nil {
		return
	}
	if s := m.sched.State(); s != scheduler.JobRunning && s != scheduler.JobRestarting {
		return
	}
	r := scheduler.Requirements{}
	for i := range m.graph.Vertices {
		upper := 1 + arg>>(4*i)%5
		r[m.graph.Vertices[i].ID] = scheduler.Bounds{Lower: max(1, upper*(m.w.plan.Scale&1)), Upper: upper}
	}
	m.w.trace("epoch %d: another parallelism is asked for", m.epoch)
	m.storeRequirements(r, func() { m.step(scheduler.Require{Requirements: r}) })
}

func (m *master) storeRequirements(r scheduler.Requirements, then func()) {
	data, err := json.Marshal(r)
	if err != nil {
		m.w.violate("encode requirements: %v", err)
		return
	}
	m.works = append(m.works, &work{point: "requirements", run: func() bool {
		if err := m.store.StoreRequirements(context.Background(), m.phase.job, data); err == nil {
			m.inbox = append(m.inbox, func() {
				if m.result == nil {
					then()
				}
			})
		}
		return true // else the job stays as it is
	}})
}

func (m *master) rescaled(e scheduler.Rescaled) {
	m.graph = e.Graph
	m.checkpoints(coordinator.Rescaled{Graph: *e.Graph})
	m.w.trace("epoch %d: the parallelism is %v", m.epoch, m.parallelism())
	m.w.sometimes("the parallelism changed in place")
}

func (m *master) parallelism() (out []int) {
	for i := range m.graph.Vertices {
		out = append(out, m.graph.Vertices[i].Parallelism)
	}
	return out
}

func (m *master) rescaleEnded(e scheduler.RescaleEnded) {
	if e.Failure == "" {
		m.w.sometimes("the job runs with the parallelism that was asked for")
		return
	}
	m.w.trace("epoch %d: the parallelism stays: %s", m.epoch, e.Failure)
	m.w.sometimes("the parallelism that was asked for could not be had")
	m.storeRequirements(e.Requirements, func() {})
}

// allot gives the job slots up to what it wants; when it has more, those of keep stay.
func (m *master) allot(keep []scheduler.Slot) {
	var all []scheduler.Slot
	for _, l := range m.live() {
		for i := range l.tm.slots {
			all = append(all, scheduler.Slot{TaskManager: l.tm.id, Index: i})
		}
	}
	m.mine = slices.DeleteFunc(m.mine, func(s scheduler.Slot) bool { return !slices.Contains(all, s) })
	if len(m.mine) > m.needed {
		if len(keep) > 0 {
			m.mine = slices.DeleteFunc(m.mine, func(s scheduler.Slot) bool { return !slices.Contains(keep, s) })
		}
		m.mine = m.mine[:min(len(m.mine), m.needed)]
	}
	for _, s := range all {
		if len(m.mine) < m.needed && !slices.Contains(m.mine, s) {
			m.mine = append(m.mine, s)
		}
	}
}

// ready lists the job's slots whose workers are up.
func (m *master) ready() (out []scheduler.Slot) {
	up := map[string]bool{}
	for l := range m.hello {
		up[l.tm.id] = true
	}
	for _, s := range m.mine {
		if up[s.TaskManager] {
			out = append(out, s)
		}
	}
	return out
}

// expectSlots bounds the wait for slots.
func (m *master) expectSlots(p *preparation, patience time.Duration) {
	if patience < 0 {
		return
	}
	m.attempt.add(m.w.now+patience.Milliseconds(), func() error {
		if m.prep == p && !p.told && len(m.ready()) < p.slots {
			m.w.sometimes("a job did not get its slots in time")
			m.step(scheduler.Fail{Failure: scheduler.Failure{Kind: "resources", Message: "no slots within the time"}})
		}
		return nil
	})
}
