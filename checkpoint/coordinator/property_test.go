package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// world is a model of everything around the coordinator: tasks that write files, a disk, a shell whose answers come when rapid says.
type world struct {
	t   *rapid.T
	c   *Coordinator
	cfg Config
	now time.Time

	disk     map[string]bool // URIs of files, _metadata included
	pointer  int64
	attempt  int
	reserved int64
	answers  []Event                        // of WriteMetadata, StorePointer, ReserveIDs, SnapshotCoordinators
	unsent   []Ack                          // of tasks that have not answered their triggers
	known    map[int]int64                  // by window subtask, the latest checkpoint that it knows to be complete
	sent     map[int64]map[int][]state.File // by checkpoint and window subtask
	lastID   int64
	open     map[int64]Kind // checkpoints that have neither completed nor been aborted
	notices  []notice       // that have not reached their tasks
	asked    map[string]bool
	answered map[string]int
	durable  map[int64]bool
	files    int
	log      []string
	started  bool
	failed   bool // FailJob was emitted: a restart follows
	contents map[int64]metadata.Checkpoint
	spared   map[string]bool // files of checkpoints that could not be restored
	fell     bool            // the latest restart went back further than the pointer
}

type notice struct {
	subtask int
	id      int64
}

func (w *world) say(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	for _, l := range w.log {
		w.t.Log(l)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) step(ev Event) {
	if _, tick := ev.(Tick); !tick {
		w.say("%v %T %+v", w.now.Sub(time.Unix(0, 0)), ev, brief(ev))
	}
	for _, e := range w.c.Step(w.now, ev) {
		w.effect(e)
	}
	w.check()
}

func brief(ev Event) any {
	if a, ok := ev.(Ack); ok {
		return fmt.Sprintf("%d %s", a.ID, a.Execution)
	}
	return ev
}

func (w *world) begin(id int64) {
	if _, known := w.open[id]; known {
		return
	}
	if id <= w.lastID {
		w.fatal("checkpoint %d begins after %d", id, w.lastID)
	}
	if id > w.reserved {
		w.fatal("number %d is used, %d are reserved", id, w.reserved)
	}
	k := w.c.find(id).kind
	savepoints := 0
	for other, ok := range w.open {
		switch {
		case ok == Final || ok == StopWithSavepoint || w.cfg.Unaligned:
			w.fatal("checkpoint %d begins beside %d", id, other)
		case ok == Savepoint:
			savepoints++
		}
	}
	if k != Savepoint && k != StopWithSavepoint && len(w.open) >= w.cfg.MaxConcurrent || (k == Final || k == StopWithSavepoint) && savepoints > 0 {
		w.fatal("checkpoint %d begins beside %v", id, w.open)
	}
	w.open[id], w.lastID = k, id
}

func (w *world) end(id int64) {
	if _, known := w.open[id]; !known {
		w.fatal("checkpoint %d ends, %v are pending", id, w.open)
	}
	delete(w.open, id)
	w.unsent = slices.DeleteFunc(w.unsent, func(a Ack) bool { return a.ID == id })
}

// oneWrite: what is written to the high-availability store has to be one thing after another.
func (w *world) oneWrite(e Effect) {
	for _, a := range w.answers {
		switch a.(type) {
		case PointerStored, IDsReserved:
			w.fatal("%T while the answer %T is open", e, a)
		}
	}
}

func (w *world) effect(e Effect) {
	w.say("    %T %s", e, fmt.Sprintf("%.300s", fmt.Sprintf("%+v", e)))
	switch e := e.(type) {
	case SnapshotCoordinators:
		w.begin(e.ID)
		w.answers = append(w.answers, CoordinatorSnapshot{ID: e.ID})
	case TriggerTasks:
		w.begin(e.ID)
		for _, t := range w.c.tasks {
			w.unsent = append(w.unsent, w.write(e, t))
		}
	case WriteMetadata:
		w.answers = append(w.answers, MetadataWritten{ID: e.ID, Path: e.Dir + "/_metadata"})
	case StorePointer:
		if !w.durable[e.ID] {
			w.fatal("pointer to %d before its metadata is durable", e.ID)
		}
		w.oneWrite(e)
		w.answers = append(w.answers, PointerStored{ID: e.ID})
	case ReserveIDs:
		w.oneWrite(e)
		w.answers = append(w.answers, IDsReserved{UpTo: e.UpTo})
	case NotifyComplete:
		if !w.durable[e.ID] || w.pointer != e.ID {
			w.fatal("notice of %d before it is durable (pointer %d)", e.ID, w.pointer)
		}
		w.end(e.ID)
		w.fell = false
		for sub := range 2 {
			w.notices = append(w.notices, notice{sub, e.ID})
		}
		w.keepContent()
	case NotifyAborted:
		if e.Reason == "" {
			w.fatal("abort of %d without a reason", e.ID)
		}
		w.end(e.ID)
	case Discard:
		for _, f := range e.Files {
			delete(w.disk, f)
		}
		for f := range w.disk {
			for _, d := range e.Dirs {
				if strings.HasPrefix(f, d+"/") {
					delete(w.disk, f)
				}
			}
		}
	case Sweep:
		for f := range w.disk {
			dir, name, _ := cutLast(f)
			n, ok := storage.FileCheckpoint(name)
			if own, found := strings.CutPrefix(dir, testDir+"/chk-"); found {
				_, err := fmt.Sscan(own, &n)
				ok = err == nil && !slices.Contains(e.Keep.Dirs, dir)
			} else {
				ok = ok && dir == testDir+"/shared" && !slices.Contains(e.Keep.Files, f)
			}
			if ok && n < e.Below {
				delete(w.disk, f)
			}
		}
	case FailJob:
		w.failed = true
	case Finished:
		w.answered[e.RequestID]++
		if w.open[e.ID] == Savepoint && e.Err == nil { // it has no notice
			w.end(e.ID)
		}
	case FinishTasks:
	default:
		w.fatal("unknown effect %T", e)
	}
}

func cutLast(uri string) (dir, name string, ok bool) {
	i := strings.LastIndexByte(uri, '/')
	if i < 0 {
		return "", uri, false
	}
	return uri[:i], uri[i+1:], true
}

// write is what a task does for a trigger: new files, and for checkpoints perhaps some that the last completed one had.
func (w *world) write(e TriggerTasks, t Task) Ack {
	a := Ack{ID: e.ID, Execution: t.Execution}
	if t.Source {
		return a
	}
	h := state.Handle{Format: "pebble", Range: state.RangeOf(128, 2, t.Execution.Subtask)}
	add := func(scope state.Scope, prefix, dir string) {
		w.files++
		name := fmt.Sprintf("%d-%d", e.ID, w.files)
		w.disk[dir+"/"+name] = true
		h.Files = append(h.Files, state.File{Ref: state.FileRef{Name: prefix + name, Size: 1, Scope: scope}})
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "exclusive") {
		add(state.Exclusive, "", e.Options.ExclusiveDir)
	}
	if !e.Options.Savepoint {
		for range rapid.IntRange(0, 2).Draw(w.t, "shared") {
			add(state.Shared, "../shared/", e.Options.SharedDir)
		}
		sub := t.Execution.Subtask
		w.known[sub] = max(w.known[sub], e.Options.Base)
		for _, f := range w.sent[w.known[sub]][sub] {
			if f.Ref.Scope == state.Shared && !e.Options.Full && rapid.Bool().Draw(w.t, "again") {
				h.Files = append(h.Files, f)
			}
		}
		if w.sent[e.ID] == nil {
			w.sent[e.ID] = map[int][]state.File{}
		}
		w.sent[e.ID][sub] = h.Files
	}
	a.State.Operators = []metadata.TaskOperator{{ID: graph.OperatorID(windowID), State: metadata.Subtask{Keyed: []state.Handle{h}}}}
	return a
}

// keepContent keeps what the latest checkpoint holds.
func (w *world) keepContent() {
	if l, ok := w.latest(); ok {
		w.contents[l.ID] = l.Checkpoint.Clone()
	}
}

// remember gives every window task the files of the checkpoint that it is restored from.
func (w *world) remember() {
	w.known, w.notices = map[int]int64{}, nil
	l, ok := w.latest()
	if !ok {
		return
	}
	w.keepContent()
	w.sent[l.ID] = map[int][]state.File{}
	for sub := range 2 {
		w.known[sub] = l.ID
	}
	if op := l.Checkpoint.Operator(graph.OperatorID(windowID)); op != nil {
		for _, s := range op.Subtasks {
			for _, h := range s.Keyed {
				w.sent[l.ID][s.Index] = append(w.sent[l.ID][s.Index], h.Files...)
			}
		}
	}
}

// latest is what the coordinator holds once the step is over; inside of a step it has it already.
func (w *world) latest() (Completed, bool) {
	if len(w.c.retained) == 0 {
		return Completed{}, false
	}
	return *w.c.retained[len(w.c.retained)-1], true
}

// check: what is retained, and what the pointer names, is complete on disk.
func (w *world) check() {
	for _, r := range w.c.Retained() {
		if !w.disk[r.Dir+"/_metadata"] {
			w.fatal("the metadata of the retained checkpoint %d is gone", r.ID)
		}
	}
	for _, f := range w.referenced() {
		if !w.disk[f] {
			w.fatal("%s is gone, a retained checkpoint refers to it", f)
		}
	}
	for f := range w.spared {
		if !w.disk[f] {
			w.fatal("%s is gone, of a checkpoint that could not be restored", f)
		}
	}
	if ids := slices.Sorted(maps.Keys(w.open)); !slices.Equal(w.c.Pending(), ids) {
		w.fatal("pending %v, but %v are open", w.c.Pending(), ids)
	}
	for id := range w.open {
		for sub, files := range w.sent[id] {
			for _, f := range files {
				base := f.Ref.Base
				if base == "" {
					base = storage.CheckpointDir(testDir, id)
				}
				if uri, err := storage.Resolve(base, f.Ref.Name); err != nil || !w.disk[uri] {
					w.fatal("%s is gone (%v), subtask %d refers to it in checkpoint %d, which is pending", uri, err, sub, id)
				}
			}
		}
	}
}

// referenced lists the files that the latest checkpoint refers to, and the shared ones of all retained.
func (w *world) referenced() []string {
	out := slices.Clone(w.c.registry.Files())
	if l, ok := w.c.Latest(); ok {
		l.Checkpoint.Refs(func(r *state.FileRef) {
			uri, err := storage.Resolve(r.Base, r.Name)
			if err != nil {
				w.fatal("%v", err)
			}
			out = append(out, uri)
		})
	}
	return out
}

func (w *world) answer(i int, fail bool) {
	ev := w.answers[i]
	w.answers = slices.Delete(w.answers, i, i+1)
	switch a := ev.(type) {
	case CoordinatorSnapshot:
		if fail {
			a.Err = errors.New("no")
		}
		ev = a
	case MetadataWritten:
		if fail {
			a.Err = errors.New("no")
		} else {
			w.durable[a.ID] = true
			w.disk[a.Path] = true
		}
		ev = a
	case PointerStored:
		if a.ID <= w.pointer && !w.fell {
			w.fatal("the pointer goes back from %d to %d", w.pointer, a.ID)
		}
		w.pointer = a.ID // failures of pointers mean superseded; the transcripts have them
		w.reserved = max(w.reserved, a.ID+1)
		if p := w.c.find(a.ID); p != nil && p.tasksGone { // complete, but there is nobody to notify
			w.end(a.ID)
		}
	case IDsReserved:
		w.reserved = max(w.reserved, a.UpTo)
	}
	w.step(ev)
}

func (w *world) run() {
	t := w.t
	w.attempt++
	w.failed = false
	w.remember()
	w.step(TasksRunning{Tasks: testTasks(w.attempt)})
	t.Repeat(map[string]func(*rapid.T){
		"time": func(t *rapid.T) {
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 8000).Draw(t, "ms")) * time.Millisecond)
			w.step(Tick{})
		},
		"deadline": func(*rapid.T) {
			if at, ok := w.c.Deadline(); ok && at.After(w.now) {
				w.now = at
			}
			w.step(Tick{})
			if at, ok := w.c.Deadline(); ok && !at.After(w.now) {
				w.fatal("after a tick at its deadline the next one is not later: %v", at)
			}
		},
		"ack": func(t *rapid.T) {
			if len(w.unsent) > 0 {
				i := rapid.IntRange(0, len(w.unsent)-1).Draw(t, "task")
				a := w.unsent[i]
				w.unsent = slices.Delete(w.unsent, i, i+1)
				w.step(a)
				if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
					w.step(a)
				}
			}
		},
		"acks": func(*rapid.T) {
			for len(w.unsent) > 0 {
				a := w.unsent[0]
				w.unsent = w.unsent[1:]
				w.step(a)
			}
		},
		"late ack": func(t *rapid.T) {
			// Of a checkpoint that is over, with a file that was written after its abort.
			if _, open := w.open[w.lastID]; w.lastID > 0 && !open && !w.durable[w.lastID] {
				name := fmt.Sprintf("%d-late%d", w.lastID, w.files)
				w.files++
				w.disk[testDir+"/shared/"+name] = true
				h := state.Handle{Files: []state.File{{Ref: state.FileRef{Name: "../shared/" + name, Scope: state.Shared}}}}
				w.step(Ack{ID: w.lastID, Execution: testTasks(w.attempt)[3].Execution, State: metadata.Task{Operators: []metadata.TaskOperator{
					{ID: graph.OperatorID(windowID), State: metadata.Subtask{Keyed: []state.Handle{h}}}}}})
				if w.disk[testDir+"/shared/"+name] && w.c.aborted[w.lastID] == storage.CheckpointDir(testDir, w.lastID) {
					w.fatal("the file of a late acknowledgement stays")
				}
			}
		},
		"decline": func(t *rapid.T) {
			if ids := slices.Sorted(maps.Keys(w.open)); len(ids) > 0 && w.started {
				w.step(Decline{ID: rapid.SampledFrom(ids).Draw(t, "checkpoint"), Execution: testTasks(w.attempt)[rapid.IntRange(0, 3).Draw(t, "task")].Execution, Reason: "no", TaskFailed: rapid.Bool().Draw(t, "failing")})
			}
		},
		"answer": func(t *rapid.T) {
			if len(w.answers) > 0 {
				w.answer(rapid.IntRange(0, len(w.answers)-1).Draw(t, "which"), rapid.IntRange(0, 5).Draw(t, "fails") == 0)
			}
		},
		"request": func(t *rapid.T) {
			id := fmt.Sprintf("r%d", len(w.asked))
			w.asked[id] = true
			k := rapid.SampledFrom([]Kind{Manual, Savepoint, StopWithSavepoint}).Draw(t, "kind")
			w.step(Trigger{RequestID: id, Kind: k, Dir: "hdfs://nn/sp/savepoint-" + id, Full: k == Manual && rapid.Bool().Draw(t, "full")})
		},
		"notice": func(t *rapid.T) {
			if len(w.notices) > 0 {
				n := w.notices[0]
				w.notices = w.notices[1:]
				w.known[n.subtask] = max(w.known[n.subtask], n.id)
			}
		},
		"end of data": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
				w.step(EndOfData{})
			}
		},
		"restart": func(t *rapid.T) {
			if w.failed || rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				w.restart()
			}
		},
	})
}

