package stream

import (
	"cmp"

	"github.com/thalweg/thalweg/runtime/operator"
)

// Aggregator folds records of T into an accumulator A with the result V. Its methods hold no state of their own.
type Aggregator[T, A, V any] interface {
	Create() A
	Add(acc *A, v T)
	// Result may return acc, or parts of it, but must not change it: sort a copy.
	Result(acc A) V
	// Merge returns the accumulator of the records of both; it may change and reuse a, but not b. Windows that merge and slices of sliding
	// windows are combined by it.
	Merge(a, b A) A
}

// Copier is a further method that an Aggregator may have. The strings and slices of a record may be views, which hold a whole network buffer,
// so a window copies an accumulator that has any after each Add. Where Copies returns true, Add itself copies what it keeps (strings.Clone), and only
// that: the way for accumulators that keep few of their records.
type Copier interface{ Copies() bool }

// Number is what Sum adds up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

type sum[T any, N Number] struct{ of func(T) N }

func (s sum[T, N]) Create() N       { return 0 }
func (s sum[T, N]) Add(acc *N, v T) { *acc += s.of(v) }
func (s sum[T, N]) Result(acc N) N  { return acc }
func (s sum[T, N]) Merge(a, b N) N  { return a + b }
func (s sum[T, N]) missing() bool   { return s.of == nil }

// Sum adds up a number of each record.
func Sum[T any, N Number](of func(T) N) Aggregator[T, N, N] { return sum[T, N]{of} }

type count[T any] struct{}

func (count[T]) Create() int64          { return 0 }
func (count[T]) Add(acc *int64, _ T)    { *acc++ }
func (count[T]) Result(acc int64) int64 { return acc }
func (count[T]) Merge(a, b int64) int64 { return a + b }

// Count counts records.
func Count[T any]() Aggregator[T, int64, int64] { return count[T]{} }

type extreme[T any, N cmp.Ordered] struct {
	of   func(T) N
	sign int
}

// Extreme is the accumulator of Min and Max.
type Extreme[N cmp.Ordered] struct {
	Value N
	Set   bool
}

func (e extreme[T, N]) Create() Extreme[N] { return Extreme[N]{} }
func (e extreme[T, N]) Add(acc *Extreme[N], v T) {
	if n := e.of(v); !acc.Set || cmp.Compare(n, acc.Value)*e.sign > 0 {
		*acc = Extreme[N]{n, true}
	}
}
func (e extreme[T, N]) Result(acc Extreme[N]) N { return acc.Value }
func (e extreme[T, N]) missing() bool           { return e.of == nil }
func (e extreme[T, N]) Merge(a, b Extreme[N]) Extreme[N] {
	if !a.Set || b.Set && cmp.Compare(b.Value, a.Value)*e.sign > 0 {
		return b
	}
	return a
}

// Min is the least value of each record's of.
func Min[T any, N cmp.Ordered](of func(T) N) Aggregator[T, Extreme[N], N] {
	return extreme[T, N]{of, -1}
}

// Max is the greatest.
func Max[T any, N cmp.Ordered](of func(T) N) Aggregator[T, Extreme[N], N] {
	return extreme[T, N]{of, 1}
}

// Mean is the accumulator of Average.
type Mean struct {
	Sum float64
	N   int64
}

type average[T any, N Number] struct{ of func(T) N }

func (a average[T, N]) Create() Mean { return Mean{} }
func (a average[T, N]) Add(acc *Mean, v T) {
	acc.Sum += float64(a.of(v))
	acc.N++
}
func (a average[T, N]) Result(acc Mean) float64 {
	if acc.N == 0 {
		return 0
	}
	return acc.Sum / float64(acc.N)
}
func (a average[T, N]) Merge(x, y Mean) Mean { return Mean{x.Sum + y.Sum, x.N + y.N} }
func (a average[T, N]) missing() bool        { return a.of == nil }

// Average is the mean of a number of each record, 0 of none.
func Average[T any, N Number](of func(T) N) Aggregator[T, Mean, float64] { return average[T, N]{of} }

// combiner combines records to one, in memory of its own: one instance serves one subtask.
type combiner[T any] struct {
	add   func(acc *T, v T, first bool)
	merge func(a, b T) T
}

// combining makes combiners of a function that adds a record to another, both in place.
func combining[T any](join func(acc, v *T)) func() combiner[T] {
	return func() combiner[T] {
		var x, y T // what join gets pointers to; parameters would be moved to the heap, record by record
		return combiner[T]{
			add: func(acc *T, v T, first bool) {
				if first {
					*acc = v
					return
				}
				y = v
				join(acc, &y)
			},
			merge: func(a, b T) T {
				x, y = a, b
				join(&x, &y)
				return x
			},
		}
	}
}

