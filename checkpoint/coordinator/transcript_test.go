package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/internal/transcript"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The graph of all tests: a source with a coordinator half, then a keyed window, 2 subtasks each.
var (
	sourceID = graph.VertexID{ID: graph.ID{1}}
	windowID = graph.VertexID{ID: graph.ID{2}}
)

func testGraph(coordinated bool) graph.JobGraph {
	return graph.JobGraph{Name: "job", Vertices: []graph.Vertex{
		{ID: sourceID, Name: "src", Parallelism: 2, MaxParallelism: 128, Operators: []graph.Operator{
			{ID: graph.OperatorID(sourceID), Name: "src", Source: true, Stateful: true, Coordinate: coordinated}}},
		{ID: windowID, Name: "win", Parallelism: 2, MaxParallelism: 128, Operators: []graph.Operator{
			{ID: graph.OperatorID(windowID), Name: "win", UID: "win", Keyed: true, Stateful: true}}},
	}}
}

func testTasks(attempt int) (out []Task) {
	for _, v := range []graph.VertexID{sourceID, windowID} {
		for i := range 2 {
			out = append(out, Task{Execution: graph.ExecutionID{Vertex: v, Subtask: i, Attempt: attempt}, Source: v == sourceID})
		}
	}
	return out
}

const testDir = "hdfs://nn/ckp/job"

// Each testdata/*.txt is a script: commands, "----", the effects. `go test -rewrite` writes the effects anew; read the difference.
func TestTranscripts(t *testing.T) { transcript.Run(t, runScript) }

func runScript(t *testing.T, text string) string {
	var out strings.Builder
	s := &script{t: t, now: time.Unix(0, 0).UTC()}
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "\n----")
		var effects []string
		for _, line := range strings.Split(commands, "\n") {
			out.WriteString(line + "\n")
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				effects = append(effects, s.run(line)...)
			}
		}
		if strings.Contains(block, "\n----") || len(effects) > 0 {
			out.WriteString("----\n")
		}
		for _, e := range effects {
			out.WriteString(e + "\n")
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

type script struct {
	t    *testing.T
	now  time.Time
	cfg  Config
	c    *Coordinator
	args map[string]string
}

func (s *script) duration(key string, def time.Duration) time.Duration {
	if s.args[key] == "" {
		return def
	}
	d, err := time.ParseDuration(s.args[key])
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) int(key string, def int) int {
	if s.args[key] == "" {
		return def
	}
	n, err := strconv.Atoi(s.args[key])
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) err() error {
	if s.args["err"] == "" {
		return nil
	}
	return errors.New(strings.ReplaceAll(s.args["err"], "_", " "))
}

// run carries out one command: a word, bare words, key=value pairs. "+10s" before the word lets time pass first.
func (s *script) run(line string) []string {
	var words []string
	s.args = map[string]string{}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			s.args[k] = v
		} else if d, ok := strings.CutPrefix(f, "+"); ok && len(words) == 0 {
			pass, err := time.ParseDuration(d)
			if err != nil {
				s.t.Fatal(err)
			}
			s.now = s.now.Add(pass)
		} else {
			words = append(words, f)
		}
	}
	if len(words) == 0 {
		words = []string{"tick"}
	}
	id := int64(0)
	if len(words) > 1 {
		id, _ = strconv.ParseInt(words[1], 10, 64)
	}
	var ev Event
	switch words[0] {
	case "config":
		s.cfg = Config{Graph: testGraph(!slices.Contains(words, "uncoordinated")), JobID: graph.JobID{ID: graph.ID{7}}, Dir: testDir,
			Interval: s.duration("interval", 10*time.Second), Timeout: s.duration("timeout", time.Minute), MinPause: s.duration("min-pause", 0),
			Tolerable: s.int("tolerable", 0), MaxConcurrent: s.int("max", 1), Unaligned: slices.Contains(words, "unaligned"),
			Retained: s.int("retained", 1), FirstID: int64(s.int("first", 1)), ReservedID: int64(s.int("reserved", 1<<20))}
		switch s.args["retention"] {
		case "delete-on-cancellation":
			s.cfg.Retention = DeleteOnCancellation
		case "none":
			s.cfg.Retention = NoRetention
		}
		if dir := s.args["restored"]; dir != "" {
			h := state.Handle{Range: state.Range{End: 128}, Files: []state.File{
				{Ref: state.FileRef{Name: "5-ex", Size: 1, Base: dir}}, {Ref: state.FileRef{Name: "../shared/5-sh", Size: 1, Base: dir, Scope: state.Shared}}}}
			e := Completed{ID: 5, Dir: dir, Owned: slices.Contains(words, "claim"), Checkpoint: metadata.Checkpoint{ID: 5, Operators: []metadata.Operator{
				{ID: graph.OperatorID(windowID), Subtasks: []metadata.Subtask{{Keyed: []state.Handle{h}}}}}}}
			if slices.Contains(words, "savepoint") {
				e.Kind = Savepoint
			}
			s.cfg.Existing = []Completed{e}
		}
		c, err := New(s.cfg)
		if err != nil {
			s.t.Fatal(err)
		}
		s.c = c
		return nil
	case "tick":
		ev = Tick{}
	case "running":
		ev = TasksRunning{Tasks: testTasks(s.int("attempt", 0))}
	case "trigger":
		t := Trigger{RequestID: s.args["request"], Dir: s.args["dir"], Drain: slices.Contains(words, "drain"), Full: slices.Contains(words, "full")}
		t.Canonical = (words[1] == "savepoint" || words[1] == "stop") && !slices.Contains(words, "native")
		switch words[1] {
		case "savepoint":
			t.Kind = Savepoint
		case "stop":
			t.Kind = StopWithSavepoint
		default:
			t.Kind = Manual
		}
		ev = t
	case "coordinators":
		ev = CoordinatorSnapshot{ID: id, States: map[graph.OperatorID][]byte{graph.OperatorID(sourceID): []byte("splits")}, Err: s.err()}
	case "ack":
		ev = s.ack(id, words[2])
	case "acks":
		var out []string
		for _, task := range []string{"src/0", "src/1", "win/0", "win/1"} {
			out = append(out, s.step(s.ack(id, task))...)
		}
		return out
	case "decline":
		ev = Decline{ID: id, Execution: s.execution(words[2]), Reason: "disk full", TaskFailed: slices.Contains(words, "failing")}
	case "restarting":
		ev = JobRestarting{Reason: "worker died", Part: slices.Contains(words, "part")}
	case "fall-back":
		ev = FallBack{To: id}
	case "written":
		ev = MetadataWritten{ID: id, Path: "x/_metadata", Size: 100, Err: s.err()}
	case "pointer":
		ev = PointerStored{ID: id, Err: s.err()}
	case "reserved":
		ev = IDsReserved{UpTo: id, Err: s.err()}
	case "end-of-data":
		ev = EndOfData{}
	case "ended":
		ev = JobEnded{State: map[string]EndState{"FINISHED": FinishedOK, "CANCELED": Canceled, "FAILED": Failed, "SUSPENDED": Suspended}[words[1]]}
	case "show":
		return s.show()
	default:
		s.t.Fatalf("unknown command %q", line)
	}
	return s.step(ev)
}

