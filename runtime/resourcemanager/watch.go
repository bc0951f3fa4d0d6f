package resourcemanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// WorkerStarted implements Events.
func (m *Manager) WorkerStarted(id WorkerID, spec WorkerSpec, host string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.Info().Str("container_id", string(id)).Str("host", host).Stringer("spec", spec).Msg("worker started")
	m.known[id] = true
	if m.tms[string(id)] == nil {
		m.starting[id] = time.Now().Add(config.RegistrationTimeout.Value(m.opts.Config))
	}
}

// WorkerLost implements Events.
func (m *Manager) WorkerLost(id WorkerID, exit Exit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if used := m.used[id]; exit.Memory && used != "" {
		exit.Text += "; it had last told: " + used
	} else if t := m.tms[string(id)]; exit.Memory && t != nil {
		exit.Text += "; it had last told: " + t.info.memory()
	}
	level := zerolog.WarnLevel
	if m.closed { // it was told to end
		level = zerolog.DebugLevel
	}
	m.log.WithLevel(level).Str("container_id", string(id)).Int("exit_code", exit.Code).Str("diagnostics", exit.Text).Msg("worker lost")
	if t := m.tms[string(id)]; t != nil {
		m.dropLocked(t, fmt.Sprintf("its container ended with exit code %d: %s", exit.Code, exit.Text))
		t.link.Close(errors.New("resourcemanager: the container ended"))
	}
	delete(m.starting, id)
	delete(m.released, id)
	delete(m.known, id)
	delete(m.leaves, id)
	delete(m.used, id)
	delete(m.previous, id)
	m.exits.put(id, exit)
	for _, l := range m.lost[string(id)] {
		l.TaskManagerExit(string(id), exit)
	}
	delete(m.lost, string(id))
	m.allocate()
}

// WorkerLeaving implements Events. Its slots are given to nobody any more, and the jobs that have some are told; they want others beside
// these. When it is idle it is given back.
func (m *Manager) WorkerLeaving(id WorkerID, until time.Time, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log.Warn().Str("container_id", string(id)).Time("until", until).Str("reason", reason).Msg("worker will be taken away; its tasks move")
	m.setLeave(id, &Leave{Until: until, Reason: reason})
}

// WorkerStays implements Events.
func (m *Manager) WorkerStays(id WorkerID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leaves[id] != nil {
		m.log.Info().Str("container_id", string(id)).Msg("worker stays after all")
		m.setLeave(id, nil)
	}
}

func (m *Manager) setLeave(id WorkerID, l *Leave) {
	m.leaves[id] = l
	if l == nil {
		delete(m.leaves, id)
	}
	t := m.tms[string(id)]
	if t == nil {
		return
	}
	t.leaves = l
	told := map[string]bool{"": true}
	for _, job := range t.slots {
		if !told[job] {
			told[job] = true
			m.tell(job)
		}
	}
	m.allocate()
}

// giveBackLeaving releases what is idle and would be taken away.
func (m *Manager) giveBackLeaving() {
	for _, t := range m.ordered() {
		if t.leaves != nil && !t.leaving && t.idle() {
			m.giveBack(t, t.leaves.Reason)
		}
	}
}

// Problem implements Events.
func (m *Manager) Problem(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if text != m.problem && text != "" {
		m.log.Warn().Str("problem", text).Msg("workers cannot be started at the moment")
	}
	m.problem = text
}

// Fatal implements Events.
func (m *Manager) Fatal(err error) {
	m.mu.Lock()
	first := !m.fatal && !m.closed
	m.fatal = true
	if first && m.opts.OnFatal != nil {
		m.links.Go(func() { m.opts.OnFatal(err) })
	}
	m.mu.Unlock()
}

// tick sends heartbeats, and acts on what did not happen in time.
func (m *Manager) tick() {
	t := time.NewTimer(m.period())
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			t.Reset(m.onTick(now))
		case <-m.stop:
			return
		}
	}
}

const shortestPeriod = 10 * time.Millisecond

func (m *Manager) period() time.Duration { return max(min(m.interval, time.Second), shortestPeriod) }

// onTick returns how long until the next one: the period, or less when a time-out is due before.
func (m *Manager) onTick(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	idle := config.TaskManagerTimeout.Value(m.opts.Config)
	for _, t := range m.ordered() {
		if silent := now.Sub(t.heard); silent >= m.timeout {
			reason := fmt.Sprintf("no heartbeat for %s (heartbeat.timeout)", silent.Round(time.Millisecond))
			m.dropLocked(t, reason)
			t.link.Close(errors.New("resourcemanager: " + reason))
			m.allocate()
			continue
		}
		m.unclaimed(t, now)
		if !t.leaving && t.idle() && now.Sub(t.idleSince) >= idle && m.surplus() {
			m.giveBack(t, "idle ("+config.TaskManagerTimeout.Key+")")
			continue
		}
		_ = t.link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Heartbeat{Heartbeat: &pb.Heartbeat{TimeMs: now.UnixMilli()}}}) // a broken link shows at Recv
	}
	for id, until := range m.starting {
		if !now.Before(until) {
			m.log.Warn().Str("container_id", string(id)).Msg("worker did not register in time, or was silent for too long; it is replaced")
			delete(m.starting, id)
			delete(m.previous, id)
			m.released[id] = true
			m.opts.Driver.ReleaseWorker(id)
		}
	}
	next := m.period()
	for _, t := range m.tms {
		next = min(next, t.heard.Add(m.timeout).Sub(now))
	}
	return max(next, shortestPeriod)
}

// giveBack releases an idle TaskManager.
func (m *Manager) giveBack(t *taskManager, reason string) {
	m.log.Info().Str("container_id", t.info.ID).Str("reason", reason).Msg("idle TaskManager is given back")
	t.leaving = true
	m.plan()
	id := WorkerID(t.info.ID)
	m.released[id] = true
	_ = t.link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Shutdown{Shutdown: &pb.Shutdown{Reason: reason}}}) // it is released anyway
	m.opts.Driver.ReleaseWorker(id)
}
