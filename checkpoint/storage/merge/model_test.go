package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a job whose tasks have incremental state: the real coordinator and storage, and what a backend does around them.
type job struct {
	t        *rapid.T
	reg      *fs.Registry
	st       *storage.Storage
	core     *coordinator.Coordinator
	cfg      coordinator.Config
	now      time.Time
	merger   *Merger
	attempt  int
	tasks    []*worker
	trigger  *coordinator.TriggerTasks // that nobody has answered
	late     []coordinator.Ack
	complete int64
	serial   int
	last     int64 // number that was used; none is used again (ha.Store.ReserveIDs)
}

// worker is a task with its tables, of which a checkpoint stores those that the last completed one has not.
type worker struct {
	exec   graph.ExecutionID
	tables []string
	known  map[string]state.FileRef
	sent   map[int64]map[string]state.FileRef
}

var (
	vertex   = graph.VertexID{ID: graph.ID{1}}
	operator = graph.OperatorID{ID: graph.ID{2}}
)

func newJob(t *rapid.T, reg *fs.Registry, name string) *job {
	j := &job{t: t, reg: reg, now: time.Unix(1000, 0)}
	f, p, err := reg.Resolve(context.Background(), "mem://"+name+"/ckp")
	if err != nil {
		t.Fatal(err)
	}
	id := graph.JobID{ID: graph.ID{7}}
	j.st = storage.New(f, p, id)
	n := rapid.IntRange(1, 5).Draw(t, "tasks")
	j.cfg = coordinator.Config{JobID: id, Dir: j.st.Dir(), Retained: rapid.IntRange(1, 3).Draw(t, "retained"), Tolerable: 1 << 20, FirstID: 1, ReservedID: 1 << 30,
		Graph: graph.JobGraph{Name: "j", Vertices: []graph.Vertex{{ID: vertex, Name: "v", Parallelism: n, MaxParallelism: 8, Operators: []graph.Operator{{ID: operator, UID: "o", Keyed: true, Stateful: true}}}}}}
	if j.core, err = coordinator.New(j.cfg); err != nil {
		t.Fatal(err)
	}
	j.merger = New(Config{MaxFileSize: rapid.SampledFrom([]int64{1, 100, 1 << 20}).Draw(t, "file size"), MaxSubtasks: rapid.IntRange(1, 4).Draw(t, "subtasks of a file"),
		MaxAmplification: rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "amplification")})
	j.merger.linger = time.Hour // all tasks take part
	j.run()
	return j
}

// run starts the tasks of an attempt, from what the latest checkpoint has.
func (j *job) run() {
	j.attempt++
	j.tasks, j.late = nil, nil
	latest, _ := j.core.Latest()
	var running []coordinator.Task
	for i := range j.cfg.Graph.Vertices[0].Parallelism {
		w := &worker{exec: graph.ExecutionID{Vertex: vertex, Subtask: i, Attempt: j.attempt}, known: map[string]state.FileRef{}, sent: map[int64]map[string]state.FileRef{}}
		if o := latest.Checkpoint.Operator(operator); o != nil {
			for _, s := range o.Subtasks {
				if s.Index != i {
					continue
				}
				for _, f := range s.Keyed[0].Files {
					if f.Key != "" {
						w.known[f.Key] = f.Ref
						w.tables = append(w.tables, f.Key)
					}
				}
			}
		}
		j.merger.Join(w.exec.String())
		j.tasks = append(j.tasks, w)
		running = append(running, coordinator.Task{Execution: w.exec, Source: true})
	}
	j.step(coordinator.TasksRunning{Tasks: running})
}

func (j *job) stop() {
	for _, w := range j.tasks {
		j.merger.Leave(w.exec.String())
	}
}

func (j *job) step(ev coordinator.Event) {
	for _, e := range j.core.Step(j.now, ev) {
		j.effect(e)
	}
}

