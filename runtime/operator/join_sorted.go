package operator

import (
	"slices"

	"github.com/thalweg/thalweg/serde"
)

// sortedJoin is what an interval join keeps of a key in BATCH. The records of both sides come in the order of their times there, so those that no
// record to come can have for a partner are dropped, and each record looks at its partners alone.
type sortedJoin[K comparable, A, B any] struct {
	key   K
	of    bool // there is a key
	left  sortedSide[A]
	right sortedSide[B]
}

func newSortedJoin[K comparable, A, B any]() (*sortedJoin[K, A, B], error) {
	a, err := serde.For[A]()
	if err != nil {
		return nil, err
	}
	b, err := serde.For[B]()
	if err != nil {
		return nil, err
	}
	return &sortedJoin[K, A, B]{left: sortedSide[A]{codec: a}, right: sortedSide[B]{codec: b}}, nil
}

// enter drops the records of the key before.
func (s *sortedJoin[K, A, B]) enter(k K) {
	if s.of && s.key == k {
		return
	}
	s.of, s.key = true, k
	s.left.drop(len(s.left.at))
	s.right.drop(len(s.right.at))
}

// sortedSide are records of one side, in the order of their times.
type sortedSide[V any] struct {
	codec serde.Codec[V]
	at    []int64
	vs    []V
	head  int // those before are dropped
}

func (s *sortedSide[V]) add(at int64, v V) {
	s.at, s.vs = append(s.at, at), append(s.vs, s.codec.Clone(v))
}

// dropBefore drops what is older than at.
func (s *sortedSide[V]) dropBefore(at int64) {
	n := s.head
	for n < len(s.at) && s.at[n] < at {
		n++
	}
	s.drop(n)
}

// drop drops the first n of at and vs.
func (s *sortedSide[V]) drop(n int) {
	clear(s.vs[s.head:n])
	s.head = n
	if n == len(s.at) || n > 64 && n > len(s.at)/2 {
		s.at, s.vs, s.head = slices.Delete(s.at, 0, n), slices.Delete(s.vs, 0, n), 0
	}
}

// between calls fn for the records whose time is in [from, to].
func (s *sortedSide[V]) between(from, to int64, fn func(at int64, v V) error) error {
	i, _ := slices.BinarySearch(s.at[s.head:], from)
	for i += s.head; i < len(s.at) && s.at[i] <= to; i++ {
		if err := fn(s.at[i], s.vs[i]); err != nil {
			return err
		}
	}
	return nil
}

// arrive is for each record in BATCH: it drops what no later one can be paired with.
func (j *intervalJoin[K, A, B, R]) arrive(ctx *KeyedContext[K]) (*sortedJoin[K, A, B], int64, error) {
	s, ts := j.sorted, ctx.e.m.TS
	if ts == NoTimestamp {
		return nil, 0, ctx.e.ctx.noTime()
	}
	s.enter(ctx.cur.Key)
	s.right.dropBefore(plus(ts, j.j.Lower))
	s.left.dropBefore(plus(ts, -j.j.Upper))
	return s, ts, nil
}

// first processes a left record in BATCH.
func (j *intervalJoin[K, A, B, R]) first(ctx *KeyedContext[K], v A, out *Collector[R]) error {
	s, ts, err := j.arrive(ctx)
	if err != nil {
		return err
	}
	s.left.add(ts, v)
	return s.right.between(plus(ts, j.j.Lower), plus(ts, j.j.Upper), func(at int64, r B) error { return j.pair(ctx.e, ts, at, v, r, out) })
}

// second processes a right record in BATCH.
func (j *intervalJoin[K, A, B, R]) second(ctx *KeyedContext[K], v B, out *Collector[R]) error {
	s, ts, err := j.arrive(ctx)
	if err != nil {
		return err
	}
	s.right.add(ts, v)
	return s.left.between(plus(ts, -j.j.Upper), plus(ts, -j.j.Lower), func(at int64, l A) error { return j.pair(ctx.e, at, ts, l, v, out) })
}
