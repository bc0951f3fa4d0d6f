package operator

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
)

// emission is what everything that a function emits through shares: the meta data of the record or timer being processed, and the first
// error from downstream, after which nothing more is emitted.
type emission struct {
	ctx   *Context
	m     Meta
	err   error
	phase phase
	stray atomic.Pointer[error]
}

// phase is what a function may do with its emission.
type phase uint8

const (
	shut     phase = iota // no call of the function is at work, or something has failed downstream
	open                  // a call is at work: it may emit
	emitting              // it emits: what it emitted has not returned
)

// begin makes a record's or a timer's meta data current, for a call of user code that may emit. done ends it.
func (e *emission) begin(m Meta) {
	e.m = m
	e.resume()
}

// resume lets the function emit, unless something has failed downstream.
func (e *emission) resume() {
	e.phase = shut
	if e.err == nil {
		e.phase = open
	}
}

// done is the result of a call of user code that returned err. What panicked downstream has not come back: if the function goes on all the
// same, it has recovered that.
func (e *emission) done(err error) error {
	was := e.phase
	e.phase = shut
	switch {
	case err != nil:
		return e.ctx.wrap(err)
	case e.err == nil && was == emitting:
		return e.ctx.wrap(errRecovered)
	}
	return e.err
}

// errRecovered is about a function that swallows what happens in operators it knows nothing of: their records would be lost in silence.
var errRecovered = errors.New("the function recovered a panic that came out of Collect or Output, from what is behind it in the chain: the record is lost there, or half done. " +
	"Recover around code of your own, and emit outside of that")

// Collector emits the results of user functions. It is valid during the call it was given to.
type Collector[R any] struct {
	emission
	out Receiver[R]
}

// refuse is about what is emitted while nothing may be. After a failure downstream the task ends anyway; else whoever emits has kept the collector or the context
// beyond its call, in a goroutine or a hook: that fails the task. When the task has ended, nobody is left to hear of it but the log.
func (e *emission) refuse(method string) {
	if e.err != nil {
		return
	}
	err := e.ctx.wrap(fmt.Errorf("%s at %s: another goroutine emits at the same time, or %w", method, userSite(), errRecovered))
	if e.phase != emitting {
		err = e.ctx.wrap(lasting("%s at %s: it is called outside of the call that the collector or context was given to, by a goroutine or a hook that has kept it: the record is lost. "+
			"Emit during the call; what is to wait belongs into state with a timer, or into an asynchronous function", method, userSite()))
	}
	if !e.stray.CompareAndSwap(nil, &err) {
		return
	}
	if e.ctx.Services.Context().Err() != nil {
		e.ctx.Logger.Error().Err(err).Msg("a record was emitted after the end of its operator")
	}
	e.ctx.Fail(err)
}

// closed is the result of a function's Close, which returned err, or what was emitted in it.
func (e *emission) closed(err error) error {
	if stray := e.stray.Load(); err == nil && stray != nil {
		return *stray
	}
	return e.ctx.wrap(err)
}

// newCollector is the Collector of a function. What it emits is copied for what follows in the chain (copying).
func newCollector[R any](ctx *Context, out Receiver[R]) Collector[R] {
	return Collector[R]{emission: emission{ctx: ctx}, out: copying(ctx.Config, out)}
}

// asIs makes it emit records as they are: they are nobody else's.
func (c *Collector[R]) asIs() {
	if o, ok := c.out.(*owned[R]); ok {
		c.out = o.Receiver
	}
}

// Collect emits v with the event time of the record (or timer) being processed. After a failure downstream it does nothing; outside of the
// call that the collector was given to it fails the task.
func (c *Collector[R]) Collect(v R) {
	if c.phase != open {
		c.refuse("Collect")
		return
	}
	c.phase = emitting
	c.err = c.out.Process(v, c.m)
	c.resume()
	c.ctx.Enter()
}

// CollectAt emits v with another event time, in milliseconds.
func (c *Collector[R]) CollectAt(v R, ts int64) {
	if c.phase != open {
		c.refuse("CollectAt")
		return
	}
	c.phase = emitting
	c.err = c.out.Process(v, Meta{TS: ts})
	c.resume()
	c.ctx.Enter()
}

// OutputTag names a side output of records of S. Tags are unique in an operator.
type OutputTag[S any] struct{ ID string }

// output is Output of a context.
func (e *emission) output[S any](tag OutputTag[S], v S) {
	if e.phase != open {
		e.refuse("Output")
		return
	}
	e.phase = emitting
	e.send(tag, v, e.m)
	e.resume()
}

// send emits v to a side output; nothing happens when nobody reads it.
func (e *emission) send[S any](tag OutputTag[S], v S, m Meta) {
	if e.err != nil {
		return
	}
	side, read := e.ctx.Side[tag.ID]
	if !read {
		if tag.ID == "" { // nobody can read it
			e.err = e.ctx.wrap(errors.New("Output: the tag has no name: make it by NewOutputTag"))
		}
		return
	}
	r, ok := side.(Receiver[S])
	if !ok {
		e.err = e.ctx.wrap(fmt.Errorf("side output %q is read as another type than %T, which is written to it", tag.ID, v))
		return
	}
	e.err = r.Process(v, m)
	e.ctx.Enter()
}

// TaskContext is what a function without keys gets in Open: the subtask's identity and its state.
type TaskContext struct{ ctx *Context }

// Subtask is this subtask's index, Parallelism how many there are.
func (t *TaskContext) Subtask() int { return t.ctx.Subtask }

// Parallelism is the operator's parallelism.
func (t *TaskContext) Parallelism() int { return t.ctx.Parallelism }

// Attempt is how many times the task was started before in this job.
func (t *TaskContext) Attempt() int { return t.ctx.Attempt }

// Logger is a logger with the operator's identity.
func (t *TaskContext) Logger() zerolog.Logger { return t.ctx.Logger }

// Metrics registers the function's own metrics.
func (t *TaskContext) Metrics() connector.Metrics { return t.ctx.Metrics }

// ProcessContext is what a function gets with each record.
type ProcessContext struct {
	e         *emission
	watermark int64
}

// Timestamp is the event time of the record or timer; when it has none, the zero time.Time and false.
func (c *ProcessContext) Timestamp() (t time.Time, ok bool) {
	return timeOrZero(c.e.m.TS, NoTimestamp)
}

// Watermark is the current event time; before the first watermark, the zero time.Time and false.
func (c *ProcessContext) Watermark() (t time.Time, ok bool) {
	return timeOrZero(c.watermark, MinWatermark)
}

// timeOrZero is the time of ms, or the zero time.Time for none.
func timeOrZero(ms, none int64) (t time.Time, ok bool) {
	if ms == none {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// ProcessingTime is the current processing time.
func (c *ProcessContext) ProcessingTime() time.Time {
	return time.UnixMilli(c.e.ctx.Now()).UTC()
}

// Output emits v to a side output, with the event time of the record or timer being processed.
func (c *ProcessContext) Output[S any](tag OutputTag[S], v S) { c.e.output(tag, v) }
