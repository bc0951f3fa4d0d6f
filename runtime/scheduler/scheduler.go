package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Config makes a Scheduler.
type Config struct {
	Graph    *graph.JobGraph
	Strategy Strategy
	// FirstAttempt numbers the first attempt of the tasks: application attempts must not use the same numbers.
	FirstAttempt int
	// Checkpoints says that the job takes checkpoints, so that it ends with a final one.
	Checkpoints bool
	// Resume is how far an earlier JobMaster came with the job in BATCH; nil to begin. The partitions in it are taken to be there: a
	// WorkerDown before Prepared tells which are not.
	Resume Progress
	// Requirements are the bounds of the parallelism; nil for the graph's own, no more and no less. In BATCH they are of no use.
	Requirements Requirements
	Rescaling    Rescaling
	// Adopt are the tasks of an earlier JobMaster that the job goes on with, all of them, in STREAMING; nil to begin anew. What Start emits then is
	// to be carried out when nothing is missing for them but a JobMaster.
	Adopt *Adopted
	// Full restarts all tasks in STREAMING when one fails, not only those that are connected with it.
	Full bool
}

// Execution is the current attempt of one subtask.
type Execution struct {
	ID        graph.ExecutionID
	State     TaskState
	EndOfData bool
	Slot      Slot // valid from DEPLOYING on
	Failure   *Failure
	Since     map[TaskState]time.Time
}

// Vertex is one vertex with its subtasks.
type Vertex struct {
	Spec  *graph.Vertex
	Tasks []*Execution
	stage *stage
}

// phase is where the job is within RUNNING, for the rules that the job's state alone does not tell.
type phase int

const (
	phaseIdle      phase = iota // not started, or waits for RestartDue
	phasePreparing              // waits for Prepared
	phaseActive                 // tasks are deployed
	phaseEnding                 // tasks are being cancelled: for a restart, for FAILED or for CANCELED
)

// Scheduler is the core. Not safe for concurrent use; what Vertices returns is changed by Step.
type Scheduler struct {
	cfg      Config
	vertices []*Vertex
	byID     map[graph.VertexID]*Vertex
	stages   []*stage // in topological order
	batch    bool
	resumed  bool // from what an earlier JobMaster kept
	groups   []group
	slots    int
	scale    scaling

	state    JobState
	since    map[JobState]time.Time
	phase    phase
	attempt  int // of the current tasks
	restarts int
	placed   []Slot // slot of each place, kept over restarts so that tasks find their local state
	running  bool   // AllRunning was sent for this attempt
	runSince time.Time
	final    finalPhase
	stopping stopPhase
	root     *Failure      // that leads to the present restart or end
	pause    time.Duration // before the present restart
	jitter   float64
	decided  Strategy          // before it decided about the root
	counted  string            // TaskManager of the last failure that was counted
	held     []FailureRecorded // a broken connection as root, whose cause may still be heard, and what came with it
	out      []Effect
	now      time.Time
}

type finalPhase int

const (
	finalNone finalPhase = iota
	finalPending
	finalDone
)

type stopPhase int

const (
	stopNone stopPhase = iota
	stopPending
	stopSaved
)

// group is a slot sharing group: places [from, from+size) of the slots.
type group struct {
	name       string
	from, size int
}

