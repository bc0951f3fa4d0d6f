package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// MapStateDescriptor names a broadcast state and its types.
type MapStateDescriptor[UK comparable, V any] struct{ Name string }

// BroadcastDescriptor is any MapStateDescriptor.
type BroadcastDescriptor interface {
	// Check reports whether the types can be stored, and returns the state's name.
	Check() (name string, err error)
	open(c *Context) (any, error)
}

// Check implements BroadcastDescriptor.
func (d MapStateDescriptor[UK, V]) Check() (string, error) {
	if d.Name == "" {
		return "", errors.New("a broadcast state has no name")
	}
	if _, err := serde.ForKey[UK](); err != nil {
		return d.Name, fmt.Errorf("broadcast state %q: key: %w", d.Name, err)
	}
	if _, err := serde.For[V](); err != nil {
		return d.Name, fmt.Errorf("broadcast state %q: value: %w", d.Name, err)
	}
	return d.Name, nil
}

func (d MapStateDescriptor[UK, V]) open(c *Context) (any, error) {
	return openBroadcast[UK, V](c, d.Name)
}

// broadcasts are the open broadcast states of an operator, by name.
type broadcasts map[string]any

func openBroadcasts(c *Context, ds []BroadcastDescriptor) (broadcasts, error) {
	b := broadcasts{}
	for _, d := range ds {
		name, err := d.Check()
		if err != nil {
			return nil, c.wrap(err)
		}
		if b[name], err = d.open(c); err != nil {
			return nil, c.wrap(err)
		}
	}
	return b, nil
}

func (b broadcasts) find[UK comparable, V any](d MapStateDescriptor[UK, V]) (ReadOnlyBroadcastState[UK, V], error) {
	s, ok := b[d.Name].(*broadcastMap[UK, V])
	if !ok {
		if b[d.Name] != nil {
			return ReadOnlyBroadcastState[UK, V]{}, fmt.Errorf("broadcast state %q has other types than the descriptor that the stream was broadcast with; asked for at %s", d.Name, userSite())
		}
		return ReadOnlyBroadcastState[UK, V]{}, fmt.Errorf("broadcast state %q is not among the descriptors that the stream was broadcast with; asked for at %s", d.Name, userSite())
	}
	return ReadOnlyBroadcastState[UK, V]{s}, nil
}

// ReadOnlyContext is what ProcessElement of a BroadcastProcessFunction gets.
type ReadOnlyContext struct {
	ProcessContext
	states broadcasts
}

// BroadcastState is a broadcast state, for reading.
func (c *ReadOnlyContext) BroadcastState[UK comparable, V any](d MapStateDescriptor[UK, V]) (ReadOnlyBroadcastState[UK, V], error) {
	return c.states.find(d)
}

// BroadcastContext is what ProcessBroadcastElement of a BroadcastProcessFunction gets.
type BroadcastContext struct {
	ProcessContext
	states broadcasts
}

// BroadcastState is a broadcast state, for changes: they must follow from the broadcast records alone, so that all subtasks agree.
func (c *BroadcastContext) BroadcastState[UK comparable, V any](d MapStateDescriptor[UK, V]) (BroadcastState[UK, V], error) {
	s, err := c.states.find(d)
	return BroadcastState[UK, V]{s}, err
}

// BroadcastProcessFunction is a user's function over a stream and a broadcast stream, without keys. One instance serves one subtask.
// Source: Flink BroadcastProcessFunction.
type BroadcastProcessFunction[T, B, R any] interface {
	Open(rt *TaskContext) error
	ProcessElement(ctx *ReadOnlyContext, v T, out *Collector[R]) error
	ProcessBroadcastElement(ctx *BroadcastContext, v B, out *Collector[R]) error
	Close() error
}

// BroadcastProcess runs a user's function; input 1 is the broadcast one. newFn makes one instance per subtask.
func BroadcastProcess[T, B, R any](states []BroadcastDescriptor, newFn func() BroadcastProcessFunction[T, B, R]) Factory {
	return laid(layoutProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &broadcastOp[T, B, R]{fn: newFn(), descs: states, out: r, c: newCollector(ctx, r)}
		o.init(ctx, o.fn, &o.c.emission)
		pc := ProcessContext{&o.c.emission, MinWatermark}
		o.ro, o.bc = ReadOnlyContext{ProcessContext: pc}, BroadcastContext{ProcessContext: pc}
		o.ports = newPorts(o.process, o.processBroadcast, o.watermark, r.Idle)
		return o, nil
	})
}

type broadcastOp[T, B, R any] struct {
	plainFunction
	ports[T, B]
	fn    BroadcastProcessFunction[T, B, R]
	descs []BroadcastDescriptor
	out   Receiver[R]
	c     Collector[R]
	ro    ReadOnlyContext
	bc    BroadcastContext
}

func (o *broadcastOp[T, B, R]) Open(ctx context.Context) error {
	b, err := openBroadcasts(o.ctx, o.descs)
	if err != nil {
		return err
	}
	o.ro.states, o.bc.states = b, b
	return o.plainFunction.Open(ctx)
}

func (o *broadcastOp[T, B, R]) process(v T, m Meta) error {
	o.enter(m)
	return o.c.done(o.fn.ProcessElement(&o.ro, v, &o.c))
}

