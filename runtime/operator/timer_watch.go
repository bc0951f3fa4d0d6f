package operator

import (
	"time"

	"github.com/thalweg/thalweg/connector"
)

// lateTimersMetric counts the calls of a function or trigger that registered a timer for a time that is over.
const lateTimersMetric = "numLateTimersRegistered"

// processingGrace is how far behind the clock a processing-time timer is not yet one in the past: a function that asks for "now" means it.
const processingGrace = int64(1000)

// firing is what kind of timer is being fired.
type firing uint8

const (
	noTimer firing = iota
	eventTimer
	processingTimer
)

// timerWatch looks at the timers that user code registers. Those in the past fire at the next opportunity, as in Flink, so they are no
// error; but most are a mistake, so they are counted, and the first of a subtask is logged with its place. A time that no timer can have is
// an error.
//
// In a timer's own call, the past is what is before it: with a watermark that moved by a minute, a timer that registers the next one each
// ten seconds is late by none.
type timerWatch struct {
	ctx    *Context
	count  connector.Counter
	told   bool
	first  string // the call that registered the first timer of this run, and its place; "" for none
	firing firing // the timer in whose call user code is, and its time
	at     int64
	asked  bool   // the place of the next registration of an event-time timer is wanted
	place  string // it
}

func (w *timerWatch) init(ctx *Context) { w.ctx, w.count = ctx, ctx.Metrics.Counter(lateTimersMetric) }

// fire notes that a timer's call begins, done that it is over.
func (w *timerWatch) fire(event bool, at int64) {
	if w.firing, w.at = processingTimer, at; event {
		w.firing = eventTimer
	}
}

func (w *timerWatch) done() { w.firing = noTimer }

// millis is t in milliseconds. method is the one that was called with it.
func (w *timerWatch) millis(method string, t time.Time) (int64, error) {
	if w.first == "" {
		w.first = method + " at " + userSite()
	}
	if t.IsZero() {
		return 0, lasting("%s at %s: the time is the zero time.Time, which is no time for a timer: Timestamp of a record that has no event time, "+
			"and Watermark before the first one, return it, with false", method, userSite())
	}
	ms, ok := Millis(t)
	if !ok {
		return 0, lasting("%s at %s: the time is out of range (more than 292 million years from 1970)", method, userSite())
	}
	return ms, nil
}

// valid is millis for times that are given in milliseconds.
func (w *timerWatch) valid(method string, at int64) error {
	if at <= ZeroTime {
		return lasting("%s at %s: %d ms is no time for a timer: it stands for a record without event time, or for no watermark", method, userSite(), at)
	}
	return nil
}

// event looks at an event-time timer.
func (w *timerWatch) event(method string, at, watermark int64) {
	if w.asked && w.place == "" {
		w.place = method + " at " + userSite()
	}
	over := watermark
	if w.firing == eventTimer {
		over = w.at
	}
	if at <= over {
		w.late(method, at, over)
	}
}

// processing looks at a processing-time timer.
func (w *timerWatch) processing(method string, at int64) {
	over := w.ctx.Now() - processingGrace
	if w.firing == processingTimer {
		over = min(over, w.at)
	}
	if at < over {
		w.late(method, at, over)
	}
}

func (w *timerWatch) late(method string, at, over int64) {
	w.count.Add(1)
	if w.told {
		return
	}
	w.told = true
	utc := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
	w.ctx.Logger.Warn().Str("operator", w.ctx.Describe()).Str("at", userSite()).Str("timer", utc(at)).Str("passed", utc(over)).
		Msg(method + " got a time that has passed already: the timer fires at the next opportunity. Such calls are counted as " + lateTimersMetric + "; this is told once")
}

// Unhandled is the error of a timer that came due in a function without timers: whoever registers one waits for it. embedded is the name of the
// type that says so. It is nil while this run has registered none: what is due then a former version of the function left in the state.
func Unhandled[K comparable](ctx *KeyedContext[K], timer Timer, embedded string) error {
	return ctx.watch.unhandled(timer, embedded)
}

func (w *timerWatch) unhandled(timer Timer, embedded string) error {
	if w.first == "" {
		return nil
	}
	return lasting("a timer for %s came due, and the function has no use for it: it embeds %s, whose OnTimer stands for a function without timers. "+
		"%s registered the first one: give the function an OnTimer of its own", timer.At.Format(time.RFC3339Nano), embedded, w.first)
}