func (s *script) step(ev Event) (out []string) {
	for _, e := range s.c.Step(s.now, ev) {
		out = append(out, s.format(e))
	}
	return out
}

func (s *script) execution(task string) graph.ExecutionID {
	v, sub, _ := strings.Cut(task, "/")
	e := graph.ExecutionID{Vertex: map[string]graph.VertexID{"src": sourceID, "win": windowID}[v], Attempt: s.int("attempt", 0)}
	e.Subtask, _ = strconv.Atoi(sub)
	return e
}

// ack reports list state for sources, and for windows a handle with the files given: file=a,b (exclusive) and shared=a,b.
func (s *script) ack(id int64, task string) Ack {
	a := Ack{ID: id, Execution: s.execution(task), Stats: TaskStats{Size: 100, New: 10, Sync: time.Millisecond}}
	if a.Execution.Vertex == sourceID {
		a.State.Operators = []metadata.TaskOperator{{ID: graph.OperatorID(sourceID), State: metadata.Subtask{Lists: []metadata.ListState{{Name: "splits", Items: [][]byte{{1}}}}}}}
		return a
	}
	h := state.Handle{Format: "pebble", Range: state.RangeOf(128, 2, a.Execution.Subtask)}
	add := func(key, prefix string, scope state.Scope) {
		for _, f := range strings.FieldsFunc(s.args[key], func(r rune) bool { return r == ',' }) {
			h.Files = append(h.Files, state.File{Ref: state.FileRef{Name: prefix + f, Size: 1, Scope: scope, Base: s.args["base"]}})
		}
	}
	add("file", "", state.Exclusive)
	add("shared", "../shared/", state.Shared)
	a.State.Operators = []metadata.TaskOperator{{ID: graph.OperatorID(windowID), State: metadata.Subtask{Keyed: []state.Handle{h}}}}
	return a
}

