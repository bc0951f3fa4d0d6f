package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// JoinContext is what a join's function gets with each pair: LeftTime(), RightTime() and Time(), the later of both, all time.Time, and Output(tag, v).
type JoinContext = operator.JoinContext

// IntervalJoin joins this stream with another that is keyed alike: pairs of records of one key whose event times are within an interval of
// each other, which Between sets.
func (s KeyedStream[K, T]) IntervalJoin[B any](other KeyedStream[K, B]) IntervalJoin[K, T, B] {
	return IntervalJoin[K, T, B]{c: s.Connect(other)}
}

// IntervalJoin is an interval join that is still without bounds.
type IntervalJoin[K comparable, A, B any] struct {
	c ConnectedKeyedStreams[K, A, B]
}

// Between joins each record of the left stream, at time t, with those of the right one from t+lower to t+upper, both included.
// Bounds may be negative.
func (j IntervalJoin[K, A, B]) Between(lower, upper time.Duration) IntervalJoined[K, A, B] {
	switch {
	case lower > upper:
		j.c.first.env.mistake("Between: the lower bound %v is above the upper bound %v", lower, upper)
	case lower%time.Millisecond != 0:
		j.c.first.env.mistake("Between: the lower bound %v is not a whole number of milliseconds", lower)
	case upper%time.Millisecond != 0:
		j.c.first.env.mistake("Between: the upper bound %v is not a whole number of milliseconds", upper)
	}
	return IntervalJoined[K, A, B]{c: j.c, j: operator.IntervalJoin[A, B]{Lower: lower.Milliseconds(), Upper: upper.Milliseconds()}, reversed: lower > upper}
}

// IntervalJoined is an interval join with its bounds.
type IntervalJoined[K comparable, A, B any] struct {
	c        ConnectedKeyedStreams[K, A, B]
	j        operator.IntervalJoin[A, B]
	reversed bool // told already
}

// LowerBoundExclusive leaves out records at exactly the lower bound.
func (j IntervalJoined[K, A, B]) LowerBoundExclusive() IntervalJoined[K, A, B] {
	j.j.Lower++
	return j
}

// UpperBoundExclusive leaves out records at exactly the upper bound.
func (j IntervalJoined[K, A, B]) UpperBoundExclusive() IntervalJoined[K, A, B] {
	j.j.Upper--
	return j
}

// SideOutputLeftLateData sends late records of the left stream to a side output; without it, and when nobody reads it, they are dropped
// and counted (numLateRecordsDropped).
func (j IntervalJoined[K, A, B]) SideOutputLeftLateData(tag OutputTag[A]) IntervalJoined[K, A, B] {
	j.j.LeftLate = lateTag(j.c.first.env, "SideOutputLeftLateData", tag).ID
	return j
}

// SideOutputRightLateData is SideOutputLeftLateData for the right stream.
func (j IntervalJoined[K, A, B]) SideOutputRightLateData(tag OutputTag[B]) IntervalJoined[K, A, B] {
	j.j.RightLate = lateTag(j.c.first.env, "SideOutputRightLateData", tag).ID
	return j
}

// Process calls fn for each pair; results have the later of the pair's event times.
func (j IntervalJoined[K, A, B]) Process[R any](fn func(ctx *JoinContext, left A, right B, out *Collector[R]) error) SingleOutputStreamOperator[R] {
	j.c.first.env.need(fn != nil, "the function")
	if j.j.Lower > j.j.Upper && !j.reversed {
		j.c.first.env.mistake("IntervalJoin: with its exclusive bounds the interval is empty")
	}
	left, right := OutputTag[A]{ID: j.j.LeftLate}, OutputTag[B]{ID: j.j.RightLate}
	sameTag(j.c.first.env, left, right)
	out := connectedKeyed[K, A, B, R](j.c, "intervaljoin", "Interval Join", operator.JoinInterval(j.c.first.sel, j.c.second.sel, j.j, fn))
	declare(out.f.node, left)
	declare(out.f.node, right)
	out.f.node.Detail = fmt.Sprintf("[%v, %v]", time.Duration(j.j.Lower)*time.Millisecond, time.Duration(j.j.Upper)*time.Millisecond)
	return out
}
