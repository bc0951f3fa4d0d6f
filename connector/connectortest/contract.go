package connectortest

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/connector"
)

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
