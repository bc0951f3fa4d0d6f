package streamtest

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// Output holds what a stream emitted. The zero value is ready: its Sink ends a stream, or Sink puts it in the place of a sink.
type Output[T any] struct {
	got  []Record[T]
	kept int // of got, what was there at the last snapshot
	job  *engine
}

// Record is a record with its event time.
type Record[T any] struct {
	Value  T
	At     time.Time // UTC; zero when it has none
	HasAt  bool
	Writer int // subtask of the sink that took it
}

// Sink is the sink to end a stream with: s.SinkTo(out.Sink()).
func (o *Output[T]) Sink() connector.Sink[T] { return sink[T]{o} }

func (o *Output[T]) substitute(n *graph.Node) error {
	if _, ok := n.Impl.(operator.SinkFactory[T]); !ok {
		return fmt.Errorf("its records are not %T", *new(T))
	}
	n.Impl, n.Coordinator, n.Coordinated = operator.Sink[T](sink[T]{o}), nil, false
	return nil
}

// Take returns the records since the last call.
func (o *Output[T]) Take() []T {
	out := make([]T, 0, len(o.got))
	for _, r := range o.got {
		out = append(out, r.Value)
	}
	o.got = nil
	return out
}

// Records returns the records since the last Take, which stay.
func (o *Output[T]) Records() []Record[T] { return append([]Record[T](nil), o.got...) }

// Expect takes the records and fails the test unless they are those, in this order.
func (o *Output[T]) Expect(want ...T) {
	o.tb().Helper()
	o.expect(o.Take(), want)
}

func (o *Output[T]) tb() testing.TB {
	if o.job == nil {
		panic("streamtest: the Output is part of no job: use its Sink in a program, or Sink(name, &output)")
	}
	return o.job.t
}

// ExpectInAnyOrder is Expect without an order: that of records of different keys depends on the parallelism.
func (o *Output[T]) ExpectInAnyOrder(want ...T) {
	o.tb().Helper()
	got, wanted := boxed(o.Take()), boxed(want)
	sortByText(got)
	sortByText(wanted)
	compare(o.job, got, wanted)
}

func (o *Output[T]) expect(got, want []T) {
	o.tb().Helper()
	compare(o.job, boxed(got), boxed(want))
}

func boxed[T any](vs []T) []any {
	out := make([]any, len(vs))
	for i := range vs {
		out[i] = vs[i]
	}
	return out
}

func sortByText(vs []any) {
	sort.SliceStable(vs, func(i, j int) bool { return fmt.Sprintf("%+v", vs[i]) < fmt.Sprintf("%+v", vs[j]) })
}

func compare(j *engine, got, want []any) {
	j.t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	var b strings.Builder
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			fmt.Fprintf(&b, "\n  + %+v", got[i])
		case i >= len(got):
			fmt.Fprintf(&b, "\n  - %+v", want[i])
		case reflect.DeepEqual(got[i], want[i]):
			fmt.Fprintf(&b, "\n    %+v", got[i])
		default:
			fmt.Fprintf(&b, "\n  - %+v\n  + %+v", want[i], got[i])
		}
	}
	if len(j.restarted) > 0 {
		fmt.Fprintf(&b, "\nthe job was restarted after %s (streamtest.NoRestarts turns that off)", strings.Join(j.restarted, ", "))
	}
	j.t.Errorf("the output differs (- wanted, + got):%s", b.String())
}

type sink[T any] struct{ out *Output[T] }

func (s sink[T]) output() anyOutput { return s.out }

func (s sink[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	return &writer[T]{out: s.out, subtask: ctx.Subtask}, nil
}

type writer[T any] struct {
	unbuffered
	out     *Output[T]
	subtask int
}

func (w *writer[T]) Write(v T, ts int64) error {
	r := Record[T]{Value: v, HasAt: ts != connector.NoTimestamp, Writer: w.subtask}
	if r.HasAt {
		r.At = time.UnixMilli(ts).UTC()
	}
	w.out.got = append(w.out.got, r)
	return nil
}

// unbuffered is what a writer is beside Write.
type unbuffered struct{}

func (*unbuffered) Flush(context.Context, bool) error { return nil }
func (*unbuffered) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (*unbuffered) Close() error                      { return nil }

// anyOutput is an Output of any type. Like a transactional sink it forgets, at a restart, what came after the snapshot: it comes again.
type anyOutput interface {
	attach(j *engine)
	keep()     // what there is belongs to the snapshot
	rollback() // to the snapshot; nothing was taken since
}

func (o *Output[T]) attach(j *engine) { o.job = j }
func (o *Output[T]) keep()            { o.kept = len(o.got) }
func (o *Output[T]) rollback()        { o.got = o.got[:o.kept] }
