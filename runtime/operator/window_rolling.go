package operator

import (
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// RollingFunctions are the user's halves of an aggregation without windows.
type RollingFunctions[K comparable, T, A, R any] struct {
	// Add adds a record; first says that the accumulator is new (its zero value).
	Add    func(acc *A, v T, first bool)
	Result func(key K, acc *A) R
}

// Rolling keeps one accumulator per key and emits its result after each record, with the record's event time; in BATCH after the last
// record only. newFn makes the functions of one subtask. Source: Flink KeyedStream.aggregate.
func Rolling[K comparable, T, A, R any](sel KeySelector[K, T], newFn func() RollingFunctions[K, T, A, R]) Factory {
	return laid(layoutRolling, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		codec, err := serde.For[A]()
		if err != nil {
			return nil, err
		}
		t, err := OpenTable(ctx, "aggregate", sel.Codec, codec)
		if err != nil {
			return nil, err
		}
		o := &rollingOp[K, T, A, R]{KeyedBase: KeyedBase{Ctx: ctx}, sel: sel, f: newFn(), codec: codec, views: codec.Views(), flat: !serde.Mutable(codec), out: r, table: t}
		if results, err := serde.For[R](); err == nil && serde.Mutable(codec) && serde.Mutable(results) {
			o.results = results
		}
		o.keeper, _ = t.(state.Keeper[A])
		ctx.onKeyEnd(o.emit, nil)
		return o, nil
	})
}

type rollingOp[K comparable, T, A, R any] struct {
	KeyedBase
	sel    KeySelector[K, T]
	f      RollingFunctions[K, T, A, R]
	codec  serde.Codec[A]
	views  bool
	flat   bool // as of contents
	was    A
	out    Receiver[R]
	table  state.Table[K, A]
	keeper state.Keeper[A] // nil when the table is none
	last   lastRecord[K]
	// results is set when they may share memory with accumulators, which go on changing.
	results serde.Codec[R]
}

func (o *rollingOp[K, T, A, R]) Input(int) any            { return Receiver[T](o) }
func (o *rollingOp[K, T, A, R]) Watermark(ts int64) error { return o.out.Watermark(ts) }
func (o *rollingOp[K, T, A, R]) Idle(idle bool) error     { return o.out.Idle(idle) }

func (o *rollingOp[K, T, A, R]) Process(v T, m Meta) error {
	o.Ctx.Enter()
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	acc, found, err := o.table.Ref(k, 0)
	if err != nil {
		return o.Ctx.wrap(err)
	}
	if o.views && o.flat {
		o.was = *acc
	}
	o.f.Add(acc, v, !found)
	if o.views && !(o.flat && sameBytes(acc, &o.was)) {
		own(acc, o.keeper, o.codec)
	}
	if o.Ctx.Batch {
		o.last = lastRecord[K]{k, m}
		return nil
	}
	r := o.f.Result(k.Key, acc)
	if o.results != nil {
		r = o.results.Clone(r)
	}
	return o.out.Process(r, m)
}

// lastRecord is the key's last record, in BATCH: an aggregation without windows emits its result then.
type lastRecord[K comparable] struct {
	k state.Key[K]
	m Meta
}

func (o *rollingOp[K, T, A, R]) emit() error {
	o.Ctx.Enter()
	acc, found, err := o.table.Get(o.last.k, 0)
	if err != nil || !found {
		return o.Ctx.wrap(err)
	}
	return o.out.Process(o.f.Result(o.last.k.Key, &acc), o.last.m)
}
