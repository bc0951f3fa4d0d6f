package scheduler

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/transcript"
	"github.com/thalweg/thalweg/runtime/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Transcripts: lines that begin with ">" are events, the lines below them the effects. "#" is a comment. The first lines set the job up:
//
//	job <vertex>:<parallelism>[:<group>] ... [checkpoints] [adaptive] [batch <from>><to> ...] [apart <from>><to> ...] [key=value ...]
//	> at 5s task a 0 RUNNING
func TestTranscripts(t *testing.T) { transcript.Run(t, play) }

type player struct {
	t     *testing.T
	s     *Scheduler
	names map[string]graph.VertexID
	back  map[graph.VertexID]string
	at    time.Time
}

func play(t *testing.T, in string) string {
	p := &player{t: t, names: map[string]graph.VertexID{}, back: map[graph.VertexID]string{}, at: time.Unix(0, 0)}
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimRight(in, "\n"), "\n") {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#") || line == "":
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "job "):
			p.job(f[1:])
			fmt.Fprintln(&out, line)
		case f[0] == ">":
			fmt.Fprintln(&out, line)
			args := f[1:]
			if args[0] == "at" {
				d, err := time.ParseDuration(args[1])
				if err != nil {
					t.Fatal(err)
				}
				p.at = time.Unix(0, 0).Add(d)
				args = args[2:]
			}
			for _, ev := range p.events(args) {
				for _, e := range p.s.Step(p.at, ev) {
					fmt.Fprintln(&out, "  "+p.show(e))
				}
			}
			if at, ok := p.s.Deadline(); ok {
				fmt.Fprintf(&out, "  (tick at %s)\n", at.Sub(time.Unix(0, 0)))
			}
		}
	}
	return out.String()
}