// New makes the scheduler of a job.
func New(cfg Config) (*Scheduler, error) {
	s := &Scheduler{cfg: cfg, byID: map[graph.VertexID]*Vertex{}, state: JobInitializing, since: map[JobState]time.Time{}, attempt: cfg.FirstAttempt}
	if cfg.Graph == nil || len(cfg.Graph.Vertices) == 0 {
		return nil, fmt.Errorf("scheduler: plan job: the graph is empty: add a source and a sink")
	}
	s.scale.safe = cfg.Rescaling.Restored
	switch r := cfg.Requirements; {
	case r == nil || cfg.Graph.Mode == graph.Batch:
		s.scale.req = Fixed(cfg.Graph)
	default:
		if err := r.Check(cfg.Graph); err != nil {
			return nil, fmt.Errorf("scheduler: plan job: %w", err)
		}
		s.scale.req = r
		cfg.Graph = cfg.Graph.With(r.Upper())
		s.cfg.Graph = cfg.Graph
	}
	if cfg.Adopt != nil {
		cfg.Graph = cfg.Graph.With(cfg.Adopt.Parallelism)
		s.cfg.Graph = cfg.Graph
	}
	for i := range cfg.Graph.Vertices {
		v := &cfg.Graph.Vertices[i]
		if v.Parallelism < 1 {
			return nil, fmt.Errorf("scheduler: plan vertex %s: parallelism %d", v.Name, v.Parallelism)
		}
		if s.byID[v.ID] != nil {
			return nil, fmt.Errorf("scheduler: plan vertex %s: two vertices have the id %s", v.Name, v.ID)
		}
		x := &Vertex{Spec: v}
		s.vertices = append(s.vertices, x)
		s.byID[v.ID] = x
	}
	s.groups, s.slots = groupsOf(cfg.Graph, func(v *graph.Vertex) int { return v.Parallelism })
	s.plan()
	for _, st := range s.stages {
		s.newAttempt(st)
	}
	if err := s.adoptable(); err != nil {
		return nil, err
	}
	return s, s.resume(cfg.Resume)
}

// State is the job's state, Since the time of its last change into each state it was in.
func (s *Scheduler) State() JobState               { return s.state }
func (s *Scheduler) Since() map[JobState]time.Time { return s.since }

// Attempt is the number of the current tasks' attempt; Restarts counts restarts of this JobMaster.
func (s *Scheduler) Attempt() int  { return s.attempt }
func (s *Scheduler) Restarts() int { return s.restarts }

// Slots is the number of slots that the job needs.
func (s *Scheduler) Slots() int { return s.slots }

// Vertices lists the execution graph in topological order.
func (s *Scheduler) Vertices() []*Vertex { return s.vertices }

// Vertex returns the vertex with this id, or nil.
func (s *Scheduler) Vertex(id graph.VertexID) *Vertex { return s.byID[id] }

// Ready reports whether checkpoints can be taken: every task runs and none has been told to end.
func (s *Scheduler) Ready() bool {
	return s.phase == phaseActive && s.running && s.final != finalDone && s.stopping != stopSaved
}

// Execution returns the current attempt with this id, or nil when the id is of an earlier attempt or unknown.
func (s *Scheduler) Execution(id graph.ExecutionID) *Execution {
	v := s.byID[id.Vertex]
	if v == nil || id.Subtask < 0 || id.Subtask >= len(v.Tasks) || v.Tasks[id.Subtask].ID != id {
		return nil
	}
	return v.Tasks[id.Subtask]
}

// TaskName is "Map -> Sink (2/4)".
func (s *Scheduler) TaskName(id graph.ExecutionID) string {
	v := s.byID[id.Vertex]
	if v == nil {
		return id.String()
	}
	return fmt.Sprintf("%s (%d/%d)", v.Spec.Name, id.Subtask+1, v.Spec.Parallelism)
}

// newAttempt replaces the tasks of a stage by new ones.
func (s *Scheduler) newAttempt(st *stage) {
	for _, v := range st.vertices {
		v.Tasks = make([]*Execution, v.Spec.Parallelism)
		for i := range v.Tasks {
			v.Tasks[i] = &Execution{ID: graph.ExecutionID{Vertex: v.Spec.ID, Subtask: i, Attempt: s.attempt}, State: TaskCreated,
				Since: map[TaskState]time.Time{TaskCreated: s.now}}
		}
	}
	s.running, s.final, s.stopping = false, finalNone, stopNone
}

