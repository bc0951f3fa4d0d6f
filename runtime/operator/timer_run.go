package operator

import (
	"context"

	"github.com/thalweg/thalweg/state"
)

// At the end of the input all event-time timers fire, and those that they register meanwhile: a function that always registers the next one
// would go on for ever. It fails when endlessTimers were registered by timers, and each further one has endlessRounds before it in which all
// that waited fired: where timers of many keys register some each, many are no sign.
var (
	endlessTimers = 10_000_000
	endlessRounds = 100_000
)

// timerRun watches the timers that fire together, when event or processing time moves on.
type timerRun struct {
	ctx    *Context
	watch  *timerWatch
	waits  func() int // how many timers wait; nil unless event time has ended
	fired  int
	before int // timers that were registered before
	left   int // of the round
	rounds int
}

// runTimers fires the timers until a time by fire.
func runTimers[K comparable](ctx *Context, watch *timerWatch, timers state.Timers[K], until int64, event bool, fire func(state.Key[K], state.Namespace, int64) error) error {
	if at, ok := timers.Next(); !ok || at > until {
		return nil
	}
	r := timerRun{ctx: ctx, watch: watch}
	if event && until == MaxWatermark {
		r.waits, r.before = timers.Len, timers.Len()
		r.left = r.before
	}
	return timers.PopUntil(until, func(k state.Key[K], ns state.Namespace, at int64) error {
		if err := r.next(); err != nil {
			return err
		}
		return fire(k, ns, at)
	})
}

// next is called for each timer before it fires. Its error is that of a task which is to end, or whose timers have no end.
func (r *timerRun) next() error {
	r.fired++
	if r.fired%1024 == 0 {
		if life := r.ctx.Services.Context(); life.Err() != nil {
			return context.Cause(life)
		}
	}
	if r.waits == nil {
		return nil
	}
	if r.left == 0 {
		r.rounds++
		r.left = r.waits() + 1 // with the one that is to fire
	}
	r.left--
	n := r.fired - r.before
	if n < endlessTimers || r.rounds < endlessRounds {
		return nil
	}
	if r.watch.place == "" && n < 2*endlessTimers {
		r.watch.asked = true
		return nil
	}
	return r.ctx.wrap(lasting("event-time timers register the next one without end, at %s: the input is over, so that every timer fires, and %d were registered by timers since then; "+
		"register none when the watermark is stream.MaxWatermark", r.watch.place, n))
}
