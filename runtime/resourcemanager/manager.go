package resourcemanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// ErrFenced says that a newer application attempt runs.
var ErrFenced = errors.New("resourcemanager: a newer application attempt leads")

// Slot is a slot that a job owns.
type Slot struct {
	TaskManager string
	Index       int
	Host        string
	Leaves      *Leave // nil for a slot that stays
}

// Leave says that a TaskManager will be taken away.
type Leave struct {
	Until  time.Time // zero when nobody knows
	Reason string
}

// JobListener is a job's ear. SlotsChanged, TaskManagerLost and TaskManagerExit must return at once and not call the Manager; FromWorker
// and WorkerExited may wait, which slows the TaskManager's link down. All calls about one TaskManager come in order.
type JobListener interface {
	// SlotsChanged gives all slots that the job owns now.
	SlotsChanged(slots []Slot)
	// TaskManagerLost tells that a TaskManager with slots of this job is gone; SlotsChanged follows.
	TaskManagerLost(id, reason string)
	// TaskManagerExit tells later how the lost TaskManager's container ended, when the deployment knows.
	TaskManagerExit(id string, exit Exit)
	FromWorker(tm string, up *pb.WorkerUp)
	WorkerExited(tm string, e *pb.WorkerExited)
}

// Options make a Manager.
type Options struct {
	Config config.Configuration
	Driver Driver
	Epoch  int64
	Spec   WorkerSpec // size of new workers
	Logger zerolog.Logger
	// OnFatal is called once, on its own goroutine, when the application cannot go on (ErrFenced for a stale attempt).
	OnFatal func(error)
}

// Manager is the ResourceManager. Safe for concurrent use.
type Manager struct {
	opts     Options
	interval time.Duration // heartbeat.interval
	timeout  time.Duration
	spare    int // slotmanager.redundant-taskmanager-num
	log      zerolog.Logger

	mu       sync.Mutex
	tms      map[string]*taskManager
	jobs     map[string]*job
	jobOrder []string
	starting map[WorkerID]time.Time // launched by the driver, or of the attempt before, and not registered: give up at this time
	released map[WorkerID]bool
	known    map[WorkerID]bool // started by the driver and not lost
	leaves   map[WorkerID]*Leave
	used     map[WorkerID]string // memory by process, as the last heartbeat of a TaskManager told whose end is not known yet
	previous map[WorkerID]bool   // of the attempt before, neither back nor given up
	began    time.Time
	lost     map[string][]JobListener // who wants to hear how it ended
	exits    exits
	wanted   int
	tokens   []byte // of the file systems; nil when the workers keep those that they were started with
	problem  string
	fatal    bool
	closed   bool
	links    sync.WaitGroup
	stop     chan struct{}
	ticker   sync.WaitGroup
}

type taskManager struct {
	info  TaskManagerInfo
	link  rpc.TaskManagerLink
	slots []string // job that owns the slot, or ""
	// held are slots with tasks of a job that has not registered yet: theirs, until held is over.
	held      map[int]string
	heldFor   time.Time
	heard     time.Time
	idleSince time.Time
	leaving   bool   // it was given back
	leaves    *Leave // it will be taken away; nil for one that stays
}

type job struct {
	listener JobListener
	required int
	owned    int
	// declared: it has said what it needs. Until then it owns the slots in which an earlier attempt has left tasks of it.
	declared bool
}

// UpdateTokens hands security tokens to all TaskManagers, and to those that register from now on. The content is a credentials file.
//
// Source: Flink 2.x ResourceManager.onNewTokensObtained, TaskExecutorGateway.updateDelegationTokens.
func (m *Manager) UpdateTokens(credentials []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tokens = credentials
	for _, t := range m.tms {
		t.sendTokens(credentials)
	}
}

// sendTokens queues a message; a link that is broken shows at Recv.
func (t *taskManager) sendTokens(credentials []byte) {
	_ = t.link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Tokens{Tokens: &pb.SecurityTokens{Credentials: credentials}}})
}

// TaskManagerInfo is what is known about a registered TaskManager.
type TaskManagerInfo struct {
	ID              string
	Host            string
	Remote          string // address of its connection
	Slots           int
	FreeSlots       int
	MemoryBytes     int64
	Cores           int
	PID             int
	Version         string
	NodeHTTPAddress string
	Registered      time.Time
	LastHeartbeat   time.Time
	RSSBytes        int64
	CPUSeconds      float64
	Workers         []*pb.WorkerUsage
	Jobs            map[int]string // slot -> job
	Leaves          *Leave         // nil for one that stays
}

