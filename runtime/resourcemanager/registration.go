package resourcemanager

import (
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// MaxSlots is how many slots a TaskManager may have: as many as taskmanager.numberOfTaskSlots allows.
const MaxSlots = 4096

// Accept serves a TaskManager's link until it ends. It is rpc.Handlers.TaskManager.
func (m *Manager) Accept(link rpc.TaskManagerLink, remote string) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		link.Close(nil)
		return
	}
	m.links.Add(1)
	m.mu.Unlock()
	defer m.links.Done()
	t, err := m.register(link, remote)
	if err != nil {
		m.log.Warn().Err(err).Str("remote", remote).Msg("TaskManager refused")
		link.Close(nil)
		return
	}
	for {
		up, err := link.Recv()
		if err != nil {
			m.drop(t, err)
			link.Close(err)
			return
		}
		m.receive(t, up)
	}
}

func (m *Manager) register(link rpc.TaskManagerLink, remote string) (*taskManager, error) {
	timer := time.AfterFunc(m.timeout, func() { link.Close(errors.New("resourcemanager: no registration arrived")) })
	up, err := link.Recv()
	if !timer.Stop() || err != nil {
		return nil, fmt.Errorf("resourcemanager: register %s: %w", remote, err)
	}
	r := up.GetRegister()
	refuse := func(final bool, format string, args ...any) (*taskManager, error) {
		err := fmt.Errorf("resourcemanager: register %s: "+format, append([]any{remote}, args...)...)
		_ = link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Refused{Refused: &pb.Refused{Reason: err.Error(), Final: final}}}) // it is over either way
		return nil, err
	}
	switch {
	case r == nil:
		return refuse(true, "the first message is no registration")
	case r.GetProtocol() != version.Protocol:
		return refuse(true, "TaskManager %s speaks protocol %d, JobMaster %s speaks %d: use files of one version", r.GetVersion(), r.GetProtocol(), version.Version, version.Protocol)
	case r.GetId() == "" || r.GetSlots() < 1 || r.GetSlots() > MaxSlots:
		return refuse(true, "id %q with %d slots: a TaskManager has a name, and 1 to %d slots", r.GetId(), r.GetSlots(), MaxSlots)
	case r.GetLastEpoch() > m.opts.Epoch:
		t, err := refuse(false, "TaskManager %s served epoch %d, this JobMaster has %d: it is the stale one", r.GetId(), r.GetLastEpoch(), m.opts.Epoch)
		m.Fatal(fmt.Errorf("%w: TaskManager %s served epoch %d, ours is %d", ErrFenced, r.GetId(), r.GetLastEpoch(), m.opts.Epoch))
		return t, err
	}
	now := time.Now()
	t := &taskManager{link: link, heard: now, idleSince: now, slots: make([]string, r.GetSlots()), info: TaskManagerInfo{
		ID: r.GetId(), Host: r.GetHost(), Remote: remote, Slots: int(r.GetSlots()), MemoryBytes: r.GetMemoryBytes(), Cores: int(r.GetCpuCores()),
		PID: int(r.GetPid()), Version: r.GetVersion(), NodeHTTPAddress: r.GetNodeHttpAddress(), Registered: now}}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("resourcemanager: closed")
	}
	if m.released[WorkerID(t.info.ID)] {
		return refuse(true, "worker %s was given back", t.info.ID)
	}
	if old := m.tms[t.info.ID]; old != nil {
		m.dropLocked(old, "it registered again")
		old.link.Close(errors.New("resourcemanager: replaced by a newer registration"))
	}
	delete(m.starting, WorkerID(t.info.ID))
	t.leaves = m.leaves[WorkerID(t.info.ID)]
	delete(m.previous, WorkerID(t.info.ID))
	m.tms[t.info.ID] = t
	m.opts.Driver.WorkerRegistered(WorkerID(t.info.ID))
	// Queued before anything that allocate makes jobs send.
	_ = link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Registered{Registered: &pb.Registered{Epoch: m.opts.Epoch,
		HeartbeatIntervalMs: m.interval.Milliseconds(), HeartbeatTimeoutMs: m.timeout.Milliseconds()}}}) // a broken link shows at Recv
	if m.tokens != nil {
		t.sendTokens(m.tokens)
	}
	m.log.Info().Str("container_id", t.info.ID).Str("host", t.info.Host).Int("slots", t.info.Slots).Int64("last_epoch", r.GetLastEpoch()).Msg("TaskManager registered")
	m.survived(t, r)
	m.allocate()
	return t, nil
}