func (p *player) job(args []string) {
	g := &graph.JobGraph{Name: "job"}
	conf := config.Configuration{}
	cfg := Config{Graph: g}
	exchange, apart := graph.Pipelined, false // each vertex is fed by the one before, unless they are apart
	for _, a := range args {
		if k, v, ok := strings.Cut(a, "="); ok {
			conf[k] = v
			continue
		}
		if a == "batch" { // vertices whose names begin with "sink" commit
			g.Mode, exchange = graph.Batch, graph.Blocking
			for i := range g.Vertices {
				if strings.HasPrefix(g.Vertices[i].Name, "sink") {
					g.Vertices[i].Operators = []graph.Operator{{Kind: "sink", Stateful: true}}
				}
			}
			continue
		}
		if a == "apart" {
			apart = true
			continue
		}
		if from, to, ok := strings.Cut(a, ">"); ok {
			v := g.Vertex(p.names[to])
			v.Inputs = append(v.Inputs, graph.Input{From: p.names[from], Exchange: exchange})
			continue
		}
		if a == "adaptive" {
			cfg.Requirements = Elastic(g)
			continue
		}
		if a == "checkpoints" {
			cfg.Checkpoints = true
			conf[config.CheckpointInterval.Key] = "10s"
			continue
		}
		f := strings.Split(a, ":")
		n, err := strconv.Atoi(f[1])
		if err != nil {
			p.t.Fatal(err)
		}
		id := graph.VertexID{ID: graph.ID{15: byte(len(g.Vertices) + 1)}}
		p.names[f[0]], p.back[id] = id, f[0]
		v := graph.Vertex{ID: id, Name: f[0], Parallelism: n, MaxParallelism: 128}
		if len(f) > 2 {
			v.SlotSharingGroup = f[2]
		}
		g.Vertices = append(g.Vertices, v)
	}
	for i := range g.Vertices {
		if i > 0 && g.Mode != graph.Batch && !apart {
			g.Vertices[i].Inputs = []graph.Input{{From: g.Vertices[i-1].ID}}
		}
	}
	cfg.Full = config.FailoverStrategy.Value(conf) == "full"
	cfg.Strategy = StrategyOf(conf, g.Mode)
	cfg.Rescaling = Rescaling{Wait: config.AdaptiveWait.Value(conf), Stabilization: config.AdaptiveStabilization.Value(conf), Cooldown: config.AdaptiveCooldown.Value(conf),
		ExecutingStabilization: config.AdaptiveExecutingStabilization.Value(conf), Checkpoint: true, MaxDelay: 10 * time.Minute,
		MaxFailures: config.RescaleMaxFailures.Value(conf), Patience: config.SlotRequestTimeout.Value(conf), Off: !cfg.Checkpoints}
	s, err := New(cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.s = s
}

func (p *player) events(a []string) []Event {
	num := func(i int) int {
		n, err := strconv.Atoi(a[i])
		if err != nil {
			p.t.Fatal(err)
		}
		return n
	}
	failure := func(words []string) Failure {
		f := Failure{Kind: "error"}
		for _, w := range words {
			switch w {
			case "fatal":
				f.Fatal = true
			case "death":
				f.Death = true
			case "free":
				f.Free = true
			case "connection":
				f.Kind, f.Death = "connection", true
			default:
				if name, ok := strings.CutPrefix(w, "lost:"); ok { // the partition of a vertex's first task
					f.Kind, f.Lost = "partition", p.s.Vertex(p.names[name]).Tasks[0].ID
					continue
				}
				f.Message = strings.TrimSpace(f.Message + " " + w)
			}
		}
		return f
	}
	switch a[0] {
	case "start":
		return []Event{Start{}}
	case "prepared": // prepared tm:slot ...
		return []Event{Prepared{Attempt: p.s.Attempt(), Slots: p.slots(a[1:])}}
	case "slots": // slots tm:slot ... [leaving tm[=when] ...]
		e := SlotsReady{}
		if i := slices.Index(a, "leaving"); i > 0 {
			e.Leaving = map[string]time.Time{}
			for _, w := range a[i+1:] {
				tm, when, ok := strings.Cut(w, "=")
				e.Leaving[tm] = time.Time{}
				if d, err := time.ParseDuration(when); ok && err == nil {
					e.Leaving[tm] = time.Unix(0, 0).Add(d)
				}
			}
			a = a[:i]
		}
		e.Slots = p.slots(a[1:])
		return []Event{e}
	case "require": // require vertex=lower-upper ...
		r := Requirements{}
		for _, s := range a[1:] {
			name, both, _ := strings.Cut(s, "=")
			var b Bounds
			if _, err := fmt.Sscanf(both, "%d-%d", &b.Lower, &b.Upper); err != nil {
				p.t.Fatal(err)
			}
			r[p.names[name]] = b
		}
		return []Event{Require{r}}
	case "tick":
		return []Event{Tick{}}
	case "rescale-failed":
		return []Event{RescaleFailed{}}
	case "task": // task vertex subtask state [failure]
		id := p.s.Vertex(p.names[a[1]]).Tasks[num(2)].ID
		return []Event{p.taskEvent(id, a[3], failure(a[4:]))}
	case "old": // old vertex subtask attempt state
		id := graph.ExecutionID{Vertex: p.names[a[1]], Subtask: num(2), Attempt: num(3)}
		return []Event{p.taskEvent(id, a[4], failure(a[5:]))}
	case "all": // all state
		var out []Event
		for _, v := range p.s.Vertices() {
			for _, x := range v.Tasks {
				out = append(out, p.taskEvent(x.ID, a[1], Failure{}))
			}
		}
		return out
	case "down": // down tm [process] reason
		e := WorkerDown{TaskManager: a[1]}
		words := a[2:]
		if len(words) > 0 && words[0] == "process" {
			e.Process, words = true, words[1:]
		}
		e.Failure = failure(words)
		e.Failure.Death, e.Failure.Kind = true, "taskmanager"
		return []Event{e}
	case "fail":
		return []Event{Fail{failure(a[1:])}}
	case "restart":
		return []Event{RestartDue{p.s.Attempt()}}
	case "stuck":
		return []Event{CancelStuck{Attempt: p.s.Attempt()}}
	case "cancel":
		return []Event{CancelJob{}}
	case "stop":
		return []Event{Stop{Drain: len(a) > 1}}
	case "prepared-commits": // vertex
		return []Event{CommitPrepared{p.s.Vertex(p.names[a[1]]).Tasks[0].ID}}
	case "kept-commits": // vertex
		return []Event{CommitsKept{p.names[a[1]]}}
	case "stopped":
		return []Event{StopDone{a[1] == "ok"}}
	case "final":
		return []Event{FinalDone{a[1] == "ok"}}
	case "checkpoint":
		return []Event{CheckpointDone{}}
	case "forgive":
		return []Event{Forgive{a[1]}}
	case "suspend":
		return []Event{Suspend{failure(a[1:])}}
	}
	p.t.Fatalf("unknown event %v", a)
	return nil
}

func (p *player) slots(words []string) (out []Slot) {
	for _, s := range words {
		tm, i, _ := strings.Cut(s, ":")
		n, err := strconv.Atoi(i)
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, Slot{tm, n})
	}
	return out
}

