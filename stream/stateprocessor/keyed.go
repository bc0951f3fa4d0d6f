package stateprocessor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/stream"
)

// Key is the current key of a function, with its timers.
type Key[K comparable] struct {
	key         K
	o           *operator.Offline[K]
	event, proc map[K][]time.Time // before anything was changed
}

// Key is the current key.
func (k *Key[K]) Key() K { return k.key }

// EventTimeTimers are the times of the key's event-time timers as they were stored, in order.
func (k *Key[K]) EventTimeTimers() []time.Time { return k.event[k.key] }

// ProcessingTimeTimers are the times of the key's processing-time timers as they were stored, in order.
func (k *Key[K]) ProcessingTimeTimers() []time.Time { return k.proc[k.key] }

// RegisterEventTimeTimer lets the job call OnTimer for the key when its watermark reaches t.
func (k *Key[K]) RegisterEventTimeTimer(t time.Time) error { return k.o.RegisterTimer(true, t) }

// RegisterProcessingTimeTimer lets the job call OnTimer for the key at t.
func (k *Key[K]) RegisterProcessingTimeTimer(t time.Time) error { return k.o.RegisterTimer(false, t) }

// DeleteEventTimeTimer removes a timer of the key.
func (k *Key[K]) DeleteEventTimeTimer(t time.Time) error { return k.o.DeleteTimer(true, t) }

// DeleteProcessingTimeTimer removes a timer of the key.
func (k *Key[K]) DeleteProcessingTimeTimer(t time.Time) error { return k.o.DeleteTimer(false, t) }

// KeyFunction works on the state of one key after another: reads it, or changes it. Source: Flink's KeyedStateReaderFunction.
type KeyFunction[K comparable, R any] interface {
	// Open opens the states, under the names and as the kinds that the job's function opens them. Under a name that the savepoint does not have it
	// gets empty state, as the job would; `thalweg state ls` lists the names.
	Open(rt *stream.RuntimeContext[K]) error
	// ProcessKey is called for each key that has something in one of the states that Open has opened, or a timer, in no order. The handles are of the key.
	ProcessKey(k *Key[K], emit func(R)) error
}

// Keyed calls a function for each key of the operator with this UID, and ranges over what it emits. The first error ends it. The keys are held in
// memory together, and what the function emits for a key is.
func Keyed[K comparable, R any](ctx context.Context, s *Savepoint, uid string, fn KeyFunction[K, R]) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		if fn == nil {
			yield(none, fmt.Errorf("stateprocessor: Keyed(%q): the function is nil", uid))
			return
		}
		op, err := s.operator(uid)
		if err != nil {
			yield(none, err)
			return
		}
		b, err := s.o.bench(ctx, *op, s.src)
		if err != nil {
			yield(none, err)
			return
		}
		going := true
		err = eachKey(ctx, b, fn, func(r R) bool {
			going = going && yield(r, nil)
			return going
		})
		if err = errors.Join(err, b.close()); err != nil && going {
			yield(none, fmt.Errorf("stateprocessor: keyed state of operator %q: %w", uid, err))
		}
	}
}

// eachKey calls fn for each key, and emit for what it emits until that returns false.
func eachKey[K comparable, R any](ctx context.Context, b *bench, fn KeyFunction[K, R], emit func(R) bool) error {
	o, k, err := open(b, fn.Open)
	if err != nil {
		return err
	}
	keys, err := o.Keys()
	if err != nil {
		return err
	}
	var out []R
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		k.key, out = key, out[:0]
		o.Select(key)
		if err := fn.ProcessKey(k, func(r R) { out = append(out, r) }); err != nil {
			return fmt.Errorf("key %v: %w", key, err)
		}
		for _, r := range out {
			if !emit(r) {
				return nil
			}
		}
	}
	o.NoKey()
	return nil
}

// open opens the states of a function.
func open[K comparable](b *bench, fn func(*stream.RuntimeContext[K]) error) (*operator.Offline[K], *Key[K], error) {
	o, err := operator.NewOffline[K](b.ctx)
	if err != nil {
		return nil, nil, err
	}
	k := &Key[K]{o: o}
	if k.event, err = o.TimersByKey(true); err != nil {
		return nil, nil, err
	}
	if k.proc, err = o.TimersByKey(false); err != nil {
		return nil, nil, err
	}
	return o, k, fn(o.Runtime())
}

// Bootstrap puts records into the keyed state of an operator. Source: Flink's KeyedStateBootstrapFunction.
type Bootstrap[K comparable, T any] interface {
	Open(rt *stream.RuntimeContext[K]) error
	// ProcessElement is called for each record, in their order, with the record's key as the current one.
	ProcessElement(k *Key[K], v T) error
}

// Change is something to be done to the state of an operator, for Writer.With.
type Change interface {
	apply(ctx context.Context, b *bench) error
}

type change func(ctx context.Context, b *bench) error

func (c change) apply(ctx context.Context, b *bench) error { return c(ctx, b) }

// mistaken is a change that cannot be made; Writer.With says why.
type mistaken string

func (m mistaken) apply(context.Context, *bench) error { return errors.New(string(m)) }

// Records makes state of records: fn is called for each of in, with the key that key returns. An error of in ends the writing.
func Records[K comparable, T any](in iter.Seq2[T, error], key func(T) K, fn Bootstrap[K, T]) Change {
	if in == nil || key == nil || fn == nil {
		return mistaken("Records needs records, a function for their keys and one for their state, none of them nil")
	}
	return change(func(ctx context.Context, b *bench) error {
		o, k, err := open(b, fn.Open)
		if err != nil {
			return err
		}
		n := 0
		for v, err := range in {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("record %d: %w", n, err)
			}
			k.key = key(v)
			o.Select(k.key)
			if err := fn.ProcessElement(k, v); err != nil {
				return fmt.Errorf("record %d, key %v: %w", n, k.key, err)
			}
			n++
		}
		o.NoKey()
		return nil
	})
}

// Keys changes the state of each key that there is; what fn emits is dropped.
func Keys[K comparable](fn KeyFunction[K, struct{}]) Change {
	if fn == nil {
		return mistaken("Keys: the function is nil")
	}
	return change(func(ctx context.Context, b *bench) error {
		return eachKey(ctx, b, fn, func(struct{}) bool { return true })
	})
}

// OperatorState changes operator state, of all subtasks together: fn opens list, union list and broadcast state with their types, and reads and writes them
// at once. Items of a list are dealt out to the subtasks when a job starts.
func OperatorState(fn func(rt *stream.TaskContext) error) Change {
	if fn == nil {
		return mistaken("OperatorState: the function is nil")
	}
	return change(func(_ context.Context, b *bench) error { return fn(operator.OfflineTask(b.ctx)) })
}

// ReadOperatorState calls fn to open and read the operator state of the operator with this UID, of all subtasks together.
func ReadOperatorState(ctx context.Context, s *Savepoint, uid string, fn func(rt *stream.TaskContext) error) error {
	if fn == nil {
		return fmt.Errorf("stateprocessor: ReadOperatorState(%q): the function is nil", uid)
	}
	op, err := s.operator(uid)
	if err != nil {
		return err
	}
	b, err := s.o.bench(ctx, *op, s.src)
	if err != nil {
		return err
	}
	if err = errors.Join(fn(operator.OfflineTask(b.ctx)), b.close()); err != nil {
		return fmt.Errorf("stateprocessor: operator state of %q: %w", uid, err)
	}
	return nil
}
