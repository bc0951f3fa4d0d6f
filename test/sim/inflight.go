package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/operator"
)

// caught is a Receiver that keeps the records.
type caught[T any] struct{ all []T }

func (c *caught[T]) Process(v T, _ operator.Meta) error {
	c.all = append(c.all, v)
	return nil
}
func (c *caught[T]) Watermark(int64) error { return nil }
func (c *caught[T]) Idle(bool) error       { return nil }

// underWay are the records that a checkpoint holds of the edges into the operators of that name, from those of the other.
func underWay[T any](w *World, c *metadata.Checkpoint, from, to string) ([]T, error) {
	typ, err := operator.TypeOf[T]()
	if err != nil {
		return nil, err
	}
	var out caught[T]
	for i := range c.Exchanges {
		x := &c.Exchanges[i]
		if f, t := c.Operator(x.From), c.Operator(x.To); f == nil || t == nil || !is(f.UID, from) || !is(t.UID, to) {
			continue
		}
		for j := range x.Parts {
			data, err := storage.ReadSegment(context.Background(), w.clean, &x.Parts[j].Segment)
			if err != nil {
				return nil, err
			}
			r, err := typ.Reader(operator.Receiver[T](&out), 1)
			if err != nil {
				return nil, err
			}
			if _, err := r.Read(0, data); err != nil {
				return nil, err
			}
		}
	}
	return out.all, nil
}

// settleUnderWay puts the records that are under way to the totals into them, each in its turn, and returns the outputs that are not in any
// transaction yet: those that are under way to the sink, and those that the records will make.
func (w *World) settleUnderWay(c *metadata.Checkpoint, totals map[int64]Total) ([]Out, error) {
	events, err := underWay[Event](w, c, "source", "totals")
	if err != nil {
		return nil, err
	}
	outs, err := underWay[Out](w, c, "totals", "sink")
	if err != nil {
		return nil, err
	}
	outs = slices.DeleteFunc(outs, func(o Out) bool { return o.Kind != kindTotal })
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N)) })
	for _, e := range events {
		t := totals[e.Key]
		if e.N != t.N+1 {
			return nil, fmt.Errorf("record %d of key %d is under way to its total, which has counted %d", e.N, e.Key, t.N)
		}
		t.N++
		t.Sum += e.Value
		totals[e.Key] = t
		outs = append(outs, Out{Kind: kindTotal, Key: e.Key, N: t.N, Sum: t.Sum})
	}
	return outs, nil
}