// noField is what a field function did that no trial could tell.
const noField = "the field function returned nil for a record: it must return the address of one of its fields; leave out, with Filter, records that have none"

// fieldOf notes a mistake when a field function is missing, or leads out of the record.
func fieldOf[T, N any](env *Environment, field func(*T) *N) {
	if env.need(field != nil, "the field function"); field != nil {
		v := new(T)
		env.inside(v, func() any { return field(v) })
	}
}

func summing[T any, N Number](field func(*T) *N) func() combiner[T] {
	return combining(func(acc, v *T) {
		a, b := field(acc), field(v)
		if a == nil || b == nil {
			panic(noField)
		}
		*a += *b
	})
}

func extremes[T any, N cmp.Ordered](field func(*T) *N, sign int) func() combiner[T] {
	return combining(func(acc, v *T) {
		a, b := field(acc), field(v)
		if a == nil || b == nil {
			panic(noField)
		}
		if cmp.Compare(*b, *a)*sign > 0 {
			*a = *b
		}
	})
}

func extremeRecord[T any, N cmp.Ordered](of func(T) N, sign int) func() combiner[T] {
	return combining(func(acc, v *T) {
		if cmp.Compare(of(*v), of(*acc))*sign > 0 {
			*acc = *v
		}
	})
}

func rolling[K comparable, T any](s KeyedStream[K, T], name string, newFn func() combiner[T]) SingleOutputStreamOperator[T] {
	return keyed[K, T, T](s, "aggregate", "Keyed "+name, "", operator.Rolling(s.sel, func() operator.RollingFunctions[K, T, T, T] {
		return operator.RollingFunctions[K, T, T, T]{Add: newFn().add, Result: func(_ K, acc *T) T { return *acc }}
	}))
}

// Sum emits, for each record, the first record of its key with the sum of a field of all so far: Sum(func(o *Order) *int64 { return &o.Cents }).
func (s KeyedStream[K, T]) Sum[N Number](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(s.env, field)
	return rolling(s, "Sum", summing(field))
}

// Min emits, for each record, the first record of its key with the least value of a field of all so far; MinBy emits the record that has it.
func (s KeyedStream[K, T]) Min[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(s.env, field)
	return rolling(s, "Min", extremes(field, -1))
}

// Max is Min with the greatest value.
func (s KeyedStream[K, T]) Max[N cmp.Ordered](field func(*T) *N) SingleOutputStreamOperator[T] {
	fieldOf(s.env, field)
	return rolling(s, "Max", extremes(field, 1))
}

// MinBy emits, for each record, the record of its key with the least of so far, the first one of several.
func (s KeyedStream[K, T]) MinBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	s.env.need(of != nil, "the value function")
	return rolling(s, "MinBy", extremeRecord(of, -1))
}

// MaxBy is MinBy with the greatest.
func (s KeyedStream[K, T]) MaxBy[N cmp.Ordered](of func(T) N) SingleOutputStreamOperator[T] {
	s.env.need(of != nil, "the value function")
	return rolling(s, "MaxBy", extremeRecord(of, 1))
}

// Aggregate folds the records of each key into an accumulator and emits fn of its result for each record.
func (s KeyedStream[K, T]) Aggregate[A, V, R any](agg Aggregator[T, A, V], fn func(key K, v V) R) SingleOutputStreamOperator[R] {
	s.env.aggregator(agg)
	s.env.need(fn != nil, "the result function")
	return keyed[K, T, R](s, "aggregate", "Keyed Aggregate", "", operator.Rolling(s.sel, func() operator.RollingFunctions[K, T, A, R] {
		f := aggregating[K, T, A, V, R](agg)
		return operator.RollingFunctions[K, T, A, R]{Add: f.Add, Result: func(k K, acc *A) R { return fn(k, agg.Result(*acc)) }}
	}))
}

// Count counts the records of each key, for each record.
func (s KeyedStream[K, T]) Count[R any](fn func(key K, n int64) R) SingleOutputStreamOperator[R] {
	return s.Aggregate(Count[T](), fn)
}

// Average is the mean of a number of the records of each key so far, for each record.
func (s KeyedStream[K, T]) Average[N Number, R any](of func(T) N, fn func(key K, mean float64) R) SingleOutputStreamOperator[R] {
	return s.Aggregate(Average(of), fn)
}
