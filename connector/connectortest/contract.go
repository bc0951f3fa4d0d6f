package connectortest

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/guard"
)

// stillness is how long a suite waits while nothing moves.
var stillness = 20 * time.Second

// play is Until for a bounded source, which goes on until it ends: one that stands still fails the test with what it waits for.
func (r *SourceRun[T]) play(what string, cond func() bool) {
	r.tb.Helper()
	moved, since, still := r.moved, time.Now(), false
	r.Until(what, func() bool {
		if r.moved != moved {
			moved, since = r.moved, time.Now()
		}
		still = time.Since(since) > stillness
		return still || cond()
	})
	if r.err != nil { // also when the source has ended
		r.tb.Fatalf("attempt failed while waiting for %s: %v", what, r.err)
	}
	if still && !cond() {
		r.tb.Fatal(r.stands(what))
	}
}

// stands is the rule that a source which stands still breaks.
func (r *SourceRun[T]) stands(what string) error {
	var untold, unended []int
	for _, rd := range r.readers {
		switch {
		case rd.ended:
		case rd.noMore:
			unended = append(unended, rd.sub)
		default:
			untold = append(untold, rd.sub)
		}
	}
	if len(untold) > 0 {
		return r.violated("no-more-splits", "waited for %s, and nothing came for %v: the enumerator has not called NoMoreSplits for subtasks %v, whose readers wait for splits: "+
			"a bounded source calls it for each reader when no split can come any more, also for those that ask later and after a restore", what, stillness, untold)
	}
	return r.violated("end", "waited for %s, and nothing came for %v: the readers of subtasks %v were told NoMoreSplits and do not say EndOfInput: "+
		"say it when all splits are read, and let the channel of Available be ready when there is something to poll", what, stillness, unended)
}

// guarded plays a part of a suite: a panic of the connector fails it, and does not end all tests of the process.
func guarded(tb testing.TB, fn func()) {
	tb.Helper()
	if err := panics(fn); err != nil {
		tb.Fatal(err)
	}
}

// panics runs fn; a panic is a broken rule.
func panics(fn func()) (broken error) {
	defer func() {
		if v := recover(); v != nil {
			p := guard.Panicked("", v)
			broken = &connector.ContractError{Rule: "panic", Detail: fmt.Sprintf("%s ends in a %v: return an error instead\n%s", panickedIn(), p, p.Stack)}
		}
	}()
	fn()
	return nil
}

// panickedIn is the function of the connector that this package called and that panicked.
func panickedIn() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	panicked, name := false, "the connector"
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case !panicked || strings.HasPrefix(f.Function, "runtime."):
		case strings.Contains(f.Function, "/connector/connectortest.") && !strings.HasSuffix(f.File, "_test.go"):
			return name
		default:
			name = f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		}
		if !more {
			return name
		}
	}
}

// fault is an error of an attempt, and how often it was there.
type fault struct {
	key string // its rule, or its text
	err error
	n   int
}

// fail notes an error of the attempt; nil is none. A reader may break one rule with each record: each is told once, with the number.
func (r *SourceRun[T]) fail(err error) {
	if err == nil {
		return
	}
	key := err.Error()
	var broken *connector.ContractError
	if errors.As(err, &broken) {
		key = broken.Rule
		if broken == r.violation { // it came back from the reader
			return
		}
	}
	at := slices.IndexFunc(r.faults, func(f fault) bool { return f.key == key })
	if at < 0 {
		at, r.faults = len(r.faults), append(r.faults, fault{key: key, err: err})
	}
	r.faults[at].n++
	all := make([]error, len(r.faults))
	for i, f := range r.faults {
		if all[i] = f.err; f.n > 1 {
			all[i] = fmt.Errorf("%w (%d times)", f.err, f.n)
		}
	}
	r.err = errors.Join(all...)
}

// violated notes that the source broke a rule of package connector, and returns it as an error.
func (r *SourceRun[T]) violated(rule, format string, args ...any) error {
	err := &connector.ContractError{Rule: rule, Detail: fmt.Sprintf("source %T: ", r.src) + fmt.Sprintf(format, args...)}
	r.fail(err)
	r.violation = err
	return err
}

// add gives splits to the reader.
func (rd *readerRun[T]) add(splits []connector.Split) error {
	for _, s := range splits {
		switch {
		case s.ID == "":
			return rd.run.violated("split-id", "a split of subtask %d has no id", rd.sub)
		case rd.assigned[s.ID] && !rd.released[s.ID]:
			return rd.run.violated("split-assigned-once", "split %q was given to subtask %d, which reads it already", s.ID, rd.sub)
		case rd.ended:
			return rd.run.violated("end", "split %q came to subtask %d after its reader had said EndOfInput", s.ID, rd.sub)
		}
		rd.run.moved++
		rd.assigned[s.ID] = true
		delete(rd.released, s.ID)
		delete(rd.outs, s.ID)
	}
	return rd.r.AddSplits(splits)
}

// took takes what a Poll ended with; busy says that the reader wants to be polled again at once.
func (rd *readerRun[T]) took(st connector.Status) (busy bool) {
	switch st {
	case connector.MoreAvailable:
		return true
	case connector.NothingAvailable:
		if rd.r.Available() == nil {
			_ = rd.run.violated("available", "the reader of subtask %d has nothing available, and no channel that says when it has", rd.sub)
		}
	case connector.EndOfInput:
		if !rd.noMore {
			_ = rd.run.violated("end", "the reader of subtask %d says EndOfInput before NoMoreSplits: splits that come later would be lost", rd.sub)
		}
		for _, id := range slices.Sorted(maps.Keys(rd.outs)) {
			if !rd.released[id] {
				_ = rd.run.violated("split-ended", "the reader of subtask %d says EndOfInput and did not release split %q (Output.ReleaseSplit) when it was read to its end: it would hold the watermark back while others are read", rd.sub, id)
			}
		}
		rd.ended = true
		rd.run.moved++
	default:
		_ = rd.run.violated("poll-status", "Poll of subtask %d returned the status %d, which there is not", rd.sub, st)
	}
	return false
}

// pauseSome pauses and resumes splits at random.
func (rd *readerRun[T]) pauseSome() (resumed bool) {
	p, ok := rd.r.(connector.SplitPauser)
	if !ok {
		return false
	}
	var pause, resume []string
	for id := range rd.assigned {
		switch {
		case rd.paused[id] && rd.run.pauses.IntN(3) == 0:
			resume = append(resume, id)
			delete(rd.paused, id)
		case !rd.paused[id] && !rd.released[id] && rd.run.pauses.IntN(8) == 0:
			pause = append(pause, id)
			rd.paused[id] = true
		}
	}
	if len(pause)+len(resume) > 0 {
		p.PauseSplits(pause, resume)
	}
	return len(rd.paused) > 0 || len(resume) > 0
}
