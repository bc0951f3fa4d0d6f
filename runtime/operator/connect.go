package operator

import "context"

// CoProcessFunction is a user's function over two streams without keys. One instance serves one subtask.
// Source: Flink CoProcessFunction.
type CoProcessFunction[A, B, R any] interface {
	Open(rt *TaskContext) error
	ProcessFirst(ctx *ProcessContext, v A, out *Collector[R]) error
	ProcessSecond(ctx *ProcessContext, v B, out *Collector[R]) error
	Close() error
}

// KeyedCoProcessFunction is a user's function over two streams that are keyed alike; state and timers are those of the key, whichever
// input a record came from. Source: Flink KeyedCoProcessFunction.
type KeyedCoProcessFunction[K comparable, A, B, R any] interface {
	Open(rt *RuntimeContext[K]) error
	ProcessFirst(ctx *KeyedContext[K], v A, out *Collector[R]) error
	ProcessSecond(ctx *KeyedContext[K], v B, out *Collector[R]) error
	OnTimer(ctx *KeyedContext[K], timer Timer, out *Collector[R]) error
	Close() error
}

// port is one input of a two-input operator: the watermark and the idleness that reach the operator are those of both together.
type port[T any] struct {
	index   int
	valve   *Valve // of both inputs
	process func(T, Meta) error
	advance func(int64) error // the combined watermark rose
	change  func(bool) error  // the whole became idle or active
}

func (p *port[T]) Process(v T, m Meta) error { return p.process(v, m) }

func (p *port[T]) Watermark(ts int64) error {
	if out, ok := p.valve.OnWatermark(p.index, ts); ok {
		return p.advance(out)
	}
	return nil
}

func (p *port[T]) Idle(idle bool) error {
	out, advanced, now, changed := p.valve.OnIdle(p.index, idle)
	if advanced {
		if err := p.advance(out); err != nil {
			return err
		}
	}
	if changed {
		return p.change(now)
	}
	return nil
}

// ports are the two inputs of an operator.
type ports[A, B any] struct {
	first  port[A]
	second port[B]
}

func newPorts[A, B any](first func(A, Meta) error, second func(B, Meta) error, advance func(int64) error, change func(bool) error) ports[A, B] {
	v := NewValve(2)
	return ports[A, B]{port[A]{0, v, first, advance, change}, port[B]{1, v, second, advance, change}}
}

func (p *ports[A, B]) Input(i int) any {
	if i == 0 {
		return Receiver[A](&p.first)
	}
	return Receiver[B](&p.second)
}

// CoProcess runs a user's function over two streams; newFn makes one instance per subtask.
func CoProcess[A, B, R any](newFn func() CoProcessFunction[A, B, R]) Factory {
	return laid(layoutProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &coProcessOp[A, B, R]{fn: newFn(), out: r, c: newCollector(ctx, r)}
		o.pc = ProcessContext{&o.c.emission, MinWatermark}
		o.init(ctx, o.fn, &o.c.emission)
		o.ports = newPorts(o.processFirst, o.processSecond, o.watermark, r.Idle)
		return o, nil
	})
}

type coProcessOp[A, B, R any] struct {
	plainFunction
	ports[A, B]
	fn  CoProcessFunction[A, B, R]
	out Receiver[R]
	c   Collector[R]
	pc  ProcessContext
}

func (o *coProcessOp[A, B, R]) processFirst(v A, m Meta) error {
	o.enter(m)
	return o.c.done(o.fn.ProcessFirst(&o.pc, v, &o.c))
}

func (o *coProcessOp[A, B, R]) processSecond(v B, m Meta) error {
	o.enter(m)
	return o.c.done(o.fn.ProcessSecond(&o.pc, v, &o.c))
}

func (o *coProcessOp[A, B, R]) watermark(ts int64) error {
	o.pc.watermark = ts
	return o.out.Watermark(ts)
}

// KeyedCoProcess runs a user's function over two streams that are keyed by the same type; newFn makes one instance per subtask.
func KeyedCoProcess[K comparable, A, B, R any](first KeySelector[K, A], second KeySelector[K, B], newFn func() KeyedCoProcessFunction[K, A, B, R]) Factory {
	return laid(layoutKeyedProcess, func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		if err != nil {
			return nil, err
		}
		o := &keyedCoProcessOp[K, A, B, R]{keyA: first, keyB: second, fn: newFn(), c: newCollector(ctx, r)}
		o.init(ctx, first.Codec, &o.c.emission, func(t Timer) error { return o.fn.OnTimer(&o.kc, t, &o.c) }, r.Watermark)
		o.hooks = newHooks(ctx, o.fn)
		o.ports = newPorts(o.processFirst, o.processSecond, o.Watermark, r.Idle)
		return o, nil
	})
}

type keyedCoProcessOp[K comparable, A, B, R any] struct {
	keyedFunction[K]
	ports[A, B]
	keyA KeySelector[K, A]
	keyB KeySelector[K, B]
	fn   KeyedCoProcessFunction[K, A, B, R]
	c    Collector[R]
}

func (o *keyedCoProcessOp[K, A, B, R]) Open(context.Context) error { return o.open(o.fn.Open) }
func (o *keyedCoProcessOp[K, A, B, R]) Close() error               { return o.close(o.fn.Close) }

func (o *keyedCoProcessOp[K, A, B, R]) processFirst(v A, m Meta) error {
	k, err := o.keyA.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	o.enter(k, m)
	return o.c.done(o.fn.ProcessFirst(&o.kc, v, &o.c))
}

func (o *keyedCoProcessOp[K, A, B, R]) processSecond(v B, m Meta) error {
	k, err := o.keyB.key(o.Ctx, v, m)
	if err != nil {
		return err
	}
	o.enter(k, m)
	return o.c.done(o.fn.ProcessSecond(&o.kc, v, &o.c))
}