func (p *player) taskEvent(id graph.ExecutionID, state string, f Failure) TaskChanged {
	e := TaskChanged{ID: id, State: TaskState(state)}
	if state == "END_OF_DATA" {
		e.State, e.EndOfData = TaskRunning, true
	}
	if e.State == TaskFailed || e.State == TaskCanceling {
		e.Failure = &f
	}
	return e
}

func (p *player) id(id graph.ExecutionID) string {
	return fmt.Sprintf("%s/%d#%d", p.back[id.Vertex], id.Subtask, id.Attempt)
}

func (p *player) ids(ids []graph.ExecutionID) string {
	var out []string
	for _, id := range ids {
		out = append(out, p.id(id))
	}
	return strings.Join(out, " ")
}

func (p *player) show(e Effect) string {
	switch e := e.(type) {
	case JobChanged:
		return fmt.Sprintf("job %s -> %s", e.From, e.To)
	case TaskMoved:
		return fmt.Sprintf("task %s %s -> %s", p.id(e.ID), e.From, e.To)
	case RequireSlots:
		if e.Keep != nil {
			return fmt.Sprintf("slots %d, keep %v", e.N, e.Keep)
		}
		return fmt.Sprintf("slots %d", e.N)
	case Rescaled:
		var out []string
		for _, v := range e.Graph.Vertices {
			out = append(out, fmt.Sprintf("%s=%d", v.Name, v.Parallelism))
		}
		return "rescaled " + strings.Join(out, " ")
	case TriggerRescale:
		return "checkpoint to rescale"
	case RescaleEnded:
		if e.Failure != "" {
			return "rescale failed: " + e.Failure
		}
		return "rescale done"
	case Prepare:
		if s := fmt.Sprintf("prepare #%d restart=%t", e.Attempt, e.Restart); !e.Part {
			return s
		}
		var names []string
		for _, v := range e.Vertices {
			names = append(names, p.back[v])
		}
		return fmt.Sprintf("prepare #%d of %s", e.Attempt, strings.Join(names, " "))
	case PrepareCommit:
		return "prepare commits " + p.ids(e.IDs)
	case KeepCommits:
		return "keep commits of " + p.back[e.Vertex]
	case StageFinished:
		var names []string
		for _, v := range e.Vertices {
			names = append(names, p.back[v])
		}
		return "stage finished: " + strings.Join(names, " ")
	case Commit:
		return "commit " + p.ids(e.IDs)
	case ReleasePartitions:
		return "release " + p.ids(e.IDs)
	case Deploy:
		var out []string
		for _, t := range e.Tasks {
			s := fmt.Sprintf("%s@%s:%d", p.id(t.ID), t.Slot.TaskManager, t.Slot.Index)
			if t.CommitOnly {
				s += "(commits)"
			}
			out = append(out, s)
		}
		return "deploy " + strings.Join(out, " ")
	case AllRunning:
		return fmt.Sprintf("all running #%d", e.Attempt)
	case StopCheckpoints:
		if e.Part {
			return "stop checkpoints, of a part: " + e.Reason
		}
		return "stop checkpoints: " + e.Reason
	case CancelTasks:
		return "cancel " + p.ids(e.IDs)
	case FinishTasks:
		return "finish " + p.ids(e.IDs)
	case KillWorkers:
		return "kill workers of " + strings.Join(e.TaskManagers, " ")
	case TriggerFinal:
		return fmt.Sprintf("final checkpoint after %s", e.After)
	case TriggerStop:
		return fmt.Sprintf("savepoint to stop, drain=%t", e.Drain)
	case ScheduleRestart:
		return fmt.Sprintf("restart #%d after %s jitter %g", e.Attempt, e.After, e.Jitter)
	case FailureRecorded:
		return fmt.Sprintf("failure %q of %q on %q root=%t", e.Failure.Message, e.Failure.Task, e.Failure.TaskManager, e.Root)
	case Ended:
		if e.Failure != nil {
			return fmt.Sprintf("ended %s: %s (%s)", e.State, e.Failure.Message, e.Failure.Detail)
		}
		return fmt.Sprintf("ended %s", e.State)
	}
	return fmt.Sprintf("%+v", e)
}