func names(tasks []graph.ExecutionID) string {
	var out []string
	for _, e := range tasks {
		out = append(out, fmt.Sprintf("%s/%d#%d", map[graph.VertexID]string{sourceID: "src", windowID: "win"}[e.Vertex], e.Subtask, e.Attempt))
	}
	return strings.Join(out, " ")
}

func short(list []string) string {
	out := slices.Clone(list)
	for i := range out {
		out[i] = strings.TrimPrefix(strings.TrimPrefix(out[i], testDir+"/"), testDir)
		if out[i] == "" {
			out[i] = "<job directory>"
		}
	}
	return strings.Join(out, " ")
}

func (s *script) format(e Effect) string {
	var b strings.Builder
	field := func(k string, v any) {
		if t := fmt.Sprint(v); t != "" && t != "false" {
			if t == "true" {
				fmt.Fprintf(&b, " %s", k)
			} else {
				fmt.Fprintf(&b, " %s=[%s]", k, t)
			}
		}
	}
	switch e := e.(type) {
	case SnapshotCoordinators:
		fmt.Fprintf(&b, "SnapshotCoordinators %d", e.ID)
	case TriggerTasks:
		fmt.Fprintf(&b, "TriggerTasks %d", e.ID)
		field("tasks", names(e.Tasks))
		field("exclusive", short([]string{e.Options.ExclusiveDir}))
		field("shared", short([]string{e.Options.SharedDir}))
		field("savepoint", e.Options.Savepoint)
		field("canonical", e.Options.Canonical)
		field("suspend", e.Options.Suspend)
		field("drain", e.Options.Drain)
		field("full", e.Options.Full)
		if e.Options.Base > 0 {
			field("base", e.Options.Base)
		}
	case WriteMetadata:
		fmt.Fprintf(&b, "WriteMetadata %d", e.ID)
		field("dir", short([]string{e.Dir}))
		for _, o := range e.Checkpoint.Operators {
			field(o.Name, len(o.Subtasks))
		}
		field("coordinators", len(e.Checkpoint.Coordinators))
		field("deadline", e.Deadline.Sub(time.Unix(0, 0)))
	case StorePointer:
		fmt.Fprintf(&b, "StorePointer %d", e.ID)
		field("dir", short([]string{e.Dir}))
	case ReserveIDs:
		fmt.Fprintf(&b, "ReserveIDs up to %d", e.UpTo)
	case NotifyComplete:
		fmt.Fprintf(&b, "NotifyComplete %d", e.ID)
		field("tasks", names(e.Tasks))
	case NotifyAborted:
		fmt.Fprintf(&b, "NotifyAborted %d", e.ID)
		field("resume", e.Resume)
	case FinishTasks:
		fmt.Fprintf(&b, "FinishTasks")
		field("tasks", names(e.Tasks))
	case Discard:
		fmt.Fprintf(&b, "Discard (%s)", e.Reason)
		field("files", short(e.Files))
		field("dirs", short(e.Dirs))
		field("empty-dirs", short(e.EmptyDirs))
		if e.Written != 0 {
			fmt.Fprintf(&b, " written=%d", e.Written)
		}
	case Sweep:
		fmt.Fprintf(&b, "Sweep below %d", e.Below)
		field("keep", short(append(slices.Clone(e.Keep.Dirs), e.Keep.Files...)))
	case FailJob:
		fmt.Fprintf(&b, "FailJob %s", e.Reason)
		field("fenced", e.Fenced)
	case Finished:
		fmt.Fprintf(&b, "Finished %s %d", e.RequestID, e.ID)
		field("path", short([]string{e.Path}))
		if e.Err != nil {
			field("error", e.Err)
		}
	default:
		fmt.Fprintf(&b, "%#v", e)
	}
	return b.String()
}

func (s *script) show() []string {
	var out []string
	if l, ok := s.c.Latest(); ok {
		out = append(out, fmt.Sprintf("latest %d at %s, settled %v", l.ID, short([]string{l.Dir}), s.c.Settled()))
	} else {
		out = append(out, "latest none")
	}
	var dirs []string
	for _, r := range s.c.Retained() {
		dirs = append(dirs, r.Dir)
	}
	st := s.c.Stats()
	out = append(out, "retained "+short(dirs), fmt.Sprintf("pending %s, counts %+v", cmp.Or(strings.Trim(fmt.Sprint(s.c.Pending()), "[]"), "0"), st.Counts))
	if at, ok := s.c.Deadline(); ok {
		out = append(out, "next tick at "+at.Sub(time.Unix(0, 0)).String())
	} else {
		out = append(out, "no next tick")
	}
	return out
}
