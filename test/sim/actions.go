package sim

import (
	"errors"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// action is something that can happen next.
type action struct {
	weight int
	run    func()
}

// act lets one of the things happen that can happen now, by their weights.
func (w *World) act() {
	var all []action
	sum := 0
	add := func(weight int, run func()) {
		all = append(all, action{weight, run})
		sum += weight
	}
	for _, m := range w.masters {
		if !m.dead {
			m.actions(add)
		}
	}
	for _, tm := range w.managers {
		if tm.alive {
			tm.actions(add)
		}
	}
	for _, r := range w.commits {
		add(4, func() { w.commit(r) })
	}
	w.own(add)
	if len(all) == 0 || w.r.IntN(map[bool]int{false: 40, true: 400}[w.calm]) == 0 {
		w.advance()
		return
	}
	n := w.r.IntN(sum)
	for _, a := range all {
		if n -= a.weight; n < 0 {
			a.run()
			return
		}
	}
}

// weight is how fast a thing is in this run: some are slow.
func (w *World) weight(of string) int {
	if n, ok := w.weights[of]; ok {
		return n
	}
	n := []int{1, 4, 8, 16}[w.r.IntN(4)]
	w.weights[of] = n
	return n
}

// own are the actions of nobody.
func (w *World) own(add func(int, func())) {
	m := w.leader()
	if m == nil || w.wanted {
		add(8, func() {
			next, err := w.startMaster()
			switch {
			case errors.Is(err, ha.ErrEnded):
				w.sometimes("a new application master found the job ended")
				w.leaves = true
				w.phaseOver(nil, w.phase.end)
			case err != nil:
				w.trace("no application master: %v", err)
			default:
				if w.wanted && m != nil {
					w.sometimes("an application master took over while the one before lived")
				}
				w.wanted, w.newest = false, next.epoch
				w.masters = append(w.masters, next)
				next.begin()
			}
		})
	}
	if m == nil {
		return
	}
	free := 0
	for _, tm := range w.managers {
		if tm.alive && !tm.zombie {
			free += tm.slots
		}
	}
	if free < m.needed {
		add(4, func() { w.addManager(w.plan.Slots) })
	}
}

// advance moves the clock to the next time that something waits for.
func (w *World) advance() {
	next := int64(-1)
	at := func(t int64, ok bool) {
		if ok && t > w.now && (next < 0 || t < next) {
			next = t
		}
	}
	for _, m := range w.masters {
		at(m.timers.next())
		at(m.attempt.next())
		if d, ok := m.coord.Deadline(); ok {
			at(d.UnixMilli(), true)
		}
		if m.sched != nil {
			if d, ok := m.sched.Deadline(); ok {
				at(d.UnixMilli(), true)
			}
		}
	}
	for _, tm := range w.managers {
		if tm.worker == nil {
			continue
		}
		for _, t := range tm.worker.tasks {
			at(t.timers.next())
			at(w.frozen[t], true)
		}
	}
	at(w.slowUntil, true)
	if next < 0 {
		next = w.now + 10
	}
	w.now = next
}

func (m *master) actions(add func(int, func())) {
	w := m.w
	if len(m.inbox) > 0 {
		add(8, func() {
			fn := m.inbox[0]
			m.inbox = m.inbox[1:]
			fn()
		})
	}
	if w.now >= w.slowUntil {
		for _, k := range m.works {
			add(4, func() {
				if k.run() {
					m.works = slices.DeleteFunc(m.works, func(x *work) bool { return x == k })
					w.point(k.point)
				}
			})
		}
		if len(m.removal) > 0 {
			add(2, m.remove)
		}
	}
	if m.result == nil {
		if m.timers.due(w.now) {
			add(8, func() { _ = m.timers.pop()() })
		}
		if m.attempt.due(w.now) {
			add(8, func() { _ = m.attempt.pop()() })
		}
		if d, ok := m.coord.Deadline(); ok && d.UnixMilli() <= w.now {
			add(8, func() {
				m.checkpoints(coordinator.Tick{})
				if d, ok := m.coord.Deadline(); ok && !d.After(w.time()) {
					w.violate("epoch %d: the coordinator does nothing at its deadline, with checkpoints %v pending", m.epoch, m.coord.Pending())
				}
			})
		}
		if m.sched != nil {
			if d, ok := m.sched.Deadline(); ok && d.UnixMilli() <= w.now {
				add(8, func() { m.step(scheduler.Tick{}) })
			}
		}
		if p := m.proc; p != nil {
			queue := func(q *[]func()) {
				if len(*q) > 0 {
					add(4, func() {
						fn := (*q)[0]
						*q = (*q)[1:]
						fn()
					})
				}
			}
			queue(&p.down)
			queue(&p.own)
			if len(p.up) > 0 {
				add(4, func() {
					msg := p.up[0]
					p.up = p.up[1:]
					m.heard(msg)
				})
			}
		}
	}
	for _, l := range m.live() {
		if l.cut {
			add(2, func() { m.lost(l) })
			continue
		}
		if len(l.up) > 0 {
			add(w.weight(l.tm.id+"up"), func() {
				msg := l.up[0]
				l.up = l.up[1:]
				if m.result != nil {
					return
				}
				m.received(l, msg)
				if _, ok := msg.(ackReport); ok {
					w.point("acked")
				}
			})
		}
		if len(l.down) > 0 {
			add(w.weight(l.tm.id+"down"), func() {
				fn := l.down[0]
				l.down = l.down[1:]
				fn()
			})
		}
	}
}

func (tm *manager) actions(add func(int, func())) {
	w := tm.w
	if m := w.leader(); m != nil && !tm.zombie && m.epoch > tm.epoch && m.result == nil {
		add(3, func() { tm.register(m) })
	}
	if tm.zombie {
		weight := 1
		if w.calm {
			weight = 20
		}
		if w.r.IntN(100) < weight {
			add(1, func() { tm.kill("its container is killed") })
		}
	}
	wk := tm.worker
	if wk == nil {
		return
	}
	if !wk.up {
		add(4, func() {
			wk.up = true
			wk.report(helloReport{})
		})
		return
	}
	for _, t := range wk.sorted() {
		if until := w.frozen[t]; until > w.now {
			w.sometimes("a task stood still")
			continue
		}
		t.actions(add)
	}
}

func (t *Task) actions(add func(int, func())) {
	w := t.w
	if !t.opened {
		add(4, func() {
			t.run(t.open)
			w.point("opened")
		})
		return
	}
	speed := w.weight(t.d.vertex.Name + string(rune('0'+t.d.id.Subtask)))
	if len(t.inbox) > 0 {
		add(speed, func() {
			fn := t.inbox[0]
			t.inbox = t.inbox[1:]
			t.run(fn)
		})
	}
	if t.over {
		return
	}
	if t.timers.due(w.now) {
		add(8, func() { t.run(t.timers.pop()) })
	}
	if t.source != nil && !t.endOfData && !t.suspended {
		add(1, func() { t.run(func() error { return t.poll(1 + w.r.IntN(3)) }) })
	}
	for i, c := range t.channels {
		if c.ready {
			add(speed, func() { t.run(func() error { return t.read(i) }) })
		}
	}
	if w.now >= w.slowUntil {
		for _, u := range t.uploads {
			if u.under != nil && !u.under.done && u.ctx.Err() == nil {
				continue
			}
			add(2, func() {
				t.write(u)
			})
		}
	}
}

// commit lets the broker act on a commit, or lets its answer through. One whose asker is gone may still come to the broker, late.
func (w *World) commit(r *commitRequest) {
	drop := func() { w.commits = slices.DeleteFunc(w.commits, func(x *commitRequest) bool { return x == r }) }
	if !r.applied {
		if r.t.over {
			if w.r.IntN(2) == 0 {
				drop() // it never arrives
				return
			}
			w.sometimes("a commit came to the broker after its task had ended")
		}
		r.applied = true
		for _, c := range r.items {
			if r.err = w.broker.commit(c.ID, c.Epoch); r.err != nil {
				if isMisfit(r.err) {
					w.violate("%s commits: %v", r.t, r.err)
				}
				break
			}
		}
		w.point("commit-applied")
		return
	}
	drop()
	if !r.t.over {
		r.done(r.err)
		w.point("commit-answered")
	}
}