func (o *broadcastOp[T, B, R]) processBroadcast(v B, m Meta) error {
	o.enter(m)
	return o.c.done(o.fn.ProcessBroadcastElement(&o.bc, v, &o.c))
}

func (o *broadcastOp[T, B, R]) watermark(ts int64) error {
	o.ro.watermark, o.bc.watermark = ts, ts
	return o.out.Watermark(ts)
}

// KeyedReadOnlyContext is what ProcessElement and OnTimer of a KeyedBroadcastProcessFunction get: key, timers, and broadcast state for
// reading.
type KeyedReadOnlyContext[K comparable] struct {
	*KeyedContext[K]
	states broadcasts
}

// BroadcastState is a broadcast state, for reading.
func (c *KeyedReadOnlyContext[K]) BroadcastState[UK comparable, V any](d MapStateDescriptor[UK, V]) (ReadOnlyBroadcastState[UK, V], error) {
	return c.states.find(d)
}

// KeyedBroadcastContext is what ProcessBroadcastElement of a KeyedBroadcastProcessFunction gets: there is no current key.
type KeyedBroadcastContext[K comparable] struct {
	BroadcastContext
	cur *state.Key[K]
}

// ApplyToKeyedState calls fn for every key of this subtask that has something in s, a state that Open opened, with the key as the
// current one: s and other keyed states are the key's during the call, and may be changed. Source: Flink
// KeyedBroadcastProcessFunction.Context.applyToKeyedState.
func (c *KeyedBroadcastContext[K]) ApplyToKeyedState[S KeyedState](s S, fn func(key K, s S) error) error {
	l, ok := s.table().(keyLister[K])
	if !ok {
		return fmt.Errorf("ApplyToKeyedState: the state is not keyed by %s", typeName[K]())
	}
	keys, err := l.keys()
	if err != nil {
		return err
	}
	was := *c.cur
	defer func() { *c.cur = was }()
	for _, k := range keys {
		*c.cur = k
		if err := fn(k.Key, s); err != nil {
			return err
		}
	}
	return nil
}

// KeyedBroadcastProcessFunction is a user's function over a keyed stream and a broadcast stream. One instance serves one subtask.
// Source: Flink KeyedBroadcastProcessFunction.
type KeyedBroadcastProcessFunction[K comparable, T, B, R any] interface {
	Open(rt *RuntimeContext[K]) error
	ProcessElement(ctx *KeyedReadOnlyContext[K], v T, out *Collector[R]) error
	ProcessBroadcastElement(ctx *KeyedBroadcastContext[K], v B, out *Collector[R]) error
	OnTimer(ctx *KeyedReadOnlyContext[K], timer Timer, out *Collector[R]) error
	Close() error
}

// KeyedBroadcastProcess runs a user's function; input 1 is the broadcast one. newFn makes one instance per subtask.
func KeyedBroadcastProcess[K comparable, T, B, R any](sel KeySelector[K, T], states []BroadcastDescriptor, newFn func() KeyedBroadcastProcessFunction[K, T, B, R]) Factory {
	return laid(layoutKeyedProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &keyedBroadcastOp[K, T, B, R]{sel: sel, fn: newFn(), descs: states, c: newCollector(ctx, r)}
		o.init(ctx, sel.Codec, &o.c.emission, func(t Timer) error { return o.fn.OnTimer(&o.ro, t, &o.c) }, o.passOn)
		o.hooks = newHooks(ctx, o.fn)
		o.out = r
		o.ro.KeyedContext = &o.kc
		o.bc = KeyedBroadcastContext[K]{BroadcastContext{ProcessContext: ProcessContext{&o.c.emission, MinWatermark}}, &o.kc.cur}
		o.ports = newPorts(o.process, o.processBroadcast, o.Watermark, r.Idle)
		return o, nil
	})
}

type keyedBroadcastOp[K comparable, T, B, R any] struct {
	keyedFunction[K]
	ports[T, B]
	sel   KeySelector[K, T]
	fn    KeyedBroadcastProcessFunction[K, T, B, R]
	descs []BroadcastDescriptor
	out   Receiver[R]
	c     Collector[R]
	ro    KeyedReadOnlyContext[K]
	bc    KeyedBroadcastContext[K]
}

func (o *keyedBroadcastOp[K, T, B, R]) Open(context.Context) error {
	b, err := openBroadcasts(o.Ctx, o.descs)
	if err != nil {
		return err
	}
	o.ro.states, o.bc.states = b, b
	return o.open(o.fn.Open)
}

func (o *keyedBroadcastOp[K, T, B, R]) Close() error { return o.close(o.fn.Close) }

func (o *keyedBroadcastOp[K, T, B, R]) process(v T, m Meta) error {
	k, err := o.sel.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	o.enter(k, m)
	return o.c.done(o.fn.ProcessElement(&o.ro, v, &o.c))
}

func (o *keyedBroadcastOp[K, T, B, R]) processBroadcast(v B, m Meta) error {
	o.Ctx.Enter()
	o.c.begin(m)
	o.kc.cur.Group = noKey
	return o.c.done(o.fn.ProcessBroadcastElement(&o.bc, v, &o.c))
}

// passOn passes a watermark on after the timers that it made due.
func (o *keyedBroadcastOp[K, T, B, R]) passOn(ts int64) error {
	o.bc.watermark = ts
	return o.out.Watermark(ts)
}
