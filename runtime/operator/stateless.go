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

// Pass hands each record on.
func Pass[T any]() Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &passOp[T]{p}, err
	})
}

type passOp[T any] struct{ pass[T] }

func (o *passOp[T]) Input(int) any { return Receiver[T](o) }

func (o *passOp[T]) Process(v T, m Meta) error { return o.out.Process(v, m) }

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

// FlatMap applies fn, which emits any number of results.
func FlatMap[T, R any](fn func(T, *Collector[R]) error) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[R](ctx, out)
		return &flatMapOp[T, R]{p, fn, newCollector(ctx, p.out)}, err
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
	return o.c.done(o.fn(v, &o.c))
}

// Update applies fn to each record in place.
func Update[T any](fn func(*T)) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &updateOp[T]{pass: p, next: inBatches(p.out), fn: fn}, err
	})
}

type updateOp[T any] struct {
	pass[T]
	next BatchReceiver[T]
	fn   func(*T)
	one  single[T]
}

func (o *updateOp[T]) Input(int) any { return Receiver[T](o) }

func (o *updateOp[T]) Process(v T, m Meta) error { return o.ProcessBatch(o.one.batch(v, m)) }

func (o *updateOp[T]) ProcessBatch(vs []T, ts []int64) error {
	o.ctx.Enter()
	for i := range vs {
		o.fn(&vs[i])
	}
	return o.next.ProcessBatch(vs, ts)
}

// FilterRef keeps the records for which fn is true; fn looks at the record in place.
func FilterRef[T any](fn func(*T) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[T](ctx, out)
		return &filterRefOp[T]{pass: p, next: inBatches(p.out), fn: fn}, err
	})
}

type filterRefOp[T any] struct {
	pass[T]
	next BatchReceiver[T]
	fn   func(*T) bool
	one  single[T]
}

func (o *filterRefOp[T]) Input(int) any { return Receiver[T](o) }

func (o *filterRefOp[T]) Process(v T, m Meta) error { return o.ProcessBatch(o.one.batch(v, m)) }

// ProcessBatch moves the kept records together. It moves the others too, to be overwritten: a branch that the processor cannot foresee
// costs more than the copy.
func (o *filterRefOp[T]) ProcessBatch(vs []T, ts []int64) error {
	o.ctx.Enter()
	kept := 0
	for i := range vs {
		n := 0
		if o.fn(&vs[i]) {
			n = 1
		}
		vs[kept] = vs[i]
		if ts != nil {
			ts[kept] = ts[i]
		}
		kept += n
	}
	if kept == 0 {
		return nil
	}
	if ts != nil {
		ts = ts[:kept]
	}
	return o.next.ProcessBatch(vs[:kept], ts)
}

// FilterMap makes a result of each record, in place, and keeps it when fn is true. r holds anything: fn sets every field of what it keeps.
func FilterMap[T, R any](fn func(v *T, r *R) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		p, err := newPass[R](ctx, out)
		return &filterMapOp[T, R]{pass: p, next: inBatches(p.out), fn: fn}, err
	})
}

type filterMapOp[T, R any] struct {
	pass[R]
	next BatchReceiver[R]
	fn   func(*T, *R) bool
	one  single[T]
	made []R
	ts   []int64
}

func (o *filterMapOp[T, R]) Input(int) any { return Receiver[T](o) }

func (o *filterMapOp[T, R]) Process(v T, m Meta) error { return o.ProcessBatch(o.one.batch(v, m)) }

// readsOnly implements batchReader.
func (o *filterMapOp[T, R]) readsOnly() {}

func (o *filterMapOp[T, R]) ProcessBatch(vs []T, ts []int64) error {
	o.ctx.Enter()
	if len(o.made) < len(vs) {
		o.made, o.ts = make([]R, len(vs)), make([]int64, len(vs))
	}
	kept := 0
	for i := range vs {
		if !o.fn(&vs[i], &o.made[kept]) {
			continue
		}
		if ts != nil {
			o.ts[kept] = ts[i]
		}
		kept++
	}
	if kept == 0 {
		return nil
	}
	if ts == nil {
		return o.next.ProcessBatch(o.made[:kept], nil)
	}
	return o.next.ProcessBatch(o.made[:kept], o.ts[:kept])
}
