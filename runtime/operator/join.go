package operator

import (
	"math"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
)

// JoinContext is what a join's function gets with each pair.
type JoinContext struct {
	e           *emission
	left, right int64
}

// LeftTime and RightTime are the event times of the two records.
func (c *JoinContext) LeftTime() time.Time  { return time.UnixMilli(c.left).UTC() }
func (c *JoinContext) RightTime() time.Time { return time.UnixMilli(c.right).UTC() }

// Time is the later of both, and the event time of the results.
func (c *JoinContext) Time() time.Time { return time.UnixMilli(max(c.left, c.right)).UTC() }

// Output emits v to a side output, with the event time of the results.
func (c *JoinContext) Output[S any](tag OutputTag[S], v S) { c.e.output(tag, v) }

// IntervalJoin describes an interval join: a left record at time t is joined with the right ones of its key whose time is in
// [t+Lower, t+Upper], in milliseconds.
type IntervalJoin[A, B any] struct {
	Lower, Upper        int64
	LeftLate, RightLate string // tags of the side outputs of late records; "" to drop and count them
}

// JoinInterval joins two keyed streams by event time. A record waits until no partner can come any more; one that is behind the watermark
// is late. The records of a pair are its own. Source: Flink IntervalJoinOperator.
func JoinInterval[K comparable, A, B, R any](left KeySelector[K, A], right KeySelector[K, B], j IntervalJoin[A, B], fn func(ctx *JoinContext, l A, r B, out *Collector[R]) error) Factory {
	return laid(layoutIntervalJoin, KeyedCoProcess(left, right, func() KeyedCoProcessFunction[K, A, B, R] {
		return &intervalJoin[K, A, B, R]{j: j, fn: fn, lefts: mutableCodec[A](), rights: mutableCodec[B]()}
	}).New)
}

type intervalJoin[K comparable, A, B, R any] struct {
	j     IntervalJoin[A, B]
	fn    func(*JoinContext, A, B, *Collector[R]) error
	left  joinSide[A]
	right joinSide[B]
	late  connector.Counter
	jc    JoinContext
	// lefts and rights are set when the records of a pair need to be copies: the others are in the state, and in other pairs.
	lefts  serde.Codec[A]
	rights serde.Codec[B]
	sorted *sortedJoin[K, A, B] // in BATCH, instead of left and right
}

func (j *intervalJoin[K, A, B, R]) Open(rt *RuntimeContext[K]) (err error) {
	j.late = rt.Metrics().Counter("numLateRecordsDropped")
	if rt.ctx.Batch {
		j.sorted, err = newSortedJoin[K, A, B]()
		return err
	}
	if j.left, err = openJoinSide[K, A](rt, "left-buffer"); err != nil {
		return err
	}
	j.right, err = openJoinSide[K, B](rt, "right-buffer")
	return err
}

func (j *intervalJoin[K, A, B, R]) Close() error { return nil }

// wait keeps a record until the last partner it can have; late says that it came after the watermark. A record at the watermark is not
// late, as in Flink, so others wait for one more millisecond (in Flink such a pair is lost).
func (j *intervalJoin[K, A, B, R]) wait(ctx *KeyedContext[K], upper int64) (ts int64, late bool, err error) {
	ts = ctx.e.m.TS
	if ts == NoTimestamp {
		return 0, false, ctx.e.ctx.noTime()
	}
	if ts < ctx.watermark {
		return ts, true, nil
	}
	return ts, false, ctx.event.Register(ctx.cur, 0, plus(ts, max(upper, 0)+1))
}

func (j *intervalJoin[K, A, B, R]) ProcessFirst(ctx *KeyedContext[K], v A, out *Collector[R]) error {
	if j.sorted != nil {
		return j.first(ctx, v, out)
	}
	ts, late, err := j.wait(ctx, j.j.Upper)
	if err != nil {
		return err
	}
	if late {
		reject(ctx.e, j.j.LeftLate, v, j.late)
		return nil
	}
	if err := j.left.add(ts, v); err != nil {
		return err
	}
	from, to := plus(ts, j.j.Lower), plus(ts, j.j.Upper)
	return j.right.ForEach(func(at int64, vs []B) error {
		if at < from || at > to {
			return nil
		}
		for i := range vs {
			if err := j.pair(ctx.e, ts, at, v, vs[i], out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *intervalJoin[K, A, B, R]) ProcessSecond(ctx *KeyedContext[K], v B, out *Collector[R]) error {
	if j.sorted != nil {
		return j.second(ctx, v, out)
	}
	ts, late, err := j.wait(ctx, -j.j.Lower)
	if err != nil {
		return err
	}
	if late {
		reject(ctx.e, j.j.RightLate, v, j.late)
		return nil
	}
	if err := j.right.add(ts, v); err != nil {
		return err
	}
	from, to := plus(ts, -j.j.Upper), plus(ts, -j.j.Lower)
	return j.left.ForEach(func(at int64, vs []A) error {
		if at < from || at > to {
			return nil
		}
		for i := range vs {
			if err := j.pair(ctx.e, at, ts, vs[i], v, out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *intervalJoin[K, A, B, R]) pair(e *emission, left, right int64, l A, r B, out *Collector[R]) error {
	j.jc = JoinContext{e, left, right}
	e.m.TS = max(left, right)
	if j.lefts != nil {
		l = j.lefts.Clone(l)
	}
	if j.rights != nil {
		r = j.rights.Clone(r)
	}
	if err := j.fn(&j.jc, l, r, out); err != nil {
		return err
	}
	return e.err
}

// OnTimer drops the records whose last partner can have come by now.
func (j *intervalJoin[K, A, B, R]) OnTimer(_ *KeyedContext[K], t Timer, _ *Collector[R]) error {
	at := t.At.UnixMilli() - 1
	if err := j.left.Remove(plus(at, -max(j.j.Upper, 0))); err != nil {
		return err
	}
	return j.right.Remove(plus(at, -max(-j.j.Lower, 0)))
}

// joinSide are the records of one side that wait for partners, by event time.
type joinSide[V any] struct {
	MapState[int64, []V]
	elem serde.Codec[V]
}

func openJoinSide[K comparable, V any](rt *RuntimeContext[K], name string) (s joinSide[V], err error) {
	if s.elem, err = codecFor[V](rt.ctx, name, "value"); err != nil {
		return s, err
	}
	s.MapState, err = rt.MapState[int64, []V](name)
	return s, err
}

// add appends to the list of a time, in place: many records of a key may have one time.
func (s *joinSide[V]) add(ts int64, v V) error {
	p, err := s.s.(interface{ ref(int64) (*[]V, error) }).ref(ts)
	if err != nil {
		return err
	}
	*p = append(*p, s.elem.Clone(v))
	return nil
}

// reject sends a late record to its side output, or counts it when there is none that is read.
func reject[V any](e *emission, tag string, v V, dropped connector.Counter) {
	if !sendLate(e, OutputTag[V]{tag}, v, e.m) {
		dropped.Add(1)
	}
}

// plus adds without wrapping around.
func plus(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
