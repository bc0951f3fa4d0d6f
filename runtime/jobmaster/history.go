package jobmaster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Recorded is an entry of the exception history. Root: it ended an attempt; the entries that are newer, up to the next root, came with it.
type Recorded struct {
	scheduler.Failure
	Root     bool
	Labels   map[string]string // LabelType, LabelCause; read-only
	Endpoint string            // host:port of the worker, "" when it is not known
}

// maxConcurrent is how many failures are remembered that came with one root.
const maxConcurrent = 64

func (j *JobMaster) recordFailure(e scheduler.FailureRecorded) {
	f := e.Failure
	r := Recorded{Failure: f, Root: e.Root, Labels: labelsOf(&f, j.operatorKind(&f)), Endpoint: j.endpoints[f.TaskManager]}
	j.logFailure(&r)
	at := 0
	if e.Root {
		// The cause of the root that is there already, of the same attempt: it takes its place, and the other one came with it.
		if old := slices.IndexFunc(j.history, func(r Recorded) bool { return r.Root }); old >= 0 && j.ending && j.history[old].Kind == "connection" {
			j.history[old].Root = false
			at = old + 1
		}
		j.root, j.ending = &f, true
	}
	j.remember(at, r)
}

func (j *JobMaster) logFailure(f *Recorded) {
	detail, text := f.Detail, "failure"
	if f.Kind == "panic" { // a job that restarts may fail so again and again: one stack will do
		if j.stacks[f.Message] {
			detail, text = "", "the same failure again"
		} else if len(j.stacks) < maxConcurrent {
			j.stacks[f.Message] = true
		}
	}
	line := j.log.Warn().Bool("root", f.Root).Str("kind", f.Kind).Str("type", f.Labels[LabelType])
	for _, s := range [...]struct{ key, value string }{{"task", f.Task}, {"container_id", f.TaskManager}, {"failure", f.Message}, {"detail", detail}} {
		if s.value != "" { // a failure of the job as a whole has no place
			line = line.Str(s.key, s.value)
		}
	}
	line.Msg(text)
}

// remember adds an entry, and forgets those of old roots and those that are too many for one.
func (j *JobMaster) remember(at int, r Recorded) {
	if !r.Root && len(j.history) >= maxConcurrent && !slices.ContainsFunc(j.history[:maxConcurrent], func(r Recorded) bool { return r.Root }) {
		return
	}
	j.history = slices.Insert(j.history, at, r)
	roots := 0
	for i := range j.history {
		if !j.history[i].Root {
			continue
		}
		if roots++; roots == config.ExceptionHistorySize.Value(j.opts.Config) {
			j.history = slices.Delete(j.history, i+1, len(j.history))
			return
		}
	}
}

// waiting is the kind of the failure that stands for what is waited for.
const waiting = "waiting"

// waitsFor shows f in the history, in place of what it showed there before.
func (j *JobMaster) waitsFor(f scheduler.Failure) {
	j.log.Warn().Str("failure", f.Message).Msg("what the job starts from cannot be read; trying again")
	if len(j.history) > 0 && j.history[0].Kind == waiting {
		j.history = j.history[1:]
	}
	j.remember(0, Recorded{Failure: f, Root: true, Labels: labelsOf(&f, "")})
}

// taskManagerExit completes the history: the container's end is known later than the broken link.
func (j *JobMaster) taskManagerExit(tm string, exit resourcemanager.Exit) {
	if exit.Preempted {
		j.step(scheduler.Forgive{TaskManager: tm})
	}
	for i := range j.history {
		f := &j.history[i]
		if f.TaskManager != tm || f.Kind != "taskmanager" || strings.Contains(f.Detail, "container ended") {
			continue
		}
		f.Detail = strings.TrimSpace(f.Detail + fmt.Sprintf("\nThe container ended with exit code %d: %s", exit.Code, exit.Text))
		switch {
		case exit.Memory:
			f.Labels = map[string]string{LabelType: "resources", LabelCause: "out-of-memory"}
		case exit.Preempted:
			f.Labels = map[string]string{LabelType: "infrastructure", LabelCause: "preempted"}
		}
		return
	}
}
