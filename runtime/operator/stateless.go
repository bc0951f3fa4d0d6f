package operator

// Operators are compiled in each program, once for each of its types, with everything that their types have and mention. So what they
// are beside their Receiver is not generic here: a relay inside of it, and a plain Operator around it.

// relay is what a Receiver without event time of its own is beside Process: it forwards watermarks and idleness.
type relay struct {
	ctx  *Context
	next advancer
}

func (r *relay) Watermark(ts int64) error { return r.next.Watermark(ts) }
func (r *relay) Idle(idle bool) error     { return r.next.Idle(idle) }

// plain is an Operator that is no more than its Receiver.
type plain struct {
	Base
	in any // Receiver of its records
}

func (o *plain) Input(int) any { return o.in }

// Pass hands each record on: it is what follows it.
func Pass() Factory {
	return FactoryFunc(func(_ *Context, out any) (Operator, error) { return &plain{in: out}, nil })
}

// Map applies fn to each record.
func Map[T, R any](fn func(T) R) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		return &plain{in: Receiver[T](&mapOp[T, R]{relay{ctx, r}, r, fn})}, err
	})
}

type mapOp[T, R any] struct {
	relay
	out Receiver[R]
	fn  func(T) R
}

func (o *mapOp[T, R]) Process(v T, m Meta) error {
	o.ctx.Enter()
	return o.out.Process(o.fn(v), m)
}

// TryMap applies fn, whose error fails the task.
func TryMap[T, R any](fn func(T) (R, error)) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		return &plain{in: Receiver[T](&tryMapOp[T, R]{relay{ctx, r}, r, fn})}, err
	})
}

type tryMapOp[T, R any] struct {
	relay
	out Receiver[R]
	fn  func(T) (R, error)
}

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
		r, err := receiver[T](out)
		return &plain{in: Receiver[T](&filterOp[T]{relay{ctx, r}, r, fn})}, err
	})
}

type filterOp[T any] struct {
	relay
	out Receiver[T]
	fn  func(T) bool
}

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
		r, err := receiver[R](out)
		return &plain{in: Receiver[T](&flatMapOp[T, R]{relay{ctx, r}, fn, newCollector(ctx, r)})}, err
	})
}

type flatMapOp[T, R any] struct {
	relay
	fn func(T, *Collector[R]) error
	c  Collector[R]
}

func (o *flatMapOp[T, R]) Process(v T, m Meta) error {
	o.ctx.Enter()
	o.c.begin(m)
	return o.c.done(o.fn(v, &o.c))
}

// Update applies fn to each record in place.
func Update[T any](fn func(*T)) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[T](out)
		return &plain{in: Receiver[T](&updateOp[T]{relay: relay{ctx, r}, out: inBatches(r), fn: fn})}, err
	})
}

type updateOp[T any] struct {
	relay
	out BatchReceiver[T]
	fn  func(*T)
	one single[T]
}

func (o *updateOp[T]) Process(v T, m Meta) error { return o.ProcessBatch(o.one.batch(v, m)) }

func (o *updateOp[T]) ProcessBatch(vs []T, ts []int64) error {
	o.ctx.Enter()
	for i := range vs {
		o.fn(&vs[i])
	}
	return o.out.ProcessBatch(vs, ts)
}

// FilterRef keeps the records for which fn is true; fn looks at the record in place.
func FilterRef[T any](fn func(*T) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[T](out)
		return &plain{in: Receiver[T](&filterRefOp[T]{relay: relay{ctx, r}, out: inBatches(r), fn: fn})}, err
	})
}

type filterRefOp[T any] struct {
	relay
	out BatchReceiver[T]
	fn  func(*T) bool
	one single[T]
}

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
	return o.out.ProcessBatch(vs[:kept], ts)
}

// FilterMap makes a result of each record, in place, and keeps it when fn is true. r holds anything: fn sets every field of what it keeps.
func FilterMap[T, R any](fn func(v *T, r *R) bool) Factory {
	return FactoryFunc(func(ctx *Context, out any) (Operator, error) {
		r, err := receiver[R](out)
		return &plain{in: Receiver[T](&filterMapOp[T, R]{relay: relay{ctx, r}, out: inBatches(r), fn: fn})}, err
	})
}

type filterMapOp[T, R any] struct {
	relay
	out  BatchReceiver[R]
	fn   func(*T, *R) bool
	one  single[T]
	made []R
	ts   []int64
}

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
		return o.out.ProcessBatch(o.made[:kept], nil)
	}
	return o.out.ProcessBatch(o.made[:kept], o.ts[:kept])
}