// Step applies ev, which happened at the time at, and returns what the shell must do, in order. The slice belongs to the caller.
func (s *Scheduler) Step(at time.Time, ev Event) []Effect {
	s.now, s.out = at, nil
	if s.state.Terminal() || s.state == JobSuspended {
		return nil
	}
	switch e := ev.(type) {
	case Start:
		if s.state == JobInitializing {
			s.start()
		}
	case Prepared:
		s.deploy(e)
	case TaskChanged:
		s.taskChanged(e)
	case WorkerDown:
		s.workerDown(e)
	case Fail:
		s.fail(e.Failure, nil)
	case RestartDue:
		if s.state == JobRestarting && s.phase == phaseIdle && e.Attempt == s.attempt {
			s.restart()
		}
	case CancelStuck:
		s.tell()
		if s.phase == phaseEnding && e.Attempt == s.attempt {
			s.kill(e.IDs)
		}
	case CancelJob:
		s.cancel()
	case Stop:
		if s.Ready() && s.stopping == stopNone && s.final == finalNone {
			s.stopping = stopPending
			s.emit(TriggerStop(e))
		}
	case StopDone:
		s.stopDone(e.OK)
	case FinalDone:
		s.finalDone(e.OK)
	case CommitPrepared:
		s.prepared(e.ID)
	case CommitsKept:
		s.commitsKept(e.Vertex)
	case CheckpointDone:
		s.cfg.Strategy.progress = true
		s.saved(true)
	case Forgive:
		if s.counted == e.TaskManager {
			s.cfg.Strategy.forgive()
			s.counted = ""
		}
	case SlotsReady:
		s.slotsReady(e)
	case Require:
		s.require(e.Requirements)
	case RescaleFailed:
		s.saved(false)
	case Suspend:
		s.tell()
		f := e.Failure
		f.At = at
		s.emit(StopCheckpoints{Reason: f.Message})
		s.setJob(JobSuspended)
		s.emit(Ended{JobSuspended, &f})
	}
	_, tick := ev.(Tick)
	s.consider(tick)
	return s.out
}

func (s *Scheduler) emit(e Effect) { s.out = append(s.out, e) }

func (s *Scheduler) setJob(to JobState) bool {
	if !s.state.may(to) {
		return false
	}
	s.emit(JobChanged{s.state, to})
	s.state = to
	s.since[to] = s.now
	return true
}

func (s *Scheduler) setTask(x *Execution, to TaskState) bool {
	if !x.State.may(to) {
		return false
	}
	s.emit(TaskMoved{x.ID, x.State, to})
	x.State = to
	x.Since[to] = s.now
	return true
}

func (s *Scheduler) each(fn func(x *Execution)) {
	for _, v := range s.vertices {
		for _, x := range v.Tasks {
			fn(x)
		}
	}
}

func (s *Scheduler) all(fn func(x *Execution) bool) bool {
	ok := true
	s.each(func(x *Execution) { ok = ok && fn(x) })
	return ok
}

func (s *Scheduler) prepare(restart bool, vertices []graph.VertexID) {
	s.phase = phasePreparing
	s.scale.since, s.scale.enough, s.scale.to, s.scale.leaving.fewer = s.now, time.Time{}, nil, false
	for _, st := range s.stages {
		if st.ready() {
			st.each(func(x *Execution) { s.setTask(x, TaskScheduled) })
		}
	}
	part := (restart || s.resumed) && s.batch || s.goesOn()
	s.emit(Prepare{Attempt: s.attempt, Restart: restart, Part: part, Vertices: vertices, Slots: s.slots, Patience: s.patience()})
}

func (s *Scheduler) restart() {
	s.attempt++
	if s.scale.to == nil {
		s.restarts++
	}
	s.root = nil
	since := s.scale.widened
	s.scale.widened = time.Time{}
	if !s.batch && !s.goesOn() {
		s.resize(s.next())
	}
	vertices := s.rerun()
	s.setJob(JobRunning)
	if s.batch && s.all(func(x *Execution) bool { return x.State == TaskFinished }) { // the last ones went on meanwhile
		s.phase = phaseActive
		s.checkEnd()
		return
	}
	s.prepare(true, vertices)
	if !since.IsZero() {
		s.scale.since, s.scale.enough = since, since
	}
}