// New makes a Manager; Start starts it.
func New(opts Options) *Manager {
	return &Manager{opts: opts, log: opts.Logger.With().Str("component", "resourcemanager").Int64("epoch", opts.Epoch).Logger(),
		interval: config.HeartbeatInterval.Value(opts.Config), timeout: config.HeartbeatTimeout.Value(opts.Config), spare: config.RedundantTaskManagers.Value(opts.Config),
		tms: map[string]*taskManager{}, jobs: map[string]*job{}, starting: map[WorkerID]time.Time{}, released: map[WorkerID]bool{}, known: map[WorkerID]bool{}, previous: map[WorkerID]bool{},
		leaves: map[WorkerID]*Leave{}, used: map[WorkerID]string{}, lost: map[string][]JobListener{}, exits: newExits(), stop: make(chan struct{})}
}

// Start starts the driver and the heartbeats.
func (m *Manager) Start(ctx context.Context) error {
	previous, err := m.opts.Driver.Start(ctx, m)
	if err != nil {
		return fmt.Errorf("resourcemanager: start driver: %w", err)
	}
	m.mu.Lock()
	m.began = time.Now()
	until := m.began.Add(config.PreviousWorkerTimeout.Value(m.opts.Config))
	for _, id := range previous {
		m.known[id] = true
		if m.tms[string(id)] == nil {
			m.starting[id], m.previous[id] = until, true
		}
	}
	m.plan()
	m.mu.Unlock()
	if len(previous) > 0 {
		m.log.Info().Int("workers", len(previous)).Msg("workers of the attempt before are expected back")
	}
	m.ticker.Go(m.tick)
	return nil
}

// RegisterJob makes a job known. Slots come after Declare.
func (m *Manager) RegisterJob(id string, l JobListener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs[id] = &job{listener: l}
	m.jobOrder = append(m.jobOrder, id)
	for _, t := range m.tms {
		m.claim(t, id)
	}
}

// claim gives a job, which has not declared anything yet, the slots of a TaskManager that hold tasks of it.
func (m *Manager) claim(t *taskManager, id string) {
	j := m.jobs[id]
	if j == nil || j.declared {
		return
	}
	n := 0
	for i, owner := range t.held {
		if owner == id {
			delete(t.held, i)
			t.slots[i] = id
			n++
		}
	}
	if j.owned += n; n > 0 {
		m.tell(id)
	}
}

// Returning is how many TaskManagers of the application attempt before may still come back. It is negative when that is not known.
func (m *Manager) Returning() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, unknown := m.opts.Driver.(Standalone); unknown || m.began.IsZero() {
		return -1
	}
	return len(m.previous)
}

// UnregisterJob frees the job's slots and forgets it; its listener is not called any more after a call that is going on.
func (m *Manager) UnregisterJob(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jobs[id] == nil {
		return
	}
	delete(m.jobs, id)
	m.jobOrder = slices.DeleteFunc(m.jobOrder, func(j string) bool { return j == id })
	m.free(id, 0, nil)
	m.allocate()
}

// Declare sets how many slots the job needs. The job hears of what it gets, now or later, by SlotsChanged. When it owns more, it loses those
// that are not in keep first, and hears of it before Declare returns.
func (m *Manager) Declare(id string, n int, keep ...Slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.jobs[id]
	if j == nil {
		return
	}
	j.required, j.declared = n, true
	if j.owned > n {
		m.free(id, n, keep)
		m.tell(id)
	}
	m.allocate()
}

// free takes slots from a job until it owns keep of them, those of prefer first.
func (m *Manager) free(id string, keep int, prefer []Slot) {
	preferred := map[string]map[int]bool{}
	for _, s := range prefer {
		if preferred[s.TaskManager] == nil {
			preferred[s.TaskManager] = map[int]bool{}
		}
		preferred[s.TaskManager][s.Index] = true
	}
	owned := 0
	for _, first := range []bool{true, false} {
		for _, t := range m.ordered() {
			for i, owner := range t.slots {
				if owner != id || preferred[t.info.ID][i] != first {
					continue
				}
				if owned++; owned > keep {
					t.slots[i] = ""
					if t.idle() {
						t.idleSince = time.Now()
					}
				}
			}
		}
	}
	if j := m.jobs[id]; j != nil {
		j.owned = min(owned, keep)
	}
}

func (t *taskManager) idle() bool {
	return len(t.held) == 0 && !slices.ContainsFunc(t.slots, func(s string) bool { return s != "" })
}

// ordered lists the TaskManagers in the order of their registration.
func (m *Manager) ordered() []*taskManager {
	return slices.SortedFunc(maps.Values(m.tms), func(a, b *taskManager) int {
		return cmp.Or(a.info.Registered.Compare(b.info.Registered), cmp.Compare(a.info.ID, b.info.ID))
	})
}

