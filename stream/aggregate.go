package stream

import "cmp"

// Aggregator folds records of T into an accumulator A with the result V. Its methods hold no state of their own.
type Aggregator[T, A, V any] interface {
	Create() A
	Add(acc *A, v T)
	Result(acc A) V
	// Merge returns the accumulator of the records of both.
	Merge(a, b A) A
}

// Number is what Sum adds up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

type sum[T any, N Number] struct{ of func(T) N }

func (s sum[T, N]) Create() N       { return 0 }
func (s sum[T, N]) Add(acc *N, v T) { *acc += s.of(v) }
func (s sum[T, N]) Result(acc N) N  { return acc }
func (s sum[T, N]) Merge(a, b N) N  { return a + b }

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
