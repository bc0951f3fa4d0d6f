package stream

import (
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// TaggedUnion is a record of one of two streams that are joined in windows: triggers, evictors and gap functions of such windows see it.
// It has the fields One A, Two B and Second bool, and the methods IsOne() and IsTwo().
type TaggedUnion[A, B any] = operator.TaggedUnion[A, B]

// Join joins this stream with another in windows: a.Join(b).Where(keyOfA).EqualTo(keyOfB).Window(assigner).Apply(fn) calls fn for each pair
// of records that have one key and are in one window. A record without a partner gives nothing; CoGroup sees it.
func (s DataStream[T]) Join[B any](other Stream[B]) JoinedStreams[T, B] {
	return JoinedStreams[T, B]{s.Connect(other)}
}

// CoGroup groups the records of this stream and another in windows: a.CoGroup(b).Where(keyOfA).EqualTo(keyOfB).Window(assigner).Apply(fn)
// calls fn for each key and window with the records of both streams.
func (s DataStream[T]) CoGroup[B any](other Stream[B]) CoGroupedStreams[T, B] {
	return CoGroupedStreams[T, B]{s.Connect(other)}
}

// JoinedStreams are two streams that are to be joined; Where comes next.
type JoinedStreams[A, B any] struct{ c ConnectedStreams[A, B] }

// Where sets the key of the first stream; EqualTo comes next.
func (j JoinedStreams[A, B]) Where[K comparable](key func(A) K) JoinWhere[K, A, B] {
	return JoinWhere[K, A, B]{one: j.c.first.KeyBy(key), two: j.c.second}
}

// JoinWhere are two streams that are to be joined, with the key of the first.
type JoinWhere[K comparable, A, B any] struct {
	one KeyedStream[K, A]
	two DataStream[B]
}

// EqualTo sets the key of the second stream; Window comes next.
func (j JoinWhere[K, A, B]) EqualTo(key func(B) K) JoinEqualTo[K, A, B] {
	return JoinEqualTo[K, A, B]{ConnectedKeyedStreams[K, A, B]{j.one, j.two.KeyBy(key)}}
}

// JoinEqualTo are two keyed streams that are to be joined.
type JoinEqualTo[K comparable, A, B any] struct {
	c ConnectedKeyedStreams[K, A, B]
}

// Window sets the windows in which records are joined.
func (j JoinEqualTo[K, A, B]) Window(a WindowAssigner) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{newCoWindowed(j.c, a)}
}

// CoGroupedStreams are two streams that are to be grouped together; Where comes next.
type CoGroupedStreams[A, B any] struct{ c ConnectedStreams[A, B] }

// Where sets the key of the first stream; EqualTo comes next.
func (g CoGroupedStreams[A, B]) Where[K comparable](key func(A) K) CoGroupWhere[K, A, B] {
	return CoGroupWhere[K, A, B]{one: g.c.first.KeyBy(key), two: g.c.second}
}

// CoGroupWhere are two streams that are to be grouped together, with the key of the first.
type CoGroupWhere[K comparable, A, B any] struct {
	one KeyedStream[K, A]
	two DataStream[B]
}

// EqualTo sets the key of the second stream; Window comes next.
func (g CoGroupWhere[K, A, B]) EqualTo(key func(B) K) CoGroupEqualTo[K, A, B] {
	return CoGroupEqualTo[K, A, B]{ConnectedKeyedStreams[K, A, B]{g.one, g.two.KeyBy(key)}}
}

// CoGroupEqualTo are two keyed streams that are to be grouped together.
type CoGroupEqualTo[K comparable, A, B any] struct {
	c ConnectedKeyedStreams[K, A, B]
}

// Window sets the windows in which records are grouped.
func (g CoGroupEqualTo[K, A, B]) Window(a WindowAssigner) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{newCoWindowed(g.c, a)}
}

// coWindowed is what window joins and coGroups share.
type coWindowed[K comparable, A, B any] struct {
	c     ConnectedKeyedStreams[K, A, B]
	spec  operator.CoWindowSpec[K, A, B]
	extra string
	given *bool // it has a function
}

func newCoWindowed[K comparable, A, B any](c ConnectedKeyedStreams[K, A, B], a WindowAssigner) coWindowed[K, A, B] {
	w := coWindowed[K, A, B]{c: c, given: c.first.env.wants("joined windows"), spec: operator.CoWindowSpec[K, A, B]{One: c.first.sel, Two: c.second.sel}}
	w.spec.Windows.Assigner = assign[operator.TaggedUnion[A, B]](c.first.env, a)
	return w
}

