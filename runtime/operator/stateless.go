package operator

// pass forwards watermarks and idleness to the output.
type pass[R any] struct {
	Base
	ctx *Context
	out Receiver[R]
}

func (p *pass[R]) Watermark(ts int64) error { return p.out.Watermark(ts) }
func (p *pass[R]) Idle(idle bool) error     { return p.out.Idle(idle) }

func newPass[R any](ctx *Context, out any) (pass[R], error) {
	r, err := receiver[R](out)
	return pass[R]{ctx: ctx, out: r}, err
}

// Map applies fn to each record.
func Map[T, R any](fn func(T) R) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[R](ctx, out)
		return &mapOp[T, R]{p, fn}, err
	})
}

type mapOp[T, R any] struct {
	pass[R]
	fn func(T) R
}

func (o *mapOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *mapOp[T, R]) Process(v T, m Meta) error {
	o.ctx.Enter()
	return o.out.Process(o.fn(v), m)
}

// TryMap applies fn, whose error fails the task.
func TryMap[T, R any](fn func(T) (R, error)) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[R](ctx, out)
		return &tryMapOp[T, R]{p, fn}, err
	})
}

type tryMapOp[T, R any] struct {
	pass[R]
	fn func(T) (R, error)
}

func (o *tryMapOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *tryMapOp[T, R]) Process(v T, m Meta) error {
	o.ctx.Enter()
	r, err := o.fn(v)
	if err != nil {
		return o.ctx.wrap(err)
	}
	return o.out.Process(r, m)
}

// Filter keeps the records for which fn is true.
func Filter[T any](fn func(T) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &filterOp[T]{p, fn}, err
	})
}

type filterOp[T any] struct {
	pass[T]
	fn func(T) bool
}

func (o *filterOp[T]) Input(int) any { return Receiver[T](o) }

func (o *filterOp[T]) Process(v T, m Meta) error {
	o.ctx.Enter()
	if !o.fn(v) {
		return nil
	}
	return o.out.Process(v, m)
}

// Collector emits the results of user functions. It is valid during the call it was given to.
type Collector[R any] struct {
	ctx *Context
	out Receiver[R]
	m   Meta
	err error
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

// FlatMap applies fn, which emits any number of results.
func FlatMap[T, R any](fn func(T, *Collector[R]) error) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[R](ctx, out)
		return &flatMapOp[T, R]{p, fn, Collector[R]{ctx: ctx, out: p.out}}, err
	})
}

type flatMapOp[T, R any] struct {
	pass[R]
	fn func(T, *Collector[R]) error
	c  Collector[R]
}

func (o *flatMapOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *flatMapOp[T, R]) Process(v T, m Meta) error {
	o.ctx.Enter()
	o.c.m = m
	if err := o.fn(v, &o.c); err != nil {
		return o.ctx.wrap(err)
	}
	return o.c.err
}

// Update applies fn to each record in place.
func Update[T any](fn func(*T)) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &updateOp[T]{pass: p, next: byRef(p.out), fn: fn}, err
	})
}

type updateOp[T any] struct {
	pass[T]
	next RefReceiver[T]
	fn   func(*T)
	v    T // the record, when it came by value
}

func (o *updateOp[T]) Input(int) any { return Receiver[T](o) }

func (o *updateOp[T]) Process(v T, m Meta) error {
	o.v = v
	return o.ProcessRef(&o.v, m)
}

func (o *updateOp[T]) ProcessRef(v *T, m Meta) error {
	o.ctx.Enter()
	o.fn(v)
	return o.next.ProcessRef(v, m)
}

// FilterRef keeps the records for which fn is true; fn looks at the record in place.
func FilterRef[T any](fn func(*T) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &filterRefOp[T]{pass: p, next: byRef(p.out), fn: fn}, err
	})
}

type filterRefOp[T any] struct {
	pass[T]
	next RefReceiver[T]
	fn   func(*T) bool
	v    T // the record, when it came by value
}

func (o *filterRefOp[T]) Input(int) any { return Receiver[T](o) }

func (o *filterRefOp[T]) Process(v T, m Meta) error {
	o.v = v
	return o.ProcessRef(&o.v, m)
}

func (o *filterRefOp[T]) ProcessRef(v *T, m Meta) error {
	o.ctx.Enter()
	if !o.fn(v) {
		return nil
	}
	return o.next.ProcessRef(v, m)
}
