package operator

import (
	"cmp"
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// KeySelector extracts the key of a record; it is the key half of a keyed stream and the Keyer of its exchange.
type KeySelector[K comparable, T any] struct {
	Fn    func(T) K
	Codec serde.Codec[K]
	Site  string // file:line of the user's call; "" when it is not known
	ID    *byte  // of the keyed stream, whose readers may share an exchange; nil when nobody else has it

	types string       // what errors call T, instead of its name
	check *keyCheck[K] // of one operator
	skip  int32        // records until the next check
}

// keyCheck compares keys behind the exchange with the hash from before it.
type keyCheck[K comparable] struct {
	hasher *state.Hasher[K]
	again  *again[K]
	always bool // records lose something on the way
	n      int  // checked
}

const (
	keyChecksFirst = 256 // records of which each is checked, when nothing is lost on the way
	keyCheckEvery  = 64  // of which one is afterwards, besides those that make an entry in the state
)

// KeyError says that a key function does not return the same key before and behind an exchange.
type KeyError struct {
	Site, Key, Type string
}

func (e *KeyError) Error() string {
	call := "KeyBy"
	if e.Site != "" {
		call += " at " + e.Site
	}
	return fmt.Sprintf("%s: the key function returned %s for a record, and another key for the same record before it was sent here. It must depend on the record alone (no clock, randomness, map order or variable), "+
		"and on what arrives of %s: a time.Time arrives in UTC, without its zone (take the key of t.UTC()), and a type with a codec of its own or MarshalBinary as its decoder makes it", call, e.Key, e.Type)
}

// Fatal tells the task that a restart is no use: the function would do the same.
func (e *KeyError) Fatal() bool { return true }

// Identity is equal for selectors of the same keyed stream, nil when there is no other.
//
// Source: graph.Edge.Keyer.
func (k KeySelector[K, T]) Identity() any {
	if k.ID == nil {
		return nil
	}
	return k.ID
}

// NewHash returns a hash function with scratch memory of its own.
func (k KeySelector[K, T]) NewHash() func(T) uint32 {
	h, fn := state.NewHasher(k.Codec), k.Fn
	return func(v T) uint32 { return h.Hash(fn(v)) }
}

// key builds the state key of a record. A key that does not belong to the record's hash would be kept where nobody finds it: that is an
// error.
func (k *KeySelector[K, T]) key(ctx *Context, v T, m Meta) (state.Key[K], error) {
	key := state.Key[K]{Key: k.Fn(v), Hash: m.Hash, Group: state.GroupOf(m.Hash, ctx.MaxParallelism)}
	if k.skip > 0 {
		k.skip--
		return key, nil
	}
	return key, k.verify(ctx, &key)
}

// verify compares a key with its hash, and says when to do so again.
func (k *KeySelector[K, T]) verify(ctx *Context, key *state.Key[K]) error {
	c := k.check
	if c == nil {
		codec, err := serde.For[T]()
		c = &keyCheck[K]{hasher: state.NewHasher(k.Codec), again: newAgain(k.Codec)}
		c.always = err != nil || serde.Lossy(codec)
		k.check = c
		site, types := k.Site, cmp.Or(k.types, typeName[T]())
		ctx.keySite = site
		ctx.wrongKey = func(key string) error { return ctx.wrap(&KeyError{Site: site, Key: key, Type: types}) }
	}
	if c.hasher.Hash(key.Key) != key.Hash {
		return ctx.wrongKey(fmt.Sprintf("%#v", key.Key))
	}
	if err := c.again.verify(k.Site, key.Key); err != nil {
		return ctx.wrap(err)
	}
	if c.n++; !c.always && c.n >= keyChecksFirst {
		k.skip = keyCheckEvery - 1
	}
	return nil
}

// verifyKeys compares the key of each new entry of a table with its hash: what the checks of KeySelector let pass gets no state.
func verifyKeys[K comparable](ctx *Context, codec serde.Codec[K]) func(state.Key[K]) error {
	h, a := state.NewHasher(codec), newAgain(codec)
	return func(k state.Key[K]) error {
		if ctx.wrongKey == nil { // without a record, it is a restored key
			return nil
		}
		if h.Hash(k.Key) == k.Hash {
			return a.verify(ctx.keySite, k.Key)
		}
		return ctx.wrongKey(fmt.Sprintf("%#v", k.Key))
	}
}

// Reduce keeps one value per key and emits it after each record; in BATCH after the last record only. Source: Flink
// StreamGroupedReduceOperator, BatchGroupedReduceOperator.
func Reduce[K comparable, T any](sel KeySelector[K, T], fn func(acc, v T) T) Factory {
	return laid(layoutReduce, func(ctx *Context, out any) (Operator, error) {
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
		o := &reduceOp[K, T]{KeyedBase: KeyedBase{Ctx: ctx}, sel: sel, fn: fn, out: r, table: t, mutable: serde.Mutable(codec)}
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
	// mutable: fn may change its first argument in place, which a running snapshot must not see.
	mutable bool
}

func (o *reduceOp[K, T]) Input(int) any            { return Receiver[T](o) }
func (o *reduceOp[K, T]) Watermark(ts int64) error { return o.out.Watermark(ts) }
func (o *reduceOp[K, T]) Idle(idle bool) error     { return o.out.Idle(idle) }

func (o *reduceOp[K, T]) Process(v T, m Meta) error {
	o.Ctx.Enter()
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	var acc T
	var found bool
	if o.mutable {
		var p *T
		if p, found, err = o.table.Ref(k, 0); err == nil {
			acc = *p
		}
	} else {
		acc, found, err = o.table.Get(k, 0)
	}
	if err != nil {
		return o.Ctx.wrap(err)
	}
	if found {
		v = o.fn(acc, v)
	}
	if err := o.table.Put(k, 0, v); err != nil {
		return o.Ctx.wrap(err)
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
