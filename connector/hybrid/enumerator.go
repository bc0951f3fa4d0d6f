package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
)

// Enumerator implements connector.Source.
func (c *Chain[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &enumerator[T]{chain: c, ctx: ctx, ended: map[int]bool{}}
	var inner []byte
	if restored != nil {
		if err := json.Unmarshal(restored, &e.st); err != nil {
			return nil, fmt.Errorf("hybrid: state of the enumerator is not valid: %w", err)
		}
		inner = e.st.Inner
	}
	return e, e.make(inner)
}

// state is the enumerator's, as JSON.
type state struct {
	Index    int    `json:"index"`
	Position []byte `json:"position,omitempty"`
	Inner    []byte `json:"inner"` // of the source's enumerator
}

type enumerator[T any] struct {
	chain *Chain[T]
	ctx   connector.EnumeratorContext
	life  context.Context //nolint:containedctx // from Start, for the sources that start later
	st    state
	src   connector.Source[T]
	inner connector.Enumerator
	ic    *innerContext
	ended map[int]bool // readers at the end of the present source
	// switching: the next position is being found; the inner enumerator is not used, st.Inner is its state.
	switching bool
}

// make makes the enumerator of the present source.
func (e *enumerator[T]) make(restored []byte) error {
	src, err := e.chain.source(e.st.Index, e.st.Position)
	if err != nil {
		return err
	}
	e.src = src
	e.ic = &innerContext{EnumeratorContext: e.ctx, index: e.st.Index, last: e.st.Index == len(e.chain.stages)-1}
	if e.inner, err = src.Enumerator(e.ic, restored); err != nil {
		return fmt.Errorf("hybrid: source %d: %w", e.st.Index+1, err)
	}
	if e.inner == nil {
		return &connector.ContractError{Rule: "enumerator", Detail: fmt.Sprintf("source %d of the chain (%T) has no enumerator", e.st.Index+1, src)}
	}
	return nil
}

func (e *enumerator[T]) Start(ctx context.Context) error {
	e.life = ctx
	return e.inner.Start(ctx)
}

func (e *enumerator[T]) send(subtask int, ev event) {
	b, err := json.Marshal(ev)
	if err != nil {
		e.ctx.Fail(fmt.Errorf("hybrid: encode event: %w", err))
		return
	}
	e.ctx.SendEvent(subtask, b)
}

func (e *enumerator[T]) AddReader(subtask int) {
	e.send(subtask, event{Index: e.st.Index, Open: true, Position: e.st.Position})
	if !e.switching {
		e.inner.AddReader(subtask)
	}
}

// HandleEvent implements connector.EventEnumerator. What a reader said about an earlier source is too late.
func (e *enumerator[T]) HandleEvent(subtask int, payload []byte) {
	var ev event
	if err := json.Unmarshal(payload, &ev); err != nil {
		e.ctx.Fail(fmt.Errorf("hybrid: decode event of subtask %d: %w", subtask, err))
		return
	}
	if ev.Index != e.st.Index || e.switching {
		return
	}
	switch {
	case ev.Request:
		e.inner.HandleSplitRequest(subtask)
	case ev.Custom != nil:
		if h, ok := e.inner.(connector.EventEnumerator); ok {
			h.HandleEvent(subtask, ev.Custom)
		}
	case ev.Ended:
		e.ended[subtask] = true
		if len(e.ended) == e.ctx.Parallelism() && !e.ic.last {
			e.change()
		}
	}
}

// change goes on to the next source.
func (e *enumerator[T]) change() {
	inner, err := e.inner.Snapshot(0)
	if err != nil {
		e.ctx.Fail(fmt.Errorf("hybrid: source %d: %w", e.st.Index+1, err))
		return
	}
	e.st.Inner, e.switching = inner, true
	e.ic.closed.Store(true)
	next := e.st.Index + 1
	e.ctx.Async(0, func(ctx context.Context) (any, error) {
		var pos []byte
		if find := e.chain.stages[next].position; find != nil {
			var err error
			if pos, err = find(ctx, e.inner); err != nil {
				return nil, err
			}
		}
		return pos, e.preflight(ctx, next, pos)
	}, func(r any, err error) {
		if err == nil {
			err = e.inner.Close()
		}
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		pos, _ := r.([]byte)
		e.st = state{Index: next, Position: pos}
		e.switching, e.ended = false, map[int]bool{}
		log := e.ctx.Logger()
		log.Info().Int("source", next+1).Int("of", len(e.chain.stages)).Msg("all of the source before is read; the chain goes on")
		if err := e.make(nil); err != nil {
			e.ctx.Fail(err)
			return
		}
		readers := e.ctx.Readers()
		for _, sub := range readers {
			e.send(sub, event{Index: next, Open: true, Position: pos})
		}
		if err := e.inner.Start(e.life); err != nil {
			e.ctx.Fail(err)
			return
		}
		for _, sub := range readers {
			e.inner.AddReader(sub)
		}
	})
}

// preflight checks a source that was not known when the job started.
func (e *enumerator[T]) preflight(ctx context.Context, index int, pos []byte) error {
	if e.chain.stages[index].fixed != nil {
		return nil
	}
	src, err := e.chain.source(index, pos)
	if err != nil {
		return err
	}
	if p, ok := src.(connector.Preflight); ok {
		return p.Preflight(ctx, connector.PreflightContext{Parallelism: e.ctx.Parallelism(), Logger: e.ctx.Logger(), Files: e.ctx.Files()})
	}
	return nil
}

func (e *enumerator[T]) AddSplitsBack(splits []connector.Split, subtask int) {
	var back []connector.Split
	for _, s := range splits {
		index, in, err := unwrap(s)
		if err == nil && index != e.st.Index {
			err = fmt.Errorf("hybrid: split %q comes back while source %d is read", s.ID, e.st.Index+1)
		}
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		back = append(back, in)
	}
	e.inner.AddSplitsBack(back, subtask)
}

// HandleSplitRequest does nothing: readers ask by event, which names the source.
func (e *enumerator[T]) HandleSplitRequest(int) {}

func (e *enumerator[T]) Snapshot(checkpointID int64) ([]byte, error) {
	st := e.st
	if !e.switching {
		inner, err := e.inner.Snapshot(checkpointID)
		if err != nil {
			return nil, err
		}
		st.Inner = inner
	}
	return json.Marshal(st)
}

func (e *enumerator[T]) CheckpointComplete(checkpointID int64) {
	if !e.switching {
		e.inner.CheckpointComplete(checkpointID)
	}
}

func (e *enumerator[T]) Close() error {
	if e.inner == nil {
		return nil
	}
	e.ic.closed.Store(true)
	return e.inner.Close()
}

// innerContext is what the enumerator of one source of the chain sees.
type innerContext struct {
	connector.EnumeratorContext
	index  int
	last   bool
	closed atomic.Bool // the chain has gone on
}

func (c *innerContext) Assign(subtask int, splits ...connector.Split) {
	c.EnumeratorContext.Assign(subtask, wrap(c.index, splits)...)
}

func (c *innerContext) event(subtask int, ev event) {
	ev.Index = c.index
	b, err := json.Marshal(ev)
	if err != nil {
		c.Fail(fmt.Errorf("hybrid: encode event: %w", err))
		return
	}
	c.EnumeratorContext.SendEvent(subtask, b)
}

// NoMoreSplits is the whole chain's only from the last source.
func (c *innerContext) NoMoreSplits(subtask int) {
	if c.last {
		c.EnumeratorContext.NoMoreSplits(subtask)
		return
	}
	c.event(subtask, event{NoMore: true})
}

func (c *innerContext) SendEvent(subtask int, payload []byte) {
	c.event(subtask, event{Custom: payload})
}

var errClosed = errors.New("hybrid: the chain has gone on to the next source")

func (c *innerContext) Async(period time.Duration, work func(context.Context) (any, error), done func(any, error)) {
	c.EnumeratorContext.Async(period, func(ctx context.Context) (any, error) {
		if c.closed.Load() {
			return nil, errClosed
		}
		return work(ctx)
	}, func(r any, err error) {
		if !c.closed.Load() {
			done(r, err)
		}
	})
}

func (c *innerContext) Files() *fs.Registry    { return c.EnumeratorContext.Files() }
func (c *innerContext) Logger() zerolog.Logger { return c.EnumeratorContext.Logger() }