// allocate gives free slots to jobs, in the order in which the jobs came; a job gets slots beside its own first.
func (m *Manager) allocate() {
	for _, id := range m.jobOrder {
		j := m.jobs[id]
		if j.owned >= j.required {
			continue
		}
		before := j.owned
		tms := m.ordered()
		slices.SortStableFunc(tms, func(a, b *taskManager) int {
			return cmp.Compare(btoi(slices.Contains(b.slots, id)), btoi(slices.Contains(a.slots, id)))
		})
		for _, t := range tms {
			for i := range t.slots {
				if t.slots[i] == "" && t.held[i] == "" && !t.leaving && t.leaves == nil && j.owned < j.required {
					t.slots[i] = id
					j.owned++
				}
			}
		}
		if j.owned != before {
			m.tell(id)
		}
	}
	m.giveBackLeaving()
	m.plan()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (m *Manager) tell(id string) {
	j := m.jobs[id]
	if j == nil {
		return
	}
	var slots []Slot
	for _, t := range m.ordered() {
		for i, owner := range t.slots {
			if owner == id {
				slots = append(slots, Slot{t.info.ID, i, t.info.Host, t.leaves})
			}
		}
	}
	j.listener.SlotsChanged(slots)
}

// plan tells the driver how many workers are to exist: those with slots in use, and what the missing slots need. Workers that were started
// and have not registered are among the latter: the driver counts them. Idle workers are not counted: they are given to jobs before
// anything is missing, and nobody wants them replaced. (Counting all that registered would ask for one too many whenever the replacement of a
// dead worker registers before the broken link of the dead one is noticed.) On top come the spare ones, of which idle workers are the first.
func (m *Manager) plan() {
	if m.closed || m.fatal {
		return
	}
	missing := 0
	for _, j := range m.jobs {
		missing += max(0, j.required-j.owned)
	}
	used, _ := m.count()
	per := max(1, m.opts.Spec.Slots)
	spare := m.spares()
	want := used + (missing+per-1)/per + spare
	if want != m.wanted {
		m.wanted = want
		m.log.Info().Int("workers", want).Int("used", used).Int("missing_slots", missing).Int("spare", spare).Msg("workers wanted")
		m.opts.Driver.RequestWorkers(m.opts.Spec, want)
	}
}

// spares is how many workers are to be idle: none when no job needs any.
// Source: Flink TaskExecutorManager.checkTaskManagerTimeoutsAndRedundancy.
func (m *Manager) spares() int {
	for _, j := range m.jobs {
		if j.required > 0 {
			return m.spare
		}
	}
	return 0
}

// surplus reports whether more workers are idle than spare ones are wanted.
func (m *Manager) surplus() bool {
	_, idle := m.count()
	return idle > m.spares()
}

// count counts the registered workers that have slots in use, and those that have none and stay.
func (m *Manager) count() (used, idle int) {
	for _, t := range m.tms {
		switch {
		case !t.idle():
			used++
		case !t.leaving && t.leaves == nil:
			idle++
		}
	}
	return used, idle
}

// Send sends a message to a TaskManager; an unknown one is an error, a broken link shows as TaskManagerLost.
func (m *Manager) Send(tm string, msg *pb.TaskManagerDown) error {
	m.mu.Lock()
	t := m.tms[tm]
	m.mu.Unlock()
	if t == nil {
		return fmt.Errorf("resourcemanager: send to %s: no such TaskManager", tm)
	}
	return t.link.Send(msg)
}

// TaskManagers lists the registered TaskManagers, oldest first.
func (m *Manager) TaskManagers() []TaskManagerInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []TaskManagerInfo
	for _, t := range m.ordered() {
		i := t.info
		i.LastHeartbeat, i.Leaves = t.heard, t.leaves
		i.Jobs = map[int]string{}
		for s, owner := range t.slots {
			if owner != "" {
				i.Jobs[s] = owner
			}
		}
		i.FreeSlots = i.Slots - len(i.Jobs)
		out = append(out, i)
	}
	return out
}

// Pending is the number of workers wanted that have not registered.
func (m *Manager) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, idle := m.count()
	return max(0, m.wanted-used-min(idle, m.spares()))
}

// CurrentProblem is the driver's last Problem.
func (m *Manager) CurrentProblem() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

// Deregister ends the application with its final status: TaskManagers are told to end, then the deployment is. Use a context that
// survives the process's own termination signal.
func (m *Manager) Deregister(ctx context.Context, status FinalStatus, diagnostics string) error {
	m.mu.Lock()
	m.fatal = true // no more requests
	for _, t := range m.tms {
		t.leaving = true
		_ = t.link.Send(&pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Shutdown{Shutdown: &pb.Shutdown{Reason: "the application ends: " + status.String()}}}) // deregistering ends it too
	}
	m.mu.Unlock()
	return m.opts.Driver.Deregister(ctx, status, diagnostics)
}

// Close ends the links, the heartbeats and the driver.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	for _, t := range m.tms {
		t.link.Close(nil)
	}
	close(m.stop)
	m.mu.Unlock()
	m.ticker.Wait()
	err := m.opts.Driver.Close()
	m.links.Wait()
	return err
}