func (j *job) effect(e coordinator.Effect) {
	ctx := context.Background()
	var err error
	switch e := e.(type) {
	case coordinator.TriggerTasks:
		j.trigger, j.last = &e, e.ID
	case coordinator.WriteMetadata:
		ev := coordinator.MetadataWritten{ID: e.ID}
		if rapid.IntRange(0, 9).Draw(j.t, "metadata cannot be written") == 0 {
			ev.Err = errors.New("no")
		} else {
			ev.Path, ev.Size, ev.Err = j.st.WriteMetadata(ctx, e.Dir, e.Checkpoint)
		}
		j.step(ev)
	case coordinator.StorePointer:
		j.step(coordinator.PointerStored{ID: e.ID})
	case coordinator.NotifyComplete:
		j.complete++
		for _, w := range j.tasks {
			if w.sent[e.ID] != nil {
				w.known = w.sent[e.ID]
			}
		}
	case coordinator.NotifyAborted:
		for _, w := range j.tasks {
			delete(w.sent, e.ID)
		}
	case coordinator.Discard:
		err = j.st.Remove(ctx, e.Files, e.Dirs, e.EmptyDirs)
	case coordinator.Sweep:
		_, err = j.st.Sweep(ctx, e.Below, e.Keep.Dirs, e.Keep.Files)
	case coordinator.SnapshotCoordinators:
		j.step(coordinator.CoordinatorSnapshot{ID: e.ID})
	case coordinator.Finished, coordinator.FailJob:
	default:
		err = fmt.Errorf("effect %T", e)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// content is what a table, or the rest of a task's state, holds.
func content(name string) []byte {
	var n int
	_, _ = fmt.Sscanf(name[strings.LastIndexByte(name, ':')+1:], "%d", &n)
	return []byte(strings.Repeat(name+" ", n/len(name)+1))[:n]
}

func (j *job) name(what string, sizes ...int) string {
	j.serial++
	return fmt.Sprintf("%s%d:%d", what, j.serial, rapid.SampledFrom(sizes).Draw(j.t, what+" of size"))
}

func put(ctx context.Context, s state.Sink, scope state.Scope, name string) (state.FileRef, error) {
	w, err := s.Create(ctx, scope)
	if err != nil {
		return state.FileRef{}, err
	}
	for b := content(name); len(b) > 0; {
		n := min(len(b), 300_000)
		if _, err := w.Write(b[:n]); err != nil {
			w.Abort()
			return state.FileRef{}, err
		}
		b = b[n:]
	}
	return w.Commit()
}

// part is a task's part of a checkpoint, as drawn.
type part struct {
	rest   []string // exclusive
	gives  bool     // up, in the end
	aborts string   // a stream that comes to nothing
}

// write is what a task does in the background. Without an error it acknowledges.
func (j *job) write(w *worker, p part, tr *coordinator.TriggerTasks) (ack coordinator.Ack, sent map[string]state.FileRef, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := j.merger.Sink(ctx, storage.NewSink(j.reg, tr.Options.ExclusiveDir, tr.Options.SharedDir, 20), w.exec.String())
	defer s.Discard()
	h := state.Handle{Format: "pebble", Range: state.Range{End: 8}}
	sent = map[string]state.FileRef{}
	for _, name := range w.tables {
		ref, ok := w.known[name]
		if !ok || !s.Reuse(ref) {
			if ref, err = put(ctx, s, state.Shared, name); err != nil {
				return ack, nil, err
			}
		}
		sent[name] = ref
		h.Files = append(h.Files, state.File{Key: name, Ref: ref})
	}
	if p.aborts != "" {
		x, err := s.Create(ctx, state.Exclusive)
		if err != nil {
			return ack, nil, err
		}
		if _, err := x.Write(content(p.aborts)); err != nil {
			return ack, nil, err
		}
		x.Abort()
	}
	for _, name := range p.rest {
		ref, err := put(ctx, s, state.Exclusive, name)
		if err != nil {
			return ack, nil, err
		}
		h.Files = append(h.Files, state.File{Ref: ref})
	}
	if p.gives {
		return ack, nil, errors.New("given up")
	}
	if err := s.Seal(ctx); err != nil {
		return ack, nil, err
	}
	return coordinator.Ack{ID: tr.ID, Execution: w.exec, State: metadata.Task{Operators: []metadata.TaskOperator{{ID: operator, State: metadata.Subtask{Keyed: []state.Handle{h}}}}}}, sent, nil
}

// checkpoint takes one, which may fail in any way.
func (j *job) checkpoint(mayFail bool) {
	j.step(coordinator.Trigger{Kind: coordinator.Manual, Full: mayFail && rapid.IntRange(0, 5).Draw(j.t, "full") == 0})
	tr := j.trigger
	if j.trigger = nil; tr == nil {
		return
	}
	parts := make([]part, len(j.tasks))
	full := tr.Options.Full
	for i, w := range j.tasks {
		for range rapid.IntRange(0, 2).Draw(j.t, "new tables") {
			w.tables = append(w.tables, j.name("table", 10, 50, 500))
		}
		w.tables = slices.DeleteFunc(w.tables, func(string) bool { return rapid.IntRange(0, 3).Draw(j.t, "dropped") == 0 })
		for range rapid.IntRange(0, 2).Draw(j.t, "rest") {
			parts[i].rest = append(parts[i].rest, j.name("rest", 0, 20, 21, 300, holdBytes+5))
		}
		if rapid.IntRange(0, 9).Draw(j.t, "aborts") == 0 {
			parts[i].aborts = j.name("aborted", 30, holdBytes+1)
		}
		parts[i].gives = mayFail && rapid.IntRange(0, 15).Draw(j.t, "gives up") == 0
		if full {
			w.known = map[string]state.FileRef{}
		}
	}
	acks := make([]coordinator.Ack, len(j.tasks))
	errs := make([]error, len(j.tasks))
	sent := make([]map[string]state.FileRef, len(j.tasks))
	var wg sync.WaitGroup
	for i, w := range j.tasks {
		wg.Go(func() { acks[i], sent[i], errs[i] = j.write(w, parts[i], tr) })
	}
	wg.Wait()
	for i := range errs {
		if errs[i] == nil {
			j.tasks[i].sent[tr.ID] = sent[i]
		} else if !parts[i].gives {
			j.t.Fatalf("task %d: %v", i, errs[i])
		}
	}
	for _, i := range rapid.Permutation(indexes(len(acks))).Draw(j.t, "order") {
		switch what := rapid.IntRange(0, 19).Draw(j.t, "on the way"); {
		case errs[i] != nil:
			j.step(coordinator.Decline{ID: tr.ID, Execution: j.tasks[i].exec, Reason: "given up"})
		case mayFail && what == 0:
			j.late = append(j.late, acks[i])
		case mayFail && what == 1:
			j.step(coordinator.Decline{ID: tr.ID, Execution: j.tasks[i].exec, Reason: "no"})
			j.late = append(j.late, acks[i])
		default:
			j.step(acks[i])
		}
	}
}

func indexes(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// readable checks that every retained checkpoint is there as it was written.
func (j *job) readable() {
	src := storage.NewSource(j.reg)
	for _, c := range j.core.Retained() {
		cp, err := storage.ReadMetadata(context.Background(), j.reg, c.Dir)
		if err != nil {
			j.t.Fatal(err)
		}
		for _, s := range cp.Operator(operator).Subtasks {
			for _, f := range s.Keyed[0].Files {
				got, err := read(src, f.Ref)
				if err == nil && f.Key != "" && string(got) != string(content(f.Key)) {
					err = errors.New("other content")
				}
				if err != nil {
					j.t.Fatalf("checkpoint %d, %q in %s: %v", c.ID, f.Key, f.Ref.Path(), err)
				}
			}
		}
	}
}

// Whatever becomes of checkpoints and of the tasks that write them, all that a retained one refers to is there, and in the end nothing else is.
func TestNothingIsLostAndNothingIsLeft(t *testing.T) {
	reg := &fs.Registry{}
	mem.Register(reg)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		j := newJob(t, reg, fmt.Sprint("model", n))
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // the tasks restart in the same process
				j.step(coordinator.JobRestarting{Reason: "test"})
				j.stop()
				j.run()
			case 1: // or in another one
				j.step(coordinator.JobRestarting{Reason: "test"})
				j.stop()
				j.merger = New(j.merger.cfg)
				j.merger.linger = time.Hour
				j.run()
			case 2: // the next application attempt
				j.nextAttempt()
			case 3:
				if len(j.late) > 0 {
					j.step(j.late[0])
					j.late = j.late[1:]
				}
			case 4:
				j.now = j.now.Add(time.Minute)
				j.step(coordinator.Tick{})
			default:
				j.checkpoint(true)
			}
			j.readable()
		}
		for before := j.complete; j.complete < before+int64(j.cfg.Retained)+1; {
			j.step(coordinator.JobRestarting{Reason: "test"})
			j.stop()
			j.run()
			j.checkpoint(false)
		}
		j.now = j.now.Add(time.Hour)
		j.step(coordinator.Tick{})
		j.readable()
		var retained []string
		for _, c := range j.core.Retained() {
			retained = append(retained, c.Dir)
		}
		left, err := j.st.Orphans(context.Background(), retained)
		if err != nil || len(left) > 0 {
			t.Fatalf("left: %v, %v", left, err)
		}
		j.stop()
	})
}

// nextAttempt replaces the coordinator by one that knows what is stored.
func (j *job) nextAttempt() {
	j.step(coordinator.JobEnded{State: coordinator.Suspended})
	latest, ok := j.core.Latest()
	cfg := j.cfg
	cfg.FirstID = j.last + 1
	if ok {
		found, err := j.st.Completed(context.Background(), latest.ID, cfg.Retained)
		if err != nil {
			j.t.Fatal(err)
		}
		for _, c := range found {
			cfg.Existing = append(cfg.Existing, coordinator.Completed{ID: c.Checkpoint.ID, Dir: c.Dir, Owned: true, Checkpoint: c.Checkpoint})
		}
	}
	core, err := coordinator.New(cfg)
	if err != nil {
		j.t.Fatal(err)
	}
	j.stop()
	j.core = core
	j.run()
}
