package streamtest_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

// box is a record with memory behind it that can be changed in place.
type box struct {
	Key string
	N   []int64
}

func boxed(n int64) box    { return box{"a", []int64{n}} }
func boxKey(b box) string  { return b.Key }
func add100(b *box)        { b.N[0] += 100 }
func boxLine(b box) string { return fmt.Sprint(b.N) }
func changed(s stream.DataStream[box]) stream.DataStream[string] {
	return s.Update(add100).Map(boxLine).DataStream
}

// hoard keeps the first record in each kind of state, and emits what they hold for each that follows.
type hoard struct {
	stream.NoTimers[string, box]
	one  stream.ValueState[box]
	list stream.ListState[box]
	of   stream.MapState[string, box]
}

func (h *hoard) Open(rt *stream.RuntimeContext[string]) (err error) {
	if h.one, err = rt.ValueState[box]("one"); err != nil {
		return err
	}
	if h.list, err = rt.ListState[box]("list"); err != nil {
		return err
	}
	h.of, err = rt.MapState[string, box]("of")
	return err
}

func (h *hoard) ProcessElement(_ *stream.KeyedContext[string], v box, out *stream.Collector[box]) error {
	first, found, err := h.one.Value()
	if err != nil {
		return err
	}
	if !found {
		if err := h.one.Update(v); err != nil {
			return err
		}
		if err := h.list.Add(v); err != nil {
			return err
		}
		return h.of.Put("x", v)
	}
	out.Collect(first)
	list, err := h.list.Get()
	if err != nil {
		return err
	}
	out.Collect(list[0])
	x, _, err := h.of.Get("x")
	out.Collect(x)
	return err
}

// twice emits a record to the main output, again, and to a side output.
type twice struct {
	stream.Plain
}

var copiesTag = stream.NewOutputTag[box]("copies")

func (twice) ProcessElement(ctx *stream.ProcessContext, v box, out *stream.Collector[box]) error {
	out.Collect(v)
	ctx.Output(copiesTag, v)
	out.Collect(v)
	return nil
}

// What an operator does with the records that it gets changes neither the state of the function that emitted them nor what it emits again.
func TestRecordsBetweenChainedOperatorsAreCopies(t *testing.T) {
	cached := boxed(7)
	for name, c := range map[string]struct {
		build func(stream.DataStream[box]) stream.DataStream[string]
		want  []string
	}{
		"state": {func(in stream.DataStream[box]) stream.DataStream[string] {
			return changed(in.KeyBy(boxKey).Process(func() stream.KeyedProcessFunction[string, box, box] { return &hoard{} }).DataStream)
		}, []string{"[101]", "[101]", "[101]", "[101]", "[101]", "[101]"}},
		"twice and a side output": {func(in stream.DataStream[box]) stream.DataStream[string] {
			o := in.Process(func() stream.ProcessFunction[box, box] { return twice{} })
			return changed(o.DataStream).Union(changed(o.GetSideOutput(copiesTag)))
		}, []string{"[101]", "[101]", "[101]", "[102]", "[102]", "[102]", "[103]", "[103]", "[103]"}},
		"flatMap": {func(in stream.DataStream[box]) stream.DataStream[string] {
			return changed(in.FlatMap(func(v box, out *stream.Collector[box]) error {
				out.Collect(v)
				out.Collect(v)
				return nil
			}).DataStream)
		}, []string{"[101]", "[101]", "[102]", "[102]", "[103]", "[103]"}},
		"async": {func(in stream.DataStream[box]) stream.DataStream[string] {
			return changed(in.OrderedWait(stream.Async(func(context.Context, box) ([]box, error) { return []box{cached}, nil }),
				stream.AsyncOptions[box]{Timeout: time.Minute, Capacity: 1}).DataStream)
		}, []string{"[107]", "[107]", "[107]"}},
		"window": {func(in stream.DataStream[box]) stream.DataStream[string] {
			return changed(in.KeyBy(boxKey).CountWindow(3).Apply(func(_ string, _ stream.TimeWindow, es iter.Seq[box], out *stream.Collector[box]) error {
				for e := range es {
					out.Collect(e)
					out.Collect(e)
				}
				return nil
			}).DataStream)
		}, []string{"[101]", "[101]", "[102]", "[102]", "[103]", "[103]"}},
	} {
		for _, backend := range []string{"hashmap", "pebble"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := streamtest.New(t, c.build, streamtest.Backend(backend), streamtest.NoRestarts())
				h.Push(boxed(1), boxed(2), boxed(3))
				h.End()
				h.ExpectInAnyOrder(c.want...)
			})
		}
	}
}

// With pipeline.object-reuse records are handed on as they are.
func TestObjectReuse(t *testing.T) {
	h := streamtest.New(t, func(in stream.DataStream[box]) stream.DataStream[string] {
		return changed(in.Process(func() stream.ProcessFunction[box, box] { return twice{} }).DataStream)
	}, streamtest.Config("pipeline.object-reuse", "true"), streamtest.NoRestarts())
	h.Push(boxed(1))
	h.Expect("[101]", "[201]")
}