func (w coWindowed[K, A, B]) trigger(t WindowTrigger[TaggedUnion[A, B]]) coWindowed[K, A, B] {
	setTrigger(w.c.first.env, &w.spec.Windows, t, &w.extra)
	return w
}

func (w coWindowed[K, A, B]) evictor(e WindowEvictor[TaggedUnion[A, B]]) coWindowed[K, A, B] {
	setEvictor(w.c.first.env, &w.spec.Windows, e, &w.extra)
	return w
}

func (w coWindowed[K, A, B]) lateness(d time.Duration) coWindowed[K, A, B] {
	setLateness(w.c.first.env, &w.spec.Windows.Lateness, d, w.spec.Windows.Assigner.EventTime)
	return w
}

func (w coWindowed[K, A, B]) lateOne(tag OutputTag[A]) coWindowed[K, A, B] {
	w.spec.LateOne = lateTag(w.c.first.env, "SideOutputLeftLateData", tag)
	return w
}

func (w coWindowed[K, A, B]) lateTwo(tag OutputTag[B]) coWindowed[K, A, B] {
	w.spec.LateTwo = lateTag(w.c.first.env, "SideOutputRightLateData", tag)
	return w
}

// lateTag checks the tag of a side output of late records.
func lateTag[T any](env *Environment, method string, tag OutputTag[T]) OutputTag[T] {
	if tag.ID == "" {
		env.mistake("%s: the tag has no name", method)
	}
	return tag
}

func coWindow[K comparable, A, B, R any](w coWindowed[K, A, B], name, what string, f operator.Factory) SingleOutputStreamOperator[R] {
	w.c.first.env.finish(w.given)
	first := w.c.first
	n := first.env.add(&graph.Node{Kind: "windowjoin", Name: name, Detail: w.spec.Windows.Assigner.String() + w.extra + " " + what, Stateful: true, Keyed: true,
		KeyType: first.keyType, In: append(keyedEdges(first.in.f, first.sel, 0), keyedEdges(w.c.second.in.f, w.c.second.sel, 1)...), Impl: f})
	encodable[A](first.env, n)
	encodable[B](first.env, n)
	sameTag(first.env, w.spec.LateOne, w.spec.LateTwo)
	declare(n, w.spec.LateOne)
	declare(n, w.spec.LateTwo)
	return output[R](first.env, n)
}

// encodable notes a mistake when an operator cannot keep records of T.
func encodable[T any](env *Environment, n *graph.Node) {
	if _, err := operator.TypeOf[T](); err != nil {
		env.mistake("%s: %v", n.Name, err)
	}
}

// WindowJoin is a join of two streams in windows. Event-time windows are emitted when the watermark, the lesser one of both streams, passes
// their end; records that come later are dropped and counted (numLateRecordsDropped), unless AllowedLateness, SideOutputLeftLateData or
// SideOutputRightLateData say otherwise. The functions are shared by the subtasks; results have the window's last millisecond as their
// event time.
type WindowJoin[K comparable, A, B any] struct{ w coWindowed[K, A, B] }

// Trigger replaces the assigner's own trigger.
func (j WindowJoin[K, A, B]) Trigger(t WindowTrigger[TaggedUnion[A, B]]) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{j.w.trigger(t)}
}

// Evictor lets an evictor choose from a window's records, of both streams together, when it is emitted.
func (j WindowJoin[K, A, B]) Evictor(e WindowEvictor[TaggedUnion[A, B]]) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{j.w.evictor(e)}
}

// AllowedLateness keeps event-time windows for d after their end: a record that comes in that time emits its windows again, with all pairs. Of
// other windows it is a mistake.
func (j WindowJoin[K, A, B]) AllowedLateness(d time.Duration) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{j.w.lateness(d)}
}

// SideOutputLeftLateData sends records of the first stream whose windows are all gone to a side output, instead of dropping and counting
// them. When nobody reads the side output they are counted.
func (j WindowJoin[K, A, B]) SideOutputLeftLateData(tag OutputTag[A]) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{j.w.lateOne(tag)}
}

// SideOutputRightLateData is SideOutputLeftLateData for the second stream.
func (j WindowJoin[K, A, B]) SideOutputRightLateData(tag OutputTag[B]) WindowJoin[K, A, B] {
	return WindowJoin[K, A, B]{j.w.lateTwo(tag)}
}

