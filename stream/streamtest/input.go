package streamtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/stream"
)

// Input is where a test pushes the records of a stream. The zero value is ready: Stream adds it to a program, or Source puts it in the
// place of a source. It belongs to one job.
type Input[T any] struct {
	job      *engine
	strategy bool // the program's watermarks, not the test's
	queue    []item[T]
	ended    bool
}

type item[T any] struct {
	v    T
	ts   int64
	kind itemKind
}

type itemKind uint8

const (
	record itemKind = iota
	watermark
	idle
)

// Stream adds the input to a program, as a source without watermarks of its own: those are what Watermark says. It has parallelism 1.
func (in *Input[T]) Stream(env *stream.Environment) stream.DataStreamSource[T] {
	s := env.FromSource[T](source[T]{in}, stream.NoWatermarks[T](), "Input")
	s.SetParallelism(1)
	return s
}

func (in *Input[T]) substitute(n *graph.Node) error {
	f, ok := n.Impl.(operator.SourceFactory[T])
	if !ok {
		return fmt.Errorf("its records are not %T", *new(T))
	}
	f.Source = source[T]{in}
	n.Impl, n.Coordinator, n.Bounded = f, operator.SourceCoordinator(f.Source, f.Watermarks), true
	return nil
}

// Push pushes records without an event time of their own. It returns when everything that follows from them is done. For the restarts that
// happen by themselves it is one push, however many records it has.
func (in *Input[T]) Push(vs ...T) {
	in.owner().t.Helper()
	in.job.check(in.TryPush(vs...))
}

// PushAt pushes records with an event time (of millisecond precision).
func (in *Input[T]) PushAt(at time.Time, vs ...T) {
	in.owner().t.Helper()
	in.job.check(in.TryPushAt(at, vs...))
}

// TryPush is Push for records that are expected to fail the job: it returns the error instead of failing the test. When it is what starts the
// job, that may be the error of a function's Open; a panic of a function is an error, too, with the function's stack.
func (in *Input[T]) TryPush(vs ...T) error { return in.push(connector.NoTimestamp, vs) }

// TryPushAt is TryPush with an event time.
func (in *Input[T]) TryPushAt(at time.Time, vs ...T) error { return in.push(at.UnixMilli(), vs) }

func (in *Input[T]) push(ts int64, vs []T) error {
	j := in.owner()
	if err := j.tryStart(); err != nil {
		return err
	}
	for _, v := range vs {
		in.queue = append(in.queue, item[T]{v: v, ts: ts})
	}
	return j.pushed()
}

// Watermark says that no record with an event time at or before at will follow.
func (in *Input[T]) Watermark(at time.Time) {
	in.owner().t.Helper()
	in.job.check(in.event(item[T]{ts: at.UnixMilli(), kind: watermark}))
}

// TryWatermark is Watermark for one that is expected to fail the job, in a timer or a window: it returns the error.
func (in *Input[T]) TryWatermark(at time.Time) error {
	in.owner().t.Helper()
	return in.event(item[T]{ts: at.UnixMilli(), kind: watermark})
}

// Idle says that the input is idle: it does not hold the watermark of what has several inputs back. The next record ends it.
func (in *Input[T]) Idle() {
	in.owner().t.Helper()
	in.job.check(in.event(item[T]{kind: idle}))
}

func (in *Input[T]) event(i item[T]) error {
	j := in.owner()
	j.t.Helper()
	if in.strategy {
		j.t.Fatal("streamtest: the input replaces a source whose own strategy makes the watermarks: push records, or Advance the clock")
	}
	if err := j.tryStart(); err != nil {
		return err
	}
	in.queue = append(in.queue, i)
	return j.settle()
}

// End ends the input. A job is at its end when all of its inputs are (see Job.End).
func (in *Input[T]) End() {
	j := in.owner()
	j.t.Helper()
	j.start()
	in.ended = true
	j.check(j.settle())
}