// survived sorts the workers that a TaskManager brings along: a job that has not begun yet decides about its tasks there. What others left is void.
func (m *Manager) survived(t *taskManager, r *pb.RegisterTaskManager) {
	t.held, t.heldFor = map[int]string{}, time.Now().Add(config.PreviousWorkerTimeout.Value(m.opts.Config))
	for _, h := range r.GetHeld() {
		j := m.jobs[h.GetJobId()]
		if j != nil && j.declared {
			continue
		}
		for _, i := range h.GetSlots() {
			if i >= 0 && int(i) < len(t.slots) {
				t.held[int(i)] = h.GetJobId()
			}
		}
		m.claim(t, h.GetJobId())
	}
	for _, id := range r.GetJobs() {
		if j := m.jobs[id]; j != nil && j.declared {
			t.cancelTasks(id)
		}
	}
}

// cancelTasks ends what an earlier JobMaster left in a worker; a broken link shows at Recv.
func (t *taskManager) cancelTasks(job string) {
	_ = t.link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Worker{Worker: &pb.WorkerEnvelopeDown{JobId: job,
		Down: &pb.WorkerDown{Msg: &pb.WorkerDown_Cancel{Cancel: &pb.CancelTasks{All: true}}}}}})
}

// unclaimed gives up slots whose job does not come.
func (m *Manager) unclaimed(t *taskManager, now time.Time) {
	if len(t.held) == 0 || now.Before(t.heldFor) {
		return
	}
	gone := map[string]bool{}
	for _, id := range t.held {
		gone[id] = true
	}
	for id := range gone {
		m.log.Warn().Str("container_id", t.info.ID).Str("job_id", id).Msg("nobody goes on with the tasks of this job; they are cancelled")
		t.cancelTasks(id)
	}
	t.held, t.idleSince = nil, now
	m.allocate()
}

func (m *Manager) receive(t *taskManager, up *pb.TaskManagerUp) {
	m.mu.Lock()
	if m.tms[t.info.ID] != t {
		m.mu.Unlock()
		return
	}
	t.heard = time.Now()
	var l JobListener
	listener := func(id string) JobListener {
		if j := m.jobs[id]; j != nil {
			return j.listener
		}
		return nil
	}
	switch x := up.GetMsg().(type) {
	case *pb.TaskManagerUp_Heartbeat:
		t.info.RSSBytes, t.info.CPUSeconds, t.info.Workers = x.Heartbeat.GetRssBytes(), x.Heartbeat.GetCpuSeconds(), x.Heartbeat.GetWorkers()
	case *pb.TaskManagerUp_Worker:
		l = listener(x.Worker.GetJobId())
	case *pb.TaskManagerUp_WorkerExited:
		l = listener(x.WorkerExited.GetJobId())
	}
	m.mu.Unlock()
	if l == nil {
		return
	}
	switch x := up.GetMsg().(type) {
	case *pb.TaskManagerUp_Worker:
		l.FromWorker(t.info.ID, x.Worker.GetUp())
	case *pb.TaskManagerUp_WorkerExited:
		l.WorkerExited(t.info.ID, x.WorkerExited)
	}
}

func (m *Manager) drop(t *taskManager, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tms[t.info.ID] == t {
		m.dropLocked(t, err.Error())
		m.allocate()
	}
}

// dropLocked forgets a TaskManager and tells the jobs that had slots there.
func (m *Manager) dropLocked(t *taskManager, reason string) {
	delete(m.tms, t.info.ID)
	m.log.Info().Str("container_id", t.info.ID).Str("reason", reason).Msg("TaskManager gone")
	if id := WorkerID(t.info.ID); m.known[id] && !t.leaving && !m.closed {
		// The container may live on (a cut link): it may come back, until heartbeat.timeout after its last word, and no longer.
		m.starting[id] = t.heard.Add(m.timeout)
		m.used[id] = t.info.memory()
	}
	for _, id := range m.jobOrder {
		n := 0
		for _, owner := range t.slots {
			if owner == id {
				n++
			}
		}
		if n == 0 {
			continue
		}
		j := m.jobs[id]
		j.owned -= n
		j.listener.TaskManagerLost(t.info.ID, reason)
		m.lost[t.info.ID] = append(m.lost[t.info.ID], j.listener)
		m.tell(id)
	}
}
