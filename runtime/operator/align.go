package operator

import (
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
)

// Alignment makes a source wait for the slower ones of its group. Times are in milliseconds. See package alignment.
type Alignment struct {
	Group           string
	Drift, Interval int64
}

// aligned is a source subtask's part of the alignment. It belongs to the task's goroutine.
type aligned struct {
	Alignment
	allowed int64 // highest watermark
	held    bool  // all splits are beyond it
	sent    int64 // the last report
	pauser  connector.SplitPauser
	single  bool         // splits need not be paused one by one
	drift   atomic.Int64 // for the metric
}

// startAlignment runs once the reader is there.
func (o *sourceOp) startAlignment() {
	if o.alignment == nil {
		return
	}
	a := &aligned{Alignment: *o.alignment, allowed: MinWatermark, sent: MinWatermark, single: config.UnalignedSplits.Value(o.ctx.Config)}
	a.pauser, _ = o.reader.(connector.SplitPauser)
	o.align = a
	o.ctx.Metrics.Gauge("watermarkAlignmentDrift", func() float64 { return float64(a.drift.Load()) })
	var again func() error
	again = func() error {
		o.report()
		if !o.finished {
			o.ctx.After(max(a.Interval, 1), again)
		}
		return nil
	}
	o.ctx.After(max(a.Interval, 1), again)
}

// report tells the coordinator where this subtask is, if that is news.
func (o *sourceOp) report() {
	a := o.align
	w := max(o.emitted, o.least())
	if o.idle || o.finished {
		w = MaxWatermark
	}
	if w != a.sent {
		a.sent = w
		o.send(SourceEvent{Watermark: &w})
	}
}

// least is the watermark that the splits have reached, emitted or not; MinWatermark without splits.
func (o *sourceOp) least() int64 {
	least, live := MaxWatermark, false
	o.each(func(s *split) {
		if !s.out.idle && !s.idle {
			least, live = min(least, o.mark(s)), true
		}
	})
	if !live {
		return MinWatermark
	}
	return least
}

// hold reports whether the subtask has to wait for others of its group, and pauses and resumes single splits where it has not.
func (o *sourceOp) hold() bool {
	a := o.align
	least := o.least()
	a.held = least > a.allowed
	if a.allowed != MinWatermark && a.allowed != MaxWatermark && least != MinWatermark {
		a.drift.Store(least - (a.allowed - a.Drift))
	}
	if a.pauser != nil && (len(o.splits) > 1 || o.paused > 0) {
		var pause, resume []string
		for id, s := range o.splits {
			switch beyond := o.mark(s) > a.allowed; {
			case beyond && !s.paused:
				pause = append(pause, id)
			case !beyond && s.paused:
				resume = append(resume, id)
			default:
				continue
			}
			s.paused = !s.paused
		}
		if o.paused += len(pause) - len(resume); len(pause)+len(resume) > 0 {
			a.pauser.PauseSplits(pause, resume)
		}
	}
	if a.held {
		o.report() // the others may be waiting for this
	}
	return a.held
}

// checkAlignable refuses several splits that cannot be aligned with each other.
func (o *sourceOp) checkAlignable() error {
	if a := o.align; a == nil || a.pauser != nil || a.single || len(o.splits) < 2 {
		return nil
	}
	return o.ctx.wrap(&connector.ContractError{Rule: "alignable", Detail: fmt.Sprintf("watermark alignment (group %q) needs a reader that can pause single splits (connector.SplitPauser) since this subtask reads %d of them; %T cannot. "+
		"Give the source as many subtasks as it has splits, or set %s: true to align its subtasks only", o.align.Group, len(o.splits), o.reader, config.UnalignedSplits.Key)})
}