func (in *Input[T]) owner() *engine {
	if in.job == nil {
		panic("streamtest: the Input is part of no job: use its Stream in a program, or Source(name, &input)")
	}
	return in.job
}

// attach and finish are what the job does with its inputs.
func (in *Input[T]) attach(j *engine) { in.job = j }
func (in *Input[T]) finish()          { in.ended = true }

// source is the Source that reads an Input: one split, which always has everything that was pushed.
type source[T any] struct{ in *Input[T] }

func (s source[T]) Boundedness() connector.Boundedness { return connector.Bounded }
func (s source[T]) input() anyInput                    { return s.in }

func (s source[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	return &inputEnumerator{ctx: ctx, assigned: len(restored) > 0}, nil
}

func (s source[T]) Reader(connector.ReaderContext) (connector.Reader[T], error) {
	return &inputReader[T]{in: s.in}, nil
}

type inputEnumerator struct {
	ctx      connector.EnumeratorContext
	assigned bool
}

func (e *inputEnumerator) Start(context.Context) error { return nil }
func (e *inputEnumerator) AddReader(subtask int) {
	if !e.assigned {
		e.assigned = true
		e.ctx.Assign(subtask, connector.Split{ID: "input"})
	}
	e.ctx.NoMoreSplits(subtask)
}
func (e *inputEnumerator) AddSplitsBack([]connector.Split, int) {}
func (e *inputEnumerator) HandleSplitRequest(int)               {}
func (e *inputEnumerator) Snapshot(int64) ([]byte, error)       { return []byte{1}, nil }
func (e *inputEnumerator) CheckpointComplete(int64)             {}
func (e *inputEnumerator) Close() error                         { return nil }

// never is what an input waits for: its test pushes and then runs the job itself.
var never = make(chan struct{})

type inputReader[T any] struct {
	in  *Input[T]
	has bool // the split
}

func (r *inputReader[T]) Start(context.Context) error { return nil }
func (r *inputReader[T]) AddSplits([]connector.Split) error {
	r.has = true
	return nil
}
func (r *inputReader[T]) NoMoreSplits()              {}
func (r *inputReader[T]) Available() <-chan struct{} { return never }
func (r *inputReader[T]) Close() error               { return nil }
func (r *inputReader[T]) CheckpointAborted(int64)    {}

func (r *inputReader[T]) CheckpointComplete(context.Context, int64) error { return nil }

func (r *inputReader[T]) Snapshot(int64) ([]connector.Split, error) {
	if !r.has {
		return nil, nil
	}
	return []connector.Split{{ID: "input"}}, nil
}

func (r *inputReader[T]) Poll(out connector.Output[T], _ int) (connector.Status, error) {
	for r.has && len(r.in.queue) > 0 {
		i := r.in.queue[0]
		r.in.queue = r.in.queue[1:]
		if err := r.emit(out, i); err != nil {
			return connector.MoreAvailable, err
		}
	}
	if r.in.ended {
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

func (r *inputReader[T]) emit(out connector.Output[T], i item[T]) error {
	if i.kind == record {
		return out.Split("input").Collect(i.v, i.ts)
	}
	return move(out, i.kind, i.ts)
}

// move moves a source's event time.
func move(out any, kind itemKind, ts int64) error {
	source, ok := out.(interface{ Progress() operator.Progress })
	if !ok {
		return fmt.Errorf("streamtest: %T takes no watermarks", out)
	}
	p := source.Progress()
	if kind == idle {
		return p.EmitIdle(true)
	}
	if err := p.EmitIdle(false); err != nil {
		return err
	}
	return p.EmitWatermark(ts)
}

// anyInput is an Input of any type.
type anyInput interface {
	attach(*engine)
	finish()
}

// found reports whether a node has this UID or name; sources and sinks also answer to their name without its prefix.
func found(n *graph.Node, name string) bool {
	short := strings.TrimPrefix(strings.TrimPrefix(n.Name, "Source: "), "Sink: ")
	return n.UID == name || n.Name == name || short == name
}