// deploy places the tasks: a place keeps its slot of the attempt before if it is still offered, so that tasks find their local state.
func (s *Scheduler) deploy(e Prepared) {
	if s.phase != phasePreparing || e.Attempt != s.attempt || len(e.Slots) < s.slots {
		return
	}
	free := s.offered(e.Slots)
	place := make([]Slot, s.slots)
	taken := make([]bool, s.slots)
	for i, old := range s.placed[:min(len(s.placed), len(place))] {
		if j := slices.Index(free, old); j >= 0 {
			place[i], taken[i] = old, true
			free = slices.Delete(free, j, j+1)
		}
	}
	for i := range place {
		if !taken[i] {
			place[i] = free[0]
			free = free[1:]
		}
	}
	s.placed = place
	s.phase = phaseActive
	s.deployReady()
	s.vacate()
	s.checkEnd() // in BATCH, the last stages may have finished meanwhile
}

func (s *Scheduler) taskChanged(e TaskChanged) {
	x := s.Execution(e.ID)
	if x == nil || x.State.Terminal() {
		return // an earlier attempt, or told twice
	}
	st := s.byID[x.ID.Vertex].stage
	if e.State == TaskCanceling { // it has failed, and is slow to end: all are told to, and killed in time
		if e.Failure != nil && x.State != TaskCanceling {
			s.fail(*e.Failure, x)
		}
		return
	}
	if e.EndOfData {
		x.EndOfData = true
		if s.batch {
			s.stageEnds(st)
			return
		}
		s.checkEndOfData()
		return
	}
	if st.ending && !e.State.Terminal() {
		return // it is being cancelled; what it does before that is of no interest
	}
	if !s.setTask(x, e.State) {
		return
	}
	switch e.State {
	case TaskFailed:
		if x.Failure != nil {
			break // told before it had ended
		}
		f := Failure{Message: "task failed without a reason", Kind: "error"}
		if e.Failure != nil {
			f = *e.Failure
		}
		s.fail(f, x)
	case TaskCanceled:
		if !st.ending {
			s.fail(Failure{Message: "task was cancelled though nobody asked for it", Kind: "error"}, x)
		}
	case TaskRunning:
		if !s.batch && !s.running && s.all(func(x *Execution) bool { return x.State == TaskRunning }) {
			s.running, s.runSince = true, s.now
			s.emit(AllRunning{s.attempt})
			s.ran()
			s.checkEndOfData()
		}
	case TaskFinished:
		if s.batch && !st.ending && st.all(func(x *Execution) bool { return x.State == TaskFinished }) {
			s.stageFinished(st)
		}
	}
	s.checkEnd()
}

// checkEndOfData starts the end of a bounded job: all input is processed, nothing but the last checkpoint is missing.
func (s *Scheduler) checkEndOfData() {
	if s.phase != phaseActive || !s.running || s.final != finalNone || s.stopping == stopSaved ||
		!s.all(func(x *Execution) bool { return x.EndOfData }) {
		return
	}
	if !s.cfg.Checkpoints {
		s.final = finalDone
		s.finish()
		return
	}
	s.final = finalPending
	s.emit(TriggerFinal{})
}

func (s *Scheduler) finalDone(ok bool) {
	if s.final != finalPending || s.phase != phaseActive {
		return
	}
	if !ok {
		s.emit(TriggerFinal{After: time.Second})
		return
	}
	s.final = finalDone
	s.finish()
}

func (s *Scheduler) stopDone(ok bool) {
	if s.stopping != stopPending || s.phase != phaseActive {
		return
	}
	if !ok {
		s.stopping = stopNone
		s.checkEndOfData()
		return
	}
	s.stopping = stopSaved
	s.finish()
}

func (s *Scheduler) finish() {
	var f FinishTasks
	s.each(func(x *Execution) {
		if !x.State.Terminal() {
			f.IDs = append(f.IDs, x.ID)
		}
	})
	s.emit(f)
}
