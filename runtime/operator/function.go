package operator

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
)

// emission is what everything that a function emits through shares: the meta data of the record or timer being processed, and the first
// error from downstream, after which nothing more is emitted.
type emission struct {
	ctx *Context
	m   Meta
	err error
}

// done is the result of a call of user code that returned err.
func (e *emission) done(err error) error {
	if err != nil {
		return e.ctx.wrap(err)
	}
	return e.err
}

// Collector emits the results of user functions. It is valid during the call it was given to.
type Collector[R any] struct {
	emission
	out Receiver[R]
}

// newCollector is the Collector of a function. What it emits is copied for what follows in the chain (copying).
func newCollector[R any](ctx *Context, out Receiver[R]) Collector[R] {
	return Collector[R]{emission{ctx: ctx}, copying(ctx.Config, out)}
}

// asIs makes it emit records as they are: they are nobody else's.
func (c *Collector[R]) asIs() {
	if o, ok := c.out.(*owned[R]); ok {
		c.out = o.Receiver
	}
}

// Collect emits v with the event time of the record (or timer) being processed. After a failure downstream it does nothing.
func (c *Collector[R]) Collect(v R) {
	if c.err == nil {
		c.err = c.out.Process(v, c.m)
		c.ctx.Enter()
	}
}

// CollectAt emits v with another event time, in milliseconds.
func (c *Collector[R]) CollectAt(v R, ts int64) {
	if c.err == nil {
		c.err = c.out.Process(v, Meta{TS: ts})
		c.ctx.Enter()
	}
}

// OutputTag names a side output of records of S. Tags are unique in an operator.
type OutputTag[S any] struct{ ID string }

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
func (c *ProcessContext) Output[S any](tag OutputTag[S], v S) { c.e.send(tag, v, c.e.m) }
