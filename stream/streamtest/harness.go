package streamtest

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/stream"
)

// Sinkable is any stream of R.
type Sinkable[R any] interface {
	SinkTo(sink connector.Sink[R]) stream.DataStreamSink[R]
}

// Harness runs a piece of a pipeline with one input and one output: what it embeds are the means of both, and of the job.
type Harness[T, R any] struct {
	*Job
	In    *Input[T]
	Out   *Output[R]
	sides []func(s any)
}

// New runs a piece of a pipeline, which fn adds to the stream of the test's input.
func New[T, R any, S Sinkable[R]](t testing.TB, fn func(in stream.DataStream[T]) S, opts ...Option) *Harness[T, R] {
	t.Helper()
	h := &Harness[T, R]{In: &Input[T]{}, Out: &Output[R]{}}
	h.Job = newJob(t, func(env *stream.Environment) error {
		finish(fn(h.In.Stream(env).DataStream), h.Out, h.sides)
		return nil
	}, newSettings(opts))
	return h
}

func finish[R any, S Sinkable[R]](s S, out *Output[R], sides []func(any)) {
	s.SinkTo(out.Sink())
	for _, side := range sides {
		side(s)
	}
}

// SideOutput is what the operator emits under tag. It is called before the first push.
func (h *Harness[T, R]) SideOutput[S any](tag stream.OutputTag[S]) *Output[S] {
	h.e.t.Helper()
	return sideOutput[R](h.e, &h.sides, tag)
}

// SideOutput is what the operator emits under tag. It is called before the first push.
func (h *Harness2[A, B, R]) SideOutput[S any](tag stream.OutputTag[S]) *Output[S] {
	h.e.t.Helper()
	return sideOutput[R](h.e, &h.sides, tag)
}

func sideOutput[R, S any](j *engine, sides *[]func(any), tag stream.OutputTag[S]) *Output[S] {
	j.t.Helper()
	if j.running {
		j.t.Fatal("streamtest: SideOutput is called before the first push")
	}
	out := &Output[S]{job: j}
	*sides = append(*sides, func(s any) {
		op, ok := s.(stream.SingleOutputStreamOperator[R])
		if !ok {
			j.t.Fatalf("streamtest: SideOutput: %T has none: let the function given to New return what an operator made", s)
		}
		op.GetSideOutput(tag).SinkTo(out.Sink())
	})
	if err := j.plan(); err != nil {
		j.t.Fatalf("streamtest: %v", err)
	}
	return out
}

// Push pushes records without an event time.
func (h *Harness[T, R]) Push(vs ...T) { h.e.t.Helper(); h.In.Push(vs...) }

// PushAt pushes records with an event time.
func (h *Harness[T, R]) PushAt(at time.Time, vs ...T) { h.e.t.Helper(); h.In.PushAt(at, vs...) }

// TryPush and TryPushAt are for records that are expected to fail the job, or to find that it cannot be opened.
func (h *Harness[T, R]) TryPush(vs ...T) error { h.e.t.Helper(); return h.In.TryPush(vs...) }

// TryPushAt is TryPush with an event time.
func (h *Harness[T, R]) TryPushAt(at time.Time, vs ...T) error {
	h.e.t.Helper()
	return h.In.TryPushAt(at, vs...)
}

// Watermark says that no record with an event time at or before at will follow.
func (h *Harness[T, R]) Watermark(at time.Time) { h.e.t.Helper(); h.In.Watermark(at) }

// TryWatermark is Watermark for one that is expected to fail the job: it returns the error of a timer, or of a window.
func (h *Harness[T, R]) TryWatermark(at time.Time) error {
	h.e.t.Helper()
	return h.In.TryWatermark(at)
}

// Take returns the results since the last call.
func (h *Harness[T, R]) Take() []R { return h.Out.Take() }

// Expect takes the results and fails the test unless they are those.
func (h *Harness[T, R]) Expect(want ...R) { h.e.t.Helper(); h.e.start(); h.Out.Expect(want...) }

// ExpectInAnyOrder is Expect without an order.
func (h *Harness[T, R]) ExpectInAnyOrder(want ...R) {
	h.e.t.Helper()
	h.e.start()
	h.Out.ExpectInAnyOrder(want...)
}

// Harness2 is a Harness with two inputs.
type Harness2[A, B, R any] struct {
	*Job
	First  *Input[A]
	Second *Input[B]
	Out    *Output[R]
	sides  []func(s any)
}

// New2 runs a piece of a pipeline with two inputs.
func New2[A, B, R any, S Sinkable[R]](t testing.TB, fn func(first stream.DataStream[A], second stream.DataStream[B]) S, opts ...Option) *Harness2[A, B, R] {
	t.Helper()
	h := &Harness2[A, B, R]{First: &Input[A]{}, Second: &Input[B]{}, Out: &Output[R]{}}
	h.Job = newJob(t, func(env *stream.Environment) error {
		finish(fn(h.First.Stream(env).DataStream, h.Second.Stream(env).DataStream), h.Out, h.sides)
		return nil
	}, newSettings(opts))
	return h
}

// Watermark moves the event time of both inputs.
func (h *Harness2[A, B, R]) Watermark(at time.Time) {
	h.e.t.Helper()
	h.First.Watermark(at)
	h.Second.Watermark(at)
}