// restart does what a JobMaster does: cancel, wait until the coordinator is settled, restore, run.
func (w *world) restart() {
	w.step(JobRestarting{Reason: "test"})
	for !w.c.Settled() {
		for i, a := range w.answers {
			if _, ok := a.(PointerStored); ok {
				w.answer(i, false)
				break
			}
		}
	}
	// The restore and the pointer must agree: an older state than the pointer's would undo what is committed on recovery.
	if l, ok := w.c.Latest(); ok && w.pointer != 0 && l.ID != w.pointer && !w.fell {
		w.fatal("the restart restores %d, the pointer names %d", l.ID, w.pointer)
	}
	w.fallBack()
	if len(w.open) > 0 {
		w.fatal("%v are pending while the job restarts", w.open)
	}
	w.attempt++
	w.failed = false
	w.remember()
	w.step(TasksRunning{Tasks: testTasks(w.attempt)})
}

// fallBack is what a JobMaster does when the latest checkpoint is damaged.
func (w *world) fallBack() {
	l, ok := w.c.Latest()
	older := w.c.Older()
	if !ok || len(older) == 0 || rapid.IntRange(0, 3).Draw(w.t, "damaged") > 0 {
		return
	}
	to := older[rapid.IntRange(0, len(older)-1).Draw(w.t, "to")]
	w.spared[l.Dir+"/_metadata"] = true
	l.Checkpoint.Refs(func(r *state.FileRef) {
		if uri, err := storage.Resolve(r.Base, r.Name); err == nil {
			w.spared[uri] = true
		}
	})
	w.fell = true
	w.step(FallBack{To: to.ID, Checkpoint: w.contents[to.ID]})
	if now, _ := w.c.Latest(); now.ID != to.ID {
		w.fatal("the latest is %d, want %d", now.ID, to.ID)
	}
}

func TestCoordinatorKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: time.Unix(0, 0), disk: map[string]bool{}, open: map[int64]Kind{}, sent: map[int64]map[int][]state.File{}, asked: map[string]bool{},
			answered: map[string]int{}, durable: map[int64]bool{}, contents: map[int64]metadata.Checkpoint{}, spared: map[string]bool{}, started: true, reserved: 1}
		w.cfg = Config{Graph: testGraph(rapid.Bool().Draw(t, "coordinated")), Dir: testDir, Interval: 10 * time.Second, Timeout: 20 * time.Second,
			MinPause: time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Second, MaxConcurrent: rapid.IntRange(1, 4).Draw(t, "at once"), Unaligned: rapid.IntRange(0, 5).Draw(t, "unaligned") == 0, Tolerable: rapid.IntRange(0, 3).Draw(t, "tolerable"),
			Retained: rapid.IntRange(1, 3).Draw(t, "retained"), ReservedID: 1}
		c, err := New(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.c = c
		w.run()

		// In the end nothing is left that nobody refers to.
		w.restart()
		for len(w.answers) > 0 {
			w.answer(0, false)
		}
		w.step(JobRestarting{})
		for len(w.answers) > 0 {
			w.answer(0, false)
		}
		w.now = w.now.Add(time.Hour)
		w.step(Tick{})
		keep := map[string]bool{}
		for _, f := range w.referenced() {
			keep[f] = true
		}
		for _, r := range c.Retained() {
			keep[r.Dir+"/_metadata"] = true
			for _, f := range r.exclusive {
				keep[f] = true
			}
		}
		for f := range w.disk {
			if !keep[f] && len(w.spared) == 0 && strings.HasPrefix(f, testDir+"/") {
				w.fatal("orphan %s", f)
			}
		}
		w.spared = map[string]bool{} // the end of the job is the end of them
		final := rapid.SampledFrom([]EndState{FinishedOK, Canceled, Failed}).Draw(t, "end")
		w.step(JobEnded{State: final})
		if final == FinishedOK {
			for f := range w.disk {
				if strings.HasPrefix(f, testDir+"/") {
					w.fatal("%s outlives the job", f)
				}
			}
		}
		for id := range w.asked {
			if w.answered[id] != 1 {
				w.fatal("request %s was answered %d times", id, w.answered[id])
			}
		}
		st := c.Stats()
		if st.Counts.InProgress != 0 || st.Counts.Total != st.Counts.Completed+st.Counts.Failed {
			w.fatal("counts %+v do not add up", st.Counts)
		}
	})
}
