package operator

import (
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// TaggedUnion is a record of one of the two streams that a window join or a coGroup reads. It is what the triggers, evictors and gap
// functions of its windows see. Source: Flink CoGroupedStreams.TaggedUnion.
type TaggedUnion[A, B any] struct {
	One    A
	Two    B
	Second bool // it is Two, of the second stream
}

// IsOne reports whether it is a record of the first stream.
func (t TaggedUnion[A, B]) IsOne() bool { return !t.Second }

// IsTwo reports whether it is a record of the second stream.
func (t TaggedUnion[A, B]) IsTwo() bool { return t.Second }

// bothSides are the records of a window, by stream. The fields are exported for the codec alone.
type bothSides[A, B any] struct {
	One []A
	Two []B
}

// CoWindowSpec describes a window operator over two streams without its function. Windows has no key selector and no late tag of its own.
type CoWindowSpec[K comparable, A, B any] struct {
	One     KeySelector[K, A]
	Two     KeySelector[K, B]
	Windows WindowSpec[K, TaggedUnion[A, B]]
	// Where late records go; those of a stream without a tag, or whose tag nobody reads, are dropped and counted (numLateRecordsDropped).
	LateOne OutputTag[A]
	LateTwo OutputTag[B]
}

// CoGroupWindow gives the records of each key and window to fn, those of the two streams apart. fn is called for windows with records of
// only one stream as well. The slices are valid during the call and not to be changed; fn is shared by the subtasks. Results have the
// window's last millisecond as their event time. Source: Flink CoGroupedStreams.
func CoGroupWindow[K comparable, A, B, R any](spec CoWindowSpec[K, A, B], fn func(ctx *WindowContext[K], one []A, two []B, out *Collector[R]) error) Factory {
	return coWindow(spec, func(ctx *WindowContext[K], c *bothSides[A, B], out *Collector[R]) error {
		return fn(ctx, c.One, c.Two, out)
	})
}

// JoinWindow calls fn for each pair of records, one of each stream, of a key and window. The records of a pair are its own. fn is shared by the subtasks. Results have the
// window's last millisecond as their event time. Source: Flink JoinedStreams.
func JoinWindow[K comparable, A, B, R any](spec CoWindowSpec[K, A, B], fn func(ctx *WindowContext[K], one A, two B, out *Collector[R]) error) Factory {
	one, two := mutableCodec[A](), mutableCodec[B]()
	return coWindow(spec, func(ctx *WindowContext[K], c *bothSides[A, B], out *Collector[R]) error {
		for i := range c.One {
			for j := range c.Two {
				a, b := c.One[i], c.Two[j]
				if one != nil && j < len(c.Two)-1 { // it is in the next pair too
					a = one.Clone(a)
				}
				if two != nil && i < len(c.One)-1 {
					b = two.Clone(b)
				}
				if err := fn(ctx, a, b, out); err != nil {
					return err
				}
				if out.err != nil {
					return nil
				}
			}
		}
		return nil
	})
}

// coWindow is a window operator over the union of two streams. Their records are tagged by value, behind the exchange: each side travels
// and is stored in its own form.
func coWindow[K comparable, A, B, R any](spec CoWindowSpec[K, A, B], fn func(*WindowContext[K], *bothSides[A, B], *Collector[R]) error) Factory {
	one, two := spec.One.Fn, spec.Two.Fn
	w := spec.Windows
	site := spec.One.Site
	if spec.Two.Site != site {
		site += " and " + spec.Two.Site
	}
	w.Key = KeySelector[K, TaggedUnion[A, B]]{Codec: spec.One.Codec, Site: site, types: typeName[A]() + " or " + typeName[B](), Fn: func(t TaggedUnion[A, B]) K {
		if t.Second {
			return two(t.Two)
		}
		return one(t.One)
	}}
	w.Late.by = func(e *emission, t TaggedUnion[A, B], m Meta) bool {
		if t.Second {
			return sendLate(e, spec.LateTwo, t.Two, m)
		}
		return sendLate(e, spec.LateOne, t.One, m)
	}
	a := w.Assigner
	f := chooseWindow(w, func() (contents[TaggedUnion[A, B], bothSides[A, B]], windowUser[K, bothSides[A, B], R]) {
		return sidesContents[A, B](), &coUser[K, A, B, R]{fn: fn}
	})
	return laid("two streams in "+windowLayout(a.Kind, a.EventTime, a.Sliding, w.Trigger != nil, w.Evictor != nil), func(ctx *Context, out any) (Operator, error) {
		op, err := f.New(ctx, out)
		if err != nil {
			return nil, err
		}
		in := op.Input(0).(Receiver[TaggedUnion[A, B]])
		return &coWindowOp[A, B]{Operator: op, advance: in.Watermark, ports: newPorts(
			func(v A, m Meta) error { return in.Process(TaggedUnion[A, B]{One: v}, m) },
			func(v B, m Meta) error { return in.Process(TaggedUnion[A, B]{Two: v, Second: true}, m) },
			in.Watermark, in.Idle)}, nil
	})
}

// sidesContents are a window's records by stream. Types that cannot be encoded are refused when the operator is made.
func sidesContents[A, B any]() contents[TaggedUnion[A, B], bothSides[A, B]] {
	c := contents[TaggedUnion[A, B], bothSides[A, B]]{copies: true, empty: func() bothSides[A, B] { return bothSides[A, B]{} },
		merge: func(a, b bothSides[A, B]) bothSides[A, B] {
			return bothSides[A, B]{append(a.One, b.One...), append(a.Two, b.Two...)}
		}}
	one, errOne := serde.For[A]()
	two, errTwo := serde.For[B]()
	cloneOne, cloneTwo := errOne == nil && one.Views(), errTwo == nil && two.Views()
	c.add = func(s *bothSides[A, B], t TaggedUnion[A, B], _ int64, _ bool) {
		switch {
		case t.Second && cloneTwo:
			s.Two = append(s.Two, two.Clone(t.Two))
		case t.Second:
			s.Two = append(s.Two, t.Two)
		case cloneOne:
			s.One = append(s.One, one.Clone(t.One))
		default:
			s.One = append(s.One, t.One)
		}
	}
	return c
}

// coWindowOp is a window operator with an input per stream. Its watermark is the least of theirs.
type coWindowOp[A, B any] struct {
	Operator
	ports[A, B]
	advance func(ts int64) error
}

func (o *coWindowOp[A, B]) Input(i int) any { return o.ports.Input(i) }

// Watermark is for the end of a key in BATCH (EndKey).
func (o *coWindowOp[A, B]) Watermark(ts int64) error { return o.advance(ts) }

// coUser runs a function over the records of both streams. It keeps no state.
type coUser[K comparable, A, B, R any] struct {
	fn  func(*WindowContext[K], *bothSides[A, B], *Collector[R]) error
	env *windowEnv[K, R]
	cur state.Key[K]
	wc  WindowContext[K]
}

func (u *coUser[K, A, B, R]) open(e *windowEnv[K, R]) error {
	u.env = e
	u.wc = WindowContext[K]{ProcessContext: ProcessContext{&e.c.emission, MinWatermark}, cur: &u.cur}
	return nil
}

func (u *coUser[K, A, B, R]) fire(k state.Key[K], w Window, c *bothSides[A, B]) (bool, error) {
	u.env.ctx.Enter()
	u.env.c.begin(Meta{TS: w.MaxTimestamp(), Hash: k.Hash})
	u.cur, u.wc.w, u.wc.watermark = k, w, u.env.clock.at(k.Group)
	return false, u.env.c.done(u.fn(&u.wc, c, &u.env.c))
}

func (*coUser[K, A, B, R]) shares() bool                               { return mutableType[A]() || mutableType[B]() }
func (*coUser[K, A, B, R]) stateful() bool                             { return false }
func (*coUser[K, A, B, R]) clear(state.Key[K], Window) error           { return nil }
func (*coUser[K, A, B, R]) forget(state.Namespace) error               { return nil }
func (*coUser[K, A, B, R]) remove(state.Key[K], state.Namespace) error { return nil }
func (*coUser[K, A, B, R]) close() error                               { return nil }