// TryWatermark is Watermark for one that is expected to fail the job: it returns the error of a timer, or of a window.
func (h *Harness2[A, B, R]) TryWatermark(at time.Time) error {
	h.e.t.Helper()
	if err := h.First.TryWatermark(at); err != nil {
		return err
	}
	return h.Second.TryWatermark(at)
}

// Take returns the results since the last call.
func (h *Harness2[A, B, R]) Take() []R { return h.Out.Take() }

// Expect takes the results and fails the test unless they are those.
func (h *Harness2[A, B, R]) Expect(want ...R) { h.e.t.Helper(); h.e.start(); h.Out.Expect(want...) }

// ExpectInAnyOrder is Expect without an order.
func (h *Harness2[A, B, R]) ExpectInAnyOrder(want ...R) {
	h.e.t.Helper()
	h.e.start()
	h.Out.ExpectInAnyOrder(want...)
}

// KeyedHarness is a Harness of a keyed function: Key looks at its state and timers.
type KeyedHarness[K comparable, T, R any] struct{ *Harness[T, R] }

// Key is the state of one key.
func (h *KeyedHarness[K, T, R]) Key(k K) *KeyState[K] { return keyOf(h.e, "", k) }

// KeyedHarness2 is a Harness2 of a keyed function.
type KeyedHarness2[K comparable, A, B, R any] struct{ *Harness2[A, B, R] }

// Key is the state of one key.
func (h *KeyedHarness2[K, A, B, R]) Key(k K) *KeyState[K] { return keyOf(h.e, "", k) }

// functionUID is the UID of a function under test: its state is nobody else's, and a program of one function needs no warning about it.
const functionUID = "function"

// KeyedProcess runs a KeyedProcessFunction.
func KeyedProcess[K comparable, T, R any](t testing.TB, key func(T) K, newFn func() stream.KeyedProcessFunction[K, T, R], opts ...Option) *KeyedHarness[K, T, R] {
	t.Helper()
	return &KeyedHarness[K, T, R]{New(t, func(in stream.DataStream[T]) stream.SingleOutputStreamOperator[R] {
		return in.KeyBy(key).Process(newFn).UID(functionUID)
	}, opts...)}
}

// Process runs a ProcessFunction.
func Process[T, R any](t testing.TB, newFn func() stream.ProcessFunction[T, R], opts ...Option) *Harness[T, R] {
	t.Helper()
	return New(t, func(in stream.DataStream[T]) stream.SingleOutputStreamOperator[R] {
		return in.Process(newFn).UID(functionUID)
	}, opts...)
}

// CoProcess runs a CoProcessFunction.
func CoProcess[A, B, R any](t testing.TB, newFn func() stream.CoProcessFunction[A, B, R], opts ...Option) *Harness2[A, B, R] {
	t.Helper()
	return New2(t, func(a stream.DataStream[A], b stream.DataStream[B]) stream.SingleOutputStreamOperator[R] {
		return a.Connect(b).Process(newFn).UID(functionUID)
	}, opts...)
}

// KeyedCoProcess runs a KeyedCoProcessFunction.
func KeyedCoProcess[K comparable, A, B, R any](t testing.TB, first func(A) K, second func(B) K, newFn func() stream.KeyedCoProcessFunction[K, A, B, R], opts ...Option) *KeyedHarness2[K, A, B, R] {
	t.Helper()
	return &KeyedHarness2[K, A, B, R]{New2(t, func(a stream.DataStream[A], b stream.DataStream[B]) stream.SingleOutputStreamOperator[R] {
		return a.Connect(b).KeyBy(first, second).Process(newFn).UID(functionUID)
	}, opts...)}
}

// BroadcastProcess runs a BroadcastProcessFunction, with its broadcast states.
func BroadcastProcess[T, B, R any](t testing.TB, states []stream.StateDescriptor, newFn func() stream.BroadcastProcessFunction[T, B, R], opts ...Option) *Harness2[T, B, R] {
	t.Helper()
	return New2(t, func(a stream.DataStream[T], b stream.DataStream[B]) stream.SingleOutputStreamOperator[R] {
		return a.ConnectBroadcast(b.BroadcastState(states...)).Process(newFn).UID(functionUID)
	}, opts...)
}

// KeyedBroadcastProcess runs a KeyedBroadcastProcessFunction, with its broadcast states.
func KeyedBroadcastProcess[K comparable, T, B, R any](t testing.TB, key func(T) K, states []stream.StateDescriptor, newFn func() stream.KeyedBroadcastProcessFunction[K, T, B, R], opts ...Option) *KeyedHarness2[K, T, B, R] {
	t.Helper()
	return &KeyedHarness2[K, T, B, R]{New2(t, func(a stream.DataStream[T], b stream.DataStream[B]) stream.SingleOutputStreamOperator[R] {
		return a.KeyBy(key).ConnectBroadcast(b.BroadcastState(states...)).Process(newFn).UID(functionUID)
	}, opts...)}
}

// At is d after the start of the Unix epoch: event times of tests need no more.
func At(d time.Duration) time.Time { return time.UnixMilli(0).Add(d).UTC() }
