package operator

import (
	"slices"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// TimestampedValue is a record in a window, with its event time in milliseconds or NoTimestamp.
type TimestampedValue[T any] struct {
	Value     T
	Timestamp int64
}

// Evictor removes records from a window when it fires, before or after the window function. The elements, in the order of their arrival,
// may be changed in place; what is returned stays in the window. Evictors hold no state of their own. Source: Flink Evictor.
type Evictor[T any] interface {
	EvictBefore(elements []TimestampedValue[T], w Window, ctx *EvictorContext) []TimestampedValue[T]
	EvictAfter(elements []TimestampedValue[T], w Window, ctx *EvictorContext) []TimestampedValue[T]
}

// EvictorContext tells an evictor the time, in milliseconds.
type EvictorContext struct{ Watermark, ProcessingTime int64 }

// evictor is an Evictor of one function.
type evictor[T any] struct {
	after bool
	fn    func([]TimestampedValue[T]) []TimestampedValue[T]
}

func (e evictor[T]) EvictBefore(v []TimestampedValue[T], _ Window, _ *EvictorContext) []TimestampedValue[T] {
	if e.after {
		return v
	}
	return e.fn(v)
}

func (e evictor[T]) EvictAfter(v []TimestampedValue[T], _ Window, _ *EvictorContext) []TimestampedValue[T] {
	if !e.after {
		return v
	}
	return e.fn(v)
}

// NewCountEvictor returns the evictor that keeps the last n records. Source: Flink CountEvictor.
func NewCountEvictor[T any](n int, after bool) Evictor[T] {
	return evictor[T]{after, func(v []TimestampedValue[T]) []TimestampedValue[T] { return v[max(0, len(v)-n):] }}
}

// NewTimeEvictor returns the evictor that keeps the records of the last size milliseconds before the latest one. Records without event
// time are all kept. Source: Flink TimeEvictor.
func NewTimeEvictor[T any](size int64, after bool) Evictor[T] {
	return evictor[T]{after, func(v []TimestampedValue[T]) []TimestampedValue[T] {
		if len(v) == 0 || v[0].Timestamp == NoTimestamp {
			return v
		}
		latest := NoTimestamp
		for i := range v {
			latest = max(latest, v[i].Timestamp)
		}
		cut := minus(latest, size)
		return slices.DeleteFunc(v, func(e TimestampedValue[T]) bool { return e.Timestamp <= cut })
	}}
}

// NewDeltaEvictor returns the evictor that keeps the records whose delta to the last one is below threshold. Source: Flink DeltaEvictor.
func NewDeltaEvictor[T any](threshold float64, delta func(old, last T) float64, after bool) Evictor[T] {
	return evictor[T]{after, func(v []TimestampedValue[T]) []TimestampedValue[T] {
		if len(v) == 0 {
			return v
		}
		last := v[len(v)-1].Value
		return slices.DeleteFunc(v, func(e TimestampedValue[T]) bool { return delta(e.Value, last) >= threshold })
	}}
}

// evictUser lets an evictor choose from a window's records before (and after) the rest of the user's half sees them.
type evictUser[K comparable, T, C, R any] struct {
	windowUser[K, C, R]
	env     *windowEnv[K, R]
	c       contents[T, C]
	evictor Evictor[T]
	values  serde.Codec[T] // set when what results are made of needs records of its own: those that stay must not change with it
}

func (u *evictUser[K, T, C, R]) open(e *windowEnv[K, R]) error {
	u.env = e
	return u.windowUser.open(e)
}

// fireBuffer emits a window; what the evictor leaves is its new contents.
func (u *evictUser[K, T, C, R]) fireBuffer(k state.Key[K], w Window, buffer *[]TimestampedValue[T]) (bool, error) {
	ctx := &EvictorContext{u.env.clock.at(k.Group), u.env.ctx.Now()}
	u.env.ctx.Enter()
	kept := u.evictor.EvictBefore(slices.Clone(*buffer), w, ctx)
	var c C
	if len(kept) == 0 && u.c.empty != nil {
		c = u.c.empty()
	}
	for i := range kept {
		v := kept[i].Value
		if u.values != nil {
			v = u.values.Clone(v)
		}
		if u.c.fold != nil {
			u.c.fold(&c, v, i == 0)
		} else {
			u.c.add(&c, v, kept[i].Timestamp, i == 0)
		}
	}
	if len(kept) > 0 || u.c.empty != nil {
		if _, err := u.windowUser.fire(k, w, &c); err != nil {
			return false, err
		}
		u.env.ctx.Enter()
	}
	*buffer = u.evictor.EvictAfter(kept, w, ctx)
	return true, nil
}

// evictBuffer is an evictUser over its buffer.
type evictBuffer[K comparable, T, C, R any] struct{ *evictUser[K, T, C, R] }

// shares: the evictor may change records in place.
func (evictBuffer[K, T, C, R]) shares() bool { return mutableType[T]() }

func (b evictBuffer[K, T, C, R]) fire(k state.Key[K], w Window, c *[]TimestampedValue[T]) (bool, error) {
	return b.fireBuffer(k, w, c)
}
