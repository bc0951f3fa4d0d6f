package hybrid

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/thalweg/thalweg/connector"
)

// Reader implements connector.Source.
func (c *Chain[T]) Reader(ctx connector.ReaderContext) (connector.Reader[T], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &reader[T]{chain: c, ctx: ctx, index: -1, wake: make(chan struct{}, 1)}, nil
}

// reader reads the source that the enumerator named last; none before that.
type reader[T any] struct {
	chain *Chain[T]
	ctx   connector.ReaderContext
	life  context.Context //nolint:containedctx // from Start, for the readers that start later
	index int
	inner connector.Reader[T]
	held  []connector.Split // restored ones, as they came, until their source is opened
	ended bool              // the enumerator knows that the inner reader is at its end
	out   output[T]
	wake  chan struct{}
}

func (r *reader[T]) Start(ctx context.Context) error {
	r.life = ctx
	return nil
}

func (r *reader[T]) AddSplits(splits []connector.Split) error {
	var now []connector.Split
	for _, s := range splits {
		index, in, err := unwrap(s)
		switch {
		case err != nil:
			return err
		case index < r.index:
			return fmt.Errorf("hybrid: split %q is of a source that was read to its end", s.ID)
		case index == r.index:
			now = append(now, in)
		default:
			r.held = append(r.held, s)
		}
	}
	if len(now) == 0 {
		return nil
	}
	return r.inner.AddSplits(now)
}

// HandleEvent implements connector.EventReader.
func (r *reader[T]) HandleEvent(payload []byte) error {
	var ev event
	if err := json.Unmarshal(payload, &ev); err != nil {
		return fmt.Errorf("hybrid: decode event: %w", err)
	}
	switch {
	case ev.Open:
		return r.open(ev)
	case ev.Index != r.index:
		return nil
	case ev.NoMore:
		r.inner.NoMoreSplits()
	case ev.Custom != nil:
		if h, ok := r.inner.(connector.EventReader); ok {
			return h.HandleEvent(ev.Custom)
		}
	}
	return nil
}

// open goes on to a source.
func (r *reader[T]) open(ev event) error {
	if r.inner != nil {
		err := r.inner.Close()
		if r.inner = nil; err != nil {
			return err
		}
	}
	src, err := r.chain.source(ev.Index, ev.Position)
	if err != nil {
		return err
	}
	ctx := r.ctx
	ctx.RequestSplit = func() { r.send(event{Index: ev.Index, Request: true}) }
	ctx.SendEvent = func(b []byte) { r.send(event{Index: ev.Index, Custom: b}) }
	inner, err := src.Reader(ctx)
	if err != nil {
		return err
	}
	if inner == nil {
		return &connector.ContractError{Rule: "reader", Detail: fmt.Sprintf("Reader of source %d of the chain returned nil", ev.Index+1)}
	}
	r.inner, r.index, r.ended = inner, ev.Index, false
	if err := inner.Start(r.life); err != nil {
		return err
	}
	held := r.held
	r.held = nil
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return r.AddSplits(held)
}

func (r *reader[T]) send(ev event) {
	b, err := json.Marshal(ev)
	if err != nil {
		panic(fmt.Sprintf("hybrid: encode event: %v", err)) // it holds numbers, flags and bytes
	}
	r.ctx.SendEvent(b)
}

// NoMoreSplits comes from the last source.
func (r *reader[T]) NoMoreSplits() {
	if r.inner != nil {
		r.inner.NoMoreSplits()
	}
}

func (r *reader[T]) Poll(out connector.Output[T], max int) (connector.Status, error) {
	if r.inner == nil || r.ended {
		return connector.NothingAvailable, nil
	}
	r.out = output[T]{r.index, out}
	st, err := r.inner.Poll(&r.out, max)
	if err == nil && st == connector.EndOfInput && r.index < len(r.chain.stages)-1 {
		r.ended = true
		r.send(event{Index: r.index, Ended: true})
		st = connector.NothingAvailable
	}
	return st, err
}

func (r *reader[T]) Available() <-chan struct{} {
	if r.inner == nil || r.ended {
		return r.wake
	}
	return r.inner.Available()
}

// PauseSplits implements connector.SplitPauser, as far as the source does.
func (r *reader[T]) PauseSplits(pause, resume []string) {
	if p, ok := r.inner.(connector.SplitPauser); ok {
		p.PauseSplits(r.mine(pause), r.mine(resume))
	}
}

func (r *reader[T]) mine(ids []string) (out []string) {
	for _, id := range ids {
		if index, in, err := unwrap(connector.Split{ID: id}); err == nil && index == r.index {
			out = append(out, in.ID)
		}
	}
	return out
}

// Position implements connector.Positioner.
func (r *reader[T]) Position() string {
	if p, ok := r.inner.(connector.Positioner); ok {
		return p.Position()
	}
	return ""
}

func (r *reader[T]) Snapshot(checkpointID int64) ([]connector.Split, error) {
	if r.inner == nil {
		return r.held, nil
	}
	splits, err := r.inner.Snapshot(checkpointID)
	return append(wrap(r.index, splits), r.held...), err
}

func (r *reader[T]) CheckpointComplete(ctx context.Context, checkpointID int64) error {
	if r.inner == nil {
		return nil
	}
	return r.inner.CheckpointComplete(ctx, checkpointID)
}

func (r *reader[T]) CheckpointAborted(checkpointID int64) {
	if r.inner != nil {
		r.inner.CheckpointAborted(checkpointID)
	}
}

func (r *reader[T]) Close() error {
	if r.inner == nil {
		return nil
	}
	return r.inner.Close()
}

// output gives the splits of a source their names in the chain.
type output[T any] struct {
	index int
	out   connector.Output[T]
}

// Collect refuses: a watermark without a split could not be ended when the next source begins.
func (o *output[T]) Collect(T, int64) error {
	return &connector.ContractError{Rule: "split-output", Detail: "a source in a chain (package hybrid) emits its records through splits (Output.Split)"}
}

func (o *output[T]) Split(id string) connector.SplitOutput[T] {
	return o.out.Split(wrapID(o.index, id))
}

func (o *output[T]) ReleaseSplit(id string) { o.out.ReleaseSplit(wrapID(o.index, id)) }