// Apply emits fn of each pair (Flink's JoinFunction).
func (j WindowJoin[K, A, B]) Apply[R any](fn func(left A, right B) R) SingleOutputStreamOperator[R] {
	j.w.c.first.env.need(fn != nil, "the function")
	return j.Process(func(_ *WindowContext[K], l A, r B, out *Collector[R]) error {
		out.Collect(fn(l, r))
		return nil
	})
}

// FlatApply calls fn for each pair; it emits any number of results (Flink's FlatJoinFunction).
func (j WindowJoin[K, A, B]) FlatApply[R any](fn func(left A, right B, out *Collector[R]) error) SingleOutputStreamOperator[R] {
	j.w.c.first.env.need(fn != nil, "the function")
	return j.Process(func(_ *WindowContext[K], l A, r B, out *Collector[R]) error { return fn(l, r, out) })
}

// Process is FlatApply with the key, the window, the watermark and side outputs.
func (j WindowJoin[K, A, B]) Process[R any](fn func(ctx *WindowContext[K], left A, right B, out *Collector[R]) error) SingleOutputStreamOperator[R] {
	j.w.c.first.env.need(fn != nil, "the function")
	return coWindow[K, A, B, R](j.w, "Window Join", "join", operator.JoinWindow(j.w.spec, fn))
}

// WindowCoGroup is a coGroup of two streams in windows. What WindowJoin says of watermarks, late records and functions holds for it, too.
type WindowCoGroup[K comparable, A, B any] struct{ w coWindowed[K, A, B] }

// Trigger replaces the assigner's own trigger.
func (g WindowCoGroup[K, A, B]) Trigger(t WindowTrigger[TaggedUnion[A, B]]) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{g.w.trigger(t)}
}

// Evictor lets an evictor choose from a window's records, of both streams together, when it is emitted.
func (g WindowCoGroup[K, A, B]) Evictor(e WindowEvictor[TaggedUnion[A, B]]) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{g.w.evictor(e)}
}

// AllowedLateness keeps event-time windows for d after their end: a record that comes in that time emits its windows again. Of other windows
// it is a mistake.
func (g WindowCoGroup[K, A, B]) AllowedLateness(d time.Duration) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{g.w.lateness(d)}
}

// SideOutputLeftLateData sends records of the first stream whose windows are all gone to a side output, instead of dropping and counting
// them. When nobody reads the side output they are counted.
func (g WindowCoGroup[K, A, B]) SideOutputLeftLateData(tag OutputTag[A]) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{g.w.lateOne(tag)}
}

// SideOutputRightLateData is SideOutputLeftLateData for the second stream.
func (g WindowCoGroup[K, A, B]) SideOutputRightLateData(tag OutputTag[B]) WindowCoGroup[K, A, B] {
	return WindowCoGroup[K, A, B]{g.w.lateTwo(tag)}
}

// Apply calls fn for each key and window with the records of both streams, one of which may have none (Flink's CoGroupFunction).
func (g WindowCoGroup[K, A, B]) Apply[R any](fn func(left iter.Seq[A], right iter.Seq[B], out *Collector[R]) error) SingleOutputStreamOperator[R] {
	g.w.c.first.env.need(fn != nil, "the function")
	return g.Process(func(_ *WindowContext[K], l iter.Seq[A], r iter.Seq[B], out *Collector[R]) error { return fn(l, r, out) })
}

// Process is Apply with the key, the window, the watermark and side outputs.
func (g WindowCoGroup[K, A, B]) Process[R any](fn func(ctx *WindowContext[K], left iter.Seq[A], right iter.Seq[B], out *Collector[R]) error) SingleOutputStreamOperator[R] {
	g.w.c.first.env.need(fn != nil, "the function")
	return coWindow[K, A, B, R](g.w, "Window CoGroup", "coGroup", operator.CoGroupWindow(g.w.spec, func(ctx *WindowContext[K], l []A, r []B, out *Collector[R]) error {
		return fn(ctx, slices.Values(l), slices.Values(r), out)
	}))
}

// sameTag notes a mistake when two side outputs of one operator have one name and different types.
func sameTag[A, B any](env *Environment, a OutputTag[A], b OutputTag[B]) {
	if a.ID == "" || a.ID != b.ID {
		return
	}
	if ta, tb := typeName[A](), typeName[B](); ta != tb {
		env.mistake("the side outputs of late records share the name %q and have the types %s and %s", a.ID, ta, tb)
	}
}
