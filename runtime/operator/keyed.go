package operator

import (
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// KeySelector extracts the key of a record; it is the key half of a keyed stream and the Keyer of its exchange.
type KeySelector[K comparable, T any] struct {
	Fn    func(T) K
	Codec serde.Codec[K]
}

// NewHash returns a hash function with scratch memory of its own.
func (k KeySelector[K, T]) NewHash() func(T) uint32 {
	h, fn := state.NewHasher(k.Codec), k.Fn
	return func(v T) uint32 { return h.Hash(fn(v)) }
}

// key builds the state key of a record.
func (k *KeySelector[K, T]) key(ctx *Context, v T, m Meta) state.Key[K] {
	return state.Key[K]{Key: k.Fn(v), Hash: m.Hash, Group: state.GroupOf(m.Hash, ctx.MaxParallelism)}
}

// Reduce keeps one value per key and emits it after each record; in BATCH after the last record only. Source: Flink
// StreamGroupedReduceOperator, BatchGroupedReduceOperator.
func Reduce[K comparable, T any](sel KeySelector[K, T], fn func(acc, v T) T) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[T](out)
		if err != nil {
			return nil, err
		}
		codec, err := serde.For[T]()
		if err != nil {
			return nil, err
		}
		t, err := OpenTable(ctx, "reduce", sel.Codec, codec)
		if err != nil {
			return nil, err
		}
		o := &reduceOp[K, T]{KeyedBase: KeyedBase{Ctx: ctx}, sel: sel, fn: fn, out: r, table: t}
		ctx.onKeyEnd(o.emit, nil)
		return o, nil
	})
}

type reduceOp[K comparable, T any] struct {
	KeyedBase
	sel   KeySelector[K, T]
	fn    func(T, T) T
	out   Receiver[T]
	table state.Table[K, T]
	last  lastRecord[K]
}

func (o *reduceOp[K, T]) Input(int) any            { return Receiver[T](o) }
func (o *reduceOp[K, T]) Watermark(ts int64) error { return o.out.Watermark(ts) }
func (o *reduceOp[K, T]) Idle(idle bool) error     { return o.out.Idle(idle) }

func (o *reduceOp[K, T]) Process(v T, m Meta) error {
	o.Ctx.Enter()
	k := o.sel.key(o.Ctx, v, m)
	acc, found, err := o.table.Get(k, 0)
	if err != nil {
		return fmt.Errorf("operator %s: %w", o.Ctx.Describe(), err)
	}
	if found {
		v = o.fn(acc, v)
	}
	if err := o.table.Put(k, 0, v); err != nil {
		return fmt.Errorf("operator %s: %w", o.Ctx.Describe(), err)
	}
	if o.Ctx.Batch {
		o.last = lastRecord[K]{k, m}
		return nil
	}
	return o.out.Process(v, m)
}

// emit emits the value of a key, in BATCH.
func (o *reduceOp[K, T]) emit() error {
	v, found, err := o.table.Get(o.last.k, 0)
	if err != nil || !found {
		return o.Ctx.wrap(err)
	}
	return o.out.Process(v, o.last.m)
}
